//! Everything that wants to get out, in, or past a person: commands, files, configurations, servers, texts.

mod approved;
mod authority;
mod configurations;
mod keys;
mod marks;
mod neighbours;
mod odd_files;
mod questions;
mod races;
mod refusals;
mod rules;
mod run_by_others;
mod sandbox;
mod secrets;
mod servers;
mod terminals;
mod trust;
mod two_agents;
mod wall_causes;
mod walls;
