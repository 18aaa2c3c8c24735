//! Tells whether a journal that can be read is the one of its folder, and all of it.
//!
//! Owns the comparison with what was acknowledged, and with the name of the folder. Never writes. What it
//! refuses can be read, and must not be continued.

use std::path::Path;

use crate::id::RunId;
use crate::journal::file::RunDir;
use crate::journal::line::Position;
use crate::journal::{JournalError, acknowledged};
use crate::run_state::RunState;

/// Refuses what a resume would refuse of a run that no process drives.
///
/// # Errors
/// Returns the errors of [`refuse_copy`] and [`refuse_beyond`].
pub fn refuse_unsound(dir: &RunDir, state: &RunState) -> Result<(), JournalError> {
    if let Some(created) = state.created() {
        refuse_copy(dir, created.run)?;
    }
    refuse_beyond(dir, state.last_seq())
}

/// Refuses a folder that is named after another run than its records are of: it is a copy, and the run
/// itself may go on elsewhere, so that its effects would happen twice. A folder whose name is no id of a run
/// is nobody's copy.
///
/// # Errors
/// Returns [`JournalError::Copy`] in that case.
pub fn refuse_copy(dir: &RunDir, run: RunId) -> Result<(), JournalError> {
    let name = dir.path().file_name().map(Path::new).map(Path::to_string_lossy);
    match name.and_then(|name| RunId::parse(&name)) {
        Some(named) if named != run => {
            Err(JournalError::Copy { run, folder: dir.path().to_owned() })
        }
        _ => Ok(()),
    }
}

/// Refuses a journal that ends before a record that was acknowledged, or has another one in its place.
///
/// # Errors
/// Returns [`JournalError::RolledBack`] or [`JournalError::Replaced`] in that case.
pub fn refuse_rolled_back(dir: &RunDir, end: Position) -> Result<(), JournalError> {
    refuse_beyond(dir, end.seq.saturating_sub(1))
}

/// Does the same as [`refuse_rolled_back`] for a journal whose last record is `last`.
///
/// # Errors
/// Returns an error in the same case.
pub fn refuse_beyond(dir: &RunDir, last: u64) -> Result<(), JournalError> {
    let Some(known) = acknowledged::last(dir.path()) else { return Ok(()) };
    if known.seq > last {
        return Err(JournalError::RolledBack { last, known: known.seq });
    }
    match known.is_in(&dir.journal()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(JournalError::Replaced { last, known: known.seq }),
        Err(error) => Err(JournalError::cannot("read", &dir.journal(), &error)),
    }
}
