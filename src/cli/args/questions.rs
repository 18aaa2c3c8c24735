//! The arguments of the verbs for questions to people, as the user typed them.

use clap::Args;

use super::{File, complete};

#[derive(Debug, Args)]
pub(in crate::cli) struct Pending {
    #[command(flatten)]
    pub file: File,
    /// The run [default: all runs that have not ended]
    #[arg(add = complete::runs())]
    pub run: Option<String>,
    /// Print rows as JSON, one a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Approve {
    #[command(flatten)]
    pub file: File,
    /// The question: its id, or the beginning of it, also as RUN/ID
    #[arg(value_name = "ID", add = complete::questions())]
    pub id: String,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Reject {
    #[command(flatten)]
    pub file: File,
    /// The question: its id, or the beginning of it, also as RUN/ID
    #[arg(value_name = "ID", add = complete::questions())]
    pub id: String,
    /// The reason, which the run records and the agent reads
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Answer {
    #[command(flatten)]
    pub file: File,
    /// The question: its id, or the beginning of it, also as RUN/ID
    #[arg(value_name = "ID", add = complete::questions())]
    pub id: String,
    /// The answer
    #[arg(value_name = "TEXT", required = true)]
    pub text: Vec<String>,
}
