//! The slots of a run: they limit how many agents work at the same time.
//!
//! Pure. `limits.max_concurrency` counts tasks and children alike; `limits.max_children` counts
//! only the children. An agent that waits for its children holds no slot, so a tree of any depth
//! can always continue.
//!
//! Agents that want their slot back come first, in the order of their requests: begun work is
//! finished before new work begins. All other work is served round robin over the tasks, one start
//! or one child per round, so that a parent with many children does not delay other tasks. No
//! operation searches a queue: a withdrawn entry stays in its queue and is skipped later.

use std::collections::{HashMap, VecDeque};

use crate::id::AgentId;

/// An agent's rank, which decides the limits that count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// A child of the task at this place starts. The caller takes its slot.
    Child(usize, C),
    /// The task at this place starts. The caller takes the slot of its agent.
    Task(usize),
}

/// Waiting work of one rank: pairs of a ticket number and the work.
type Queue<T> = VecDeque<(u64, T)>;

/// The slots of a run. `C` is the type of a child that waits for a slot.
#[derive(Clone, Debug)]
pub(super) struct Slots<C> {
    capacity: usize,
    children_capacity: usize,
    working: HashMap<AgentId, Rank>,
    children_working: usize,
    /// Agents that want their slot back, each with its valid ticket.
    returning: HashMap<AgentId, u64>,
    returning_mains: Queue<AgentId>,
    returning_children: Queue<AgentId>,
    /// Tasks that want to start, each with its valid ticket.
    tasks: HashMap<usize, u64>,
    task_line: Queue<usize>,
    /// Children that want to start, by task, with the valid ticket of the task in `child_line`.
    children: HashMap<usize, (u64, VecDeque<C>)>,
    child_line: Queue<usize>,
    tickets: u64,
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
            tasks: HashMap::new(),
            task_line: Queue::new(),
            children: HashMap::new(),
            child_line: Queue::new(),
            tickets: 0,
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

    /// Returns true if no agent holds a slot and nothing waits for one.
    pub(super) fn is_idle(&self) -> bool {
        self.working.is_empty()
            && self.returning.is_empty()
            && self.tasks.is_empty()
            && self.children.is_empty()
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

    /// Notes that a task wants to start.
    pub(super) fn want_task(&mut self, task: usize) {
        if !self.tasks.contains_key(&task) {
            let ticket = self.ticket();
            self.tasks.insert(task, ticket);
            self.task_line.push_back((ticket, task));
        }
    }

    /// Notes that a task no longer wants to start.
    pub(super) fn forget_task(&mut self, task: usize) {
        self.tasks.remove(&task);
    }

    /// Notes that a child of a task wants to start.
    pub(super) fn want_child(&mut self, task: usize, child: C) {
        if let Some((_, waiting)) = self.children.get_mut(&task) {
            return waiting.push_back(child);
        }
        let ticket = self.ticket();
        self.children.insert(task, (ticket, VecDeque::from([child])));
        self.child_line.push_back((ticket, task));
    }

    /// Removes the waiting children of a task for which `goes` returns true, and returns them.
    pub(super) fn forget_children(&mut self, task: usize, goes: impl Fn(&C) -> bool) -> Vec<C> {
        let Some((ticket, waiting)) = self.children.remove(&task) else { return Vec::new() };
        let (gone, left): (Vec<C>, VecDeque<C>) = {
            let (mut gone, mut left) = (Vec::new(), VecDeque::new());
            for child in waiting {
                if goes(&child) { gone.push(child) } else { left.push_back(child) }
            }
            (gone, left)
        };
        if !left.is_empty() {
            self.children.insert(task, (ticket, left));
        }
        gone
    }

    /// Gives a slot to the next agent that wants its slot back.
    pub(super) fn next_return(&mut self) -> Option<Next<C>> {
        let counts = |entry: &(u64, AgentId)| self.returning.get(&entry.1) == Some(&entry.0);
        drop_stale(&mut self.returning_mains, counts);
        drop_stale(&mut self.returning_children, counts);
        let (line, rank) = match self.first_of(&self.returning_mains, &self.returning_children)? {
            Rank::Main => (&mut self.returning_mains, Rank::Main),
            Rank::Child => (&mut self.returning_children, Rank::Child),
        };
        let (_, agent) = line.pop_front()?;
        self.returning.remove(&agent);
        self.take(agent.clone(), rank);
        Some(Next::Return(agent))
    }

    /// Takes the next work that may begin, once all agents that want their slot back have it.
    pub(super) fn next_start(&mut self) -> Option<Next<C>> {
        if !self.returning.is_empty() {
            return None;
        }
        drop_stale(&mut self.task_line, |(ticket, task)| self.tasks.get(task) == Some(ticket));
        drop_stale(&mut self.child_line, |(ticket, task)| {
            self.children.get(task).is_some_and(|(counts, _)| counts == ticket)
        });
        match self.first_of(&self.task_line, &self.child_line)? {
            Rank::Main => {
                let (_, task) = self.task_line.pop_front()?;
                self.tasks.remove(&task);
                Some(Next::Task(task))
            }
            Rank::Child => {
                let (_, task) = self.child_line.pop_front()?;
                let (_, mut waiting) = self.children.remove(&task)?;
                let child = waiting.pop_front()?;
                if !waiting.is_empty() {
                    let ticket = self.ticket();
                    self.children.insert(task, (ticket, waiting));
                    self.child_line.push_back((ticket, task));
                }
                Some(Next::Child(task, child))
            }
        }
    }

    /// Returns the rank whose queue has the older ticket in front, among the ranks within their
    /// limits.
    fn first_of<A, B>(&self, mains: &Queue<A>, children: &Queue<B>) -> Option<Rank> {
        if self.working.len() >= self.capacity {
            return None;
        }
        let main = mains.front().map(|(ticket, _)| (*ticket, Rank::Main));
        let has_room = self.children_working < self.children_capacity;
        let child = children.front().filter(|_| has_room).map(|(ticket, _)| (*ticket, Rank::Child));
        main.into_iter().chain(child).min_by_key(|(ticket, _)| *ticket).map(|(_, rank)| rank)
    }
}

/// Removes withdrawn entries from the front of a queue.
fn drop_stale<T>(line: &mut Queue<T>, counts: impl Fn(&(u64, T)) -> bool) {
    while line.front().is_some_and(|entry| !counts(entry)) {
        line.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> AgentId {
        AgentId::from_text(text)
    }

    /// Starts whatever may begin, until nothing more fits.
    fn starts(slots: &mut Slots<&'static str>) -> Vec<String> {
        let mut started = Vec::new();
        while let Some(next) = slots.next_return().or_else(|| slots.next_start()) {
            let (agent, rank) = match next {
                Next::Return(agent) => (agent, None),
                Next::Child(_, child) => (id(child), Some(Rank::Child)),
                Next::Task(task) => (id(&format!("t{task}")), Some(Rank::Main)),
            };
            started.push(agent.to_string());
            if let Some(rank) = rank {
                slots.take(agent, rank);
            }
        }
        started
    }

    #[test]
    fn agents_that_want_their_slot_back_come_first() {
        let mut slots = Slots::new(1, 1);
        slots.take(id("parent"), Rank::Main);
        slots.want_task(7);
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
        slots.want_child(0, "a");
        slots.want_child(0, "b");
        slots.want_task(1);
        assert_eq!(starts(&mut slots), ["a", "t1"]);
        slots.release(&id("a"));
        assert_eq!(starts(&mut slots), ["b"]);
    }

    #[test]
    fn tasks_take_turns_with_the_children_of_others() {
        let mut slots = Slots::new(1, 20);
        for child in ["a1", "a2", "a3"] {
            slots.want_child(0, child);
        }
        slots.want_task(5);
        slots.want_child(1, "b1");
        slots.want_child(1, "b2");
        let mut order = Vec::new();
        assert_eq!(slots.forget_children(0, |_| false), Vec::<&str>::new());
        while let [started] = &starts(&mut slots)[..] {
            slots.release(&id(started));
            order.push(started.clone());
        }
        assert_eq!(order, ["a1", "t5", "b1", "a2", "b2", "a3"]);
    }

    #[test]
    fn withdrawn_wishes_get_nothing() {
        let mut slots = Slots::new(1, 1);
        slots.want_task(1);
        slots.want_child(2, "x");
        slots.want_child(2, "y");
        slots.return_to(id("gone"), Rank::Main);
        slots.release(&id("gone"));
        slots.forget_task(1);
        assert_eq!(slots.forget_children(2, |child| *child == "x"), ["x"]);
        assert_eq!(starts(&mut slots), ["y"]);
        slots.release(&id("y"));
        assert_eq!(slots.forget_children(2, |_| true), Vec::<&str>::new());
        // A task that wants to start again after it was withdrawn starts only once.
        slots.want_task(1);
        assert_eq!(starts(&mut slots), ["t1"]);
        slots.release(&id("t1"));
        assert_eq!(starts(&mut slots), Vec::<String>::new());
    }
}
