//! The queue of summaries that wait for a worker: first those that an agent waits for, then those
//! of the agents that are closest to their limit.
//!
//! The number of agents at work bounds it: each agent has at most one summary ahead and one that it
//! waits for.

use crate::context::layers::summary::Urgency;
use crate::id::AgentId;

/// The queue of summaries.
#[derive(Debug)]
pub(super) struct Queue<T>(Vec<Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    agent: AgentId,
    urgency: Urgency,
    fullness: u64,
    job: T,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn push(&mut self, agent: AgentId, urgency: Urgency, fullness: u64, job: T) {
        self.0.push(Waiting { agent, urgency, fullness, job });
    }

    /// Makes the summaries of an agent urgent: it now waits for what it asked for ahead.
    pub(super) fn hurry(&mut self, agent: &AgentId) {
        for waiting in self.0.iter_mut().filter(|waiting| waiting.agent == *agent) {
            waiting.urgency = Urgency::Now;
        }
    }

    /// Returns true if `is` holds for a summary in the queue.
    pub(super) fn any(&self, is: impl Fn(&T) -> bool) -> bool {
        self.0.iter().any(|waiting| is(&waiting.job))
    }

    /// Removes the summaries for which `is` holds.
    pub(super) fn remove(&mut self, is: impl Fn(&T) -> bool) {
        self.0.retain(|waiting| !is(&waiting.job));
    }

    /// Removes and returns the next summary; among equals the one that came first.
    pub(super) fn pop(&mut self) -> Option<T> {
        let ranked = self.0.iter().enumerate().rev();
        let next = ranked.max_by_key(|(_, waiting)| (waiting.urgency, waiting.fullness));
        let at = next.map(|(at, _)| at)?;
        Some(self.0.remove(at).job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Urgency::{Now, Soon};

    #[test]
    fn who_waits_comes_first_and_then_who_is_fullest() {
        let mut queue = Queue::new();
        let waiting = [("a", Soon, 700), ("b", Now, 850), ("c", Soon, 790), ("d", Now, 850)];
        for (agent, urgency, fullness) in waiting {
            queue.push(AgentId::from_text(agent), urgency, fullness, agent);
        }
        queue.hurry(&AgentId::from_text("a"));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["b", "d", "a", "c"]);
    }
}
