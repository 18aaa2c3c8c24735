//! `show --output` and `show --stderr`: prints an output whole, byte for byte, and nothing else.

use super::{command, copy_stored, so_far, tasks};
use crate::cli::locate::{Project, Selector, agents};
use crate::cli::{complain, refusal, stream};
use crate::event::Event;
use crate::exit::Exit;
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::source::RecordedRun;
use crate::message::Block;
use crate::output::Output;
use crate::plan::TaskState;
use crate::run_state::{AgentStatus, RunState, TaskStatus};
use crate::store;
use crate::tool::spool::SoFar;
use crate::turn::{Outcome, ToolFinished};

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The output: for a command what it printed on stdout.
    Output,
    /// What a command printed on stderr.
    Stderr,
}

/// Prints the outputs of the parts that the selector names. A part without an output is an error.
pub(super) fn show(
    project: &Project,
    run: &RecordedRun,
    state: &RunState,
    part: &Selector,
    shown: Shown,
) -> Exit {
    let found: Result<Vec<Part>, Exit> = match part {
        Selector::Run => {
            complain("error: a task or an agent is needed: RUN/TASK or RUN/@AGENT");
            Err(Exit::Usage)
        }
        Selector::Task(name) => tasks(state, name).map(|found| {
            let part = |(name, task): (_, &TaskStatus)| Part {
                what: format!("task `{name}`"),
                agent: task.agent.clone(),
                output: of_task(state, task).cloned(),
                is_at_work: task.state == TaskState::Running,
            };
            found.into_iter().map(part).collect()
        }),
        Selector::Agent(name) => agents(state, name).map(|found| {
            let part = |(id, agent): (&AgentId, &AgentStatus)| Part {
                what: format!("agent `{id}`"),
                agent: Some(id.clone()),
                output: of_outcome(agent.outcome.as_ref()).cloned(),
                is_at_work: agent.outcome.is_none(),
            };
            found.into_iter().map(part).collect()
        }),
    };
    let found = match found {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    for part in found {
        match part.so_far(project, run, shown) {
            Ok(Some(Exit::Done)) => continue,
            Ok(Some(exit)) => return exit,
            Ok(None) => {}
            Err(error) => return refusal::refused(&project.flags(), Some(run), &error),
        }
        let output = match part.find(run, shown) {
            Ok(Some(output)) => output,
            Ok(None) if shown == Shown::Stderr => {
                complain(&format!("error: {} ran no command", part.what));
                return Exit::Failed;
            }
            Ok(None) => {
                let yet = if part.is_at_work { " yet: it has not ended" } else { "" };
                complain(&format!("error: {} has no output{yet}", part.what));
                return Exit::Failed;
            }
            Err(error) => return refusal::refused(&project.flags(), Some(run), &error),
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

/// A task or an agent whose output is wanted.
struct Part {
    what: String,
    /// The agent that worked for it last.
    agent: Option<AgentId>,
    output: Option<Output>,
    /// True if it has begun and has not ended.
    is_at_work: bool,
}

impl Part {
    /// Prints what its command has printed so far, if it has one under way.
    fn so_far(
        &self,
        project: &Project,
        run: &RecordedRun,
        shown: Shown,
    ) -> Result<Option<Exit>, JournalError> {
        let stream = match shown {
            Shown::Output => SoFar::Stdout,
            Shown::Stderr => SoFar::Stderr,
        };
        match self.agent.as_ref().filter(|_| self.is_at_work) {
            Some(agent) => so_far::show(project, run, (self.what.as_str(), agent), stream),
            None => Ok(None),
        }
    }

    fn find(&self, run: &RecordedRun, shown: Shown) -> Result<Option<Output>, JournalError> {
        if let (Shown::Output, Some(output)) = (shown, &self.output) {
            return Ok(Some(output.clone()));
        }
        let printed =
            self.agent.as_ref().map(|agent| command_of(run, agent)).transpose()?.flatten();
        Ok(printed.map(|printed| match shown {
            // A command that a person cancelled has ended without an outcome of its own.
            Shown::Output => printed.stdout,
            Shown::Stderr => printed.stderr,
        }))
    }
}

/// What the command of a task printed on its two streams.
pub(super) struct Printed {
    stdout: Output,
    pub(super) stderr: Output,
}

/// Returns what the command of an agent printed the last time; `None` if it ran none, or none that has ended.
pub(super) fn command_of(
    run: &RecordedRun,
    agent: &AgentId,
) -> Result<Option<Printed>, JournalError> {
    let Some(records) = command::records(run, agent)? else { return Ok(None) };
    let ended = records.iter().rev().find_map(|record| match &record.event {
        Event::ToolFinished(finished) => Some(finished),
        _ => None,
    });
    Ok(ended.map(printed))
}

fn printed(finished: &ToolFinished) -> Printed {
    let beside = finished.printed.as_deref().cloned().unwrap_or_default();
    let of_block = || {
        // Without an exit code the text is the reason for which it did not run.
        let text = match finished.block.decode() {
            Ok(Block::ToolResult(result)) if finished.exit_code.is_some() => result.text(),
            _ => String::new(),
        };
        Output { text, stored: finished.stored.clone() }
    };
    Printed {
        stdout: beside.stdout.unwrap_or_else(of_block),
        stderr: beside.stderr.unwrap_or_default(),
    }
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
