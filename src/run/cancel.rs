//! Cancelling in a run that no process drives: recorded at once, with nothing started.

use super::opening::{Opening, Reopened};
use super::{StartError, blocking};
use crate::actor::ends::ends_of_agents;
use crate::actor::supervisor::{CancelTarget, Left};
use crate::event::{Draft, Event, PauseCause, Record, RunPaused, RunStatus};
use crate::id::Name;
use crate::journal::{JournalError, Observer, stamp};
use crate::plan::TaskCancelled;
use crate::run_state::{IllegalRecord, RunState};

impl Reopened {
    /// Cancels the run, a task or an agent with its children, and leaves the run. When this
    /// returns, it is durable; what has ended stays as it is.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn cancel(self, target: &CancelTarget, reason: &str) -> Result<(), StartError> {
        let Opening { owned, at, tracker, left, projection, mut drafts, .. } =
            blocking(move || self.into_opening()).await?;
        let state = tracker.state();
        drafts.extend(cancelled(state, target, reason, &left));
        let end = end_after(state, &drafts, reason)?;
        drafts.push(Draft::run(end));
        let observers: Vec<Box<dyn Observer>> = vec![Box::new(projection)];
        let journal = owned.start_writer(at, observers)?;
        let recorded: Result<_, JournalError> = journal.append_at_once(drafts).await;
        journal.close().await;
        recorded?;
        Ok(())
    }
}

/// What ends by it: agents, those first that others started, and tasks.
fn cancelled(state: &RunState, target: &CancelTarget, reason: &str, left: &Left) -> Vec<Draft> {
    let ends = ends_of_agents(state, left, reason, |id, agent| match target {
        CancelTarget::Run => true,
        CancelTarget::Task(task) => agent.task == *task,
        CancelTarget::Agent(top) => id.is_within(top),
    });
    let tasks = state.tasks().filter(|(name, task)| {
        let meant = match target {
            CancelTarget::Run => true,
            CancelTarget::Task(task) => *name == task,
            CancelTarget::Agent(_) => false,
        };
        meant && !task.state.is_end()
    });
    let cancel =
        |(name, _): (&Name, _)| Draft::task(name, TaskCancelled { reason: reason.to_owned() });
    ends.into_iter().chain(tasks.map(cancel)).collect()
}

/// What the run is left with once these are recorded: its result, if every task has ended.
fn end_after(state: &RunState, drafts: &[Draft], reason: &str) -> Result<Event, IllegalRecord> {
    let mut state = state.clone();
    let (epoch, ts_ms) = (0, stamp::now_ms());
    for (seq, draft) in (state.last_seq() + 1..).zip(drafts) {
        let Draft { task, agent, event } = draft.clone();
        state.apply(&Record { seq, epoch, ts_ms, task, agent, event })?;
    }
    let all_ended = state.tasks().all(|(_, task)| task.state.is_end());
    Ok(match all_ended {
        true => state.result(RunStatus::Cancelled).into(),
        false => RunPaused { reason: reason.to_owned(), cause: PauseCause::Interrupted }.into(),
    })
}
