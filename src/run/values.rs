//! What tasks to come see of those that have ended, when a run is taken up.
//!
//! Read before anything is appended: a run that cannot have what it rests on does not go on.

use serde_json::{Map, Value};

use super::StartError;
use crate::journal::JournalError;
use crate::journal::file::RunDir;
use crate::run_state::RunState;
use crate::spec::TaskSpec;
use crate::store;

/// The outputs, by task, that templates of tasks to come may name. Blocks.
///
/// # Errors
/// When one is stored and not what was recorded, or does not have the form that its task has now.
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
