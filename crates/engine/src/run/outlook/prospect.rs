//! The words of an outlook: what a resume does with a task, and why.

use serde::Serialize;

use crate::id::Name;

/// What a resume does with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Its result is kept, and nothing is paid for it.
    Reused,
    /// It waits for the answer of a person.
    Waits,
    /// It continues where its agents were stopped.
    GoesOn,
    /// It runs from its beginning.
    Runs,
    /// The output of another task decides.
    Depends,
    /// It fails: what it did is unknown and cannot be done again.
    Fails,
    /// It stays as it ended.
    Stays,
    /// It is no longer a task of the run.
    Removed,
}

impl Verdict {
    /// Returns the verdict in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::Waits => "waits",
            Self::GoesOn => "goes on",
            Self::Runs => "runs",
            Self::Depends => "depends",
            Self::Fails => "fails",
            Self::Stays => "stays",
            Self::Removed => "removed",
        }
    }
}

/// What a resume does with one task, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prospect {
    /// The task.
    pub task: Name,
    /// What the resume does with it.
    pub verdict: Verdict,
    /// The reason, for people.
    pub why: String,
}
