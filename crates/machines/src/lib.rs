//! The machines that decide: they take what happened and return what is to be done.
//!
//! Nothing here waits, reads the clock, the environment or the disk, so that a run is decided in a test as in a night.

use callsheet_context::context;
use callsheet_words::{
    failure, fingerprint, foreign, id, message, output, own_tool, permission, policy, schema, spec,
    spending, tool_spec,
};

pub mod admission;
pub mod call_machine;
pub mod event;
pub mod loops;
pub mod messages;
pub mod plan;
pub mod run_machine;
pub mod run_state;
pub mod template;
pub mod turn;
pub mod turn_boundary;
pub mod turn_machine;
pub mod why;
