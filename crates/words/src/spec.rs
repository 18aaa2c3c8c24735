//! Settings of a run in the form the program needs: agents, models, tasks and limits.
//!
//! Made once from the configuration and never changed while the run lasts. Holds values only:
//! no defaults are looked up here and nothing is read from the environment.

pub mod acceptance;
mod approval;
pub mod budget;
pub mod capability;
mod capture;
pub mod hooks;
mod join;
pub mod keeping;
mod limits;
pub mod loops;
pub mod notices;
mod output_format;
mod price;
mod reach;
pub mod run_by_others;
pub mod sandbox;
pub mod spawn_rate;
pub mod sub_graph;
pub mod tool;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::acceptance::{Acceptance, CheckWork};
pub use self::approval::{Approval, OnTimeout};
use self::budget::Budget;
use self::capability::Declared;
pub use self::capture::Capture;
pub use self::join::Join;
pub use self::limits::Limits;
use self::loops::LoopSpec;
pub use self::output_format::OutputFormat;
pub use self::price::{Price, RelativePrice};
pub use self::reach::Reach;
use self::sandbox::Confinement;
use self::sub_graph::SubGraph;
pub use self::written::Written;
use crate::failure::Failure;
use crate::id::Name;
use crate::message::Json;
use crate::message::media::Media;
use crate::permission::Permissions;
use crate::policy::{RestartPolicy, RetryPolicy};
use crate::schema::Schema;

/// A model as an agent uses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// The model's name in the configuration.
    pub name: Name,
    /// Name of the provider that serves the model.
    pub provider: Name,
    /// The provider's own name for the model, as it is sent in a request.
    pub model: String,
    /// Size of the model's context window in tokens, input and output together.
    pub context_window: u64,
    /// The most tokens that one reply may have.
    pub max_output_tokens: u64,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// Nucleus sampling; not sent when absent.
    pub top_p: Option<f64>,
    /// `reasoning_effort` of OpenAI-compatible servers; not sent when absent.
    pub reasoning_effort: Option<String>,
    /// Sampling seed; not sent when absent.
    pub seed: Option<u64>,
    /// Prices of the model's tokens; absent when the configuration gives none.
    pub price: Option<Price>,
    /// Rule by which the model's thinking blocks stay valid.
    #[serde(default)]
    pub thinking: Thinking,
    /// The thinking that the model is asked for; not sent when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_mode: Option<ThinkingMode>,
    /// What the model reads besides text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
    /// Capabilities of the model's provider, or the wish to ask the provider for them.
    pub capabilities: Declared,
    /// The models that are called when this one cannot be, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<Name>,
    /// Time after which one call tries this model again that was given up for a fallback.
    #[serde(default = "fallback_cooldown")]
    pub fallback_cooldown: Duration,
    /// Fields of every request that the program does not know, as an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_body: Option<Json>,
}

/// The default of [`ModelSpec::fallback_cooldown`]: an overload of the public services often takes minutes.
#[must_use]
pub const fn fallback_cooldown() -> Duration {
    Duration::from_secs(60)
}

/// Rule by which the thinking blocks that a model returns stay valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    /// Thinking is valid while nothing before it changes; after an edit it is left out.
    #[default]
    Bound,
    /// Thinking is always valid.
    Free,
}

/// The thinking that a model is asked for, as the Messages API writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ThinkingMode {
    /// The model decides how much it thinks.
    Adaptive,
    /// The model thinks, within a budget in tokens.
    Enabled {
        /// The most tokens of thinking in a reply.
        budget_tokens: u64,
    },
    /// The model does not think.
    Disabled,
}

/// An agent definition: the settings shared by every agent that is started from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentSpec {
    /// The agent's name in the configuration.
    pub name: Name,
    /// Description of the agent's purpose, shown to agents that may delegate to it.
    pub description: String,
    /// Name of the model that the agent calls.
    pub model: Name,
    /// The agent's system prompt.
    pub instructions: String,
    /// Names of the tools that the agent may call, sorted.
    pub tools: Vec<Name>,
    /// Names of the agents that it may delegate to, sorted; empty when it may delegate to nobody.
    pub sub_agents: Vec<Name>,
    /// The most model calls that the agent may make.
    pub max_turns: u32,
    /// Permission rules for the agent's tools.
    pub permissions: Permissions,
    /// Rule by which the agent is restarted after a crash.
    pub restart: RestartPolicy,
    /// Names of the skill folders that the agent may load.
    pub skills: Vec<String>,
    /// What the agent is kept from, beside what the run is kept from.
    #[serde(default)]
    pub confinement: Confinement,
    /// The schema that the agent's answer must fit, where its task has none of its own.
    #[serde(default)]
    pub output_schema: Option<Schema>,
    /// Number of times that the agent is asked again after an answer that is not accepted; absent
    /// where the configuration does not say.
    #[serde(default)]
    pub output_retries: Option<u32>,
    /// The most that an agent of this definition may spend, with all agents below it.
    #[serde(default)]
    pub budget: Option<Budget>,
    /// The rules by which it is noticed that the agent goes in circles.
    #[serde(default)]
    pub loops: Arc<LoopSpec>,
    /// To whom the agent may send messages.
    #[serde(default)]
    pub messages: Reach,
    /// True if the agent may go on while its children work.
    #[serde(default)]
    pub background: bool,
}

impl AgentSpec {
    /// Creates an agent definition without instructions and tools, which may call its model once.
    #[must_use]
    pub fn new(name: Name, model: Name) -> Self {
        Self {
            name,
            description: String::new(),
            model,
            instructions: String::new(),
            tools: Vec::new(),
            sub_agents: Vec::new(),
            max_turns: 1,
            permissions: Permissions::default(),
            restart: RestartPolicy::default(),
            skills: Vec::new(),
            confinement: Confinement::default(),
            output_schema: None,
            output_retries: None,
            budget: None,
            loops: Arc::default(),
            messages: Reach::Nobody,
            background: false,
        }
    }
}

/// The work of a task: a prompt for an agent, a shell command, or a question to a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// The task gives an agent a prompt.
    Agent {
        /// Name of the agent definition.
        agent: Name,
        /// Template of the prompt.
        prompt: String,
    },
    /// The task runs a shell command in the workspace root.
    Command {
        /// The command line, given to `sh -c` unchanged.
        run: String,
    },
    /// The task asks a person whether the plan may go on.
    Approval(Approval),
    /// The task stands for the tasks of a sub-graph, on which it depends.
    Graph {
        /// The tasks whose outputs make the output of this one: those on which no other task of the
        /// sub-graph depends.
        outputs: Vec<Name>,
    },
}

/// The consequence of a failure of a task, as the configuration states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// No new task starts, as with `fail_fast`, also under `--keep-going`. The tasks that depend on
    /// it are skipped unless their `join` allows it.
    Fail,
    /// The tasks that depend on it are skipped unless their `join` allows it. All others go on.
    SkipDependents,
    /// It counts as done for the tasks that depend on it, with the output none.
    Continue,
    /// If the provider caused the failure and it may heal, the task waits. When nothing else is
    /// left to do, the run pauses, and the task begins again when the run is resumed.
    Pause,
}

/// What becomes of a call whose outcome nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// The model is told, and goes on. The command of a `run` task fails it.
    #[default]
    Tell,
    /// A person is asked what happened.
    Ask,
    /// The agent fails.
    Fail,
}

/// The fan-out of a task: one instance for each item of a list that is known only at run time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FanOut {
    /// Expression that gives the list.
    pub list: String,
    /// Name of the item in the templates of an instance.
    pub item: String,
    /// Template of the key of an item; absent if the key is made from the item itself.
    pub key: Option<String>,
    /// The most instances at work at the same time, if the task has a limit of its own.
    pub max_concurrency: Option<usize>,
    /// Share of the instances that must complete, from 0 to 1.
    pub min_success: f64,
}

/// One task of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// The task's name.
    pub name: Name,
    /// The work that the task does.
    pub work: Work,
    /// The tasks that must end before it starts.
    pub depends_on: Vec<Name>,
    /// The rule by which the ends of the dependencies decide whether the task starts.
    pub join: Join,
    /// Expression that is evaluated before the task starts: if it is false, the task is skipped and
    /// counts as done.
    pub when: Option<String>,
    /// The longest time that one attempt may take; only time during which the run is open counts.
    pub timeout: Option<Duration>,
    /// Number of attempts, and the pauses between them.
    pub retry: RetryPolicy,
    /// The consequence of the failure of the last attempt; absent if `limits.fail_fast` decides.
    pub on_failure: Option<OnFailure>,
    /// The list over which the task fans out, if it does.
    pub fan_out: Option<FanOut>,
    /// True if the task runs after a failure, a timeout and a cancellation too.
    pub always: bool,
    /// Names of the resources that no other task may use at the same time.
    pub locks: Vec<Name>,
    /// Patterns of the files that it writes, relative to the workspace.
    #[serde(default)]
    pub paths: Vec<String>,
    /// True if no other task whose `paths` overlap runs at the same time.
    #[serde(default)]
    pub exclusive: bool,
    /// The form in which templates see the task's output.
    pub output: OutputFormat,
    /// Template of the path of a workspace file to which the output is also written.
    pub output_file: Option<String>,
    /// Environment variables of a command; the values are templates.
    pub env: BTreeMap<String, String>,
    /// The sub-graph to which the task belongs; absent for a task of the main file.
    #[serde(default)]
    pub within: Option<SubGraph>,
    /// Template of the text for a command's standard input.
    #[serde(default)]
    pub stdin: Option<String>,
    /// Template of the folder in which a command runs, relative to the workspace.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Which streams of a command are its output.
    #[serde(default)]
    pub capture: Capture,
    /// True if a command that was interrupted may simply run again.
    #[serde(default)]
    pub idempotent: bool,
    /// Template of the text that a command gets as `$IDEMPOTENCY_KEY`.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// The tasks whose outputs are added to the prompt.
    #[serde(default)]
    pub context: Vec<Name>,
    /// The most estimated tokens of these outputs.
    #[serde(default)]
    pub context_budget: u64,
    /// True if the task may name the file of an output: in a template (`tasks.NAME.output_path`), or
    /// in place of an output that its prompt has no room for.
    #[serde(default)]
    pub names_output_paths: bool,
    /// What the task's command and agents are kept from, beside what the run is kept from.
    #[serde(default)]
    pub confinement: Confinement,
    /// What becomes of a call whose outcome nobody knows, where the tool does not say.
    #[serde(default)]
    pub on_unknown: OnUnknown,
    /// The rules by which the task's answer is accepted.
    #[serde(default)]
    pub acceptance: Acceptance,
    /// The most that the task may spend, with all its attempts and instances.
    #[serde(default)]
    pub budget: Option<Budget>,
    /// The places of its texts in the configuration.
    #[serde(skip)]
    pub written: Written,
}

impl TaskSpec {
    /// Returns the format of the task's output. That of a task that fans out is the JSON list of the
    /// outputs of its instances.
    #[must_use]
    pub fn output_format(&self) -> OutputFormat {
        if self.fan_out.is_some() { OutputFormat::Json } else { self.output }
    }

    /// Reads an output of the task: parses it, and compares it with the schema if it has one.
    ///
    /// # Errors
    /// Returns a failure of the kind `output_format` or `output_schema`.
    pub fn read(&self, text: &str) -> Result<Value, Failure> {
        match &self.fan_out {
            // The outputs of its instances were read one by one.
            Some(_) => OutputFormat::Json.parse(text),
            None => self.acceptance.read(self.output, text),
        }
    }

    /// Returns the rule by which the ends of the dependencies decide whether the task starts. A
    /// task that always runs waits for all of them.
    #[must_use]
    pub fn effective_join(&self) -> Join {
        if self.always { Join::AllDone } else { self.join }
    }

    /// Creates a task without dependencies, conditions or limits, which is attempted once.
    #[must_use]
    pub fn new(name: Name, work: Work) -> Self {
        Self {
            name,
            work,
            depends_on: Vec::new(),
            join: Join::default(),
            when: None,
            timeout: None,
            retry: RetryPolicy::never(),
            on_failure: None,
            fan_out: None,
            always: false,
            locks: Vec::new(),
            paths: Vec::new(),
            exclusive: false,
            output: OutputFormat::default(),
            output_file: None,
            env: BTreeMap::new(),
            within: None,
            stdin: None,
            cwd: None,
            capture: Capture::default(),
            idempotent: false,
            idempotency_key: None,
            context: Vec::new(),
            context_budget: 0,
            names_output_paths: false,
            confinement: Confinement::default(),
            on_unknown: OnUnknown::default(),
            acceptance: Acceptance::default(),
            budget: None,
            written: Written::default(),
        }
    }

    /// Returns the agent definitions of the task's work and of its checks.
    pub fn agents(&self) -> impl Iterator<Item = &Name> {
        let of_work = match &self.work {
            Work::Agent { agent, .. } => Some(agent),
            Work::Command { .. } | Work::Approval(_) | Work::Graph { .. } => None,
        };
        let of_checks = self.acceptance.checks.iter().filter_map(|check| match &check.work {
            CheckWork::Agent { agent, .. } => Some(agent),
            CheckWork::Command { .. } => None,
        });
        of_work.into_iter().chain(of_checks)
    }

    /// Returns true if the task runs a command, as its work or as a check.
    #[must_use]
    pub fn has_command(&self) -> bool {
        let is_command =
            |check: &acceptance::Check| matches!(check.work, CheckWork::Command { .. });
        matches!(self.work, Work::Command { .. }) || self.acceptance.checks.iter().any(is_command)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outputs_are_read_by_their_form() {
        assert_eq!(OutputFormat::Text.parse("{"), Ok(json!("{")));
        assert_eq!(OutputFormat::Text.parse("\n a\nb \r\n\n"), Ok(json!("\n a\nb ")));
        assert_eq!(OutputFormat::Raw.parse("a\n"), Ok(json!("a\n")));
        assert_eq!(OutputFormat::Json.parse(" {\"a\": 1}\n"), Ok(json!({"a": 1})));
        assert_eq!(OutputFormat::Jsonl.parse("1\n\n[2]\n"), Ok(json!([1, [2]])));
        let error = OutputFormat::Json.parse("none").expect_err("not JSON");
        assert_eq!(error.kind, crate::failure::FailureKind::OutputFormat);
    }
}
