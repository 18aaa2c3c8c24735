//! What an outcome is in one word, and what is left of an agent that ended without an answer.

use super::Outcome;
use crate::failure::FailureClass;
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
            Self::Failed { failure, .. } => match failure.kind.class() {
                FailureClass::Limit | FailureClass::Time => "partial",
                FailureClass::Crash => "crashed",
                FailureClass::Denied => "denied",
                FailureClass::Provider
                | FailureClass::Request
                | FailureClass::Bug
                | FailureClass::Work => "failed",
            },
        }
    }
}
