//! The slots of a run: who may be at work now.
//!
//! Pure. `limits.max_concurrency` counts tasks and children alike; `limits.max_children` the
//! children among them. An agent that waits for its children holds no slot, so a tree of any
//! depth can always go on.

use std::collections::{HashMap, VecDeque};

use crate::id::AgentId;

/// What an agent is to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The main agent of a task.
    Main,
    /// A child.
    Child,
}

/// Who is at work, and who waits to go on.
#[derive(Debug)]
pub struct Slots<R> {
    capacity: usize,
    children_capacity: usize,
    working: HashMap<AgentId, Rank>,
    resuming: VecDeque<(AgentId, Rank, R)>,
}

impl<R> Slots<R> {
    /// So many at work at once, and so many children among them; both at least one.
    #[must_use]
    pub fn new(capacity: usize, children_capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            children_capacity: children_capacity.max(1),
            working: HashMap::new(),
            resuming: VecDeque::new(),
        }
    }

    /// Whether one more of this rank may start. Those that wait to go on come first: what has
    /// begun is finished before something new begins.
    #[must_use]
    pub fn has_room(&self, rank: Rank) -> bool {
        self.resuming.is_empty() && self.fits(rank)
    }

    fn fits(&self, rank: Rank) -> bool {
        let children = self.working.values().filter(|rank| **rank == Rank::Child).count();
        self.working.len() < self.capacity
            && (rank == Rank::Main || children < self.children_capacity)
    }

    /// Gives an agent a slot.
    pub fn take(&mut self, agent: AgentId, rank: Rank) {
        self.working.insert(agent, rank);
    }

    /// Takes an agent's slot back, if it holds one, and strikes it from those that wait.
    pub fn release(&mut self, agent: &AgentId) {
        self.working.remove(agent);
        self.resuming.retain(|(waiting, _, _)| waiting != agent);
    }

    /// Whether an agent holds a slot.
    #[must_use]
    pub fn holds(&self, agent: &AgentId) -> bool {
        self.working.contains_key(agent)
    }

    /// Notes that an agent wants to go on; `ticket` comes back when it may.
    pub fn queue(&mut self, agent: AgentId, rank: Rank, ticket: R) {
        self.resuming.push_back((agent, rank, ticket));
    }

    /// The next agent that may go on now; it holds its slot already.
    pub fn resume_one(&mut self) -> Option<R> {
        let place = (0..self.resuming.len()).find(|place| self.fits(self.resuming[*place].1))?;
        let (agent, rank, ticket) = self.resuming.remove(place)?;
        self.working.insert(agent, rank);
        Some(ticket)
    }

    /// How many are at work.
    #[must_use]
    pub fn at_work(&self) -> usize {
        self.working.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_to_go_on_come_first() {
        let id = AgentId::from_text;
        let mut slots = Slots::new(1, 1);
        slots.take(id("parent"), Rank::Main);
        assert!(!slots.has_room(Rank::Child));
        slots.release(&id("parent"));
        assert!(slots.has_room(Rank::Child));
        slots.take(id("parent/child-1"), Rank::Child);
        slots.queue(id("parent"), Rank::Main, "ticket");
        assert_eq!(slots.resume_one(), None);
        slots.release(&id("parent/child-1"));
        assert!(!slots.has_room(Rank::Main), "the parent comes first");
        assert_eq!(slots.resume_one(), Some("ticket"));
        assert_eq!(slots.at_work(), 1);
    }

    #[test]
    fn children_have_a_bound_of_their_own() {
        let id = AgentId::from_text;
        let mut slots: Slots<()> = Slots::new(4, 1);
        slots.take(id("a/x-1"), Rank::Child);
        assert!(!slots.has_room(Rank::Child));
        assert!(slots.has_room(Rank::Main));
    }
}
