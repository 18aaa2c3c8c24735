//! The payloads of the events by which a run, or a part of it, stops for a time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::budget::Scope;

/// Payload of `run.paused`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunPaused {
    /// The reason, for people.
    pub reason: String,
    /// The cause: it tells what must change before the run can resume.
    #[serde(default)]
    pub cause: PauseCause,
}

/// The cause of a stop before the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseCause {
    /// The run was asked to stop: a later process resumes it.
    #[default]
    Interrupted,
    /// The disk is full: the process that holds the run waits and resumes it by itself.
    DiskFull,
    /// Tasks failed and wait for the cause to be mended: a later process resumes the run.
    Failure,
    /// Nothing is left to do but what waits for a person: a later process resumes the run.
    Person,
    /// The quota of a provider is used up: the process that holds the run waits for the reset and resumes
    /// it by itself.
    Quota,
}

impl PauseCause {
    /// Returns true if the process that holds the run waits and resumes it.
    #[must_use]
    pub fn ends_by_itself(self) -> bool {
        matches!(self, Self::DiskFull | Self::Quota)
    }
}

/// Payload of `scope.paused`: the agents of a part of the run make no more calls of models, and its tasks do not
/// start, until a person lets them go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScopePaused {
    /// The part of the run.
    pub scope: Scope,
    /// Why, in the words of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who paused it, as `user@host/pid`.
    pub by: String,
}

impl ScopePaused {
    /// Returns what happened in words: what is paused, by whom and why.
    #[must_use]
    pub fn words(&self) -> String {
        let why = self.reason.as_ref().map(|why| format!(": {why}"));
        format!("{} paused by {}{}", self.scope.words(), self.by, why.unwrap_or_default())
    }
}

/// Payload of `scope.unpaused`: a part of the run that was paused goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScopeUnpaused {
    /// The part of the run.
    pub scope: Scope,
    /// Who lets it go on, as `user@host/pid`.
    pub by: String,
}
