//! Joins: the rules that decide, from how a task's dependencies ended, whether the task may start.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rule that decides, from how a task's dependencies ended, whether the task may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// Every dependency completed (or was skipped by its own `when`).
    #[default]
    AllSuccess,
    /// Every dependency has ended, whatever its state.
    AllDone,
    /// One dependency completed. The others may still be at work.
    AnySuccess,
    /// Every dependency has ended and none failed.
    NoneFailed,
    /// This many dependencies completed. The others may still be at work.
    AtLeast(u32),
}

impl Join {
    /// The words for the joins; the last one is followed by a number.
    pub const WORDS: [&str; 5] =
        ["all_success", "all_done", "any_success", "none_failed", "at_least:N"];

    /// Reads a join as the configuration writes it. Returns `None` if the text is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        Some(match text {
            "all_success" => Self::AllSuccess,
            "all_done" => Self::AllDone,
            "any_success" => Self::AnySuccess,
            "none_failed" => Self::NoneFailed,
            _ => Self::AtLeast(text.strip_prefix("at_least:")?.trim().parse().ok()?),
        })
    }

    /// Returns true for the join of a task that sets none.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the number of dependencies that must complete, if the join asks for a number.
    #[must_use]
    pub fn wanted(self) -> Option<usize> {
        match self {
            Self::AnySuccess => Some(1),
            Self::AtLeast(count) => Some(usize::try_from(count).unwrap_or(usize::MAX)),
            Self::AllSuccess | Self::AllDone | Self::NoneFailed => None,
        }
    }

    /// Returns true if a failed dependency need not keep the task from starting.
    #[must_use]
    pub fn accepts_failure(self) -> bool {
        self == Self::AllDone || self.wanted().is_some()
    }
}
