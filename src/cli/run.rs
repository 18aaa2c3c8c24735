//! `run`: launches the graph and shows how it goes.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use super::args;
use super::locate::{Place, fold};
use super::paint::{self, Paint};
use super::tail::Printer;
use super::{check, complain, runtime, say};
use crate::actor::supervisor::RunEnd;
use crate::config::{Config, ProviderKind, Sources};
use crate::event::Event;
use crate::exit::Exit;
use crate::id::RunId;
use crate::report;
use crate::run::{Options, Remote, Run, StartError};

pub(super) fn run(place: &Place, verb: args::Run) -> Exit {
    let run_id = match verb.run_id.as_deref().map(|text| (text, RunId::parse(text))) {
        Some((text, None)) => {
            complain(&format!("error: `{text}` is not a run id: a UUID is needed"));
            return Exit::Usage;
        }
        Some((_, id)) => id,
        None => None,
    };
    let sources = Sources {
        profile: verb.profile.clone(),
        inputs: verb.inputs.clone(),
        targets: verb.tasks.clone(),
        ..place.sources()
    };
    let config = match check::load(&sources) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    match runtime() {
        Ok(runtime) => {
            let exit = runtime.block_on(drive(config, verb, run_id));
            // A blocking call that hangs must not hold the program up.
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            exit
        }
        Err(exit) => exit,
    }
}

async fn drive(mut config: Config, verb: args::Run, run_id: Option<RunId>) -> Exit {
    if verb.keep_going {
        config.limits.fail_fast = false;
    }
    for provider in config.providers.values() {
        if !matches!(provider.kind, ProviderKind::Scripted { .. }) {
            continue;
        }
        let provider = &provider.name;
        complain(&format!(
            "note: provider `{provider}` is the built-in scripted model: its answers come from a \
             script, its tool calls are real"
        ));
    }
    let options = Options { tasks: verb.tasks, run_id, asker: asker(), ..Options::default() };
    let run = match Run::start(config, options).await {
        Ok(run) => run,
        Err(error) => return refused(&error),
    };
    let dir = run.dir().clone();
    complain(&format!("run {} in {}", run.id(), dir.path().display()));
    let shown = run.follow().map(|follower| tokio::spawn(show(follower, verb.json)));
    let signals = tokio::spawn(listen(run.remote()));
    let end = run.wait().await;
    if let Ok(shown) = shown {
        // It ends by itself once the run has ended; a broken pipe ended it before.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), shown).await;
    }
    let signal = Signal::of(&signals);
    signals.abort();
    match end {
        RunEnd::Completed(completed) => {
            if !verb.json
                && let Ok(state) = fold(&dir, |_| {})
            {
                say(&report::summary(&state));
            }
            Exit::of(&completed)
        }
        RunEnd::Paused(reason) => {
            complain(&format!("run paused: {reason}"));
            signal
        }
        RunEnd::JournalFailed(error) => {
            complain(&format!("error: the journal cannot be written: {error}"));
            Exit::Disk
        }
        RunEnd::Broken(reason) => {
            complain(&format!("error: a bug: {reason}"));
            Exit::Bug
        }
    }
}

/// Says why a run could not be started.
fn refused(error: &StartError) -> Exit {
    complain(&format!("error: {error}"));
    match error {
        StartError::Config(_) | StartError::Plan(_) | StartError::Provider { .. } => Exit::Usage,
        StartError::Workspace { .. } => Exit::Usage,
        StartError::Journal(crate::journal::JournalError::Locked { .. }) => Exit::Held,
        StartError::Journal(crate::journal::JournalError::Exists(_)) => Exit::Usage,
        StartError::Journal(_) => Exit::Disk,
        StartError::Actor(_) => Exit::Bug,
    }
}

/// Prints events as they become durable: as JSON on stdout, or as lines for people on stderr.
async fn show(mut follower: crate::journal::reader::follow::Follower, json: bool) {
    let mut printer = Printer::for_run(json, Paint::new(paint::is_on(&io::stderr())));
    while let Ok(Some(record)) = follower.next().await {
        if !printer.print(&record) {
            return;
        }
        if matches!(record.event, Event::RunCompleted(_) | Event::RunPaused(_)) {
            return;
        }
    }
}

/// The exit code of a run that a signal stopped.
struct Signal;

static TERMINATED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

impl Signal {
    fn of(_listening: &tokio::task::JoinHandle<()>) -> Exit {
        if TERMINATED.load(std::sync::atomic::Ordering::SeqCst) {
            Exit::Terminated
        } else {
            Exit::Interrupted
        }
    }
}

/// The first signal stops the run gracefully, the second ends the program at once, its tools
/// included.
async fn listen(remote: Remote) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    let mut heard = false;
    loop {
        let terminated = tokio::select! {
            _ = interrupt.recv() => false,
            _ = terminate.recv() => true,
        };
        TERMINATED.store(terminated, std::sync::atomic::Ordering::SeqCst);
        if heard {
            crate::tool::bash::kill_all_groups();
            std::process::exit(if terminated { 143 } else { 130 });
        }
        heard = true;
        complain("stopping; once more to stop at once");
        remote.interrupt(if terminated { "SIGTERM" } else { "Ctrl-C" });
    }
}

/// Asks at the terminal, if there is one to ask at.
fn asker() -> Option<Arc<dyn crate::actor::Asker>> {
    let terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    terminal.then(|| Arc::new(Terminal::default()) as Arc<dyn crate::actor::Asker>)
}

/// One question at a time.
#[derive(Debug, Default)]
struct Terminal {
    turn: tokio::sync::Mutex<()>,
}

impl crate::actor::Asker for Terminal {
    fn ask(&self, agent: &crate::id::AgentId, what: &str) -> crate::model::BoxFuture<'_, bool> {
        let shown: String = what.chars().flat_map(char::escape_debug).take(400).collect();
        let question = format!("{agent} wants to run: {shown}\nallow? [y/N]");
        Box::pin(async move {
            let _turn = self.turn.lock().await;
            complain(&question);
            let answer = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                io::stdin().read_line(&mut line).map(|_| line)
            });
            let answer = answer.await.ok().and_then(Result::ok).unwrap_or_default();
            matches!(answer.trim(), "y" | "Y" | "yes")
        })
    }
}
