//! Taking up a run that no process drives, for the verbs that write to it.

use std::path::Path;

use super::complain;
use super::locate::Place;
use crate::exit::Exit;
use crate::journal::JournalError;
use crate::journal::file::RunDir;
use crate::journal::recovery::{Cut, RecoveryError};
use crate::journal::results;
use crate::run::{ReopenError, Reopened};

/// Takes a run up, says what had to be cut, or why it cannot be taken up and what to do.
pub(super) fn reopen(place: &Place, dir: &RunDir, cut: Cut) -> Result<Reopened, Exit> {
    let reopened = Reopened::open(dir, cut).map_err(|error| refused(place, dir, &error))?;
    if let Some(kept) = reopened.kept() {
        let what = match cut {
            Cut::Torn => "the end of the journal was cut short by a crash before it counted",
            Cut::From(_) => "the journal was cut as asked",
        };
        complain(&format!(
            "note: {what}: {} bytes from byte {} on are kept in {}",
            kept.bytes,
            kept.offset,
            kept.path.display()
        ));
    }
    Ok(reopened)
}

fn refused(place: &Place, dir: &RunDir, error: &ReopenError) -> Exit {
    complain(&format!("error: {error}"));
    match error {
        ReopenError::Recovery(RecoveryError::Journal(error)) => {
            if let JournalError::Damaged { line, .. } = error {
                let run = dir.path().file_name().unwrap_or_default().to_string_lossy();
                complain(&format!(
                    "help: what was recorded from there on cannot be trusted. `callsheet \
                     resume{} {run} --truncate-at {line}` cuts it, keeps it aside and goes on \
                     before it: what was done since may be done again",
                    place.flags()
                ));
            }
            exit_of(error)
        }
        ReopenError::Recovery(RecoveryError::Critical(_)) => Exit::Disk,
        ReopenError::Recovery(RecoveryError::Empty) => {
            complain("help: nothing was done yet: remove its directory and start anew");
            Exit::Failed
        }
        ReopenError::Recovery(RecoveryError::Sound | RecoveryError::Outside { .. }) => Exit::Usage,
        ReopenError::Illegal(_) => Exit::Bug,
    }
}

/// Says what to do about a stored result that is not what was recorded.
pub(super) fn help_with_result(place: &Place, error: &JournalError) {
    let JournalError::BadResult { path, .. } = error else { return };
    // A journal that cannot be read is told of by itself.
    let Ok(Some(origin)) = results::origin(path) else { return };
    let whose = origin.task.map(|task| format!("task `{task}` made it. ")).unwrap_or_default();
    let run = path.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default();
    complain(&format!(
        "help: {whose}Put the file back, or have it made again: `callsheet fork{} {}@{}` is a new \
         run that goes on before it was made",
        place.flags(),
        run.to_string_lossy(),
        origin.before
    ));
}

/// How the program ends when the journal cannot be had.
pub(super) fn exit_of(error: &JournalError) -> Exit {
    match error {
        JournalError::Locked { .. } => Exit::Held,
        JournalError::Exists(_) | JournalError::NotLocal { .. } => Exit::Usage,
        JournalError::Full
        | JournalError::Io(_)
        | JournalError::Damaged { .. }
        | JournalError::BadResult { .. }
        | JournalError::Newer(_)
        | JournalError::Closed => Exit::Disk,
    }
}
