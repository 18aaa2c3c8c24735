//! What a task is to do, with every template rendered.
//!
//! Pure: the same while a run is at work and for those who only want to know.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::id::{Name, RunId};
use crate::run_state::TaskStatus;
use crate::spec::{TaskSpec, Work};
use crate::template::{self, TemplateError};
use crate::turn::Program;

/// What templates of a run's tasks may name.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: &'a str,
    /// The inputs.
    pub inputs: &'a Map<String, Value>,
    /// The tasks that have ended.
    pub ended: &'a Map<String, Value>,
}

impl Scope<'_> {
    /// What the templates of one task see.
    #[must_use]
    pub fn values(&self, task: &TaskSpec) -> Value {
        // No other task may be named, and to copy the outputs of all for each would take more and
        // more.
        let named = task.depends_on.iter().map(Name::as_str);
        let tasks: BTreeMap<_, _> =
            named.filter_map(|name| Some((name, self.ended.get(name)?))).collect();
        serde_json::json!({
            "inputs": self.inputs,
            "tasks": tasks,
            "run": { "id": self.run, "name": self.workflow },
        })
    }

    /// What the task's agent is to do.
    ///
    /// # Errors
    /// When a template cannot be rendered: which, and why.
    pub fn program(&self, task: &TaskSpec) -> Result<Program, (&'static str, TemplateError)> {
        let values = self.values(task);
        match &task.work {
            Work::Agent { agent, prompt } => {
                let prompt = template::render(prompt, &values).map_err(|e| ("prompt", e))?;
                if prompt.trim().is_empty() {
                    // No provider takes a message without text.
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

    /// The inputs as `INPUT_NAME` variables: texts as they are, anything else as JSON.
    fn input_variables(&self) -> BTreeMap<String, String> {
        let variables = self.inputs.iter().map(|(name, value)| {
            let name = format!("INPUT_{}", name.to_uppercase().replace('-', "_"));
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name, value)
        });
        variables.collect()
    }
}

/// What templates see of a task that has ended with this output.
#[must_use]
pub fn ended(status: &TaskStatus, output: Value) -> Value {
    let error = status.failure.as_ref().map(ToString::to_string);
    serde_json::json!({ "output": output, "state": status.state.as_str(), "error": error })
}
