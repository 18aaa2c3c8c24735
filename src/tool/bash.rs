//! The tool `bash`, and the runner for tasks that are commands.
//!
//! Owns what a call may ask for. Processes are not confined to the workspace: what they may do is
//! for permissions and, later, a sandbox to say.

mod parts;

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::command::{self, Order, Reader};
use super::process::ProcessGroup;
use super::workspace::Workspace;
use super::wrapper;
use super::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec, arguments};
use crate::id::Name;
use crate::message::Json;
use crate::tool::BoxFuture;
use crate::turn::Effect;

/// The shell tool.
#[must_use]
pub fn tools() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(Bash { spec: spec() })]
}

/// Runs `sh -c command` in the workspace root for at most the context's time, in a wrapper process
/// where the context has one.
///
/// The text is exactly what the command printed, stdout and stderr as they came, or a preview of
/// it; only a failure adds words of its own. An exit code other than 0, a timeout and an end that
/// was asked for are outputs with `is_error`; `exit_code` is absent when the command had to be
/// killed, and 128 + n when signal n ended it. However it ends, no process of the command's group is
/// left, even when the future is dropped.
///
/// # Errors
/// When the command could not be started, its output not be stored, or when the call was cancelled
/// and the command had to be killed.
pub async fn run_command(command: &str, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let (command, timeout) = (command.to_owned(), context.timeout);
    perform(Order { command, timeout, reader: Reader::Tasks }, context).await
}

/// Announces the call and runs the command, in a wrapper process where there is one.
async fn perform(order: Order, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    match &context.wrapper {
        Some(program) => wrapper::call(program, order, context).await,
        None => {
            context.announce.announce(None).await?;
            command::run(&order, ProcessGroup::OwnGroup, context).await
        }
    }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: Name::new("bash").expect("a valid name"),
        description: "Runs a command with `sh -c` in the workspace root and gives its stdout and \
                      stderr. There is no input and no terminal. Background processes are ended \
                      when the command ends. Each call starts anew: `cd` and variables do not last."
            .to_owned(),
        input_schema: Json::encode(&serde_json::json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command line."},
                "timeout_s": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "description": "The longest it may take, in seconds; it cannot exceed the configured limit."
                }
            },
            "required": ["command"],
            "additionalProperties": false
        })),
        effect: Effect::Once,
        reads_only: false,
    }
}

struct Bash {
    spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BashArguments {
    command: String,
    timeout_s: Option<f64>,
}

impl BashArguments {
    fn timeout(&self, most: Duration) -> Result<Duration, ToolError> {
        let Some(seconds) = self.timeout_s else { return Ok(most) };
        match Duration::try_from_secs_f64(seconds) {
            Ok(timeout) if !timeout.is_zero() => Ok(timeout.min(most)),
            _ => Err(ToolError::Arguments(format!("`timeout_s` cannot be {seconds}"))),
        }
    }
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Its processes get their grace.
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    /// It has a process to tell of.
    fn announces_itself(&self) -> bool {
        true
    }

    fn permission_arguments(&self, input: &Json, _workspace: &Workspace) -> Vec<String> {
        let input = input.to_value();
        input["command"].as_str().map(parts::parts).unwrap_or_default()
    }

    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let asked: BashArguments = arguments(&input)?;
            let timeout = asked.timeout(context.timeout)?;
            perform(Order { command: asked.command, timeout, reader: Reader::Model }, &context)
                .await
        })
    }
}

#[cfg(test)]
mod tests;
