//! Refuses an `output_file` that cannot be written: no file, one that is protected, one in the records of runs,
//! and one that another task writes too, because the one that ends last would overwrite the others
//! without a word. The files of the instances of one fan-out are compared when its items are known.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value, json};

use super::diagnostic::{NO_HELP, Place};
use super::{Setting, layers};
use crate::spec::{TaskSpec, run_by_others};
use crate::template;

/// Reports each task that writes the file of an earlier one, as far as the inputs decide the names.
pub(super) fn check(setting: Setting<'_>, tasks: &[TaskSpec], inputs: &Map<String, Value>) {
    let mut writers: HashMap<PathBuf, &TaskSpec> = HashMap::new();
    let mut folders: HashMap<PathBuf, &TaskSpec> = HashMap::new();
    for task in tasks.iter().filter(|task| task.fan_out.is_none()) {
        let Some(file) = known(task, inputs) else { continue };
        let Some(place) = place(setting, task) else { continue };
        let path: PathBuf = Path::new(&file)
            .components()
            .filter(|part| !matches!(part, Component::CurDir))
            .collect();
        // One that leads out of the workspace is reported with its task.
        if path.components().any(|part| !matches!(part, Component::Normal(_))) {
            continue;
        }
        if let Some((message, help)) = unwritable(setting, &file, &path) {
            setting.problems.error("bad_value", place, message, help);
            continue;
        }
        let above: Vec<&Path> = path.ancestors().skip(1).collect();
        let is_in = above.iter().find_map(|folder| writers.get(*folder));
        if let Some(first) = writers.get(&path) {
            let message = format!("`{}` and `{}` both write `{file}`", first.name, task.name);
            let help =
                "give each a file of its own: the one that ends last would overwrite the other";
            setting.problems.error("same_file", place, message, help);
            continue;
        }
        if let Some(other) = is_in.or_else(|| folders.get(&path)) {
            let message = format!(
                "`{}` and `{}` cannot both be written: what is a file for one of them is a folder for the other",
                other.name, task.name
            );
            setting.problems.error("same_file", place, message, "rename one of the files");
            continue;
        }
        folders.extend(above.into_iter().map(|folder| (folder.to_owned(), task)));
        writers.insert(path, task);
    }
}

/// Says why a file cannot be written, and what to do.
fn unwritable(setting: Setting<'_>, file: &str, path: &Path) -> Option<(String, &'static str)> {
    if path.as_os_str().is_empty() {
        return Some((format!("`{file}` names no file"), "name one: `out/report.md`"));
    }
    let full = setting.root.join(path);
    if full.starts_with(layers::state_dir(setting.raw, setting.root, setting.sources)) {
        let message = format!("`{file}` lies in the records of runs, which no task writes");
        return Some((message, "name a file beside them"));
    }
    let is_own = setting.sources.file.file_name().is_some_and(|name| path == Path::new(name));
    if is_own || run_by_others::kept_from_file_tools(path).is_some() {
        let message = format!("`{file}` is protected: other programs run or trust it");
        return Some((message, "name another file, and move it by hand"));
    }
    let is_folder = file.ends_with('/') || full.is_dir();
    is_folder.then(|| (format!("`{file}` is a folder"), NO_HELP))
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
