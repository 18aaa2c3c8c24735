//! What the command of a task was given: its shell, its folder and its environment.
//!
//! From the records of the run alone: the file may say something else by now, and so may the environment of whoever
//! asks. Values are as they were recorded, without secrets.

use serde_json::{Value, json};

use crate::event::{Event, SharedRecord};
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::source::RecordedRun;
use crate::printable;
use crate::run_state::{RunState, TaskStatus};
use crate::turn::{Command, Program, SHELL};

/// The most characters of a value that are shown to a person; `--json` has all.
const SHOWN: usize = 200;

/// Returns the command of the newest attempt of a task; `None` if it has none that was recorded.
pub(super) fn of(run: &RecordedRun, state: &RunState, task: &TaskStatus) -> Option<Command> {
    let agent = task.agent.as_ref()?;
    // Commands have no definition. Of others nothing is read.
    state.agents().get(agent).filter(|agent| agent.definition.is_none())?;
    let records = run.agent_records(agent).ok()?;
    records.iter().rev().find_map(|record| match &record.event {
        Event::AgentSpawned(spawned) => match &spawned.program {
            Program::Command(command) => Some(command.clone()),
            Program::Model { .. } => None,
        },
        _ => None,
    })
}

/// Returns the records of an agent that runs one command; `None` for any other agent.
pub(super) fn records(
    run: &RecordedRun,
    agent: &AgentId,
) -> Result<Option<Vec<SharedRecord>>, JournalError> {
    let records = run.agent_records(agent)?;
    let is_command = records.iter().any(|record| match &record.event {
        Event::AgentSpawned(spawned) => matches!(spawned.program, Program::Command(_)),
        _ => false,
    });
    Ok(is_command.then_some(records))
}

/// Returns it as JSON: the words before the command line, the folder relative to the workspace (`.` for itself), the
/// variables of the task with their values, and the names of those that every command of the run gets.
pub(super) fn json(state: &RunState, command: &Command) -> Value {
    json!({
        "run": command.run,
        "shell": SHELL,
        "cwd": command.cwd.as_deref().unwrap_or("."),
        "env": command.env,
        "env_of_all": state.variables_of_commands(),
    })
}

/// Returns it in lines for a person.
pub(super) fn text(state: &RunState, command: &Command) -> String {
    let root = state.created().and_then(|created| created.file.parent());
    let folder = root.map(|root| root.join(command.cwd.as_deref().unwrap_or_default()));
    let mut text = format!("shell: {}\n", SHELL.join(" "));
    if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) {
        // An empty path that is joined ends the path with a slash.
        let shown = folder.components().collect::<std::path::PathBuf>();
        text.push_str(&format!("folder: {}\n", printable::line(&shown.to_string_lossy())));
    }
    if !command.env.is_empty() {
        text.push_str("variables of the task:\n");
    }
    for (name, value) in &command.env {
        text.push_str(&format!("  {}={}\n", printable::line(name), cut(value)));
    }
    let all = state.variables_of_commands();
    if !all.is_empty() {
        text.push_str(&format!("variables of all commands: {}\n", printable::line(&all.join(" "))));
    }
    text
}

/// Returns the beginning of a value in one line.
fn cut(value: &str) -> String {
    let left = value.chars().skip(SHOWN).count();
    let begin: String = value.chars().take(SHOWN).collect();
    let more = if left > 0 { format!(" [{left} characters more]") } else { String::new() };
    format!("{}{more}", printable::line(&begin))
}
