//! The door to a run for whoever watches and steers it: updates come in, operations go out, and each operation is
//! acknowledged.
//!
//! Owns the way that each of them takes: to the supervisor in this process, over the control socket of the process
//! that drives the run, or, for an answer, into the records of a run that no process drives. Prints nothing.

mod answering;
mod updates;

use std::io;
use std::sync::Arc;

pub use self::answering::Given;
pub use self::updates::{Parts, Update, Updates};

use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::live::Live;
use crate::journal::source::{Cursor, RecordedRun};
use crate::run::control::{self, Request};
use crate::run::delta_feed::DeltaFeed;
use crate::run::{CancelTarget, Remote, Run};
use crate::turn::question::{AnswerOutcome, PersonsAnswer};

/// What a person or a program wants of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Stop the run, a task, or an agent with its children.
    Cancel {
        /// What is stopped.
        target: CancelTarget,
        /// The reason that is recorded; `None`: `cancelled by a person`.
        reason: Option<String>,
    },
    /// Compact an agent at its next turn boundary.
    Compact {
        /// The agent.
        agent: AgentId,
        /// What the summary should preserve.
        focus: Option<String>,
    },
    /// Stop the run so that it can be resumed: nothing new begins, and running calls get the grace period to end.
    Interrupt {
        /// The reason that is recorded. Over the control socket it is whoever interrupts, as the kernel names them.
        reason: String,
    },
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// The supervisor of the run has it.
    Taken {
        /// With what the supervisor is busy, if it does what was asked only afterwards: `busy for 12 s with f[17]`.
        busy: Option<String>,
    },
    /// There is no such target.
    NotFound,
}

/// Reasons why nobody acknowledges an operation.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Only the process that drives a run can do this, and there is none.
    #[error("no process drives the run")]
    NotDriven,
    /// The process that drives the run refused.
    #[error("the process that drives the run refused: {0}")]
    Refused(String),
    /// The process that drives the run cannot be reached, or does not answer.
    #[error("the process that drives the run cannot be reached: {0}")]
    Unreached(#[source] io::Error),
    /// An answer could not be given, although it was tried again and again.
    #[error("the answer could not be given: {0}")]
    NotGiven(String),
    /// The run cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A client of one run. Cloning it is cheap.
///
/// ```no_run
/// # mod callsheet { pub use callsheet_engine::{client::*, run::*}; pub use callsheet_journal::journal::source::Cursor; }
/// # async fn example(run: callsheet::Run) -> Result<(), Box<dyn std::error::Error>> {
/// use callsheet::{CancelTarget, Cursor, Operation, Parts, Update};
///
/// let client = run.client();
/// let mut updates = client.updates(Cursor::START, Parts::None)?;
/// while let Some(update) = updates.next().await? {
///     if let Update::Record(record) = update
///         && record.seq > 10_000
///     {
///         let (target, reason) = (CancelTarget::Run, Some("it talks too much".to_owned()));
///         client.send(Operation::Cancel { target, reason }).await?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    run: RecordedRun,
    /// The run in this process; `None`: another process drives it, or none does.
    here: Option<Here>,
}

/// The parts of a run that this process drives.
#[derive(Clone, Debug)]
struct Here {
    remote: Remote,
    live: Live,
    feed: Arc<DeltaFeed>,
}

impl Run {
    /// Returns a client of this run.
    #[must_use]
    pub fn client(&self) -> Client {
        let (live, feed) = self.feeds();
        let here = Here { remote: self.remote(), live, feed };
        Client { run: self.recorded().clone(), here: Some(here) }
    }
}

impl Client {
    /// Returns a client of a run that another process drives, or none.
    #[must_use]
    pub fn of(run: impl Into<RecordedRun>) -> Self {
        Self { run: run.into(), here: None }
    }

    /// Returns the run, for those who read it.
    #[doc(hidden)]
    #[must_use]
    pub fn run(&self) -> &RecordedRun {
        &self.run
    }

    /// Returns the updates of the run behind a cursor, until the run has ended or no process drives it. For the
    /// parts of a run that another process drives, it is called within a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the records cannot be opened.
    pub fn updates(&self, from: Cursor, parts: Parts) -> Result<Updates, JournalError> {
        Updates::open(self, from, parts)
    }

    /// Does what is wanted of the run, and returns what became of it, within 10 seconds.
    ///
    /// # Errors
    /// Returns an error if nobody can tell what became of it.
    pub async fn send(&self, operation: Operation) -> Result<Acknowledgement, ClientError> {
        match &self.here {
            Some(here) => here.perform(operation).await,
            None => {
                let run = self.run.clone();
                blocking(move || over_the_socket(&run, operation)).await
            }
        }
    }

    /// Answers a question of the run, and returns what became of the answer. Where a process begins or ends to drive
    /// the run, that takes up to 30 seconds.
    ///
    /// # Errors
    /// Returns an error if nobody can tell what became of it.
    pub async fn answer(&self, answer: PersonsAnswer) -> Result<Given, ClientError> {
        match &self.here {
            Some(here) => here.answer(answer).await,
            None => {
                let run = self.run.clone();
                blocking(move || answering::give(&run, &answer)).await
            }
        }
    }

    /// Returns with what the supervisor of the run is busy, if it is for longer than a second. Blocks for a second at
    /// most.
    #[must_use]
    pub fn busy(&self) -> Option<String> {
        match &self.here {
            Some(here) => here.remote.busy().map(|busy| busy.to_string()),
            None => control::busy(&*self.run),
        }
    }
}

impl Here {
    async fn perform(&self, operation: Operation) -> Result<Acknowledgement, ClientError> {
        let found = match operation {
            Operation::Cancel { target, reason } => {
                let reason = reason.as_deref().unwrap_or(control::CANCELLED);
                self.remote.cancel(target, reason).await
            }
            Operation::Compact { agent, focus } => self.remote.compact(agent, focus).await,
            Operation::Interrupt { reason } => self.remote.interrupt(&reason),
        };
        match found {
            false if self.remote.is_over() => Err(ClientError::NotDriven),
            found => Ok(acknowledged(found, None)),
        }
    }

    async fn answer(&self, answer: PersonsAnswer) -> Result<Given, ClientError> {
        let by = answer.by.clone();
        let outcome = self.remote.answer(answer).await.ok_or(ClientError::NotDriven)?;
        Ok(Given::of(outcome, &by).unwrap_or(Given::Closed))
    }
}

/// Does what looks at files and waits for a socket.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ClientError> + Send + 'static,
) -> Result<T, ClientError> {
    // The task panics only by a bug, and is cancelled only with the runtime.
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ClientError::Unreached(error.into())))
}

fn acknowledged(found: bool, busy: Option<String>) -> Acknowledgement {
    if found { Acknowledgement::Taken { busy } } else { Acknowledgement::NotFound }
}

fn over_the_socket(
    run: &RecordedRun,
    operation: Operation,
) -> Result<Acknowledgement, ClientError> {
    match control::ask(&**run, &request(operation)) {
        Ok(control::Answer { error: Some(error), .. }) => Err(ClientError::Refused(error)),
        Ok(control::Answer { found, busy, .. }) => Ok(acknowledged(found, busy)),
        Err(_) if !run.is_live() => Err(ClientError::NotDriven),
        Err(error) => Err(ClientError::Unreached(error)),
    }
}

fn request(operation: Operation) -> Request {
    match operation {
        Operation::Cancel { target, reason } => {
            let (task, agent) = match target {
                CancelTarget::Run => (None, None),
                CancelTarget::Task(task) => (Some(task), None),
                CancelTarget::Agent(agent) => (None, Some(agent)),
            };
            Request::Cancel { task, agent, reason }
        }
        Operation::Compact { agent, focus } => Request::Compact { agent, focus },
        Operation::Interrupt { .. } => Request::Interrupt,
    }
}

impl Given {
    /// Returns what its outcome says of an answer by `by`; `None` if only the records can tell.
    fn of(outcome: AnswerOutcome, by: &str) -> Option<Self> {
        match outcome {
            AnswerOutcome::Counted => Some(Self::Counted),
            AnswerOutcome::Queued(queued) => Some(Self::Queued(queued)),
            AnswerOutcome::NotSent(reason) => Some(Self::NotSent(reason)),
            // It was given before, and its acknowledgement was lost.
            AnswerOutcome::Late { by: first, .. } if first == by => Some(Self::Counted),
            AnswerOutcome::Late { by, at_ms, allowed } => Some(Self::Late { by, at_ms, allowed }),
            AnswerOutcome::Closing | AnswerOutcome::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::journal::held::HeldRun;
    use crate::journal::samples::{record, turn};
    use crate::show::log_line::{Reasons, line_of};

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_kept_elsewhere_is_watched_to_its_end() {
        let held = HeldRun::new("run");
        held.set_live(true);
        let client = Client::of(held.clone());
        let mut updates = client.updates(Cursor::START, Parts::All).expect("opened");
        let records: Vec<_> = (1..=20).map(|seq| Arc::new(record(seq, turn("a", 1)))).collect();
        let expected: Vec<_> =
            records.iter().map(|record| line_of(record, Reasons::Whole)).collect();
        let writer = tokio::spawn(async move {
            for record in records {
                tokio::time::sleep(Duration::from_millis(record.seq * 7)).await;
                held.add(vec![record]);
            }
            held.set_live(false);
        });
        let (mut lines, mut why) = (Vec::new(), None);
        while let Some(update) = updates.next().await.expect("readable") {
            match update {
                Update::Record(record) => lines.push(line_of(&record, Reasons::Whole)),
                Update::NoParts(reason) => why = Some(reason),
                Update::Part(part) => panic!("{part:?}"),
            }
        }
        assert_eq!(lines, expected);
        assert!(why.is_some_and(|why| why.contains("another machine")));
        writer.await.expect("it wrote");
    }

    #[tokio::test]
    async fn a_run_that_is_kept_elsewhere_is_not_steered_from_here() {
        let held = HeldRun::new("run");
        let client = Client::of(held.clone());
        let stop = || Operation::Interrupt { reason: "enough".to_owned() };
        let refused = client.send(stop()).await;
        assert!(matches!(refused, Err(ClientError::NotDriven)), "{refused:?}");
        held.set_live(true);
        let refused = client.send(stop()).await.expect_err("it is elsewhere").to_string();
        assert!(refused.contains("another machine"), "{refused}");
    }
}
