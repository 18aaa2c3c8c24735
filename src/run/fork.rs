//! A new run that begins as another one did and goes on with something changed.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;

use super::opening::StoppedRun;
use super::{Options, StartError, plan_of, planned, values};
use crate::config::{self, Diagnostics, Sources};
use crate::event::{Draft, Event, Forked, RunCreated};
use crate::id::RunId;
use crate::journal::file::RunDir;
use crate::journal::line::Position;
use crate::journal::torn::{Cut, CutError};
use crate::journal::{JournalError, copy, results, walk};
use crate::run_state::RunState;
use crate::turn::ToolStarted;
use crate::turn_machine::Machine;
use crate::turn_machine::interrupted::{self, Known};

/// What a model is told of a call that another run has under way.
const THEIRS: &str = "It belongs to the run from which this one was forked.";

/// Why a run cannot be forked. Nothing was made then but, maybe, a run that cannot be taken up.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// There is no such place in it.
    #[error("the run has no record {0}")]
    Outside(u64),
    /// The run had ended there.
    #[error("the run had ended by record {0}: name an earlier one")]
    Ended(u64),
    /// What was changed does not fit.
    #[error(transparent)]
    Config(#[from] Diagnostics),
    /// The new run cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The new run cannot be taken up.
    #[error("{error}")]
    Open {
        /// The new run.
        dir: RunDir,
        /// Why.
        error: CutError,
    },
}

/// Makes a new run that shares the journal of another up to record `seq`, and takes it up: the
/// batch in which that record stands is left out unless it ends there. `overrides` are keys of the
/// configuration with their new values. Blocks while it copies.
///
/// # Errors
/// When there is no such place, or the configuration with the changes is wrong.
pub fn fork(
    from: &RunDir,
    seq: u64,
    overrides: BTreeMap<String, String>,
    sources: Sources,
) -> Result<StoppedRun, ForkError> {
    let (end, mut created, state) = look(from, seq)?;
    let origin = Forked { run: created.run, seq };
    created.run = RunId::from(uuid::Uuid::now_v7());
    created.forked = Some(origin);
    created.overrides.extend(overrides);
    // Another configuration may have been accepted since; what is set lies over that one.
    let in_force = state.created().unwrap_or(&created);
    let in_force = RunCreated { overrides: created.overrides.clone(), ..in_force.clone() };
    let config = config::load_text(&in_force.config, &sources.of_run(&in_force, from.path()))?;
    let tasks = in_force.tasks.iter().map(|task| task.name.to_string()).collect();
    let plan = plan_of(&config, &Options { tasks, ..Options::default() })?;
    if in_force.config_hash == created.config_hash {
        created.tasks = planned(&plan);
    }

    // What cannot go on leaves nothing behind.
    values::of_ended(from, &state, plan.tasks())?;

    let folder = from.path().parent().unwrap_or(from.path());
    let to = RunDir::at(folder.join(created.run.to_string()));
    let owned = to.create()?;
    fill(from, &to, end, Draft::run(created)).inspect_err(|_| {
        // Nobody else has it yet. What cannot be removed is a run that never began.
        let _ = fs::remove_dir_all(to.path());
    })?;
    drop(owned);
    StoppedRun::open(&to, Cut::Torn).map_err(|error| ForkError::Open { dir: to, error })
}

/// Gives a new run what it shares with another; `first` is its first record.
fn fill(from: &RunDir, to: &RunDir, end: Position, first: Draft) -> Result<(), JournalError> {
    if results::has_folder(from)? {
        let linked = share_results(from, to);
        linked.map_err(|error| JournalError::io(to.results().display(), &error))?;
    }
    copy::copy(from, to, end, first)
}

/// How the run was created, and how it stood there, if it can be forked there.
fn look(from: &RunDir, seq: u64) -> Result<(Position, RunCreated, RunState), ForkError> {
    let mut created = None;
    let end = copy::end_of(from, seq)?;
    let (state, read) = walk::fold(from, end, |record| {
        if let (None, Event::RunCreated(first)) = (&created, &record.event) {
            created = Some(first.clone());
        }
    });
    read?;
    match (end, created) {
        _ if state.completed().is_some() => Err(ForkError::Ended(state.last_seq())),
        (Some(end), Some(created)) if seq > 0 => Ok((end, created, state)),
        _ => Err(ForkError::Outside(seq)),
    }
}

/// What answers the calls that are under way in the run from which this one was forked: their
/// processes belong to that one, and nobody here may end them.
pub(super) fn answers(run: &StoppedRun) -> Result<Vec<Draft>, JournalError> {
    let Some(origin) = run.created().forked else { return Ok(Vec::new()) };
    let mut answers = Vec::new();
    for (id, left) in run.left() {
        let Some(status) = run.state().agents().get(&id) else { continue };
        let (mut machine, mut begun) = (None, HashSet::new());
        left.records.for_each(|record| -> Result<(), JournalError> {
            match (&mut machine, &record.event) {
                (None, Event::AgentSpawned(spawned)) => {
                    machine = Some(Machine::new(spawned.clone(), u32::MAX));
                }
                (None, _) => {}
                // An agent whose records stop to make sense fails when it gets its actor.
                (Some(machine), event) => drop(machine.apply(event)),
            }
            if let Event::ToolStarted(started) = &record.event {
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
        let theirs = theirs.filter(|call| call.started.process().is_some() && began(&call.started));
        let known = Known { processes: Some(THEIRS.to_owned()), ..Known::default() };
        answers.extend(theirs.map(|call| {
            let unknown = interrupted::unknown(machine.turn(), call.call, &known);
            Draft::agent(&status.task, &id, unknown)
        }));
    }
    Ok(answers)
}

/// Stored results are named by their content and never change: the runs share them.
fn share_results(from: &RunDir, to: &RunDir) -> io::Result<()> {
    for entry in fs::read_dir(from.results())? {
        let entry = entry?;
        // What has another name is still being written.
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_hexdigit) {
            continue;
        }
        let new = to.results().join(entry.file_name());
        // Where links are not possible there is a copy.
        if fs::hard_link(entry.path(), &new).is_err() {
            fs::copy(entry.path(), &new)?;
            File::open(&new)?.sync_all()?;
        }
    }
    File::open(to.results())?.sync_all()
}
