//! Settings of a run in the form the program needs: agents, models, tasks and limits.
//!
//! Made once from the configuration and never changed while the run lasts. Holds values only:
//! no defaults are looked up here and nothing is read from the environment.

pub mod capability;
pub mod sandbox;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::capability::Declared;
use self::sandbox::Confinement;
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::message::Usage;
use crate::permission::Permissions;
use crate::policy::{RestartPolicy, RetryPolicy};

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
    /// Capabilities of the model's provider, or the wish to ask the provider for them.
    pub capabilities: Declared,
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

/// Prices of a model's tokens, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Price of uncached input.
    pub input: f64,
    /// Price of output.
    pub output: f64,
    /// Price of input that is read from the provider's cache.
    pub cache_read: f64,
    /// Price of input that is written to the provider's cache.
    pub cache_write: f64,
}

impl Price {
    /// Returns the prices in units of the input price, or `None` if the input costs nothing.
    #[must_use]
    pub fn relative(&self) -> Option<RelativePrice> {
        (self.input > 0.0).then(|| RelativePrice {
            write: self.cache_write / self.input,
            read: self.cache_read / self.input,
            output: self.output / self.input,
        })
    }

    /// Returns the cost of `usage` in US dollars.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn cost(&self, usage: &Usage) -> f64 {
        (usage.input as f64 * self.input
            + usage.output as f64 * self.output
            + usage.cache_read as f64 * self.cache_read
            + usage.cache_write as f64 * self.cache_write)
            / 1e6
    }
}

/// Prices relative to one uncached input token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelativePrice {
    /// Price of an input token that is written to the cache.
    pub write: f64,
    /// Price of an input token that is read from the cache.
    pub read: f64,
    /// Price of an output token.
    pub output: f64,
}

impl Default for RelativePrice {
    /// Returns the ratios that Anthropic publishes for a cache of five minutes.
    fn default() -> Self {
        Self { write: 1.25, read: 0.1, output: 5.0 }
    }
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
        }
    }
}

/// The work of a task: a prompt for an agent, or a shell command.
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
}

/// The form in which templates see a task's output text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    /// The text as it is.
    #[default]
    Text,
    /// The text parsed as one JSON document.
    Json,
    /// The text parsed as a list of JSON documents, one a line; blank lines are skipped.
    Jsonl,
}

impl OutputFormat {
    /// Converts an output's text to the value that templates see.
    ///
    /// # Errors
    /// Returns a failure of the kind `output_format` if the text does not have this form.
    pub fn parse(self, text: &str) -> Result<Value, Failure> {
        let bad = |error: serde_json::Error| {
            let message = format!("the output is not valid JSON: {error}");
            Failure::new(FailureKind::OutputFormat, message)
        };
        match self {
            Self::Text => Ok(Value::String(text.to_owned())),
            Self::Json => serde_json::from_str(text.trim()).map_err(bad),
            Self::Jsonl => {
                let lines = text.lines().filter(|line| !line.trim().is_empty());
                let values = lines.map(|line| serde_json::from_str::<Value>(line).map_err(bad));
                values.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
        }
    }
}

/// The rule that decides, from how a task's dependencies ended, whether the task may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// Every dependency completed (or was skipped by its own `when`).
    #[default]
    AllSuccess,
    /// Every dependency has ended, whatever its state.
    AllDone,
    /// Every dependency has ended and at least one completed.
    AnySuccess,
    /// Every dependency has ended and none failed.
    NoneFailed,
}

/// The consequence of a failure of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The task fails, and the tasks that depend on it are skipped unless their `join` allows it.
    #[default]
    Fail,
    /// If the provider caused the failure and it may heal, the task waits. When nothing else is
    /// left to do, the run pauses, and the task begins again when the run is resumed.
    Pause,
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
    /// The consequence of the failure of the last attempt.
    pub on_failure: OnFailure,
    /// The form in which templates see the task's output.
    pub output: OutputFormat,
    /// Template of the path of a workspace file to which the output is also written.
    pub output_file: Option<String>,
    /// Environment variables of a command; the values are templates.
    pub env: BTreeMap<String, String>,
    /// What the task's command and agents are kept from, beside what the run is kept from.
    #[serde(default)]
    pub confinement: Confinement,
}

impl TaskSpec {
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
            on_failure: OnFailure::default(),
            output: OutputFormat::default(),
            output_file: None,
            env: BTreeMap::new(),
            confinement: Confinement::default(),
        }
    }
}

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
    /// The longest time that the run may be open.
    pub timeout: Option<Duration>,
    /// True if the first failure stops new tasks from starting.
    pub fail_fast: bool,
    /// True if the first failure also cancels the tasks that are at work.
    pub cancel_running: bool,
    /// True if a run in which anything was left undone counts as completed only in part.
    pub strict: bool,
    /// Time that a cancelled tool has to end before its process group is killed.
    pub grace_period: Duration,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outputs_are_read_by_their_form() {
        assert_eq!(OutputFormat::Text.parse("{"), Ok(json!("{")));
        assert_eq!(OutputFormat::Json.parse(" {\"a\": 1}\n"), Ok(json!({"a": 1})));
        assert_eq!(OutputFormat::Jsonl.parse("1\n\n[2]\n"), Ok(json!([1, [2]])));
        let error = OutputFormat::Json.parse("none").expect_err("not JSON");
        assert_eq!(error.kind, FailureKind::OutputFormat);
    }
}
