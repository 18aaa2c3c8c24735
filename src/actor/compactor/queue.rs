//! The summaries that wait for a worker, the most urgent first.
//!
//! Bounded by the agents at work: each has one in advance and one that it waits for at most.

use super::job::Job;
use crate::context::layer::summary::Urgency;
use crate::id::AgentId;

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue(Vec<Job>);

impl Queue {
    pub(super) fn push(&mut self, job: Job) {
        self.0.push(job);
    }

    /// What the agent asked for in advance it waits for by now.
    pub(super) fn hurry(&mut self, agent: &AgentId) {
        for job in self.0.iter_mut().filter(|job| job.agent == *agent) {
            job.due.urgency = Urgency::Now;
        }
    }

    /// The next that somebody still waits for; of equals the one that came first.
    pub(super) fn pop(&mut self) -> Option<Job> {
        self.0.retain(|job| !job.reply.is_closed());
        let next = self.0.iter().enumerate().rev().max_by_key(|(_, job)| job.rank());
        let at = next.map(|(at, _)| at)?;
        Some(self.0.remove(at))
    }
}
