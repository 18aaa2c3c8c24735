//! The arguments of `run`.

use std::path::PathBuf;

use clap::Args;

use super::{BudgetLimits, File, Progress, Trusting, complete, key_value};

#[derive(Debug, Args)]
pub(in crate::cli) struct Run {
    #[command(flatten)]
    pub file: File,
    /// The tasks to run, with their dependencies [default: the tasks of `entry`, or else all]
    #[arg(value_name = "TASK", add = complete::tasks_of_file())]
    pub tasks: Vec<String>,
    /// The value of an input of the run
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = key_value)]
    pub inputs: Vec<(String, String)>,
    /// The profile of the configuration to use
    #[arg(long, value_name = "NAME", add = complete::profiles())]
    pub profile: Option<String>,
    /// Set a key of the configuration for this run, by its path and its value as in TOML, such as
    /// limits.max_concurrency=2. What would need trust in the file needs it here too
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
    /// Use another model in place of the default one: a name of [models], or else what its provider
    /// calls it
    #[arg(long, value_name = "NAME", add = complete::models())]
    pub model: Option<String>,
    #[command(flatten)]
    pub limits: BudgetLimits,
    /// A file of tasks that are added to the run, behind the approval of a person
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Print what would run, in which order, with which models and effects, and what could stop it.
    /// Nothing is started or written, and no model is called
    #[arg(long, conflicts_with_all = ["json", "reuse", "detach"])]
    pub dry_run: bool,
    /// Print events as JSON, one a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub progress: Progress,
    /// Continue with tasks that do not depend on a failed one
    #[arg(long)]
    pub keep_going: bool,
    /// End with exit code 8 if anything was left undone: a call was denied, the outcome of a call
    /// is unknown, a result was cut, a limit refused a call, or a child agent or
    /// an item failed
    #[arg(long)]
    pub strict: bool,
    /// The files that commands can write, whatever the configuration says: `read-only`,
    /// `workspace-write`, or `danger-full-access` for no sandbox
    #[arg(long, value_name = "MODE", value_parser = ["read-only", "workspace-write", "danger-full-access"])]
    pub sandbox: Option<String>,
    /// Reuse results that the newest run of this workflow made from the same prompt, agents, models,
    /// tools and inputs
    #[arg(long)]
    pub reuse: bool,
    /// Run without this terminal: print the id of the run as soon as it has begun, and return
    #[arg(short, long, conflicts_with = "json")]
    pub detach: bool,
    #[command(flatten)]
    pub trusting: Trusting,
    /// Start it even if a run of this file is running in this folder
    #[arg(long)]
    pub also: bool,
    /// This is the process of a detached run
    #[arg(long, hide = true)]
    pub detached: bool,
    /// The id of the new run, a UUID
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
}
