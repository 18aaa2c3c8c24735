//! Where the transcripts and logs of a run's agents are: one folder, with two files for each agent.
//!
//! Owns their names, and nothing of their content.

use std::path::{Path, PathBuf};

use crate::id::AgentId;

/// The folder of the agents' transcripts and logs. It holds only a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFiles {
    folder: PathBuf,
}

impl AgentFiles {
    /// Returns the files in `folder`.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of one agent's transcript.
    #[must_use]
    pub fn transcript(&self, agent: &AgentId) -> PathBuf {
        self.folder.join(format!("{}.jsonl", agent.file_stem()))
    }

    /// Returns the path of one agent's log.
    #[must_use]
    pub fn log(&self, agent: &AgentId) -> PathBuf {
        self.folder.join(format!("{}.log", agent.file_stem()))
    }
}
