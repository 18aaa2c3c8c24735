//! The flags of `say`.

use clap::Args;

use super::{File, complete};

#[derive(Debug, Args)]
pub(in crate::cli) struct Say {
    #[command(flatten)]
    pub file: File,
    /// The agent, as RUN/@AGENT
    #[arg(value_name = "RUN/@AGENT", add = complete::parts())]
    pub what: String,
    /// The message; `-` reads it from stdin
    #[arg(required = true)]
    pub text: Vec<String>,
    /// Cut the call of its model that is under way, so that it reads the message at once. What was cut is paid for
    #[arg(long)]
    pub now: bool,
}
