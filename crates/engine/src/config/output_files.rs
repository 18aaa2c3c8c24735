//! Refuses tasks that write one `output_file`: the one that ends last would overwrite the others
//! without a word. The files of the instances of one fan-out are compared when its items are known.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::Setting;
use super::diagnostic::Place;
use crate::spec::TaskSpec;
use crate::template;

/// Reports each task that writes the file of an earlier one, as far as the inputs decide the names.
pub(super) fn check(setting: Setting<'_>, tasks: &[TaskSpec], inputs: &Map<String, Value>) {
    let mut writers: HashMap<PathBuf, &TaskSpec> = HashMap::new();
    for task in tasks.iter().filter(|task| task.fan_out.is_none()) {
        let Some(file) = known(task, inputs) else { continue };
        // Paths are compared by their parts, so only `./` in front remains.
        let path = PathBuf::from(file.trim_start_matches("./"));
        let Some(first) = writers.get(&path) else {
            writers.insert(path, task);
            continue;
        };
        let Some(place) = place(setting, task) else { continue };
        let message = format!("`{}` and `{}` both write `{file}`", first.name, task.name);
        let help = "give each a file of its own: the one that ends last would overwrite the other";
        setting.problems.error("same_file", place, message, help);
    }
}

/// Returns the file that a task writes, if it follows from the inputs alone.
fn known(task: &TaskSpec, inputs: &Map<String, Value>) -> Option<String> {
    let file = task.output_file.as_ref()?;
    let names = template::names_in_template(file).ok()?;
    if !names.iter().all(|name| name.starts_with("inputs.")) {
        return None;
    }
    let inputs = task.within.as_ref().map_or(inputs, |within| &within.inputs);
    template::render(file, &json!({ "inputs": inputs })).ok()
}

/// Returns the place of the file of a task, or of the sub-graph that brings the task.
fn place<'a>(setting: Setting<'a>, task: &TaskSpec) -> Option<&'a Place> {
    let written = task.name.as_str().split('/').next()?;
    let entry = setting.raw.tasks.value(written)?;
    entry.output_file.placed().or(entry.workflow.placed()).map(|(_, place)| place)
}
