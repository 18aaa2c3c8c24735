//! A run that is taken up again: what its records left at work goes on.
//!
//! Owns what the supervisor keeps beside the fold of the journal, as far as it can be had from the
//! fold. Decides nothing of its own: limits go on with what is left of them, agents get their
//! actors and slots again, and the rest follows as while the run was live. For a new run there is
//! only its clock.

use std::collections::BTreeSet;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{Left, RunEnd, State, Supervisor, SupervisorMsg, settle};
use crate::actor::slots::Rank;
use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::journal::agent_records::AgentRecords;
use crate::journal::{JournalError, stamp, track};
use crate::plan::TaskState;
use crate::policy::RestartWindow;
use crate::run_state::Reading;
use crate::turn::Outcome;

impl Supervisor {
    /// Goes on where the records end.
    pub(super) async fn take_up(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State) {
        if let Err(failure) = self.note_values(state).await {
            // What was acknowledged is not there any more: nothing may be decided without it.
            let error = JournalError::Io(failure.message);
            return self.finish(myself, state, RunEnd::JournalFailed(error));
        }
        state.age = state.run.reading().since(Reading::default());
        self.note_restarts(state);
        self.note_failures(state);
        self.note_rests(myself, state);
        self.start_clocks(myself, state);
        for (task, outcome) in Self::unsettled(state) {
            self.settle(myself, state, &task, &outcome);
        }
        let left = std::mem::take(&mut state.left);
        self.bring_back(myself, state, left).await;
    }

    /// Reads the outputs that templates of tasks to come may name.
    async fn note_values(&self, state: &mut State) -> Result<(), Failure> {
        let has_ended = |state: &State, name: &Name| {
            state.run.task(name).is_some_and(|task| task.state.is_end())
        };
        let open = self.plan.tasks().iter().filter(|task| !has_ended(state, &task.name));
        let named: BTreeSet<_> = open.flat_map(|task| &task.depends_on).collect();
        for name in named {
            if !has_ended(state, name) {
                continue;
            }
            let output = state.run.task(name).and_then(|status| status.output.as_ref());
            if let (Some(output), Some(spec)) = (output, self.plan.task(name)) {
                let value = settle::value_of(&self.services, spec.output, output).await?;
                state.values.insert(name.to_string(), serde_json::json!({ "output": value }));
            }
            Self::note_end(state, name);
        }
        Ok(())
    }

    /// A crash that follows soon after others is one of them, whoever drives the run.
    fn note_restarts(&self, state: &mut State) {
        let open = state.run.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
        let restarted = open.filter(|(_, agent)| !agent.restarted.is_empty());
        let windows = restarted.map(|(id, agent)| {
            let times = agent.restarted.iter().map(|at| at.since(Reading::default()));
            (id.clone(), RestartWindow::after(times))
        });
        state.restarts = windows.collect();
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

    /// The tasks whose agent has ended and whose own end is not recorded.
    fn unsettled(state: &State) -> Vec<(Name, Outcome)> {
        let running = state.run.tasks().filter(|(_, task)| task.state == TaskState::Running);
        let ended = running.filter_map(|(name, task)| {
            let agent = state.run.agents().get(task.agent.as_ref()?)?;
            Some((name.clone(), agent.outcome.clone()?))
        });
        ended.collect()
    }

    /// Gives the agents that have not ended their actors, those first that were spawned first.
    async fn bring_back(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State, left: Left) {
        let mut left: Vec<_> = left.into_iter().collect();
        left.sort_by_key(|(_, agent)| agent.first);
        for (id, track::Left { waits, records, .. }) in left {
            let is_child = state.run.agents().get(&id).is_some_and(|a| a.parent.is_some());
            let rank = if is_child { Rank::Child } else { Rank::Main };
            if waits {
                // It takes a slot when its children have ended.
                self.spawn(myself, state, &id, records).await;
            } else if state.slots.has_room(rank) {
                state.slots.take(id.clone(), rank);
                self.spawn(myself, state, &id, records).await;
            } else {
                self.spawn_later(myself, state, id, rank, records);
            }
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
