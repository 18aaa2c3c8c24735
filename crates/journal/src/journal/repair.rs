//! What is done with a journal whose end a crash or a disk spoilt: it is cut back to its last whole batch, and what
//! was cut, and what agents' files tell beyond it, is kept.
//!
//! What a process notes beside the journal as proof that a record was acknowledged is `journal/acknowledged.rs`.

pub mod cut_pieces;
pub mod torn;
