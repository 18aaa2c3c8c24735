//! Parts of a run that a person changes: how the command line and JSON name them, and how a change reaches the run.

use super::locate::{Project, Selector, word};
use super::{complain, refusal, runtime};
use crate::client::{Client, ClientError, Given};
use crate::exit::Exit;
use crate::id::{AgentId, Name};
use crate::journal::source::RecordedRun;
use crate::run_state::RunState;
use crate::show::question::safe;
use crate::spec::budget::Scope;
use crate::turn::question::PersonsAnswer;

/// Finds the run and the part of it that a word of the command line names.
pub(super) fn found(
    project: &Project,
    named: &str,
) -> Result<(RecordedRun, Scope, RunState), Exit> {
    let (run, part) = project.part(Some(named))?;
    let scope = match part {
        Selector::Run => Some(Scope::Run),
        Selector::Task(task) => Name::of_record(&task).ok().map(Scope::Task),
        Selector::Agent(agent) => Some(Scope::Agent(AgentId::from_text(&agent))),
    };
    let Some(scope) = scope else {
        complain("error: name a run, RUN/TASK or RUN/@AGENT");
        return Err(Exit::Usage);
    };
    let state = project.state(&run)?;
    Ok((run, scope, state))
}

/// Returns the word that names a part of a run.
pub(super) fn address(project: &Project, run: &RecordedRun, scope: &Scope) -> String {
    let scope = scope.to_string();
    word(&format!("{}{}", project.short(run), scope.trim_end_matches('/')))
}

/// Returns the task and the agent that a scope is, as the rows of `pending --json` have them.
pub(super) fn task_and_agent(scope: &Scope) -> (Option<&Name>, Option<&AgentId>) {
    match scope {
        Scope::Run => (None, None),
        Scope::Task(task) => (Some(task), None),
        Scope::Agent(agent) => (None, Some(agent)),
    }
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It is recorded.
    Counted,
    /// No process drives the run: the next one takes it up.
    Left,
}

/// Gives a change to the process that drives the run, or leaves it for the next one. Says why where neither can be done.
pub(super) fn change(
    project: &Project,
    run: &RecordedRun,
    scope: &Scope,
    change: PersonsAnswer,
) -> Result<Change, Exit> {
    match runtime()?.block_on(Client::of(run.clone()).answer(change)) {
        Ok(Given::Counted) => Ok(Change::Counted),
        Ok(Given::Left) => Ok(Change::Left),
        Ok(Given::Closed | Given::Queued(_) | Given::NotSent(_)) => {
            complain(&format!("error: the run has ended, or it has no {}", safe(&scope.words())));
            Err(Exit::Failed)
        }
        Ok(Given::Late { .. } | Given::Over { .. }) => {
            complain("error: the process that drives the run is ending: try again");
            Err(Exit::Failed)
        }
        Err(ClientError::Journal(error)) => {
            Err(refusal::refused(&project.flags(), Some(run), &error))
        }
        Err(error) => {
            complain(&format!("error: {error}"));
            Err(Exit::Failed)
        }
    }
}
