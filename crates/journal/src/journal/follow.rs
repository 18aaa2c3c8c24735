//! Follows a journal that is still growing, from any process.
//!
//! Looks again and again, with growing pauses; what this process writes it takes from the writer. The run tells if a
//! process still writes it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::event::{Event, SharedRecord};
use crate::journal::JournalError;
use crate::journal::live::{Listener, Live, Next};
use crate::journal::source::{Batches, Cursor, RecordedRun};

/// The first pause at the end of the file: short enough to feel immediate.
const SHORTEST: Duration = Duration::from_millis(10);

/// The longest pause, reached after some time without new records: five checks a second cost
/// nothing that can be measured.
const LONGEST: Duration = Duration::from_millis(200);

/// Reads a run's records to the end of the journal, and then new ones as they are written.
///
/// ```no_run
/// # mod callsheet { pub use callsheet_journal::journal::{JournalError, follow::Follower}; pub use callsheet_machines::event::Event; }
/// # async fn example(mut events: callsheet::Follower) -> Result<(), callsheet::JournalError> {
/// use callsheet::Event;
///
/// // `let mut events = run.follow()?;`
/// while let Some(record) = events.next().await? {
///     if let Event::TaskCompleted(_) = &record.event {
///         println!("{:?} is done", record.task);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Follower {
    run: RecordedRun,
    batches: Box<dyn Batches>,
    /// What the writer says, if it is in this process.
    live: Option<Listener>,
    /// The place behind what the writer gave, which `batches` has not reached.
    ahead: Option<Cursor>,
    ready: VecDeque<SharedRecord>,
    /// The state of the run according to the last record read.
    phase: Phase,
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Paused,
    Completed,
}

impl Follower {
    /// Follows a run from its first record.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be opened.
    pub fn new(run: impl Into<RecordedRun>) -> Result<Self, JournalError> {
        Self::open_at(run, Cursor::START)
    }

    /// Follows a run from the end of a batch.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be opened.
    pub fn open_at(run: impl Into<RecordedRun>, at: Cursor) -> Result<Self, JournalError> {
        let run = run.into();
        let batches = run.batches(at)?;
        Ok(Self {
            run,
            batches,
            live: None,
            ahead: None,
            ready: VecDeque::new(),
            // Who has read everything so far may have read the end: its lock is checked at once.
            phase: if at == Cursor::START { Phase::Running } else { Phase::Paused },
            pause: SHORTEST,
        })
    }

    /// Takes the records from the writer of the run, which is in this process, as long as that is quicker than to
    /// read them back.
    #[must_use]
    pub fn listening(self, live: &Live) -> Self {
        Self { live: Some(live.listen()), ..self }
    }

    /// Returns the next record as soon as there is one, or `None` once the run has completed or no
    /// process holds it any more. Dropping the future loses no record.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read or is damaged.
    pub async fn next(&mut self) -> Result<Option<SharedRecord>, JournalError> {
        loop {
            if let Some(record) = self.next_ready()? {
                return Ok(Some(record));
            }
            if self.has_ended()? {
                return self.next_ready();
            }
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(LONGEST);
        }
    }

    /// Returns the next record that can be read without waiting, or `None` at the end of the
    /// journal.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read or is damaged.
    pub fn next_ready(&mut self) -> Result<Option<SharedRecord>, JournalError> {
        while self.ready.is_empty() {
            if !self.read()? {
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Reads the next batch into `ready`. Returns false if there is no new batch.
    fn read(&mut self) -> Result<bool, JournalError> {
        let place = self.ahead.unwrap_or_else(|| self.batches.cursor());
        let records = match self.live.as_ref().map_or(Next::Read, |live| live.next(place.0)) {
            Next::Wait => return Ok(false),
            Next::Take(records, to) => {
                self.ahead = Some(to.into());
                records
            }
            Next::Read => {
                if let Some(place) = self.ahead.take() {
                    self.batches = self.run.batches(place)?;
                }
                let Some(records) = self.batches.next_batch()? else { return Ok(false) };
                records
            }
        };
        for record in &records {
            self.phase = match record.event {
                Event::RunCompleted(_) => Phase::Completed,
                Event::RunPaused(_) => Phase::Paused,
                _ => Phase::Running,
            };
        }
        self.ready.extend(records);
        self.pause = SHORTEST;
        Ok(true)
    }

    /// Returns true if no more records will come. After it found the lock free it reads once more,
    /// because the last holder may have written in between.
    fn has_ended(&mut self) -> Result<bool, JournalError> {
        match self.phase {
            Phase::Completed => return Ok(true),
            // Opening the lock file at each check is wasteful while records come: a live run's lock
            // is checked only after some time without new ones.
            Phase::Running if self.pause < LONGEST => return Ok(false),
            Phase::Running | Phase::Paused => {}
        }
        Ok(!self.run.is_live() && !self.read()?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::{Draft, RunPaused};
    use crate::journal::samples::turn;
    use crate::journal::testing::NewRun;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_follower_sees_everything_that_a_writer_writes() {
        let (dir, owned, journal) = NewRun::written(Vec::new());
        let followed = tokio::spawn({
            let mut follower = Follower::new(&*dir).unwrap();
            async move {
                let mut seen = Vec::new();
                while let Some(record) = follower.next().await.unwrap() {
                    seen.push(record);
                }
                seen
            }
        });
        let writers = (0..8u32).map(|writer| {
            let journal = journal.clone();
            tokio::spawn(async move {
                let agent = format!("agent-{writer}");
                for number in 0..100 {
                    let drafts = (0..=number % 3).map(|_| turn(&agent, number)).collect();
                    journal.append(drafts).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let paused = RunPaused { reason: "the test ends".to_owned(), cause: Default::default() };
        journal.append(vec![Draft::run(paused)]).await.unwrap();
        journal.close().await;
        drop(owned);
        let seen = followed.await.unwrap();
        let last = *journal.committed().borrow();
        assert_eq!(last, 8 * (34 + 33 * 2 + 33 * 3) + 1);
        let numbers = seen.iter().map(|record| record.seq).collect::<Vec<_>>();
        assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_run_whose_owner_died_ends_and_a_torn_end_is_not_shown() {
        let (dir, owned, journal) = NewRun::written(Vec::new());
        let made = journal.append(vec![turn("a", 1)]).await.unwrap();
        journal.close().await;
        drop(owned);
        let mut bytes = std::fs::read(dir.journal()).unwrap();
        let half = bytes[..bytes.len() / 2].to_vec();
        bytes.extend_from_slice(&half);
        std::fs::write(dir.journal(), bytes).unwrap();
        let mut follower = Follower::new(&*dir).unwrap();
        assert_eq!(follower.next().await, Ok(Some(Arc::clone(&made[0]))));
        assert_eq!(follower.next().await, Ok(None));
        assert_eq!(follower.next().await, Ok(None));
    }
}
