//! Decides what still starts after a failure, a timeout or a cancellation, and cancels parts of a run.
//!
//! After a failure that stops the run (`on_failure = "fail"`, else `limits.fail_fast`) nothing new
//! starts, except: tasks that always run; tasks whose `join` accepts a failure, with the tasks that
//! follow from them; and the tasks that such a join still needs.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use super::decision::{Decision, Stop};
use super::desk::Desk;
use super::{CancelTarget, Facts};
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::plan::{Consequence, Standing, TaskCancelled, TaskFailed, TaskSkipped, TaskState};
use crate::run_state::TaskStatus;
use crate::spec::OnFailure;
use crate::turn::Outcome;

/// The longest time that a task which always runs may take after the run was stopped, if it has no
/// `timeout`: enough to remove a deployment, short enough for a person who waits for the end.
const CLEANUP: Duration = Duration::from_secs(300);

/// What keeps work from starting.
#[derive(Clone, Debug, Default)]
pub(super) struct Stopping {
    /// The reason why the run as a whole was stopped before its end, if it was.
    stopped: Option<Stop>,
    /// True if the tasks that always run are cancelled too.
    is_cleanup_stopped: bool,
    /// The failure that some task must still record: the run used up its time when no task was at
    /// work.
    unrecorded: Option<Failure>,
    /// The tasks that were cancelled one by one, by place in the plan, with the reason.
    cancelled: HashMap<usize, String>,
    /// The tasks that may start although a failure keeps the others from it; absent before a
    /// failure does.
    spared: Option<HashSet<usize>>,
}

impl Stopping {
    /// Returns true if the run as a whole was stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns true if the run as a whole was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self.stopped, Some(Stop::Cancelled(_)))
    }

    /// Returns the reason why this task was cancelled, if it was.
    pub(super) fn cancelled(&self, place: usize) -> Option<&String> {
        self.cancelled.get(&place)
    }

    /// Returns the failure that some task must still record.
    pub(super) fn unrecorded(&self) -> Option<&Failure> {
        self.unrecorded.as_ref()
    }
}

impl Facts {
    /// Returns the record of a task's failure, with its consequence for other tasks.
    pub(super) fn failed(&self, place: usize, attempt: u32, failure: Failure) -> Event {
        let consequence = match self.spec(place).on_failure {
            // An instance concerns only its task.
            _ if self.settings.plan.member(place).is_some() => None,
            Some(OnFailure::Fail) => Some(Consequence::Stop),
            Some(OnFailure::SkipDependents) => Some(Consequence::SkipDependents),
            Some(OnFailure::Continue) => Some(Consequence::Continue),
            Some(OnFailure::Pause) | None => None,
        };
        TaskFailed { attempt, failure, consequence }.into()
    }

    /// Returns the task whose failure keeps others from starting, if there is one.
    pub(super) fn stopping_failure(&self) -> Option<&Name> {
        let by_limits = || self.state.first_failed().filter(|_| self.settings.limits.fail_fast);
        self.state.stopped_by().or_else(by_limits)
    }

    /// Returns true if the run has a failure that keeps others from starting, also one from before a
    /// retry of something else, which nothing is kept by any more.
    pub(super) fn has_stopping_failure(&self) -> bool {
        let stops = |place: usize| match self.spec(place).on_failure {
            Some(OnFailure::Fail) => true,
            Some(OnFailure::SkipDependents | OnFailure::Continue) => false,
            Some(OnFailure::Pause) | None => self.settings.limits.fail_fast,
        };
        let mut failed = (0..self.settings.plan.tasks().len()).filter(|place| {
            self.settings.plan.member(*place).is_none()
                && self.task_state(*place) == TaskState::Failed
        });
        failed.any(stops)
    }

    /// Returns the end of a task that must not start because the whole run is stopped or has a
    /// failure.
    pub(super) fn not_to_start(&self, place: usize) -> Option<Event> {
        if let Some(stop) = self.stopping.stopped.as_ref().filter(|_| !self.cleans_up(place)) {
            let reason = stop.reason().to_owned();
            return Some(TaskCancelled { reason }.into());
        }
        let failed = self.stopping_failure()?;
        if self.is_spared(place) || self.is_at_work(place) {
            return None;
        }
        let reason = format!("not started: task `{failed}` failed");
        Some(TaskSkipped { reason, because: Some(failed.clone()) }.into())
    }

    /// Returns true if a task runs although the run was stopped.
    pub(super) fn cleans_up(&self, place: usize) -> bool {
        self.spec(place).always && !self.stopping.is_cleanup_stopped
    }

    /// Returns the longest time that an attempt of a task may take.
    pub(super) fn time_limit(&self, place: usize) -> Option<Duration> {
        let spec = self.spec(place);
        spec.timeout.or_else(|| (spec.always && self.stopping.is_stopped()).then_some(CLEANUP))
    }

    /// Returns true if a failure elsewhere does not keep a task from starting.
    fn is_spared(&self, place: usize) -> bool {
        let is_listed = |spared: &HashSet<usize>| spared.contains(&place);
        self.spec(place).always || self.stopping.spared.as_ref().is_some_and(is_listed)
    }

    /// Returns true if a task has begun, and so goes on to its end after a failure elsewhere: it is
    /// between two attempts, it asks a person, or it is an instance of a task that has fanned out.
    fn is_at_work(&self, place: usize) -> bool {
        self.task_state(place) == TaskState::Waiting || self.settings.plan.member(place).is_some()
    }

    /// Returns the number of the record since which a failure keeps others from starting.
    fn stopped_since(&self) -> u64 {
        self.state.stopped_since(self.settings.limits.fail_fast).unwrap_or(u64::MAX)
    }

    /// Finds the tasks that may start although a failure keeps the others from it, by what was open
    /// when it was recorded. So a resumed run finds the same.
    fn spared_now(&self) -> HashSet<usize> {
        let plan = &self.settings.plan;
        let failed = self.stopped_since();
        let is_open = |place: &usize| {
            let status = self.state.task(&plan.tasks()[*place].name);
            let was_open = |status: &TaskStatus| {
                let is_open = status.standing() == Standing::Open || status.ended_seq > failed;
                is_open && status.added_seq < failed
            };
            status.is_some_and(was_open)
        };
        let accepting = (0..plan.tasks().len()).filter(|place| {
            plan.member(*place).is_none()
                && plan.tasks()[*place].effective_join().accepts_failure()
                && !plan.dependencies(*place).is_empty()
                && is_open(place)
        });
        let accepting: Vec<usize> = accepting.collect();
        let (mut spared, mut open) = (HashSet::new(), accepting.clone());
        while let Some(place) = open.pop() {
            if spared.insert(place) {
                open.extend(plan.dependents(place));
            }
        }
        // `all_done` holds without them, so it needs none of the tasks before it.
        let needy = |place: &usize| plan.tasks()[*place].effective_join().wanted().is_some();
        let before = |place: usize| plan.dependencies(place).iter().copied().filter(is_open);
        let mut open: Vec<usize> = accepting.into_iter().filter(needy).flat_map(before).collect();
        let mut needed = HashSet::new();
        while let Some(place) = open.pop() {
            if needed.insert(place) {
                open.extend(before(place));
            }
        }
        spared.extend(needed);
        spared
    }

    /// Returns the outcome with which the agents of a task must end, if the run or the task was
    /// stopped.
    pub(super) fn sentence_of_task(&self, place: usize) -> Option<Outcome> {
        let cancelled = |reason: &String| Outcome::Cancelled { reason: reason.clone() };
        let of_task = || self.stopping.cancelled(place).map(cancelled);
        let stopped = self.stopping.stopped.as_ref().filter(|_| !self.cleans_up(place));
        stopped.map(Stop::outcome).or_else(of_task)
    }

    /// Returns true if some task shows that the time was used up. One task must show it; otherwise
    /// nobody could see why the run ended.
    fn is_timeout_recorded(&self) -> bool {
        (0..self.settings.plan.tasks().len()).any(|place| match self.task_state(place) {
            TaskState::Running => true,
            // The task begins at this moment, or its end is on its way to the journal.
            TaskState::Ready | TaskState::Waiting => self.has_change_under_way(place),
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
}

impl Desk<'_, Stopping> {
    /// Handles the failure of a task of the configuration.
    pub(super) fn task_failed(&mut self, place: usize) {
        let is_member = self.settings.plan.member(place).is_some();
        if is_member || self.stopping_failure().is_none() {
            return;
        }
        if self.settings.limits.cancel_running {
            let reason = format!("task `{}` failed", self.name(place));
            self.stop(Stop::Cancelled(reason));
        } else if self.stopping.spared.is_none() {
            self.own().spared = Some(self.spared_now());
            self.post(Decision::TouchAll());
        }
    }

    /// Does again what the last process did after a failure that stopped the others, of which the `written`
    /// tasks of the plan may have been added later.
    pub(super) fn take_up(&mut self, written: usize) {
        if self.stopping_failure().is_some() {
            self.own().spared = Some(self.spared_now());
            let since = self.stopped_since();
            for place in 0..written {
                if self.status(place).map_or(0, |status| status.added_seq) > since {
                    self.spare_added(place);
                }
            }
        }
    }

    /// Cancels the work at hand again, if a recorded failure had cancelled it.
    pub(super) fn fail_as_before(&mut self) {
        let cancels = self.settings.limits.cancel_running;
        if let Some(task) = self.stopping_failure().filter(|_| cancels) {
            let reason = format!("task `{task}` failed");
            self.post(Decision::Stop(Stop::Cancelled(reason)));
        }
    }

    /// Finds those that may start after a failure among tasks that were added to the plan.
    pub(super) fn plan_extended(&mut self, added: Range<usize>) {
        added.for_each(|place| self.spare_added(place));
    }

    /// Adds a task that was added to the plan to those that may start after a failure, if it follows
    /// from one of them or accepts failures.
    fn spare_added(&mut self, place: usize) {
        let Some(spared) = &self.stopping.spared else { return };
        let before = self.settings.plan.dependencies(place);
        let accepts = self.spec(place).effective_join().accepts_failure();
        if before.iter().any(|at| spared.contains(at)) || accepts && !before.is_empty() {
            self.own().spared.get_or_insert_default().insert(place);
        }
    }

    /// Cancels a part of the run. Returns false if there is no such part.
    pub(super) fn cancel(&mut self, target: &CancelTarget, reason: &str) -> bool {
        match target {
            CancelTarget::Run => {
                if self.state.open_tasks() == 0 {
                    // Only hooks are left, which may not change the result.
                    self.post(Decision::EndHook());
                    return true;
                }
                // Whoever cancels a second time does not want to wait for what always runs.
                let is_second = self.stopping.is_stopped();
                self.own().is_cleanup_stopped |= is_second;
                self.stop(Stop::Cancelled(reason.to_owned()));
                true
            }
            CancelTarget::Task(task) => {
                let Some(place) = self.settings.plan.place(task) else { return false };
                self.cancel_task(place, reason);
                for part in 0..self.settings.plan.tasks().len() {
                    if self.name(part).is_part_of(task) && !self.task_state(part).is_end() {
                        self.cancel_task(part, reason);
                    }
                }
                true
            }
            CancelTarget::Agent(agent) => {
                if !self.state.agents().contains_key(agent) {
                    return false;
                }
                let outcome = Outcome::Cancelled { reason: reason.to_owned() };
                self.post(Decision::EndAttempt(agent.clone(), outcome));
                true
            }
        }
    }

    fn cancel_task(&mut self, place: usize, reason: &str) {
        // A task that has not begun is cancelled by its next decision. An agent whose first record
        // is on its way to the journal is ended when that record is durable.
        self.own().cancelled.entry(place).or_insert_with(|| reason.to_owned());
        self.post(Decision::Touch(place));
        let agent = self.status(place).and_then(|status| status.agent.clone());
        if let Some(agent) = agent {
            let outcome = Outcome::Cancelled { reason: reason.to_owned() };
            self.post(Decision::EndAttempt(agent, outcome));
        }
    }

    /// Ends all agents that are at work, and lets nothing new begin, except what always runs.
    pub(super) fn stop(&mut self, stop: Stop) {
        self.post(Decision::EndHook());
        self.own().stopped.get_or_insert_with(|| stop.clone());
        let mains = self.agents.open().map(|(id, _)| id).filter(|id| {
            let agent = self.state.agents().get(*id).filter(|agent| !agent.is_delegated());
            let place = agent.and_then(|agent| self.settings.plan.place(&agent.task));
            agent.is_some() && !place.is_some_and(|place| self.cleans_up(place))
        });
        let mut mains: Vec<_> = mains.cloned().collect();
        mains.sort();
        for agent in mains {
            self.post(Decision::EndAgent(agent, stop.outcome()));
        }
        for place in 0..self.settings.plan.tasks().len() {
            if self.cleans_up(place) {
                self.post(Decision::LimitTask(place));
            }
        }
        self.post(Decision::TouchAll());
    }

    /// Stops a run that has used up its time.
    pub(super) fn time_is_up(&mut self, failure: Failure) {
        if !self.stopping.is_stopped() && !self.is_timeout_recorded() {
            self.own().unrecorded = Some(failure.clone());
        }
        self.stop(Stop::Failed(failure));
    }

    /// Stops a run whose beginning failed.
    pub(super) fn fail_beginning(&mut self, failure: Failure) {
        // Nothing has begun that could be cleaned up.
        self.own().is_cleanup_stopped = true;
        // One task shows why the run ended.
        if self.state.first_failed().is_none() {
            self.own().unrecorded = Some(failure.clone());
        }
        self.stop(Stop::Failed(failure));
    }

    /// Notes that a task records the failure that one must record.
    pub(super) fn failure_recorded(&mut self) {
        self.own().unrecorded = None;
    }
}
