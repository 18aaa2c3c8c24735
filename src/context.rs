//! An agent's context: the conversation, the view of it that is sent, and the edits between them.
//!
//! Pure. Owns the payloads of the `context.*` and `compaction.*` events.

pub mod guard;
pub mod measure;
pub mod pipeline;
pub mod preset;
pub mod view;

use serde::{Deserialize, Serialize};

use crate::id::Name;
use crate::message::{Json, Usage};
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
        };
        let with = vec![Json::encode(&Message::user("summary"))];
        let edits =
            [Edit::ClearResults { results: vec![cleared] }, Edit::Replace { from: 0, to: 3, with }];
        for edit in edits {
            assert_eq!(Json::encode(&edit).decode::<Edit>().expect("an edit"), edit);
        }
    }
}
