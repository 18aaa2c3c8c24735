//! One agent's turns as the journal tells them: what it was started for, what it asked, what it got.
//!
//! Pure. Owns the payloads of the `agent.*`, `turn.*`, `model.*` and `tool.*` events.

pub mod content;

use serde::{Deserialize, Serialize};

use crate::context::provider::server::ContextReport;
use crate::failure::Failure;
use crate::id::{AgentId, CallKey, Name};
use crate::message::{Json, StopReason, Usage, UsageSource};
use crate::output::{Output, Stored};

/// What a repeated call would do to the world; decides what happens after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Nothing: it may be run again.
    Pure,
    /// The target honours the call's key: it may be run again with the same key.
    Keyed,
    /// Whether it has happened can be seen from the target.
    Checked,
    /// It must not be repeated blindly.
    Once,
}

impl Effect {
    /// Whether a call that was cut short is simply made again.
    #[must_use]
    pub fn is_repeatable(self) -> bool {
        match self {
            Self::Pure | Self::Keyed => true,
            Self::Checked | Self::Once => false,
        }
    }
}

/// What an agent at work does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// It talks with a model.
    Model {
        /// The agent definition.
        agent: Name,
        /// Its first user message.
        prompt: String,
    },
    /// It runs one command.
    Command {
        /// The command line for `sh -c`.
        run: String,
        /// Environment variables, rendered.
        env: std::collections::BTreeMap<String, String>,
    },
}

/// `agent.spawned`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSpawned {
    /// What it does.
    pub program: Program,
    /// Its delegation depth; a task's main agent is at 0.
    pub depth: u32,
    /// The agent that delegated to it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentId>,
    /// The parent's call that asked for it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallKey>,
}

/// `agent.restarted`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRestarted {
    /// How often by now, from 1.
    pub restart: u32,
    /// What the crash said.
    pub reason: String,
}

/// How an agent ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    /// With an answer.
    Completed {
        /// The answer.
        output: Output,
    },
    /// With a failure.
    Failed {
        /// Why.
        failure: Failure,
        /// What it had said by then, if anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial: Option<Output>,
    },
    /// It was cancelled.
    Cancelled {
        /// Why.
        reason: String,
    },
}

/// `agent.ended`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEnded {
    /// How.
    pub outcome: Outcome,
    /// Its model calls that gave a reply.
    pub turns: u32,
    /// Its own tokens, children not included.
    pub usage: Usage,
}

/// `turn.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// Which turn of the agent, from 1; never restarts within one agent.
    pub turn: u32,
    /// A user message in Anthropic form that joins the conversation first, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Json>,
}

/// `model.requested`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRequested {
    /// The turn it belongs to.
    pub turn: u32,
    /// The model's name in the configuration.
    pub model: Name,
    /// Messages in the view.
    pub messages: usize,
    /// Bytes of the request body's messages.
    pub bytes: usize,
    /// Tokens of the system prompt and the tools, by estimate.
    #[serde(default)]
    pub head_tokens: u64,
    /// The tokens that the whole request is expected to hold, by the agent's measure.
    #[serde(default)]
    pub expected_tokens: u64,
}

/// `model.responded`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelResponded {
    /// The turn it belongs to.
    pub turn: u32,
    /// The model's name in the configuration.
    pub model: Name,
    /// The assistant message in Anthropic block form.
    pub message: Json,
    /// Why the model stopped.
    pub stop: StopReason,
    /// Tokens of this call.
    pub usage: Usage,
    /// Where its input is known from.
    #[serde(default, skip_serializing_if = "UsageSource::is_reported")]
    pub usage_source: UsageSource,
    /// What it cost; absent when the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// What the provider told of the context.
    #[serde(default, skip_serializing_if = "ContextReport::is_empty")]
    pub context: ContextReport,
}

/// `model.failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// The turn it belongs to.
    pub turn: u32,
    /// Which attempt of the call failed, from 1.
    pub attempt: u32,
    /// Why.
    pub failure: Failure,
    /// The pause before the next attempt in milliseconds; absent when none follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// The tokens of the request, where the refusal named them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// The tokens of the model's window, where the refusal named them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u64>,
}

/// `tool.intended`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolIntended {
    /// The call's idempotency key.
    pub key: CallKey,
    /// The turn it belongs to.
    pub turn: u32,
    /// Its place in the turn, from 0.
    pub index: u32,
    /// The id of the call: the provider's, or another one where that repeats an earlier one.
    pub id: String,
    /// The tool, as the model wrote it.
    pub name: String,
    /// The arguments, as the model wrote them.
    pub input: Json,
    /// What a repeated call would do.
    pub effect: Effect,
}

/// `tool.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The call.
    pub key: CallKey,
    /// The process group that it runs in, if it has one: the number of its leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pgid: Option<i32>,
    /// When that leader started, in clock ticks since the machine did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starttime: Option<u64>,
    /// What it will change, if that can be told before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<FileChange>,
}

impl ToolStarted {
    /// The process group that it runs in.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        Some(Process { pgid: self.pgid?, starttime: self.starttime? })
    }
}

/// A process group, told from a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The number of the group and of its leader.
    pub pgid: i32,
    /// When the leader started, in clock ticks since the machine did.
    pub starttime: u64,
}

/// What a call changes, by which one can see later whether it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The file, as the model named it.
    pub path: String,
    /// blake3 of its content before, in hexadecimal; absent when there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre: Option<String>,
    /// blake3 of its content after.
    pub post: String,
    /// What the model is told when it is done.
    pub answer: String,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    /// It did its work.
    Ok,
    /// It failed, and the model is told why.
    Error,
    /// It was interrupted; it may have taken effect.
    Unknown,
}

/// Where a tool result comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultSource {
    /// The call was run.
    Live,
    /// The call had finished before a crash and its spooled result was found.
    Spool,
    /// The result was made up to repair an interrupted call.
    Recovered,
    /// The call was run and gave what the view shows already; the result refers to that.
    Unchanged,
}

/// `tool.finished`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFinished {
    /// The call.
    pub key: CallKey,
    /// The turn it belongs to.
    pub turn: u32,
    /// Its place in the turn, from 0.
    pub index: u32,
    /// The tool, as the model wrote it.
    pub name: String,
    /// How it ended.
    pub status: ToolStatus,
    /// Where the result comes from.
    pub source: ResultSource,
    /// The `tool_result` block in Anthropic form, as the model reads it.
    pub block: Json,
    /// The stored whole, when the block holds a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
    /// The exit code of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Whether it was cancelled while it was at work, and ended by itself then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told_to_end: bool,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}
