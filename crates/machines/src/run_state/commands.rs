//! What the commands of a run are given by its newest opening: the sandbox, and the names of their variables.

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::RunOpened;
use crate::spec::sandbox::SandboxProof;

/// What the newest opening gives commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Commands {
    sandbox: Option<SandboxProof>,
    variables: Vec<String>,
}

impl Commands {
    pub(super) fn of(opened: &RunOpened) -> Self {
        Self { sandbox: opened.sandbox.clone(), variables: opened.variables.clone() }
    }
}

impl RunState {
    /// Returns the sandbox of the run's commands, if they have one or should have one.
    #[must_use]
    pub fn sandbox(&self) -> Option<&SandboxProof> {
        self.commands.sandbox.as_ref()
    }

    /// Returns the names of the environment variables that every command gets since the newest opening; empty if the
    /// run has no commands, or was opened by an earlier version.
    #[must_use]
    pub fn variables_of_commands(&self) -> &[String] {
        &self.commands.variables
    }
}
