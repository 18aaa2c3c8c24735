//! Decides by time: limits of the run and of attempts, and the deadlines of agents that must end.
//!
//! A limit counts the time for which the run is open. The state tells how much of it is left, in a
//! live run and in a resumed one. While the run is paused, no limit has a timer.

use std::time::Duration;

use super::RunMachine;
use super::decision::Decision;
use super::facts::{Facts, Stage, Stop};
use super::timers::Timer;
use crate::failure::{Failure, FailureKind};
use crate::id::AgentId;
use crate::plan::TaskState;
use crate::run_state::{Doing, RunPhase};
use crate::turn::Outcome;

/// Time that an agent has to stop its step and to record its end on a slow disk, in addition to the
/// grace of its tools.
const END_MARGIN: Duration = Duration::from_secs(5);

/// Time after which a killed actor counts as gone. A kill takes effect at the next await, which
/// code that blocks its thread never reaches.
const KILL_MARGIN: Duration = Duration::from_secs(5);

impl Facts {
    /// Returns the checks that are at work and the children that have not ended, of those with a limit.
    fn limited_agents(&self) -> Vec<AgentId> {
        let is_limited = |id: &AgentId, stage: Stage| match self.limit_of_child(id) {
            Some(_) => true,
            None => stage == Stage::Live && self.limit_of(id).is_some(),
        };
        let open = self.agents.iter().filter(|(id, agent)| is_limited(id, agent.stage));
        open.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the failure of a check or a child that has used up its time.
    pub(super) fn too_late(&self, agent: &AgentId) -> Failure {
        let limit = self.limit_of(agent).unwrap_or_default();
        let kind = match self.limit_of_child(agent) {
            Some(_) => FailureKind::Timeout,
            None => FailureKind::CheckFailed,
        };
        Failure::new(kind, format!("it took longer than {} s", limit.as_secs_f64()))
    }

    /// Returns true if some task shows that the time was used up. One task must show it; otherwise
    /// nobody could see why the run ended.
    fn is_timeout_told(&self) -> bool {
        (0..self.settings.plan.tasks().len()).any(|place| match self.task_state(place) {
            TaskState::Running => true,
            // The task begins at this moment, or its end is on its way to the journal.
            TaskState::Ready | TaskState::Waiting => self.proposed.contains(&place),
            TaskState::Failed => {
                let failure = self.status(place).and_then(|status| status.failure.as_ref());
                failure.is_some_and(|failure| failure.kind == FailureKind::Timeout)
            }
            TaskState::Pending
            | TaskState::Completed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Reused => false,
        })
    }

    /// Returns the time that an agent has to end by itself once it was asked to.
    pub(super) fn end_grace(&self) -> Duration {
        self.settings.limits.grace_period + END_MARGIN
    }
}

impl RunMachine {
    /// Sets a timer for the rest of every limit. Replaces the timers set before.
    pub(super) fn start_limits(&mut self) {
        if let Some(limit) = self.facts.settings.limits.timeout {
            match limit.saturating_sub(self.facts.state.spent()) {
                Duration::ZERO => self.run_limit_reached(),
                left => self.facts.timers.set(self.facts.now.since + left, Timer::RunLimit),
            }
        }
        for place in 0..self.facts.settings.plan.tasks().len() {
            self.start_task_limit(place);
        }
        for agent in self.facts.limited_agents() {
            self.start_agent_limit(&agent);
        }
    }

    /// Sets a timer for the time limit of a check or a child that begins to work, if it has one. After a
    /// restart of the run a check has all its time, a child what its records leave of it.
    pub(super) fn start_agent_limit(&mut self, agent: &AgentId) {
        let timer = Timer::AgentLimit(agent.clone());
        // One that crashed and begins again has no more time.
        let left = self.facts.time_of_child(agent).or_else(|| self.facts.limit_of(agent));
        if let Some(left) = left.filter(|_| !self.facts.timers.is_set(&timer)) {
            self.facts.timers.set(self.facts.now.since + left, timer);
        }
    }

    /// Sets a timer for the rest of the time limit of a task's running attempt.
    pub(super) fn start_task_limit(&mut self, place: usize) {
        let Some(limit) = self.facts.time_limit(place) else { return };
        let status = self.facts.status(place).filter(|status| status.state == TaskState::Running);
        let Some(status) = status.filter(|_| self.facts.state.phase() == RunPhase::Open) else {
            return;
        };
        match limit.saturating_sub(status.latest.taken(self.facts.state.reading())) {
            Duration::ZERO => self.task_limit_reached(place),
            left => self.facts.timers.set(self.facts.now.since + left, Timer::TaskLimit(place)),
        }
    }

    /// Cancels the timers of the limits when the run pauses.
    pub(super) fn stop_limits(&mut self) {
        self.facts.timers.cancel(&Timer::RunLimit);
        for place in 0..self.facts.settings.plan.tasks().len() {
            self.facts.timers.cancel(&Timer::TaskLimit(place));
        }
        for agent in self.facts.limited_agents() {
            self.facts.timers.cancel(&Timer::AgentLimit(agent));
        }
    }

    /// Sets the timer of the attempt that an agent works for, if it has fired when no agent was at
    /// work that could have been ended.
    pub(super) fn limit_attempt_of(&mut self, agent: &AgentId) {
        let task = self.facts.state.agents().get(agent).map(|agent| &agent.task);
        if let Some(place) = task.and_then(|task| self.facts.settings.plan.place(task))
            && !self.facts.timers.is_set(&Timer::TaskLimit(place))
        {
            self.start_task_limit(place);
        }
    }

    /// Ends an attempt that has used up its time.
    pub(super) fn task_limit_reached(&mut self, place: usize) {
        let status = self.facts.status(place).filter(|status| status.state == TaskState::Running);
        let Some((agent, attempt)) =
            status.and_then(|status| Some((status.agent.clone()?, status.attempt)))
        else {
            return;
        };
        let limit = self.facts.time_limit(place).unwrap_or_default();
        let mut message = format!("attempt {attempt} took longer than {} s", limit.as_secs_f64());
        if let Some(Doing::Retrying(pause)) =
            self.facts.state.agents().get(&agent).map(|status| &status.doing)
        {
            // Attempts to come are told by their failures only: the last one may be in progress.
            message.push_str(&format!("; its model call had failed ({})", pause.kind));
        }
        let failure = Failure::new(FailureKind::Timeout, message);
        self.post(Decision::EndAttempt(agent, Outcome::Failed { failure, partial: None }));
    }

    /// Ends a check or a child that has used up its time.
    pub(super) fn agent_limit_reached(&mut self, agent: &AgentId) {
        let failure = self.facts.too_late(agent);
        let outcome = Outcome::Failed { failure, partial: None };
        self.post(Decision::EndAgent(agent.clone(), outcome));
    }

    /// Stops a run that has used up its time.
    pub(super) fn run_limit_reached(&mut self) {
        // Only hooks are left, and they have a limit of their own.
        if self.facts.state.open_tasks() == 0 {
            return;
        }
        let limit = self.facts.settings.limits.timeout.unwrap_or_default();
        let message = format!("the run took longer than {} s", limit.as_secs_f64());
        let failure = Failure::new(FailureKind::Timeout, message);
        if self.facts.stopped.is_none() && !self.facts.is_timeout_told() {
            self.facts.untold = Some(failure.clone());
        }
        self.post(Decision::Stop(Stop::Failed(failure)));
    }

    /// Kills an agent that was asked to end and has used up its grace. Its end is recorded without
    /// it.
    pub(super) fn end_overdue(&mut self, agent: &AgentId) {
        if self.facts.is_disk_full {
            // The agent's end waits for disk space, as every record does.
            let at = self.facts.now.since + self.facts.end_grace();
            return self.facts.timers.set(at, Timer::EndOverdue(agent.clone()));
        }
        self.kill(agent);
    }

    /// Kills the actor of an agent.
    pub(super) fn kill(&mut self, agent: &AgentId) {
        if self.facts.stage(agent) == Some(Stage::Live) {
            self.facts.set_stage(agent, Stage::Killed);
            self.actions.push_back(super::Action::Kill(agent.clone()));
            let at = self.facts.now.since + KILL_MARGIN;
            self.facts.timers.set(at, Timer::KillOverdue(agent.clone()));
        }
    }
}
