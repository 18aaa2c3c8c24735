//! What a provider has counted of an agent's requests: the beginning of the next one, as long as no edit changes it.
//!
//! Pure. It bounds what a request can cost: what was counted, and a token for each byte that is new.

use super::Machine;
use crate::message::UsageSource;
use crate::turn::{ModelRequested, ModelResponded};

/// The beginning of a request that the provider has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Tokens of the whole request, as the provider counted them.
    pub tokens: u64,
    /// Bytes of its messages.
    pub bytes: u64,
}

/// The counts of an agent's own model.
#[derive(Clone, Debug, Default)]
pub(super) struct Counting {
    /// Bytes of the messages of the request that is under way, if it goes to the agent's own model.
    sent: Option<u64>,
    last: Option<Counted>,
}

impl Counting {
    pub(super) fn requested(&mut self, requested: &ModelRequested) {
        // Another model counts in its own way.
        self.sent = requested.stands_in_for.is_none().then_some(requested.bytes as u64);
    }

    pub(super) fn responded(&mut self, reply: &ModelResponded) {
        // A provider that worked on the context counts something else than what was sent.
        let is_whole = reply.usage_source == UsageSource::Reported && reply.context.is_empty();
        let tokens = reply.usage.context();
        self.last = self.sent.take().filter(|_| is_whole).map(|bytes| Counted { tokens, bytes });
    }

    pub(super) fn edited(&mut self) {
        (self.sent, self.last) = (None, None);
    }
}

impl Machine {
    /// Returns what the provider has counted of the next request, if no edit changes that.
    #[must_use]
    pub fn counted(&self) -> Option<Counted> {
        self.counting.last
    }
}
