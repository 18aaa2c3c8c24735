//! The transcript writer: the only owner of a run's records on disk.
//!
//! The actor is a facade. It owns the run's lock and the journal's writer thread with its observers
//! (the agents' files, the supervisor's feed), and closes them in order. Steps append through the
//! journal's handle, not by mail: the handle is bounded, so that no overload can hide in an
//! unbounded mailbox. It decides nothing and drops nothing.
//!
//! It is not linked with the supervisor. ractor ends the linked children of an actor with it, but
//! the lock must be held until the writer thread has written everything that was appended at the
//! supervisor's end. Each learns of the other's end in another way: the supervisor by its next
//! append, which fails; and the code that drives the run closes the writer after the supervisor's
//! end.

use std::sync::{Arc, OnceLock};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

use super::mail::SupervisorMsg;
use crate::disk;
use crate::event::SharedRecord;
use crate::journal::driving::OwnedRun;
use crate::journal::line::Position;
use crate::journal::live::LiveObserver;
use crate::journal::snapshot::Snapshots;
use crate::journal::{JournalError, JournalHandle, Observer};

/// Most commit batches that wait in the feed from the writer to the supervisor: enough that the
/// writer does not wait for each, and little memory if the supervisor is slow.
const FEED_BATCHES: usize = 64;

/// The mail of the transcript writer.
#[derive(Debug)]
pub enum TranscriptWriterMsg {
    /// Write what is queued, let the observers finish, refuse every later append, and end.
    Close,
}

/// The transcript writer.
#[derive(Debug)]
pub struct TranscriptWriter;

/// The state of the transcript writer: the journal, and the run's lock for as long as the actor
/// lives.
#[derive(Debug)]
pub struct State {
    journal: JournalHandle,
    _owned: OwnedRun,
}

impl State {
    /// Starts the journal's writer thread at the end of a run's records. The observer `snapshots`,
    /// which also writes the agents' files, comes before the supervisor's feed, so that an agent's
    /// files exist when its actor starts.
    ///
    /// # Errors
    /// Returns an error if the journal does not end at `at`, or if no thread can be started.
    pub fn start(
        owned: OwnedRun,
        at: Position,
        (snapshots, feed, live): (Snapshots, FeedObserver, LiveObserver),
    ) -> Result<Self, JournalError> {
        let limits = disk::outlive_file_limits();
        limits.map_err(|error| JournalError::io("signals", &error))?;
        let observers: Vec<Box<dyn Observer>> =
            vec![Box::new(snapshots), Box::new(feed), Box::new(live)];
        let journal = owned.start_writer(at, observers)?;
        Ok(Self { journal, _owned: owned })
    }

    /// Returns a handle of the journal.
    #[must_use]
    pub fn journal(&self) -> JournalHandle {
        self.journal.clone()
    }
}

impl Actor for TranscriptWriter {
    type Msg = TranscriptWriterMsg;
    type State = State;
    type Arguments = State;

    async fn pre_start(
        &self,
        _myself: ActorRef<TranscriptWriterMsg>,
        started: State,
    ) -> Result<State, ActorProcessingErr> {
        Ok(started)
    }

    async fn handle(
        &self,
        myself: ActorRef<TranscriptWriterMsg>,
        message: TranscriptWriterMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            TranscriptWriterMsg::Close => {
                // The handler may wait here, because nothing comes after this message.
                state.journal.close().await;
                myself.stop(None);
            }
        }
        Ok(())
    }
}

/// Makes a feed of durable records for a supervisor, and the observer of the journal that fills it.
/// The observer waits when the feed is full, so that a slow supervisor slows the journal down.
#[must_use]
pub fn feed() -> (FeedObserver, Feed) {
    let (sender, batches) = mpsc::channel(FEED_BATCHES);
    let listener = Arc::new(OnceLock::new());
    let observer = FeedObserver { listener: listener.clone(), batches: sender, batch: Vec::new() };
    (observer, Feed { listener, batches })
}

/// The records of a run's journal that its supervisor has not handled yet.
#[derive(Debug)]
pub struct Feed {
    listener: Arc<OnceLock<ActorRef<SupervisorMsg>>>,
    batches: mpsc::Receiver<Vec<SharedRecord>>,
}

impl Feed {
    /// Sends `SupervisorMsg::News` to the supervisor for each batch from now on; earlier batches
    /// are in the feed already.
    pub(super) fn listen(&self, supervisor: ActorRef<SupervisorMsg>) {
        let _ = self.listener.set(supervisor);
    }

    /// Returns the records of the next commit batch, if there is one.
    pub(super) fn next(&mut self) -> Option<Vec<SharedRecord>> {
        self.batches.try_recv().ok()
    }
}

/// Fills the feed of a supervisor with the records that its state depends on, batch by batch.
#[derive(Debug)]
pub struct FeedObserver {
    listener: Arc<OnceLock<ActorRef<SupervisorMsg>>>,
    batches: mpsc::Sender<Vec<SharedRecord>>,
    batch: Vec<SharedRecord>,
}

impl Observer for FeedObserver {
    fn committed(&mut self, record: &SharedRecord) {
        if record.event.is_of_run() {
            self.batch.push(record.clone());
        }
    }

    fn batch_end(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        // A supervisor that has ended needs no more records. One that has not started yet finds
        // them in its feed when it starts.
        let sent = self.batches.blocking_send(std::mem::take(&mut self.batch));
        if let (Ok(()), Some(supervisor)) = (sent, self.listener.get()) {
            let _ = supervisor.send_message(SupervisorMsg::News);
        }
    }
}
