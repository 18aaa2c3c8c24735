//! The port to the journal: the ordered, durable events of a run, and the errors of an append.
//!
//! Owns the handle that callers hold and the errors. It does not decide which events are recorded.
//! An append is numbered, written whole and acknowledged once it is durable; if that fails, the
//! journal accepts no more appends. On a full disk an append waits for disk space.

pub mod acknowledged;
pub mod agent_files;
pub mod agent_records;
pub mod cut;
pub mod disk_space;
pub mod driving;
pub mod file;
pub mod filesystem;
pub mod follow;
pub mod held;
pub mod line;
pub mod live;
pub mod local;
pub mod projection;
pub mod reader;
pub mod refusal;
pub mod repair;
pub mod results;
#[doc(hidden)]
pub mod samples;
pub mod snapshot;
pub mod source;
pub mod stamp;
pub mod stand_in;
pub mod storage;
pub mod track;
pub mod transcript;
pub mod witness;
pub mod writer;

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

use crate::event::{Draft, SharedRecord};
use crate::id::{AgentId, RunId};
use crate::journal::disk_space::DiskSpace;
use crate::journal::line::Position;
use crate::journal::refusal::Refusal;
use crate::store::StoreError;

/// An error of writing, reading or locking the journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The disk is full. Nothing of the unfinished write is left in the journal.
    #[error("the disk is full")]
    Full,
    /// An operation of the operating system failed.
    #[error("{0}")]
    Io(String),
    /// The journal holds a record that was acknowledged, or written whole, and that cannot be read
    /// past.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The journal holds no record, and no folder of the run shows that it ever held one.
    #[error("the run never began: its first record was not written, so nothing was done")]
    NeverBegan,
    /// The journal holds no record any more: a folder that is filled only after the first record
    /// has content.
    #[error("the journal holds no record, though {} is filled: it was lost", .folder.display())]
    Lost {
        /// The folder that has content.
        folder: PathBuf,
    },
    /// The journal ends before a record that was acknowledged.
    #[error(
        "the journal ends with record {last}, but record {known} was acknowledged: what follows was \
         lost (an older copy of the journal, or a disk that lost what it had confirmed)"
    )]
    RolledBack {
        /// Number of the last record that is left.
        last: u64,
        /// Number of the last record that was acknowledged.
        known: u64,
    },
    /// The journal has another record in the place of one that was acknowledged.
    #[error(
        "record {known} of the journal is not the one that was acknowledged: an older copy was put back and \
         continued, or it is the journal of another run"
    )]
    Replaced {
        /// Number of the last record of the journal.
        last: u64,
        /// Number of the last record that was acknowledged.
        known: u64,
    },
    /// The records are of another run than the one after which the folder is named.
    #[error(
        "{} is a copy: its records are those of run {run}, whose effects would happen twice", .folder.display()
    )]
    Copy {
        /// The run of the records.
        run: RunId,
        /// The folder.
        folder: PathBuf,
    },
    /// A stored result is not what was recorded.
    #[error(transparent)]
    BadResult(#[from] StoreError),
    /// Another process has the run.
    #[error("run is already running in {}", holder(*.pid))]
    Locked {
        /// Id of that process, if its lock file names it.
        pid: Option<u32>,
    },
    /// A run with that id exists already.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The run would lie on a file system whose locks and syncs cannot be relied on.
    #[error(
        "{} is on {kind}, where locks and syncs cannot be relied on; name a folder on a local \
         disk with --state-dir",
        .path.display()
    )]
    NotLocal {
        /// The path at which the run would lie.
        path: PathBuf,
        /// The name of the file system.
        kind: &'static str,
    },
    /// The journal was closed, or its writer has ended.
    #[error("the journal is closed")]
    Closed,
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

impl JournalError {
    /// Wraps an error of the operating system; `what` names the operation and its object.
    pub fn io(what: impl std::fmt::Display, error: &std::io::Error) -> Self {
        Self::Io(format!("{what}: {error}"))
    }

    /// Wraps an error of a file that names it, as [`NamedFile`](crate::disk::NamedFile) does.
    pub(crate) fn read(error: std::io::Error) -> Self {
        Self::Io(error.to_string())
    }

    /// Wraps an error of the operating system about a file or a folder; `doing` names the operation.
    pub fn cannot(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::Io(format!("cannot {doing} {}: {error}", path.display()))
    }
}

/// Receives records once they are durable, in order. It runs on the writer's thread, so it must be
/// quick.
pub trait Observer: Send {
    /// Called when a batch is durable, with its first and its last position. Calls of `committed`
    /// for its records follow.
    fn batch(&mut self, _from: Position, _to: Position) {}

    /// Called for each durable record.
    fn committed(&mut self, record: &SharedRecord);

    /// Called after the last record of a batch. Work that others rely on is done here; work that
    /// may wait a moment can wait for [`Observer::catch_up`].
    fn batch_end(&mut self);

    /// Called to do the work that was put off: [`writer::CATCH_UP_AFTER`] after the first batch that has
    /// not been followed by it, and once more before the writer ends.
    fn catch_up(&mut self) {}
}

/// A future that a [`Journal`] returns.
pub type JournalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The ordered, durable events of one run: the port through which actors append.
///
/// An implementation numbers the drafts, makes them durable and acknowledges them. It may keep them
/// in a file or send them to another machine: callers that append hold no path and no lock.
pub trait Journal: Send + Sync + fmt::Debug {
    /// Records the drafts in order, with consecutive numbers, in one batch: after a crash either
    /// all of them are there or none. Returns once they are durable. Dropping the future does not
    /// withdraw the drafts. On a full disk it waits for disk space until the journal is closed.
    ///
    /// # Errors
    /// Returns an error if the drafts could not be made durable; every later append fails too.
    fn append(
        &self,
        drafts: Vec<Draft>,
    ) -> JournalFuture<'_, Result<Vec<SharedRecord>, JournalError>>;

    /// Returns once all drafts are durable that were given to the journal before this call.
    ///
    /// # Errors
    /// Returns an error if they could not be made durable.
    fn flush(&self) -> JournalFuture<'_, Result<(), JournalError>>;

    /// Reads all durable records of one agent from the journal, oldest first.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read.
    fn agent_records<'a>(
        &'a self,
        agent: &'a AgentId,
    ) -> JournalFuture<'a, Result<Vec<SharedRecord>, JournalError>>;

    /// Returns a watch on the number of the last durable record; 0 before the first one.
    fn committed(&self) -> watch::Receiver<u64>;

    /// Returns a watch that tells if the disk has space for new work.
    fn disk_space(&self) -> watch::Receiver<DiskSpace>;

    /// Reports that a write to the run's disk failed because the disk is full. The journal then
    /// releases the space that it keeps in reserve, and [`disk_space`](Self::disk_space) changes to scarce.
    /// Returns false if the journal is closed.
    fn report_full(&self) -> bool;

    /// Writes the queued drafts, lets the observers finish, and refuses every later append.
    fn close(&self) -> JournalFuture<'_, ()>;
}

/// A handle of a run's journal. All clones share one journal.
#[derive(Clone, Debug)]
pub struct JournalHandle(Arc<dyn Journal>);

impl JournalHandle {
    /// Makes a handle of this journal.
    #[must_use]
    pub fn new(journal: impl Journal + 'static) -> Self {
        Self(Arc::new(journal))
    }

    /// Appends as [`Journal::append`] does, but does not wait for disk space without end: a disk
    /// that stays full for [`disk_space::PATIENCE`] is an error.
    ///
    /// # Errors
    /// Returns an error if the drafts could not be made durable, or not in time. After a timeout
    /// they may still be written later, until the journal is closed.
    pub async fn append_at_once(
        &self,
        drafts: Vec<Draft>,
    ) -> Result<Vec<SharedRecord>, JournalError> {
        let mut room = self.disk_space();
        tokio::select! {
            biased;
            recorded = self.append(drafts) => recorded,
            () = disk_space::out_of_patience(&mut room) => Err(JournalError::Full),
        }
    }
}

impl Deref for JournalHandle {
    type Target = dyn Journal;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_says_who_holds_it() {
        let locked = JournalError::Locked { pid: Some(7) };
        assert_eq!(locked.to_string(), "run is already running in process 7");
        let locked = JournalError::Locked { pid: None };
        assert_eq!(locked.to_string(), "run is already running in another process");
    }
}
