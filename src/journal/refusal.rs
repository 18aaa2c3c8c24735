//! A record that a journal cannot be read past: where it stands, and why.
//!
//! Owns the words for it, the same for everyone who reads. What to do about it is said by whoever
//! asked.

use crate::journal::line::{Fault, Position};
use crate::run_state::IllegalRecord;

/// A record that a journal cannot be read past.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the journal, at byte {offset}, {why}")]
pub struct Refusal {
    /// Where its line begins, in bytes.
    pub offset: u64,
    /// Its line, from 1: the number of the record.
    pub line: u64,
    /// Why.
    pub why: Why,
}

impl Refusal {
    /// Refuses the line that stands at this place.
    #[must_use]
    pub fn at(place: Position, why: impl Into<Why>) -> Self {
        Self { offset: place.offset, line: place.seq, why: why.into() }
    }
}

/// Why a record cannot be read past.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Its bytes are not those that were written.
    #[error("is damaged: {0}")]
    Damaged(Fault),
    /// It was there when its place was noted.
    #[error("is gone")]
    Gone,
    /// It is not the next record.
    #[error("is damaged: number {0} stands out of order")]
    Order(u64),
    /// It begins a batch amid another.
    #[error("is damaged: the batch before it has no end")]
    Amid,
    /// Somebody wrote it as it is, and it is no record that this program knows.
    #[error("was written whole, but cannot be read: {0}")]
    Unreadable(String),
    /// A later format wrote it.
    #[error("has format {0}, which is newer than this program")]
    Newer(u64),
    /// Its type is not known, and it says that nobody may go on without knowing it.
    #[error("tells of `{0}`, which this program does not know and must not pass over")]
    Critical(String),
    /// It can be read, and cannot have happened.
    #[error("cannot follow what stands before it: {0}")]
    Illegal(String),
}

/// What a fold has against a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The record's number.
    pub seq: u64,
    /// Why it cannot be read past.
    pub why: Why,
}

impl From<IllegalRecord> for Objection {
    fn from(IllegalRecord { seq, kind, reason }: IllegalRecord) -> Self {
        Self { seq, why: Why::Illegal(format!("{kind}: {reason}")) }
    }
}

impl From<Fault> for Why {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unended | Fault::Unsealed | Fault::Checksum => Self::Damaged(fault),
            Fault::Shape(reason) => Self::Unreadable(reason),
            Fault::Newer(format) => Self::Newer(format),
        }
    }
}
