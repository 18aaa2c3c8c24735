//! Reads the fan-out of a task: `foreach` and the keys that go with it.

use super::diagnostic::{NO_HELP, Problems};
use super::raw::Task;
use crate::spec::FanOut;

/// The names that a template has already.
const TAKEN: [&str; 5] = ["inputs", "tasks", "run", "instance", "secrets"];

/// Returns the fan-out of a task, if it has one.
pub(super) fn fan_out(task: &Task, problems: &Problems) -> Option<FanOut> {
    if !task.foreach.is_set() {
        let without = [
            task.foreach_as.at(),
            task.foreach_key.at(),
            task.max_concurrency.at(),
            task.min_success.at(),
        ];
        for key in without.into_iter().flatten() {
            let help = "add `foreach`, an expression that gives a list";
            problems.error("conflict", &key.key, "this key needs `foreach`", help);
        }
        return None;
    }
    if let Some(written) = task.foreach_as.at() {
        let (name, place) = (&*task.foreach_as, &written.value);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !name.chars().all(is_word) {
            let message = format!("`{name}` cannot be the name of an item");
            let help = "use letters, digits and `_`, and a letter or `_` first";
            problems.error("bad_value", place, message, help);
        } else if TAKEN.contains(&name.as_str()) {
            let message = format!("`{name}` has a meaning of its own in templates");
            problems.error("bad_value", place, message, NO_HELP);
        }
    }
    Some(FanOut {
        list: task.foreach.clone()?,
        item: task.foreach_as.clone(),
        key: task.foreach_key.clone(),
        max_concurrency: *task.max_concurrency,
        min_success: *task.min_success,
    })
}
