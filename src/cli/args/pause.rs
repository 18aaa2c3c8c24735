//! The arguments of `pause` and `unpause`.

use clap::Args;

use super::{File, complete};

#[derive(Debug, Args)]
pub(in crate::cli) struct Pause {
    #[command(flatten)]
    pub file: File,
    /// The run, RUN/TASK, or RUN/@AGENT
    #[arg(value_name = "RUN[/TASK or /@AGENT]", add = complete::parts())]
    pub what: String,
    /// The reason, which `ps`, `why` and `pending` show
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Unpause {
    #[command(flatten)]
    pub file: File,
    /// The run, RUN/TASK, or RUN/@AGENT, as it was paused
    #[arg(value_name = "RUN[/TASK or /@AGENT]", add = complete::parts())]
    pub what: String,
}
