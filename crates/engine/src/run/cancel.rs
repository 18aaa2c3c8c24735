//! Cancels a run, a task or an agent of a run that no process drives: records the ends, and starts
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use super::opening::{self, Opening, StoppedRun};
use super::{StartError, blocking, fork};
use crate::actor::ends::{self, Idle};
use crate::actor::lost_calls::Traces;
use crate::actor::step::forget_results;
use crate::actor::supervisor::UnfinishedAgents;
use crate::event::{Draft, Event, PauseCause, Record, RunPaused, RunStatus};
use crate::id::Name;
use crate::journal::source::{RecordedRun, drivable};
use crate::journal::track::Tracker;
use crate::journal::{JournalHandle, Observer, stamp};
use crate::plan::TaskCancelled;
use crate::run_machine::CancelTarget;
use crate::run_state::{IllegalRecord, RunState};
use crate::tool::spool::Spool;
use crate::turn::Outcome;
use crate::turn_machine::lost::LostCalls;

impl StoppedRun {
    /// Cancels the run, a task, or an agent with its children, and closes the run again. The
    /// cancellation is durable when this returns. What has already ended stays as it is. Processes
    /// that are left of commands are ended, and results of commands that had finished are recorded.
    ///
    /// # Errors
    /// Returns an error if the cancellation cannot be recorded.
    pub async fn cancel(self, target: &CancelTarget, reason: &str) -> Result<(), StartError> {
        let opening = blocking(move || {
            let answers = fork::answers(&self)?;
            let mut opening = self.into_opening()?;
            opening.drafts.extend(answers);
            Ok::<_, StartError>(opening)
        });
        let Opening { recorded, owned, at, tracker, projection, drafts, lost, .. } =
            opening.await?;
        let observers: Vec<Box<dyn Observer>> = vec![Box::new(projection)];
        let journal = owned.start_writer(at, observers)?;
        let recorded = match opening::record(&journal, drafts, at, tracker).await {
            Ok(tracker) => {
                let lost = Arc::new(lost);
                record(&journal, (&recorded, lost), &tracker, target, reason).await
            }
            Err(error) => Err(error),
        };
        journal.close().await;
        recorded
    }
}

/// Records what the cancellation ends: agents, children before their parents, and tasks.
async fn record(
    journal: &JournalHandle,
    (run, lost): (&RecordedRun, Arc<LostCalls>),
    tracker: &Tracker,
    target: &CancelTarget,
    reason: &str,
) -> Result<(), StartError> {
    let (state, unfinished) = (tracker.state(), tracker.unfinished(run));
    let idle = agents(state, unfinished, target, reason);
    let store = Arc::new(drivable(&**run)?.store());
    // Who cancels does not want to wait for what the cancelled work comes to.
    let orphan_grace = Duration::ZERO;
    let traces =
        Traces { store: store.clone(), workspace: None, lost, orphan_grace, under_way: None };
    let mut drafts = blocking(move || ends::ends(&traces, idle)).await?;
    drafts.extend(tasks(state, target, reason));
    let end = end_after(state, &drafts, reason)?;
    let is_over = matches!(end, Event::RunCompleted(_));
    drafts.push(Draft::run(end));
    let records = journal.append_at_once(drafts).await?;
    if !is_over {
        forget_results(store, &records);
        return Ok(());
    }
    let clear = move || {
        Spool::of(&store).clear();
        Ok::<_, StartError>(())
    };
    blocking(clear).await
}

/// Returns the agents that the cancellation ends.
fn agents(
    state: &RunState,
    unfinished: UnfinishedAgents,
    target: &CancelTarget,
    reason: &str,
) -> Vec<Idle> {
    let idle = unfinished.into_iter().filter_map(|(id, data)| {
        let status = state.agents().get(&id)?;
        let is_meant = match target {
            CancelTarget::Run => true,
            CancelTarget::Task(task) => status.task.is_part_of(task),
            CancelTarget::Agent(top) => id.is_within(top),
        };
        let outcome = Outcome::Cancelled { reason: reason.to_owned() };
        let (task, depth) = (status.task.clone(), status.depth);
        is_meant.then(|| Idle::new(id, task, depth, data.records, outcome))
    });
    idle.collect()
}

/// Returns the ends of the tasks that the cancellation ends.
fn tasks(state: &RunState, target: &CancelTarget, reason: &str) -> Vec<Draft> {
    let is_cancelled = |name: &Name| {
        let is_meant = match target {
            CancelTarget::Run => true,
            CancelTarget::Task(task) => name.is_part_of(task),
            CancelTarget::Agent(_) => false,
        };
        is_meant && state.task(name).is_some_and(|task| !task.state.is_end())
    };
    // The end of a fan-out is that of its instances, which then have none of their own.
    let ends_with_its_fan_out = |name: &Name| {
        let fan_out = name.of_instance().and_then(|fan_out| Name::of_record(fan_out).ok());
        fan_out.is_some_and(|fan_out| is_cancelled(&fan_out))
    };
    let tasks = state.tasks();
    let tasks = tasks.filter(|(name, _)| is_cancelled(name) && !ends_with_its_fan_out(name));
    let cancel =
        |(name, _): (&Name, _)| Draft::task(name, TaskCancelled { reason: reason.to_owned() });
    tasks.map(cancel).collect()
}

/// Returns the last event of the cancellation: the result of the run if every task has then ended,
/// else a pause.
fn end_after(state: &RunState, drafts: &[Draft], reason: &str) -> Result<Event, IllegalRecord> {
    let mut state = state.clone();
    let (epoch, ts_ms) = (0, stamp::now_ms());
    for (seq, draft) in (state.last_seq() + 1..).zip(drafts) {
        let Draft { task, agent, event } = draft.clone();
        state.apply(&Record { seq, epoch, ts_ms, task, agent, event })?;
    }
    let all_ended = state.tasks().all(|(_, task)| task.state.is_end());
    Ok(match all_ended {
        true => state.result(RunStatus::Cancelled, false).into(),
        false => RunPaused { reason: reason.to_owned(), cause: PauseCause::Interrupted }.into(),
    })
}
