//! `attach`: follows a live run as if this terminal had started it.

use super::deltas::Deltas;
use super::live_view::LiveView;
use super::locate::Project;
use super::paint::Paint;
use super::stream::Stream;
use super::tail::{Detail, Printer};
use super::{args, complain, drive, questions, refusal, runtime};
use crate::client::{Client, Parts};
use crate::event::PauseCause;
use crate::exit::Exit;
use crate::journal::source::{Cursor, RecordedRun};
use crate::show::status::Status;

/// The number of earlier lines that are printed first.
const BEFORE: usize = 10;

pub(super) fn run(project: &Project, verb: &args::Attach, verbose: u8) -> Exit {
    let run = match project.run(verb.run.as_deref()) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let screen = verb.progress.screen();
    let detail = if verbose > 0 { Detail::Full } else { Detail::Milestones };
    let paint = Paint::of(Stream::Err);
    let printer = Printer::for_run(false, detail, paint, project.times.clone(), screen.clone());
    // The client of another process receives on the runtime.
    let entered = runtime.enter();
    let parts = if verbose > 0 { Parts::All } else { Parts::Commands };
    let mut updates = match Client::of(run.clone()).updates(Cursor::START, parts) {
        Ok(updates) => updates,
        Err(error) => return refusal::refused(&project.flags(), Some(&run), &error),
    };
    drop(entered);
    let deltas = (verbose > 0).then(|| Deltas::new(Some(screen.clone()), paint));
    let view = LiveView::new(printer, screen.clone(), Some(Status::default()));
    let are_shown = verbose == 0 && screen.takes_last_lines();
    let last_lines = are_shown.then(|| Deltas::new(Some(screen.clone()), paint));
    let mut view = view.with_deltas(deltas).with_last_lines(last_lines);
    if run.is_live() {
        if let Err(error) = view.catch_up(&mut updates, BEFORE) {
            return refusal::refused(&project.flags(), Some(&run), &error);
        }
        let is_detached = runtime.block_on(async {
            tokio::select! {
                _ = view.follow(updates) => false,
                _ = tokio::signal::ctrl_c() => true,
            }
        });
        screen.clear();
        if is_detached && run.is_live() {
            let (flags, run) = (project.flags(), project.short(&run));
            complain(&format!("detached; the run goes on: callsheet attach{flags} {run}"));
            return Exit::Done;
        }
    }
    ended(project, &run)
}

/// Prints how a run ended, paused or stopped, and returns the exit code that its own process has.
fn ended(project: &Project, run: &RecordedRun) -> Exit {
    let (state, read) = run.state(|_| {});
    if let Err(error) = read {
        return refusal::refused(&project.flags(), Some(run), &error);
    }
    if let Some(completed) = state.completed() {
        return drive::ended(project, run, &state, completed, None);
    }
    let (id, cause) = (project.short(run), state.paused_cause());
    match state.paused_reason() {
        Some(reason) => complain(&format!("run {id} paused: {reason}")),
        None => complain(&format!("run {id} was stopped: no process drives it")),
    }
    if cause == Some(PauseCause::Person) {
        questions::summary(project, run, &state).lines().for_each(complain);
    }
    complain(&format!("resume with:  {}", project.resume_command(&id)));
    match cause {
        Some(PauseCause::Person) => Exit::Waiting,
        Some(PauseCause::Failure) => Exit::Provider,
        Some(PauseCause::Interrupted | PauseCause::DiskFull | PauseCause::Quota) => {
            Exit::Interrupted
        }
        None => Exit::Failed,
    }
}
