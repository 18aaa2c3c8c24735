//! What an agent's replies tell of its provider's work on the context.

use crate::message::StopReason;
use crate::turn::ModelResponded;

/// The latest of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderWork {
    /// Replies in a row that were a summary and nothing else.
    pub pauses: u32,
    /// The tokens that were taken out of the latest request before the model read it.
    pub cleared_tokens: u64,
}

impl ProviderWork {
    pub(super) fn take_note(&mut self, reply: &ModelResponded) {
        self.pauses = if reply.stop == StopReason::Compaction { self.pauses + 1 } else { 0 };
        self.cleared_tokens = reply.context.cleared_tokens();
    }
}
