//! Measures context policies: replays a conversation, scores the views, explains one of them.
//!
//! Pure. No agent uses it: the command line and the benchmarks do.

pub mod explain;
pub mod replay;
pub mod score;
