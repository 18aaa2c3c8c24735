//! The words of a cut: what may be cut from a journal, why it may not, what was kept and what was lost.
//!
//! Plain data: `repair/torn.rs` cuts the journals of this machine.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::id::{CallKey, Name};
use crate::journal::JournalError;
use crate::journal::line::Position;
use crate::journal::refusal::Refusal;

/// The part of a journal that may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Only a torn end.
    Torn,
    /// A torn end, and everything from this record on, which must be one that prevents a resume.
    From(u64),
}

/// The reason why a journal cannot be continued or cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// The journal cannot be read, or a record cannot be read past.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A cut was requested, but no record prevents a resume.
    #[error("the journal is sound: nothing of it is cut")]
    Sound,
    /// A cut was requested at another place than the one at which the journal has to be cut.
    #[error("the journal is cut only where it has to be: {error}")]
    Elsewhere {
        /// Number of the record from which on the journal may be cut.
        seq: u64,
        /// The error at that record.
        error: JournalError,
    },
    /// The requested cut would leave nothing of the journal.
    #[error("nothing would be left of the journal: {0}")]
    Beginning(Refusal),
}

impl CutError {
    pub(in crate::journal) fn elsewhere(refusal: Refusal) -> Self {
        Self::Elsewhere { seq: refusal.line, error: refusal.into() }
    }
}

/// A journal that is ready for a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutBack {
    /// The position at which the writer continues, with the next epoch.
    pub at: Position,
    /// The bytes that were cut, if any.
    pub kept: Option<Kept>,
    /// The loss, if acknowledged records were cut on request.
    pub loss: Option<Loss>,
}

/// Bytes that were cut from a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Path of the file that holds them now.
    pub path: PathBuf,
    /// Number of bytes.
    pub bytes: u64,
    /// Offset in the journal at which they began.
    pub offset: u64,
}

/// The content of a journal behind a place, which is lost when the journal is cut there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Offset of the place, in bytes.
    pub offset: u64,
    /// Number of records whose checksum is right.
    pub records: u64,
    /// Number of bytes in all other lines.
    pub damaged: u64,
    /// The tasks whose end these records hold.
    pub ended: BTreeSet<Name>,
    /// The tool calls whose start or result these records hold.
    pub calls: BTreeSet<CallKey>,
    /// Number of model replies in these records.
    pub replies: u64,
}
