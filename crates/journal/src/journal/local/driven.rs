//! Runs in folders of this machine, behind the port through which runs are driven.
//!
//! Owns what a fork shares with its origin, and when its folder is removed again. The lock and the layout are those
//! of `file.rs`, the cuts those of `repair`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::shelf::Shelf;
use super::{copy, next_id, removal};
use crate::disk;
use crate::event::Draft;
use crate::id::RunId;
use crate::journal::agent_files::AgentFiles;
use crate::journal::cut::{Cut, CutBack, CutError, Loss};
use crate::journal::driving::{Drivable, EachBatch, OwnedRun, Ownership, SavedFolds};
use crate::journal::file::{LockedDir, RunDir};
use crate::journal::line::Position;
use crate::journal::repair::{cut_pieces, torn};
use crate::journal::{JournalError, JournalHandle, Observer, results, witness};
use crate::store::{Store, StoredResults};
use crate::turn_machine::lost::LostCalls;

impl Drivable for RunDir {
    fn folder(&self) -> &Path {
        self.path()
    }

    fn answers(&self) -> PathBuf {
        Self::answers(self)
    }

    fn under_way(&self) -> PathBuf {
        self.spool().join("under-way")
    }

    fn agent_files(&self) -> AgentFiles {
        Self::agent_files(self)
    }

    fn store(&self) -> Store {
        Self::store(self)
    }

    fn saved_folds(&self) -> Arc<dyn SavedFolds> {
        Arc::new(Shelf { folder: self.snapshots(), journal: self.journal() })
    }

    fn refuse_unsafe(&self) -> Result<(), JournalError> {
        Self::refuse_unsafe(self)
    }

    fn create(&self) -> Result<OwnedRun, JournalError> {
        Ok(Arc::new(Self::create(self)?))
    }

    fn own(&self) -> Result<OwnedRun, JournalError> {
        Ok(Arc::new(Self::own(self)?))
    }

    fn fork(&self, id: RunId, end: Position, first: Draft) -> Result<(), JournalError> {
        let to = Self::at(above(self).join(id.to_string()));
        let owned = Self::create(&to)?;
        fill(self, &owned, end, first).inspect_err(|_| {
            // No other process uses it yet. If it cannot be removed, it counts as a run that never
            // began.
            let _ = fs::remove_dir_all(to.path());
        })
    }

    fn next_id(&self) -> RunId {
        next_id(above(self))
    }

    fn place_to_cut(&self, seq: u64) -> Result<Position, CutError> {
        torn::place_to_cut(self, seq)
    }

    fn loss(&self, end: Position) -> Result<Loss, JournalError> {
        torn::loss(self, end)
    }
}

impl Ownership for LockedDir {
    fn start_writer(
        &self,
        at: Position,
        observers: Vec<Box<dyn Observer>>,
    ) -> Result<JournalHandle, JournalError> {
        Self::start_writer(self, at, observers)
    }

    fn cut_back(
        &self,
        from: Position,
        cut: Cut,
        each: &mut EachBatch<'_>,
    ) -> Result<CutBack, CutError> {
        torn::cut_back(self, from, cut, each)
    }

    fn refuse_copy(&self, run: RunId) -> Result<(), JournalError> {
        witness::refuse_copy(self.dir(), run)
    }

    fn refuse_rolled_back(&self, end: Position) -> Result<(), JournalError> {
        witness::refuse_rolled_back(self.dir(), end)
    }

    fn lost_calls(&self, run: RunId) -> Result<LostCalls, JournalError> {
        cut_pieces::lost_calls(self.dir(), run)
    }

    fn make_results(&self) -> Result<(), JournalError> {
        match has_results(self.dir())? {
            true => Ok(()),
            false => self.dir().make_results(),
        }
    }

    fn take_results(&self, from: &Path) -> Result<(), JournalError> {
        if !from.is_dir() {
            return Ok(());
        }
        let to = self.dir().results();
        share(from, &to).map_err(|error| JournalError::cannot("write to", &to, &error))
    }

    fn remove(&self, line: &str) -> Result<(), JournalError> {
        removal::remove(self.dir().path(), line)
    }
}

/// Returns the folder in which the run's own lies.
fn above(dir: &RunDir) -> &Path {
    dir.path().parent().unwrap_or(dir.path())
}

/// Returns true if the run has a folder of stored results.
///
/// # Errors
/// Returns an error if the folder is missing although the journal names a result, or if the journal
/// cannot be read.
fn has_results(dir: &RunDir) -> Result<bool, JournalError> {
    if dir.results().is_dir() {
        return Ok(true);
    }
    match results::first(dir, |_| true)? {
        Some((hash, _)) => Ok(dir.results().open(&hash).map(|_| true)?),
        None => Ok(false),
    }
}

/// Copies to a new run what it shares with `from`: stored results, and the journal up to `end`.
/// `first` becomes its first record.
fn fill(from: &RunDir, to: &LockedDir, end: Position, first: Draft) -> Result<(), JournalError> {
    if has_results(from)? {
        to.take_results(&from.results())?;
    }
    copy::copy(from, to.dir(), end, first)
}

/// Links stored results into the folder of another run. They are named by their content and never change, so the runs
/// can share them.
fn share(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        // A file whose name is not a hash is still being written.
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_hexdigit) {
            continue;
        }
        let new = to.join(entry.file_name());
        // The file is copied where hard links are not possible.
        if fs::hard_link(entry.path(), &new).is_err() {
            fs::copy(entry.path(), &new)?;
            disk::sync(&File::open(&new)?)?;
        }
    }
    disk::sync(&File::open(to)?)
}
