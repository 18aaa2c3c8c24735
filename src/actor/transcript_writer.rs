//! The transcript writer: the only owner of a run's records on disk.
//!
//! The actor is a facade: it starts the journal's writer thread with its observers (the
//! transcripts, the supervisor's feed) and closes it in order. Steps append through the handle,
//! which is bounded, so that no overload hides in this mailbox. It decides nothing and drops
//! nothing.

use std::sync::{Arc, OnceLock};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{mpsc, oneshot};

use super::mail::SupervisorMsg;
use crate::event::{Event, SharedRecord};
use crate::journal::file::OwnedRun;
use crate::journal::line::Position;
use crate::journal::snapshot::Snapshots;
use crate::journal::{JournalHandle, Observer, room};

/// The commit batches on their way from the writer to the supervisor: enough that the writer does
/// not wait for each, and little memory should the supervisor be slow.
const FEED_BATCHES: usize = 64;

/// Where the supervisor's address will stand once it is started.
pub type SupervisorAddress = Arc<OnceLock<ActorRef<SupervisorMsg>>>;

/// What the transcript writer is told.
#[derive(Debug)]
pub enum TranscriptWriterMsg {
    /// Give a handle of the journal.
    Journal(oneshot::Sender<JournalHandle>),
    /// Write what is queued, let the listeners finish, and refuse every later append.
    Close(oneshot::Sender<()>),
}

/// The transcript writer.
#[derive(Debug)]
pub struct TranscriptWriter;

/// What it keeps: the journal, and the run's lock for as long as it lives.
#[derive(Debug)]
pub struct State {
    journal: JournalHandle,
    _owned: OwnedRun,
}

/// What it starts with.
#[derive(Debug)]
pub struct Start {
    /// The run directory.
    pub owned: OwnedRun,
    /// Where the journal goes on.
    pub at: Position,
    /// The agents' files so far, and what makes snapshots.
    pub snapshots: Snapshots,
    /// Who hears of what is committed.
    pub observer: FeedObserver,
}

impl Actor for TranscriptWriter {
    type Msg = TranscriptWriterMsg;
    type State = State;
    type Arguments = Start;

    async fn pre_start(
        &self,
        _myself: ActorRef<TranscriptWriterMsg>,
        start: Start,
    ) -> Result<State, ActorProcessingErr> {
        // The transcripts come first: an agent's files exist when its actor is started.
        room::outlive_file_limits()?;
        let observers: Vec<Box<dyn Observer>> =
            vec![Box::new(start.snapshots), Box::new(start.observer)];
        let journal = start.owned.start_writer(start.at, observers)?;
        Ok(State { journal, _owned: start.owned })
    }

    async fn handle(
        &self,
        myself: ActorRef<TranscriptWriterMsg>,
        message: TranscriptWriterMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            TranscriptWriterMsg::Journal(reply) => {
                let _ = reply.send(state.journal.clone());
            }
            TranscriptWriterMsg::Close(reply) => {
                // Closing is the last thing it does, so nothing waits behind this.
                state.journal.close().await;
                let _ = reply.send(());
                myself.stop(None);
            }
        }
        Ok(())
    }
}

/// A feed of durable records for a supervisor, and the observer of the journal that fills it. The
/// observer waits when the feed is full, so that a slow supervisor slows the journal down.
#[must_use]
pub fn feed(supervisor: SupervisorAddress) -> (FeedObserver, Feed) {
    let (batches, received) = mpsc::channel(FEED_BATCHES);
    (FeedObserver { supervisor, batches, batch: Vec::new() }, Feed(received))
}

/// The records of a run's journal that its supervisor has not taken in yet.
#[derive(Debug)]
pub struct Feed(mpsc::Receiver<Vec<SharedRecord>>);

impl Feed {
    /// The records of the next commit batch, if there is one.
    pub(super) fn next(&mut self) -> Option<Vec<SharedRecord>> {
        self.0.try_recv().ok()
    }
}

/// Fills the feed of a supervisor with the records that its state is made of, batch by batch.
#[derive(Debug)]
pub struct FeedObserver {
    supervisor: SupervisorAddress,
    batches: mpsc::Sender<Vec<SharedRecord>>,
    batch: Vec<SharedRecord>,
}

/// Whether the supervisor's state depends on the event; what an agent does within its turns is of
/// interest to readers of the journal only.
fn concerns_supervisor(event: &Event) -> bool {
    match event {
        Event::TurnStarted(_)
        | Event::ModelRequested(_)
        | Event::ModelFailed(_)
        | Event::ToolIntended(_)
        | Event::ToolStarted(_)
        | Event::ToolFinished(_)
        | Event::ContextEdited(_)
        | Event::CompactionRequested(_)
        | Event::CompactionBreaker(_)
        | Event::GatewayParked(_)
        | Event::GatewayResumed(_)
        | Event::GatewayBreaker(_) => false,
        Event::RunCreated(_)
        | Event::RunOpened(_)
        | Event::RunPaused(_)
        | Event::RunCompleted(_)
        | Event::TaskReady(_)
        | Event::TaskStarted(_)
        | Event::TaskRetrying(_)
        | Event::TaskCompleted(_)
        | Event::TaskReused(_)
        | Event::TaskFailed(_)
        | Event::TaskSkipped(_)
        | Event::TaskCancelled(_)
        | Event::AgentSpawned(_)
        | Event::AgentRestarted(_)
        | Event::AgentEnded(_)
        | Event::ModelResponded(_)
        | Event::CompactionFinished(_)
        | Event::CompactionFailed(_) => true,
    }
}

impl Observer for FeedObserver {
    fn committed(&mut self, record: &SharedRecord) {
        if concerns_supervisor(&record.event) {
            self.batch.push(record.clone());
        }
    }

    fn batch_end(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        // A supervisor that is gone needs no more records. One that is not there yet looks into its
        // feed when it starts.
        let sent = self.batches.blocking_send(std::mem::take(&mut self.batch));
        if let (Ok(()), Some(supervisor)) = (sent, self.supervisor.get()) {
            let _ = supervisor.send_message(SupervisorMsg::News);
        }
    }
}
