//! A run's journal from a place to where it ends: the one way in which everyone folds it.
//!
//! Owns what a journal without a record says of its run. Never writes, and needs no lock.

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
/// When it cannot be opened, or is not there.
pub fn open(dir: &RunDir, at: Position) -> Result<Reader, JournalError> {
    if is_missing(dir) {
        let told = without_record(dir);
        // A run that is just beginning may have made it since.
        if is_missing(dir) {
            return Err(told);
        }
    }
    Reader::open_at(&dir.journal(), at)
}

fn is_missing(dir: &RunDir) -> bool {
    fs::metadata(dir.journal()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Gives the next whole batch to `fold`, with the place where it begins; false behind the last one.
///
/// # Errors
/// When the journal cannot be read, has no record, or one stands in the way.
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

/// Looks once more for the first batch, where there was none.
fn fold_first(
    dir: &RunDir,
    reader: &mut Reader,
    fold: impl FnOnce(Position, &[SharedRecord]) -> Result<(), Objection>,
) -> Result<bool, JournalError> {
    let told = without_record(dir);
    // A run that is just beginning fills its folders behind its first record, which may have come
    // since: only a journal that has none after they were looked at has lost it.
    match reader.fold_batch(fold)? {
        true => Ok(true),
        false => Err(told),
    }
}

/// The first batch of a run, which says how it was created.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn first(dir: &RunDir) -> Result<Vec<SharedRecord>, JournalError> {
    let mut first = Vec::new();
    fold_next(dir, &mut open(dir, Position::START)?, |_, records| {
        first = records.to_vec();
        Ok(())
    })?;
    Ok(first)
}

/// Whether a run has a first batch, or had one.
#[must_use]
pub fn has_begun(dir: &RunDir) -> bool {
    !matches!(first(dir), Err(JournalError::NeverBegan))
}

/// Gives every whole batch from `from` on to `fold`, each with the place where it begins: those
/// before the place `end`, or all there are. Gives the place behind the last one.
///
/// # Errors
/// When the journal cannot be read, has no record, or one stands in the way.
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

/// What the journal of a run tells, up to the place `end` or as far as it can be read, and what
/// stands in the way of more. `each` sees every record.
pub fn fold(
    dir: &RunDir,
    end: Option<Position>,
    each: impl FnMut(&SharedRecord),
) -> (RunState, Result<(), JournalError>) {
    fold_on(dir, Position::START, RunState::default(), end, each)
}

/// As [`fold`], from a place on at which the journal told `state`.
pub fn fold_on(
    dir: &RunDir,
    from: Position,
    mut state: RunState,
    end: Option<Position>,
    mut each: impl FnMut(&SharedRecord),
) -> (RunState, Result<(), JournalError>) {
    let walked = walk(dir, from, end, |_, records| {
        records.iter().try_for_each(|record| {
            state.apply(record)?;
            each(record);
            Ok(())
        })
    });
    let read = walked.and_then(|_| created(&state).map(drop));
    (state, read)
}

/// How a run was created whose journal gave this.
///
/// # Errors
/// When its first record does not tell.
pub fn created(state: &RunState) -> Result<&RunCreated, JournalError> {
    let unreadable = || Why::Unreadable("it does not create a run".to_owned());
    state.created().ok_or_else(|| Refusal::at(Position::START, unreadable()).into())
}

/// What a journal without a record says of its run.
fn without_record(dir: &RunDir) -> JournalError {
    // They are made empty, and filled only behind a record.
    let mut folders = vec![dir.agents(), dir.spool(), dir.snapshots()];
    if !dir.journal().exists() {
        // A fork has the results of its origin before it has a record: then the journal is empty.
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
    use crate::journal::testing::turn;

    #[tokio::test]
    async fn a_run_that_begins_while_it_is_looked_at_was_not_lost() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let owned = dir.create().unwrap();
        let mut reader = open(&dir, Position::START).unwrap();
        assert_eq!(first(&dir), Err(JournalError::NeverBegan));
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
        assert_eq!(first(&dir), Err(JournalError::Lost { folder: dir.agents() }));
    }
}
