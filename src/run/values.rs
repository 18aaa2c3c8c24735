//! Reads the outputs of ended tasks that later tasks use, when a run is resumed or forked.
//!
//! They are read before anything is appended: a run whose outputs cannot be read does not resume.

use serde_json::{Map, Value};

use super::StartError;
use crate::journal::JournalError;
use crate::journal::file::RunDir;
use crate::run_state::RunState;
use crate::spec::TaskSpec;
use crate::store;

/// Returns the outputs, by task, that templates of later tasks may name. Blocks.
///
/// # Errors
/// Returns an error if a stored output is not what was recorded, or if an output does not have the
/// format that its task has now.
pub fn of_ended(
    dir: &RunDir,
    state: &RunState,
    tasks: &[TaskSpec],
) -> Result<Map<String, Value>, StartError> {
    let is_open =
        |task: &&TaskSpec| state.task(&task.name).is_some_and(|task| !task.state.is_end());
    let is_named = |ended: &TaskSpec| {
        tasks.iter().filter(is_open).any(|task| task.depends_on.contains(&ended.name))
    };
    let mut values = Map::new();
    for task in tasks.iter().filter(|task| is_named(task)) {
        let status = state.task(&task.name).filter(|status| status.state.is_end());
        let Some(output) = status.and_then(|status| status.output.as_ref()) else { continue };
        let text = store::whole_text(&dir.results(), output).map_err(JournalError::from)?;
        let value = task.output.parse(&text).map_err(|failure| StartError::Output {
            task: task.name.clone(),
            reason: failure.message,
        })?;
        values.insert(task.name.to_string(), value);
    }
    Ok(values)
}
