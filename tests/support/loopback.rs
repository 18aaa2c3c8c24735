//! The provider on the loopback interface and the conversation without end, for the benchmark
//! `endless`: by its path this file finds the same modules that `tests/support.rs` lists.

pub(crate) mod answer;
pub(crate) mod asked;
pub(crate) mod endless;
pub(crate) mod provider;
pub(crate) mod render;
