//! An agent's context: its conversation, the view of it that is sent, and the edits between them.
//!
//! Pure. Owns the payloads of the `context.*` and `compaction.*` events.

pub mod compaction;
pub mod laboratory;
pub mod layers;
pub mod measure;
pub mod provider;
pub mod recall;
pub mod record;
pub mod sending;
#[cfg(test)]
pub(crate) mod testing;
pub mod view;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::record::Record;
use crate::id::Name;
use crate::message::{Json, Usage};
use crate::output::Stored;
use crate::policy::BreakerState;
use crate::spending::Rest;

/// A change of the view. Message numbers count the conversation from 0 and never shift.
///
/// Written as `{"replace": {...}}`, with the tag outside: for a tag inside, serde would buffer the
/// fields, and the messages, which must keep their exact bytes, do not survive that buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// Replaces the content of some tool results by a short text each.
    ClearResults {
        /// The results that are cleared, with the text of each.
        results: Vec<ClearedResult>,
    },
    /// Replaces a range of messages by other messages.
    Replace {
        /// First message of the range.
        from: u64,
        /// First message after the range.
        to: u64,
        /// Messages that stand in the place of the range, in Anthropic form.
        with: Vec<Json>,
    },
    /// Replaces a range of messages by a record of it; the active request is kept behind the
    /// record.
    Record(Record),
    /// Removes every message before `to`, and adds a text to the system prompt as its last block.
    Window {
        /// First message that stays.
        to: u64,
        /// Text of the block; it replaces the block of an earlier edit.
        system: String,
    },
    /// Leaves thinking out of a range, because something before that thinking has changed.
    DropThinking {
        /// First message that loses its thinking.
        from: u64,
        /// First message after the range.
        to: u64,
    },
}

impl Edit {
    /// Returns the ranges of messages that the edit changes, each as its first message and the
    /// first message after it.
    #[must_use]
    pub fn covers(&self) -> Vec<(u64, u64)> {
        match self {
            Self::ClearResults { results } => {
                let mut ranges: Vec<(u64, u64)> = Vec::new();
                for message in results.iter().map(|result| result.message) {
                    match ranges.last_mut() {
                        Some((_, to)) if *to == message => *to += 1,
                        Some((_, to)) if *to == message + 1 => {}
                        _ => ranges.push((message, message + 1)),
                    }
                }
                ranges
            }
            Self::Replace { from, to, .. } | Self::DropThinking { from, to } => vec![(*from, *to)],
            Self::Record(record) => vec![(record.from, record.to)],
            Self::Window { to, .. } => vec![(0, *to)],
        }
    }
}

/// A tool result that was cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearedResult {
    /// Number of the message that holds the result.
    pub message: u64,
    /// Id of the call that the result answers.
    pub tool_use_id: String,
    /// Text that the model reads in place of the content.
    pub text: String,
    /// Name and size of the full content, when it was stored because of this edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
    /// Number of characters of the content that `text` repeats; 0 when nothing is left to clear.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept_chars: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Payload of `context.edited`: one edit of the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextEdited {
    /// Name of the layer that made the edit.
    pub layer: String,
    /// The edit.
    pub edit: Edit,
    /// Estimated tokens of the view before the edit.
    pub before_tokens: u64,
    /// Estimated tokens of the view after the edit.
    pub after_tokens: u64,
}

/// Reason why a summary was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CompactionTrigger {
    /// The view was over the threshold.
    Auto,
    /// The agent or a person asked for it.
    Manual,
    /// The provider refused the request as too long.
    Reactive,
}

/// Payload of `compaction.requested`: a summary is about to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionRequested {
    /// Reason for the summary.
    pub trigger: CompactionTrigger,
    /// First message that the summary covers.
    pub from: u64,
    /// First message that the summary does not cover.
    pub to: u64,
    /// Words on what to preserve, if the request named any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// The most that its calls may cost, if money or tokens are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Rest>,
}

/// Payload of `compaction.finished`: a summary has replaced a range of the view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionFinished {
    /// Name of the layer that asked for the summary.
    pub layer: String,
    /// The edit: an [`Edit::Replace`] whose messages hold the summary.
    pub edit: Edit,
    /// Estimated tokens of the view before the edit.
    pub before_tokens: u64,
    /// Estimated tokens of the view after the edit.
    pub after_tokens: u64,
    /// Model that wrote the summary.
    pub model: Name,
    /// Tokens that the summary call used.
    pub usage: Usage,
    /// Price of the summary call in US dollars; absent when the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// Payload of `compaction.failed`: no summary was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionFailed {
    /// Reason, in words for a person.
    pub reason: String,
    /// True if a hook forbade the summary. A request that was refused as too long has then failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
    /// Tokens and price of the calls that were made for it, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
    /// The most that the calls may have cost beyond that, if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Rest>,
    /// True if callsheet cut the calls, because the agent had to end or the run to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// Tokens and price of one model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spent {
    /// Name of the model in the configuration.
    pub model: Name,
    /// Tokens that the call used.
    pub usage: Usage,
    /// Price in US dollars; absent when the model has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// Payload of `compaction.breaker`: the circuit breaker of compaction changed its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionBreaker {
    /// The new state.
    pub state: BreakerState,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn edits_are_read_as_they_were_written() {
        let cleared = ClearedResult {
            message: 2,
            tool_use_id: "c".to_owned(),
            text: "[Previous: used glob]".to_owned(),
            stored: None,
            kept_chars: 0,
        };
        let with = vec![Json::encode(&Message::user("summary"))];
        let edits = [
            Edit::ClearResults { results: vec![cleared] },
            Edit::Replace { from: 0, to: 3, with },
            Edit::DropThinking { from: 3, to: 5 },
        ];
        assert_eq!(edits.each_ref().map(Edit::covers), [vec![(2, 3)], vec![(0, 3)], vec![(3, 5)]]);
        for edit in edits {
            assert_eq!(Json::encode(&edit).decode::<Edit>().expect("an edit"), edit);
        }
    }
}
