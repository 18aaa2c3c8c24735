//! What a machine is made from: the parts of a run that do not change, its records so far, and moments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::id::{AgentId, Name, RunId};
use crate::plan::Plan;
use crate::run_state::RunState;
use crate::spec::budget::Budget;
use crate::spec::hooks::Hook;
use crate::spec::notices::NoticePolicy;
use crate::spec::tool::CommandTool;
use crate::spec::{AgentSpec, Limits, ModelSpec};
use crate::turn::content::Definitions;
use crate::turn::question::PersonsAnswer;

/// The parts of a run that do not change while a process drives it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// The inputs, checked, with defaults filled in.
    pub inputs: Map<String, Value>,
    /// The tasks with their dependencies.
    pub plan: Plan,
    /// The limits of the run.
    pub limits: Limits,
    /// The most that the run may spend.
    pub budget: Option<Budget>,
    /// The agent definitions.
    pub agents: BTreeMap<Name, Arc<AgentSpec>>,
    /// The model definitions.
    pub models: BTreeMap<Name, ModelSpec>,
    /// The tools that are commands of the configuration: a part of the content too.
    pub tools: BTreeMap<Name, CommandTool>,
    /// Environment variables of commands: a part of the content that results are made from.
    pub env: BTreeMap<String, String>,
    /// The folder of stored results, for templates that name the file of an output.
    pub results: PathBuf,
    /// The hooks that are set.
    pub hooks: BTreeSet<Hook>,
    /// The time after which a question for a permission is answered with no.
    pub ask_timeout: Option<Duration>,
    /// Which notices are sent, and when.
    pub notices: NoticePolicy,
    /// True if agents may propose tasks, which may depend on any task before them.
    pub grows: bool,
    /// Id of the process, for the records.
    pub pid: u32,
    /// True if the run stays open for answers when nothing else is left: somebody watches it, or it was
    /// detached and nobody waits for its end.
    pub attended: bool,
}

impl<'a> Definitions<'a> for &'a Settings {
    fn agent(&self, name: &Name) -> Option<&'a AgentSpec> {
        self.agents.get(name).map(|spec| &**spec)
    }
    fn model(&self, name: &Name) -> Option<&'a ModelSpec> {
        self.models.get(name)
    }
    fn tool(&self, name: &Name) -> Option<&'a CommandTool> {
        self.tools.get(name)
    }
}

/// The state of a run at the moment at which a process begins to drive it.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The fold of the run's journal: at least `run.created`.
    pub state: RunState,
    /// The agents that have not ended.
    pub unfinished: BTreeMap<AgentId, UnfinishedAgent>,
    /// The outputs that templates of later tasks may name, by task.
    pub outputs: Map<String, Value>,
    /// The answers of people that were left for this process.
    pub answers: Vec<PersonsAnswer>,
    /// The reason why the run is cancelled as it is resumed, if it is.
    pub cancelled: Option<String>,
    /// What is not tried again as the run is resumed, if anything is.
    pub given_up: Option<GivenUp>,
    /// The seed for the jitter of retry pauses.
    pub seed: u64,
}

/// An agent that had not ended when the last process stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnfinishedAgent {
    /// Number of its first record.
    pub first: u64,
    /// True if it waits for child agents.
    pub waits: bool,
}

/// A moment, as reported by the driver of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time since the machine was made; it never goes back.
    pub since: Duration,
    /// Wall time in milliseconds since the Unix epoch. Used only for pauses whose end is recorded
    /// in wall time.
    pub wall_ms: i64,
}

/// Work over which the supervisor crashed again and again: it fails, and is not tried once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The task, the instance of a fan-out, or the agent.
    pub work: String,
    /// The failure.
    pub failure: Failure,
}
