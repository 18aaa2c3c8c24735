//! The settings that keep the conversations of a run within their windows.
//!
//! Plain data that all agents share: the configuration makes it, the actors hold it.

use std::time::Duration;

use crate::context::layers::preset::Preset;
use crate::context::provider::strategy::StrategySettings;
use crate::id::Name;

/// The settings of compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionSpec {
    /// Layers with their constants.
    pub preset: Preset,
    /// Model that writes summaries; absent: the agent's own.
    pub model: Option<Name>,
    /// Number of failures in a row that open the circuit breaker.
    pub failure_threshold: u32,
    /// Time for which the circuit breaker then stays open, before one probe.
    pub cooldown: Duration,
    /// Most summaries written at once; at least 1.
    pub max_concurrency: usize,
    /// Least time limit of a summary call; the limit grows with the size of the request.
    pub summary_timeout: Duration,
    /// Commands that run before and after a compaction.
    pub hooks: Hooks,
    /// Settings of the work that providers do.
    pub strategy: StrategySettings,
}

/// The hooks of a run. Each is a program with its arguments; an empty one is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// Runs before a summary is written; it may forbid the summary or add instructions.
    pub pre_compact: Vec<String>,
    /// Runs after a summary was written, and receives it.
    pub post_compact: Vec<String>,
    /// Runs after a compaction; its output is added for the agent to read.
    pub after_compact_context: Vec<String>,
    /// Time limit of each hook.
    pub timeout: Duration,
}

impl Hooks {
    /// Returns the programs of the hooks that are set, with their arguments: an argument may be the
    /// file that a shell runs.
    pub fn commands(&self) -> impl Iterator<Item = &[String]> {
        let all = [&self.pre_compact, &self.post_compact, &self.after_compact_context];
        all.into_iter().map(Vec::as_slice).filter(|command| !command.is_empty())
    }
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
