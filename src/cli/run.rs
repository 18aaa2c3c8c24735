//! `run`: launches the graph and shows how it goes.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::args;
use super::locate::{Place, fold};
use super::paint::{self, Paint};
use super::tail::{Detail, Printer};
use super::{check, complain, runtime, say};
use crate::actor::supervisor::RunEnd;
use crate::config::{Config, ProviderKind, Sources};
use crate::event::{Event, PauseCause};
use crate::exit::Exit;
use crate::id::RunId;
use crate::journal::JournalError;
use crate::journal::reader::follow::Follower;
use crate::plan::TaskState;
use crate::report;
use crate::run::{Options, Remote, Run, StartError};
use crate::run_state::RunState;

pub(super) fn run(place: &Place, verb: args::Run, verbose: u8) -> Exit {
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
            let exit = runtime.block_on(drive(place, config, verb, run_id, verbose));
            // A blocking call that hangs must not hold the program up.
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            exit
        }
        Err(exit) => exit,
    }
}

async fn drive(
    place: &Place,
    config: Config,
    verb: args::Run,
    run_id: Option<RunId>,
    verbose: u8,
) -> Exit {
    for (provider, spec) in &config.providers {
        let is_used = config.models.values().any(|model| model.provider == *provider);
        if !is_used || !matches!(spec.kind, ProviderKind::Scripted { .. }) {
            continue;
        }
        complain(&format!(
            "note: provider `{provider}` is the built-in scripted model: its answers come from a \
             script, its tool calls are real"
        ));
    }
    let options = Options {
        tasks: verb.tasks,
        run_id,
        keep_going: verb.keep_going,
        asker: asker(),
        ..Options::default()
    };
    // From here on a signal stops the run and does not kill the program.
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            complain(&format!("error: signals cannot be heard: {error}"));
            return Exit::Bug;
        }
    };
    let run = match Run::start(config, options).await {
        Ok(run) => run,
        Err(error) => return refused(&error),
    };
    let (id, dir) = (run.id(), run.dir().clone());
    complain(&format!("run {id} in {}", dir.path().display()));
    let detail = if verbose > 0 { Detail::Full } else { Detail::Milestones };
    let printer = Printer::for_run(verb.json, detail, Paint::new(paint::is_on(&io::stderr())));
    let shown = run.follow().map(|follower| show(follower, printer));
    let heard = Heard::default();
    let listening = tokio::spawn(listen(signals, run.remote(), heard.clone()));
    let end = run.wait().await;
    let printed = match shown {
        // It ends by itself once everything is printed, as soon as whoever reads it has taken it.
        Ok(shown) => shown.await.unwrap_or(Exit::Done),
        Err(_) => Exit::Done,
    };
    listening.abort();
    match end {
        RunEnd::Completed(completed) => {
            if verb.json {
                return if printed == Exit::Done { Exit::of(&completed) } else { printed };
            }
            match fold(&dir, |_| {}) {
                Ok(state) => match say(&summary(place, &state, id)) {
                    Exit::Done => Exit::of(&completed),
                    disk => disk,
                },
                Err(exit) => exit,
            }
        }
        RunEnd::Paused(reason) => {
            complain(&format!("run {id} paused: {reason}"));
            heard.exit()
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
        StartError::Journal(JournalError::Locked { .. }) => Exit::Held,
        StartError::Journal(JournalError::Exists(_) | JournalError::NotLocal { .. }) => Exit::Usage,
        StartError::Journal(_) => Exit::Disk,
        StartError::Actor(_) => Exit::Bug,
    }
}

/// The result for people, and where to look next.
fn summary(place: &Place, state: &RunState, id: RunId) -> String {
    let mut text = report::summary(state);
    let flags = place.flags();
    let failed = state.tasks().find(|(_, task)| task.state == TaskState::Failed);
    if let Some(agent) = failed.and_then(|(_, task)| task.agent.as_ref()) {
        text.push_str(&format!("what failed:  callsheet show{flags} {id}/@{agent} --transcript\n"));
    }
    text.push_str(&format!("its parts:    callsheet ps{flags} --tree\n"));
    text.push_str(&format!("its results:  callsheet show{flags} {id}\n"));
    text.push_str(&format!(
        "its events:   callsheet tail{} {id}\n",
        flags.replace(" -f ", " --file ")
    ));
    text
}

/// Prints events as they become durable, as JSON on stdout or as lines for people on stderr, on a
/// thread of its own: whoever reads them may be slow, and the run must not wait for that.
fn show(mut follower: Follower, mut printer: Printer) -> oneshot::Receiver<Exit> {
    let (ended, shown) = oneshot::channel();
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build()
        else {
            return;
        };
        runtime.block_on(async {
            while let Ok(Some(record)) = follower.next().await {
                let is_last = match &record.event {
                    Event::RunCompleted(_) => true,
                    Event::RunPaused(paused) => paused.cause == PauseCause::Interrupted,
                    _ => false,
                };
                if !printer.print(&record) || is_last {
                    return;
                }
            }
        });
        // Whoever waited for it may have gone.
        let _ = ended.send(printer.end());
    });
    shown
}

/// The signals that stop a run.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal was closed. Absent under `nohup`, which wants the run to outlive it.
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        let hangup = match ignores_hangup() {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        Ok(Self { interrupt: signal(interrupt)?, terminate: signal(terminate)?, hangup })
    }

    /// The next signal: its name in the records, and the code the program then ends with.
    async fn next(&mut self) -> (&'static str, Exit) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => ("Ctrl-C", Exit::Interrupted),
            _ = self.terminate.recv() => ("SIGTERM", Exit::Terminated),
            _ = hangup => ("SIGHUP", Exit::Terminated),
        }
    }
}

/// Whether this process was started with SIGHUP ignored. Where the system does not say, it is
/// taken to be heard.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, and so the lowest bit.
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// The last signal heard.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<AtomicBool>);

impl Heard {
    fn exit(&self) -> Exit {
        if self.0.load(Ordering::SeqCst) { Exit::Terminated } else { Exit::Interrupted }
    }
}

/// The first signal stops the run gracefully, the second ends the program at once, its tools
/// included.
async fn listen(mut signals: Signals, remote: Remote, heard: Heard) {
    let mut again = false;
    loop {
        let (name, exit) = signals.next().await;
        heard.0.store(exit == Exit::Terminated, Ordering::SeqCst);
        if again {
            crate::tool::bash::kill_all_groups();
            std::process::exit(heard.exit() as i32);
        }
        again = true;
        complain("stopping; once more to stop at once");
        remote.interrupt(name);
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
