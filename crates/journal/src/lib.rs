//! What lies on the disk: the journal of a run, its results, conversations to read.
//!
//! `crash` and `fault` are the places where a test ends or disturbs the process.

use callsheet_context::context;
use callsheet_machines::{event, plan, run_machine, run_state, turn, turn_machine};
use callsheet_words::{id, message, output, own_tool, redaction, spec};

pub mod conversation;
pub mod crash;
pub mod disk;
pub mod fault;
pub mod journal;
pub mod store;
