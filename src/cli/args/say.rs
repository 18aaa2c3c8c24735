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
    /// Cut the current call of its model, so that it reads the message at once. The call is paid for all the same
    #[arg(long)]
    pub now: bool,
}
