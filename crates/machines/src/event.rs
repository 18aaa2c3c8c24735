//! The events of a run's journal: one table of types, each with the payload that its module owns.
//!
//! Owns the names of the events and the fields that every record has. The `journal` module frames a
//! record on disk; the fold in `run_state` gives an event its meaning.

mod budgets;
mod gateways;
mod pausing;

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

pub use self::budgets::{BudgetBoundBroken, BudgetChanged, BudgetExceeded, BudgetWarned};
pub use self::gateways::{GatewayBreaker, GatewayParked, GatewayResumed, QuotaWait};
pub use self::pausing::{PauseCause, RunPaused, ScopePaused, ScopeUnpaused};
use crate::context::{
    CompactionBreaker, CompactionFailed, CompactionFinished, CompactionRequested, ContextEdited,
};
use crate::failure::Failure;
use crate::id::{AgentId, Name, RunId};
use crate::message::{Json, Usage};
use crate::messages::{MessageDelivered, MessageReturned, MessageSent};
use crate::output::Output;
pub use crate::plan::{PlanExtended, PlannedTask};
use crate::plan::{
    TaskCancelled, TaskCompleted, TaskFailed, TaskReady, TaskRetrying, TaskReused, TaskSkipped,
    TaskStarted, TaskState,
};
use crate::spec::hooks::{HookFinished, HookStarted};
use crate::spec::notices::{NoticeDelivered, NoticeFailed, NoticeIntended};
use crate::spec::sandbox::SandboxProof;
use crate::spec::spawn_rate::SpawnRate;
use crate::turn::{
    AgentEnded, AgentRestarted, AgentSpawned, ApprovalAnswered, ApprovalAsked, LoopBroken,
    LoopHeld, LoopNoticed, ModelFailed, ModelRequested, ModelResponded, Shortfalls, ToolFinished,
    ToolIntended, ToolStarted, TurnStarted,
};

macro_rules! events {
    ($(
        $(#[doc = $doc:literal])*
        $variant:ident $(in $holder:ident)? = $name:literal: $state:ident, $level:ident;
    )*) => {
        /// A fact about a run, in the past tense.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event { $($(#[doc = $doc])* $variant(held!($variant $(in $holder)?)),)* }

        impl Event {
            /// The names of all event types, in the order of the table.
            pub const TYPES: &[&str] = &[$($name),*];

            /// The name of each type with its meaning, in the order of the table.
            pub const TABLE: &[(&str, &str)] = &[$(($name, concat!($($doc),*))),*];

            /// Returns the name of the event's type, as a record holds it.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            /// Returns true if decisions about the run depend on the event. The others concern only
            /// the agent that recorded them and readers of the journal.
            pub fn is_of_run(&self) -> bool {
                match self { $(Self::$variant(_) => column!($state),)* }
            }

            /// Returns true if a person who watches a run wants to see events of this type.
            pub fn is_milestone(&self) -> bool {
                match self { $(Self::$variant(_) => column!($level),)* }
            }

            /// Returns the payload, as a record holds it under `data`.
            #[must_use]
            pub fn data(&self) -> Json {
                match self { $(Self::$variant(payload) => Json::encode(payload),)* }
            }

            /// Appends the payload, as a record holds it under `data`, without a copy in between.
            pub fn write_data(&self, out: &mut Vec<u8>) {
                let written = match self {
                    $(Self::$variant(payload) => serde_json::to_writer(out, payload),)*
                };
                written.expect("plain data with string keys always encodes into memory");
            }

            /// Returns the schema of each payload, in the order of [`Event::TABLE`].
            pub fn schemas(generator: &mut SchemaGenerator) -> Vec<Schema> {
                vec![$(generator.subschema_for::<$variant>(),)*]
            }

            /// Reads a payload. Returns `None` if this version does not know the type.
            ///
            /// # Errors
            /// Returns an error if the payload does not have the shape of its type.
            pub fn decode(kind: &str, data: &str) -> Result<Option<Self>, serde_json::Error> {
                Ok(Some(match kind {
                    $($name => Self::$variant(serde_json::from_str(data)?),)*
                    _ => return Ok(None),
                }))
            }
        }

        $(impl From<$variant> for Event {
            fn from(payload: $variant) -> Self { Self::$variant(payload.into()) }
        })*
    };
}

/// Gives the type that holds a payload: a record is as large as the largest one that stands in it by value.
macro_rules! held {
    ($payload:ident) => {
        $payload
    };
    ($payload:ident in $holder:ident) => {
        $holder<$payload>
    };
}

/// Gives the words of the table's two columns as truth values.
macro_rules! column {
    (run) => {
        true
    };
    (agent) => {
        false
    };
    (milestone) => {
        true
    };
    (detail) => {
        false
    };
}

// Each type with its name in records, whose state depends on it, and who is shown it.
events! {
    /// The run was created; the event holds its whole configuration.
    RunCreated in Box = "run.created": run, detail;
    /// A process opened the run, for the first time or to resume it.
    RunOpened = "run.opened": run, milestone;
    /// The run stopped before its end and can be resumed.
    RunPaused = "run.paused": run, milestone;
    /// The run ended.
    RunCompleted = "run.completed": run, detail;
    /// A hook of the run is about to be run.
    HookStarted = "hook.started": run, milestone;
    /// A hook of the run has ended, or one of a tool call did not work.
    HookFinished = "hook.finished": run, milestone;
    /// A person is about to be told of a state of the run.
    NoticeIntended = "notice.intended": run, detail;
    /// A notice was taken by the one who passes it on.
    NoticeDelivered = "notice.delivered": run, detail;
    /// An attempt to deliver a notice failed.
    NoticeFailed = "notice.failed": run, milestone;
    /// The tasks that an agent proposed were added to the plan.
    PlanExtended = "plan.extended": run, milestone;
    /// All dependencies of a task have ended.
    TaskReady = "task.ready": run, detail;
    /// An attempt of a task began.
    TaskStarted = "task.started": run, milestone;
    /// An attempt of a task failed and another one follows.
    TaskRetrying = "task.retrying": run, milestone;
    /// A task completed with its output.
    TaskCompleted = "task.completed": run, milestone;
    /// A task failed and is not retried.
    TaskFailed = "task.failed": run, milestone;
    /// A task will not run.
    TaskSkipped = "task.skipped": run, milestone;
    /// A task was cancelled.
    TaskCancelled = "task.cancelled": run, milestone;
    /// A task took the output that was made earlier from the same content.
    TaskReused = "task.reused": run, milestone;
    /// An agent was created.
    AgentSpawned = "agent.spawned": run, milestone;
    /// An agent crashed and was rebuilt from its records.
    AgentRestarted = "agent.restarted": run, milestone;
    /// An agent has ended.
    AgentEnded = "agent.ended": run, milestone;
    /// An agent began a turn.
    TurnStarted = "turn.started": agent, detail;
    /// A request to a model is about to be sent.
    ModelRequested = "model.requested": agent, detail;
    /// A model call returned a reply.
    ModelResponded = "model.responded": run, detail;
    /// An attempt of a model call failed.
    ModelFailed = "model.failed": run, milestone;
    /// A tool call is about to be run.
    ToolIntended = "tool.intended": agent, detail;
    /// A tool call is running.
    ToolStarted = "tool.started": agent, detail;
    /// A tool call ended with its result.
    ToolFinished = "tool.finished": agent, detail;
    /// An agent was told that it goes in circles.
    LoopNoticed = "loop.noticed": agent, milestone;
    /// An agent that goes in circles gets a turn without tools.
    LoopHeld = "loop.held": agent, milestone;
    /// An agent that goes in circles hands over and ends.
    LoopBroken = "loop.broken": agent, milestone;
    /// A person was asked something: whether a call may run, whether the plan may go on, or what an
    /// agent wants to know.
    ApprovalAsked = "approval.asked": run, milestone;
    /// A person answered, or the time of the question was over.
    ApprovalAnswered = "approval.answered": run, milestone;
    /// A message waits for an agent.
    MessageSent in Box = "message.sent": run, milestone;
    /// Messages stand in the request of a turn.
    MessageDelivered = "message.delivered": run, detail;
    /// A message will stand in no request.
    MessageReturned in Box = "message.returned": run, milestone;
    /// A layer changed an agent's view.
    ContextEdited = "context.edited": agent, detail;
    /// A summary of a range of the view was requested.
    CompactionRequested = "compaction.requested": agent, detail;
    /// A summary replaced a range of the view.
    CompactionFinished = "compaction.finished": run, milestone;
    /// A summary could not be made; the view is unchanged.
    CompactionFailed = "compaction.failed": run, milestone;
    /// The compactor's breaker changed its state.
    CompactionBreaker = "compaction.breaker": agent, milestone;
    /// A share of a budget is spent.
    BudgetWarned in Box = "budget.warned": run, milestone;
    /// A call does not fit a budget any more.
    BudgetExceeded in Box = "budget.exceeded": run, milestone;
    /// A person set the limits of a budget.
    BudgetChanged = "budget.changed": run, milestone;
    /// A provider reported more tokens than a call could have by what was known.
    BudgetBoundBroken = "budget.bound_broken": run, milestone;
    /// A person paused the run, a task or an agent, with all below it.
    ScopePaused in Box = "scope.paused": run, milestone;
    /// A person lets what was paused go on.
    ScopeUnpaused in Box = "scope.unpaused": run, milestone;
    /// A provider asked all callers to wait.
    GatewayParked = "gateway.parked": run, milestone;
    /// The wait for a provider ended.
    GatewayResumed = "gateway.resumed": run, milestone;
    /// A provider's breaker changed its state.
    GatewayBreaker = "gateway.breaker": agent, milestone;
}

/// Payload of `run.created`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunCreated {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// The version of the program that created the run.
    pub program: String,
    /// The path of the configuration file.
    #[serde(default)]
    pub file: std::path::PathBuf,
    /// The configuration file's text. This and the tasks are shared by all who fold the record.
    pub config: Arc<str>,
    /// The texts of the files that the configuration names, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// blake3 hash of `config`, in hexadecimal.
    pub config_hash: String,
    /// The profile in force, if one was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The file with the plan whose tasks were added (`run --plan`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<std::path::PathBuf>,
    /// The plans that agents proposed during the run and that were added to it. The record itself has
    /// none; the state of a run collects them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposed: Vec<PlanExtended>,
    /// The inputs, checked, with defaults filled in.
    pub inputs: Json,
    /// The `CALLSHEET_*` variables that set configuration keys. Those of providers, secrets and
    /// processes are left out, because they may hold API keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Configuration keys that were overridden for this run, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
    /// The place at which this run was forked from another, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked: Option<Forked>,
    /// True if a failed task leaves the tasks that do not depend on it running, whatever the
    /// configuration says.
    #[serde(default)]
    pub keep_going: bool,
    /// The results of another run that may be reused, by the key of the content that they were made
    /// from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub earlier: BTreeMap<String, Output>,
    /// True if a run in which anything was left undone counts as completed only in part, whatever
    /// the configuration says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// The tasks of the plan with their dependencies, in the order of the configuration.
    pub tasks: Arc<[PlannedTask]>,
}

/// The place at which a run was forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forked {
    /// The run that was forked.
    pub run: RunId,
    /// Number of the last record that both runs share.
    pub seq: u64,
}

/// Payload of `run.opened`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunOpened {
    /// Number of the opening, from 1. The same process keeps it after a pause on a full disk.
    pub epoch: u64,
    /// Id of the process that opened it.
    pub pid: u32,
    /// Who opened it, as `user@host/pid`; absent if the same process continues after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason, if the same process continues after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The new configuration, if the run resumes with a changed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Box<Accepted>>,
    /// The tasks that begin again although they had ended or waited for the resume, with the same
    /// configuration. An `agent.restarted` of such a task's agent follows if its conversation
    /// continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retried: Vec<Name>,
    /// The tasks that follow from those: each is decided again once the tasks before it have ended.
    /// It takes its result from before, or its attempt under way goes on, if it would be made from
    /// the same content; otherwise it runs again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reopened: Vec<Name>,
    /// The sandbox of commands; absent if the run has no commands or wants no sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxProof>,
    /// The names of the environment variables that every command gets, sorted; none if the run has no commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// The most child agents that begin in a time; absent if no agent delegates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_spawn_rate: Option<SpawnRate>,
}

impl RunOpened {
    /// Creates the record of a plain opening by this process.
    #[must_use]
    pub fn by_this_process(epoch: u64) -> Self {
        Self { epoch, pid: std::process::id(), ..Self::default() }
    }
}

/// A configuration that replaces the recorded one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Accepted {
    /// The configuration file's text.
    pub config: Arc<str>,
    /// The texts of the files that the configuration names, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// blake3 hash of `config`, in hexadecimal.
    pub config_hash: String,
    /// The inputs, checked, with defaults filled in.
    pub inputs: Json,
    /// The `CALLSHEET_*` variables that set configuration keys, as in `run.created`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The tasks of the plan, all back in their first state. Each one, when its turn comes, takes
    /// the result that was made earlier from the same content, resumes an attempt that was under
    /// way, or starts anew.
    pub tasks: Arc<[PlannedTask]>,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Every task completed or was skipped by its own `when`.
    Completed,
    /// Some tasks completed and some did not.
    Partial,
    /// No task completed, or one failed under `limits.fail_fast` without `--keep-going`.
    Failed,
    /// The run was cancelled.
    Cancelled,
}

/// Payload of `run.completed`: the whole result of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunCompleted {
    /// The result.
    pub status: RunStatus,
    /// The end of every task, by name, in the order of the plan.
    pub tasks: IndexMap<Name, TaskEnd>,
    /// Tokens used by all agents and by compaction.
    pub usage: Usage,
    /// The cost in US dollars; absent if a model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The work that was asked for and not done.
    #[serde(default, skip_serializing_if = "Shortfalls::is_empty")]
    pub shortfalls: Shortfalls,
}

/// The end of a task, as `run.completed` lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskEnd {
    /// The task's state.
    pub state: TaskState,
    /// The task's output, if it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The failure, if the task failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// An event that is not recorded yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The task it belongs to, if any.
    pub task: Option<Name>,
    /// The agent it belongs to, if any.
    pub agent: Option<AgentId>,
    /// The fact itself, with its payload.
    pub event: Event,
}

impl Draft {
    /// Makes an event of the run as a whole.
    #[must_use]
    pub fn run(event: impl Into<Event>) -> Self {
        Self { task: None, agent: None, event: event.into() }
    }

    /// Makes an event of a task.
    #[must_use]
    pub fn task(task: &Name, event: impl Into<Event>) -> Self {
        Self { task: Some(task.clone()), agent: None, event: event.into() }
    }

    /// Makes an event of an agent.
    #[must_use]
    pub fn agent(task: &Name, agent: &AgentId, event: impl Into<Event>) -> Self {
        Self { task: Some(task.clone()), agent: Some(agent.clone()), event: event.into() }
    }
}

/// An event that is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Number of the record within the run: from 1, without gaps.
    pub seq: u64,
    /// Number of the opening of the run that wrote it, from 1.
    pub epoch: u64,
    /// Wall time in milliseconds since the Unix epoch; for people, never for order.
    pub ts_ms: i64,
    /// The task it belongs to, if any.
    pub task: Option<Name>,
    /// The agent it belongs to, if any.
    pub agent: Option<AgentId>,
    /// The fact itself, with its payload.
    pub event: Event,
}

/// A record, shared by everyone who reads it.
pub type SharedRecord = Arc<Record>;
