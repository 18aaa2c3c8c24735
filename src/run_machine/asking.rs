//! The questions to people that are on their way: data that no record holds.

use std::collections::{HashMap, HashSet};

use crate::id::AgentId;
use crate::turn::question::PersonsAnswer;

/// The questions and answers that are on their way, and the agents between a wait and their slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Asking {
    /// The questions of agents that are on their way to the journal, by id, with the answers that
    /// have come already: a terminal may remember one.
    pub(super) asking: HashMap<String, Vec<(Option<u64>, PersonsAnswer)>>,
    /// The answers that are on their way to the journal, by the id of the question.
    pub(super) answering: HashMap<String, Waiting>,
    /// Agents that have an actor and no slot, and may be about to ask for it. One that waits for
    /// somebody else is dropped when it is looked at.
    pub(super) loose: HashSet<AgentId>,
    /// Number of notification commands at work.
    pub(super) notifying: usize,
}

/// The requests that wait until an answer is durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    /// The request whose answer counts; `None` if nobody waits for that.
    pub(super) first: Option<u64>,
    pub(super) late: Vec<u64>,
}

impl Asking {
    /// Returns true if nothing is on its way and no notification command is at work.
    pub(super) fn is_quiet(&self) -> bool {
        self.asking.is_empty() && self.answering.is_empty() && self.notifying == 0
    }

    /// Notes that an agent has no slot and may be about to ask for it.
    pub(super) fn note_loose(&mut self, agent: &AgentId) {
        self.loose.insert(agent.clone());
    }

    /// Notes that an agent has asked for its slot.
    pub(super) fn forget_loose(&mut self, agent: &AgentId) {
        self.loose.remove(agent);
    }
}
