//! `cancel`: stops a run, a task or an agent with its children, tools included.

use std::time::Duration;

use super::args;
use super::compact::note_busy;
use super::drive::refused;
use super::locate::{Project, Selector};
use super::stopped_run::open;
use super::trust::{self, Trust};
use super::{complain, refusal, runtime};
use crate::client::{Acknowledgement, Client, ClientError, Operation, Parts, Update};
use crate::config::{Config, Missing, Sources};
use crate::exit::Exit;
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::journal::cut::Cut;
use crate::journal::source::{Cursor, RecordedRun};
use crate::run::control::CANCELLED;
use crate::run::{Options, Run, RunEnd, StartError, StoppedRun};
use crate::run_machine::CancelTarget;
use crate::run_state::{RunPhase, RunState};
use crate::spec::TaskSpec;
use crate::spec::hooks::Hook;

/// Maximum time to wait for the end of the target. It includes the grace period that the run gives
/// its tools.
const WAIT: Duration = Duration::from_secs(60);

pub(super) fn run(project: &Project, verb: &args::Cancel) -> Exit {
    let (run, part) = match project.part(Some(&verb.what)) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    match stopped(project, &run, &part) {
        Ok(Some(true)) => {
            complain("nothing to stop: it has ended");
            return Exit::Done;
        }
        Ok(Some(false)) => {}
        Ok(None) => {
            complain(&format!("error: there is no `{}`", verb.what));
            return Exit::Failed;
        }
        Err(exit) => return exit,
    }
    let exit = cancelled(project, verb, run, &part);
    if exit == Exit::Done {
        complain(&format!("cancelled: {}", verb.what));
    }
    exit
}

/// Cancels what has not ended.
fn cancelled(project: &Project, verb: &args::Cancel, run: RecordedRun, part: &Selector) -> Exit {
    if !run.is_live() {
        return without_owner(project, &run, part);
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let operation = Operation::Cancel { target: target(part), reason: None };
    match runtime.block_on(Client::of(run.clone()).send(operation)) {
        Ok(Acknowledgement::Taken { busy }) => {
            note_busy(busy.as_deref());
            wait(project, &run, part)
        }
        Ok(Acknowledgement::NotFound) => {
            complain(&format!("error: there is no `{}`", verb.what));
            Exit::Failed
        }
        Err(error @ ClientError::Refused(_)) => {
            complain(&format!("error: {error}"));
            Exit::Failed
        }
        // The owner may have ended between the two checks.
        Err(error) => match stopped(project, &run, part) {
            Ok(Some(true)) => Exit::Done,
            _ if !run.is_live() => without_owner(project, &run, part),
            _ => {
                complain(&format!("error: {error}"));
                Exit::Failed
            }
        },
    }
}

/// Returns the configuration of a run that has something to clean up after its cancellation: a task
/// that always runs and has not ended, or a hook for the end of the run.
fn cleanup(
    project: &Project,
    run: &RecordedRun,
    stopped: &StoppedRun,
) -> Result<Option<Config>, Exit> {
    let sources = stopped.sources(project.sources());
    let read = |outside| {
        // An agent that needs a key may be among what is cancelled.
        let missing_keys = Missing::Allow;
        stopped.config(Sources { outside, missing_keys, ..project.sources() })
    };
    let Ok(looked) = trust::look(read) else {
        complain(
            "note: nothing is cleaned up: the configuration of the run has mistakes here and now",
        );
        complain(&format!("  {}", project.resume_command(&project.short(run))));
        return Ok(None);
    };
    let state = stopped.state();
    let is_open = |task: &TaskSpec| state.task(&task.name).is_some_and(|t| !t.state.is_end());
    let always = looked.tasks.iter().any(|task| task.always && is_open(task));
    if !always && !looked.hooks.set().contains(&Hook::OnExit) {
        return Ok(None);
    }
    trust::load(project, Trust::Ask, &sources, read).map(Some)
}

/// Drives a run that is cancelled as it is resumed, so that what cleans up runs.
fn clean_up(project: &Project, run: &RecordedRun, stopped: StoppedRun, config: Config) -> Exit {
    complain("no process drives the run: this one runs what cleans up");
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let options = Options { cancelled: Some(CANCELLED.to_owned()), ..Options::default() };
    let end = runtime.block_on(async {
        Ok::<_, StartError>(Run::resume(stopped, config, options).await?.wait().await)
    });
    match end {
        Ok(RunEnd::Completed(_)) => Exit::Done,
        Ok(RunEnd::Paused(paused)) => {
            complain(&format!("error: the cleanup paused: {}", paused.reason));
            complain(&format!("  {}", project.resume_command(&project.short(run))));
            Exit::Failed
        }
        Ok(RunEnd::JournalFailed(error)) => refusal::refused(&project.flags(), Some(run), &error),
        Ok(RunEnd::Broken(reason)) => {
            complain(&format!("error: a bug: {reason}"));
            Exit::Bug
        }
        Err(error) => refused(project, Some(run), &error),
    }
}

/// Cancels in this process, because no other process drives the run.
fn without_owner(project: &Project, run: &RecordedRun, part: &Selector) -> Exit {
    let stopped = match open(project, run, Cut::Torn) {
        Ok(stopped) if stopped.completed().is_some() => return Exit::Done,
        Ok(stopped) => stopped,
        Err(exit) => return exit,
    };
    if *part == Selector::Run {
        match cleanup(project, run, &stopped) {
            Ok(Some(config)) => return clean_up(project, run, stopped, config),
            Ok(None) => {}
            Err(exit) => return exit,
        }
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(stopped.cancel(&target(part), CANCELLED)) {
        Ok(()) => Exit::Done,
        Err(error) => refused(project, Some(run), &error),
    }
}

fn target(part: &Selector) -> CancelTarget {
    match part {
        Selector::Run => CancelTarget::Run,
        // `stopped` has found this task by the same reading of its name.
        Selector::Task(task) => {
            CancelTarget::Task(Name::of_record(task).expect("a task that exists has a name"))
        }
        Selector::Agent(agent) => CancelTarget::Agent(AgentId::from_text(agent)),
    }
}

/// Waits until the end of the target is recorded, for at most [`WAIT`].
fn wait(project: &Project, run: &RecordedRun, part: &Selector) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(async { tokio::time::timeout(WAIT, ended(run, part)).await }) {
        Ok(Ok(true)) => Exit::Done,
        // The owner died before it recorded the end.
        Ok(Ok(false)) => without_owner(project, run, part),
        Ok(Err(error)) => refusal::refused(&project.flags(), Some(run), &error),
        Err(_) => {
            complain(&format!("error: it has not ended within {} s", WAIT.as_secs()));
            Exit::TimedOut
        }
    }
}

/// Follows the run until the end of the target is recorded. Returns false if the run's process ends
/// before. Each record is folded once, however long it takes.
async fn ended(run: &RecordedRun, part: &Selector) -> Result<bool, JournalError> {
    let client = Client::of(run.clone());
    let (mut state, mut updates) =
        (RunState::default(), client.updates(Cursor::START, Parts::None)?);
    loop {
        let record = match updates.next_record_ready()? {
            Some(record) => record,
            None if is_over(&state, part) == Some(true) => return Ok(true),
            None => match updates.next().await? {
                Some(Update::Record(record)) => record,
                Some(Update::Part(_) | Update::NoParts(_)) => continue,
                None => return Ok(is_over(&state, part) == Some(true)),
            },
        };
        // Such a record ends the run, and whoever opens it next reports it.
        if state.apply(&record).is_err() {
            return Ok(false);
        }
    }
}

/// Returns true if the end of the target is recorded, and `None` if there is no such target.
fn stopped(project: &Project, run: &RecordedRun, part: &Selector) -> Result<Option<bool>, Exit> {
    Ok(is_over(&project.state(run)?, part))
}

/// Returns true if the target has ended with everything that works for it, and `None` if there is no
/// such target.
fn is_over(state: &RunState, part: &Selector) -> Option<bool> {
    let over = matches!(state.phase(), RunPhase::Completed(_));
    match part {
        Selector::Run => Some(over),
        Selector::Task(name) => {
            let whole = Name::of_record(name).ok().filter(|name| state.task(name).is_some())?;
            // A task that stands for a sub-graph may have ended before the tasks of it.
            let mut parts = state.tasks().filter(|(name, _)| name.is_part_of(&whole));
            Some(over || parts.all(|(_, task)| task.state.is_end()))
        }
        Selector::Agent(name) => {
            let agent = state.agents().get(&AgentId::from_text(name));
            agent.map(|agent| over || agent.has_subtree_ended())
        }
    }
}
