//! An answer to a run that another process drives, or none: over the control socket, or left for the next process.
//!
//! Either process may begin or end at any moment, so what became of an answer is read from the records.

use std::time::{Duration, Instant};

use super::ClientError;
use crate::journal::JournalError;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::messages::Queued;
use crate::run::answers::{self, LeftAnswer};
use crate::run::control::{self, Request};
use crate::run_machine::Errand;
use crate::run_machine::messages::read_said;
use crate::run_state::{RunPhase, RunState};
use crate::trust::Store;
use crate::turn::question::PersonsAnswer;

/// The longest wait for a process that begins or ends to drive the run.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause between two looks at such a process.
const LOOK: Duration = Duration::from_millis(20);

/// What became of an answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// It is the answer.
    Counted,
    /// It is the answer, for the next process that drives the run.
    Left,
    /// It is a message, and durable.
    Queued(Queued),
    /// It is a message that cannot be sent, for this reason.
    NotSent(String),
    /// Another answer came first.
    Late {
        /// Whoever gave it.
        by: String,
        /// When, in milliseconds since the Unix epoch.
        at_ms: i64,
        /// True if it was a yes.
        allowed: bool,
    },
    /// The time for it was over, and no process has recorded the answer of the question itself.
    Over {
        /// The end of its time, in milliseconds since the Unix epoch.
        at_ms: i64,
    },
    /// Nobody waits for an answer: whoever asked has ended, or there is no such question.
    Closed,
}

/// Gives an answer to the process that drives the run, or leaves it for the next one. Blocks.
pub(super) fn give(run: &RecordedRun, answer: &PersonsAnswer) -> Result<Given, ClientError> {
    let given = given(run, answer);
    let is_sent = !matches!(given, Ok(Given::NotSent(_)) | Err(ClientError::NotGiven(_)));
    if Errand::of(&answer.id) == Errand::Message && !is_sent {
        // Whoever reads that it is not sent will send another one.
        let _ = answers::remove(&**run, &answer.id);
    }
    given
}

fn given(run: &RecordedRun, answer: &PersonsAnswer) -> Result<Given, ClientError> {
    let begun = Instant::now();
    let mut trouble = "the process that drives the run does not answer".to_owned();
    while begun.elapsed() < PATIENCE {
        let until_ms = match recorded(run, answer)? {
            Recorded::Given(given) => return Ok(given),
            Recorded::Open { until_ms } => until_ms,
        };
        let given = match run.is_live() {
            true => to_the_owner(run, answer, &mut trouble),
            false => leave(run, answer, until_ms, &mut trouble)?,
        };
        if let Some(given) = given {
            return Ok(given);
        }
        std::thread::sleep(LOOK);
    }
    Err(ClientError::NotGiven(trouble))
}

/// Returns what the process that drives the run says; `None` if only the records can tell.
fn to_the_owner(run: &RecordedRun, answer: &PersonsAnswer, trouble: &mut String) -> Option<Given> {
    match control::ask(&**run, &Request::Answer(answer.clone())) {
        Ok(control::Answer { outcome: Some(outcome), .. }) => Given::of(outcome, &answer.by),
        Ok(control::Answer { error: Some(error), .. }) => {
            *trouble = error;
            None
        }
        Ok(control::Answer { busy: Some(busy), .. }) => {
            *trouble = format!("the supervisor of the run is {busy}");
            None
        }
        Ok(_) => None,
        Err(error) => {
            *trouble = error.to_string();
            None
        }
    }
}

/// Leaves an answer for the next process. Returns `None` if a process has begun to drive the run
/// meanwhile: that one decides.
fn leave(
    run: &RecordedRun,
    answer: &PersonsAnswer,
    until_ms: Option<i64>,
    trouble: &mut String,
) -> Result<Option<Given>, ClientError> {
    let now = stamp::now_ms();
    if let Some(at_ms) = until_ms.filter(|until| *until <= now) {
        return Ok(Some(Given::Over { at_ms }));
    }
    // What is odd stays so: trying again would only keep a person waiting.
    answers::refuse_unsafe(&**run).map_err(|error| ClientError::NotGiven(error.to_string()))?;
    if Errand::of(&answer.id).is_replaced() {
        let _ = answers::remove(&**run, &answer.id);
    }
    let left = LeftAnswer { answer: answer.clone(), at_ms: now };
    match answers::leave(&**run, &left, &Store::of_user()) {
        Ok(Some(first)) if first.answer.by != answer.by => {
            let LeftAnswer { answer: PersonsAnswer { by, allowed, .. }, at_ms } = first;
            return Ok(Some(Given::Late { by, at_ms, allowed }));
        }
        Ok(_) => {}
        Err(error) => {
            *trouble = error.to_string();
            return Ok(None);
        }
    }
    // A process that takes the run from now on reads the file before anything else.
    if run.is_live() {
        return Ok(None);
    }
    // The last process may have recorded another answer before the file was made.
    match recorded(run, answer)? {
        Recorded::Given(Given::Counted) | Recorded::Open { .. } => Ok(Some(Given::Left)),
        Recorded::Given(other) => {
            // A file that stays is removed by the next process.
            let _ = answers::remove(&**run, &answer.id);
            Ok(Some(other))
        }
    }
}

/// What the records say of a question.
enum Recorded {
    Given(Given),
    /// It is open, until this time if it has one.
    Open {
        until_ms: Option<i64>,
    },
}

fn recorded(run: &RecordedRun, answer: &PersonsAnswer) -> Result<Recorded, JournalError> {
    let state = state(run)?;
    if Errand::of(&answer.id) != Errand::Answer {
        if let Some(queued) = sent(&state, answer) {
            return Ok(Recorded::Given(Given::Queued(queued)));
        }
        return Ok(match state.phase() {
            RunPhase::Completed(_) => Recorded::Given(Given::Closed),
            RunPhase::Open | RunPhase::Paused => Recorded::Open { until_ms: None },
        });
    }
    let questions = state.questions();
    Ok(match (questions.answer(&answer.id), questions.get(&answer.id)) {
        (Some(first), _) if first.answer.by.as_ref() == Some(&answer.by) => {
            Recorded::Given(Given::Counted)
        }
        (Some(first), _) => Recorded::Given(Given::Late {
            by: first.answer.by.clone().unwrap_or_else(|| "a person".to_owned()),
            at_ms: first.at_ms,
            allowed: first.answer.allowed,
        }),
        (None, Some(open)) => Recorded::Open { until_ms: open.asked.until_ms },
        (None, None) => Recorded::Given(Given::Closed),
    })
}

/// Returns the message that a person's answer has sent.
fn sent(state: &RunState, answer: &PersonsAnswer) -> Option<Queued> {
    let sent = state.messages().of_person(&answer.id)?;
    let to = read_said(answer)?.agent;
    Some(Queued { id: sent.id, to, before: sent.before, returned: sent.returned.clone() })
}

/// Reads the state of a run. It is empty while the run's first records are being written.
fn state(run: &RecordedRun) -> Result<RunState, JournalError> {
    match run.state(|_| {}) {
        (state, Ok(())) => Ok(state),
        (state, Err(JournalError::NeverBegan)) if run.is_live() => Ok(state),
        (_, Err(error)) => Err(error),
    }
}
