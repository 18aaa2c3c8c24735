//! The arguments of `prune`.

use std::time::Duration;

use clap::Args;

use super::File;
use super::budget::time;

#[derive(Debug, Args)]
pub(in crate::cli) struct Prune {
    #[command(flatten)]
    pub file: File,
    /// Keep the N newest runs
    #[arg(long, value_name = "N", required_unless_present = "older_than")]
    pub keep: Option<usize>,
    /// Keep the runs that ended within this time, like 12h or 30d; with --keep, a run goes only if both let it go
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub older_than: Option<Duration>,
    /// Only print which runs would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Print the runs as JSON, one a line
    #[arg(long)]
    pub json: bool,
}
