//! Records of one agent's turns: the program that it runs, its calls of models and tools, and their
//! results.
//!
//! Pure. Owns the payloads of the `agent.*`, `turn.*`, `model.*` and `tool.*` events; `question` those of
//! `approval.*`.

mod circles;
pub mod content;
pub mod files;
mod outcome;
pub mod question;
mod round;
mod shortfalls;
mod spawned;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Spent;
use crate::context::provider::server::ContextReport;
use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::id::{CallKey, Name};
use crate::message::{Json, StopReason, Usage, UsageSource};
use crate::output::{Output, Printed, Stored, Text};
use crate::spec::Capture;
use crate::spec::run_by_others::ChangedForOthers;
use crate::spending::Rest;

pub use self::circles::{Circle, LoopBroken, LoopHeld, LoopNoticed, LoopRule, Prints};
pub use self::files::{FileChange, FileUse};
pub use self::question::{ApprovalAnswered, ApprovalAsked, ApprovalKind};
pub use self::round::{Cause, CheckPlace, Feedback};
pub use self::shortfalls::Shortfalls;
pub use self::spawned::AgentSpawned;
pub use crate::tool_spec::Effect;

/// Program of an agent: the work that it was started for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A conversation with a model.
    Model {
        /// The agent definition.
        agent: Name,
        /// First user message.
        prompt: Text,
    },
    /// One command.
    Command(Command),
}

/// The words before the command line of a task: what reads it.
pub const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// The command of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// The command line for `sh -c`.
    pub run: String,
    /// Environment variables, rendered.
    pub env: BTreeMap<String, String>,
    /// The text for its standard input; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Text>,
    /// The folder in which it runs, relative to the workspace; absent for the workspace root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Which streams are its output.
    #[serde(default, skip_serializing_if = "Capture::is_usual")]
    pub capture: Capture,
    /// True if it may simply run again after it was interrupted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
}

impl Program {
    /// Returns the texts of the program that may be long.
    pub fn texts(&self) -> impl Iterator<Item = &Text> {
        let text = match self {
            Self::Model { prompt, .. } => Some(prompt),
            Self::Command(command) => command.stdin.as_ref(),
        };
        text.into_iter()
    }

    /// Does the same, for changes.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        let text = match self {
            Self::Model { prompt, .. } => Some(prompt),
            Self::Command(command) => command.stdin.as_mut(),
        };
        text.into_iter()
    }
}

/// `agent.restarted`: the agent continues from its records, after a crash, or after its end if its
/// task is retried or has a further round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRestarted {
    /// Number of this restart, from 1; for a round, the number of the restarts before it.
    pub restart: u32,
    /// Message of the crash, or the reason for the retry or the round.
    pub reason: String,
    /// The message with which a round begins, if the restart begins one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<Feedback>,
    /// The call of the parent that lets a child go on, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedAgain>,
}

/// The call that lets a child go on which had ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskedAgain {
    /// The call of the parent.
    pub call: CallKey,
    /// True if the parent does not wait for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

impl AgentRestarted {
    /// Creates the record of a restart that no call of a parent asked for.
    #[must_use]
    pub fn new(restart: u32, reason: impl Into<String>, feedback: Option<Feedback>) -> Self {
        Self { restart, reason: reason.into(), feedback, asked: None }
    }
}

/// Outcome of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    /// It ended with an answer.
    Completed {
        /// The answer.
        output: Output,
    },
    /// It ended with a failure.
    Failed {
        /// The failure.
        failure: Failure,
        /// Text that the agent had written by then, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial: Option<Output>,
    },
    /// It was cancelled.
    Cancelled {
        /// Reason of the cancellation.
        reason: String,
    },
}

impl Outcome {
    /// Returns it as the parent of a child reads it: a word, the text, and the failure in words.
    #[must_use]
    pub fn as_of_child(&self) -> (&'static str, Option<&Output>, Option<String>) {
        match self {
            Self::Completed { output } => ("completed", Some(output), None),
            Self::Failed { failure, partial } => {
                ("failed", partial.as_ref(), Some(failure.to_string()))
            }
            Self::Cancelled { reason } => ("cancelled", None, Some(reason.clone())),
        }
    }

    /// Returns true if the agent's conversation can continue from its end.
    #[must_use]
    pub fn can_continue(&self) -> bool {
        match self {
            Self::Completed { .. } => false,
            Self::Failed { failure, .. } => failure.kind.keeps_conversation(),
            Self::Cancelled { .. } => true,
        }
    }
}

/// `agent.ended`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentEnded {
    /// Outcome of the agent.
    pub outcome: Outcome,
    /// Number of its model calls that gave a reply.
    pub turns: u32,
    /// Tokens of the agent itself, without its child agents.
    pub usage: Usage,
    /// Its calls that did not do what it asked for.
    #[serde(default, skip_serializing_if = "Shortfalls::is_empty")]
    pub shortfalls: Shortfalls,
    /// The files that other programs run and that changed since the end of the last agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_by_others: Vec<ChangedForOthers>,
    /// True if the workspace held more than is looked at, so that more may have changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub run_by_others_incomplete: bool,
}

/// `turn.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnStarted {
    /// Number of the turn within the agent, from 1; it never starts again at 1.
    pub turn: u32,
    /// User message in Anthropic form that joins the conversation first, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Json>,
    /// True if the agent has used up its turns or goes in circles: its reply hands over what there is, and is
    /// no answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hand_over: bool,
    /// The failure with which the agent ends after a hand-over, if it is not that its turns are used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_for: Option<Failure>,
    /// True if the agent goes in circles and may call no tool in this turn: its reply is no answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

impl TurnStarted {
    /// Creates the record of a turn that is not a hand-over.
    #[must_use]
    pub fn new(turn: u32, message: Option<Json>) -> Self {
        Self { turn, message, hand_over: false, ends_for: None, held: false }
    }
}

/// `model.requested`: announces one request, before it leaves. What follows it settles it: a reply, or a
/// failure, which a call that was cut is too. A request that no record settles was lost with its process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRequested {
    /// Turn of the call.
    pub turn: u32,
    /// Number of the request within the turn, from 1. Each one that may have been sent counts: another
    /// attempt, one to another model, and one that a later process makes again. A request with the number of
    /// the one before stands in its place: that one was not sent.
    #[serde(default = "first_attempt")]
    pub attempt: u32,
    /// The model's name in the configuration.
    pub model: Name,
    /// The agent's own model, if the other stands in for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_in_for: Option<Name>,
    /// Number of messages in the view.
    pub messages: usize,
    /// Size of the request body's messages in bytes.
    pub bytes: usize,
    /// Estimated tokens of the system prompt and the tools.
    #[serde(default)]
    pub head_tokens: u64,
    /// Tokens that the whole request is expected to hold, by the agent's measure.
    #[serde(default)]
    pub expected_tokens: u64,
    /// The most tokens that the call can use: input as the provider counted it for what it has read before, with a
    /// token for each byte that is new, and a reply as long as it may be.
    #[serde(default)]
    pub most_tokens: u64,
    /// The most that the call can cost, in US dollars: all of them at the dearest class of input; absent if the
    /// model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_usd: Option<f64>,
}

fn first_attempt() -> u32 {
    1
}

/// `model.responded`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelResponded {
    /// Turn of the call.
    pub turn: u32,
    /// The model's name in the configuration.
    pub model: Name,
    /// The assistant message in Anthropic block form.
    pub message: Json,
    /// Reason why the model stopped.
    pub stop: StopReason,
    /// Tokens of this call.
    pub usage: Usage,
    /// Source of the number of input tokens.
    #[serde(default, skip_serializing_if = "UsageSource::is_reported")]
    pub usage_source: UsageSource,
    /// Cost of the call in US dollars; absent if the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The most that the call may have cost beyond that, if the provider did not count its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Rest>,
    /// The provider's report on its work on the context.
    #[serde(default, skip_serializing_if = "ContextReport::is_empty")]
    pub context: ContextReport,
    /// The text that the reply repeated over and over, as a fingerprint, if the call was cut because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Fingerprint>,
}

/// `model.failed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFailed {
    /// Turn of the call.
    pub turn: u32,
    /// Number of the attempt that failed, from 1.
    pub attempt: u32,
    /// The failure.
    pub failure: Failure,
    /// Pause before the next attempt in milliseconds; absent if none follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// The model that the next attempt calls, if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_model: Option<Name>,
    /// Tokens of the request, if the refusal named them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Tokens of the model's window, if the refusal named them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u64>,
    /// Tokens and price of the part of the reply that had arrived, if any had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
    /// Source of the number of input tokens in `spent`.
    #[serde(default, skip_serializing_if = "UsageSource::is_reported")]
    pub usage_source: UsageSource,
    /// The most that the attempt may have cost beyond that, if nobody knows: it was cut, or its connection broke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Rest>,
    /// True if callsheet cut the call, because its agent had to end or its run to stop. An agent that goes on
    /// makes the call again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// `tool.intended`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolIntended {
    /// Idempotency key of the call.
    pub key: CallKey,
    /// Turn of the call.
    pub turn: u32,
    /// Place of the call in the turn, from 0.
    pub index: u32,
    /// Id of the call: the provider's, or a new one if the provider repeated an earlier one.
    pub id: String,
    /// Name of the tool, as the model wrote it.
    pub name: String,
    /// Arguments, as the model wrote them.
    pub input: Json,
    /// Effect that a repeated call would have.
    pub effect: Effect,
}

/// `tool.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolStarted {
    /// Key of the call.
    pub key: CallKey,
    /// Process group of the call, if it has one: the number of its leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pgid: Option<i32>,
    /// Start time of that leader, in clock ticks since the machine started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starttime: Option<u64>,
    /// Change that the call will make, if it is known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<FileChange>,
}

impl ToolStarted {
    /// Returns the process group of the call, if both of its numbers are recorded.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        Some(Process { pgid: self.pgid?, starttime: self.starttime? })
    }
}

/// A process group. The start time tells it from a later group with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Number of the group and of its leader.
    pub pgid: i32,
    /// Start time of the leader, in clock ticks since the machine started.
    pub starttime: u64,
}

/// Status of a tool call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    /// The call did its work.
    Ok,
    /// The call failed, and the model reads the reason.
    Error,
    /// The call was interrupted; it may have taken effect.
    Unknown,
}

/// Source of a tool result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResultSource {
    /// The call was run.
    Live,
    /// The call had finished before a crash, and the spool held its result.
    Spool,
    /// callsheet wrote the result, because the call was interrupted and has none of its own.
    Recovered,
    /// The call was run and returned what the view shows already; the result refers to that.
    Unchanged,
}

/// `tool.finished`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFinished {
    /// Key of the call.
    pub key: CallKey,
    /// Turn of the call.
    pub turn: u32,
    /// Place of the call in the turn, from 0.
    pub index: u32,
    /// Name of the tool, as the model wrote it.
    pub name: String,
    /// Status of the call.
    pub status: ToolStatus,
    /// Source of the result.
    pub source: ResultSource,
    /// The `tool_result` block in Anthropic form, as the model reads it.
    pub block: Json,
    /// Stored result that holds the whole output, if the block holds a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
    /// What its command printed, where the block does not hold exactly that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<Box<Printed>>,
    /// Exit code of the process, if the call had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if the call was cancelled while it was at work, and its process ended by itself then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told_to_end: bool,
    /// True if a permission rule or a person forbade the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
    /// True if a limit of the run refused the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// True if the agent fails because nobody knows the outcome of the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fails_agent: bool,
    /// Fingerprints of the call and its result, by which loops are noticed; absent if its agent is not
    /// watched for them, or the call waits for something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prints: Option<Prints>,
    /// The file that the call read or changed, if its tool works on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Box<FileUse>>,
    /// Duration of the call in milliseconds.
    pub took_ms: u64,
}

impl ToolFinished {
    /// Makes the record of a call of this process that has nothing beside its result.
    #[must_use]
    pub fn new(
        key: CallKey,
        turn: u32,
        index: u32,
        name: impl Into<String>,
        status: ToolStatus,
        block: Json,
    ) -> Self {
        Self {
            key,
            turn,
            index,
            name: name.into(),
            status,
            source: ResultSource::Live,
            block,
            stored: None,
            printed: None,
            exit_code: None,
            told_to_end: false,
            denied: false,
            refused: false,
            fails_agent: false,
            prints: None,
            file: None,
            took_ms: 0,
        }
    }
}
