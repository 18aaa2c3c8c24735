//! The task graph: built and checked at once; which tasks may start.
//!
//! Pure. Owns the payloads of the `task.*` events.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::output::Output;

/// The state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// It waits for other tasks.
    #[default]
    Pending,
    /// It may start and waits for a slot.
    Ready,
    /// It is at work.
    Running,
    /// It waits for the pause before its next attempt, or for a person.
    Waiting,
    /// It has its output.
    Completed,
    /// It failed for good.
    Failed,
    /// It will not run.
    Skipped,
    /// It was cancelled.
    Cancelled,
    /// Its output was taken from an earlier run.
    Reused,
}

/// `task.ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReady {}

/// `task.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStarted {
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The agent that does it.
    pub agent: AgentId,
}

/// `task.retrying`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRetrying {
    /// The attempt that failed.
    pub attempt: u32,
    /// Why.
    pub failure: Failure,
    /// The pause before the next attempt, in milliseconds.
    pub pause_ms: u64,
}

/// `task.completed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCompleted {
    /// The attempt that did it.
    pub attempt: u32,
    /// What it gave.
    pub output: Output,
}

/// `task.failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFailed {
    /// The attempts made.
    pub attempt: u32,
    /// Why.
    pub failure: Failure,
}

/// `task.skipped`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSkipped {
    /// Why, for a person.
    pub reason: String,
    /// The task whose failure skips this one; absent when it skipped itself by its `when`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Name>,
}

/// `task.cancelled`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCancelled {
    /// Why.
    pub reason: String,
}
