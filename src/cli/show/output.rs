//! `show --output`: prints an output whole, byte for byte, and nothing else.

use super::{copy_stored, tasks};
use crate::cli::locate::{Project, Selector, agents};
use crate::cli::{complain, stream};
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::output::Output;
use crate::run_state::{RunState, TaskStatus};
use crate::store;
use crate::turn::Outcome;

/// Prints the outputs of the parts that the selector names. A part without an output is an error.
pub(super) fn show(
    project: &Project,
    run: &RecordedRun,
    state: &RunState,
    part: &Selector,
) -> Exit {
    let found: Result<Vec<(String, Option<&Output>)>, Exit> = match part {
        Selector::Run => {
            complain("error: a task or an agent is needed: RUN/TASK or RUN/@AGENT");
            Err(Exit::Usage)
        }
        Selector::Task(name) => tasks(state, name).map(|found| {
            let output = |task| of_task(state, task);
            found.into_iter().map(|(name, task)| (format!("task `{name}`"), output(task))).collect()
        }),
        Selector::Agent(name) => agents(state, name).map(|found| {
            let outputs = found
                .into_iter()
                .map(|(id, agent)| (format!("agent `{id}`"), of_outcome(agent.outcome.as_ref())));
            outputs.collect()
        }),
    };
    let found = match found {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    for (what, output) in found {
        let Some(output) = output else {
            complain(&format!("error: {what} has no output"));
            return Exit::Failed;
        };
        let exit = match &output.stored {
            Some(stored) => copy_stored(project, run, &stored.hash),
            None => stream::said(stream::copy(&mut output.text.as_bytes())),
        };
        if exit != Exit::Done {
            return exit;
        }
    }
    Exit::Done
}

/// Returns the text that the latest attempt of a task had made by its failure, if there is one.
pub(super) fn partial(run: &RecordedRun, state: &RunState, task: &TaskStatus) -> Option<String> {
    store::whole_text(run, of_task(state, task)?).ok()
}

fn of_task<'a>(state: &'a RunState, task: &'a TaskStatus) -> Option<&'a Output> {
    let agent = || state.agents().get(task.agent.as_ref()?)?.outcome.as_ref();
    task.output.as_ref().or_else(|| of_outcome(agent()))
}

fn of_outcome(outcome: Option<&Outcome>) -> Option<&Output> {
    match outcome? {
        Outcome::Completed { output } => Some(output),
        Outcome::Failed { partial, .. } => partial.as_ref(),
        Outcome::Cancelled { .. } => None,
    }
}
