//! Runs a command: a command line, or a program with its arguments.
//!
//! Owns the words that a model reads with the output of a command. Other tasks receive the output
//! and nothing else.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::process::{self, Errors, ProcessGroup, Program};
use super::sandbox::Policy;
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
    let timeout = program.timeout;
    let ended = process::run(program, place, context).await?;
    Ok(match reader {
        Reader::Model => for_model(ended, timeout, context.sandbox.policy()),
        Reader::Tasks => for_a_person(ended, context.sandbox.policy()),
    })
}

/// Line that a model reads after the output of a command that was cancelled and ended in time.
const TOLD_TO_END: &str = "(it was told to end while it was at work, and did so by itself; its work \
    may be half done. Inspect the state before you repeat it.)";

/// Line that a model reads after the output of a command that left processes.
const LEFT_BEHIND: &str = "(background processes were left; those of the command's own process group \
    have been ended)";

/// What programs print, in lower case, when the kernel refuses them a file.
const REFUSED_FILE: [&str; 3] =
    ["permission denied", "operation not permitted", "read-only file system"];

/// What programs print, in lower case, when they find no network.
const NO_NETWORK: [&str; 9] = [
    "not in `network` of the sandbox",
    "network is unreachable",
    "could not resolve",
    "name resolution",
    "name or service not known",
    "no address associated",
    "enotfound",
    "eai_again",
    "dns error",
];

/// What the sandbox may have refused a command, as its output looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Network,
    File,
}

/// Returns what the sandbox may have refused a command that printed this; `None` if it does not look like it.
fn refused(text: &str, policy: &Policy) -> Option<Refused> {
    let text = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if !policy.network && (says(&NO_NETWORK) || text.contains("socket")) {
        return Some(Refused::Network);
    }
    says(&REFUSED_FILE).then_some(Refused::File)
}

/// Returns the line that tells a model that the sandbox may have refused what a command tried; `None`
/// if its output does not look like it.
///
/// A model that does not know this tries the same in other ways, or reports a broken machine.
fn of_sandbox(text: &str, policy: &Policy) -> Option<String> {
    refused(text, policy)?;
    let files = match policy.write.is_empty() {
        true => "it can write only temporary files",
        false => "it can write only the workspace without its protected files, and temporary files",
    };
    let network = match (policy.network, policy.hosts.as_slice()) {
        (true, _) => String::new(),
        (false, []) => ", and it has no network".to_owned(),
        (false, hosts) => format!(
            ", and it reaches only {}, through the proxy of `HTTPS_PROXY`",
            hosts.join(", ")
        ),
    };
    Some(format!(
        "(the command ran in a sandbox: {files}, it reads no private files of the user{network}. Only \
         a person can allow more, in `[sandbox]` of agents.toml: work without it, or say what you \
         need.)"
    ))
}

/// Returns what the sandbox may have refused a command that failed, for the person who can allow it.
fn refused_by_sandbox(text: &str, policy: &Policy) -> Option<String> {
    let why = match refused(text, policy)? {
        Refused::Network => {
            let now = match policy.hosts.as_slice() {
                [] => "commands have no network".to_owned(),
                hosts => format!("commands reach only {}", hosts.join(", ")),
            };
            format!("{now}, and `[sandbox] network = [\"HOST:PORT\"]` allows a host")
        }
        Refused::File => {
            let now = match policy.write.is_empty() {
                true => "temporary files",
                false => "the workspace, without its protected files, and temporary files",
            };
            format!(
                "commands write only {now}, and read no private files of yours; `writable_roots` and \
                 `readable_roots` of `[sandbox]` allow more"
            )
        }
    };
    Some(format!("the sandbox may be the cause: {why}"))
}

/// Adds to the output of a task's command that failed what a person needs to know.
fn for_a_person(ended: ToolOutput, policy: Option<&Policy>) -> ToolOutput {
    let has_failed = matches!(ended.ending, Ending::Exited(code) if code != 0);
    let said = if ended.last_lines.is_empty() { &ended.text } else { &ended.last_lines };
    let sandbox = policy.filter(|_| has_failed).and_then(|policy| refused_by_sandbox(said, policy));
    ToolOutput { sandbox, ..ended }
}

/// Adds to an output the words that a model needs in order to understand it.
fn for_model(ended: ToolOutput, timeout: Duration, policy: Option<&Policy>) -> ToolOutput {
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
    if ended.ending != Ending::Exited(0)
        && let Some(line) = policy.and_then(|policy| of_sandbox(&text, policy))
    {
        text = with_line(text, &line);
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
    fn a_model_is_told_that_the_sandbox_refused() {
        let closed = Policy { write: vec!["/w".into()], ..Policy::default() };
        let open = Policy { network: true, ..Policy::default() };
        let some = Policy { hosts: vec!["a:1".into(), "b:2".into()], ..closed.clone() };
        for (printed, code, policy, told) in [
            ("touch: /etc/x: Read-only file system", 1, &closed, Some("the workspace")),
            ("cat: /root/.ssh/id: Permission denied", 1, &open, Some("only temporary files, it")),
            ("curl: (6) Could not resolve host: x", 6, &closed, Some("has no network")),
            ("curl: (6) Could not resolve host: x", 6, &open, None),
            ("curl: (6) Could not resolve host: x", 6, &some, Some("reaches only a:1, b:2")),
            ("fatal: 403 Not in `network` of the sandbox", 1, &some, Some("a:1, b:2")),
            ("test failed", 1, &closed, None),
            ("Permission denied, but it went on", 0, &closed, None),
        ] {
            let ended = ToolOutput { ending: Ending::Exited(code), ..ToolOutput::ok(printed) };
            let text = for_model(ended, Duration::MAX, Some(policy)).text;
            let is_told = |told: &str| text.contains("in a sandbox") && text.contains(told);
            assert_eq!(told.map_or(text.contains("sandbox"), is_told), told.is_some(), "{text}");
        }
    }

    #[test]
    fn a_person_reads_which_key_would_allow_it() {
        let closed = Policy { write: vec!["/w".into()], ..Policy::default() };
        let open = Policy { network: true, ..Policy::default() };
        let some = Policy { hosts: vec!["a:1".into(), "b:2".into()], ..closed.clone() };
        for (printed, code, policy, named) in [
            ("curl: (6) Could not resolve host: x", 6, &closed, Some("have no network")),
            ("npm error code EAI_AGAIN", 1, &some, Some("reach only a:1, b:2")),
            ("curl: (6) Could not resolve host: x", 6, &open, None),
            ("touch: /etc/x: Read-only file system", 1, &closed, Some("`writable_roots`")),
            ("cat: /root/.ssh/id: Permission denied", 1, &open, Some("only temporary files")),
            ("2 tests failed", 1, &closed, None),
            ("could not resolve, but it went on", 0, &closed, None),
        ] {
            let ended = ToolOutput { ending: Ending::Exited(code), ..ToolOutput::ok("the output") };
            let ended = ToolOutput { last_lines: printed.to_owned(), ..ended };
            let hint = for_a_person(ended, Some(policy)).sandbox;
            assert_eq!(hint.is_some(), named.is_some(), "{printed}");
            assert!(named.is_none_or(|named| hint.is_some_and(|hint| hint.contains(named))));
        }
    }

    #[test]
    fn a_model_is_told_which_limit_ended_a_command() {
        for (code, told) in [(152, "`cpu_time`"), (153, "`file_size`")] {
            let ended = ToolOutput { ending: Ending::Exited(code), ..ToolOutput::ok("x") };
            let text = for_model(ended.clone(), Duration::MAX, Some(&Policy::default())).text;
            assert!(
                text.contains(told) && text.ends_with(&format!("\nexit code {code}")),
                "{text}"
            );
            let text = for_model(ended, Duration::MAX, None).text;
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
            let shown = for_model(ended, Duration::from_millis(1_500), None);
            assert_eq!((shown.text.as_str(), shown.ending), (text, ending));
        }
    }
}
