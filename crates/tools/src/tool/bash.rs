//! The tool `bash`, and the function that runs the command of a command task.
//!
//! Owns the arguments of a call and its limits. Processes are not confined to the workspace: only
//! permissions restrict them.

mod grammar;
mod located;
mod parts;
mod reads;
pub(super) mod runs;
mod suspects;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use self::grammar::Reading;
pub use self::grammar::network::{NetworkNeed, network_needs, network_needs_of, redirects};
pub use self::grammar::verdict;
pub use self::located::locate;
use self::runs::Runs;
use self::suspects::Suspects;
use super::basis::Script;
use super::command::{Order, Reader};
use super::process::Errors;
use super::workspace::Workspace;
use super::wrapper;
use super::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec, arguments};
use crate::id::Name;
use crate::message::Json;
use crate::permission::{Deed, Subject};
use crate::spec::Capture;
use crate::tool::BoxFuture;
use crate::turn::{Command, Effect};

/// Name of the tool whose rules are about the files that a redirection writes.
const WRITE_FILE: &str = "write_file";

/// Name of the shell tool.
pub const NAME: &str = "bash";

/// Returns the shell tool.
#[must_use]
pub fn tools() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(Bash { spec: spec() })]
}

/// Runs `sh -c command` in the workspace root for at most the context's time, in a wrapper process
/// where the context has one.
///
/// The text is exactly what the command printed on stdout, or a preview of it; stderr is kept beside it, unless the
/// command's `capture` mixes both in the order of arrival. An exit code other than 0, a timeout and a cancellation are
/// outputs for which [`ToolOutput::is_error`] is true. The exit code is 128 + n if signal n ended the command, and
/// absent if it had to be killed. However the command ends, no process of its group is left, even
/// if the future is dropped.
///
/// # Errors
/// Returns an error if the command could not be started, if its output could not be stored, or if a
/// wrapper ended and left no result.
pub async fn run_command(command: &str, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    run_task(&Command { run: command.to_owned(), ..Command::default() }, context).await
}

/// Does the same with the command of a task: it has a standard input of its own, and a folder in which
/// it runs. The environment is that of the context.
///
/// # Errors
/// Returns an error in the same cases, and if the folder is not one of the workspace.
pub async fn run_task(command: &Command, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let mut order = Order::shell(command.run.clone(), context.timeout, Reader::Tasks);
    order.program.errors = match command.capture {
        Capture::Stdout => Errors::Apart,
        Capture::Both => Errors::Joined,
    };
    order.program.input = command.stdin.as_ref().map(|stdin| stdin.beginning().to_owned());
    if let Some(cwd) = &command.cwd {
        order.program.folder = folder(cwd, context)?;
    }
    wrapper::perform(order, context).await
}

/// Returns the real path of a folder of the workspace.
fn folder(text: &str, context: &ToolContext) -> Result<PathBuf, ToolError> {
    let place = context.workspace.place(text)?;
    let wrong = |why: String| ToolError::Failed(format!("`cwd`: {why}"));
    match place.metadata() {
        Ok(found) if found.is_dir() => place.real_path(),
        Ok(_) => Err(wrong(format!("`{text}` is not a folder"))),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: Name::new(NAME).expect("a valid name"),
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
                    "description": "The longest it may take, in seconds: 120 if absent. The time limit of the task holds too."
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
    fn timeout(&self, usual: Duration, longest: Duration) -> Result<Duration, ToolError> {
        let Some(seconds) = self.timeout_s else { return Ok(usual.min(longest)) };
        match Duration::try_from_secs_f64(seconds) {
            Ok(timeout) if !timeout.is_zero() => Ok(timeout.min(longest)),
            _ => Err(ToolError::Arguments(format!("`timeout_s` cannot be {seconds}"))),
        }
    }
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Has no limit of its own: it gives the processes of a call their grace period.
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    /// Announces itself, because the announcement names the process group.
    fn announces_itself(&self) -> bool {
        true
    }

    fn permission_arguments(&self, input: &Json, _workspace: &Workspace) -> Vec<String> {
        let input = input.to_value();
        let Some(command) = input["command"].as_str() else { return Vec::new() };
        match grammar::read(command) {
            Reading { unclear: None, commands, .. } => {
                let whole = command.trim().to_owned();
                let parts = commands.into_iter().filter(|part| *part != whole);
                std::iter::once(whole.clone()).chain(parts).collect()
            }
            Reading { unclear: Some(_), .. } => parts::parts(command),
        }
    }

    /// Each command of the line needs a rule, and each file that a redirection writes needs one for
    /// writing there.
    fn subject(&self, input: &Json, workspace: &Workspace) -> Subject {
        let input = input.to_value();
        let Some(command) = input["command"].as_str() else { return Subject::default() };
        let Reading { commands, writes, unclear, cautions } = grammar::read(command);
        // One command may also be allowed as it is written, with its quotes.
        let is_one = commands.len() == 1 && writes.is_empty() && unclear.is_none();
        let spelling = is_one.then(|| command.trim().to_owned());
        let run = commands.into_iter().map(|text| Deed {
            tool: NAME.to_owned(),
            program: text.split(' ').next().map(str::to_owned),
            texts: vec![text],
            spellings: spelling.clone().into_iter().collect(),
            ..Deed::default()
        });
        let mut run: Vec<Deed> = run.collect();
        for caution in cautions {
            let Some(deed) = run.get_mut(caution.command) else { continue };
            deed.cautions.push(caution.word);
            deed.reason.get_or_insert(caution.reason);
        }
        let written = writes.iter().map(|file| Deed {
            tool: WRITE_FILE.to_owned(),
            texts: workspace.rule_arguments(file),
            ..Deed::default()
        });
        let Suspects { texts: suspects, unread, .. } = suspects::suspects(command);
        Subject {
            suspects: parts::parts(command).into_iter().chain(suspects).collect(),
            deeds: run.into_iter().chain(written).collect(),
            unread,
            unclear,
            whole: Some(command.trim().to_owned()),
            sandboxed: false,
        }
    }

    fn scripts(&self, input: &Json, workspace: &Workspace) -> Vec<Script> {
        let asked = arguments::<BashArguments>(input);
        asked.map(|asked| Runs::of_line(&asked.command).find(workspace)).unwrap_or_default()
    }

    fn unbound(&self, input: &Json, workspace: &Workspace) -> Vec<String> {
        let asked = arguments::<BashArguments>(input);
        asked.map(|asked| Runs::of_line(&asked.command).unbound(workspace)).unwrap_or_default()
    }

    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let asked: BashArguments = arguments(&input)?;
            if let Some(denial) = context.sandbox.denial() {
                return Ok(ToolOutput::denied(denial));
            }
            let timeout = asked.timeout(context.timeout, context.longest)?;
            let context = runs::guarded(context, Runs::of_line(&asked.command));
            let order = Order::shell(asked.command, timeout, Reader::Model);
            wrapper::perform(order, &context).await
        })
    }
}

/// Returns the programs that a command line runs, as far as its text tells.
#[must_use]
pub fn programs(command: &str) -> Vec<String> {
    let commands = grammar::read(command).commands;
    let first = |command: String| command.split(' ').next().map(str::to_owned);
    commands.into_iter().filter_map(first).collect()
}

/// Returns true if it is known what a program can run and write by its arguments, so that a rule for
/// it with any arguments stands for the others only.
#[must_use]
pub fn is_known(program: &str) -> bool {
    grammar::is_known(program.rsplit('/').next().unwrap_or_default())
}

#[cfg(test)]
mod tests;
