//! Verbs, exit codes and the screen: the program as people type it.

mod closed_streams;
mod evidence;
mod exits;
mod failures;
mod first_hour;
mod first_mistakes;
mod forecast;
mod helps;
mod loops;
mod machine;
mod many_tasks;
mod mistakes;
mod next_commands;
mod printed;
mod prune;
mod reasons;
mod report;
mod service;
mod set;
mod status_area;
mod summaries;
mod tail_and_ps;
mod terminal;
mod verbs;
mod why;
