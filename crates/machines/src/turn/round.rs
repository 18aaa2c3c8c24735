//! Rounds: an agent that has ended is asked again, because its answer was not accepted or because its
//! work is repeated; and the place of a check among them.
//!
//! Pure. Owns the parts of `agent.restarted` and `agent.spawned` that tell of rounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::FailureKind;

/// The cause of a round after the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The answer did not have the form of the output.
    Format,
    /// The answer did not fit the schema.
    Schema,
    /// The answer did not pass a check.
    Check,
    /// The condition of the loop did not hold.
    Until,
    /// The parent of a child has another job for it.
    Parent,
}

impl Cause {
    /// Returns the kind of failure of an attempt that may have no further round.
    #[must_use]
    pub fn kind(self) -> FailureKind {
        match self {
            Self::Format => FailureKind::OutputFormat,
            Self::Schema => FailureKind::OutputSchema,
            Self::Check => FailureKind::CheckFailed,
            Self::Until => FailureKind::MaxIterations,
            // No attempt begins by it.
            Self::Parent => FailureKind::Internal,
        }
    }

    /// Returns the cause in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Format => "the answer had the wrong form",
            Self::Schema => "the answer did not fit the schema",
            Self::Check => "a check failed",
            Self::Until => "`until` did not hold",
            Self::Parent => "its parent has another job for it",
        }
    }
}

/// The message with which a round begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Feedback {
    /// The cause of the round.
    pub cause: Cause,
    /// The user message to the agent. A command gets none.
    pub text: String,
}

/// The place of a check: the round of its parent whose answer it judges, and its number among the
/// checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckPlace {
    /// Number of the round, from 1.
    pub round: u32,
    /// Number of the check, from 0.
    pub index: u32,
}
