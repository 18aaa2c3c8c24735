//! The integration tests: one binary, so that everything is linked once.

mod architecture;
mod cli;
mod delegation;
mod examples;
mod graph;
mod support;
mod survey_script;
#[path = "support/test_run.rs"]
mod test_run;
mod tools;
mod wire;
