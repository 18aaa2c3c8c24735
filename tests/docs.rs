//! What is written and shipped: the map of the code, examples, graphs, the survey.

mod architecture;
mod example_graphs;
mod examples;
mod readme;
mod release;
mod survey;
mod survey_script;
mod tutorials;
