//! The updates of a run: its records as they become durable, and the texts of models as they come.
//!
//! A reader that is too slow misses parts of texts, and is told so; it misses no record, and delays nobody.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Client;
use crate::event::SharedRecord;
use crate::journal::JournalError;
use crate::journal::follow::Follower;
use crate::journal::source::{Cursor, RecordedRun};
use crate::run::control::DeltaStream;
use crate::run::delta_feed::DeltaLine;

/// The pause between two tries to reach the process that drives a run.
const LOOK: Duration = Duration::from_millis(200);

/// The most parts of another process that wait here: its socket holds others, and it counts what it drops.
const MOST_WAITING: usize = 64;

/// The most parts in a row while a record may be waiting.
const MOST_IN_A_ROW: u32 = 256;

/// Which texts of models come as updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texts {
    /// None: nothing is sent for them.
    None,
    /// Those that arrive from now on.
    New,
}

/// One update.
#[derive(Clone, Debug)]
pub enum Update {
    /// A record. It is durable.
    Record(SharedRecord),
    /// A part of the reply of a model, which is not recorded: a reply that breaks off may come again.
    Text(Arc<DeltaLine>),
    /// No texts of models come, for this reason; records do.
    NoTexts(String),
}

/// The updates of a run. In the process that drives it, the parts of a reply come before the record of the reply.
#[derive(Debug)]
pub struct Updates {
    follower: Follower,
    texts: Source,
    in_a_row: u32,
}

/// Where the texts of models come from.
#[derive(Debug)]
enum Source {
    Nowhere,
    Here(broadcast::Receiver<Arc<DeltaLine>>),
    Elsewhere(mpsc::Receiver<Update>, JoinHandle<()>),
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Self::Elsewhere(_, task) = self {
            task.abort();
        }
    }
}

impl Source {
    /// Returns the next part; waits for ever where none can come. Dropping the future loses nothing.
    async fn next(&mut self) -> Update {
        let next = match self {
            Self::Nowhere => None,
            Self::Here(parts) => match parts.recv().await {
                Ok(part) => Some(Update::Text(part)),
                Err(RecvError::Lagged(count)) => {
                    Some(Update::Text(Arc::new(DeltaLine::Missed { count })))
                }
                Err(RecvError::Closed) => None,
            },
            Self::Elsewhere(parts, _) => parts.recv().await,
        };
        match next {
            Some(update) => update,
            None => {
                *self = Self::Nowhere;
                std::future::pending().await
            }
        }
    }
}

impl Updates {
    pub(super) fn open(client: &Client, from: Cursor, texts: Texts) -> Result<Self, JournalError> {
        let follower = Follower::open_at(client.run.clone(), from)?;
        let follower = match &client.here {
            Some(here) => follower.listening(&here.live),
            None => follower,
        };
        let texts = match (texts, &client.here) {
            (Texts::None, _) => Source::Nowhere,
            (Texts::New, Some(here)) => Source::Here(here.texts.follow()),
            (Texts::New, None) => {
                let (sender, parts) = mpsc::channel(MOST_WAITING);
                Source::Elsewhere(parts, tokio::spawn(receive(client.run.clone(), sender)))
            }
        };
        Ok(Self { follower, texts, in_a_row: 0 })
    }

    /// Returns the next update as soon as there is one, or `None` once the run has ended or no process drives it any
    /// more. Dropping the future loses no record.
    ///
    /// # Errors
    /// Returns an error if the records cannot be read or are damaged.
    pub async fn next(&mut self) -> Result<Option<Update>, JournalError> {
        if self.in_a_row >= MOST_IN_A_ROW {
            self.in_a_row = 0;
            if let Some(record) = self.follower.next_ready()? {
                return Ok(Some(Update::Record(record)));
            }
        }
        tokio::select! {
            // What a model wrote is shown before what it led to.
            biased;
            text = self.texts.next() => {
                self.in_a_row += 1;
                Ok(Some(text))
            }
            record = self.follower.next() => Ok(record?.map(Update::Record)),
        }
    }

    /// Returns the next record that can be read without waiting, or `None` behind the last one.
    ///
    /// # Errors
    /// Returns an error if the records cannot be read or are damaged.
    pub fn next_record_ready(&mut self) -> Result<Option<SharedRecord>, JournalError> {
        self.follower.next_ready()
    }
}

/// Passes on what the process sends that drives the run, until nobody receives it: another process may take the run
/// over.
async fn receive(run: RecordedRun, parts: mpsc::Sender<Update>) {
    let mut is_refused = false;
    loop {
        match DeltaStream::open(&*run).await {
            Ok(mut stream) => {
                while let Ok(Some(part)) = stream.next().await {
                    if parts.send(Update::Text(Arc::new(part))).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Other && !is_refused => {
                is_refused = true;
                if parts.send(Update::NoTexts(error.to_string())).await.is_err() {
                    return;
                }
            }
            // No process drives the run now.
            Err(_) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}
