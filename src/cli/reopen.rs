//! Taking up a run that no process drives, for the verbs that write to it.

use super::complain;
use super::locate::Place;
use super::refusal;
use crate::exit::Exit;
use crate::journal::file::RunDir;
use crate::journal::recovery::{Cut, RecoveryError};
use crate::run::Reopened;

/// Takes a run up, says what had to be cut, or why it cannot be taken up and what to do.
pub(super) fn reopen(place: &Place, dir: &RunDir, cut: Cut) -> Result<Reopened, Exit> {
    let reopened = Reopened::open(dir, cut).map_err(|error| refused(place, dir, cut, &error))?;
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
    if let Some(loss) = reopened.loss() {
        complain(&format!("note: the run goes on without what stood {}", refusal::told(loss)));
    }
    Ok(reopened)
}

/// Says why a run cannot be taken up, or not as asked.
pub(super) fn refused(place: &Place, dir: &RunDir, cut: Cut, error: &RecoveryError) -> Exit {
    let flags = place.flags();
    if let RecoveryError::Journal(error) = error {
        return refusal::refused(&flags, Some(dir), error);
    }
    complain(&format!("error: {error}"));
    let run = refusal::name(dir);
    // Where it is sound up to, a fork begins without any loss.
    let (there, sound, exit) = match error {
        RecoveryError::Beginning(_) => {
            (format!("`callsheet run{flags}` starts anew"), 0, Exit::Disk)
        }
        RecoveryError::Elsewhere { seq, .. } => {
            (format!("--truncate-at {seq} cuts it there"), *seq, Exit::Usage)
        }
        RecoveryError::Sound | RecoveryError::Journal(_) => {
            let resume = place.resume_command(&run);
            (format!("`{resume}` goes on with it as it is"), u64::MAX, Exit::Usage)
        }
    };
    let fork = match cut {
        Cut::From(seq) if (2..=sound).contains(&seq) => format!(
            "; `callsheet fork{flags} {run}@{}` makes a run that goes on from there, and nothing is \
             lost",
            seq - 1
        ),
        Cut::From(_) | Cut::Torn => String::new(),
    };
    complain(&format!("help: {there}{fork}"));
    exit
}
