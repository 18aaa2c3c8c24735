//! The words that every part of callsheet uses: plain data, and pure rules about it.
//!
//! Messages, names, outputs, failures, what the file says of agents and tasks (`spec`), permissions, redaction.
//! Nothing here waits, reads the clock, or touches a file.

pub mod duration;
pub mod failure;
pub mod fingerprint;
pub mod foreign;
pub mod glob;
pub mod id;
pub mod message;
pub mod output;
pub mod own_tool;
pub mod permission;
pub mod policy;
pub mod printable;
pub mod redaction;
pub mod schema;
pub mod spec;
pub mod spending;
pub mod tool_spec;
