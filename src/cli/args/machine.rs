//! The arguments of the verbs that are about the program and its machine: `doctor`, `version`, `man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

use super::{Arguments, File};

#[derive(Debug, Args)]
pub(in crate::cli) struct Doctor {
    #[command(flatten)]
    pub file: File,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Version {
    /// Print one JSON document, with the versions of the file format and the journal too
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Manual {
    /// The verb, such as `run` or `context replay` [default: the page of the program]
    #[arg(value_name = "VERB", add = ArgValueCandidates::new(verbs))]
    pub verb: Vec<String>,
    /// Write the pages of the program and of every verb to this folder, which is made if it is missing
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    pub dir: Option<PathBuf>,
}

/// Returns the verbs, for the completion of a shell.
fn verbs() -> Vec<CompletionCandidate> {
    Arguments::command().get_subcommands().map(|verb| verb.get_name().into()).collect()
}
