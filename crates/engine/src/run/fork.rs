//! Makes a new run that shares the journal of another run up to a record, with changed
//! configuration keys.

use std::collections::{BTreeMap, HashSet};

use super::opening::StoppedRun;
use super::{Options, StartError, plan_of, planned, values};
use crate::config::{self, Diagnostics, Sources};
use crate::event::{Draft, Event, Forked, RunCreated, SharedRecord};
use crate::journal::JournalError;
use crate::journal::cut::{Cut, CutError};
use crate::journal::line::Position;
use crate::journal::source::{RecordedRun, RunSource, drivable};
use crate::run_state::RunState;
use crate::turn::ToolStarted;
use crate::turn_machine::Machine;
use crate::turn_machine::interrupted::{self, Known};

/// Text that a model reads about a call that is still in progress in the original run.
const THEIRS: &str = "It belongs to the run from which this one was forked.";

/// Reasons why a run cannot be forked. No new run is left, except by [`ForkError::Open`].
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The run has no record with this number.
    #[error("the run has no record {0}")]
    Outside(u64),
    /// The run had ended at this record.
    #[error("the run had ended by record {0}: name an earlier one")]
    Ended(u64),
    /// The configuration with the changed keys is wrong.
    #[error(transparent)]
    Config(#[from] Diagnostics),
    /// The new run cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The new run was made and cannot be opened.
    #[error("{error}")]
    Open {
        /// The new run.
        run: RecordedRun,
        /// The reason.
        error: CutError,
    },
}

/// Makes a new run that shares the journal of `from` up to record `seq`, and opens it. Batches are
/// shared whole: the batch of record `seq` is left out unless it ends with that record. `overrides`
/// are keys of the configuration with their new values. Blocks while it copies.
///
/// # Errors
/// Returns an error if there is no such record, if the run had ended there, or if the configuration
/// with the changes is wrong.
pub fn fork(
    from: &dyn RunSource,
    seq: u64,
    overrides: BTreeMap<String, String>,
    sources: Sources,
) -> Result<StoppedRun, ForkError> {
    let here = drivable(from)?;
    here.refuse_unsafe()?;
    let (end, mut created, state) = look(from, seq)?;
    let origin = Forked { run: created.run, seq };
    created.run = here.next_id();
    created.forked = Some(origin);
    created.overrides.extend(overrides);
    // The run may have accepted another configuration since it began: the changes apply to that
    // one.
    let in_force = state.created().unwrap_or(&created);
    let in_force = RunCreated { overrides: created.overrides.clone(), ..in_force.clone() };
    let config = config::load_text(&in_force.config, &sources.of_run(&in_force, &from.place()))?;
    let tasks = in_force.tasks.iter().map(|task| task.name.to_string()).collect();
    let plan = plan_of(&config, &Options { tasks, ..Options::default() })?;
    if in_force.config_hash == created.config_hash {
        created.tasks = planned(&plan);
    }

    // Checked before the directory is made: a fork that could not continue leaves nothing behind.
    values::of_ended(from, &state, plan.tasks(), config.grows())?;

    let run = from.beside(created.run);
    here.fork(created.run, end, Draft::run(created))?;
    StoppedRun::open(run.clone(), Cut::Torn).map_err(|error| ForkError::Open { run, error })
}

/// Reads where record `seq` ends, how the run was created, and the state of the run there, if it
/// can be forked there.
fn look(from: &dyn RunSource, seq: u64) -> Result<(Position, RunCreated, RunState), ForkError> {
    let mut created = None;
    let end = from.end_of(seq)?;
    let each = |record: &SharedRecord| {
        if let (None, Event::RunCreated(first)) = (&created, &record.event) {
            created = Some(first.clone());
        }
    };
    let (state, read) = match end {
        Some(end) => from.fold_to(end.into(), each),
        None => from.fold(each),
    };
    read?;
    match (end, created) {
        _ if state.completed().is_some() => Err(ForkError::Ended(state.last_seq())),
        (Some(end), Some(created)) if seq > 0 => Ok((end, *created, state)),
        _ => Err(ForkError::Outside(seq)),
    }
}

/// Returns answers to the calls that are in progress in the run from which this one was forked.
/// Their outcome is unknown here: their processes belong to the other run and must not be ended. Those that may
/// be repeated are made again here.
pub(super) fn answers(run: &StoppedRun) -> Result<Vec<Draft>, JournalError> {
    let Some(origin) = run.created().forked else { return Ok(Vec::new()) };
    let mut answers = Vec::new();
    for (id, data) in run.unfinished() {
        let Some(status) = run.state().agents().get(&id) else { continue };
        let (mut machine, mut begun) = (None, HashSet::new());
        data.records.for_each(|record| -> Result<(), JournalError> {
            match (&mut machine, &record.event) {
                (None, Event::AgentSpawned(spawned)) => {
                    machine = Some(Machine::new(spawned.clone(), u32::MAX));
                }
                (None, _) => {}
                // An agent whose records contradict each other fails later, when it gets its actor.
                (Some(machine), event) => drop(machine.apply(event)),
            }
            if let Event::ToolStarted(started) = &record.event {
                // A call that this run itself started again is its own.
                match record.seq <= origin.seq {
                    true => begun.insert(started.key.clone()),
                    false => begun.remove(&started.key),
                };
            }
            Ok(())
        })?;
        let Some(machine) = machine else { continue };
        let began = |started: &ToolStarted| begun.contains(&started.key);
        let theirs = machine.interrupted().into_iter();
        let theirs = theirs.filter(|call| {
            let is_at_work = call.started.process().is_some() && began(&call.started);
            is_at_work && !call.call.effect.is_repeatable()
        });
        let known = Known { processes: Some(THEIRS.to_owned()), ..Known::default() };
        answers.extend(theirs.map(|call| {
            let unknown = interrupted::unknown(machine.turn(), call.call, &known);
            Draft::agent(&status.task, &id, unknown)
        }));
    }
    Ok(answers)
}
