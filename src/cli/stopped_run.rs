//! Opens a run that no process drives, for the verbs that write to it.

use super::complain;
use super::locate::{Project, drivable};
use super::{paint, refusal};
use crate::exit::Exit;
use crate::journal::cut::{Cut, CutError};
use crate::journal::source::RecordedRun;
use crate::run::StoppedRun;

/// Opens a run and prints what had to be cut from its journal. If it cannot be opened, prints why
/// and what to do.
pub(super) fn open(project: &Project, run: &RecordedRun, cut: Cut) -> Result<StoppedRun, Exit> {
    drivable(run)?;
    let opened = paint::working("reading the journal", |progress| {
        progress.set_total(run.size());
        StoppedRun::open_watched(run.clone(), cut, |bytes| progress.set_done(bytes))
    });
    let stopped = opened.map_err(|error| refused(project, run, cut, &error))?;
    if let Some(kept) = stopped.kept() {
        let what = match cut {
            Cut::Torn => "the torn end of the journal, left by a crash, was cut",
            Cut::From(_) => "the journal was cut as asked",
        };
        complain(&format!(
            "note: {what}: {} bytes from byte {} on are kept in {}",
            kept.bytes,
            kept.offset,
            kept.path.display()
        ));
    }
    if let Some(loss) = stopped.loss() {
        complain(&format!(
            "note: the run resumes without what was recorded {}",
            refusal::loss_in_words(loss)
        ));
    }
    Ok(stopped)
}

/// Prints why a run cannot be opened, or not cut at the record that the user named.
pub(super) fn refused(project: &Project, run: &RecordedRun, cut: Cut, error: &CutError) -> Exit {
    let flags = project.flags();
    if let CutError::Journal(error) = error {
        return refusal::refused(&flags, Some(run), error);
    }
    complain(&format!("error: {error}"));
    let run = run.name();
    // A fork at a record of the sound part of the journal loses nothing.
    let (there, sound, exit) = match error {
        CutError::Beginning(_) => {
            (format!("`callsheet run{flags}` starts a new run"), 0, Exit::Disk)
        }
        CutError::Elsewhere { seq, .. } => {
            (format!("--truncate-at {seq} cuts it there"), *seq, Exit::Usage)
        }
        CutError::Sound | CutError::Journal(_) => {
            let resume = project.resume_command(&run);
            (format!("`{resume}` resumes it as it is"), u64::MAX, Exit::Usage)
        }
    };
    let fork = match cut {
        Cut::From(seq) if (2..=sound).contains(&seq) => format!(
            "; `callsheet fork{flags} {run}@{}` makes a new run that continues from there, and \
             nothing is lost",
            seq - 1
        ),
        Cut::From(_) | Cut::Torn => String::new(),
    };
    complain(&format!("help: {there}{fork}"));
    exit
}
