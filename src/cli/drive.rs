//! Drives a run for the command line: prints its events, stops it on signals, and turns its end
//! into an exit code.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ask::{self, asker};
use super::deltas::Deltas;
use super::live_view::LiveView;
use super::locate::Project;
use super::paint::Paint;
use super::rows::folded;
use super::screen::Screen;
use super::stopped_run::open;
use super::stream::{Stream, complain_in_lines};
use super::tail::{Detail, Printer};
use super::trust::{self, Trust};
use super::{after_failure, complain, evidence, gates, questions, refusal, runtime, say};
use crate::actor::run_end::RunEnd;
use crate::client::{Client, Operation, Parts};
use crate::config::{Config, ProviderKind, Sources};
use crate::event::{PauseCause, RunCompleted};
use crate::exit::Exit;
use crate::failure::{Failure, FailureKind};
use crate::journal::cut::Cut;
use crate::journal::source::RecordedRun;
use crate::printable;
use crate::report::{self, evidence::Evidence};
use crate::run::{GivenUp, Options, Run, StartError};
use crate::run_state::RunState;
use crate::show::names::Names;
use crate::show::status::Status;

/// Settings for the output of a run.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// True if events are printed as JSON.
    pub(super) json: bool,
    /// Number of `-v` flags. With none, people see only milestones.
    pub(super) verbose: u8,
    /// The terminal.
    pub(super) screen: Arc<Screen>,
    /// True if the run stays open for the answers of people although nobody is at a terminal.
    pub(super) stays_open: bool,
}

impl Shown {
    /// Returns the printer of models' texts: with `-v`, unless events are printed as JSON.
    fn deltas(&self) -> Option<Deltas> {
        let is_watched = self.verbose > 0 && !self.json;
        is_watched.then(|| self.printer())
    }

    /// Returns the printer of the last lines of commands: without `-v`, where no status area shows them.
    fn last_lines(&self) -> Option<Deltas> {
        let are_shown = self.verbose == 0 && !self.json && self.screen.takes_last_lines();
        are_shown.then(|| self.printer())
    }

    fn printer(&self) -> Deltas {
        Deltas::new(Some(self.screen.clone()), Paint::of(Stream::Err))
    }
}

/// Drives a run until it ends or pauses in this process, and returns the exit code. `run` is given
/// if an existing run is resumed.
pub(super) fn drive(
    project: &Project,
    shown: Shown,
    run: Option<&RecordedRun>,
    starting: impl Future<Output = Result<Run, StartError>>,
) -> Exit {
    match runtime() {
        Ok(runtime) => {
            let exit = runtime.block_on(to_the_end(project, shown, run, starting));
            // A blocking call that hangs must not keep the program from ending.
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            exit
        }
        Err(exit) => exit,
    }
}

/// Prints a note for each scripted provider that a model of the configuration uses.
pub(super) fn note_scripts(config: &Config) {
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
}

/// How a run ended for this process.
enum Driven {
    Over(Exit),
    Crashed(Crash),
}

/// A crash of a run's supervisor.
struct Crash {
    run: RecordedRun,
    reason: String,
    /// The task or the agent with which it was busy; `None` for anything else.
    work: Option<String>,
}

/// Drives a run. If its supervisor crashes, the run goes on from its journal: what the journal does not hold
/// is gone, as it would be with the process. If it then crashes over a task, it goes on without that task.
async fn to_the_end(
    project: &Project,
    shown: Shown,
    run: Option<&RecordedRun>,
    starting: impl Future<Output = Result<Run, StartError>>,
) -> Exit {
    let mut driven = drive_once(project, &shown, run, starting).await;
    for is_again in [false, true] {
        let Driven::Crashed(crash) = driven else { break };
        complain(&format!("error: a bug: {}", crash.reason));
        let given_up = match (is_again, &crash.work) {
            (false, _) => {
                complain("note: the run goes on from its journal, once");
                None
            }
            (true, Some(work)) => {
                complain(&format!("note: the run goes on from its journal, and `{work}` fails"));
                let message = format!("callsheet crashed over it, and again: {}", crash.reason);
                let failure = Failure::new(FailureKind::Internal, message);
                Some(GivenUp { work: work.clone(), failure })
            }
            (true, None) => return Exit::Bug,
        };
        driven = match begin_again(project, &shown, &crash.run, given_up) {
            Ok(starting) => drive_once(project, &shown, Some(&crash.run), starting).await,
            Err(exit) => Driven::Over(exit),
        };
    }
    match driven {
        Driven::Over(exit) => exit,
        Driven::Crashed(Crash { reason, .. }) => {
            complain(&format!("error: a bug: {reason}"));
            Exit::Bug
        }
    }
}

/// Resumes a run whose supervisor crashed in this process.
fn begin_again(
    project: &Project,
    shown: &Shown,
    run: &RecordedRun,
    given_up: Option<GivenUp>,
) -> Result<impl Future<Output = Result<Run, StartError>> + use<>, Exit> {
    let stopped = open(project, run, Cut::Torn)?;
    let sources = stopped.sources(project.sources());
    let read = |outside| stopped.config(Sources { outside, ..project.sources() });
    let config = trust::load(project, Trust::Ask, &sources, read)?;
    let options = Options {
        stays_open: shown.stays_open,
        asker: asker(&shown.screen),
        given_up,
        ..Options::default()
    };
    Ok(Run::resume(stopped, config, options))
}

async fn drive_once(
    project: &Project,
    shown: &Shown,
    run: Option<&RecordedRun>,
    starting: impl Future<Output = Result<Run, StartError>>,
) -> Driven {
    // From here on a signal stops the run instead of killing the program.
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            complain(&format!("error: signals cannot be received: {error}"));
            return Driven::Over(Exit::Bug);
        }
    };
    // The state before this process, which the status counts on.
    let before = run.filter(|_| !shown.json).map(|run| run.state(|_| {}).0);
    let (screen, is_new) = (shown.screen.clone(), run.is_none());
    let run = match starting.await {
        Ok(run) => run,
        Err(error) => return Driven::Over(refused(project, run, &error)),
    };
    let (id, client) = (run.id(), run.client());
    let recorded = client.run().clone();
    complain(&format!("run {id} in {}", recorded.place().display()));
    if let Some(sandbox) = run.sandbox() {
        complain(&format!("sandbox of commands: {sandbox}"));
    }
    let detail = if shown.verbose > 0 { Detail::Full } else { Detail::Milestones };
    let paint = Paint::of(Stream::Err);
    let mut printer =
        Printer::for_run(shown.json, detail, paint, project.times.clone(), screen.clone());
    printer.names = before.as_ref().map(Names::of).unwrap_or_default();
    let (deltas, last_lines) = (shown.deltas(), shown.last_lines());
    // The status area shows the last line of each command.
    let has_area = screen.width().is_some() && !shown.json;
    let parts = match &deltas {
        Some(_) => Parts::All,
        None if has_area || last_lines.is_some() => Parts::Commands,
        None => Parts::None,
    };
    let gates = ask::has_terminal()
        .then(|| gates::asking(client.clone(), screen.clone(), before.as_ref()))
        .map(|(records, asking)| (records, tokio::spawn(asking)));
    let (records, gates) = gates.unzip();
    let printing = client.updates(run.began(), parts).map(|updates| {
        let status = (!shown.json).then(|| Status::new(before.unwrap_or_default()));
        let view = LiveView::new(printer, screen.clone(), status).with_deltas(deltas);
        let view = view.with_gates(records).with_last_lines(last_lines);
        // A summary follows, and a new run is seen from its first record on.
        let view = if is_new && !shown.json { view.with_evidence() } else { view };
        view.show(updates)
    });
    let heard = Heard::default();
    let listening = tokio::spawn(listen(signals, client, heard.clone(), screen.clone()));
    let remote = run.remote();
    let end = run.wait().await;
    if let Some(gates) = gates {
        // A question that is open leaves the screen before the rest of the log comes.
        gates.abort();
        let _ = gates.await;
    }
    let viewed = match printing {
        // The printing ends by itself after the last event. A slow reader of the output can delay
        // it.
        Ok(printing) => printing.await.ok(),
        Err(_) => None,
    };
    let (printed, evidence) =
        viewed.map_or((Exit::Done, None), |viewed| (viewed.exit, viewed.evidence));
    listening.abort();
    screen.clear();
    Driven::Over(match end {
        RunEnd::Completed(_) if shown.json && printed != Exit::Done => printed,
        RunEnd::Completed(completed) if shown.json => Exit::of(completed.record()),
        RunEnd::Completed(completed) => {
            let (state, record) = (completed.state(), completed.record());
            ended(project, &recorded, state, record, evidence)
        }
        RunEnd::Paused(paused) => {
            let id = project.short(&recorded);
            let why = format!("run {id} paused: {}", printable::line(&paused.reason));
            complain_in_lines(&folded(&why, Stream::Err));
            let (state, _) = recorded.state(|_| {});
            report::untold(&state).lines().for_each(complain);
            if paused.cause == PauseCause::Person && !shown.json {
                questions::summary(project, &recorded, &state).lines().for_each(complain);
            }
            complain(&format!("resume with:  {}", project.resume_command(&id)));
            match paused.cause {
                PauseCause::Person => Exit::Waiting,
                PauseCause::Failure => Exit::Provider,
                PauseCause::Interrupted | PauseCause::DiskFull | PauseCause::Quota => heard.exit(),
            }
        }
        RunEnd::JournalFailed(error) => {
            complain(&format!("error: the disk failed: {error}"));
            refusal::advise(&project.flags(), Some(&recorded), &error);
            Exit::Disk
        }
        RunEnd::Broken(reason) => {
            let busy = remote.busy().filter(|busy| busy.is_work);
            return Driven::Crashed(Crash {
                run: recorded,
                reason,
                work: busy.map(|busy| busy.with),
            });
        }
    })
}

/// Prints the summary of a run that has ended. Without its evidence, that is read from the records.
pub(super) fn ended(
    project: &Project,
    run: &RecordedRun,
    state: &RunState,
    completed: &RunCompleted,
    evidence: Option<Evidence>,
) -> Exit {
    let evidence = evidence.or_else(|| evidence::for_summary(run));
    match say(&summary(project, run, state, evidence)) {
        Exit::Done => Exit::of(completed),
        disk => disk,
    }
}

/// Prints why a run could not be started, and returns the exit code.
pub(super) fn refused(project: &Project, run: Option<&RecordedRun>, error: &StartError) -> Exit {
    let exit = match error {
        StartError::Journal(error) => return refusal::refused(&project.flags(), run, error),
        StartError::Config(_) | StartError::Plan(_) | StartError::Provider { .. } => Exit::Usage,
        StartError::Workspace { .. } | StartError::Output { .. } | StartError::Sandbox(_) => {
            Exit::Usage
        }
        StartError::Untried(_) => Exit::Disk,
        StartError::Actor(_) | StartError::Illegal(_) => Exit::Bug,
    };
    complain(&format!("error: {error}"));
    exit
}

/// Formats the result for people, with the commands that show more.
fn summary(
    project: &Project,
    run: &RecordedRun,
    state: &RunState,
    evidence: Option<Evidence>,
) -> String {
    let id = project.short(run);
    let text = report::summary(state, evidence.as_ref().unwrap_or(&Default::default()));
    let mut text = folded(&text, Stream::Out);
    let flags = project.flags();
    if evidence.is_none() {
        // What stands behind "done" is not left out without a word.
        text.push_str(&format!("its evidence: callsheet report{flags} {id}\n"));
    }
    text.push_str(&after_failure::commands(project, run, state));
    text.push_str(&format!("its parts:    callsheet ps{flags} --tree\n"));
    text.push_str(&format!("its results:  callsheet show{flags} {id}\n"));
    text.push_str(&format!(
        "its events:   callsheet tail{} {id}\n",
        flags.replace(" -f ", " --file ")
    ));
    text
}

/// The signals that stop a run.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// SIGHUP: the terminal was closed. `None` under `nohup`, so that the run outlives the
    /// terminal.
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

    /// Waits for the next signal. Returns its name for the journal, and the exit code that it leads
    /// to.
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

/// Returns true if this process was started with SIGHUP ignored, and false where `/proc` does not
/// tell.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, and so the lowest bit.
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// The last signal received: true after SIGTERM or SIGHUP, false after Ctrl-C or before any signal.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<AtomicBool>);

impl Heard {
    fn exit(&self) -> Exit {
        if self.0.load(Ordering::SeqCst) { Exit::Terminated } else { Exit::Interrupted }
    }
}

/// Stops the run gracefully at the first signal; at the second, ends the program and its tools at
/// once.
async fn listen(mut signals: Signals, client: Client, heard: Heard, screen: Arc<Screen>) {
    let mut again = false;
    loop {
        let (name, exit) = signals.next().await;
        heard.0.store(exit == Exit::Terminated, Ordering::SeqCst);
        if again {
            screen.clear();
            crate::tool::process::kill_all_groups();
            std::process::exit(heard.exit() as i32);
        }
        again = true;
        // A stderr that is closed is no error: the run stops all the same.
        let _ = screen.line("stopping; a second signal stops at once");
        // A run that is over needs no interruption.
        let _ = client.send(Operation::Interrupt { reason: name.to_owned() }).await;
    }
}
