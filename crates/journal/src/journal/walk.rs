//! Walks over the journal of a run directory from a place to its end, for those who drive, cut or copy it.
//!
//! Owns the error for a journal without a record. Never writes, and needs no lock.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::event::{RunCreated, SharedRecord};
use crate::journal::JournalError;
use crate::journal::file::RunDir;
use crate::journal::line::Position;
use crate::journal::reader::Reader;
use crate::journal::refusal::{Objection, Refusal, Why};
use crate::run_state::RunState;

/// Opens the journal of a run at the end of a batch that was read before.
///
/// # Errors
/// Returns an error if the journal cannot be opened or does not exist.
pub fn open(dir: &RunDir, at: Position) -> Result<Reader, JournalError> {
    if is_missing(dir) {
        let told = without_record(dir);
        // A run that is just being created may have made its journal in the meantime.
        if is_missing(dir) {
            return Err(told);
        }
    }
    Reader::open_at(&dir.journal(), at)
}

fn is_missing(dir: &RunDir) -> bool {
    fs::metadata(dir.journal()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Gives the next whole batch to `fold`, with the position at which it begins. Returns false behind
/// the last one.
///
/// # Errors
/// Returns an error if the journal cannot be read, has no record, or holds one that cannot be read
/// past.
pub fn fold_next(
    dir: &RunDir,
    reader: &mut Reader,
    mut fold: impl FnMut(Position, &[SharedRecord]) -> Result<(), Objection>,
) -> Result<bool, JournalError> {
    match reader.fold_batch(&mut fold)? {
        false if reader.position().seq == Position::START.seq => fold_first(dir, reader, fold),
        has_folded => Ok(has_folded),
    }
}

/// Looks once more for the first batch, after none was found.
fn fold_first(
    dir: &RunDir,
    reader: &mut Reader,
    fold: impl FnOnce(Position, &[SharedRecord]) -> Result<(), Objection>,
) -> Result<bool, JournalError> {
    let told = without_record(dir);
    // A run that is just being created fills its folders after its first record, which may have
    // come in the meantime. So the journal is read again after the folders: only if it is still
    // empty then, was it lost.
    match reader.fold_batch(fold)? {
        true => Ok(true),
        false => Err(told),
    }
}

/// Gives every whole batch from `from` on to `fold`, each with the position at which it begins: the
/// batches before `end`, or all of them. Returns the position behind the last one.
///
/// # Errors
/// Returns an error if the journal cannot be read, has no record, or holds one that cannot be read
/// past.
pub fn walk(
    dir: &RunDir,
    from: Position,
    end: Option<Position>,
    mut fold: impl FnMut(Position, &[SharedRecord]) -> Result<(), Objection>,
) -> Result<Position, JournalError> {
    let mut reader = open(dir, from)?;
    let is_before = |at: Position| end.is_none_or(|end| at.seq < end.seq);
    while is_before(reader.position()) && fold_next(dir, &mut reader, &mut fold)? {}
    match reader.position() {
        Position { seq: 1, .. } => Err(without_record(dir)),
        end => Ok(end),
    }
}

/// Returns the creation of the run with this folded state.
///
/// # Errors
/// Returns an error if the first record does not create a run.
pub fn created(state: &RunState) -> Result<&RunCreated, JournalError> {
    let unreadable = || Why::Unreadable("it does not create a run".to_owned());
    state.created().ok_or_else(|| Refusal::at(Position::START, unreadable()).into())
}

/// Decides if a journal without a record was lost or never began.
pub(in crate::journal) fn without_record(dir: &RunDir) -> JournalError {
    // These folders are created empty, and filled only after the first record.
    let mut folders = vec![dir.agents(), dir.spool(), dir.snapshots()];
    if !dir.journal().exists() {
        // A fork has the results of its origin before it has a record, but then its journal file
        // exists.
        folders.push(dir.results());
    }
    let is_filled =
        |folder: &PathBuf| fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    match folders.into_iter().find(is_filled) {
        Some(folder) => JournalError::Lost { folder },
        None => JournalError::NeverBegan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::samples::turn;
    use crate::journal::source::RunSource;

    #[tokio::test]
    async fn a_run_that_begins_while_it_is_looked_at_was_not_lost() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let owned = dir.create().unwrap();
        let mut reader = open(&dir, Position::START).unwrap();
        let run: &dyn RunSource = &dir;
        assert_eq!(run.first(), Err(JournalError::NeverBegan));
        assert!(!reader.fold_batch(|_, _| Ok(())).unwrap());
        // Both come before the folders are looked at.
        let journal = owned.start_writer(Position::START, Vec::new()).unwrap();
        journal.append(vec![turn("one", 1)]).await.unwrap();
        journal.close().await;
        fs::write(dir.agents().join("one.jsonl"), "x").unwrap();
        let mut seen = 0;
        let each = |_: Position, records: &[SharedRecord]| {
            seen += records.len();
            Ok(())
        };
        assert_eq!(fold_first(&dir, &mut reader, each), Ok(true));
        assert_eq!(seen, 1);
        fs::write(dir.journal(), "").unwrap();
        assert_eq!(run.first(), Err(JournalError::Lost { folder: dir.agents() }));
    }
}
