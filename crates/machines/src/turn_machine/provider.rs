//! The provider's work on the context, as an agent's replies report it.

use crate::message::StopReason;
use crate::turn::ModelResponded;

/// The latest report on the provider's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderWork {
    /// Number of replies in a row that were a summary and nothing else.
    pub pauses: u32,
    /// Tokens that the provider took out of the latest request before the model read it.
    pub cleared_tokens: u64,
}

impl ProviderWork {
    pub(super) fn take_note(&mut self, reply: &ModelResponded) {
        self.pauses = if reply.stop == StopReason::Compaction { self.pauses + 1 } else { 0 };
        self.cleared_tokens = reply.context.cleared_tokens();
    }
}
