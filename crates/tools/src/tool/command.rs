//! Runs a command: a command line, or a program with its arguments.
//!
//! Owns the words that a model reads with the output of a command. Other tasks receive the output
//! and nothing else.

mod refusal;
mod shapes;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::refusal::Binding;
use super::process::{self, Errors, ProcessGroup, Program};
use super::sandbox::{Policy, RefusedHosts};
use super::{Ending, ToolContext, ToolError, ToolOutput};
use crate::output::{Output, Printed};
use crate::spec::sandbox::limit_passed;
use crate::store::INLINE_CHARS;
use crate::turn::SHELL;

/// A command to run, with its reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// The command.
    pub(super) program: Program,
    /// Reader of the output.
    pub(super) reader: Reader,
}

impl Order {
    /// Returns the order for a command line, which a shell runs in the workspace root.
    pub(super) fn shell(line: String, timeout: Duration, reader: Reader) -> Self {
        let argv = SHELL.iter().map(|word| (*word).to_owned()).chain([line]).collect();
        let folder = PathBuf::new();
        let (errors, inline_chars) = (Errors::Joined, INLINE_CHARS);
        let program = Program { argv, folder, input: None, errors, timeout, inline_chars };
        Self { program, reader }
    }
}

/// Reader of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reader {
    /// A model.
    Model,
    /// Other tasks, which receive the output and nothing else.
    Tasks,
}

impl ToolOutput {
    /// Returns what the command printed beside its output; `None` if nothing was kept apart, or if it ended by itself
    /// and printed nothing on stderr: then the output says all.
    #[must_use]
    pub fn beside(&self) -> Option<Printed> {
        let stderr = Output { text: self.errors.clone(), stored: self.errors_stored.clone() };
        let stderr = Some(stderr).filter(|stderr| !stderr.text.is_empty());
        let is_killed = self.ending == Ending::Cancelled(None);
        let says_more = stderr.is_some() || is_killed && !self.last_lines.is_empty();
        (says_more || self.sandbox.is_some()).then(|| Printed {
            stdout: None,
            stderr,
            last_lines: self.last_lines.clone(),
            sandbox: self.sandbox.clone(),
        })
    }
}

/// Runs the command in this process.
pub(super) async fn run(
    order: Order,
    place: ProcessGroup,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let Order { program, reader } = order;
    let (timeout, is_apart) = (program.timeout, program.errors == Errors::Apart);
    let hosts = RefusedHosts::default();
    let ended = process::run_noting(program, place, context, &hosts).await?;
    let refused = refused(&ended, is_apart, context, &hosts);
    Ok(match reader {
        Reader::Model => for_model(ended, timeout, context.sandbox.policy(), refused),
        Reader::Tasks => ToolOutput { sandbox: refused, ..ended },
    })
}

/// Line that a model reads after the output of a command that was cancelled and ended in time.
const TOLD_TO_END: &str = "(it was told to end while it was at work, and did so by itself; its work \
    may be half done. Inspect the state before you repeat it.)";

/// Line that a model reads after the output of a command that left processes.
const LEFT_BEHIND: &str = "(background processes were left; those of the command's own process group \
    have been ended)";

/// Returns what the sandbox refused, or may have refused, a command; `None` if it did not, or if the command did its
/// work.
fn refused(
    ended: &ToolOutput,
    is_apart: bool,
    context: &ToolContext,
    hosts: &RefusedHosts,
) -> Option<String> {
    let has_failed = match ended.ending {
        Ending::Exited(code) => code != 0,
        // A program that is refused often tries again until its time is over.
        Ending::TimedOut(_) => true,
        Ending::Done | Ending::Failed | Ending::Denied | Ending::Refused | Ending::Cancelled(_) => {
            false
        }
    };
    let policy = context.sandbox.policy().filter(|_| has_failed)?;
    let stderr = if is_apart { &ended.errors } else { &ended.text };
    refusal::told(&hosts.noted(), stderr, policy, Binding::of(&policy.limits))
}

/// Returns the line that tells a model what the sandbox refused a command.
///
/// A model that does not know this tries the same in other ways, or reports a broken machine.
fn of_sandbox(refused: &str) -> String {
    format!(
        "({refused}; the command ran in a sandbox, and only a person can allow more, in agents.toml: work without it, \
         or say what you need.)"
    )
}

/// Adds to an output the words that a model needs in order to understand it.
fn for_model(
    ended: ToolOutput,
    timeout: Duration,
    policy: Option<&Policy>,
    refused: Option<String>,
) -> ToolOutput {
    let mut text = ended.text;
    // A killed command has an unknown outcome: its caller says so, and this output is exactly what
    // the command printed.
    if ended.ending == Ending::Cancelled(None) {
        return ToolOutput { text, ..ended };
    }
    if text.is_empty() {
        text.push_str("(no output)");
    }
    if ended.left_behind {
        text = with_line(text, LEFT_BEHIND);
    }
    if let Ending::Exited(code) = ended.ending
        && let Some(limit) = policy.and_then(|_| limit_passed(code))
    {
        text = with_line(text, &format!("({limit}; only a person can change that)"));
    }
    if let Some(refused) = refused {
        text = with_line(text, &of_sandbox(&refused));
    }
    if let Ending::TimedOut(_) = ended.ending {
        text.insert_str(0, &format!("Error: Timeout ({}s)\n", timeout.as_secs_f64()));
    }
    if let Ending::Exited(code @ 1..)
    | Ending::TimedOut(Some(code))
    | Ending::Cancelled(Some(code)) = ended.ending
    {
        text = with_line(text, &format!("exit code {code}"));
    }
    if let Ending::Cancelled(_) = ended.ending {
        text = with_line(text, TOLD_TO_END);
    }
    ToolOutput { text, ..ended }
}

/// Appends a line, after a line break where the text has none at its end.
fn with_line(mut text: String, line: &str) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text + line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_told_what_the_sandbox_refused() {
        let ended = ToolOutput { ending: Ending::Exited(1), ..ToolOutput::ok("x") };
        let refused = Some("the sandbox refused a.b:443: why".to_owned());
        let text = for_model(ended, Duration::MAX, Some(&Policy::default()), refused).text;
        let told = "x\n(the sandbox refused a.b:443: why; the command ran in a sandbox, and only a person can allow more, in \
                    agents.toml: work without it, or say what you need.)\nexit code 1";
        assert_eq!(text, told);
    }

    #[test]
    fn a_model_is_told_which_limit_ended_a_command() {
        for (code, told) in [(152, "`cpu_time`"), (153, "`file_size`")] {
            let ended = ToolOutput { ending: Ending::Exited(code), ..ToolOutput::ok("x") };
            let text = for_model(ended.clone(), Duration::MAX, Some(&Policy::default()), None).text;
            assert!(
                text.contains(told) && text.ends_with(&format!("\nexit code {code}")),
                "{text}"
            );
            let text = for_model(ended, Duration::MAX, None, None).text;
            assert_eq!(text, format!("x\nexit code {code}"), "it is no limit of the sandbox");
        }
    }

    #[test]
    fn a_model_is_told_how_a_command_ended() {
        use Ending::{Cancelled, Exited, TimedOut};
        let told = format!("x\nexit code 0\n{TOLD_TO_END}");
        for (ending, left_behind, printed, text) in [
            (Exited(0), false, "x\n", "x\n"),
            (Exited(0), false, "", "(no output)"),
            (Exited(0), true, "x", &format!("x\n{LEFT_BEHIND}")),
            (Exited(3), false, "x", "x\nexit code 3"),
            (Exited(137), false, "", "(no output)\nexit code 137"),
            (TimedOut(None), false, "x\n", "Error: Timeout (1.5s)\nx\n"),
            (TimedOut(Some(143)), false, "x", "Error: Timeout (1.5s)\nx\nexit code 143"),
            (Cancelled(Some(0)), false, "x", &told),
            (Cancelled(None), false, "", ""),
        ] {
            let ended = ToolOutput { ending, left_behind, ..ToolOutput::ok(printed) };
            let shown = for_model(ended, Duration::from_millis(1_500), None, None);
            assert_eq!((shown.text.as_str(), shown.ending), (text, ending));
        }
    }
}
