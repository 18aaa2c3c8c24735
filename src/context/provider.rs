//! Context management that a provider does itself: which part it takes, and what it reports.
//!
//! Pure. Stands above the layers, because a strategy decides which of them run here.

pub mod compaction_block;
pub mod server;
pub mod strategy;
