//! The events of a run's journal: one table of types, each with the payload that its module owns.
//!
//! Owns the vocabulary and the envelope. How a record is framed on disk is the journal's business;
//! what an event means is that of the fold in `run_state`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::context::{
    CompactionBreaker, CompactionFailed, CompactionFinished, CompactionRequested, ContextEdited,
};
use crate::failure::Failure;
use crate::id::{AgentId, Name, RunId};
use crate::message::{Json, Usage};
use crate::plan::{
    TaskCancelled, TaskCompleted, TaskFailed, TaskReady, TaskRetrying, TaskReused, TaskSkipped,
    TaskStarted, TaskState,
};
use crate::policy::BreakerState;
use crate::turn::{
    AgentEnded, AgentRestarted, AgentSpawned, ModelFailed, ModelRequested, ModelResponded,
    ToolFinished, ToolIntended, ToolStarted, TurnStarted,
};

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A past-tense fact of a run.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event { $($(#[$doc])* $variant($variant),)* }

        impl Event {
            /// Every event type, in the order of the table.
            pub const TYPES: &[&str] = &[$($name),*];

            /// The type, as it stands in a record.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            /// The payload, as it stands under `data`.
            #[must_use]
            pub fn data(&self) -> Json {
                match self { $(Self::$variant(payload) => Json::encode(payload),)* }
            }

            /// Appends the payload, as it stands under `data`, without a copy in between.
            pub fn write_data(&self, out: &mut Vec<u8>) {
                let written = match self {
                    $(Self::$variant(payload) => serde_json::to_writer(out, payload),)*
                };
                written.expect("plain data with string keys always encodes into memory");
            }

            /// Reads a payload; `None` for a type that this version does not know.
            ///
            /// # Errors
            /// When the payload does not have the shape of its type.
            pub fn decode(kind: &str, data: &str) -> Result<Option<Self>, serde_json::Error> {
                Ok(Some(match kind {
                    $($name => Self::$variant(serde_json::from_str(data)?),)*
                    _ => return Ok(None),
                }))
            }
        }

        $(impl From<$variant> for Event {
            fn from(payload: $variant) -> Self { Self::$variant(payload) }
        })*
    };
}

events! {
    /// The run exists; its configuration is recorded whole.
    RunCreated = "run.created",
    /// A process took the run up.
    RunOpened = "run.opened",
    /// The run stopped before its end and can go on.
    RunPaused = "run.paused",
    /// The run ended.
    RunCompleted = "run.completed",
    /// A task's dependencies are done.
    TaskReady = "task.ready",
    /// An attempt of a task began.
    TaskStarted = "task.started",
    /// An attempt failed and another follows.
    TaskRetrying = "task.retrying",
    /// A task has its output.
    TaskCompleted = "task.completed",
    /// A task failed for good.
    TaskFailed = "task.failed",
    /// A task will not run.
    TaskSkipped = "task.skipped",
    /// A task was cancelled.
    TaskCancelled = "task.cancelled",
    /// A task has the output that was made before from the same content.
    TaskReused = "task.reused",
    /// An agent exists.
    AgentSpawned = "agent.spawned",
    /// An agent crashed and was rebuilt from its records.
    AgentRestarted = "agent.restarted",
    /// An agent has ended.
    AgentEnded = "agent.ended",
    /// An agent began a turn.
    TurnStarted = "turn.started",
    /// A model call is about to be made.
    ModelRequested = "model.requested",
    /// A model call gave a reply.
    ModelResponded = "model.responded",
    /// An attempt of a model call failed.
    ModelFailed = "model.failed",
    /// A tool call is about to be run.
    ToolIntended = "tool.intended",
    /// A tool call is running.
    ToolStarted = "tool.started",
    /// A tool call has its result.
    ToolFinished = "tool.finished",
    /// A layer changed an agent's view.
    ContextEdited = "context.edited",
    /// A summary was asked for.
    CompactionRequested = "compaction.requested",
    /// A summary replaces a range of the view.
    CompactionFinished = "compaction.finished",
    /// A summary could not be had; the view stays.
    CompactionFailed = "compaction.failed",
    /// The compactor's breaker changed its state.
    CompactionBreaker = "compaction.breaker",
    /// A provider asked everybody to wait.
    GatewayParked = "gateway.parked",
    /// The wait is over.
    GatewayResumed = "gateway.resumed",
    /// A provider's breaker changed its state.
    GatewayBreaker = "gateway.breaker",
}

/// `run.created`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunCreated {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// The version of the program.
    pub program: String,
    /// The path of the configuration file.
    #[serde(default)]
    pub file: std::path::PathBuf,
    /// The configuration file's text.
    pub config: String,
    /// The texts of the files that the configuration names, by their path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// blake3 of `config` in hexadecimal.
    pub config_hash: String,
    /// The profile in force, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The inputs, checked and with their defaults.
    pub inputs: Json,
    /// The `CALLSHEET_*` variables that set keys of the configuration. Those of providers, secrets
    /// and processes are left out: they may hold keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Keys of the configuration that were set over it, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
    /// The run that this one began as, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked: Option<Forked>,
    /// Whether a failure leaves tasks that do not need it alone, whatever the configuration says.
    #[serde(default)]
    pub keep_going: bool,
    /// The tasks of the plan with what each waits for, in the order of the configuration.
    pub tasks: Vec<PlannedTask>,
}

/// Where a run was forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// The run.
    pub run: RunId,
    /// The last record that both share.
    pub seq: u64,
}

/// A task as `run.created` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTask {
    /// The task.
    pub name: Name,
    /// The agent definition that does it; absent for a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Name>,
    /// The tasks that must end before it starts.
    #[serde(default)]
    pub depends_on: Vec<Name>,
}

/// `run.opened`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOpened {
    /// How often the run was opened, from 1.
    pub epoch: u64,
    /// The process that did.
    pub pid: u32,
    /// Why, if it is the same process that goes on after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The configuration that the run goes on with, if it is another from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Box<Accepted>>,
}

/// A configuration that takes the place of the recorded one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// The configuration file's text.
    pub config: String,
    /// The texts of the files that it names, by their path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// blake3 of `config` in hexadecimal.
    pub config_hash: String,
    /// The inputs, checked and with their defaults.
    pub inputs: Json,
    /// The `CALLSHEET_*` variables that set keys, as in `run.created`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The tasks of the plan. None has begun: when it is a task's turn, it takes the result that was
    /// made before from the same content, or goes on with an attempt that was under way, or begins.
    pub tasks: Vec<PlannedTask>,
}

/// `run.paused`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPaused {
    /// Why, for people.
    pub reason: String,
    /// What has to change before the run goes on.
    #[serde(default)]
    pub cause: PauseCause,
}

/// Why a run stopped before its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseCause {
    /// It was told to stop: a later process takes it up.
    #[default]
    Interrupted,
    /// The disk has no room: the process that has the run waits, and goes on by itself.
    DiskFull,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Every task completed or was skipped by its own `when`.
    Completed,
    /// Some tasks completed and some did not.
    Partial,
    /// No task completed, or one failed and `--keep-going` was not given.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// `run.completed`: the whole result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunCompleted {
    /// The result.
    pub status: RunStatus,
    /// Every task's end, by name, in the order of the plan.
    pub tasks: serde_json::Map<String, serde_json::Value>,
    /// Tokens of all agents and of compaction.
    pub usage: Usage,
    /// What they cost; absent when a model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// A task's end, as `run.completed` lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// Its state.
    pub state: TaskState,
    /// Its output, if it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// `gateway.parked`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayParked {
    /// The provider.
    pub provider: Name,
    /// How long, in milliseconds.
    pub for_ms: u64,
    /// What the provider said.
    pub reason: String,
}

/// `gateway.resumed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayResumed {
    /// The provider.
    pub provider: Name,
}

/// `gateway.breaker`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayBreaker {
    /// The provider.
    pub provider: Name,
    /// The new state.
    pub state: BreakerState,
}

/// An event that is to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The task it belongs to, if any.
    pub task: Option<Name>,
    /// The agent it belongs to, if any.
    pub agent: Option<AgentId>,
    /// What happened.
    pub event: Event,
}

impl Draft {
    /// An event of the run as a whole.
    #[must_use]
    pub fn run(event: impl Into<Event>) -> Self {
        Self { task: None, agent: None, event: event.into() }
    }

    /// An event of a task.
    #[must_use]
    pub fn task(task: &Name, event: impl Into<Event>) -> Self {
        Self { task: Some(task.clone()), agent: None, event: event.into() }
    }

    /// An event of an agent.
    #[must_use]
    pub fn agent(task: &Name, agent: &AgentId, event: impl Into<Event>) -> Self {
        Self { task: Some(task.clone()), agent: Some(agent.clone()), event: event.into() }
    }
}

/// An event that is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its gapless number within the run, from 1.
    pub seq: u64,
    /// The opening of the run that wrote it, from 1.
    pub epoch: u64,
    /// Wall time in milliseconds since the Unix epoch; for people, never for order.
    pub ts_ms: i64,
    /// The task it belongs to, if any.
    pub task: Option<Name>,
    /// The agent it belongs to, if any.
    pub agent: Option<AgentId>,
    /// What happened.
    pub event: Event,
}

/// A record, shared by all that look at it.
pub type SharedRecord = Arc<Record>;
