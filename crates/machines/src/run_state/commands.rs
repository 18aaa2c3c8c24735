//! What the newest opening of a run gives it: the sandbox of its commands, the names of their variables, and how many
//! child agents may begin in a time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Reading, RunState};
use crate::event::RunOpened;
use crate::spec::sandbox::SandboxProof;
use crate::spec::spawn_rate::SpawnRate;

/// What the newest opening gives commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Commands {
    sandbox: Option<SandboxProof>,
    variables: Vec<String>,
    #[serde(default)]
    max_spawn_rate: Option<SpawnRate>,
}

impl Commands {
    pub(super) fn of(opened: &RunOpened) -> Self {
        let RunOpened { sandbox, variables, max_spawn_rate, .. } = opened.clone();
        Self { sandbox, variables, max_spawn_rate }
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

    /// Returns how many child agents may begin in a time; `None` if no agent delegates, or if the run was opened by
    /// an earlier version.
    #[must_use]
    pub fn max_spawn_rate(&self) -> Option<SpawnRate> {
        self.commands.max_spawn_rate
    }

    /// Returns the moments of the run's clock at which its child agents began, in order.
    #[must_use]
    pub fn children_began(&self) -> Vec<Duration> {
        let children = self.agents.values().filter(|agent| agent.is_delegated());
        let mut began: Vec<_> =
            children.map(|child| child.began.since(Reading::default())).collect();
        began.sort_unstable();
        began
    }
}
