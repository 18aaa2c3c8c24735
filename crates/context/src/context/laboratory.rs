//! Measures context policies: replays a conversation, scores the views, explains a view.
//!
//! Pure. Agents do not use it: the command line and the benchmarks do.

pub mod asker;
pub mod explain;
pub mod facts;
pub mod replay;
pub mod score;
pub mod strict;
