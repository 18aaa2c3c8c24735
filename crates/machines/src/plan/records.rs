//! The payloads of the `task.*` events and of `plan.extended`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::{AgentId, CallKey, Name};
use crate::output::Output;
use crate::spec::{Join, TaskSpec, Work};

/// Payload of `plan.extended`: tasks that an agent proposed and that were added to the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanExtended {
    /// Key of the call that proposed them.
    pub key: CallKey,
    /// The agent that made the call.
    pub by: AgentId,
    /// The tasks as TOML, as the agent wrote them.
    pub text: String,
    /// The texts of the files that they name and that were not recorded before, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The tasks that were added, in their order.
    pub tasks: Vec<PlannedTask>,
    /// True if no person was asked about them: their agents count as children of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unasked: bool,
}

/// A task as `run.created` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedTask {
    /// The task.
    pub name: Name,
    /// The agent definition that does the task; absent for a command and an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Name>,
    /// True if the task asks a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approval: bool,
    /// Dependencies: the tasks that must end before it starts.
    #[serde(default)]
    pub depends_on: Vec<Name>,
    /// What makes it more than one piece of work that is always done once; absent in older journals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// The rule by which the ends of the dependencies decide whether it starts.
    #[serde(default, skip_serializing_if = "Join::is_usual")]
    pub join: Join,
    /// Names of the locks that an attempt holds while it is at work; empty in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<Name>,
    /// True if it fans out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fans_out: bool,
    /// The most of its instances at work at the same time, if it fans out with a limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<usize>,
}

impl PlannedTask {
    /// Creates the record of a task of a command without dependencies and locks.
    #[must_use]
    pub fn new(name: Name) -> Self {
        let (agent, approval, join, fans_out, at_once) = Default::default();
        let (depends_on, locks, marks) = Default::default();
        Self { name, agent, approval, depends_on, marks, join, locks, fans_out, at_once }
    }
}

/// What makes a task more than one piece of work that is always done once, by its key in agents.toml.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// `when`: it may be left out.
    When,
    /// `foreach`: it is done for each item of a list.
    Foreach,
    /// `until`: it is repeated.
    Until,
    /// `workflow`: it stands for the tasks of a sub-graph.
    Workflow,
}

impl Mark {
    /// Returns the key as it is written in agents.toml.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::When => "when",
            Self::Foreach => "foreach",
            Self::Until => "until",
            Self::Workflow => "workflow",
        }
    }
}

impl From<&TaskSpec> for PlannedTask {
    fn from(task: &TaskSpec) -> Self {
        let (mut agent, mut approval) = (None, false);
        match &task.work {
            Work::Agent { agent: name, .. } => agent = Some(name.clone()),
            Work::Approval(_) => approval = true,
            Work::Command { .. } | Work::Graph { .. } => {}
        }
        let all = [
            (Mark::When, task.when.is_some()),
            (Mark::Foreach, task.fan_out.is_some()),
            (Mark::Until, task.acceptance.repeat.is_some()),
            (Mark::Workflow, matches!(task.work, Work::Graph { .. })),
        ];
        let marks = all.into_iter().filter_map(|(mark, is_set)| is_set.then_some(mark)).collect();
        Self {
            agent,
            approval,
            depends_on: task.depends_on.clone(),
            marks,
            locks: task.locks.clone(),
            join: task.effective_join(),
            fans_out: task.fan_out.is_some(),
            at_once: task.fan_out.as_ref().and_then(|fan_out| fan_out.max_concurrency),
            ..Self::new(task.name.clone())
        }
    }
}

/// `task.ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReady {}

/// `task.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskStarted {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The agent that does the work; absent if the task fans out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The instances of a task that fans out. They are tasks of their own from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<Instances>,
    /// Hash of everything that the result is made from; a fork reuses the result if its key is
    /// equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The key of the item, if the task is an instance of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
}

/// The instances of a task that fans out: one for each item, in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Instances {
    /// The keys of the items: all different, none empty.
    pub keys: Vec<String>,
    /// Hash of the items, 32 hexadecimal digits of blake3 over their JSON text.
    pub hash: String,
    /// Number of the last record that was known when the items were read; absent if that is the record
    /// before this one, as in journals of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
}

/// `task.retrying`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRetrying {
    /// Number of the attempt that failed.
    pub attempt: u32,
    /// The reason why it failed.
    pub failure: Failure,
    /// The pause before the next attempt, in milliseconds.
    pub pause_ms: u64,
    /// True if the next attempt begins only when the run is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_resume: bool,
}

/// `task.completed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCompleted {
    /// Number of the attempt that completed.
    pub attempt: u32,
    /// The task's output.
    pub output: Output,
}

/// `task.reused`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReused {
    /// Hash of everything that the result was made from; equal then and now.
    pub key: String,
    /// The task's output.
    pub output: Output,
}

/// `task.failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskFailed {
    /// Number of attempts made.
    pub attempt: u32,
    /// The reason why the last attempt failed.
    pub failure: Failure,
    /// The consequence for other tasks; absent if `limits.fail_fast` and `--keep-going` decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consequence: Option<Consequence>,
}

/// The consequence of the failure of a task for other tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consequence {
    /// Nothing new starts.
    Stop,
    /// The tasks that depend on it are skipped unless their `join` allows it.
    SkipDependents,
    /// It counts as done for the tasks that depend on it.
    Continue,
}

/// `task.skipped`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSkipped {
    /// The reason, for a person.
    pub reason: String,
    /// The task whose failure skips this one; absent when the task's own `when` skipped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Name>,
}

/// `task.cancelled`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCancelled {
    /// The reason, for a person.
    pub reason: String,
}
