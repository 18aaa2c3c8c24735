//! The settings by which a run keeps its conversations within their windows.
//!
//! Plain data that all agents share: the configuration makes it, the actors hold it.

use std::time::Duration;

use crate::context::layers::preset::Preset;
use crate::context::provider::strategy::StrategySettings;
use crate::id::Name;

/// The settings of compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionSpec {
    /// The layers with their constants.
    pub preset: Preset,
    /// The model that writes summaries; absent: the agent's own.
    pub model: Option<Name>,
    /// The failures in a row that open the breaker.
    pub failure_threshold: u32,
    /// The time for which the breaker then stays open, before one probe.
    pub cooldown: Duration,
    /// The most summaries written at once; at least 1.
    pub max_concurrency: usize,
    /// The least time that a call for a summary may take; it grows with what is sent.
    pub summary_timeout: Duration,
    /// The commands that are asked before a compaction and told after it.
    pub hooks: Hooks,
    /// The work that is left to providers.
    pub strategy: StrategySettings,
}

/// The hooks of a run: each a program with its arguments, none where it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// Asked before a summary is written; it may block that, or add instructions.
    pub pre_compact: Vec<String>,
    /// Told of the summary that was written.
    pub post_compact: Vec<String>,
    /// Asked for what the agent should read after a compaction.
    pub after_compact_context: Vec<String>,
    /// The longest that each may take.
    pub timeout: Duration,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            pre_compact: Vec::new(),
            post_compact: Vec::new(),
            after_compact_context: Vec::new(),
            timeout: Duration::from_secs(60),
        }
    }
}
