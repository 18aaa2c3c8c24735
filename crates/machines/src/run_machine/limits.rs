//! Decides by time: limits of the run and of attempts, and the deadlines of agents that must end.
//!
//! A limit counts the time for which the run is open. The state tells how much of it is left, in a
//! live run and in a resumed one. While the run is paused, no limit has a timer; nor has that of a task or an agent
//! which a person paused.

use std::time::Duration;

use super::Facts;
use super::decision::Decision;
use super::desk::Desk;
use super::timers::{Timer, Timers};
use crate::failure::{Failure, FailureKind};
use crate::id::AgentId;
use crate::plan::TaskState;
use crate::run_state::{Doing, RunPhase};
use crate::turn::Outcome;

/// Time that an agent has to stop its step and to record its end on a slow disk, in addition to the
/// grace of its tools.
const END_MARGIN: Duration = Duration::from_secs(5);

impl Facts {
    /// Returns the time limit of a check.
    fn limit_of_check(&self, id: &AgentId) -> Option<Duration> {
        let agent = self.state.agents().get(id)?;
        let check = agent.check?;
        let place = self.settings.plan.place(&agent.task)?;
        self.spec(place).acceptance.checks.get(check.index as usize)?.timeout
    }

    /// Returns the time limit of an agent that is not the main agent of its task: a check or a child.
    pub(super) fn limit_of(&self, id: &AgentId) -> Option<Duration> {
        self.limit_of_check(id).or_else(|| self.limit_of_child(id))
    }

    /// Returns the checks that are at work and the children that have not ended, of those with a limit.
    fn limited_agents(&self) -> Vec<AgentId> {
        let is_limited = |id: &AgentId, is_live: bool| match self.limit_of_child(id) {
            Some(_) => true,
            None => is_live && self.limit_of(id).is_some(),
        };
        let open = self.agents.open().filter(|(id, is_live)| is_limited(id, *is_live));
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

    /// Returns the time that an agent has to end by itself once it was asked to.
    pub(super) fn end_grace(&self) -> Duration {
        self.settings.limits.grace_period + END_MARGIN
    }
}

impl Desk<'_, Timers> {
    /// Sets a timer for the rest of every limit. Replaces the timers set before.
    pub(super) fn start_limits(&mut self) {
        let is_paused = self.is_run_paused();
        if let Some(limit) = self.settings.limits.timeout.filter(|_| !is_paused) {
            match limit.saturating_sub(self.state.spent()) {
                Duration::ZERO => self.run_limit_reached(),
                left => self.set_after(left, Timer::RunLimit),
            }
        }
        for place in 0..self.settings.plan.tasks().len() {
            self.start_task_limit(place);
        }
        for agent in self.limited_agents() {
            self.start_agent_limit(&agent);
        }
    }

    /// Sets a timer for this moment.
    pub(super) fn set(&mut self, at: Duration, timer: Timer) {
        self.own().set(at, timer);
    }

    /// Cancels a timer, if it is set.
    pub(super) fn cancel(&mut self, timer: &Timer) {
        self.own().cancel(timer);
    }

    /// Takes the next timer whose moment has come.
    pub(super) fn pop_due(&mut self) -> Option<Timer> {
        let since = self.now.since;
        self.own().pop_due(since)
    }

    fn set_after(&mut self, left: Duration, timer: Timer) {
        let at = self.now.since + left;
        self.own().set(at, timer);
    }

    /// Sets a timer for the time limit of a check or a child that begins to work, if it has one. After a
    /// restart of the run a check has all its time, a child what its records leave of it.
    pub(super) fn start_agent_limit(&mut self, agent: &AgentId) {
        let timer = Timer::AgentLimit(agent.clone());
        // One that crashed and begins again has no more time.
        let left = self.time_of_child(agent).or_else(|| self.limit_of(agent));
        let waits = self.timers.is_set(&timer) || self.is_agent_paused(agent);
        if let Some(left) = left.filter(|_| !waits) {
            self.set_after(left, timer);
        }
    }

    /// Sets a timer for the rest of the time limit of a task's running attempt.
    pub(super) fn start_task_limit(&mut self, place: usize) {
        let Some(limit) = self.time_limit(place) else { return };
        if self.is_task_paused(place) {
            return;
        }
        let status = self.status(place).filter(|status| status.state == TaskState::Running);
        let Some(status) = status.filter(|_| self.state.phase() == RunPhase::Open) else {
            return;
        };
        match limit.saturating_sub(status.latest.taken(self.state.reading())) {
            Duration::ZERO => self.task_limit_reached(place),
            left => self.set_after(left, Timer::TaskLimit(place)),
        }
    }

    /// Sets the timers of all limits anew: what is paused has none.
    pub(super) fn restart_limits(&mut self) {
        if self.state.phase() != RunPhase::Open {
            return;
        }
        self.own().cancel(&Timer::RunLimit);
        for place in 0..self.settings.plan.tasks().len() {
            self.own().cancel(&Timer::TaskLimit(place));
        }
        // A check has all its time when its timer is set anew.
        for agent in self.limited_agents() {
            if self.is_agent_paused(&agent) {
                self.own().cancel(&Timer::AgentLimit(agent));
            }
        }
        self.start_limits();
    }

    /// Cancels the timers of the limits when the run pauses.
    pub(super) fn stop_limits(&mut self) {
        self.own().cancel(&Timer::RunLimit);
        for place in 0..self.settings.plan.tasks().len() {
            self.own().cancel(&Timer::TaskLimit(place));
        }
        for agent in self.limited_agents() {
            self.own().cancel(&Timer::AgentLimit(agent));
        }
    }

    /// Sets the timer of the attempt that an agent works for, if it has fired when no agent was at
    /// work that could have been ended.
    pub(super) fn limit_attempt_of(&mut self, agent: &AgentId) {
        let task = self.state.agents().get(agent).map(|agent| &agent.task);
        if let Some(place) = task.and_then(|task| self.settings.plan.place(task))
            && !self.timers.is_set(&Timer::TaskLimit(place))
        {
            self.start_task_limit(place);
        }
    }

    /// Ends an attempt that has used up its time.
    pub(super) fn task_limit_reached(&mut self, place: usize) {
        let status = self.status(place).filter(|status| status.state == TaskState::Running);
        let Some((agent, attempt)) =
            status.and_then(|status| Some((status.agent.clone()?, status.attempt)))
        else {
            return;
        };
        let limit = self.time_limit(place).unwrap_or_default();
        let mut message = format!("attempt {attempt} took longer than {} s", limit.as_secs_f64());
        if let Some(Doing::Retrying(pause)) =
            self.state.agents().get(&agent).map(|status| &status.doing)
        {
            // Attempts to come are told by their failures only: the last one may be in progress.
            message.push_str(&format!("; its model call had failed ({})", pause.kind));
        }
        let failure = Failure::new(FailureKind::Timeout, message);
        self.post(Decision::EndAttempt(agent, Outcome::Failed { failure, partial: None }));
    }

    /// Ends a check or a child that has used up its time.
    pub(super) fn agent_limit_reached(&mut self, agent: &AgentId) {
        let failure = self.too_late(agent);
        let outcome = Outcome::Failed { failure, partial: None };
        self.post(Decision::EndAgent(agent.clone(), outcome));
    }

    /// Stops a run that has used up its time.
    pub(super) fn run_limit_reached(&mut self) {
        // Only hooks are left, and they have a limit of their own.
        if self.state.open_tasks() == 0 {
            return;
        }
        let limit = self.settings.limits.timeout.unwrap_or_default();
        let message = format!("the run took longer than {} s", limit.as_secs_f64());
        let failure = Failure::new(FailureKind::Timeout, message);
        self.post(Decision::TimeIsUp(failure));
    }

    /// Kills an agent that was asked to end and has used up its grace. Its end is recorded without
    /// it.
    pub(super) fn end_overdue(&mut self, agent: &AgentId) {
        if self.pauses.is_disk_full() {
            // The agent's end waits for disk space, as every record does.
            let grace = self.end_grace();
            return self.set_after(grace, Timer::EndOverdue(agent.clone()));
        }
        self.post(Decision::Kill(agent.clone()));
    }
}
