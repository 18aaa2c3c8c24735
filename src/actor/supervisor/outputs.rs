//! Checks the outputs of tasks and writes them to their `output_file`.
//!
//! Runs in tasks beside the supervisor's mailbox, because it reads and writes files.

use serde_json::Value;

use crate::actor::services::Services;
use crate::actor::work::{self, Helper};
use crate::failure::{Failure, FailureKind};
use crate::foreign::Panicked;
use crate::journal::JournalError;
use crate::output::Output;
use crate::spec::{OutputFormat, TaskSpec, Work};
use crate::template;

/// Checks the form of a task's output, and if it `is_last`, writes it to the task's `output_file` and
/// stores it if a later task reads it as a file. Returns the value that templates see and the output as
/// it is recorded, or the failure of the task if the output does not have the form that the task
/// declares or cannot be written.
///
/// # Errors
/// Returns an error if the output is in the result store and cannot be read back.
pub(super) async fn check(
    services: &Services,
    (spec, is_read_as_file): (&TaskSpec, bool),
    output: Output,
    values: &Value,
    is_last: bool,
) -> Result<Result<(Value, Output), Failure>, JournalError> {
    if spec.fan_out.is_some() || matches!(spec.work, Work::Graph { .. }) {
        // The outputs of its instances, or of its tasks, were checked and written one by one.
        let value = OutputFormat::Json.parse(&output.text);
        let output = services.bounded(output).await;
        if let Some(failure) = store_if_read(services, &output, is_read_as_file).await {
            return Ok(Err(failure));
        }
        return Ok(value.map(|value| (value, output)));
    }
    let whole = services.whole_text(&output).await?;
    let value = match read(spec, &whole).await {
        Ok(value) => value,
        Err(failure) => return Ok(Err(failure)),
    };
    let text = spec.output.body(&whole);
    if let Some(template) = spec.output_file.as_ref().filter(|_| is_last)
        && let Err(failure) = write_output_file(services, template, text, values).await
    {
        return Ok(Err(failure));
    }
    // The code fence around an answer is no part of the output.
    let output = match is_last && text.len() < whole.trim().len() {
        true => services.bounded(Output::whole(text)).await,
        false => output,
    };
    if is_last && let Some(failure) = store_if_read(services, &output, is_read_as_file).await {
        return Ok(Err(failure));
    }
    Ok(Ok((value, output)))
}

/// Stores an output whose file a later task names. Returns a failure if the disk refuses.
async fn store_if_read(services: &Services, output: &Output, is_read: bool) -> Option<Failure> {
    if !is_read || output.stored.is_some() {
        return None;
    }
    let (store, text) = (services.store.clone(), output.text.clone());
    let stored = work::blocking(Helper::OutputStore, move || store.store(text)).await;
    let error = match stored {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Some(Failure::new(FailureKind::ToolError, format!("`output_path`: {error}")))
}

/// Returns the failure of a task whose output cannot be judged, because the program crashed over it.
pub(super) fn crashed(panic: &Panicked) -> Failure {
    Failure::new(FailureKind::Internal, format!("its output could not be judged: {panic}"))
}

/// The most bytes of a text that is compared with a schema beside other work: longer ones get a thread
/// of their own.
const SHORT: usize = 16 * 1024;

/// Reads an output: its value, or the failure if its form is wrong.
async fn read(spec: &TaskSpec, text: &str) -> Result<Value, Failure> {
    if spec.acceptance.schema.is_none() || text.len() <= SHORT {
        return spec.read(text);
    }
    let (spec, text) = (spec.clone(), text.to_owned());
    let read = work::blocking(Helper::OutputRead, move || spec.read(&text)).await;
    read.unwrap_or_else(|panic| Err(crashed(&panic)))
}

/// Writes an output into the workspace.
///
/// # Errors
/// Returns a failure if the path cannot be rendered, leads out of the workspace or cannot be
/// written.
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
    let written = work::blocking(Helper::OutputWrite, write).await;
    let failed = |message: String| Failure::new(FailureKind::ToolError, message);
    match written {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed(format!("`output_file`: {error}"))),
        Err(error) => Err(failed(format!("`output_file`: {error}"))),
    }
}
