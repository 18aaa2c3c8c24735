//! Limits of the whole run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spawn_rate::SpawnRate;

/// Limits of the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The most tasks and child agents at work at the same time.
    pub max_concurrency: usize,
    /// The deepest level of delegation; a task's main agent is at depth 0.
    pub max_depth: u32,
    /// The most child agents at work at the same time.
    pub max_children: usize,
    /// The most child agents over the whole run, children of children included.
    pub max_descendants: usize,
    /// The most child agents that begin in a time.
    #[serde(default)]
    pub max_spawn_rate: SpawnRate,
    /// The most instances of one fan-out.
    pub max_instances: usize,
    /// The longest time that the run may be open.
    pub timeout: Option<Duration>,
    /// True if the first failure stops new tasks from starting.
    pub fail_fast: bool,
    /// True if the first failure also cancels the tasks that are at work.
    pub cancel_running: bool,
    /// True if a run in which anything was left undone counts as completed only in part.
    pub strict: bool,
    /// True if no run of a file starts beside another one unless a person says so.
    pub one_at_a_time: bool,
    /// Time that a cancelled tool has to end before its process group is killed.
    pub grace_period: Duration,
    /// Time that a running command has to end after the process that owns the run has died.
    pub orphan_grace: Duration,
}

impl Default for Limits {
    /// Returns the limits of a file that sets none; the reference of its keys says why.
    fn default() -> Self {
        Self {
            max_concurrency: 8,
            max_depth: 3,
            max_children: 20,
            max_descendants: 100,
            max_spawn_rate: SpawnRate::default(),
            max_instances: 1000,
            timeout: None,
            fail_fast: true,
            cancel_running: false,
            strict: false,
            one_at_a_time: false,
            grace_period: Duration::from_secs(10),
            orphan_grace: Duration::from_secs(5),
        }
    }
}
