//! How a task ends: its agent's outcome becomes an output, another attempt or a failure.

use std::time::Duration;

use ractor::ActorRef;
use serde_json::{Value, json};

use super::{State, Supervisor, SupervisorMsg};
use crate::actor::Services;
use crate::event::{Draft, Event};
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::output::Output;
use crate::plan::{TaskCancelled, TaskCompleted, TaskFailed, TaskRetrying, TaskReused};
use crate::spec::{OutputFormat, TaskSpec};
use crate::template;
use crate::turn::Outcome;

impl Supervisor {
    /// The task's main agent has ended.
    pub(super) fn settle(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        task: &Name,
        outcome: &Outcome,
    ) {
        let Some(spec) = self.plan.task(task) else { return };
        match outcome {
            Outcome::Completed { output } => {
                self.check_output(myself, state, spec, output.clone());
            }
            Outcome::Failed { failure, .. } => self.attempt_failed(state, spec, failure),
            Outcome::Cancelled { reason } => {
                let event = TaskCancelled { reason: reason.clone() };
                self.propose_end(state, task, event.into());
            }
        }
    }

    /// Has an output checked and written where it is wanted, off the mailbox.
    fn check_output(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        spec: &TaskSpec,
        output: Output,
    ) {
        let (services, myself, spec) = (self.services.clone(), myself.clone(), spec.clone());
        let values = self.scope(state).values(&spec);
        state.proposed.insert(spec.name.clone());
        state.work.spawn(async move {
            let message = match services.whole_text(&output).await {
                Ok(text) => {
                    let value = finish_output(&services, &spec, &text, &values).await;
                    let result = value.map(|value| (output, value));
                    SupervisorMsg::Settled { task: spec.name, result }
                }
                // Nothing may be decided without what was acknowledged.
                Err(error) => SupervisorMsg::JournalFailed(error),
            };
            // A supervisor that is gone settles nothing.
            let _ = myself.send_message(message);
        });
    }

    /// Takes the result that was made before from the same content.
    pub(super) fn reuse(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        task: &TaskSpec,
        key: String,
        output: Output,
    ) {
        state.reusing.insert(task.name.clone(), key);
        self.check_output(myself, state, task, output);
    }

    /// The output was checked and written where it is wanted.
    pub(super) fn settled(
        &self,
        state: &mut State,
        task: &Name,
        result: Result<(Output, Value), Failure>,
    ) {
        let Some(spec) = self.plan.task(task) else { return };
        state.proposed.remove(task);
        let reused = state.reusing.remove(task);
        match result {
            Ok((output, value)) => {
                state.values.insert(task.to_string(), json!({ "output": value }));
                let attempt = state.run.task(task).map_or(1, |status| status.attempt);
                let event = match reused {
                    Some(key) => TaskReused { key, output }.into(),
                    None => TaskCompleted { attempt, output }.into(),
                };
                self.propose_end(state, task, event);
            }
            Err(failure) => self.attempt_failed(state, spec, &failure),
        }
    }

    fn attempt_failed(&self, state: &mut State, spec: &TaskSpec, failure: &Failure) {
        let status = state.run.task(&spec.name);
        let (attempt, earlier) = status.map_or((1, 0), |status| (status.attempt, status.earlier));
        let ending = state.stopped.is_some()
            || state.interrupted.is_some()
            || state.cancel_requested.contains_key(&spec.name);
        let pause = spec
            .retry
            .pause(attempt.saturating_sub(earlier), failure.kind, fastrand::f64())
            .filter(|_| !ending);
        let failure = failure.clone();
        let event: Event = match pause {
            Some(pause) => TaskRetrying { attempt, failure, pause_ms: millis(pause) }.into(),
            None => TaskFailed { attempt, failure }.into(),
        };
        self.propose_end(state, &spec.name, event);
    }

    fn propose_end(&self, state: &mut State, task: &Name, event: Event) {
        state.proposed.insert(task.clone());
        self.propose(state, vec![Draft::task(task, event)]);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Checks the form of an output, and writes the task's output file. Gives what templates see of it.
async fn finish_output(
    services: &Services,
    spec: &TaskSpec,
    text: &str,
    values: &Value,
) -> Result<Value, Failure> {
    let value = parse(spec.output, text)?;
    if let Some(template) = &spec.output_file {
        write_output_file(services, template, text, values).await?;
    }
    Ok(value)
}

/// The value of an output's text for templates.
///
/// # Errors
/// When it does not have the form.
pub fn parse(format: OutputFormat, text: &str) -> Result<Value, Failure> {
    let bad = |error: serde_json::Error| {
        let message = format!("the output is not valid JSON: {error}");
        Failure::new(FailureKind::OutputFormat, message)
    };
    match format {
        OutputFormat::Text => Ok(Value::String(text.to_owned())),
        OutputFormat::Json => serde_json::from_str(text.trim()).map_err(bad),
        OutputFormat::Jsonl => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            let values = lines.map(|line| serde_json::from_str::<Value>(line).map_err(bad));
            values.collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
    }
}

/// Writes a task's output into the workspace.
///
/// # Errors
/// When the name cannot be rendered, leads out of the workspace or cannot be written.
pub async fn write_output_file(
    services: &Services,
    template: &str,
    text: &str,
    values: &Value,
) -> Result<(), Failure> {
    let path = template::render(template, values).map_err(|error| {
        Failure::new(FailureKind::Template, format!("`output_file`: {}", error.message))
    })?;
    let (workspace, text) = (services.workspace.clone(), text.to_owned());
    let write = move || workspace.write(&path, text.as_bytes());
    let written = tokio::task::spawn_blocking(write).await;
    let failed = |message: String| Failure::new(FailureKind::ToolError, message);
    match written {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed(format!("`output_file`: {error}"))),
        Err(error) => Err(failed(format!("`output_file`: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_bound_by_their_form() {
        assert_eq!(parse(OutputFormat::Text, "{"), Ok(json!("{")));
        assert_eq!(parse(OutputFormat::Json, " {\"a\": 1}\n"), Ok(json!({"a": 1})));
        assert_eq!(parse(OutputFormat::Jsonl, "1\n\n[2]\n"), Ok(json!([1, [2]])));
        let error = parse(OutputFormat::Json, "none").expect_err("not JSON");
        assert_eq!(error.kind, FailureKind::OutputFormat);
    }
}
