//! The integration tests: one binary, so that everything is linked once.

mod architecture;
mod cli;
mod compaction;
mod examples;
#[path = "support/faults.rs"]
mod faults;
mod gateway;
mod supervision;
mod support;
mod survey_script;
mod transcripts;
mod wire;
