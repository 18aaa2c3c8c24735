//! The test bench: parts that several integration tests and the benchmarks use.
//!
//! The paths are written out so that a benchmark can include this file from its own folder.

#[path = "support/answer.rs"]
pub(crate) mod answer;
#[path = "support/asked.rs"]
pub(crate) mod asked;
#[path = "support/endless.rs"]
pub(crate) mod endless;
#[path = "support/provider.rs"]
pub(crate) mod provider;
#[path = "support/render.rs"]
pub(crate) mod render;
