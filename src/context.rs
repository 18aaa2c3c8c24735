//! An agent's context: the conversation, the view of it that is sent, and the edits between them.
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

use serde::{Deserialize, Serialize};

pub use self::record::Record;
use crate::id::Name;
use crate::message::{Json, Usage};
use crate::output::Stored;
use crate::policy::BreakerState;

/// A change of the view. Message numbers count the conversation from 0 and never shift.
///
/// Written as `{"replace": {...}}`: with a tag inside, serde would read the fields by way of a
/// buffer, which the verbatim messages do not survive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// The content of some tool results is replaced by a short text each.
    ClearResults {
        /// What is replaced.
        results: Vec<ClearedResult>,
    },
    /// A range of messages is replaced by other messages.
    Replace {
        /// The first message covered.
        from: u64,
        /// The first message after the range.
        to: u64,
        /// What stands in its place, in Anthropic form.
        with: Vec<Json>,
    },
    /// A range of messages is replaced by a record of it; the active request stays, after it.
    Record(Record),
    /// Everything before a message leaves; a text joins the system prompt as its last block.
    Window {
        /// The first message that stays.
        to: u64,
        /// The block; it replaces that of an earlier edit.
        system: String,
    },
    /// Thinking is left out, because what stood before it has changed.
    DropThinking {
        /// The first message that loses its thinking.
        from: u64,
        /// The first message after those.
        to: u64,
    },
}

impl Edit {
    /// The ranges of messages that it changes: the first message and the first after the range.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearedResult {
    /// The message that holds it.
    pub message: u64,
    /// The call that it answers.
    pub tool_use_id: String,
    /// What the model reads instead.
    pub text: String,
    /// The stored whole, when it was stored for this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
    /// How many characters of the content `text` repeats; with none, nothing is left to clear.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept_chars: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// `context.edited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextEdited {
    /// The layer that did it.
    pub layer: String,
    /// The change.
    pub edit: Edit,
    /// Estimated tokens of the view before.
    pub before_tokens: u64,
    /// Estimated tokens of the view after.
    pub after_tokens: u64,
}

/// Why a summary was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompactionTrigger {
    /// The view was over the threshold.
    Auto,
    /// The agent or a person asked.
    Manual,
    /// The provider refused the request as too long.
    Reactive,
}

/// `compaction.requested`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionRequested {
    /// Why.
    pub trigger: CompactionTrigger,
    /// The first message that the summary covers.
    pub from: u64,
    /// The first message that it does not cover.
    pub to: u64,
    /// What to preserve, if somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

/// `compaction.finished`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompactionFinished {
    /// The layer that did it.
    pub layer: String,
    /// The change: a [`Edit::Replace`] whose messages hold the summary.
    pub edit: Edit,
    /// Estimated tokens of the view before.
    pub before_tokens: u64,
    /// Estimated tokens of the view after.
    pub after_tokens: u64,
    /// The model that wrote the summary.
    pub model: Name,
    /// Tokens of the summary call.
    pub usage: Usage,
    /// What it cost; absent when the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// `compaction.failed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompactionFailed {
    /// Why, for a person.
    pub reason: String,
    /// Whether a hook forbade it: then a request that was refused as too long has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
    /// What it cost all the same, if a model replied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
}

/// What one call cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// The model's name in the configuration.
    pub model: Name,
    /// Its tokens.
    pub usage: Usage,
    /// Its price; absent when the model has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// `compaction.breaker`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
