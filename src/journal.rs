//! The port to the journal: the ordered, durable events of a run, and how an append can fail.
//!
//! Owns the handle that callers hold and the errors. Decides nothing about what is recorded: an
//! append is written whole, numbered and acknowledged once it is durable, or it fails for good. It
//! waits while the disk is full.

pub mod agent_records;
pub mod copy;
pub mod disk_space;
pub mod file;
pub mod filesystem;
pub mod follow;
pub mod line;
pub mod log_line;
pub mod projection;
pub mod reader;
pub mod refusal;
pub mod results;
pub mod snapshot;
pub mod stamp;
pub mod storage;
pub mod torn;
pub mod track;
pub mod transcript;
pub mod walk;
pub mod writer;

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

use crate::event::{Draft, SharedRecord};
use crate::id::AgentId;
use crate::journal::disk_space::DiskSpace;
use crate::journal::line::Position;
use crate::journal::refusal::Refusal;
use crate::store::StoreError;

/// Why the journal could not be written, read or taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// There is no room; what was being written has been taken back.
    #[error("the disk is full")]
    Full,
    /// The operating system refused something.
    #[error("{0}")]
    Io(String),
    /// A record that had been acknowledged, or that somebody wrote whole, stands in the way.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It holds no record, and nothing tells that it ever did.
    #[error("the run never began: its first record was not written, so nothing was done")]
    NeverBegan,
    /// It holds no record any more.
    #[error("the journal holds no record, though {} is filled: it was lost", .folder.display())]
    Lost {
        /// A folder that is filled only behind a record.
        folder: PathBuf,
    },
    /// A stored result is not what was recorded.
    #[error(transparent)]
    BadResult(#[from] StoreError),
    /// Another process has the run.
    #[error("run is open in {}", holder(*.pid))]
    Locked {
        /// That process, if it could be told.
        pid: Option<u32>,
    },
    /// A run of that id is already there.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// It would lie where locks and syncs cannot be relied on.
    #[error(
        "{} is on {kind}, where locks and syncs cannot be relied on; name a folder on a local \
         disk with --state-dir",
        .path.display()
    )]
    NotLocal {
        /// Where it would lie.
        path: PathBuf,
        /// The file system.
        kind: &'static str,
    },
    /// It was closed, or its writer is gone.
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
    /// An operating system's refusal, with what was being done to what.
    pub(crate) fn io(what: impl std::fmt::Display, error: &std::io::Error) -> Self {
        Self::Io(format!("{what}: {error}"))
    }
}

/// Hears of records once they are durable, in order, on the writer's thread: it must be quick.
pub trait Observer: Send {
    /// A commit batch is durable that stands between these places; its records follow.
    fn batch(&mut self, _from: Position, _to: Position) {}

    /// A record is durable.
    fn committed(&mut self, record: &SharedRecord);

    /// The last record of a commit batch has been given. What others rely on is done now; what
    /// only has to be done soon may wait for [`Observer::settle`].
    fn batch_end(&mut self);

    /// Some batches have ended, the first of them [`writer::SETTLE`] ago, or nothing follows: what
    /// was put off is done now.
    fn settle(&mut self) {}
}

/// A future that a [`Journal`] gives.
pub type JournalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The ordered, durable events of one run: the port that actors append through.
///
/// An implementation numbers the drafts, makes them durable and acknowledges them. It may keep them
/// in a file, or send them to another machine: those that append hold no path and no lock.
pub trait Journal: Send + Sync + fmt::Debug {
    /// Records the drafts, in order, under numbers that follow each other and within one commit
    /// batch: after a crash either all of them are there or none. Returns once they are durable.
    /// Dropping the future does not take the drafts back. A full disk is waited for until the
    /// journal is closed.
    ///
    /// # Errors
    /// When they could not be made durable; every later append fails too.
    fn append(
        &self,
        drafts: Vec<Draft>,
    ) -> JournalFuture<'_, Result<Vec<SharedRecord>, JournalError>>;

    /// Returns once all drafts are durable that were given to the journal before.
    ///
    /// # Errors
    /// When they could not be made durable.
    fn flush(&self) -> JournalFuture<'_, Result<(), JournalError>>;

    /// Reads every durable record of one agent back, oldest first.
    ///
    /// # Errors
    /// When the journal cannot be read back.
    fn agent_records<'a>(
        &'a self,
        agent: &'a AgentId,
    ) -> JournalFuture<'a, Result<Vec<SharedRecord>, JournalError>>;

    /// The number of the last durable record, as it grows; 0 before the first.
    fn committed(&self) -> watch::Receiver<u64>;

    /// Whether the disk has room for new work, as it changes.
    fn room(&self) -> watch::Receiver<DiskSpace>;

    /// Tells that the run's disk refused something because it is full. The journal gives up the room
    /// that it kept aside, and [`room`](Self::room) says so. Returns false when it is closed.
    fn report_full(&self) -> bool;

    /// Writes what has been queued, lets the observers finish, and refuses every later append.
    fn close(&self) -> JournalFuture<'_, ()>;
}

/// A handle of a run's journal. Clones share it.
#[derive(Clone, Debug)]
pub struct JournalHandle(Arc<dyn Journal>);

impl JournalHandle {
    /// A handle of this journal.
    #[must_use]
    pub fn new(journal: impl Journal + 'static) -> Self {
        Self(Arc::new(journal))
    }

    /// As [`Journal::append`], for callers that cannot wait for room: a disk that stays full for
    /// [`disk_space::PATIENCE`] is an error.
    ///
    /// # Errors
    /// When the drafts could not be made durable, or not in time: then they may be all the same,
    /// until the journal is closed.
    pub async fn append_at_once(
        &self,
        drafts: Vec<Draft>,
    ) -> Result<Vec<SharedRecord>, JournalError> {
        let mut room = self.room();
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
pub(crate) mod testing {
    //! Drafts and records for the tests of this folder.

    use crate::event::{Draft, Record};
    use crate::id::{AgentId, Name};
    use crate::turn::TurnStarted;

    pub(crate) fn turn(agent: &str, turn: u32) -> Draft {
        let task = Name::new("work").expect("a name");
        Draft::agent(&task, &AgentId::from_text(agent), TurnStarted { turn, message: None })
    }

    pub(crate) fn record(seq: u64, draft: Draft) -> Record {
        let Draft { task, agent, event } = draft;
        Record { seq, epoch: 1, ts_ms: 1_794_967_445_123, task, agent, event }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_says_who_holds_it() {
        let locked = JournalError::Locked { pid: Some(7) };
        assert_eq!(locked.to_string(), "run is open in process 7");
        let locked = JournalError::Locked { pid: None };
        assert_eq!(locked.to_string(), "run is open in another process");
    }
}
