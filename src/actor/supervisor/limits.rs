//! Time limits: of the run, and of the latest attempt of each task.
//!
//! What is left of a limit is what the fold says, live and when a run is taken up. A timer counts that
//! down; while the run is paused there is none.

use std::time::Duration;

use ractor::ActorRef;

use super::{State, Stop, Supervisor, SupervisorMsg, mail_after};
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::plan::TaskState;
use crate::run_state::RunPhase;
use crate::turn::Outcome;

impl Supervisor {
    /// Sets a timer for what is left of every limit, in place of those that were set before.
    pub(super) fn start_clocks(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State) {
        state.clocks.abort_all();
        if let Some(limit) = self.services.limits.timeout {
            match limit.saturating_sub(state.run.spent()) {
                Duration::ZERO => self.run_deadline(state),
                left => mail_after(&mut state.clocks, myself, left, SupervisorMsg::RunDeadline),
            }
        }
        for task in self.plan.tasks() {
            self.start_clock_of(myself, state, &task.name);
        }
    }

    /// Sets a timer for what is left to the attempt that is under way.
    pub(super) fn start_clock_of(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        task: &Name,
    ) {
        let limit = self.plan.task(task).and_then(|spec| spec.timeout);
        let at_work = state.run.task(task).filter(|status| status.state == TaskState::Running);
        let (Some(limit), Some(status)) = (limit, at_work) else { return };
        if state.run.phase() != RunPhase::Open {
            return;
        }
        let (task, attempt) = (task.clone(), status.attempt);
        match limit.saturating_sub(status.latest.taken(state.run.reading())) {
            Duration::ZERO => self.task_deadline(state, &task, attempt),
            left => {
                let message = SupervisorMsg::TaskDeadline { task, attempt };
                mail_after(&mut state.clocks, myself, left, message);
            }
        }
    }

    /// The run pauses: so do its clocks.
    pub(super) fn stop_clocks(state: &mut State) {
        state.clocks.abort_all();
    }

    pub(super) fn task_deadline(&self, state: &mut State, task: &Name, attempt: u32) {
        let status = state.run.task(task);
        let current = status.filter(|s| s.state == TaskState::Running && s.attempt == attempt);
        let Some(agent) = current.and_then(|status| status.agent.clone()) else { return };
        let limit = self.plan.task(task).and_then(|spec| spec.timeout).unwrap_or_default();
        let message = format!("attempt {attempt} took longer than {} s", limit.as_secs_f64());
        let failure = Failure::new(FailureKind::Timeout, message);
        self.end_agent(state, &agent, Outcome::Failed { failure, partial: None });
    }

    pub(super) fn run_deadline(&self, state: &mut State) {
        let limit = self.services.limits.timeout.unwrap_or_default();
        let message = format!("the run took longer than {} s", limit.as_secs_f64());
        self.stop_everything(state, Stop::TimedOut(Failure::new(FailureKind::Timeout, message)));
    }
}
