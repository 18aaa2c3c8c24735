//! Runs in folders of this machine for the tests of what reads and writes journals.

use std::ops::Deref;

use tempfile::TempDir;

use crate::journal::file::{LockedDir, RunDir};
use crate::journal::line::Position;
use crate::journal::{JournalHandle, Observer};

/// A new run in a folder of its own, which goes with it.
pub(in crate::journal) struct NewRun {
    dir: RunDir,
    _root: TempDir,
}

impl NewRun {
    /// Names a folder for a run, and makes nothing.
    pub(in crate::journal) fn unmade() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { dir: RunDir::at(root.path().join("run")), _root: root }
    }

    /// Makes a run, with its lock and the handle of its journal.
    pub(in crate::journal) fn written(
        observers: Vec<Box<dyn Observer>>,
    ) -> (Self, LockedDir, JournalHandle) {
        let run = Self::unmade();
        let owned = run.create().unwrap();
        let journal = owned.start_writer(Position::START, observers).unwrap();
        (run, owned, journal)
    }
}

impl Deref for NewRun {
    type Target = RunDir;
    fn deref(&self) -> &RunDir {
        &self.dir
    }
}
