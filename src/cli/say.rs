//! `say`: sends a message to an agent, with or without a process that drives its run.

use std::io::{self, Read};

use super::locate::{Project, Selector};
use super::{args, complain, refusal, runtime};
use crate::client::{Client, ClientError, Given};
use crate::exit::Exit;
use crate::id::AgentId;
use crate::journal::source::RecordedRun;
use crate::messages::MESSAGE_BYTES;
use crate::plan::TaskState;
use crate::run::control;
use crate::run_machine::messages::{self, Said};
use crate::run_state::AgentStatus;
use crate::show::question::safe;

/// The text that stands for that of stdin.
const STDIN: &str = "-";

pub(super) fn run(project: &Project, verb: &args::Say) -> Exit {
    let (run, part) = match project.part(Some(&verb.what)) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let Selector::Agent(agent) = part else {
        complain("error: a message goes to an agent: RUN/@AGENT. `callsheet ps --tree` names them");
        return Exit::Usage;
    };
    let text = match text(&verb.text) {
        Ok(text) => text,
        Err(problem) => {
            complain(&format!("error: {problem}"));
            return Exit::Usage;
        }
    };
    let agent = AgentId::from_text(&agent);
    if let Err(exit) = is_there(project, &run, &agent) {
        return exit;
    }
    let said = Said { agent, text, now: verb.now };
    let unique = uuid::Uuid::now_v7().simple().to_string();
    let answer = messages::say(&said, &unique, control::this_process());
    match runtime().map(|runtime| runtime.block_on(Client::of(run.clone()).answer(answer))) {
        Ok(Ok(given)) => outcome(project, &run, &said, given),
        Ok(Err(ClientError::Journal(error))) => {
            refusal::refused(&project.flags(), Some(&run), &error)
        }
        Ok(Err(error)) => {
            complain(&format!("error: {error}"));
            Exit::Failed
        }
        Err(exit) => exit,
    }
}

/// Returns the text of a message: the words of the command line, or what stdin holds.
fn text(words: &[String]) -> Result<String, String> {
    let text = match words {
        [only] if only == STDIN => {
            let mut text = Vec::new();
            // One byte more than fits says that it is too long.
            let most = MESSAGE_BYTES as u64 + 1;
            let read = io::stdin().take(most).read_to_end(&mut text);
            read.map_err(|error| format!("stdin cannot be read: {error}"))?;
            match text.len() > MESSAGE_BYTES {
                true => " x".repeat(MESSAGE_BYTES),
                false => {
                    String::from_utf8(text).map_err(|_| "stdin is not UTF-8 text".to_owned())?
                }
            }
        }
        words => words.join(" "),
    };
    match text.trim() {
        "" => Err("the text is blank".to_owned()),
        _ if text.len() > MESSAGE_BYTES => Err(format!(
            "the text has more than {} KiB: write it to a file and name that",
            MESSAGE_BYTES >> 10
        )),
        text => Ok(text.to_owned()),
    }
}

/// Refuses a recipient that will read nothing. A process that drives the run decides again.
fn is_there(project: &Project, run: &RecordedRun, agent: &AgentId) -> Result<(), Exit> {
    let state = project.state(run)?;
    let problem = match state.agents().get(agent) {
        None => {
            let reads = |it: &AgentStatus| it.outcome.is_none() && it.definition.is_some();
            let open = state.agents().iter().filter(|(_, it)| reads(it));
            let names: Vec<_> = open.map(|(id, _)| format!("@{id}")).take(20).collect();
            let known = match names.is_empty() {
                true => "none of its agents is running".to_owned(),
                false => format!("running: {}", names.join(", ")),
            };
            format!("the run has no agent `{agent}`; {known}")
        }
        Some(status) if status.definition.is_none() => {
            format!("`{agent}` is a command, which reads no messages")
        }
        Some(status) => {
            let task = state.task(&status.task);
            let is_latest = task.is_some_and(|task| {
                task.state == TaskState::Running && task.agent.as_ref() == Some(agent)
            });
            if status.outcome.is_none() || is_latest {
                return Ok(());
            }
            format!("not sent: @{agent} has ended")
        }
    };
    complain(&format!("error: {}", safe(&problem)));
    Err(Exit::Failed)
}

/// Says what became of a message.
fn outcome(project: &Project, run: &RecordedRun, said: &Said, given: Given) -> Exit {
    let to = format!("@{}", said.agent);
    let to = safe(&to);
    match given {
        Given::Queued(queued) => match &queued.returned {
            Some(reason) => {
                complain(&format!("error: {} was returned: {}", queued.id, safe(reason)));
                Exit::Failed
            }
            None => {
                let before = match queued.before {
                    0 => String::new(),
                    count => format!(" ({count} before it)"),
                };
                complain(&format!(
                    "{} is queued for {to} of run {}{before}: it reads it before its next step",
                    queued.id,
                    project.short(run)
                ));
                Exit::Done
            }
        },
        Given::Left => {
            complain(&format!(
                "recorded for {to}; no process drives the run, which takes it up when it is resumed:"
            ));
            complain(&format!("  {}", project.resume_command(&project.short(run))));
            Exit::Done
        }
        Given::NotSent(reason) => {
            complain(&format!("error: not sent: {}", safe(&reason)));
            Exit::Failed
        }
        Given::Counted | Given::Late { .. } | Given::Over { .. } | Given::Closed => {
            complain(&format!("error: not sent: the run of {to} has ended"));
            Exit::Failed
        }
    }
}
