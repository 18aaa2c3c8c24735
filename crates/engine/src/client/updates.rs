//! The updates of a run: its records as they become durable, and the texts of models and lines of commands as they
//! come.
//!
//! A reader that is too slow misses parts of these, and is told so; it misses no record, and delays nobody.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Client;
use crate::event::SharedRecord;
use crate::journal::JournalError;
use crate::journal::follow::Follower;
use crate::journal::source::{Cursor, RecordedRun};
use crate::run::control::DeltaStream;
pub use crate::run::delta_feed::Parts;
use crate::run::delta_feed::{DeltaLine, Following};

/// The pause between two tries to reach the process that drives a run.
const LOOK: Duration = Duration::from_millis(200);

/// The most parts of another process that wait here: its socket holds others, and it counts what it drops.
const MOST_WAITING: usize = 64;

/// The most parts in a row while a record may be waiting.
const MOST_IN_A_ROW: u32 = 256;

/// One update.
#[derive(Clone, Debug)]
pub enum Update {
    /// A record. It is durable.
    Record(SharedRecord),
    /// A part of the reply of a model or of the output of a command. It is not recorded: a reply that breaks off may
    /// come again.
    Part(Arc<DeltaLine>),
    /// No parts come, for this reason; records do.
    NoParts(String),
}

/// The updates of a run. In the process that drives it, the parts of a reply come before the record of the reply.
#[derive(Debug)]
pub struct Updates {
    follower: Follower,
    parts: Source,
    in_a_row: u32,
}

/// Where the parts come from.
#[derive(Debug)]
enum Source {
    Nowhere,
    Here(Following),
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
            Self::Here(parts) => parts.next().await.map(Update::Part),
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
    pub(super) fn open(client: &Client, from: Cursor, which: Parts) -> Result<Self, JournalError> {
        let follower = Follower::open_at(client.run.clone(), from)?;
        let follower = match &client.here {
            Some(here) => follower.listening(&here.live),
            None => follower,
        };
        let parts = match (which, &client.here) {
            (Parts::None, _) => Source::Nowhere,
            (_, Some(here)) => Source::Here(here.feed.follow(which)),
            (_, None) => {
                let (sender, parts) = mpsc::channel(MOST_WAITING);
                Source::Elsewhere(parts, tokio::spawn(receive(client.run.clone(), which, sender)))
            }
        };
        Ok(Self { follower, parts, in_a_row: 0 })
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
            part = self.parts.next() => {
                self.in_a_row += 1;
                Ok(Some(part))
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
async fn receive(run: RecordedRun, which: Parts, parts: mpsc::Sender<Update>) {
    let mut is_refused = false;
    loop {
        match DeltaStream::open(&*run, which).await {
            Ok(mut stream) => {
                while let Ok(Some(part)) = stream.next().await {
                    if parts.send(Update::Part(Arc::new(part))).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Other && !is_refused => {
                is_refused = true;
                if parts.send(Update::NoParts(error.to_string())).await.is_err() {
                    return;
                }
            }
            // No process drives the run now.
            Err(_) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}
