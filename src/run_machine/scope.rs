//! Templates of tasks: the values that they may name, and the programs that they render to.
//!
//! Pure: a live run and a forecast render the same programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::failure::{Failure, FailureKind};
use crate::id::{Name, RunId};
use crate::plan::TaskState;
use crate::run_state::TaskStatus;
use crate::spec::{TaskSpec, Work};
use crate::template::{self, TemplateError};
use crate::turn::Program;

/// The values that the templates of a run's tasks may name.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: &'a str,
    /// The inputs.
    pub inputs: &'a Map<String, Value>,
    /// The values of the tasks that have ended, by name, made by [`ended`].
    pub ended: &'a Map<String, Value>,
    /// The item of an instance of a fan-out.
    pub item: Option<Item<'a>>,
}

/// The item on which an instance of a fan-out works.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The name of the item in templates.
    pub name: &'a str,
    /// The item.
    pub value: &'a Value,
    /// The key of the item.
    pub key: &'a str,
    /// The number of the instance, from 0.
    pub number: usize,
    /// The tasks whose values the templates read.
    pub reads: &'a BTreeSet<String>,
}

/// The value of a dependency that has not ended: a task that needs only some of its dependencies
/// may start before the others end.
static NOT_ENDED: LazyLock<Value> = LazyLock::new(|| {
    let state = TaskState::Pending.as_str();
    serde_json::json!({ "output": null, "state": state, "error": null })
});

impl Scope<'_> {
    /// Returns the values for the templates of one task.
    #[must_use]
    pub fn values(&self, task: &TaskSpec) -> Value {
        // A template may name only the task's dependencies. To copy all outputs for each task would
        // take time quadratic in the number of tasks.
        let named = task.depends_on.iter().map(Name::as_str);
        let named = named.filter(|name| self.item.is_none_or(|item| item.reads.contains(*name)));
        let tasks: BTreeMap<_, _> =
            named.map(|name| (name, self.ended.get(name).unwrap_or(&NOT_ENDED))).collect();
        let mut values = serde_json::json!({
            "inputs": self.inputs,
            "tasks": tasks,
            "run": { "id": self.run, "name": self.workflow },
        });
        if let Some(item) = self.item {
            values[item.name] = item.value.clone();
            values["instance"] = serde_json::json!({ "index": item.number, "key": item.key });
        }
        values
    }

    /// Renders the program of a task's agent.
    ///
    /// # Errors
    /// Returns the key whose template cannot be rendered, with the error.
    pub fn program(&self, task: &TaskSpec) -> Result<Program, (&'static str, TemplateError)> {
        let values = self.values(task);
        match &task.work {
            Work::Agent { agent, prompt } => {
                let prompt = template::render(prompt, &values).map_err(|e| ("prompt", e))?;
                if prompt.trim().is_empty() {
                    // Providers refuse a message without text.
                    let message = "the rendered text is blank".to_owned();
                    return Err(("prompt", TemplateError { message, line: 1, range: None }));
                }
                Ok(Program::Model { agent: agent.clone(), prompt })
            }
            Work::Command { run } => {
                let mut env = self.input_variables();
                for (key, text) in &task.env {
                    let value = template::render(text, &values).map_err(|e| ("env", e))?;
                    env.insert(key.clone(), value);
                }
                Ok(Program::Command { run: run.clone(), env })
            }
        }
    }

    /// Returns the inputs as `INPUT_NAME` variables: texts as they are, other values as JSON.
    fn input_variables(&self) -> BTreeMap<String, String> {
        let variables = self.inputs.iter().map(|(name, value)| {
            let name = format!("INPUT_{}", name.to_uppercase().replace('-', "_"));
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name, value)
        });
        variables.collect()
    }
}

/// Returns the value of a task's output for templates, from the output in its format.
#[must_use]
pub(crate) fn value_of(task: &TaskSpec, output: Value) -> Value {
    let field = if task.fan_out.is_some() { "outputs" } else { "output" };
    serde_json::json!({ field: output })
}

/// Returns the value of an ended task for templates, with the output in `known`, if there is one.
#[must_use]
pub(crate) fn ended(status: &TaskStatus, known: Option<Value>) -> Value {
    let error = status.failure.as_ref().map(ToString::to_string);
    let mut value = known.unwrap_or_else(|| serde_json::json!({ "output": null }));
    value["state"] = status.state.as_str().into();
    value["error"] = error.into();
    value
}

/// Returns the failure of a task whose key `key` cannot be rendered.
pub(super) fn template_failure(key: &str, error: &TemplateError) -> Failure {
    let message = format!("`{key}`, line {}: {}", error.line, error.message);
    Failure::new(FailureKind::Template, message)
}
