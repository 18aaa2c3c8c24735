//! `cancel`: stops a run, a task or an agent with its children, tools included.

use std::time::{Duration, Instant};

use super::args;
use super::drive::refused;
use super::locate::{Project, Selector};
use super::stopped_run::open;
use super::{complain, runtime};
use crate::exit::Exit;
use crate::id::{AgentId, Name};
use crate::journal::file::RunDir;
use crate::journal::torn::Cut;
use crate::run::control::{self, Request};
use crate::run_machine::CancelTarget;
use crate::run_state::{RunPhase, RunState};

/// Maximum time to wait for the end of the target. It includes the grace period that the run gives
/// its tools.
const WAIT: Duration = Duration::from_secs(60);

/// Pause between two reads of the run's state while waiting for the end.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn run(project: &Project, verb: &args::Cancel) -> Exit {
    let (dir, part) = match project.part(Some(&verb.what)) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    match stopped(project, &dir, &part) {
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
    if !dir.is_live() {
        return without_owner(project, &dir, &part);
    }
    match control::ask(&dir, &request(&part)) {
        Ok(answer) if answer.found => wait(project, &dir, &part),
        Ok(_) => {
            complain(&format!("error: there is no `{}`", verb.what));
            Exit::Failed
        }
        // The owner may have ended between the two checks.
        Err(error) => match stopped(project, &dir, &part) {
            Ok(Some(true)) => Exit::Done,
            _ if !dir.is_live() => without_owner(project, &dir, &part),
            _ => {
                complain(&format!(
                    "error: the process that drives the run cannot be reached: {error}"
                ));
                Exit::Failed
            }
        },
    }
}

/// Cancels in this process, because no other process drives the run.
fn without_owner(project: &Project, dir: &RunDir, part: &Selector) -> Exit {
    let stopped = match open(project, dir, Cut::Torn) {
        Ok(stopped) if stopped.completed().is_some() => return Exit::Done,
        Ok(stopped) => stopped,
        Err(exit) => return exit,
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(stopped.cancel(&target(part), "cancelled by a person")) {
        Ok(()) => Exit::Done,
        Err(error) => refused(project, Some(dir), &error),
    }
}

fn request(part: &Selector) -> Request {
    match target(part) {
        CancelTarget::Run => Request::Cancel { task: None, agent: None },
        CancelTarget::Task(task) => Request::Cancel { task: Some(task), agent: None },
        CancelTarget::Agent(agent) => Request::Cancel { task: None, agent: Some(agent) },
    }
}

fn target(part: &Selector) -> CancelTarget {
    match part {
        Selector::Run => CancelTarget::Run,
        // `stopped` has found this task, so its name is valid.
        Selector::Task(task) => {
            CancelTarget::Task(Name::new(task).expect("a task that exists has a valid name"))
        }
        Selector::Agent(agent) => CancelTarget::Agent(AgentId::from_text(agent)),
    }
}

/// Waits until the end of the target is recorded, for at most [`WAIT`].
fn wait(project: &Project, dir: &RunDir, part: &Selector) -> Exit {
    let deadline = Instant::now() + WAIT;
    while Instant::now() < deadline {
        match stopped(project, dir, part) {
            Ok(Some(true)) => return Exit::Done,
            // The owner died before it recorded the end.
            Ok(_) if !dir.is_live() => return without_owner(project, dir, part),
            Ok(_) => std::thread::sleep(LOOK),
            Err(exit) => return exit,
        }
    }
    complain(&format!("error: it has not ended within {} s", WAIT.as_secs()));
    Exit::TimedOut
}

/// Returns true if the end of the target is recorded, and `None` if there is no such target.
fn stopped(project: &Project, dir: &RunDir, part: &Selector) -> Result<Option<bool>, Exit> {
    let state: RunState = project.state(dir)?;
    let over = matches!(state.phase(), RunPhase::Completed(_));
    Ok(match part {
        Selector::Run => Some(over),
        Selector::Task(name) => {
            let task = Name::new(name).ok().and_then(|name| state.task(&name).cloned());
            task.map(|task| over || task.state.is_end())
        }
        Selector::Agent(name) => {
            let agent = state.agents().get(&AgentId::from_text(name));
            agent.map(|agent| over || agent.outcome.is_some())
        }
    })
}
