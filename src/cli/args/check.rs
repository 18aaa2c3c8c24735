//! The arguments of `check`.

use std::path::PathBuf;

use clap::Args;

use super::{File, complete, key_value};

#[derive(Debug, Args)]
pub(in crate::cli) struct Check {
    #[command(flatten)]
    pub file: File,
    /// The profile of the configuration to use
    #[arg(long, value_name = "NAME", add = complete::profiles())]
    pub profile: Option<String>,
    /// The value of an input of the run
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = key_value)]
    pub inputs: Vec<(String, String)>,
    /// A file with tasks that `run --plan` would add
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Print what a run may cost too: the least, the likely by earlier runs, and the most, by task and in all
    #[arg(long)]
    pub cost: bool,
    /// Print diagnostics as JSON, one a line
    #[arg(long)]
    pub json: bool,
    /// If there are no mistakes, call each model in use once, with a few tokens, and say whether it
    /// answers. The calls are paid
    #[arg(long)]
    pub connect: bool,
    /// Trust what the configuration wants beyond its directory, as keys sent to other addresses. It is
    /// remembered for this content of the file
    #[arg(long, requires = "connect")]
    pub trust: bool,
}
