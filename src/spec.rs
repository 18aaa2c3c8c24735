//! What a run is made of, as the program needs it: agents, models, tasks and limits.
//!
//! Made once from the configuration and never changed while the run lasts. Holds values only:
//! no defaults are looked up here and nothing is read from the environment.

pub mod capability;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::capability::Declared;
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::message::Usage;
use crate::permission::Permissions;
use crate::policy::{RestartPolicy, RetryPolicy};

/// A model as an agent sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// Its name in the configuration.
    pub name: Name,
    /// The provider that serves it.
    pub provider: Name,
    /// The provider's name for it.
    pub model: String,
    /// The size of its context window in tokens, input and output together.
    pub context_window: u64,
    /// The most tokens one reply may have.
    pub max_output_tokens: u64,
    /// Sampling temperature, if it is to be sent.
    pub temperature: Option<f64>,
    /// Nucleus sampling, if it is to be sent.
    pub top_p: Option<f64>,
    /// `reasoning_effort` of OpenAI-compatible servers, if it is to be sent.
    pub reasoning_effort: Option<String>,
    /// A sampling seed, if it is to be sent.
    pub seed: Option<u64>,
    /// What its tokens cost; absent when the configuration gives no price.
    pub price: Option<Price>,
    /// How long its thinking stays valid.
    #[serde(default)]
    pub thinking: Thinking,
    /// What its provider can do with a context by itself.
    pub capabilities: Declared,
}

/// How long the thinking that a model returns stays valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    /// While nothing before it changes; after an edit it is left out.
    #[default]
    Bound,
    /// Always.
    Free,
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Uncached input.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Input read from the cache.
    pub cache_read: f64,
    /// Input written to the cache.
    pub cache_write: f64,
}

impl Price {
    /// The prices in units of the input price; `None` for a model whose input costs nothing.
    #[must_use]
    pub fn relative(&self) -> Option<RelativePrice> {
        (self.input > 0.0).then(|| RelativePrice {
            write: self.cache_write / self.input,
            read: self.cache_read / self.input,
            output: self.output / self.input,
        })
    }

    /// The cost of `usage` in US dollars.
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
    /// An input token that is written to the cache.
    pub write: f64,
    /// An input token that is read from the cache.
    pub read: f64,
    /// An output token.
    pub output: f64,
}

impl Default for RelativePrice {
    /// The ratios that Anthropic publishes for a cache of five minutes.
    fn default() -> Self {
        Self { write: 1.25, read: 0.1, output: 5.0 }
    }
}

/// An agent definition: what every agent started from it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentSpec {
    /// Its name in the configuration.
    pub name: Name,
    /// What it is good for, shown to agents that may delegate to it.
    pub description: String,
    /// The model it calls, by name.
    pub model: Name,
    /// Its system prompt.
    pub instructions: String,
    /// The tools it may call, by name, sorted.
    pub tools: Vec<Name>,
    /// The agents it may delegate to, sorted; empty: nobody.
    pub sub_agents: Vec<Name>,
    /// The most model calls it may make.
    pub max_turns: u32,
    /// What its tools may do.
    pub permissions: Permissions,
    /// What happens when it crashes.
    pub restart: RestartPolicy,
    /// Skill folders it may load, by name.
    pub skills: Vec<String>,
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Gives an agent a prompt.
    Agent {
        /// The agent definition.
        agent: Name,
        /// A template: the prompt.
        prompt: String,
    },
    /// Runs a shell command in the workspace root.
    Command {
        /// The command line, handed to `sh -c` unchanged.
        run: String,
    },
}

/// How a task's output text is bound for templates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    /// As it is.
    #[default]
    Text,
    /// Parsed as one JSON document.
    Json,
    /// Parsed as JSON, one document a line.
    Jsonl,
}

impl OutputFormat {
    /// Reads the value of an output's text for templates.
    ///
    /// # Errors
    /// A failure of the kind `output_format` when the text does not have the form.
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

/// When a task may start, given how its dependencies ended.
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

/// A task of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its name.
    pub name: Name,
    /// What it does.
    pub work: Work,
    /// The tasks that must end before it starts.
    pub depends_on: Vec<Name>,
    /// How their ends decide.
    pub join: Join,
    /// An expression: false skips the task, which then counts as done.
    pub when: Option<String>,
    /// The longest one attempt may take, in time for which the run is open.
    pub timeout: Option<Duration>,
    /// How often a failed attempt is made again, and when.
    pub retry: RetryPolicy,
    /// How its output is bound.
    pub output: OutputFormat,
    /// A template: the workspace file that the output is also written to.
    pub output_file: Option<String>,
    /// Templates: environment variables of a command.
    pub env: BTreeMap<String, String>,
}

/// The whole-run ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Tasks and children at work at once.
    pub max_concurrency: usize,
    /// Delegation depth; a task's main agent is at depth 0.
    pub max_depth: u32,
    /// Delegated children at work at once.
    pub max_children: usize,
    /// Children, and children of children, over the whole run.
    pub max_descendants: usize,
    /// The longest the run may be open.
    pub timeout: Option<Duration>,
    /// Whether the first failure stops new tasks from starting.
    pub fail_fast: bool,
    /// Whether it also cancels what is at work.
    pub cancel_running: bool,
    /// How long a cancelled tool may take to end before its process group is killed.
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
