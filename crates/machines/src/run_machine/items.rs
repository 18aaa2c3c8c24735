//! The items of a fan-out, and their keys.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;

use super::scope;
use crate::failure::{Failure, FailureKind};
use crate::plan::Instances;
use crate::spec::{FanOut, TaskSpec};
use crate::template::{self, Known, Values};

/// The most bytes of a key: it is shown in one line and stands in each record of the fan-out.
const LONGEST_KEY: usize = 512;

/// The items of a fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Items {
    /// The items with their keys, in order.
    pub(super) all: Vec<(String, Known)>,
    /// Hash of the items.
    pub(super) hash: String,
    /// The number of the last record that was known when they were read.
    pub(super) seen: u64,
}

impl Items {
    /// Reads the items of a task's fan-out with these values.
    ///
    /// # Errors
    /// Returns a failure of the kind `bad_items` that names the items at fault, or `template`.
    pub(super) fn read(task: &TaskSpec, values: Values, most: usize) -> Result<Self, Failure> {
        let Some(fan_out) = &task.fan_out else { return Err(bad("the task does not fan out")) };
        let list = template::evaluate(&fan_out.list, values.known())
            .map_err(|error| scope::template_failure(task, "foreach", &error))?;
        let Value::Array(items) = list else {
            let (kind, written) = (kind_of(&list), fan_out.list.trim());
            let advice = match list {
                Value::String(_) => "; `| lines` or `| from_json` makes a list of text",
                _ => "",
            };
            let message = format!("`{written}` is {kind}, not a list{advice}");
            return Err(bad_at(task, "foreach", &message));
        };
        if items.len() > most {
            let count = items.len();
            let message = format!("it gives {count} items, and `limits.max_instances` is {most}");
            return Err(bad_at(task, "foreach", &message));
        }
        let hash = blake3::hash(Value::from(items.clone()).to_string().as_bytes());
        let hash = hash.to_hex()[..32].to_owned();
        let keys = keys(task, fan_out, &items, values)?;
        let all = keys.into_iter().zip(items.iter().map(Known::of)).collect();
        Ok(Self { all, hash, seen: 0 })
    }

    /// Checks that no two instances of the task write one file: the one that ends last would overwrite
    /// the other.
    ///
    /// # Errors
    /// Returns a failure of the kind `bad_items` that names both items, or `template`.
    pub(super) fn write_apart(&self, task: &TaskSpec, mut values: Values) -> Result<(), Failure> {
        let (Some(file), Some(fan_out)) = (&task.output_file, &task.fan_out) else { return Ok(()) };
        let mut writers = HashMap::new();
        for (number, (key, item)) in self.all.iter().enumerate() {
            values.set(&fan_out.item, item.clone());
            values.set("instance", scope::instance(number, key));
            let rendered = template::render(file, values.known())
                .map_err(|error| scope::template_failure(task, "output_file", &error))?;
            // Paths are compared by their parts, so only `./` in front remains.
            let path = PathBuf::from(rendered.trim_start_matches("./"));
            if let Some(first) = writers.insert(path, number) {
                let message = format!(
                    "items {first} and {number} both write `{rendered}`: let `output_file` name \
                     `instance.key` or `instance.index`"
                );
                return Err(bad_at(task, "output_file", &message));
            }
        }
        Ok(())
    }

    /// Returns them as they are recorded.
    pub(super) fn record(&self) -> Instances {
        let keys = self.all.iter().map(|(key, _)| key.clone()).collect();
        Instances { keys, hash: self.hash.clone(), seen: Some(self.seen) }
    }
}

/// Returns the failure of a list that cannot be fanned out over.
pub(super) fn bad(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::BadItems, message)
}

/// Returns the same with the key of the task that makes the list so, and its place.
fn bad_at(task: &TaskSpec, key: &str, message: &str) -> Failure {
    bad(format!("{}: {message}", scope::key_at(task, key, 1)))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "none",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns the keys of the items: all different, none empty.
fn keys(
    task: &TaskSpec,
    fan_out: &FanOut,
    items: &[Value],
    mut values: Values,
) -> Result<Vec<String>, Failure> {
    let (mut keys, mut seen) = (Vec::with_capacity(items.len()), HashMap::new());
    // Without a `foreach_key`, the list itself gives the keys.
    let maker = if fan_out.key.is_some() { "foreach_key" } else { "foreach" };
    for (number, item) in items.iter().enumerate() {
        let key = match &fan_out.key {
            Some(key) => {
                values.set(&fan_out.item, Known::of(item));
                let rendered = template::render(key, values.known());
                rendered.map_err(|error| {
                    let failure = scope::template_failure(task, "foreach_key", &error);
                    bad(format!("item {number}: {}", failure.message))
                })?
            }
            None => own_key(item),
        };
        if key.trim().is_empty() {
            let message = format!("the key of item {number} is empty: {}", brief(item));
            return Err(bad_at(task, maker, &message));
        }
        if key.len() > LONGEST_KEY {
            let bytes = key.len();
            let message =
                format!("the key of item {number} has {bytes} bytes, more than {LONGEST_KEY}");
            return Err(bad_at(task, maker, &message));
        }
        if let Some(first) = seen.insert(key.clone(), number) {
            let (one, other) = (brief(&items[first]), brief(item));
            let key = key.trim();
            let message =
                format!("items {first} and {number} have the same key `{key}`: {one} and {other}");
            return Err(bad_at(task, maker, &message));
        }
        keys.push(key);
    }
    Ok(keys)
}

/// Returns the key of an item without a `foreach_key`: a text or a number itself, for other items a
/// hash of their JSON text.
fn own_key(item: &Value) -> String {
    match item {
        Value::String(text) if text.len() <= LONGEST_KEY => text.clone(),
        Value::Number(_) | Value::Bool(_) => item.to_string(),
        Value::Null => String::new(),
        Value::String(_) | Value::Array(_) | Value::Object(_) => {
            blake3::hash(item.to_string().as_bytes()).to_hex()[..16].to_owned()
        }
    }
}

/// Returns the beginning of an item as JSON.
fn brief(item: &Value) -> String {
    let text = item.to_string();
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
