//! Builds the rules by which answers are accepted: schemas, checks and loops.

use serde_json::Value;

use super::diagnostic::{NO_HELP, Place};
use super::raw::{Check as RawCheck, Task};
use super::shape::{Entry, Field, Item};
use super::templates::{Language, Scope, command};
use super::{Setting, names, network};
use crate::id::Name;
use crate::schema::{Schema, TYPES};
use crate::spec::acceptance::{Acceptance, Check, CheckWork, Loop, RETRIES};
use crate::spec::{AgentSpec, OutputFormat};

/// The most bytes of a schema: a generator's longest have a tenth of it, and it is sent to a model.
const MOST_BYTES: usize = 256 << 10;

/// Reads a schema that is written as a table or as the path of a JSON file.
pub(super) fn schema(setting: Setting<'_>, field: &Field<Option<Value>>) -> Option<Schema> {
    let (value, place) = field.placed()?;
    let report = |message: String| {
        setting.problems.error("bad_schema", place, message, NO_HELP);
    };
    let (document, of_file) = match value {
        Value::String(file) => {
            let read = setting.shelf.read(&setting.root.join(file), place, setting.problems)?;
            if read.text.len() > MOST_BYTES {
                report(format!("`{file}` has more than {} KiB", MOST_BYTES >> 10));
                return None;
            }
            match serde_json::from_str(&read.text) {
                Ok(document) => (document, format!("`{file}`: ")),
                Err(error) => {
                    report(format!("`{file}` is not JSON: see line {}", error.line()));
                    return None;
                }
            }
        }
        Value::Object(_) => (value.clone(), String::new()),
        _ => {
            report("a schema is a table, or the path of a JSON file".to_owned());
            return None;
        }
    };
    match Schema::new(document) {
        Ok(schema) => Some(schema),
        Err(reason) => {
            let message = format!("{of_file}not a JSON Schema: {reason}");
            let word = reason.strip_prefix("there is no JSON type `");
            let word = word.and_then(|rest| rest.split('`').next());
            let help = word.map(|word| names::suggest(word, TYPES)).unwrap_or_default();
            setting.problems.error("bad_schema", place, message, help);
            None
        }
    }
}

/// Builds the rules for the answer of a task, and the form of its output. What the task does not say
/// is taken from its agent.
pub(super) fn rules(
    setting: Setting<'_>,
    entry: &Entry<Task>,
    task: &Task,
    agent: Option<&AgentSpec>,
) -> (Acceptance, OutputFormat) {
    let own = schema(setting, &task.output_schema);
    let of_agent = agent.and_then(|agent| agent.output_schema.clone());
    let schema = own.or_else(|| of_agent.filter(|_| !task.output_schema.is_set()));
    let format = match (*task.output, &schema, task.output.at()) {
        (OutputFormat::Text, Some(_), None) => OutputFormat::Json,
        (OutputFormat::Text | OutputFormat::Raw, Some(_), Some(at)) => {
            let message = "a text cannot fit an `output_schema`";
            let help = "remove `output`: with a schema, the output is JSON";
            setting.problems.error("conflict", &at.value, message, help);
            OutputFormat::Text
        }
        (format, _, _) => format,
    };
    let retries = *task.output_retries;
    let retries = retries.or_else(|| agent?.output_retries).unwrap_or(RETRIES);
    let scope = Scope::of_answer(setting, &entry.name, task, format.is_text());
    let check = |item: &Item<RawCheck>| {
        network::of_check(setting, task, &item.value);
        check(setting, item, &scope)
    };
    let checks = task.checks.iter().filter_map(check).collect();
    let repeat = repeat(setting, task, &scope);
    (Acceptance { schema, retries, checks, repeat }, format)
}

fn check(setting: Setting<'_>, item: &Item<RawCheck>, scope: &Scope<'_>) -> Option<Check> {
    let Item { value: raw, at } = item;
    let problems = setting.problems;
    let work = match (raw.run.placed(), raw.agent.placed()) {
        (Some((run, place)), None) => {
            if let Some(prompt) = raw.prompt.at() {
                let message = "a check that runs a command takes no `prompt`";
                problems.error("conflict", &prompt.key, message, NO_HELP);
            }
            command(run, place, problems);
            for (variable, text) in raw.env.values() {
                scope.check(text, &variable.at.value, Language::Template);
            }
            let env = raw.env.values().map(|(name, text)| (name.name.clone(), text.clone()));
            CheckWork::Command { run: run.clone(), env: env.collect() }
        }
        (None, Some((agent, place))) => {
            setting.raw.agents.must_have("unknown_agent", agent, place, problems);
            let Some((prompt, place)) = raw.prompt.placed() else {
                let message = "the check gives its agent no `prompt`";
                problems.error("missing_field", &at.value, message, NO_HELP);
                return None;
            };
            scope.check(prompt, place, Language::Template);
            if let Some(env) = raw.env.at() {
                let message = "a check by an agent takes no `env`";
                let help = "the `prompt` can name the same values";
                problems.error("conflict", &env.key, message, help);
            }
            CheckWork::Agent { agent: Name::new(agent).ok()?, prompt: prompt.clone() }
        }
        (Some(_), Some((_, place))) => {
            problems.error("conflict", place, "a check has either `run` or `agent`", NO_HELP);
            return None;
        }
        (None, None) => {
            if !raw.run.is_wrong() && !raw.agent.is_wrong() {
                let help = "add `run`, or `agent` and `prompt`";
                problems.error("missing_field", &at.value, "the check does nothing", help);
            }
            return None;
        }
    };
    Some(Check { work, timeout: *raw.timeout })
}

fn repeat(setting: Setting<'_>, task: &Task, scope: &Scope<'_>) -> Option<Loop> {
    let place: &Place = &task.r#loop.at()?.key;
    let missing = |key: &str, help: &str| {
        let message = format!("the loop has no `{key}`");
        setting.problems.error("missing_field", place, message, help);
    };
    let until = task.r#loop.until.placed();
    let most = *task.r#loop.max_iterations;
    if until.is_none() && !task.r#loop.until.is_wrong() {
        missing("until", "say when the work is done: `until = \"output.done\"`");
    }
    if most.is_none() && !task.r#loop.max_iterations.is_wrong() {
        missing("max_iterations", "every loop has a bound: `max_iterations = 3`");
    }
    let (until, at) = until?;
    scope.check(until, at, Language::Expression("until"));
    Some(Loop { until: until.clone(), max_iterations: most? })
}
