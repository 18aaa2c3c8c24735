//! Gives out what is scarce: the slots of the run and the locks of its tasks. Decides who is next, and when
//! tasks claim, hold and release theirs.

use std::collections::VecDeque;
use std::time::Duration;

use ahash::{HashMap, HashMapExt};

use super::Facts;
use super::decision::{Child, Decision};
use super::desk::Desk;
use super::locks::{Lock, Locks};
use super::slots::{Next, Rank, Slots};
use super::timers::Timer;
use super::turns::{Owner, Precedence};
use crate::id::AgentId;
use crate::run_state::{AgentStatus, Reading};
use crate::spec::Limits;
use crate::spec::spawn_rate::SpawnRate;

/// The slots and the locks of a run, and who has them.
#[derive(Clone, Debug)]
pub(super) struct Scarce {
    slots: Slots<Child>,
    /// The locks of tasks, and the limits of fan-outs on their instances.
    locks: Locks,
    /// The tasks that have a slot for an attempt whose program is rendered, by place in the
    /// plan, with the agent that has the slot.
    preparing: HashMap<usize, AgentId>,
    /// The moments of the run's clock at which children began, the oldest first: as many as the limit counts.
    children_began: VecDeque<Duration>,
    /// Number of children that begin, and whose first record is on its way to the journal.
    children_beginning: usize,
    rate: SpawnRate,
}

impl Scarce {
    /// Makes what a run with these limits gives out.
    pub(super) fn new(limits: &Limits) -> Self {
        let slots = Slots::new(limits.max_concurrency, limits.max_children);
        let (locks, preparing) = (Locks::default(), HashMap::new());
        let (children_began, children_beginning) = (VecDeque::new(), 0);
        let rate = limits.max_spawn_rate;
        Self { slots, locks, preparing, children_began, children_beginning, rate }
    }

    /// Notes that a child began at a moment of the run's clock.
    fn child_began(&mut self, at: Duration) {
        self.children_began.push_back(at);
        let counted = usize::try_from(self.rate.most).unwrap_or(usize::MAX);
        while self.children_began.len() > counted {
            self.children_began.pop_front();
        }
    }

    /// Returns true if an agent holds a slot.
    pub(super) fn holds(&self, agent: &AgentId) -> bool {
        self.slots.holds(agent)
    }

    /// Returns true if a begun agent waits for its slot.
    pub(super) fn is_returning(&self, agent: &AgentId) -> bool {
        self.slots.is_returning(agent)
    }

    /// Returns the agents that hold slots.
    pub(super) fn holders(&self) -> impl Iterator<Item = &AgentId> {
        self.slots.holders()
    }

    /// Returns true if no agent holds a slot and nothing waits for one.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.is_idle()
    }

    /// Returns true if a task has a slot for an attempt whose program is rendered.
    pub(super) fn is_preparing(&self, place: usize) -> bool {
        self.preparing.contains_key(&place)
    }
}

impl Facts {
    /// Returns the locks that the task at `place` needs while an attempt is at work, in their order.
    fn locks_of(&self, place: usize) -> Vec<Lock> {
        let named = self.spec(place).locks.iter().cloned().map(Lock::Named);
        let member = self.settings.plan.member(place);
        let limit = member.and_then(|member| {
            let most = self.spec(member.of).fan_out.as_ref()?.max_concurrency?;
            Some(Lock::FanOut { place: member.of, most })
        });
        let mut locks: Vec<_> = named.chain(limit).collect();
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    /// Returns the precedence of a task among those of its owner.
    fn precedence(&self, place: usize) -> Precedence {
        let since = self.status(place).map_or(0, |status| status.ready_seq);
        let needs_several = self.spec(place).locks.len() > 1;
        Precedence::new(place, self.agenda.path(place), since, needs_several)
    }

    /// Returns the owner of the task at `place`, or of the children of its agents.
    fn owner(&self, place: usize, rank: Rank) -> Owner {
        match (self.settings.plan.member(place), rank) {
            (Some(member), _) => Owner::Task(member.of),
            (None, Rank::Main) => Owner::Graph,
            (None, Rank::Child) => Owner::Task(place),
        }
    }

    fn rank(&self, agent: &AgentId) -> Rank {
        match self.state.agents().get(agent).is_some_and(|agent| agent.is_delegated()) {
            true => Rank::Child,
            false => Rank::Main,
        }
    }
}

impl Desk<'_, Scarce> {
    /// Counts the children and the turns that were had before this process, in their order: the next ones are had by
    /// those who would have had them then.
    pub(super) fn take_up(&mut self) {
        for began in self.state.children_began() {
            self.own().child_began(began);
        }
        let mut turns = Vec::new();
        for place in 0..self.settings.plan.tasks().len() {
            let Some(status) = self.status(place) else { continue };
            let began = status.agent.as_ref().map(|_| status.began_seq);
            let began = began.filter(|seq| *seq > 0).map(|seq| (seq, place, Rank::Main));
            let child = Some(status.child_seq).filter(|seq| *seq > 0);
            turns.extend(began.into_iter().chain(child.map(|seq| (seq, place, Rank::Child))));
        }
        turns.sort_unstable();
        for (_, place, rank) in turns {
            let owner = self.owner(place, rank);
            self.own().slots.had(rank, owner, place);
            if rank == Rank::Main {
                let locks = self.locks_of(place);
                self.own().locks.had(owner, locks);
            }
        }
    }

    /// Takes the next work that gets a slot.
    pub(super) fn next(&mut self) -> Option<Next<Child>> {
        let next = self.own().slots.next_return();
        // On a full disk, or without a quota, begun agents still get their slots back, but nothing new starts.
        if next.is_some() || self.pauses.is_disk_full() || self.holds_starts() {
            return next;
        }
        let wait = self.wait_for_child();
        let next = self.own().slots.next_start(wait.is_none());
        if let (None, Some(wait)) = (&next, wait)
            && self.scarce.slots.a_child_waits()
        {
            self.post(Decision::SetTimer(self.now.since + wait, Timer::Spawn));
        }
        next
    }

    /// Returns the time until a child may begin, if none may begin now.
    fn wait_for_child(&self) -> Option<Duration> {
        let Scarce { children_began, children_beginning, rate, .. } = &self.scarce;
        let now = self.open_time();
        // A child begins when its record says so, and that is not before now.
        let beginning = std::iter::repeat_n(now, *children_beginning);
        let at = rate.next(children_began.iter().copied().chain(beginning))?;
        Some(at.saturating_sub(now)).filter(|wait| !wait.is_zero())
    }

    /// Counts a child whose first record is durable.
    pub(super) fn child_is_recorded(&mut self, child: &AgentId) {
        let is_child = |agent: &&AgentStatus| agent.is_delegated();
        let Some(status) = self.state.agents().get(child).filter(is_child) else { return };
        let began = status.began.since(Reading::default());
        let own = self.own();
        own.children_beginning = own.children_beginning.saturating_sub(1);
        own.child_began(began);
    }

    /// Takes an agent's slot away, and withdraws its wish to have it back.
    pub(super) fn release(&mut self, agent: &AgentId) {
        self.own().slots.release(agent);
    }

    /// Withdraws an agent's wish to have its slot back.
    pub(super) fn withdraw(&mut self, agent: &AgentId) {
        self.own().slots.withdraw(agent);
    }

    /// Gives the slot of an agent to another one. Does nothing if it holds none.
    pub(super) fn hand_over(&mut self, from: &AgentId, to: AgentId) {
        self.own().slots.hand_over(from, to);
    }

    /// Notes that a begun agent wants to continue.
    pub(super) fn return_to(&mut self, agent: AgentId) {
        let rank = self.rank(&agent);
        self.own().slots.return_to(agent, rank);
    }

    /// Notes that a child of a task's agents wants to start.
    pub(super) fn want_child(&mut self, place: usize, child: Child) {
        let owner = self.owner(place, Rank::Child);
        self.own().slots.want_child(owner, place, child);
    }

    /// Forgets the children of an agent that want to start.
    pub(super) fn forget_children(&mut self, place: usize, parent: &AgentId) {
        for child in self.own().slots.forget_children(place, |child| child.parent == *parent) {
            self.post(Decision::ForgetComing(child.task, child.delegation.call));
        }
    }

    /// Gives a slot to a child of a task's agents.
    pub(super) fn begin_child(&mut self, place: usize, child: AgentId) {
        let owner = self.owner(place, Rank::Child);
        self.own().children_beginning += 1;
        self.own().slots.begin(child, Rank::Child, owner, place);
    }

    /// Puts a task that could start in line for its locks, and for a slot once it has them.
    pub(super) fn claim(&mut self, place: usize) {
        let (owner, precedence) = (self.owner(place, Rank::Main), self.precedence(place));
        let locks = self.locks_of(place);
        match self.own().locks.claim(owner, precedence, locks) {
            true => self.own().slots.want_task(owner, precedence),
            false => self.own().slots.forget_task(place),
        }
    }

    /// Notes that a task wants no slot.
    pub(super) fn unclaim(&mut self, place: usize) {
        self.own().slots.forget_task(place);
    }

    /// Gives the locks that are free to those who are next. The tasks that have all of theirs want a
    /// slot now.
    pub(super) fn grant_locks(&mut self) {
        for task in self.own().locks.grant() {
            self.post(Decision::Touch(task));
        }
    }

    /// Gives the task of an attempt that is at work its locks.
    pub(super) fn hold_locks(&mut self, place: usize) {
        let locks = self.locks_of(place);
        if !locks.is_empty() {
            let (owner, precedence) = (self.owner(place, Rank::Main), self.precedence(place));
            self.own().locks.hold(owner, precedence, locks);
        }
    }

    /// Releases the locks of a task whose attempt has ended, or that will not start now.
    pub(super) fn release_locks(&mut self, place: usize) {
        self.own().locks.release(place);
    }

    /// Gives a slot to the agent of a task. The turn counts once, when the slot is taken.
    pub(super) fn take_slot(&mut self, place: usize, agent: AgentId) {
        match self.own().preparing.remove(&place) {
            Some(before) => self.own().slots.hand_over(&before, agent),
            None => {
                let owner = self.owner(place, Rank::Main);
                self.own().slots.begin(agent, Rank::Main, owner, place);
            }
        }
    }

    /// Gives a slot to the agent of a task whose program is being rendered.
    pub(super) fn prepare(&mut self, place: usize, agent: AgentId) {
        self.take_slot(place, agent.clone());
        self.own().preparing.insert(place, agent);
    }

    /// Takes back the slot that a task holds for an attempt that does not begin.
    pub(super) fn give_back(&mut self, place: usize) {
        if let Some(agent) = self.own().preparing.remove(&place) {
            self.post(Decision::ForgetEvaluation(place));
            self.own().slots.release(&agent);
        }
    }
}
