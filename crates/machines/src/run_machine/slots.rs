//! The slots of a run, which limit how many agents work at the same time, and the queue for them.
//!
//! Pure. `limits.max_concurrency` counts tasks and children alike; `limits.max_children` counts
//! only the children. An agent that waits for its children holds no slot, so a tree of any depth
//! can always continue.
//!
//! Agents that want their slot back come first, in the order of their requests: begun work is
//! finished before new work begins. All other work waits in a queue in which owners take turns
//! ([`Turns`]). Of one owner, the children come before its tasks. The children of the instances of a
//! fan-out take turns among those too. A turn counts when its work takes the slot; those of earlier
//! processes follow from the journal.

use std::collections::VecDeque;

use ahash::{HashMap, HashMapExt};

use super::turns::{Owner, Precedence, Turns};
use crate::id::AgentId;

/// An agent's rank, which decides the limits that count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The agent of a task.
    Main,
    /// A child agent.
    Child,
}

/// Work that gets a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next<C> {
    /// This agent continues. It holds its slot already.
    Return(AgentId),
    /// A child starts, unless its parent has ended meanwhile. The caller begins it.
    Child(C),
    /// The task at this place starts, unless it reuses a result. The caller begins its agent.
    Task(usize),
}

/// Agents of one rank that want their slot back: pairs of a ticket number and the agent.
type Queue = VecDeque<(u64, AgentId)>;

/// Work that waits for its start, in the order in which that of one owner is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// The next child of the agents of a task: the number of the latest turn of these agents, and the
    /// place of the task.
    Child(u64, usize),
    /// A task.
    Task(Precedence),
}

/// The children of the agents of a task that wait for their start, as they were asked for.
#[derive(Clone, Debug)]
struct Line<C> {
    owner: Owner,
    children: VecDeque<C>,
}

/// The slots of a run. `C` is the type of a child that waits for a slot.
#[derive(Clone, Debug)]
pub(super) struct Slots<C> {
    capacity: usize,
    children_capacity: usize,
    working: HashMap<AgentId, Rank>,
    children_working: usize,
    /// Agents that want their slot back, each with its valid ticket.
    returning: HashMap<AgentId, u64>,
    returning_mains: Queue,
    returning_children: Queue,
    tickets: u64,
    /// What waits for its start.
    turns: Turns<Rank, Work>,
    /// The tasks among it, by place in the plan.
    tasks: HashMap<usize, (Owner, Precedence)>,
    /// The children among it, by the place of their task.
    children: HashMap<usize, Line<C>>,
    /// The number of the latest turn of each task's children.
    child_turns: HashMap<usize, u64>,
}

impl<C> Slots<C> {
    /// Makes the slots: at most `capacity` agents at work, and at most `children_capacity` children
    /// among them. Both are at least one.
    pub(super) fn new(capacity: usize, children_capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            children_capacity: children_capacity.max(1),
            working: HashMap::new(),
            children_working: 0,
            returning: HashMap::new(),
            returning_mains: Queue::new(),
            returning_children: Queue::new(),
            tickets: 0,
            turns: Turns::default(),
            tasks: HashMap::new(),
            children: HashMap::new(),
            child_turns: HashMap::new(),
        }
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Gives an agent a slot.
    pub(super) fn take(&mut self, agent: AgentId, rank: Rank) {
        if self.working.insert(agent, rank).is_none() && rank == Rank::Child {
            self.children_working += 1;
        }
    }

    /// Takes an agent's slot away, and withdraws its wish to have it back.
    pub(super) fn release(&mut self, agent: &AgentId) {
        if self.working.remove(agent) == Some(Rank::Child) {
            self.children_working -= 1;
        }
        self.returning.remove(agent);
    }

    /// Withdraws an agent's wish to have its slot back.
    pub(super) fn withdraw(&mut self, agent: &AgentId) {
        self.returning.remove(agent);
    }

    /// Gives the slot of an agent to another one, with its rank. Does nothing if it holds none.
    pub(super) fn hand_over(&mut self, from: &AgentId, to: AgentId) {
        if let Some(rank) = self.working.remove(from) {
            self.working.insert(to, rank);
        }
    }

    /// Returns true if a begun agent waits for its slot.
    pub(super) fn is_returning(&self, agent: &AgentId) -> bool {
        self.returning.contains_key(agent)
    }

    /// Returns true if an agent holds a slot.
    pub(super) fn holds(&self, agent: &AgentId) -> bool {
        self.working.contains_key(agent)
    }

    /// Returns the agents that hold slots.
    pub(super) fn holders(&self) -> impl Iterator<Item = &AgentId> {
        self.working.keys()
    }

    /// Returns true if no agent holds a slot and nothing waits for one.
    pub(super) fn is_idle(&self) -> bool {
        self.working.is_empty() && self.returning.is_empty() && self.turns.is_empty()
    }

    /// Notes that a begun agent wants to continue.
    pub(super) fn return_to(&mut self, agent: AgentId, rank: Rank) {
        let ticket = self.ticket();
        self.returning.insert(agent.clone(), ticket);
        match rank {
            Rank::Main => self.returning_mains.push_back((ticket, agent)),
            Rank::Child => self.returning_children.push_back((ticket, agent)),
        }
    }

    /// Notes that a task of this owner wants to start.
    pub(super) fn want_task(&mut self, owner: Owner, precedence: Precedence) {
        let task = precedence.task;
        if self.tasks.get(&task) != Some(&(owner, precedence)) {
            self.forget_task(task);
            self.tasks.insert(task, (owner, precedence));
            self.turns.insert(Rank::Main, owner, Work::Task(precedence));
        }
    }

    /// Notes that a task no longer wants to start.
    pub(super) fn forget_task(&mut self, task: usize) {
        if let Some((owner, precedence)) = self.tasks.remove(&task) {
            self.turns.remove(Rank::Main, owner, Work::Task(precedence));
        }
    }

    /// Notes that a child of a task's agents wants to start.
    pub(super) fn want_child(&mut self, owner: Owner, task: usize, child: C) {
        let none = || Line { owner, children: VecDeque::new() };
        self.children.entry(task).or_insert_with(none).children.push_back(child);
        self.turns.insert(Rank::Child, owner, self.child_of(task));
    }

    /// Removes the waiting children of a task for which `goes` returns true, and returns them.
    pub(super) fn forget_children(&mut self, task: usize, goes: impl Fn(&C) -> bool) -> Vec<C> {
        let Some(line) = self.children.get_mut(&task) else { return Vec::new() };
        let all = std::mem::take(&mut line.children);
        let (gone, left): (Vec<C>, Vec<C>) = all.into_iter().partition(goes);
        line.children = left.into();
        self.close_if_empty(task);
        gone
    }

    /// Removes the line of a task's children once nobody is in it.
    fn close_if_empty(&mut self, task: usize) {
        if let Some(line) = self.children.get(&task).filter(|line| line.children.is_empty()) {
            self.turns.remove(Rank::Child, line.owner, self.child_of(task));
            self.children.remove(&task);
        }
    }

    /// Returns the next child of a task as work that waits.
    fn child_of(&self, task: usize) -> Work {
        Work::Child(self.child_turns.get(&task).copied().unwrap_or(0), task)
    }

    /// Gives a slot to an agent of the task at this place, with which a turn of its owner begins.
    pub(super) fn begin(&mut self, agent: AgentId, rank: Rank, owner: Owner, task: usize) {
        self.take(agent, rank);
        self.had(rank, owner, task);
    }

    /// Notes that an owner had a turn, with the agent of a task or with a child of its agents.
    pub(super) fn had(&mut self, rank: Rank, owner: Owner, task: usize) {
        let turn = self.turns.had(owner);
        if rank == Rank::Child {
            let before = self.child_of(task);
            self.child_turns.insert(task, turn);
            if self.children.contains_key(&task) {
                self.turns.remove(rank, owner, before);
                self.turns.insert(rank, owner, self.child_of(task));
            }
        }
    }

    /// Gives a slot to the next agent that wants its slot back.
    pub(super) fn next_return(&mut self) -> Option<Next<C>> {
        let counts = |entry: &(u64, AgentId)| self.returning.get(&entry.1) == Some(&entry.0);
        for line in [&mut self.returning_mains, &mut self.returning_children] {
            // One that withdrew stays in its line until it is first.
            while line.front().is_some_and(|entry| !counts(entry)) {
                line.pop_front();
            }
        }
        let main = self.returning_mains.front().map(|(ticket, _)| *ticket);
        let child = self.returning_children.front().map(|(ticket, _)| *ticket);
        let (line, rank) = match self.older(main, child)? {
            Rank::Main => (&mut self.returning_mains, Rank::Main),
            Rank::Child => (&mut self.returning_children, Rank::Child),
        };
        let (_, agent) = line.pop_front()?;
        self.returning.remove(&agent);
        self.take(agent.clone(), rank);
        Some(Next::Return(agent))
    }

    /// Returns true if a child waits for its start.
    pub(super) fn a_child_waits(&self) -> bool {
        !self.children.is_empty()
    }

    /// Takes the next work that may begin, once all agents that want their slot back have it. `may_spawn` tells if
    /// that may be a child.
    pub(super) fn next_start(&mut self, may_spawn: bool) -> Option<Next<C>> {
        if !self.returning.is_empty() || self.working.len() >= self.capacity {
            return None;
        }
        let has_capacity = may_spawn && self.children_working < self.children_capacity;
        let (_, _, work) = self.turns.next(|rank| rank == Rank::Main || has_capacity)?;
        match work {
            Work::Task(Precedence { task, .. }) => {
                self.forget_task(task);
                Some(Next::Task(task))
            }
            Work::Child(_, task) => {
                let child = self.children.get_mut(&task)?.children.pop_front()?;
                self.close_if_empty(task);
                Some(Next::Child(child))
            }
        }
    }

    /// Returns the rank of the older of these tickets, among the ranks within their limits.
    fn older(&self, main: Option<u64>, child: Option<u64>) -> Option<Rank> {
        if self.working.len() >= self.capacity {
            return None;
        }
        let child = child.filter(|_| self.children_working < self.children_capacity);
        let tickets = [(main, Rank::Main), (child, Rank::Child)];
        let tickets = tickets.into_iter().filter_map(|(ticket, rank)| Some((ticket?, rank)));
        tickets.min().map(|(_, rank)| rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> AgentId {
        AgentId::from_text(text)
    }

    fn task(place: usize, path: u32) -> Precedence {
        Precedence::new(place, path, place as u64, false)
    }

    /// A child with the owner and the task that it belongs to.
    type Child = (&'static str, Owner, usize);

    fn want(slots: &mut Slots<Child>, owner: Owner, task: usize, child: &'static str) {
        slots.want_child(owner, task, (child, owner, task));
    }

    /// Starts whatever may begin, until nothing more fits.
    fn starts(slots: &mut Slots<Child>) -> Vec<String> {
        let mut started = Vec::new();
        while let Some(next) = slots.next_return().or_else(|| slots.next_start(true)) {
            let agent = match next {
                Next::Return(agent) => agent,
                Next::Child((child, owner, task)) => {
                    slots.begin(id(child), Rank::Child, owner, task);
                    id(child)
                }
                Next::Task(task) => {
                    let owner = if task < 20 { Owner::Graph } else { Owner::Task(task / 10) };
                    let agent = id(&format!("t{task}"));
                    slots.begin(agent.clone(), Rank::Main, owner, task);
                    agent
                }
            };
            started.push(agent.to_string());
        }
        started
    }

    /// Starts one piece after the other in one slot, and returns the order.
    fn order(slots: &mut Slots<Child>) -> Vec<String> {
        let mut order = Vec::new();
        while let [started] = &starts(slots)[..] {
            slots.release(&id(started));
            order.push(started.clone());
        }
        order
    }

    #[test]
    fn agents_that_want_their_slot_back_come_first() {
        let mut slots = Slots::new(1, 1);
        slots.take(id("parent"), Rank::Main);
        slots.want_task(Owner::Graph, task(7, 0));
        slots.release(&id("parent"));
        slots.take(id("parent/child-1"), Rank::Child);
        slots.return_to(id("parent"), Rank::Main);
        assert_eq!(starts(&mut slots), Vec::<String>::new());
        slots.release(&id("parent/child-1"));
        assert_eq!(starts(&mut slots), ["parent"]);
        slots.release(&id("parent"));
        assert_eq!(starts(&mut slots), ["t7"]);
    }

    #[test]
    fn children_have_a_limit_of_their_own() {
        let mut slots = Slots::new(4, 1);
        want(&mut slots, Owner::Task(0), 0, "a");
        want(&mut slots, Owner::Task(0), 0, "b");
        slots.want_task(Owner::Task(2), task(21, 0));
        assert_eq!(starts(&mut slots), ["a", "t21"]);
        slots.release(&id("a"));
        assert_eq!(starts(&mut slots), ["b"]);
    }

    #[test]
    fn owners_take_turns_whatever_they_have() {
        let mut slots = Slots::new(1, 20);
        for child in ["a1", "a2", "a3"] {
            want(&mut slots, Owner::Task(0), 0, child);
        }
        slots.want_task(Owner::Graph, task(5, 0));
        want(&mut slots, Owner::Task(1), 1, "b1");
        want(&mut slots, Owner::Task(1), 1, "b2");
        (20..24).for_each(|instance| slots.want_task(Owner::Task(2), task(instance, 0)));
        assert!(slots.forget_children(0, |_| false).is_empty());
        let all = ["t5", "a1", "b1", "t20", "a2", "b2", "t21", "a3", "t22", "t23"];
        assert_eq!(order(&mut slots), all);
    }

    #[test]
    fn within_an_owner_its_children_come_first_and_take_turns() {
        let mut slots = Slots::new(1, 20);
        slots.want_task(Owner::Task(2), task(22, 0));
        for (instance, child) in [(20, "a1"), (20, "a2"), (20, "a3"), (21, "b1"), (21, "b2")] {
            want(&mut slots, Owner::Task(2), instance, child);
        }
        assert_eq!(order(&mut slots), ["a1", "b1", "a2", "b2", "a3", "t22"]);
        // Turns from before a restart are counted alike.
        let mut slots = Slots::new(1, 20);
        slots.had(Rank::Child, Owner::Task(2), 20);
        for (instance, child) in [(20, "a1"), (21, "b1")] {
            want(&mut slots, Owner::Task(2), instance, child);
        }
        slots.want_task(Owner::Graph, task(5, 0));
        assert_eq!(order(&mut slots), ["t5", "b1", "a1"]);
    }

    #[test]
    fn withdrawn_wishes_get_nothing() {
        let mut slots = Slots::new(1, 1);
        let owner = Owner::Task(2);
        slots.want_task(Owner::Graph, task(1, 0));
        want(&mut slots, owner, 2, "x");
        want(&mut slots, owner, 2, "y");
        slots.return_to(id("gone"), Rank::Main);
        slots.release(&id("gone"));
        slots.forget_task(1);
        assert_eq!(slots.forget_children(2, |child| child.0 == "x").len(), 1);
        assert_eq!(starts(&mut slots), ["y"]);
        slots.release(&id("y"));
        assert!(slots.forget_children(2, |_| true).is_empty());
        // A task that wants to start again after it was withdrawn, with another path, starts only once.
        slots.want_task(Owner::Graph, task(1, 0));
        slots.want_task(Owner::Graph, task(1, 3));
        assert_eq!(starts(&mut slots), ["t1"]);
        slots.release(&id("t1"));
        assert_eq!(starts(&mut slots), Vec::<String>::new());
        slots.want_task(Owner::Graph, task(1, 0));
        slots.forget_task(1);
        assert!(slots.is_idle());
    }
}
