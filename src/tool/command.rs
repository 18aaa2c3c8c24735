//! A command line, run in this process.
//!
//! Owns the wording of what a command gave.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::process::{self, Ending, Finished, ProcessGroup};
use super::{ToolContext, ToolError, ToolOutput};
use crate::output::Output;

/// A command that is to be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// The command line for `sh -c`.
    pub(super) command: String,
    /// The longest it may take.
    pub(super) timeout: Duration,
    /// Who reads what it gave.
    pub(super) reader: Reader,
}

/// Who reads what a command gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reader {
    /// A model.
    Model,
    /// Other tasks: they want its output and nothing else.
    Tasks,
}

/// Runs the command in this process.
pub(super) async fn run(
    order: &Order,
    place: ProcessGroup,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let mut finished = process::run(&order.command, order.timeout, place, context).await?;
    if order.reader == Reader::Model {
        if finished.output.text.is_empty() {
            finished.output.text.push_str("(no output)");
        }
        if finished.left_behind {
            let note = "(background processes were left; those of the command's own process group have been ended)";
            finished.output.text = with_line(finished.output.text, note);
        }
    }
    told(finished, order.timeout)
}

/// Says of a command that was told to end what a reader has to know.
const TOLD_TO_END: &str = "(it was told to end while it was at work, and did so by itself; its work \
    may be half done. Inspect the state before you repeat it.)";

fn told(finished: Finished, timeout: Duration) -> Result<ToolOutput, ToolError> {
    let Finished { ending, output, errors: _, left_behind: _ } = finished;
    let with_code = |text, code| with_line(text, &format!("exit code {code}"));
    let Output { text, stored } = output;
    let (text, exit_code) = match ending {
        Ending::Exited(0) => (text, Some(0)),
        Ending::Exited(code) => (with_code(text, code), Some(code)),
        Ending::TimedOut(code) => {
            let text = format!("Error: Timeout ({}s)\n{text}", timeout.as_secs_f64());
            let text = match code {
                Some(code) => with_code(text, code),
                None => text,
            };
            (text, code)
        }
        Ending::Cancelled(Some(code)) => {
            (with_line(with_code(text, code), TOLD_TO_END), Some(code))
        }
        Ending::Cancelled(None) => return Err(ToolError::Killed(Output { text, stored })),
    };
    let is_error = ending != Ending::Exited(0);
    let told_to_end = matches!(ending, Ending::Cancelled(_));
    Ok(ToolOutput { text, is_error, stored, exit_code, told_to_end })
}

/// Adds a line of its own.
fn with_line(mut text: String, line: &str) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text + line
}
