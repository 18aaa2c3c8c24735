//! The tools of agents, and the sandbox around commands.
//!
//! A tool uses plain data, decisions and the result store; it never sees an actor or the journal.

#[cfg(test)]
use callsheet_context::context;
use callsheet_journal::{crash, disk, store};
use callsheet_machines::{template, turn};
use callsheet_words::{glob, id, message, output, permission, redaction, spec, tool_spec};
#[cfg(test)]
use callsheet_words::{own_tool, schema};

pub mod tool;
