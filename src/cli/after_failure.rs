//! The commands that follow a run in which something failed: to see why, to try again, to begin
//! again from before the failure.

use super::locate::{Project, word};
use crate::id::Name;
use crate::journal::source::RecordedRun;
use crate::plan::TaskState;
use crate::report::fold;
use crate::run::fork_points;
use crate::run_state::{RunState, TaskStatus};
use crate::show::names::Names;

/// The size in bytes up to which a journal is read for the place of the last good event: it takes
/// less than half a second. For a larger one, `fork RUN` lists the places.
const READ_AT_ONCE: u64 = 16 << 20;

/// Returns the commands as lines for the end of a summary; empty if nothing failed.
pub(super) fn commands(project: &Project, run: &RecordedRun, state: &RunState) -> String {
    let id = project.short(run);
    let steps = steps(project, (run, &id), state).into_iter();
    steps.map(|(what, command)| format!("{:13} {command}\n", format!("{what}:"))).collect()
}

/// Returns the commands, each after its purpose; empty if nothing failed. `id` names the run in them.
pub(super) fn steps(
    project: &Project,
    (run, id): (&RecordedRun, &str),
    state: &RunState,
) -> Vec<(String, String)> {
    let failed = |task: &TaskStatus| matches!(task.state, TaskState::Failed | TaskState::Cancelled);
    let mut all = state.tasks().filter(|(_, task)| failed(task));
    // A failure says more than a cancellation, which may be its consequence.
    let first = state.tasks().find(|(_, task)| task.state == TaskState::Failed).or(all.next());
    let Some((name, task)) = first else { return Vec::new() };
    let flags = project.flags();
    // A fan-out says how many failed, its instance why.
    let (shown, task) = failed_instance(state, task)
        .and_then(|instance| Some((instance, state.task(instance)?)))
        .unwrap_or((name, task));
    let agent = task.agent.as_ref();
    let conversed = agent.filter(|id| {
        state.agents().get(*id).is_some_and(|agent| agent.definition.is_some() && agent.turn > 0)
    });
    let names = Names::of(state);
    let part = |what: &str, name: &str| word(&format!("{id}/{what}{}", names.shown(name)));
    let why = match conversed {
        Some(agent) => format!("callsheet show{flags} {} --transcript", part("@", agent.as_str())),
        None => format!("callsheet show{flags} {}", part("", shown.as_str())),
    };
    let is_read_at_once = run.size() <= READ_AT_ONCE;
    let seq = is_read_at_once.then(|| fork_points::before_failure(&**run, name).ok().flatten());
    let place = seq.flatten().map(|seq| format!("@{seq}")).unwrap_or_default();
    let again = format!("callsheet resume{flags} {id} --retry-failed");
    let mut steps = vec![("what failed".to_owned(), why)];
    // It names each with its failure.
    let others = other_failures(state);
    if others > 0 {
        steps.push((format!("and {} more", fold::count(others)), format!("{again} --explain")));
    }
    steps.extend([
        ("try again".to_owned(), again),
        ("with changes".to_owned(), format!("callsheet resume{flags} {id} --accept-changes")),
        ("rewind".to_owned(), format!("callsheet fork{flags} {id}{place}")),
    ]);
    steps
}

/// Returns the first instance of a fan-out that failed.
fn failed_instance<'a>(state: &RunState, task: &'a TaskStatus) -> Option<&'a Name> {
    let is_failed =
        |name: &&Name| state.task(name).is_some_and(|task| task.state == TaskState::Failed);
    task.instances.iter().map(|(name, _)| name).find(is_failed)
}

/// Returns the number of failures beside the one that is named. Of a fan-out its instances count.
fn other_failures(state: &RunState) -> usize {
    let failed = state.tasks().filter(|(_, task)| task.state == TaskState::Failed);
    let named = failed.filter(|(_, task)| failed_instance(state, task).is_none());
    named.count().saturating_sub(1)
}
