//! A record that a journal cannot be read past: its place, and the reason.
//!
//! Owns the wording of the reasons, the same for all readers. The caller adds advice on what to do.

use crate::journal::line::{Fault, Position};
use crate::run_state::IllegalRecord;

/// A record that a journal cannot be read past.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the journal, at byte {offset}, {why}")]
pub struct Refusal {
    /// Offset of its line, in bytes.
    pub offset: u64,
    /// Number of its line, from 1; also the number of the record.
    pub line: u64,
    /// The reason.
    pub why: Why,
}

impl Refusal {
    /// Refuses the line that stands at this place.
    #[must_use]
    pub fn at(place: Position, why: impl Into<Why>) -> Self {
        Self { offset: place.offset, line: place.seq, why: why.into() }
    }
}

/// The reason why a record cannot be read past.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The bytes are not those that were written.
    #[error("is damaged: {0}")]
    Damaged(Fault),
    /// The record is gone, although it was there when its place was noted.
    #[error("is gone")]
    Gone,
    /// The record's number does not follow the one before.
    #[error("is damaged: number {0} stands out of order")]
    Order(u64),
    /// A new batch begins before the previous one has ended.
    #[error("is damaged: the batch before it has no end")]
    Amid,
    /// The record was written whole, but it is not one that this program knows.
    #[error("was written whole, but cannot be read: {0}")]
    Unreadable(String),
    /// A later format wrote the record.
    #[error("has format {0}, which is newer than this program")]
    Newer(u64),
    /// The record's type is unknown, and the record says that a program that does not know the type
    /// must not continue.
    #[error("has the type `{0}`, which this program does not know and must not pass over")]
    Critical(String),
    /// The record can be read, but cannot follow the earlier ones.
    #[error("cannot follow what stands before it: {0}")]
    Illegal(String),
}

/// The objection of a fold to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// Number of the record.
    pub seq: u64,
    /// The reason why it cannot be read past.
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
