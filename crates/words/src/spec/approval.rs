//! Settings of a task that asks a person whether the plan may go on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A question to a person that a task asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Template of the question.
    pub message: String,
    /// Expressions whose values are shown with it.
    pub show: Vec<String>,
    /// The wall time after which the question answers itself; `None`: it waits for as long as it
    /// takes.
    pub timeout: Option<Duration>,
    /// The answer when that time is over.
    pub on_timeout: OnTimeout,
    /// The program, with its arguments, that is run when the question opens; empty for none.
    pub notify: Vec<String>,
}

/// The answer of a question whose time is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// It counts as rejected by a person.
    #[default]
    Reject,
    /// It counts as approved.
    Approve,
    /// The task fails with a timeout.
    Fail,
}
