//! Failures: the recorded reasons why a task, an agent or a call did not succeed.
//!
//! A failure is data, never a text that another task could mistake for an answer. Owns the closed
//! list of kinds; `exit` decides which exit code a kind leads to.

use serde::{Deserialize, Serialize};

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// A command ended with an exit code other than zero.
    CommandFailed,
    /// A command was interrupted, so its effect is unknown. It is retried only if `retry_on` names
    /// this kind.
    Interrupted,
    /// A tool failed in a way that no result can express.
    ToolError,
    /// A permission rule forbade the work.
    PermissionDenied,
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
    /// The kinds of failure that may pass with time and are retried by default.
    pub const TRANSIENT: [Self; 6] = [
        Self::RateLimit,
        Self::Overloaded,
        Self::Timeout,
        Self::IdleTimeout,
        Self::Connection,
        Self::ServerError,
    ];

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
            Self::Auth => "auth",
            Self::InvalidRequest => "invalid_request",
            Self::ContextOverflow => "context_overflow",
            Self::RequestTooLarge => "request_too_large",
            Self::Refusal => "refusal",
            Self::EmptyAnswer => "empty_answer",
            Self::OutputTruncated => "output_truncated",
            Self::OutputFormat => "output_format",
            Self::CommandFailed => "command_failed",
            Self::Interrupted => "interrupted",
            Self::ToolError => "tool_error",
            Self::PermissionDenied => "permission_denied",
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// Description for a person: a lower-case fragment without a full stop.
    pub message: String,
}

impl Failure {
    /// Creates a failure.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}
