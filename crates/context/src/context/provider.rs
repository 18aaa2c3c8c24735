//! Context management that a provider does itself: its share of the work, and its reports.
//!
//! Pure. Stands above the layers, because a strategy decides which layers run in the client.

pub mod compaction_block;
pub mod server;
pub mod strategy;
