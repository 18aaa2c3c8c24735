//! `approve`, `reject` and `answer`: answer a question of a run, with or without a process that
//! drives it.

use std::time::{Duration, Instant};

use super::locate::{Project, local};
use super::questions::{self, Named, Pending};
use super::rows::folded;
use super::stream::{Stream, complain_in_lines};
use super::{args, complain};
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::run::answers::{self, LeftAnswer};
use crate::run::control::{self, Request};
use crate::show::question::safe;
use crate::trust::Store;
use crate::turn::question::{ANSWER_BYTES, ApprovalKind, BY_TIMEOUT, PersonsAnswer, Verdict};

/// The longest wait for a process that begins or ends to drive the run.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause between two looks at such a process.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn approve(project: &Project, verb: &args::Approve) -> Exit {
    run(project, &verb.id, Said::Yes)
}

pub(super) fn reject(project: &Project, verb: &args::Reject) -> Exit {
    run(project, &verb.id, Said::No(verb.reason.clone()))
}

pub(super) fn answer(project: &Project, verb: &args::Answer) -> Exit {
    run(project, &verb.id, Said::Words(verb.text.join(" ")))
}

/// What a person says to a question.
enum Said {
    Yes,
    No(Option<String>),
    Words(String),
}

fn run(project: &Project, id: &str, said: Said) -> Exit {
    let pending = match questions::find(project, id) {
        Ok(Named::Open(pending)) => pending,
        Ok(Named::Answered(first)) => {
            let by = first.answer.by.clone().unwrap_or_else(|| "a person".to_owned());
            return late(project, &by, first.at_ms, first.answer.allowed);
        }
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Exit::Failed;
        }
    };
    let (allowed, text) = match (said, pending.kind()) {
        (Said::Yes, ApprovalKind::Question) => {
            complain("error: this is a question in words: use `callsheet answer ID TEXT`");
            return Exit::Usage;
        }
        (Said::Words(_), ApprovalKind::Permission | ApprovalKind::Approval) => {
            complain("error: this needs a yes or a no: use `callsheet approve` or `reject`");
            return Exit::Usage;
        }
        (Said::Yes, _) => (true, None),
        (Said::No(reason), _) => (false, reason),
        (Said::Words(text), ApprovalKind::Question) => (true, Some(text)),
    };
    if allowed && !pending.can_be_shown() {
        complain(
            "error: what the call would do is not recorded, or its record is lost: reject it, or \
             resume the run at a terminal",
        );
        return Exit::Failed;
    }
    if text.as_ref().is_some_and(|text| text.len() > ANSWER_BYTES) {
        complain(&format!("error: the text has more than {ANSWER_BYTES} bytes"));
        return Exit::Usage;
    }
    // What is answered is shown before: an id says nothing.
    complain(&format!("{} of {}:", pending.kind().as_str(), safe(pending.who())));
    pending.lines().iter().for_each(|line| complain_in_lines(&folded(line, Stream::Err)));
    let answer =
        PersonsAnswer { id: pending.id().to_owned(), allowed, text, by: control::this_process() };
    match give(project, &pending, answer) {
        Ok(Given::Counted) => {
            complain(if allowed { "answered" } else { "rejected" });
            Exit::Done
        }
        Ok(Given::Left) => {
            complain("recorded; no process drives the run, which takes it up when it is resumed:");
            complain(&format!("  {}", project.resume_command(&pending.run.name())));
            Exit::Done
        }
        Ok(Given::Late { by, at_ms, allowed }) => late(project, &by, at_ms, allowed),
        Ok(Given::Over { at_ms }) => {
            let when = format!("{} at {}", project.times.short(at_ms), project.times.of_day(at_ms));
            complain(&format!(
                "its time was over on {when}: its `on_timeout` answers when the run is resumed"
            ));
            Exit::Failed
        }
        Ok(Given::Closed) => {
            complain("error: nobody waits for the answer any more");
            Exit::Failed
        }
        Err(Unreached::Run(exit)) => exit,
        Err(Unreached::Owner(reason)) => {
            complain(&format!("error: the answer could not be given: {reason}"));
            Exit::Failed
        }
    }
}

/// Says who answered first, and when.
fn late(project: &Project, by: &str, at_ms: i64, allowed: bool) -> Exit {
    let when = format!("{} at {}", project.times.short(at_ms), project.times.of_day(at_ms));
    let what = if allowed { "yes" } else { "no" };
    complain(&match by {
        BY_TIMEOUT => format!("its time was over on {when}: the answer was {what}"),
        by => format!("{} answered first, on {when}: {what}", safe(by)),
    });
    Exit::Failed
}

/// What became of an answer.
enum Given {
    /// It is the answer.
    Counted,
    /// It is the answer, for the next process that drives the run.
    Left,
    Late {
        by: String,
        at_ms: i64,
        allowed: bool,
    },
    /// The time for it was over, and no process has recorded the answer of the question itself.
    Over {
        at_ms: i64,
    },
    /// Whoever asked has ended.
    Closed,
}

/// The reason why nobody can tell what became of an answer.
enum Unreached {
    /// The run cannot be read; this is said already.
    Run(Exit),
    Owner(String),
}

/// Gives an answer to the process that drives the run, or leaves it for the next one. Either may
/// begin or end at any moment, so what became of the answer is read from the records.
fn give(project: &Project, pending: &Pending, answer: PersonsAnswer) -> Result<Given, Unreached> {
    let (run, begun) = (&pending.run, Instant::now());
    let mut trouble = "the process that drives the run does not answer".to_owned();
    while begun.elapsed() < PATIENCE {
        if let Some(given) = recorded(project, run, &answer)? {
            return Ok(given);
        }
        if run.is_live() {
            match control::ask(&**run, &Request::Answer(answer.clone())) {
                Ok(control::Answer { verdict: Some(verdict), .. }) => match verdict {
                    Verdict::Counted => return Ok(Given::Counted),
                    Verdict::Late { by, .. } if by == answer.by => return Ok(Given::Counted),
                    Verdict::Late { by, at_ms, allowed } => {
                        return Ok(Given::Late { by, at_ms, allowed });
                    }
                    // The records tell more, once this process has gone.
                    Verdict::Closing | Verdict::Unknown => {}
                },
                Ok(control::Answer { error: Some(error), .. }) => trouble = error,
                Ok(control::Answer { busy: Some(busy), .. }) => {
                    trouble = format!("the supervisor of the run is {busy}");
                }
                Ok(_) => {}
                Err(error) => trouble = error.to_string(),
            }
        } else if let Some(given) = left(project, pending, &answer, &mut trouble)? {
            return Ok(given);
        }
        std::thread::sleep(LOOK);
    }
    Err(Unreached::Owner(trouble))
}

/// Leaves an answer for the next process. Returns `None` if a process has begun to drive the run
/// meanwhile: that one decides.
fn left(
    project: &Project,
    pending: &Pending,
    answer: &PersonsAnswer,
    trouble: &mut String,
) -> Result<Option<Given>, Unreached> {
    let now = stamp::now_ms();
    if let Some(until) = pending.question.asked.until_ms.filter(|until| *until <= now) {
        return Ok(Some(Given::Over { at_ms: until }));
    }
    let run = &pending.run;
    // What is odd stays so: trying again would only keep a person waiting.
    let dir = local(run).map_err(Unreached::Run)?;
    dir.refuse_unsafe().map_err(|error| Unreached::Owner(error.to_string()))?;
    match answers::leave(dir, &LeftAnswer { answer: answer.clone(), at_ms: now }, &Store::of_user())
    {
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
    match recorded(project, run, answer)? {
        Some(Given::Counted) | None => Ok(Some(Given::Left)),
        Some(other) => {
            // A file that stays is removed by the next process.
            let _ = answers::remove(dir, &answer.id);
            Ok(Some(other))
        }
    }
}

/// Returns what the records say of the question; `None` if it is open.
fn recorded(
    project: &Project,
    run: &RecordedRun,
    answer: &PersonsAnswer,
) -> Result<Option<Given>, Unreached> {
    let state = project.state(run).map_err(Unreached::Run)?;
    let questions = state.questions();
    Ok(match (questions.answer(&answer.id), questions.get(&answer.id)) {
        (Some(first), _) if first.answer.by.as_ref() == Some(&answer.by) => Some(Given::Counted),
        (Some(first), _) => Some(Given::Late {
            by: first.answer.by.clone().unwrap_or_else(|| "a person".to_owned()),
            at_ms: first.at_ms,
            allowed: first.answer.allowed,
        }),
        (None, Some(_)) => None,
        (None, None) => Some(Given::Closed),
    })
}
