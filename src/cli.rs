//! The command line: one file per verb, and the only code that prints.

mod after_failure;
mod args;
mod ask;
mod attach;
mod cancel;
mod check;
mod compact;
mod complete;
mod context;
mod cost;
mod deltas;
mod detach;
mod drive;
mod explain;
mod fork;
mod graph;
mod here;
mod init;
mod live_view;
mod locate;
mod mistakes;
mod paint;
mod ps;
mod rebuild;
mod refusal;
mod resume;
mod run;
mod schema;
mod screen;
mod short_id;
mod show;
mod status;
mod stopped_run;
mod tail;
mod times;
mod trust;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{CommandFactory, Parser};

use crate::exit::Exit;
use args::{Arguments, Verb};
use times::Times;

/// Parses the arguments, runs the verb that they name, and returns the program's exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(exit) = complete::answer(&arguments, Arguments::command) {
        return exit;
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // `--help` and `--version` arrive as errors too: clap prints them to stdout, and they
            // succeed.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            let _ = error.print();
            return exit;
        }
    };
    listen_to_tracing(arguments.verbose);
    if let Err(error) = crate::tool::process::hide_memory() {
        tracing::debug!(%error, "other processes of this user can read the memory of this one");
    }
    let file = arguments.verb.as_ref().map_or_else(locate::default_file, Verb::file);
    let project =
        locate::Project::new(file, arguments.state_dir.clone(), Times::new(arguments.utc));
    project.note_file();
    let Some(verb) = arguments.verb else { return here::run(&project) };
    match verb {
        Verb::Run(verb) => run::run(&project, verb, arguments.verbose),
        Verb::Attach(verb) => attach::run(&project, &verb, arguments.verbose),
        Verb::Resume(verb) => resume::run(&project, &verb, arguments.verbose),
        Verb::Check(verb) => check::run(&project, &verb),
        Verb::Trust(verb) => trust::run(&project, &verb),
        Verb::Tail(verb) => tail::run(&project, &verb),
        Verb::Ps(verb) => ps::run(&project, &verb),
        Verb::Show(verb) => show::run(&project, &verb),
        Verb::Graph(verb) => graph::run(&project, &verb),
        Verb::Cost(verb) => cost::run(&project, &verb),
        Verb::Cancel(verb) => cancel::run(&project, &verb),
        Verb::Compact(verb) => compact::run(&project, &verb),
        Verb::Fork(verb) => fork::run(&project, &verb, arguments.verbose),
        Verb::Rebuild(verb) => rebuild::run(&project, &verb),
        Verb::Context(verb) => context::run(&project, &verb),
        Verb::Completions { shell } => match complete::script(shell) {
            Some(script) => say(&script),
            None => Exit::Bug,
        },
        Verb::Init(verb) => init::run(&verb),
        Verb::Explain(verb) => explain::run(&verb),
        Verb::Schema(verb) => schema::run(&verb),
        Verb::Man => {
            let mut page = Vec::new();
            match clap_mangen::Man::new(Arguments::command()).render(&mut page) {
                Ok(()) => say(&String::from_utf8_lossy(&page)),
                Err(_) => Exit::Disk,
            }
        }
        Verb::Version => say(&format!("callsheet {}\n", env!("CARGO_PKG_VERSION"))),
    }
}

/// Sends tracing output to stderr: warnings, or more with `-v`. A filter in CALLSHEET_LOG overrides
/// `-v`.
fn listen_to_tracing(verbose: u8) {
    let level = match verbose {
        0 => "callsheet=warn",
        1 => "callsheet=info",
        _ => "callsheet=debug",
    };
    let wanted = std::env::var("CALLSHEET_LOG").unwrap_or_else(|_| level.to_owned());
    let filter = tracing_subscriber::EnvFilter::try_new(&wanted);
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // A second call in one process (tests) keeps the first subscriber.
    let _ = subscriber.with_ansi(paint::is_on(&io::stderr())).try_init();
}

/// Prints data to stdout. A closed pipe counts as success: its reader has read enough.
fn say(text: &str) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Exit::Done,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(_) => Exit::Disk,
    }
}

/// Prints errors and notes to stderr. A stderr that is closed is no error.
fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Starts the tokio runtime of a verb, or prints why it could not be started.
fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| {
        complain(&format!("error: the runtime could not be started: {error}"));
        Exit::Bug
    })
}
