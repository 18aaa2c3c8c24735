//! Finds how far the commands of tasks had come when a run was stopped.
//!
//! Reads the journal and the spool, and forecasts by the rules that hold when the run resumes.
//! Changes nothing.

use std::collections::{BTreeMap, HashMap};

use crate::event::{Event, SharedRecord};
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, CallKey, Name};
use crate::journal::JournalError;
use crate::journal::source::{Cursor, RunSource};
use crate::plan::TaskState;
use crate::run_state::RunState;
use crate::tool::process;
use crate::tool::spool::Spool;
use crate::turn::{Effect, Outcome};
use crate::turn_machine::command_outcome;

/// Progress of a command that was in progress when the run was stopped.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    /// The journal shows that it did not begin.
    Announced,
    /// It began, and left no result.
    Interrupted,
    /// The same, and a person is asked what happened.
    Asked,
    /// It began, left no result, and may simply run again.
    RunsAgain,
    /// It is still at work within its orphan grace.
    AtWork,
    /// Its wrapper kept its result in the spool.
    Kept,
    /// Its result is recorded in the journal.
    Ended(Box<Outcome>),
}

impl Command {
    /// Describes the command for people, if its attempt continues.
    ///
    /// # Errors
    /// Returns the failure of the attempt, if it is certain by now.
    pub(super) fn fate(&self) -> Result<&'static str, Failure> {
        match self {
            Self::Announced => Ok("its command has not begun"),
            Self::Asked => {
                Ok("its command was interrupted, and a person is asked whether it took effect")
            }
            Self::Kept => Ok("the result of its command was kept"),
            Self::RunsAgain => Ok("its command was interrupted and runs again"),
            Self::AtWork => Ok("its command is still at work, and its result counts if it ends \
                within `limits.orphan_grace`"),
            Self::Interrupted => {
                let message = "the command was interrupted and may have taken effect";
                Err(Failure::new(FailureKind::Interrupted, message.to_owned()))
            }
            Self::Ended(outcome) => match &**outcome {
                Outcome::Failed { failure, .. } => Err(failure.clone()),
                Outcome::Completed { .. } | Outcome::Cancelled { .. } => {
                    Ok("its command has ended")
                }
            },
        }
    }
}

/// Returns the commands of the tasks that are in progress in `state`, by task. `asks` tells of which
/// tasks a person is asked about a command that was interrupted. Returns none if the journal cannot be
/// read. Blocks.
///
/// # Errors
/// Returns an error if the spool cannot be read.
pub(super) fn under_way(
    run: &dyn RunSource,
    state: &RunState,
    asks: impl Fn(&Name) -> bool,
) -> Result<BTreeMap<Name, Command>, JournalError> {
    let mut tasks: HashMap<AgentId, Name> = HashMap::new();
    for (name, status) in state.tasks() {
        let id = status
            .agent
            .as_ref()
            .filter(|_| status.state == TaskState::Running || status.is_held());
        let agent = id.and_then(|id| Some((id, state.agents().get(id)?)));
        if let Some((id, agent)) = agent
            && agent.definition.is_none()
            && agent.outcome.is_none()
        {
            tasks.insert(id.clone(), name.clone());
        }
    }
    if tasks.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut commands: BTreeMap<Name, Command> =
        tasks.values().map(|task| (task.clone(), Command::Announced)).collect();
    let mut open: HashMap<CallKey, (Name, Effect)> = HashMap::new();
    let mut each = |records: &[SharedRecord]| {
        for record in records.iter().filter(|record| record.seq <= state.last_seq()) {
            let Some(task) = record.agent.as_ref().and_then(|id| tasks.get(id)) else { continue };
            match &record.event {
                Event::ToolIntended(intended) => {
                    open.insert(intended.key.clone(), (task.clone(), intended.effect));
                }
                Event::ToolStarted(started) => {
                    let effect = open.get(&started.key).map(|(_, effect)| *effect);
                    let runs_again = effect.is_some_and(Effect::is_repeatable);
                    let process = started.process();
                    let command = match process {
                        Some(process) if process::has_wrapper(process) => Command::AtWork,
                        _ if runs_again => Command::RunsAgain,
                        _ if asks(task) => Command::Asked,
                        _ => Command::Interrupted,
                    };
                    commands.insert(task.clone(), command);
                }
                Event::AgentRestarted(restarted) if restarted.feedback.is_some() => {
                    commands.insert(task.clone(), Command::Announced);
                }
                Event::ToolFinished(finished) => {
                    let outcome = Box::new(command_outcome(finished));
                    commands.insert(task.clone(), Command::Ended(outcome));
                    open.remove(&finished.key);
                }
                _ => {}
            }
        }
    };
    let read = || -> Result<(), JournalError> {
        let mut batches = run.batches(Cursor::START)?;
        while let Some(batch) = batches.next_batch()? {
            each(&batch);
        }
        Ok(())
    };
    if { read }().is_err() {
        // Damage before the newest snapshot does not prevent a resume, only this forecast of it.
        return Ok(BTreeMap::new());
    }
    let Some(store) = run.drivable().map(|run| run.store()) else { return Ok(commands) };
    for (key, (task, _)) in open {
        let kept = Spool::of(&store).kept_result(&key);
        let kept =
            kept.map_err(|error| JournalError::cannot("read", store.scratch_dir(), &error))?;
        if kept.is_some() {
            commands.insert(task, Command::Kept);
        }
    }
    Ok(commands)
}
