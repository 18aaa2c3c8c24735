//! Which streams of a command are its output.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which streams of a task's command are its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Capture {
    /// Stdout. Stderr is kept beside it.
    #[default]
    Stdout,
    /// Stdout and stderr, in the order in which they come.
    Both,
}

impl Capture {
    /// Returns true for the one that need not be written.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}
