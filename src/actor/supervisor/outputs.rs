//! Checks the outputs of tasks: their form, and the files that they are written to.
//!
//! Runs in tasks beside the supervisor's mailbox.

use serde_json::Value;

use crate::actor::services::Services;
use crate::failure::{Failure, FailureKind};
use crate::journal::JournalError;
use crate::output::Output;
use crate::spec::TaskSpec;
use crate::template;

/// Checks an output of a task and writes it to the task's `output_file`. Gives its value for
/// templates, or why it is not what the task asks for.
///
/// # Errors
/// When the output is stored and cannot be read back.
pub(super) async fn check(
    services: &Services,
    spec: &TaskSpec,
    output: &Output,
    values: &Value,
) -> Result<Result<Value, Failure>, JournalError> {
    let text = services.whole_text(output).await?;
    let value = match spec.output.parse(&text) {
        Ok(value) => value,
        Err(failure) => return Ok(Err(failure)),
    };
    if let Some(template) = &spec.output_file
        && let Err(failure) = write_output_file(services, template, &text, values).await
    {
        return Ok(Err(failure));
    }
    Ok(Ok(value))
}

/// Writes an output into the workspace.
///
/// # Errors
/// When the name cannot be rendered, leads out of the workspace or cannot be written.
async fn write_output_file(
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
