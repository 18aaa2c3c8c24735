//! The port through which a run is driven: made, taken up, cut and copied, and what its process keeps beside its
//! records.
//!
//! `local/driven.rs` does so with folders of this machine. A place that keeps its records elsewhere implements these
//! traits beside those of `source.rs`, and nothing above them changes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::event::{Draft, SharedRecord};
use crate::id::RunId;
use crate::journal::agent_files::AgentFiles;
use crate::journal::cut::{Cut, CutBack, CutError, Loss};
use crate::journal::line::Position;
use crate::journal::refusal::Objection;
use crate::journal::{JournalError, JournalHandle, Observer};
use crate::store::Store;
use crate::turn_machine::lost::LostCalls;

/// A run that can be driven from here. Its calls block.
pub trait Drivable: fmt::Debug + Send + Sync {
    /// Returns the folder of this machine that is the run's own: its process is reached by it, and no tool of
    /// its agents writes there.
    fn folder(&self) -> &Path;

    /// Returns the folder of the answers that were left while no process drove the run.
    fn answers(&self) -> PathBuf;

    /// Returns the folder of notes about calls that are not recorded yet.
    fn under_way(&self) -> PathBuf;

    /// Returns the transcripts and logs of its agents.
    fn agent_files(&self) -> AgentFiles;

    /// Returns the store of its results.
    fn store(&self) -> Store;

    /// Returns the saved folds of its records.
    fn saved_folds(&self) -> Arc<dyn SavedFolds>;

    /// Looks at what is there before anything of it is written, removed, copied or believed.
    ///
    /// # Errors
    /// Returns an error if somebody else could have put it there.
    fn refuse_unsafe(&self) -> Result<(), JournalError>;

    /// Makes the run, which has no record, and takes the right to write to it. When this returns, the place of
    /// its records survives a power cut.
    ///
    /// # Errors
    /// Returns an error if the run exists, or if it cannot be made.
    fn create(&self) -> Result<OwnedRun, JournalError>;

    /// Takes the right to write to the run.
    ///
    /// # Errors
    /// Returns [`JournalError::Locked`] if another process has it.
    fn own(&self) -> Result<OwnedRun, JournalError>;

    /// Makes the run `id` in the same place, with the stored results and the records of this one up to `end`, and
    /// `first` in the place of the first record. It is durable when this returns.
    ///
    /// # Errors
    /// Returns an error if this run cannot be read or that one cannot be made; then nothing of it is left.
    fn fork(&self, id: RunId, end: Position, first: Draft) -> Result<(), JournalError>;

    /// Returns the id of a new run in the same place, which sorts behind all that are there.
    fn next_id(&self) -> RunId;

    /// Returns the end of the records once they are cut at record `seq`. Writes nothing.
    ///
    /// # Errors
    /// Returns an error if the records cannot be read, or must not be cut there.
    fn place_to_cut(&self, seq: u64) -> Result<Position, CutError>;

    /// Returns what is lost if the records are cut at this place. Writes nothing.
    ///
    /// # Errors
    /// Returns an error if the records cannot be read.
    fn loss(&self, end: Position) -> Result<Loss, JournalError>;
}

/// Takes a batch, with the position at which it begins, or objects to a record of it.
pub type EachBatch<'a> = dyn FnMut(Position, &[SharedRecord]) -> Result<(), Objection> + 'a;

/// The right to write to a run, which nobody else has until it is dropped; a writer has a part in it. Its calls
/// block.
pub trait Ownership: fmt::Debug + Send + Sync {
    /// Starts the writer of the records, which appends from the position `at`.
    ///
    /// # Errors
    /// Returns an error if the records cannot be opened or do not end at `at`.
    fn start_writer(
        &self,
        at: Position,
        observers: Vec<Box<dyn Observer>>,
    ) -> Result<JournalHandle, JournalError>;

    /// Gives every batch of the records from `from` on to `each`, with the position at which it begins, and then
    /// cuts the records behind the last one.
    ///
    /// # Errors
    /// Returns an error if the records cannot be continued; then nothing was cut.
    fn cut_back(
        &self,
        from: Position,
        cut: Cut,
        each: &mut EachBatch<'_>,
    ) -> Result<CutBack, CutError>;

    /// Refuses records that are of another run than the one that has their place.
    ///
    /// # Errors
    /// Returns [`JournalError::Copy`] in that case.
    fn refuse_copy(&self, run: RunId) -> Result<(), JournalError>;

    /// Refuses records that end before one that was acknowledged, or have another one in its place.
    ///
    /// # Errors
    /// Returns [`JournalError::RolledBack`] or [`JournalError::Replaced`] in that case.
    fn refuse_rolled_back(&self, end: Position) -> Result<(), JournalError>;

    /// Returns the calls that earlier cuts of the records took.
    ///
    /// # Errors
    /// Returns an error if what was cut cannot be read.
    fn lost_calls(&self, run: RunId) -> Result<LostCalls, JournalError>;

    /// Makes the place of stored results again, if it is gone and the records name none.
    ///
    /// # Errors
    /// Returns an error if the records name a result, or if the place cannot be made.
    fn make_results(&self) -> Result<(), JournalError>;

    /// Takes over the stored results in a folder of another run, at which the caller has looked
    /// ([`Drivable::refuse_unsafe`]). There need be none.
    ///
    /// # Errors
    /// Returns an error if one cannot be taken over.
    fn take_results(&self, from: &Path) -> Result<(), JournalError>;

    /// Keeps a line about the run in the place of the runs, and removes the run with all that it has. The line is
    /// durable before anything is gone.
    ///
    /// # Errors
    /// Returns an error if the line cannot be kept, and then the run is still there; or if the run cannot be
    /// removed.
    fn remove(&self, line: &str) -> Result<(), JournalError>;
}

/// The right to write to a run. Cloning it is cheap.
pub type OwnedRun = Arc<dyn Ownership>;

/// The saved folds of a run's records: texts that are worth keeping and can be lost, each of a place in the records.
/// Its calls block.
pub trait SavedFolds: fmt::Debug + Send + Sync {
    /// Returns them, the newest first. What cannot be read is left out.
    fn newest_first(&self) -> Box<dyn Iterator<Item = String> + '_>;

    /// Returns true if the records have a batch that ends at this place.
    fn fits(&self, at: &Position) -> bool;

    /// Keeps the text of a fold up to the record before `seq`, and removes all but the newest.
    ///
    /// # Errors
    /// Returns an error if it cannot be written; those before it stay.
    fn keep(&self, seq: u64, text: &str) -> std::io::Result<()>;

    /// Removes all of them.
    fn forget(&self);
}
