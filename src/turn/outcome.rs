//! What an outcome is in one word, and what is left of an agent that ended without an answer.

use super::Outcome;
use crate::failure::FailureKind;
use crate::output::Output;

impl Outcome {
    /// Returns the outcome with a partial text, if it is a failure without one.
    #[must_use]
    pub fn or_salvaged(self, salvaged: impl FnOnce() -> Option<Output>) -> Self {
        match self {
            Self::Failed { failure, partial: None } => {
                Self::Failed { failure, partial: salvaged() }
            }
            other => other,
        }
    }

    /// Returns the outcome in one word: `ok`, `partial` (a limit ended it), `failed`, `cancelled`,
    /// `crashed` or `denied`. Nothing partial is ever `ok`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "ok",
            Self::Cancelled { .. } => "cancelled",
            Self::Failed { failure, .. } => match failure.kind {
                FailureKind::MaxTurns
                | FailureKind::MaxIterations
                | FailureKind::LimitReached
                | FailureKind::Timeout => "partial",
                FailureKind::Crashed => "crashed",
                FailureKind::Denied | FailureKind::Rejected => "denied",
                FailureKind::RateLimit
                | FailureKind::Overloaded
                | FailureKind::IdleTimeout
                | FailureKind::Connection
                | FailureKind::ServerError
                | FailureKind::Auth
                | FailureKind::Quota
                | FailureKind::InvalidRequest
                | FailureKind::ContextOverflow
                | FailureKind::RequestTooLarge
                | FailureKind::Refusal
                | FailureKind::EmptyAnswer
                | FailureKind::OutputTruncated
                | FailureKind::OutputFormat
                | FailureKind::OutputSchema
                | FailureKind::CheckFailed
                | FailureKind::BadItems
                | FailureKind::InstancesFailed
                | FailureKind::CommandFailed
                | FailureKind::Interrupted
                | FailureKind::ToolError
                | FailureKind::GaveUp
                | FailureKind::Template
                | FailureKind::Cancelled
                | FailureKind::Internal => "failed",
            },
        }
    }
}
