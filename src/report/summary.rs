//! The summary of a run that has ended, for people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::{short, status_word};
use crate::id::Name;
use crate::journal::log_line::{self, output_lines};
use crate::plan::TaskState;
use crate::printable;
use crate::run_state::{RunState, TaskStatus};
use crate::turn::Shortfalls;

/// The most characters of a task's result or failure in a summary: the rest of a line in a wide
/// terminal.
const NOTE: usize = 100;

/// The most failed tasks whose output a summary shows; `show` gives the others.
const OUTPUTS: usize = 5;

/// The most characters of a tool's name: a model may have written it.
const TOOL_NAME: usize = 64;

/// The most tasks that are listed as having left something undone.
const LISTED: usize = 8;

/// Returns the summary of a run that has ended, for people: every task with its state and its
/// result.
#[must_use]
pub fn summary(state: &RunState) -> String {
    let mut text = String::new();
    let Some(completed) = state.completed() else { return text };
    let widest = state.tasks().map(|(name, _)| name.as_str().len()).max().unwrap_or(0);
    let mut shown = 0;
    for (name, task) in state.tasks() {
        let took = task.started_ms.map(|_| seconds(task.whole.taken(state.reading())));
        let (name, word) = (name.as_str(), task.state.as_str());
        let line = format!(
            "{name:widest$}  {word:9}  {:>8}  {}",
            took.unwrap_or_default(),
            note(task).unwrap_or_default()
        );
        text.push_str(line.trim_end());
        text.push('\n');
        let failure = task.failure.as_ref().filter(|_| task.state == TaskState::Failed);
        if let Some(lines) = failure.and_then(output_lines).filter(|_| shown < OUTPUTS) {
            text.push_str(&lines);
            text.push('\n');
            shown += 1;
        }
    }
    let began = state.tasks().any(|(_, task)| task.started_ms.is_some());
    let took = began.then(|| format!(" after {}", seconds(state.spent())));
    let children = match state.agents().values().filter(|agent| agent.parent.is_some()).count() {
        0 => String::new(),
        1 => "1 child agent, ".to_owned(),
        many => format!("{many} child agents, "),
    };
    let cost = completed.cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\nrun {}{}: {children}{} tokens in, {} out{cost}",
        status_word(completed.status),
        took.unwrap_or_default(),
        short(completed.usage.context()),
        short(completed.usage.output),
    );
    if let Some(undone) = undone(&completed.shortfalls) {
        let _ = writeln!(text, "left undone:  {undone}");
        let tasks: Vec<_> = state.tasks_that_fell_short().into_iter().take(LISTED).collect();
        let tasks: Vec<_> = tasks.into_iter().map(Name::as_str).collect();
        let _ = writeln!(text, "by task:      {}", tasks.join(", "));
    }
    text
}

/// Returns what was left undone, in words; `None` if nothing was.
#[must_use]
pub fn undone(shortfalls: &Shortfalls) -> Option<String> {
    let counted = |counts: &BTreeMap<String, u32>, one: &str, what: &str| {
        let count: u32 = counts.values().sum();
        let tools: Vec<_> = counts.keys().map(|tool| log_line::cut(tool, TOOL_NAME)).collect();
        let noun = if count == 1 { one.to_owned() } else { format!("{one}s") };
        (count > 0).then(|| format!("{count} {noun} {what}: {}", tools.join(", ")))
    };
    let Shortfalls { denied, unknown, cut, failed_children, children } = shortfalls;
    let failed =
        (*failed_children > 0).then(|| format!("{failed_children} of {children} children failed"));
    let parts = [
        counted(denied, "call", "denied"),
        counted(unknown, "call", "of unknown outcome"),
        counted(cut, "result", "cut"),
        failed,
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Returns a task's result in one line: the last line of its output, or the reason why there is
/// none.
fn note(task: &TaskStatus) -> Option<String> {
    let note = match task.state {
        TaskState::Completed | TaskState::Reused => {
            let text = &task.output.as_ref()?.text;
            text.lines().rev().find(|line| !line.trim().is_empty())?.to_owned()
        }
        TaskState::Failed => task.failure.as_ref()?.to_string(),
        TaskState::Skipped | TaskState::Cancelled => task.reason.clone()?,
        TaskState::Pending | TaskState::Ready | TaskState::Running | TaskState::Waiting => {
            task.failure.as_ref()?.to_string()
        }
    };
    let line = note.lines().find(|line| !line.trim().is_empty())?;
    let end = line.char_indices().nth(NOTE).map_or(line.len(), |(end, _)| end);
    Some(printable::line(&line[..end]).into_owned())
}
