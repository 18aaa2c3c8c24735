//! The command line: one file per verb, and the only code that prints.

mod after_failure;
mod answer;
mod args;
mod ask;
mod attach;
mod awaited_budgets;
mod beside_others;
mod budget;
mod cancel;
mod check;
mod chosen;
mod compact;
mod complete;
mod context;
mod cost;
mod deltas;
mod detach;
mod doctor;
mod drive;
mod dry_run;
mod evidence;
mod explain;
mod fork;
mod gates;
mod graph;
mod here;
mod init;
mod live_view;
mod locate;
mod man;
mod mistakes;
mod pace;
mod paint;
mod pause;
mod pending;
mod pointers;
mod prune;
mod ps;
mod questions;
mod rebuild;
mod refusal;
mod report;
mod resume;
mod resume_all;
mod rows;
mod run;
mod say;
mod schema;
mod scope;
mod screen;
mod service;
mod short_id;
mod show;
mod stopped_run;
mod stream;
mod tail;
mod threads;
mod times;
mod trust;
mod version;
mod why;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use crate::exit::Exit;
use crate::foreign;
use crate::printable;
use args::{Arguments, OnRuns, Verb};
use stream::{Stream, complain, say, say_json};
use times::Times;

/// Parses the arguments, runs the verb that they name, and returns the program's exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(exit) = complete::answer(&arguments, Arguments::command) {
        return exit;
    }
    let arguments = match Arguments::try_parse_from(&arguments) {
        Ok(arguments) => arguments,
        Err(error) => return refused(error, &arguments),
    };
    foreign::print_panics_by(stream::panicked);
    listen_to_tracing(arguments.verbose);
    if let Err(error) = crate::tool::process::hide_memory() {
        tracing::debug!(%error, "other processes of this user can read the memory of this one");
    }
    let file = arguments.verb.as_ref().map_or_else(locate::default_file, Verb::file);
    let project =
        locate::Project::new(file, arguments.state_dir.clone(), Times::new(arguments.utc));
    project.note_file();
    let Some(verb) = arguments.verb else { return here::run(&project) };
    match verb.on_runs() {
        OnRuns::Nothing => {}
        OnRuns::Reads => project.note_records(),
        OnRuns::Writes { trust } => {
            let trust = if trust { trust::Trust::Given } else { trust::Trust::Ask };
            if let Err(exit) = trust::for_records(&project, trust) {
                return exit;
            }
        }
    }
    match verb {
        Verb::Run(verb) => run::run(&project, verb, arguments.verbose),
        Verb::Attach(verb) => attach::run(&project, &verb, arguments.verbose),
        Verb::Resume(verb) => resume::run(&project, &verb, arguments.verbose),
        Verb::Check(verb) => check::run(&project, &verb),
        Verb::Trust(verb) => trust::run(&project, &verb),
        Verb::Tail(verb) => tail::run(&project, &verb),
        Verb::Ps(verb) => ps::run(&project, &verb),
        Verb::Show(verb) => show::run(&project, &verb),
        Verb::Report(verb) => report::run(&project, &verb),
        Verb::Graph(verb) => graph::run(&project, &verb),
        Verb::Cost(verb) => cost::run(&project, &verb),
        Verb::Budget(verb) => budget::run(&project, &verb),
        Verb::Prune(verb) => prune::run(&project, &verb),
        Verb::Cancel(verb) => cancel::run(&project, &verb),
        Verb::Pending(verb) => pending::run(&project, &verb),
        Verb::Approve(verb) => answer::approve(&project, &verb),
        Verb::Reject(verb) => answer::reject(&project, &verb),
        Verb::Answer(verb) => answer::answer(&project, &verb),
        Verb::Compact(verb) => compact::run(&project, &verb),
        Verb::Say(verb) => say::run(&project, &verb),
        Verb::Pause(verb) => pause::pause(&project, &verb),
        Verb::Unpause(verb) => pause::unpause(&project, &verb),
        Verb::Fork(verb) => fork::run(&project, &verb, arguments.verbose),
        Verb::Rebuild(verb) => rebuild::run(&project, &verb),
        Verb::Context(verb) => context::run(&project, &verb),
        Verb::Service(verb) => service::run(&project, &verb),
        Verb::Completions { shell } => match complete::script(shell) {
            Some(script) => say(&script),
            None => Exit::Bug,
        },
        Verb::Init(verb) => init::run(&verb),
        Verb::Explain(verb) => explain::run(&verb),
        Verb::Schema(verb) => schema::run(&verb),
        Verb::Doctor(verb) => doctor::run(&project, &verb),
        Verb::Man(verb) => man::run(&verb),
        Verb::Why(verb) => why::run(&project, &verb),
        Verb::Version(verb) => version::run(&verb),
    }
}

/// Prints why the arguments cannot be read. `--help` and `--version` arrive here too: they are
/// printed to stdout, and they succeed.
fn refused(error: clap::Error, arguments: &[OsString]) -> Exit {
    // The parser prints back what was typed, so it gets that again as it may be shown.
    let shown = arguments.iter().map(|a| printable::line(&a.to_string_lossy()).into_owned());
    let (stream, exit) = match error.use_stderr() {
        true => (Stream::Err, Exit::Usage),
        false => (Stream::Out, Exit::Done),
    };
    let mut error = Arguments::try_parse_from(shown).err().unwrap_or(error);
    let help = pointers::advice(&mut error);
    let shown = error.render();
    let mut text = match stream.is_coloured() {
        true => stream::with_colours(&shown.ansi().to_string()),
        false => shown.to_string(),
    };
    text.extend(help.map(|help| format!("help: {help}\n")));
    // A stream that is closed is no error: the code says enough.
    let _ = stream.print(&text);
    exit
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
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| stream::Log);
    let subscriber = subscriber.with_timer(times::OfLog).with_target(verbose > 0);
    let subscriber = subscriber.log_internal_errors(false);
    // A second call in one process (tests) keeps the first subscriber.
    let _ = subscriber.with_ansi(Stream::Err.is_coloured()).try_init();
}

/// Starts the tokio runtime of a verb, or prints why it could not be started.
fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    if let Err(error) = threads::can_open_files() {
        complain(&format!("error: the program cannot open the files that it needs: {error}"));
        complain(
            "help: raise the limit of open files (`ulimit -n 1024`, or the limit of the container)",
        );
        return Err(Exit::Disk);
    }
    // The runtime panics, or waits without end, where it finds no room for a thread.
    let built = threads::have_room()
        .and_then(|()| tokio::runtime::Builder::new_multi_thread().enable_all().build());
    built.map_err(|error| {
        complain(&format!("error: the program cannot start its threads: {error}"));
        complain("help: raise the limit of processes (`ulimit -u`, or the limit of the container), or end some");
        Exit::Disk
    })
}
