//! The summary of a run that has ended, for people.

use std::fmt::Write;
use std::time::Duration;

use super::evidence::{Evidence, TaskEvidence};
use super::fold::{self, Group};
use super::folded_rows::rank;
use super::for_others;
use super::inclusive::{Inclusive, of_fan_outs};
use super::{short, status_word};
use crate::id::Name;
use crate::plan::TaskState;
use crate::printable;
use crate::run_state::notices::GivenUp;
use crate::run_state::{RunState, TaskStatus};
use crate::show::log_line::{self, in_one_line, marked, output_lines};
use crate::show::names::Names;
use crate::show::undone;
use crate::spec::notices::Channel;
use crate::spec::sandbox::SandboxProof;

/// The most characters of a task's result in a summary: the rest of a line in a wide terminal. Why a task failed
/// is never cut.
const NOTE: usize = 100;

/// The most tasks that failed or were cancelled whose output a summary shows; `show` gives the others.
const OUTPUTS: usize = 5;

/// The most tasks that are listed as having left something undone.
const LISTED: usize = 8;

/// Returns the summary of a run that has ended, for people: every task with its state, its result
/// and the evidence for it. In a run of many tasks, those that are alike share a line, and failures
/// come first.
#[must_use]
pub fn summary(state: &RunState, evidence: &Evidence) -> String {
    let Some(completed) = state.completed() else { return String::new() };
    let names = Names::of(state);
    let mut text = tasks(state, &names, evidence);
    let began = state.tasks().any(|(_, task)| task.started_ms.is_some());
    let took = began.then(|| format!(" after {}", seconds(state.spent())));
    let children = match state.agents().values().filter(|agent| agent.is_delegated()).count() {
        0 => String::new(),
        1 => "1 child agent, ".to_owned(),
        many => format!("{many} child agents, "),
    };
    let cost = completed.cost_usd.filter(|cost| *cost > 0.0);
    let cost = cost.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\nrun {}{}: {children}{} tokens in, {} out{cost}",
        status_word(completed.status),
        took.unwrap_or_default(),
        short(completed.usage.context()),
        short(completed.usage.output),
    );
    if let Some(none) = state.sandbox().and_then(SandboxProof::warning) {
        let _ = writeln!(text, "{}", printable::line(&none));
    }
    for (hook, reason) in state.failed_hooks() {
        let reason = in_one_line(&reason);
        let _ = writeln!(text, "hook failed:  {hook}: {reason}");
    }
    text.push_str(&untold(state));
    text.push_str(&for_others::lines(evidence.for_others(), evidence.is_for_others_incomplete()));
    if let Some(undone) = undone(&completed.shortfalls) {
        let _ = writeln!(text, "left undone:  {undone}");
        let tasks: Vec<_> = state.tasks_that_fell_short().into_iter().take(LISTED).collect();
        let tasks: Vec<_> = tasks.into_iter().map(|task| names.shown(task.as_str())).collect();
        let _ = writeln!(text, "by task:      {}", tasks.join(", "));
    }
    text
}

/// Returns the lines of the notices that were not delivered, one for each channel.
#[must_use]
pub fn untold(state: &RunState) -> String {
    let undelivered = state.notices().undelivered();
    undelivered.iter().map(|of| format!("not sent:     {}\n", untold_by(of))).collect()
}

/// Returns what was not delivered in one line; `None` if all was.
#[must_use]
pub fn untold_in_short(state: &RunState) -> Option<String> {
    let undelivered = state.notices().undelivered();
    let all: Vec<_> = undelivered.iter().map(untold_by).collect();
    (!all.is_empty()).then(|| format!("not sent: {}", all.join("; ")))
}

fn untold_by((channel, given_up): (&Channel, &GivenUp)) -> String {
    let (count, error) = (given_up.count, printable::line(&given_up.error));
    let noun = if count == 1 { "notice" } else { "notices" };
    format!("{count} {noun} by {channel}: {error}")
}

/// Returns the lines of the tasks.
fn tasks(state: &RunState, names: &Names, evidence: &Evidence) -> String {
    let mut tasks: Vec<_> = state.tasks().collect();
    if tasks.len() > fold::UNFOLDED {
        tasks.sort_by_key(|(_, task)| rank(task.state.as_str()));
    }
    let keys: Vec<_> = tasks
        .iter()
        .map(|(name, task)| {
            (name.as_str(), (task.state.as_str(), task.failure.as_ref().map(|f| f.kind)))
        })
        .collect();
    let fan_outs = of_fan_outs(state);
    let used = |name: &Name| fan_outs.get(name.as_str()).and_then(Inclusive::words);
    let mut groups = fold::fold(&keys);
    // One that stands alone has the name that people know.
    for group in groups.iter_mut().filter(|group| group.members.len() == 1) {
        group.label = names.shown(&group.label).into_owned();
    }
    let widest = groups.iter().map(|group| group.label.chars().count()).max().unwrap_or(0);
    let (mut text, mut shown) = (String::new(), 0);
    for Group { label, members } in &groups {
        let (name, task) = tasks[members[0]];
        let label = printable::padded(label, widest);
        let word = task.state.as_str();
        if members.len() > 1 {
            let same = fold::same(members.iter().map(|at| tasks[*at].1.state));
            let word = if same.is_some() { word } else { "mixed" };
            let failure = task.failure.as_ref().filter(|_| task.state == TaskState::Failed);
            let note = failure.and_then(|_| note(task, None)).unwrap_or_default();
            let many = format!("{} tasks", fold::count(members.len()));
            push_line(&mut text, &format!("{label}  {word:9}  {many:>8}  {note}"));
            continue;
        }
        let took = task.started_ms.map(|_| seconds(task.whole.taken(state.reading())));
        let (took, note) = (took.unwrap_or_default(), note(task, used(name)).unwrap_or_default());
        push_line(&mut text, &format!("{label}  {word:9}  {took:>8}  {note}"));
        let failure = task.failure.as_ref().filter(|_| task.state == TaskState::Failed);
        let cut_short = || evidence.last_lines(name).filter(|_| task.state == TaskState::Cancelled);
        let lines = failure.and_then(output_lines).or_else(|| cut_short().map(marked));
        if let Some(lines) = lines.filter(|_| shown < OUTPUTS) {
            push_line(&mut text, &lines);
            shown += 1;
        }
        if let Some(brief) = evidence.of(name).and_then(TaskEvidence::brief) {
            push_line(&mut text, &format!("    {brief}"));
        }
    }
    // The lines of groups tell nothing of their warnings.
    let folded = groups.iter().filter(|group| group.members.len() > 1);
    let warned = folded.flat_map(|group| &group.members).filter(|at| {
        let found = evidence.of(tasks[**at].0);
        found.is_some_and(|evidence| !evidence.warnings.is_empty())
    });
    let warned: Vec<_> = warned.map(|at| names.shown(tasks[*at].0.as_str())).collect();
    if !warned.is_empty() {
        let more = if warned.len() > LISTED { ", …" } else { "" };
        let names = warned[..warned.len().min(LISTED)].join(", ");
        push_line(&mut text, &format!("warnings:     {} tasks: {names}{more}", warned.len()));
    }
    text
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Returns a task's result in one line: the last line of its output, or the reason why there is
/// none. `used` is what a fan-out used with its instances.
fn note(task: &TaskStatus, used: Option<String>) -> Option<String> {
    let result = match task.state {
        // The output of a fan-out is a list for programs.
        TaskState::Completed | TaskState::Reused if !task.instances.is_empty() => {
            let count = task.instances.len();
            let used = used.map(|used| format!(": {used}")).unwrap_or_default();
            format!("{count} instance{}{used}", if count == 1 { "" } else { "s" })
        }
        TaskState::Completed | TaskState::Reused => {
            let text = &task.output.as_ref()?.text;
            text.lines().rev().find(|line| !line.trim().is_empty())?.to_owned()
        }
        TaskState::Skipped | TaskState::Cancelled => {
            return Some(in_one_line(task.reason.as_ref()?));
        }
        TaskState::Failed
        | TaskState::Pending
        | TaskState::Ready
        | TaskState::Running
        | TaskState::Waiting => {
            return Some(in_one_line(&task.failure.as_ref()?.to_string()));
        }
    };
    Some(log_line::cut(result.trim_end(), NOTE))
}
