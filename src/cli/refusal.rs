//! Messages, hints and exit codes for a journal that cannot be used: the same for every verb.

use std::path::Path;

use super::complain;
use crate::exit::Exit;
use crate::journal::cut::Loss;
use crate::journal::refusal::{Refusal, Why};
use crate::journal::results::{self, Origin};
use crate::journal::source::RecordedRun;
use crate::journal::{JournalError, local};
use crate::store::StoreError;

/// Prints why the journal of a run cannot be used and what to do about it, and returns the exit
/// code. `flags` are those by which another verb finds the run.
pub(super) fn refused(flags: &str, run: Option<&RecordedRun>, error: &JournalError) -> Exit {
    let place = run.filter(|_| is_of_content(error));
    let place = place.map(|run| format!("{}: ", run.records_place().display())).unwrap_or_default();
    complain(&format!("error: {place}{error}"));
    advise(flags, run, error);
    exit_of(error)
}

/// Prints what to do about a journal that cannot be used, if there is anything to do.
pub(super) fn advise(flags: &str, run: Option<&RecordedRun>, error: &JournalError) {
    if let Some(help) = help(flags, run, error) {
        complain(&format!("help: {help}"));
    }
}

/// Returns the exit code for a journal that cannot be used.
fn exit_of(error: &JournalError) -> Exit {
    match error {
        JournalError::Locked { .. } => Exit::Held,
        JournalError::Exists(_) | JournalError::NotLocal { .. } => Exit::Usage,
        JournalError::NeverBegan => Exit::Failed,
        JournalError::Full
        | JournalError::Io(_)
        | JournalError::Refused(_)
        | JournalError::Lost { .. }
        | JournalError::RolledBack { .. }
        | JournalError::Replaced { .. }
        | JournalError::Copy { .. }
        | JournalError::BadResult(_)
        | JournalError::Closed => Exit::Disk,
    }
}

/// Returns the word that stands for the state of a run whose journal cannot be used.
pub(super) fn word(error: &JournalError) -> &'static str {
    match error {
        JournalError::NeverBegan => "empty",
        JournalError::Lost { .. }
        | JournalError::RolledBack { .. }
        | JournalError::Replaced { .. } => "lost",
        JournalError::Refused(refusal) if !is_of_another(&refusal.why) => "damaged",
        JournalError::Copy { .. } => "copy",
        _ => "unreadable",
    }
}

/// Returns true if the error is about content of the journal, or about content that is missing.
fn is_of_content(error: &JournalError) -> bool {
    matches!(
        error,
        JournalError::Refused(_)
            | JournalError::NeverBegan
            | JournalError::Lost { .. }
            | JournalError::RolledBack { .. }
            | JournalError::Replaced { .. }
    )
}

/// Returns true if another version of callsheet may be able to read the journal.
fn is_of_another(why: &Why) -> bool {
    match why {
        Why::Unreadable(_) | Why::Newer(_) | Why::Critical(_) => true,
        Why::Damaged(_) | Why::Gone | Why::Order(_) | Why::Amid | Why::Illegal(_) => false,
    }
}

fn help(flags: &str, run: Option<&RecordedRun>, error: &JournalError) -> Option<String> {
    let anew = format!("start a new run with `callsheet run{flags}`");
    Some(match error {
        JournalError::Refused(refusal) => past(flags, run, refusal),
        JournalError::NeverBegan => match run {
            Some(run) => format!("{anew}; {} can be removed", run.place().display()),
            None => anew,
        },
        JournalError::Lost { .. } => "put journal.jsonl back from a copy: without it the run \
                                      cannot be resumed, and what was done is not known"
            .to_owned(),
        JournalError::RolledBack { last, .. } | JournalError::Replaced { last, .. } => format!(
            "put the right journal.jsonl back if there is one. `callsheet resume{flags} {} \
             --truncate-at {}` goes on without what was lost: transcripts and logs that tell of it are \
             kept in a folder, and calls that they tell of are not run again; with --explain it only \
             says so",
            run.map_or_else(|| "RUN".to_owned(), |run| run.name()),
            last + 1
        ),
        JournalError::Copy { run: original, .. } => format!(
            "keep copies elsewhere. `callsheet fork{flags} {0}` begins a new run with what it did; \
             if the run itself is gone, name the folder {original} again",
            run.map_or_else(|| "RUN".to_owned(), |run| run.name())
        ),
        JournalError::BadResult(StoreError { path, .. }) => {
            return without_result(flags, path);
        }
        JournalError::Exists(path) => {
            let run = local::run_at(path);
            match run.first() {
                Ok(_) => format!(
                    "that run has begun: `callsheet resume{flags} {}` resumes it; another run \
                     needs another id",
                    run.name()
                ),
                Err(JournalError::NeverBegan) if run.is_live() => {
                    "a process is just beginning it; another run needs another id".to_owned()
                }
                Err(JournalError::NeverBegan) => {
                    "that run never began, so nothing was done: remove the directory, or name \
                     another id"
                        .to_owned()
                }
                Err(error) => format!("{error}; another run needs another id"),
            }
        }
        JournalError::Full
        | JournalError::Io(_)
        | JournalError::Locked { .. }
        | JournalError::NotLocal { .. }
        | JournalError::Closed => return None,
    })
}

/// Returns the hint for a record that was refused: how to resume before it.
fn past(flags: &str, run: Option<&RecordedRun>, refusal: &Refusal) -> String {
    let whose = match refusal.why {
        Why::Newer(_) | Why::Critical(_) => "a newer callsheet wrote it: use that version. ",
        Why::Unreadable(_) => "a newer callsheet may have written it: use that version. ",
        Why::Illegal(_) => "the records contradict each other. ",
        Why::Damaged(_) | Why::Gone | Why::Order(_) | Why::Amid => {
            "what was recorded from there on cannot be trusted. "
        }
    };
    let line = refusal.line;
    if run.is_some_and(|run| !has_batch_before(run, line)) {
        return format!(
            "{whose}Nothing would be left before it: `callsheet run{flags}` starts a new run"
        );
    }
    let run = run.map_or_else(|| "RUN".to_owned(), |run| run.name());
    format!(
        "{whose}`callsheet resume{flags} {run} --truncate-at {line}` cuts the journal there, keeps \
         the cut part in a file and resumes before it: what was done since may be done again, or \
         be reported as unknown; with --explain it only says what would be lost"
    )
}

/// Returns true if the first batch of a journal can be read and ends before record `seq`.
fn has_batch_before(run: &RecordedRun, seq: u64) -> bool {
    let first = run.first().unwrap_or_default();
    first.last().is_some_and(|last| last.seq < seq)
}

/// Returns the hint for a stored result that is missing or damaged. Returns `None` if no record
/// names the result, or if the journal cannot be read, which is an error of its own.
fn without_result(flags: &str, path: &Path) -> Option<String> {
    let (run, result) = (local::run_at(path.ancestors().nth(2)?), path.file_name()?.to_str()?);
    let Origin { task, before, named } = results::origin(&*run, result).ok()??;
    let task = task.map(|task| format!("task `{task}` made it. ")).unwrap_or_default();
    let run = run.name();
    Some(format!(
        "{task}Put the file back, or have it made again: `callsheet fork{flags} {run}@{before}` \
         makes a new run that continues from before it was made. `callsheet resume{flags} {run} \
         --truncate-at {named}` cuts the journal where it is first named, and keeps the cut part \
         in a file"
    ))
}

/// Describes what is lost with the end of a journal.
pub(super) fn loss_in_words(loss: &Loss) -> String {
    let Loss { offset, records, damaged, ended, calls, replies } = loss;
    let records = counted(*records, "sound record");
    let damaged = match damaged {
        0 => String::new(),
        bytes => format!(" and {}", counted(*bytes, "damaged byte")),
    };
    let tasks: Vec<_> = ended.iter().map(|task| format!("`{task}`")).collect();
    let tasks = match tasks.len() {
        0 => "the end of no task".to_owned(),
        1 => format!("the end of task {}", tasks[0]),
        _ => format!("the ends of tasks {}", tasks.join(", ")),
    };
    let (calls, replies) =
        (counted(calls.len() as u64, "tool call"), counted(*replies, "model call"));
    format!(
        "from byte {offset} on: {records}{damaged}; among them {tasks}, {calls}, {replies}: what \
         they did may be done again, or be reported as unknown"
    )
}

fn counted(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
