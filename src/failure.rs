//! Failures: the recorded reasons why a task, an agent or a call did not succeed.
//!
//! A failure is data, never a text that another task could mistake for an answer. Owns the closed
//! list of kinds; `exit` decides which exit code a kind leads to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The provider asked for fewer requests (HTTP 429).
    RateLimit,
    /// The provider has no capacity (HTTP 529).
    Overloaded,
    /// The time limit of a task or of the run passed.
    Timeout,
    /// No data arrived from the provider for too long.
    IdleTimeout,
    /// The provider could not be reached or the connection broke.
    Connection,
    /// The provider reported an error of its own (HTTP 5xx).
    ServerError,
    /// The provider refused the API key.
    Auth,
    /// The quota or the credit of the account is used up.
    Quota,
    /// The provider refused the request as invalid.
    InvalidRequest,
    /// The request does not fit the context window.
    ContextOverflow,
    /// The request does not fit the provider's byte limit.
    RequestTooLarge,
    /// The model refused to answer.
    Refusal,
    /// The model's answer was empty.
    EmptyAnswer,
    /// The answer was cut at the output limit and could not be continued.
    OutputTruncated,
    /// The answer does not have the form that the task's `output` asks for.
    OutputFormat,
    /// The answer does not fit the task's output schema.
    OutputSchema,
    /// A check of the answer failed, and the agent could not mend it within its rounds.
    CheckFailed,
    /// The loop of a task reached its last round and its condition still does not hold.
    MaxIterations,
    /// A person rejected what the task asked for.
    Rejected,
    /// The list of a fan-out, or a key of its items, cannot be used.
    BadItems,
    /// Fewer instances of a fan-out completed than the task needs.
    InstancesFailed,
    /// A command ended with an exit code other than zero.
    CommandFailed,
    /// A command was interrupted, so its effect is unknown. It is retried only if `retry_on` names
    /// this kind.
    Interrupted,
    /// A tool failed in a way that no result can express.
    ToolError,
    /// The agent gave up after calls of it had been denied.
    #[serde(alias = "permission_denied")]
    Denied,
    /// The agent said that it cannot do the work.
    GaveUp,
    /// The agent used up its turns.
    MaxTurns,
    /// A limit on delegation was reached.
    LimitReached,
    /// The agent crashed more often than its restart policy allows.
    Crashed,
    /// A template could not be rendered.
    Template,
    /// The work was cancelled.
    Cancelled,
    /// An error in callsheet itself.
    Internal,
}

impl FailureKind {
    /// Every kind, in the order of the declaration.
    pub const ALL: [Self; 32] = [
        Self::RateLimit,
        Self::Overloaded,
        Self::Timeout,
        Self::IdleTimeout,
        Self::Connection,
        Self::ServerError,
        Self::Auth,
        Self::Quota,
        Self::InvalidRequest,
        Self::ContextOverflow,
        Self::RequestTooLarge,
        Self::Refusal,
        Self::EmptyAnswer,
        Self::OutputTruncated,
        Self::OutputFormat,
        Self::OutputSchema,
        Self::CheckFailed,
        Self::MaxIterations,
        Self::Rejected,
        Self::BadItems,
        Self::InstancesFailed,
        Self::CommandFailed,
        Self::Interrupted,
        Self::ToolError,
        Self::Denied,
        Self::GaveUp,
        Self::MaxTurns,
        Self::LimitReached,
        Self::Crashed,
        Self::Template,
        Self::Cancelled,
        Self::Internal,
    ];

    /// The kinds of failure that may pass with time and are retried by default.
    pub const TRANSIENT: [Self; 6] = [
        Self::RateLimit,
        Self::Overloaded,
        Self::Timeout,
        Self::IdleTimeout,
        Self::Connection,
        Self::ServerError,
    ];

    /// Returns true if the provider caused the failure and a person or time can mend the cause.
    #[must_use]
    pub fn may_heal(self) -> bool {
        matches!(
            self,
            Self::RateLimit
                | Self::Overloaded
                | Self::IdleTimeout
                | Self::Connection
                | Self::ServerError
                | Self::Auth
                | Self::Quota
        )
    }

    /// Returns true if a conversation that ended with this failure is sound and can continue.
    #[must_use]
    pub fn keeps_conversation(self) -> bool {
        self.may_heal() || matches!(self, Self::Timeout | Self::EmptyAnswer | Self::Cancelled)
    }

    /// Returns the kind as it is written in records and in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::Connection => "connection",
            Self::ServerError => "server_error",
            Self::Quota => "quota",
            Self::Auth => "auth",
            Self::InvalidRequest => "invalid_request",
            Self::ContextOverflow => "context_overflow",
            Self::RequestTooLarge => "request_too_large",
            Self::Refusal => "refusal",
            Self::EmptyAnswer => "empty_answer",
            Self::OutputTruncated => "output_truncated",
            Self::OutputFormat => "output_format",
            Self::OutputSchema => "output_schema",
            Self::CheckFailed => "check_failed",
            Self::MaxIterations => "max_iterations",
            Self::Rejected => "rejected",
            Self::BadItems => "bad_items",
            Self::InstancesFailed => "instances_failed",
            Self::CommandFailed => "command_failed",
            Self::Interrupted => "interrupted",
            Self::ToolError => "tool_error",
            Self::Denied => "denied",
            Self::GaveUp => "gave_up",
            Self::MaxTurns => "max_turns",
            Self::LimitReached => "limit_reached",
            Self::Crashed => "crashed",
            Self::Template => "template",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The recorded reason why something failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// Description for a person: a lower-case fragment without a full stop.
    pub message: String,
    /// The end of the output of a command that failed: at most [`OUTPUT_LINES`] lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Exit code of the command that failed: 128 + n if signal n ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of attempts of the model call that ended with this failure, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

/// The most lines of a command's output in its failure: a compiler's or a test's last message fits.
pub const OUTPUT_LINES: usize = 20;

/// The most bytes of a command's output in its failure: 20 lines of 200 characters. Many failures
/// may stand in one record.
const OUTPUT_BYTES: usize = 4_000;

/// The exit codes of commands that were ended from outside: by SIGHUP, SIGINT, SIGKILL and SIGTERM.
const KILLED: [i32; 4] = [129, 130, 137, 143];

impl Failure {
    /// Creates a failure.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), output: None, exit_code: None, attempts: None }
    }

    /// Returns true if a model call has tried again until its own attempts were used up: to try the
    /// whole task again would only multiply them.
    #[must_use]
    pub fn was_tried_out(&self) -> bool {
        self.attempts.is_some_and(|attempts| attempts > 1)
    }

    /// Returns true if somebody else ended the command, such as the kernel for want of memory: it says nothing
    /// of its work. A program that crashed has ended itself.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        self.kind == FailureKind::CommandFailed
            && self.exit_code.is_some_and(|code| KILLED.contains(&code))
    }

    /// Adds the end of the output of the command that failed.
    #[must_use]
    pub fn with_output(self, output: &str) -> Self {
        let output = output.trim_end();
        let mut from = output.len().saturating_sub(OUTPUT_BYTES);
        while !output.is_char_boundary(from) {
            from += 1;
        }
        let lines = output[from..].rmatch_indices('\n').nth(OUTPUT_LINES - 1);
        let from = lines.map_or(from, |(at, _)| from + at + 1);
        Self { output: (from < output.len()).then(|| output[from..].to_owned()), ..self }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_the_end_of_an_output() {
        let kept =
            |output: &str| Failure::new(FailureKind::CommandFailed, "x").with_output(output).output;
        let lines = |range: std::ops::RangeInclusive<u32>| {
            range.map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n")
        };
        assert_eq!((kept(""), kept(" \n")), (None, None));
        assert_eq!(kept("one\n").as_deref(), Some("one"));
        assert_eq!(kept(&lines(1..=20)), Some(lines(1..=20)));
        assert_eq!(kept(&(lines(1..=50) + "\n\n")), Some(lines(31..=50)));
        // Cut between characters, not within one.
        let long = kept(&"é".repeat(OUTPUT_BYTES)).expect("an output");
        assert_eq!(long.len(), OUTPUT_BYTES);
        assert_eq!(
            kept(&("x".to_owned() + &"é".repeat(OUTPUT_BYTES))).map(|k| k.len()),
            Some(OUTPUT_BYTES)
        );
    }

    #[test]
    fn the_former_name_of_a_kind_is_read() {
        let read = |text: &str| serde_json::from_str::<FailureKind>(text).expect("a kind");
        assert_eq!(read("\"permission_denied\""), FailureKind::Denied);
        assert_eq!(read("\"denied\""), FailureKind::Denied);
    }
}
