//! Makes a new run that shares the journal of another run up to a record, with changed
//! configuration keys.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;

use super::opening::StoppedRun;
use super::{Options, StartError, plan_of, planned, values};
use crate::config::{self, Diagnostics, Sources};
use crate::disk;
use crate::event::{Draft, Event, Forked, RunCreated, SharedRecord};
use crate::journal::file::RunDir;
use crate::journal::line::Position;
use crate::journal::local::next_id;
use crate::journal::repair::torn::{Cut, CutError};
use crate::journal::source::RunSource;
use crate::journal::{JournalError, copy, results};
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
        /// The directory of the new run.
        dir: RunDir,
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
    from: &RunDir,
    seq: u64,
    overrides: BTreeMap<String, String>,
    sources: Sources,
) -> Result<StoppedRun, ForkError> {
    from.refuse_unsafe()?;
    let (end, mut created, state) = look(from, seq)?;
    let origin = Forked { run: created.run, seq };
    created.run = next_id(from.path().parent().unwrap_or(from.path()));
    created.forked = Some(origin);
    created.overrides.extend(overrides);
    // The run may have accepted another configuration since it began: the changes apply to that
    // one.
    let in_force = state.created().unwrap_or(&created);
    let in_force = RunCreated { overrides: created.overrides.clone(), ..in_force.clone() };
    let config = config::load_text(&in_force.config, &sources.of_run(&in_force, from.path()))?;
    let tasks = in_force.tasks.iter().map(|task| task.name.to_string()).collect();
    let plan = plan_of(&config, &Options { tasks, ..Options::default() })?;
    if in_force.config_hash == created.config_hash {
        created.tasks = planned(&plan);
    }

    // Checked before the directory is made: a fork that could not continue leaves nothing behind.
    values::of_ended(from, &state, plan.tasks(), config.grows())?;

    let folder = from.path().parent().unwrap_or(from.path());
    let to = RunDir::at(folder.join(created.run.to_string()));
    let owned = to.create()?;
    fill(from, &to, end, Draft::run(created)).inspect_err(|_| {
        // No other process uses it yet. If it cannot be removed, it counts as a run that never
        // began.
        let _ = fs::remove_dir_all(to.path());
    })?;
    drop(owned);
    StoppedRun::open(&to, Cut::Torn).map_err(|error| ForkError::Open { dir: to, error })
}

/// Copies to a new run what it shares with `from`: stored results, and the journal up to `end`.
/// `first` becomes its first record.
fn fill(from: &RunDir, to: &RunDir, end: Position, first: Draft) -> Result<(), JournalError> {
    if results::has_folder(from)? {
        let linked = share_results(from, to);
        linked.map_err(|error| JournalError::cannot("write to", &to.results(), &error))?;
    }
    copy::copy(from, to, end, first)
}

/// Reads where record `seq` ends, how the run was created, and the state of the run there, if it
/// can be forked there.
fn look(from: &RunDir, seq: u64) -> Result<(Position, RunCreated, RunState), ForkError> {
    let mut created = None;
    let end = copy::end_of(from, seq)?;
    let each = |record: &SharedRecord| {
        if let (None, Event::RunCreated(first)) = (&created, &record.event) {
            created = Some(first.clone());
        }
    };
    let run: &dyn RunSource = from;
    let (state, read) = match end {
        Some(end) => run.fold_to(end.into(), each),
        None => run.fold(each),
    };
    read?;
    match (end, created) {
        _ if state.completed().is_some() => Err(ForkError::Ended(state.last_seq())),
        (Some(end), Some(created)) if seq > 0 => Ok((end, created, state)),
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

/// Links the stored results into the new run. The caller has looked at the old one ([`RunDir::refuse_unsafe`]). They are named by their content and never change, so
/// the runs can share them.
pub(super) fn share_results(from: &RunDir, to: &RunDir) -> io::Result<()> {
    for entry in fs::read_dir(from.results())? {
        let entry = entry?;
        // A file whose name is not a hash is still being written.
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_hexdigit) {
            continue;
        }
        let new = to.results().join(entry.file_name());
        // The file is copied where hard links are not possible.
        if fs::hard_link(entry.path(), &new).is_err() {
            fs::copy(entry.path(), &new)?;
            disk::sync(&File::open(&new)?)?;
        }
    }
    disk::sync(&File::open(to.results())?)
}
