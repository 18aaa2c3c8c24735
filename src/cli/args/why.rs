//! The arguments of `why`.

use clap::Args;

use super::{File, complete};

#[derive(Debug, Args)]
pub(in crate::cli) struct Why {
    #[command(flatten)]
    pub file: File,
    /// What to explain: RUN, RUN/TASK or RUN/@AGENT [default: the newest run]
    #[arg(value_name = "WHAT", add = complete::parts())]
    pub what: Option<String>,
    /// Answer as of this record, or of this time: SEQ, HH:MM[:SS] or 2026-11-27T03:30:00Z
    #[arg(long, value_name = "SEQ|TIME")]
    pub at: Option<String>,
    /// Show where its money went
    #[arg(long)]
    pub cost: bool,
    /// Show every link, and all causes of each
    #[arg(long)]
    pub all: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}
