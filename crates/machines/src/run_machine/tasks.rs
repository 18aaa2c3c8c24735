//! Decides about tasks: when they become ready, start, are skipped or cancelled, and how they end.

use std::collections::BTreeSet;
use std::time::Duration;

use super::decision::{CHANGED, Decision, SUPERSEDED};
use super::desk::Desk;
use super::evaluation::Wanted;
use super::timers::Timer;
use super::{Facts, Made};
use crate::event::{Draft, Event};
use crate::failure::Failure;
use crate::id::AgentId;
use crate::message::Json;
use crate::output::Output;
use crate::plan::{
    Readiness, Standing, TaskCancelled, TaskReady, TaskSkipped, TaskStarted, TaskState,
};
use crate::turn::{AgentSpawned, Program};

/// Reason for ending an agent whose task took an earlier result.
const REUSED: &str = "its task reuses an earlier result";

/// The tasks, as far as no record tells of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    /// Those whose next attempt begins when the run is resumed, by place in the plan.
    waiting_for_resume: BTreeSet<usize>,
}

impl Tasks {
    /// Returns the tasks whose next attempt begins when the run is resumed, by place in the plan.
    pub(super) fn waiting_for_resume(&self) -> &BTreeSet<usize> {
        &self.waiting_for_resume
    }
}

/// The way in which an attempt of a task begins.
#[derive(Clone, Debug, PartialEq)]
enum Beginning {
    /// The attempt fails at once: a template cannot be rendered.
    Fails(Failure),
    /// The task takes the result that was made earlier from the same content.
    Reuses {
        /// The key of the content.
        key: String,
        /// The result.
        output: Output,
    },
    /// The attempt that was under way when a new configuration was accepted resumes: it would be
    /// made from the same content now.
    GoesOn(AgentId, TaskStarted),
    /// A new attempt starts.
    Starts {
        /// The key of the content.
        key: String,
        /// The program of its agent.
        program: Program,
    },
}

/// The decision about a task that has not begun an attempt.
enum Unstarted {
    /// The task waits for other tasks, or for the end of a pause.
    Waits,
    /// The task wants a slot.
    Starts,
    /// This change, which does not begin an attempt, is recorded.
    Becomes(Box<Event>),
}

impl Facts {
    /// Returns the end of a task whose dependencies keep it from starting. It names the first of
    /// them that did not succeed.
    fn skipped(&self, place: usize) -> Event {
        let join = self.spec(place).effective_join();
        let dependencies = self.settings.plan.dependencies(place).iter();
        let standings = dependencies.map(|dependency| (*dependency, self.standing(*dependency)));
        let because = standings.into_iter().find(|(_, standing)| standing.is_reason_to_skip(join));
        let reason = match because {
            Some((task, Standing::SkippedByFailure)) => {
                format!("task `{}` was skipped", self.name(task))
            }
            Some((task, _)) => format!("task `{}` did not succeed", self.name(task)),
            None => "too few of the tasks that it depends on completed".to_owned(),
        };
        let because = because.map(|(task, _)| self.name(task).clone());
        TaskSkipped { reason, because }.into()
    }

    /// Returns the record of the start of an attempt.
    fn started(&self, place: usize, attempt: u32, agent: &AgentId, key: String) -> TaskStarted {
        let item = self.item(place).map(|item| item.key);
        TaskStarted { attempt, agent: Some(agent.clone()), instances: None, key: Some(key), item }
    }
}

impl Desk<'_, Tasks> {
    /// Decides about a task that was touched and has no change on its way to the journal.
    pub(super) fn decide(&mut self, place: usize) {
        match self.task_state(place) {
            TaskState::Pending | TaskState::Ready | TaskState::Waiting => {}
            TaskState::Running if self.spec(place).fan_out.is_some() => {
                return self.post(Decision::ConcludeFanOut(place));
            }
            TaskState::Running => return self.post(Decision::ConcludeAttempt(place)),
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Reused => return,
        }
        let next = self.unstarted(place);
        if self.scarce.is_preparing(place) {
            let holds = self.pauses.is_disk_full() || self.holds_starts();
            match next {
                Unstarted::Starts if !self.evaluating.is_done(place) => return,
                Unstarted::Starts if !holds => return self.start(place),
                _ => self.post(Decision::GiveBack(place)),
            }
        }
        match next {
            Unstarted::Starts if self.spec(place).fan_out.is_some() => {
                self.post(Decision::FanOut(place));
            }
            Unstarted::Starts if self.is_approval(place) => {
                self.post(Decision::Approve(place));
            }
            Unstarted::Starts if self.is_graph(place) => {
                self.post(Decision::CompleteGraph(place));
            }
            Unstarted::Starts => self.post(Decision::Claim(place)),
            Unstarted::Waits => {
                self.post(Decision::Unclaim(place));
                self.post(Decision::ReleaseLocks(place));
            }
            Unstarted::Becomes(event) => {
                self.post(Decision::Unclaim(place));
                self.post(Decision::ForgetEvaluation(place));
                match *event {
                    Event::TaskReady(_) => self.record_task(place, *event),
                    event => self.end_unstarted(place, event),
                }
            }
        }
    }

    fn unstarted(&mut self, place: usize) -> Unstarted {
        if let Some(reason) = self.stopping.cancelled(place) {
            let cancelled = TaskCancelled { reason: reason.clone() };
            return Unstarted::Becomes(Box::new(cancelled.into()));
        }
        if self.task_state(place) == TaskState::Pending {
            let change = self.pending(place).map(Box::new);
            return change.map_or(Unstarted::Waits, Unstarted::Becomes);
        }
        // One task is enough to record the timeout: the failure is taken, so the others are
        // cancelled.
        if let Some(failure) = self.stopping.unrecorded().cloned() {
            self.post(Decision::FailureRecorded());
            let attempt = self.status(place).map_or(0, |status| status.attempt);
            return Unstarted::Becomes(Box::new(self.failed(place, attempt, failure)));
        }
        if let Some(event) = self.not_to_start(place) {
            return Unstarted::Becomes(Box::new(event));
        }
        let waits_for_resume = self.tasks.waiting_for_resume.contains(&place);
        let waits = waits_for_resume || self.is_task_paused(place);
        match waits || self.timers.is_set(&Timer::Retry(place)) {
            true => Unstarted::Waits,
            false => Unstarted::Starts,
        }
    }

    /// Returns the change of a task that waits for its dependencies, if there is one. A task whose
    /// dependency failed is skipped unless its `join` allows it.
    fn pending(&mut self, place: usize) -> Option<Event> {
        match self.agenda.readiness(place, self.spec(place).effective_join()) {
            Readiness::Ready if self.waits_for_content(place) => self.not_to_start(place),
            Readiness::Wait => self.not_to_start(place),
            Readiness::Skip => Some(self.skipped(place)),
            Readiness::Ready => match self.spec(place).when.clone() {
                None => Some(TaskReady {}.into()),
                Some(when) => match self.truth(place, Wanted::When)? {
                    Ok(true) => Some(TaskReady {}.into()),
                    Ok(false) => {
                        let reason = format!("`when` is false: {when}");
                        Some(TaskSkipped { reason, because: None }.into())
                    }
                    Err(failure) => Some(self.failed(place, 0, failure)),
                },
            },
        }
    }

    /// Records the end of a task that has no attempt under way. Agents of a held attempt are ended
    /// first.
    pub(super) fn end_unstarted(&mut self, place: usize, event: Event) {
        let reason = match &event {
            Event::TaskCancelled(cancelled) => cancelled.reason.clone(),
            Event::TaskSkipped(skipped) => skipped.reason.clone(),
            Event::TaskFailed(failed) => failed.failure.message.clone(),
            _ => SUPERSEDED.to_owned(),
        };
        if self.has_agents(place) || self.has_agents_of_instances(place) {
            return self.post(Decision::Dismiss(place, reason));
        }
        self.record_task(place, event);
    }

    /// Begins an attempt of a task that has got a slot, or keeps the slot until its program is rendered.
    pub(super) fn start(&mut self, place: usize) {
        let Some(beginning) = self.beginning(place) else {
            let attempt = self.status(place).map_or(0, |status| status.attempt) + 1;
            let agent = AgentId::main(self.name(place), attempt);
            return self.post(Decision::Prepare(place, agent));
        };
        if !matches!(beginning, Beginning::Starts { .. } | Beginning::GoesOn(..)) {
            self.post(Decision::GiveBack(place));
        }
        match beginning {
            Beginning::Fails(failure) => {
                let attempt = self.status(place).map_or(0, |status| status.attempt);
                let failed = self.failed(place, attempt, failure);
                self.end_unstarted(place, failed);
            }
            Beginning::Reuses { key, output } => match self.has_agents(place) {
                true => self.post(Decision::Dismiss(place, REUSED.to_owned())),
                false => {
                    self.post(Decision::CheckOutput(place, Made::Whole(output), Some(key)));
                }
            },
            Beginning::GoesOn(agent, started) => {
                self.post(Decision::TakeSlot(place, agent));
                self.record_task(place, started.into());
            }
            Beginning::Starts { key, program } => {
                if let Some(failure) = self.bound(place, 1) {
                    self.post(Decision::GiveBack(place));
                    let attempt = self.status(place).map_or(0, |status| status.attempt);
                    let failed = self.failed(place, attempt, failure);
                    return self.end_unstarted(place, failed);
                }
                match self.has_agents(place) {
                    true => {
                        self.post(Decision::GiveBack(place));
                        self.post(Decision::Dismiss(place, CHANGED.to_owned()));
                    }
                    false => self.start_attempt(place, key, program),
                }
            }
        }
    }

    /// Records a new attempt together with its agent.
    fn start_attempt(&mut self, place: usize, key: String, program: Program) {
        let attempt = self.status(place).map_or(0, |status| status.attempt) + 1;
        let task = self.name(place).clone();
        let agent = AgentId::main(&task, attempt);
        self.post(Decision::TakeSlot(place, agent.clone()));
        self.post(Decision::CountFromNow(place));
        let started = self.started(place, attempt, &agent, key);
        let schema = self.spec(place).acceptance.schema.as_ref();
        let answer_schema = schema.map(|schema| Json::encode(schema.document()));
        let spawned = AgentSpawned { answer_schema, ..AgentSpawned::main(program) };
        let drafts = vec![Draft::task(&task, started), Draft::agent(&task, &agent, spawned)];
        self.record_start(place, drafts);
    }

    /// Decides in which way the next attempt of a task begins. Returns `None` if its program must be rendered
    /// first.
    fn beginning(&mut self, place: usize) -> Option<Beginning> {
        let program = match self.program(place, Wanted::Program)? {
            Ok(program) => program,
            Err(failure) => return Some(Beginning::Fails(failure)),
        };
        let key = self.content(place, &program).key();
        if let Some(output) = self.kept_result(place, &key) {
            return Some(Beginning::Reuses { key, output });
        }
        let status = self.status(place).filter(|status| status.is_held());
        let same = status.filter(|status| status.key.as_ref() == Some(&key));
        match same.and_then(|status| Some((status.agent.clone()?, status.attempt))) {
            // An agent that was asked to end is of no more use; one that has ended concludes its
            // attempt.
            Some((agent, attempt)) if !self.agents.must_end(&agent) => {
                let started = self.started(place, attempt, &agent, key);
                Some(Beginning::GoesOn(agent, started))
            }
            Some(_) | None => Some(Beginning::Starts { key, program }),
        }
    }

    /// Handles a recorded change of a task.
    pub(super) fn changed(&mut self, place: usize, event: &Event) {
        let Some(status) = self.status(place) else { return };
        let (state, agent) = (status.state, status.agent.clone());
        if state.is_end() || state == TaskState::Waiting {
            // Its slot is released only now: the work that gets it must already see that this task failed.
            self.post(Decision::AttemptOver(place, agent));
        }
        if state.is_end() {
            self.own().waiting_for_resume.remove(&place);
            self.post(Decision::TaskEnded(place));
        }
        match event {
            Event::TaskStarted(TaskStarted { instances: Some(_), .. }) => {
                self.post(Decision::Expand(place));
            }
            Event::TaskStarted(_) => {
                self.post(Decision::LimitTask(place));
                self.post(Decision::ResumeAgentsOf(place));
            }
            Event::TaskRetrying(retrying) if retrying.on_resume => {
                self.own().waiting_for_resume.insert(place);
            }
            Event::TaskRetrying(retrying) => {
                let pause = Duration::from_millis(retrying.pause_ms);
                let at = self.now.since + pause;
                self.post(Decision::SetTimer(at, Timer::Retry(place)));
            }
            Event::TaskFailed(_) => self.post(Decision::HeedFailure(place)),
            _ => {}
        }
    }

    /// Derives what no record holds of the tasks from this one on.
    pub(super) fn take_up(&mut self, first: usize) {
        for place in first..self.settings.plan.tasks().len() {
            let Some(status) = self.status(place) else { continue };
            match (status.state, status.retry_ms) {
                (TaskState::Waiting, Some(until)) => {
                    // The clock may have gone back meanwhile.
                    let most = status.pause_ms.unwrap_or(u64::MAX);
                    let left = until.saturating_sub(self.now.wall_ms);
                    let pause = u64::try_from(left).unwrap_or(0).min(most);
                    let at = self.now.since + Duration::from_millis(pause);
                    self.post(Decision::SetTimer(at, Timer::Retry(place)));
                }
                (TaskState::Running, _) if status.agent.is_some() => {
                    self.post(Decision::HoldLocks(place));
                }
                (state, _) if state.is_end() => self.post(Decision::NoteValue(place)),
                _ => {}
            }
        }
    }
}
