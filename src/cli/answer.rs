//! `approve`, `reject` and `answer`: answer a question of a run, with or without a process that
//! drives it.

use super::locate::Project;
use super::questions::{self, Named, Pending};
use super::rows::folded;
use super::stream::{Stream, complain_in_lines};
use super::{args, complain, refusal, runtime};
use crate::client::{Client, ClientError, Given};
use crate::exit::Exit;
use crate::run::control;
use crate::show::question::safe;
use crate::turn::question::{ANSWER_BYTES, ApprovalKind, BY_TIMEOUT, PersonsAnswer};

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
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let client = Client::of(pending.run.clone());
    match runtime.block_on(client.answer(answer)) {
        Ok(given) => outcome(project, &pending, allowed, given),
        Err(ClientError::Journal(error)) => {
            refusal::refused(&project.flags(), Some(&pending.run), &error)
        }
        Err(error) => {
            complain(&format!("error: {error}"));
            Exit::Failed
        }
    }
}

/// Says what became of an answer.
fn outcome(project: &Project, pending: &Pending, allowed: bool, given: Given) -> Exit {
    match given {
        Given::Counted => {
            complain(if allowed { "answered" } else { "rejected" });
            Exit::Done
        }
        Given::Left => {
            complain("recorded; no process drives the run, which takes it up when it is resumed:");
            complain(&format!("  {}", project.resume_command(&project.short(&pending.run))));
            Exit::Done
        }
        Given::Late { by, at_ms, allowed } => late(project, &by, at_ms, allowed),
        Given::Over { at_ms } => {
            let when = project.times.day_and_time(at_ms);
            complain(&format!(
                "its time was over at {when}: its `on_timeout` answers when the run is resumed"
            ));
            Exit::Failed
        }
        // No message has the id of a question.
        Given::Closed | Given::Queued(_) | Given::NotSent(_) => {
            complain("error: the question is no longer open");
            Exit::Failed
        }
    }
}

/// Says who answered first, and when.
fn late(project: &Project, by: &str, at_ms: i64, allowed: bool) -> Exit {
    let when = project.times.day_and_time(at_ms);
    let what = if allowed { "yes" } else { "no" };
    complain(&match by {
        BY_TIMEOUT => format!("its time was over at {when}: the answer was {what}"),
        by => format!("it is answered already: {what}, at {when}, by {}", safe(by)),
    });
    Exit::Failed
}
