//! What a provider is asked to do with a context, and what it tells of it.
//!
//! Pure data, in the words of no wire: `model` renders it, and records keep what was told.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a request asks of the provider beside a reply, or in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContextWork {
    /// Nothing.
    #[default]
    Nothing,
    /// To change what the model reads, before it reads it.
    Edit(Arc<[ServerEdit]>),
    /// To summarise everything that is sent; no reply follows.
    Summarise {
        /// A prompt in place of the provider's own.
        instructions: Option<Arc<str>>,
    },
}

/// A change that the provider makes by itself when it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEdit {
    /// Old thinking is left out.
    ClearThinking(KeepThinking),
    /// Old tool results are replaced by a placeholder, oldest first.
    ClearToolUses(ClearToolUses),
    /// Everything before this point is replaced by a summary, amid the reply.
    Compact(Compact),
}

/// How much thinking stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepThinking {
    /// All of it.
    All,
    /// That of the newest so many turns.
    Turns(u64),
}

/// When and how tool results are cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearToolUses {
    /// The input tokens above which results are cleared.
    pub trigger_tokens: u64,
    /// How many of the newest tool uses stay.
    pub keep: u64,
    /// The least that a clearing must free, in tokens, so that it pays for the cache it breaks.
    pub clear_at_least: Option<u64>,
    /// Tools whose results stay.
    pub exclude_tools: Vec<String>,
    /// Whose arguments are cleared as well.
    pub inputs: ClearInputs,
}

/// Whose arguments are cleared with their results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClearInputs {
    /// Nobody's.
    Keep,
    /// Everybody's.
    All,
    /// Those of these tools.
    Of(Vec<String>),
}

/// When and how a provider summarises amid a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compact {
    /// The input tokens above which it does.
    pub trigger_tokens: u64,
    /// What follows the summary.
    pub after: AfterSummary,
    /// A prompt in place of the provider's own.
    pub instructions: Option<String>,
}

/// What follows a summary that the provider wrote amid a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterSummary {
    /// Nothing: the caller puts back what is to stay word for word, and asks again.
    Pause,
    /// The reply, from the summary alone.
    GoOn,
}

/// What a provider tells of the context beside the reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextReport {
    /// The size in tokens of what the model read last, where the usage counts more than that:
    /// summaries, or several readings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The changes that the provider made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<AppliedEdit>,
}

impl ContextReport {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_none() && self.edits.is_empty()
    }

    /// The input tokens that the provider took out of the request.
    #[must_use]
    pub fn cleared_tokens(&self) -> u64 {
        self.edits.iter().map(|edit| edit.cleared_input_tokens).sum()
    }
}

/// A change that a provider made, in its own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppliedEdit {
    /// The provider's name for it.
    pub r#type: String,
    /// Tool uses cleared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleared_tool_uses: Option<u64>,
    /// Turns whose thinking was cleared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleared_thinking_turns: Option<u64>,
    /// Input tokens that this freed.
    pub cleared_input_tokens: u64,
}
