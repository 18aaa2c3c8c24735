//! `cancel`: stops a run, a task or an agent with its children, tools included.

use std::time::{Duration, Instant};

use super::args;
use super::complain;
use super::locate::{Part, Place, fold};
use crate::exit::Exit;
use crate::id::{AgentId, Name};
use crate::journal::file::RunDir;
use crate::run::control::{self, Request};
use crate::run_state::{RunPhase, RunState};

/// How long to wait for the end beyond the grace that the run gives its tools.
const WAIT: Duration = Duration::from_secs(60);

/// How often to look.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn run(place: &Place, verb: &args::Cancel) -> Exit {
    let (dir, part) = match place.part(Some(&verb.what)) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    match stopped(&dir, &part) {
        Ok(Some(true)) => {
            complain("nothing to stop: it is not at work");
            return Exit::Done;
        }
        Ok(Some(false)) => {}
        Ok(None) => {
            complain(&format!("error: there is no `{}`", verb.what));
            return Exit::Failed;
        }
        Err(exit) => return exit,
    }
    match control::ask(&dir, &request(&part)) {
        Ok(answer) if answer.found => wait(&dir, &part),
        Ok(_) => {
            complain(&format!("error: there is no `{}`", verb.what));
            Exit::Failed
        }
        // The owner may have ended in between.
        Err(error) => match stopped(&dir, &part) {
            Ok(Some(true)) => Exit::Done,
            _ => {
                complain(&format!("error: the run's owner cannot be reached: {error}"));
                Exit::Failed
            }
        },
    }
}

fn request(part: &Part) -> Request {
    match part {
        Part::Run => Request::Cancel { task: None, agent: None },
        // `stopped` found the task, so its name is one.
        Part::Task(task) => {
            let task = Name::new(task).expect("a task that exists has a valid name");
            Request::Cancel { task: Some(task), agent: None }
        }
        Part::Agent(agent) => {
            Request::Cancel { task: None, agent: Some(AgentId::from_text(agent)) }
        }
    }
}

fn wait(dir: &RunDir, part: &Part) -> Exit {
    let deadline = Instant::now() + WAIT;
    while Instant::now() < deadline {
        match stopped(dir, part) {
            Ok(Some(true)) => return Exit::Done,
            Ok(_) => std::thread::sleep(LOOK),
            Err(exit) => return exit,
        }
    }
    complain(&format!("error: it has not ended within {} s", WAIT.as_secs()));
    Exit::TimedOut
}

/// Whether the target has ended; `None` when there is no such target.
fn stopped(dir: &RunDir, part: &Part) -> Result<Option<bool>, Exit> {
    let state: RunState = fold(dir, |_| {})?;
    let over = matches!(state.phase(), RunPhase::Completed(_)) || !dir.is_live();
    Ok(match part {
        Part::Run => Some(over),
        Part::Task(name) => {
            let task = Name::new(name).ok().and_then(|name| state.task(&name).cloned());
            task.map(|task| over || task.state.is_end())
        }
        Part::Agent(name) => {
            let agent = state.agents().get(&AgentId::from_text(name));
            agent.map(|agent| over || agent.outcome.is_some())
        }
    })
}
