//! The work on a context that a request asks of a provider, and the provider's report of it.
//!
//! Pure data, independent of any wire format: `model` renders it, and records keep the reports.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Work that a request asks of the provider beside a reply, or in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContextWork {
    /// Nothing.
    #[default]
    Nothing,
    /// Changes of the input, made before the model reads it.
    Edit(Arc<[ServerEdit]>),
    /// A summary of everything that is sent; no reply follows.
    Summarise {
        /// Prompt in place of the provider's own.
        instructions: Option<Arc<str>>,
    },
}

/// A change that the provider makes by itself when it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEdit {
    /// Leaves old thinking out.
    ClearThinking(KeepThinking),
    /// Replaces old tool results by a placeholder, oldest first.
    ClearToolUses(ClearToolUses),
    /// Replaces everything before this point by a summary, in the middle of the reply.
    Compact(Compact),
}

/// Amount of thinking that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepThinking {
    /// All of it.
    All,
    /// The thinking of this many of the newest turns.
    Turns(u64),
}

/// Settings for clearing tool results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearToolUses {
    /// Input tokens above which results are cleared.
    pub trigger_tokens: u64,
    /// Number of the newest tool uses that stay.
    pub keep: u64,
    /// Least input tokens that a clearing must free, so that it pays for the cache it breaks.
    pub clear_at_least: Option<u64>,
    /// Tools whose results stay.
    pub exclude_tools: Vec<String>,
    /// Calls whose arguments are cleared as well.
    pub inputs: ClearInputs,
}

/// Selection of the calls whose arguments are cleared with their results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClearInputs {
    /// No calls.
    Keep,
    /// All calls.
    All,
    /// Calls of these tools.
    Of(Vec<String>),
}

/// Settings for a summary that the provider writes in the middle of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compact {
    /// Input tokens above which it writes one.
    pub trigger_tokens: u64,
    /// Continuation after the summary.
    pub after: AfterSummary,
    /// Prompt in place of the provider's own.
    pub instructions: Option<String>,
}

/// Continuation after a summary that the provider wrote in the middle of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterSummary {
    /// None: the client puts back the text that must stay word for word, and asks again.
    Pause,
    /// The reply continues from the summary alone.
    GoOn,
}

/// The provider's report on the context, beside the reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ContextReport {
    /// Size in tokens of the input that the model read last, where the usage counts more than that:
    /// summaries, or several readings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Changes that the provider made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<AppliedEdit>,
}

impl ContextReport {
    /// Returns true if there is nothing to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_none() && self.edits.is_empty()
    }

    /// Returns the input tokens that the provider removed from the request.
    #[must_use]
    pub fn cleared_tokens(&self) -> u64 {
        let each = self.edits.iter().map(|edit| edit.cleared_input_tokens);
        each.fold(0, u64::saturating_add)
    }
}

/// A change that a provider made, in its own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AppliedEdit {
    /// The provider's name for the change.
    pub r#type: String,
    /// Number of tool uses that were cleared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleared_tool_uses: Option<u64>,
    /// Number of turns whose thinking was cleared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleared_thinking_turns: Option<u64>,
    /// Input tokens that the change freed.
    pub cleared_input_tokens: u64,
}
