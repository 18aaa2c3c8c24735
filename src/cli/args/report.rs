//! The arguments of `report`.

use clap::{Args, ValueEnum};

use super::{File, complete};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ReportFormat {
    /// Markdown, readable as plain text
    Md,
    /// One JSON document with everything
    Json,
    /// One HTML file without scripts, that loads nothing
    Html,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Report {
    #[command(flatten)]
    pub file: File,
    /// The run: an id, a part of one, or a workflow's name [default: the newest]
    #[arg(add = complete::runs())]
    pub run: Option<String>,
    /// The format of the report
    #[arg(long, value_enum, default_value_t = ReportFormat::Md)]
    pub format: ReportFormat,
}
