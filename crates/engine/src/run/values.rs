//! Reads the outputs of ended tasks that later tasks use, when a run is resumed or forked, and stores
//! those that later tasks read as files.
//!
//! They are read before anything is appended: a run whose outputs cannot be read does not resume.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::StartError;
use crate::id::Name;
use crate::journal::JournalError;
use crate::journal::source::RunSource;
use crate::run_state::RunState;
use crate::spec::{OutputFormat, TaskSpec};
use crate::store::{self, Store};

/// Returns the outputs, by task, that templates of later tasks may name: of a run that grows, those of
/// all tasks. Blocks.
///
/// # Errors
/// Returns an error if a stored output is not what was recorded, or if an output does not have the
/// format that its task has now.
pub fn of_ended(
    run: &dyn RunSource,
    state: &RunState,
    tasks: &[TaskSpec],
    grows: bool,
) -> Result<Map<String, Value>, StartError> {
    let open = tasks.iter().filter(|task| {
        let status = state.task(&task.name);
        status.is_some_and(|status| !status.state.is_end())
    });
    let named: HashSet<&Name> = open.clone().flat_map(|task| &task.depends_on).collect();
    let mut values = Map::new();
    let mut read = |name: &Name, format: OutputFormat| {
        let status = state.task(name).filter(|status| status.state.is_end());
        let Some(output) = status.and_then(|status| status.output.as_ref()) else { return Ok(()) };
        let text = store::whole_text(run, output).map_err(JournalError::from)?;
        let value = format.parse(&text).map_err(|failure| StartError::Output {
            task: name.clone(),
            reason: failure.message,
        })?;
        values.insert(name.to_string(), value);
        Ok::<_, StartError>(())
    };
    for task in tasks.iter().filter(|task| grows || named.contains(&task.name)) {
        read(&task.name, task.output_format())?;
    }
    // The outputs of a fan-out that has not completed are those of its instances.
    let has_output = |task: &TaskSpec| state.task(&task.name).is_some_and(|s| s.output.is_some());
    let ended = tasks.iter().filter(|task| named.contains(&task.name) && !has_output(task));
    for task in open.chain(ended).filter(|task| task.fan_out.is_some()) {
        for (instance, _) in state.task(&task.name).iter().flat_map(|status| &status.instances) {
            read(instance, task.output)?;
        }
    }
    Ok(values)
}

/// Stores the outputs whose files a later task names. A live run does so when a task ends; this finds
/// those of a fork, whose later tasks may be others. Blocks.
///
/// # Errors
/// Returns an error if the disk refuses.
pub fn store_named(
    store: &Store,
    state: &RunState,
    tasks: &[TaskSpec],
) -> Result<(), JournalError> {
    let naming = tasks.iter().filter(|task| task.names_output_paths);
    let named: BTreeSet<_> = naming.flat_map(|task| &task.depends_on).collect();
    let outputs = named.into_iter().filter_map(|name| state.task(name)?.output.as_ref());
    for output in outputs.filter(|output| output.stored.is_none()) {
        let stored = store.store(output.text.as_bytes());
        stored.map_err(|error| JournalError::cannot("write to", store.results_dir(), &error))?;
    }
    Ok(())
}
