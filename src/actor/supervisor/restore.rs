//! A run that is taken up again: what its records left at work goes on.
//!
//! Owns what the supervisor keeps beside the fold of the journal, as far as it can be had from the
//! fold. Decides nothing of its own: limits go on with what is left of them, agents get their
//! actors and slots again, and the rest follows as while the run was live. For a new run there is
//! only its clock.

use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{State, Supervisor, SupervisorMsg};
use crate::actor::ends::Idle;
use crate::actor::slots::Rank;
use crate::id::{AgentId, Name};
use crate::journal::agent_records::AgentRecords;
use crate::journal::{stamp, track};
use crate::plan::TaskState;
use crate::run_state::{Part, RunState};
use crate::turn::Outcome;

/// Why an agent ends whose task turns out to be made from something else.
pub(super) const CHANGED: &str = "what its task is made from has changed";

/// Why an agent ends whose task took an earlier result.
pub(super) const REUSED: &str = "its task takes a result that was made before";

/// Why an agent ends whose task another configuration does not have.
const GONE: &str = "the configuration has its task no more";

/// Why an agent ends that a later attempt has left behind.
pub(super) const UNUSED: &str = "its task goes on without it";

impl Supervisor {
    /// Goes on where the records end.
    pub(super) async fn take_up(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State) {
        self.note_values(state);
        self.note_failures(state);
        self.note_rests(myself, state);
        self.start_clocks(myself, state);
        for task in self.plan.tasks() {
            self.go_on_with(myself, state, &task.name).await;
        }
        self.dismiss(state, GONE, |run, id, _| run.part(id) == Part::Gone);
        self.dismiss(state, UNUSED, |run, id, _| run.part(id) == Part::Superseded);
    }

    /// Notes what templates of tasks to come see of those that have ended.
    fn note_values(&self, state: &mut State) {
        for output in state.values.values_mut() {
            *output = serde_json::json!({ "output": output.take() });
        }
        for task in self.plan.tasks() {
            if state.run.task(&task.name).is_some_and(|task| task.state.is_end()) {
                Self::note_end(state, &task.name);
            }
        }
    }

    fn note_failures(&self, state: &mut State) {
        let failed = state.run.tasks().filter(|(_, task)| task.state == TaskState::Failed);
        let first = failed.min_by_key(|(_, task)| task.ended_ms).map(|(name, _)| name.clone());
        if let Some(task) = first {
            self.task_failed(state, &task);
        }
    }

    /// Lets the pauses between attempts end when they were to: meanwhile others had their rest.
    fn note_rests(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State) {
        for task in self.plan.tasks() {
            let Some(status) = state.run.task(&task.name) else { continue };
            if let (TaskState::Waiting, Some(until)) = (status.state, status.retry_ms) {
                self.rest(myself, state, millis(until - stamp::now_ms()), &task.name);
            }
        }
    }

    /// How the agent of a task's latest attempt ended, if the attempt's own end is not recorded.
    fn unsettled(state: &State, task: &Name) -> Option<Outcome> {
        let status = state.run.task(task).filter(|task| task.state == TaskState::Running)?;
        state.run.agents().get(status.agent.as_ref()?)?.outcome.clone()
    }

    /// An attempt is under way: what is left of it goes on.
    pub(super) async fn go_on_with(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        task: &Name,
    ) {
        if let Some(outcome) = Self::unsettled(state, task) {
            self.settle(myself, state, task, &outcome);
        }
        let State { left, run, .. } = &mut *state;
        let is_meant = |id: &AgentId| {
            let of_task = run.agents().get(id).is_some_and(|agent| agent.task == *task);
            of_task && run.part(id) == Part::AtWork
        };
        let mut at_work: Vec<_> = left.extract_if(.., |id, _| is_meant(id)).collect();
        // Those first that were spawned first.
        at_work.sort_by_key(|(_, agent)| agent.first);
        for (id, agent) in at_work {
            self.bring_back(myself, state, id, agent).await;
        }
    }

    /// Gives an agent that has not ended its actor.
    async fn bring_back(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        id: AgentId,
        left: track::Left,
    ) {
        let track::Left { waits, records, .. } = left;
        let is_child = state.run.agents().get(&id).is_some_and(|a| a.parent.is_some());
        let rank = if is_child { Rank::Child } else { Rank::Main };
        if waits {
            // It takes a slot when its children have ended.
            state.slots.release(&id);
            self.spawn(myself, state, &id, records).await;
        } else if state.slots.holds(&id) || state.slots.has_room(rank) {
            state.slots.take(id.clone(), rank);
            self.spawn(myself, state, &id, records).await;
        } else {
            self.spawn_later(myself, state, id, rank, records);
        }
    }

    /// Ends agents that wait to be brought back: as they were told to, else as cancelled for this
    /// reason.
    pub(super) fn dismiss(
        &self,
        state: &mut State,
        reason: &str,
        is_meant: impl Fn(&RunState, &AgentId, &Name) -> bool,
    ) {
        let State { left, run, condemned, .. } = &mut *state;
        let of = |id: &AgentId| run.agents().get(id);
        let meant = |id: &AgentId| of(id).is_some_and(|agent| is_meant(run, id, &agent.task));
        let dismissed = left.extract_if(.., |id, _| meant(id)).filter_map(|(id, left)| {
            let cancelled = || Outcome::Cancelled { reason: reason.to_owned() };
            let outcome = condemned.get(&id).cloned().unwrap_or_else(cancelled);
            let status = of(&id)?;
            Some(Idle::new(id, status, left.records, outcome))
        });
        let dismissed: Vec<_> = dismissed.collect();
        if !dismissed.is_empty() {
            self.end_idle(state, dismissed);
        }
    }

    /// Gives an agent its actor once there is room: limits may be lower than when it began.
    fn spawn_later(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        agent: AgentId,
        rank: Rank,
        records: AgentRecords,
    ) {
        let (ticket, granted) = oneshot::channel();
        state.slots.queue(agent.clone(), rank, ticket);
        let myself = myself.clone();
        state.work.spawn(async move {
            if granted.await.is_ok() {
                let records = Ok(records);
                // A supervisor that is gone brings nobody back.
                let _ = myself.send_message(SupervisorMsg::Rebuilt { agent, records });
            }
        });
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
