//! The arguments of the command line as the user typed them. Their doc comments are the help texts.

mod budget;
mod check;
mod context;
mod examples;
mod machine;
mod pause;
mod progress;
mod prune;
mod questions;
mod report;
mod run;
mod say;
mod service;
mod verb;
mod why;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use super::complete;

pub(super) use budget::{Budget, BudgetLimits};
pub(super) use check::Check;
pub(super) use context::{
    Apply, Context, ContextVerb, Explain, LayerChoice, OwnSettings, Replay, Score,
};
pub(super) use machine::{Doctor, Manual, Version};
pub(super) use pause::{Pause, Unpause};
pub(super) use progress::Progress;
pub(super) use prune::Prune;
pub(super) use questions::{Answer, Approve, Pending, Reject};
pub(super) use report::{Report, ReportFormat};
pub(super) use run::Run;
pub(super) use say::Say;
pub(super) use service::{Service, ServiceVerb};
pub(super) use verb::OnRuns;
pub(super) use why::Why;

/// Heading of the help for the options that every verb takes.
const EVERYWHERE: &str = "Everywhere";

/// Runs teams of LLM agents from one file, agents.toml, as supervised actors.
#[derive(Debug, Parser)]
#[command(name = "callsheet", version, propagate_version = true)]
pub(super) struct Arguments {
    /// The folder of the run directories [default: .transcripts beside the configuration; env:
    /// CALLSHEET_STATE_DIR]
    #[arg(long, global = true, value_name = "DIR", help_heading = EVERYWHERE)]
    pub state_dir: Option<PathBuf>,
    /// Print more on stderr: every event of a run, and more of the program's log (-vv for all of
    /// it)
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = EVERYWHERE)]
    pub verbose: u8,
    /// Print times in UTC instead of the time zone of this machine
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub utc: bool,
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Launch the graph, or the named tasks and what they need
    #[command(after_help = examples::RUN)]
    Run(Run),
    /// Follow a live run as if this terminal had started it; Ctrl-C only detaches
    #[command(after_help = examples::ATTACH)]
    Attach(Attach),
    /// Resume a run that was stopped, from the end of its journal
    #[command(after_help = examples::RESUME)]
    Resume(Resume),
    /// Find every mistake in the configuration before anything is spent
    #[command(after_help = examples::CHECK)]
    Check(Check),
    /// Review and approve what a configuration does outside its own directory
    #[command(after_help = examples::TRUST)]
    Trust(TrustFile),
    /// Print the agents' logs, live or after the fact
    #[command(visible_alias = "logs")]
    #[command(after_help = examples::TAIL)]
    Tail(Tail),
    /// List runs, tasks and agents
    #[command(visible_alias = "status")]
    #[command(after_help = examples::PS)]
    Ps(Ps),
    /// Show one run, task or agent in full
    #[command(after_help = examples::SHOW)]
    Show(Show),
    /// Explain why a run, a task or an agent waits, failed or was skipped, down to the root
    #[command(after_help = examples::WHY)]
    Why(Why),
    /// Report what a run did, with the evidence for each task
    #[command(after_help = examples::REPORT)]
    Report(Report),
    /// Draw the task graph
    #[command(after_help = examples::GRAPH)]
    Graph(Graph),
    /// Print tokens and money by agent, task or model
    #[command(after_help = examples::COST)]
    Cost(Cost),
    /// Remove old runs that have ended, and keep what they cost
    #[command(after_help = examples::PRUNE)]
    Prune(Prune),
    /// Show what a run, a task or an agent has spent of its budget, or set its limits
    #[command(after_help = examples::BUDGET)]
    Budget(Budget),
    /// Stop a run, a task or an agent with its children
    #[command(after_help = examples::CANCEL)]
    Cancel(Cancel),
    /// List what waits for a person: approvals, permissions, questions of agents
    #[command(after_help = examples::PENDING)]
    Pending(Pending),
    /// Approve what a run asks for, from any terminal
    #[command(after_help = examples::APPROVE)]
    Approve(Approve),
    /// Reject what a run asks for
    #[command(after_help = examples::REJECT)]
    Reject(Reject),
    /// Answer the question of an agent
    #[command(after_help = examples::ANSWER)]
    Answer(Answer),
    /// Ask a live agent to compact its context now
    #[command(after_help = examples::COMPACT)]
    Compact(Compact),
    /// Send a message to a running agent, which reads it before its next step
    #[command(after_help = examples::SAY)]
    Say(Say),
    /// Pause a run, a task or an agent, with everything below it
    #[command(after_help = examples::PAUSE)]
    Pause(Pause),
    /// Continue what was paused
    #[command(after_help = examples::UNPAUSE)]
    Unpause(Unpause),
    /// Start a new run from an event of another run, with changed configuration keys
    #[command(after_help = examples::FORK)]
    Fork(Fork),
    /// Write the transcripts and logs of a run again from its journal
    #[command(after_help = examples::REBUILD)]
    Rebuild(Rebuild),
    /// Install a systemd user service that resumes stopped runs at login and after a crash
    #[command(after_help = examples::SERVICE)]
    Service(Service),
    /// Try the compaction pipeline, and explain an agent's next request
    #[command(after_help = examples::CONTEXT)]
    Context(Context),
    /// Write a commented agents.toml that runs at once, offline
    #[command(after_help = examples::INIT)]
    Init(Init),
    /// Explain a diagnostic, a kind of failure or an exit code, at length
    #[command(after_help = examples::EXPLAIN)]
    Explain(ExplainCode),
    /// Print the JSON Schema of agents.toml or of the events
    #[command(after_help = examples::SCHEMA)]
    Schema(Schema),
    /// Check whether this machine has what runs need
    #[command(after_help = examples::DOCTOR)]
    Doctor(Doctor),
    /// Print the manual page of the program or of a verb
    #[command(after_help = examples::MAN)]
    Man(Manual),
    /// Print the completion script for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    #[command(after_help = examples::VERSION)]
    Version(Version),
}

/// The configuration file, which also tells where the runs are. `tail` has its own, because its
/// `-f` is `--follow`.
#[derive(Debug, Args)]
pub(super) struct File {
    /// The configuration file
    #[arg(short, long = "file", value_name = "FILE", default_value = "agents.toml")]
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Attach {
    #[command(flatten)]
    pub file: File,
    /// The run: an id, a part of one, or a workflow's name [default: the newest]
    #[arg(add = complete::runs())]
    pub run: Option<String>,
    #[command(flatten)]
    pub progress: Progress,
}

#[derive(Debug, Args)]
pub(super) struct Resume {
    #[command(flatten)]
    pub file: File,
    /// The run: an id, the beginning of one, or a workflow's name [default: the newest]
    #[arg(add = complete::runs())]
    pub run: Option<String>,
    /// Print the events that are recorded from now on as JSON, one a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub progress: Progress,
    /// Print for each task whether it would be reused or run, and why; change nothing
    #[arg(long)]
    pub explain: bool,
    /// Resume with the configuration as it is now: keep results that were made from the same
    /// prompt, agents, models, tools and inputs, and run the other tasks again
    #[arg(long)]
    pub accept_changes: bool,
    /// Rerun what failed, and what was skipped because of it: everything, or these tasks. Completed
    /// work is kept, and a conversation that was cut short continues
    #[arg(long, value_name = "TASK", num_args = 0.., add = complete::failed_tasks())]
    pub retry_failed: Option<Vec<String>>,
    /// Resume every run here that was stopped before its end, four at a time
    #[arg(long, conflicts_with_all = ["run", "explain", "accept_changes", "retry_failed", "truncate_at"])]
    pub all: bool,
    /// Cut the journal at record SEQ, the first that cannot be used, and resume before it; the part
    /// that is cut is kept in a file
    #[arg(long, value_name = "SEQ")]
    pub truncate_at: Option<u64>,
    #[command(flatten)]
    pub limits: BudgetLimits,
    #[command(flatten)]
    pub trusting: Trusting,
}

/// The flag of the verbs that run a configuration.
#[derive(Debug, Args)]
pub(super) struct Trusting {
    /// Trust what the configuration wants beyond its directory: keys sent to other addresses, files
    /// outside, a loosened sandbox. It is remembered for this content of the file
    #[arg(long)]
    pub trust: bool,
}

#[derive(Debug, Args)]
pub(super) struct TrustFile {
    /// The configuration file, or its directory
    #[arg(value_name = "FILE|DIR", default_value = "agents.toml")]
    pub path: PathBuf,
    /// Print everything that is trusted, in all directories
    #[arg(long, conflicts_with = "revoke")]
    pub list: bool,
    /// Withdraw all trust in the directory
    #[arg(long)]
    pub revoke: bool,
    /// Let commands of files run on this machine where it has no sandbox; with --revoke: no longer
    #[arg(long, conflicts_with = "list")]
    pub without_sandbox: bool,
}

impl TrustFile {
    fn file(&self) -> PathBuf {
        match self.path.is_dir() {
            true => self.path.join(super::locate::DEFAULT_FILE),
            false => self.path.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Template {
    /// Three agents review the folder, and one merges what they found
    Review,
    /// An agent repairs what a check command reports
    Fix,
    /// A lead agent gives parts of a question to helpers
    Research,
}

#[derive(Debug, Args)]
pub(super) struct Init {
    /// The folder to write to, which is made if it is missing
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
    /// What the graph does
    #[arg(long, value_enum, default_value_t = Template::Review)]
    pub template: Template,
}

#[derive(Debug, Args)]
pub(super) struct ExplainCode {
    /// The code, as `check` or a summary prints it, or an exit code [default: list all]
    pub code: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SchemaOf {
    /// The configuration file
    Config,
    /// The lines that `run --json` and `tail --json` print
    Events,
}

#[derive(Debug, Args)]
pub(super) struct Schema {
    /// What the schema describes
    #[arg(value_enum, default_value_t = SchemaOf::Config)]
    pub of: SchemaOf,
}

#[derive(Debug, Args)]
pub(super) struct Fork {
    #[command(flatten)]
    pub file: File,
    /// The run, and the number of the last event that both runs share. Without a number, the events
    /// at which one can begin are listed
    #[arg(value_name = "RUN@SEQ", add = complete::runs())]
    pub what: String,
    /// Change a key of the configuration in the new run, such as models.default.model=NAME
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    pub trusting: Trusting,
    /// Print the events that are recorded from now on as JSON, one a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub progress: Progress,
}

#[derive(Debug, Args)]
pub(super) struct Rebuild {
    #[command(flatten)]
    pub file: File,
    /// The run: an id, the beginning of one, or a workflow's name
    #[arg(add = complete::runs())]
    pub run: String,
}

#[derive(Debug, Args)]
pub(super) struct Tail {
    /// The configuration file, which also tells where the runs are
    #[arg(long, value_name = "FILE", default_value = "agents.toml")]
    pub file: PathBuf,
    /// The run: an id, the beginning of one, or a workflow's name [default: the newest]
    #[arg(add = complete::runs())]
    pub run: Option<String>,
    /// Only agents whose name matches
    #[arg(long = "agent", value_name = "GLOB", add = complete::agents())]
    pub agents: Vec<String>,
    /// Only tasks whose name matches
    #[arg(long = "task", value_name = "GLOB", add = complete::tasks_of_run())]
    pub tasks: Vec<String>,
    /// Keep printing until the run ends, also what commands print while they run
    #[arg(short, long)]
    pub follow: bool,
    /// Print the texts of the models too, while they arrive at the process that drives the run
    #[arg(long, requires = "follow", conflicts_with = "json")]
    pub deltas: bool,
    /// Print only the last N of the lines that are already there
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<usize>,
    /// Only events after this number
    #[arg(long, value_name = "SEQ")]
    pub since: Option<u64>,
    /// Print events as JSON, one a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Ps {
    #[command(flatten)]
    pub file: File,
    /// List all runs, also those that have ended
    #[arg(short, long)]
    pub all: bool,
    /// Draw tasks and agents under their runs
    #[arg(long)]
    pub tree: bool,
    /// Print rows as JSON, one a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    pub file: File,
    /// What to show: RUN, RUN/TASK or RUN/@AGENT [default: the newest run]
    #[arg(value_name = "WHAT", add = complete::parts())]
    pub what: Option<String>,
    /// Print the whole output of a task or an agent and nothing else
    #[arg(long, conflicts_with_all = ["transcript", "view", "result", "json"])]
    pub output: bool,
    /// Print what the command of a task printed on stderr and nothing else
    #[arg(long, conflicts_with_all = ["output", "transcript", "view", "changes", "result", "json"])]
    pub stderr: bool,
    /// Print the whole transcript of an agent
    #[arg(long)]
    pub transcript: bool,
    /// Print what the next request of an agent would contain, and the edits that led to it
    #[arg(long, conflicts_with = "transcript")]
    pub view: bool,
    /// Print the files that other programs run and that the run changed, with the differences
    #[arg(long, conflicts_with_all = ["output", "transcript", "view", "result"])]
    pub changes: bool,
    /// Print a stored result, named by its hash
    #[arg(long, value_name = "HASH")]
    pub result: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum GraphFormat {
    /// Boxes and lines for a terminal; a list if that is too narrow
    Boxes,
    /// A list with a line for each task or for several that are alike
    Ascii,
    /// A picture in one file, that loads nothing
    Svg,
    /// For Mermaid
    Mermaid,
    /// For Graphviz
    Dot,
    /// One JSON document
    Json,
}

#[derive(Debug, Args)]
pub(super) struct Graph {
    #[command(flatten)]
    pub file: File,
    /// Draw the tasks of this run, with their states, instead of the tasks of the configuration
    #[arg(add = complete::runs())]
    pub run: Option<String>,
    /// The format of the graph [default: boxes on a terminal, ascii otherwise]
    #[arg(long, value_enum)]
    pub format: Option<GraphFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CostBy {
    Agent,
    Task,
    Model,
}

#[derive(Debug, Args)]
pub(super) struct Cost {
    #[command(flatten)]
    pub file: File,
    /// The run [default: the newest]
    #[arg(add = complete::runs())]
    pub run: Option<String>,
    /// Sum by agent, by task or by model [default: by task, or by run over several]
    #[arg(long, value_enum)]
    pub by: Option<CostBy>,
    /// Sum over all runs
    #[arg(long, conflicts_with = "run")]
    pub all: bool,
    /// Sum over the runs that began within this time, like 12h or 7d
    #[arg(long, value_name = "TIME", conflicts_with = "run")]
    pub since: Option<String>,
    /// Print rows as JSON, one a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Cancel {
    #[command(flatten)]
    pub file: File,
    /// What to stop: RUN, RUN/TASK or RUN/@AGENT
    #[arg(value_name = "WHAT", add = complete::parts())]
    pub what: String,
}

#[derive(Debug, Args)]
pub(super) struct Compact {
    #[command(flatten)]
    pub file: File,
    /// The agent, as RUN/@AGENT
    #[arg(value_name = "RUN/@AGENT", add = complete::parts())]
    pub what: String,
    /// What the summary should preserve
    #[arg(long, value_name = "TEXT")]
    pub focus: Option<String>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("NAME=VALUE is needed")?;
    Ok((key.to_owned(), value.to_owned()))
}
