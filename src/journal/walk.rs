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
    match fs::metadata(dir.journal()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(without_record(dir)),
        _ => Reader::open_at(&dir.journal(), at),
    }
}

/// The first batch of a run, which says how it was created.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn first(dir: &RunDir) -> Result<Vec<SharedRecord>, JournalError> {
    open(dir, Position::START)?.next_batch()?.ok_or_else(|| without_record(dir))
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
    while is_before(reader.position()) && reader.fold_batch(&mut fold)? {}
    match reader.position() {
        Position { seq: 1, .. } => Err(without_record(dir)),
        end => Ok(end),
    }
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
pub(super) fn without_record(dir: &RunDir) -> JournalError {
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
