//! What puts a run together and drives it: the file, the actors, the run and its report.
//!
//! Programs that embed callsheet use it through the crate `callsheet`, which names what is public.

use callsheet_context::context;
use callsheet_journal::{crash, disk, fault, journal, store};
use callsheet_machines::{
    admission, call_machine, event, loops, messages, plan, run_machine, run_state, template, turn,
    turn_boundary, turn_machine, why,
};
use callsheet_models::model;
use callsheet_tools::tool;
use callsheet_words::{
    duration, failure, foreign, glob, id, message, output, own_tool, permission, policy, printable,
    redaction, schema, spec, spending,
};

pub mod actor;
pub mod client;
pub mod config;
pub mod person;
pub mod report;
pub mod run;
pub mod show;
pub mod trust;
