//! The integration tests: one binary, so that everything is linked once.

mod architecture;
mod cli;
mod compaction;
mod delegation;
mod examples;
#[path = "support/faults.rs"]
mod faults;
mod gateway;
mod graph;
mod measure;
mod supervision;
mod support;
mod survey_script;
#[path = "support/test_run.rs"]
mod test_run;
mod tools;
mod transcripts;
mod wire;
