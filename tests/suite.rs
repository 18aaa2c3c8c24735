//! The integration tests: one binary, so that everything is linked once.

mod architecture;
mod survey_script;
