//! The arguments of `service`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{File, examples};

#[derive(Debug, Args)]
pub(in crate::cli) struct Service {
    #[command(subcommand)]
    pub verb: ServiceVerb,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ServiceVerb {
    /// Write the unit of a service that resumes stopped runs at login and after a crash, and show it; nothing
    /// is started
    #[command(after_help = examples::SERVICE)]
    Install(Install),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Install {
    #[command(flatten)]
    pub file: File,
    /// Print the unit, and write nothing
    #[arg(long)]
    pub print: bool,
}

impl Service {
    pub(in crate::cli) fn file(&self) -> PathBuf {
        match &self.verb {
            ServiceVerb::Install(verb) => verb.file.file.clone(),
        }
    }
}
