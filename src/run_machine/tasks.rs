//! Decides about tasks: when they become ready, start, are skipped or cancelled, and how they end.

use std::time::Duration;

use super::decision::Decision;
use super::evaluation::Wanted;
use super::facts::Facts;
use super::scope;
use super::slots::{Next, Rank};
use super::timers::Timer;
use super::turns::Owner;
use super::{Made, RunMachine};
use crate::event::{Draft, Event};
use crate::failure::Failure;
use crate::id::AgentId;
use crate::message::Json;
use crate::output::Output;
use crate::plan::{
    Readiness, Standing, TaskCancelled, TaskReady, TaskSkipped, TaskStarted, TaskState,
};
use crate::run_state::TaskStatus;
use crate::spec::TaskSpec;
use crate::turn::{AgentSpawned, Program};

/// Reason for ending an agent whose task is now made from other content.
pub(super) const CHANGED: &str = "what its task is made from has changed";

/// Reason for ending an agent whose task took an earlier result.
const REUSED: &str = "its task reuses an earlier result";

/// Reason for ending an agent of an earlier attempt.
pub(super) const SUPERSEDED: &str = "its task continues without it";

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
    /// The task waits for other tasks, or for the end of its pause.
    Waits,
    /// The task wants a slot.
    Starts,
    /// This change, which does not begin an attempt, is recorded.
    Becomes(Box<Event>),
}

impl Facts {
    /// Returns true if a task still has agents.
    pub(super) fn has_agents(&self, place: usize) -> bool {
        self.status(place).is_some_and(|status| status.open_agents > 0)
    }

    /// Takes the next work that gets a slot.
    pub(super) fn next_for_slot(&mut self) -> Option<Next<super::facts::Child>> {
        let next = self.slots.next_return();
        // On a full disk, or without a quota, begun agents still get their slots back, but nothing new starts.
        if next.is_some() || self.is_disk_full || self.holds_starts() {
            return next;
        }
        self.slots.next_start()
    }

    /// Returns the owner of the task at `place`, or of the children of its agents.
    pub(super) fn owner(&self, place: usize, rank: Rank) -> Owner {
        match (self.settings.plan.member(place), rank) {
            (Some(member), _) => Owner::Task(member.of),
            (None, Rank::Main) => Owner::Graph,
            (None, Rank::Child) => Owner::Task(place),
        }
    }

    /// Returns the end of a task whose dependencies keep it from starting. It names the first of
    /// them that did not succeed.
    fn skipped(&self, place: usize) -> Event {
        let join = self.spec(place).effective_join();
        let dependencies = self.settings.plan.dependencies(place).iter();
        let standings = dependencies.map(|dependency| (*dependency, self.standing(*dependency)));
        let because = standings.into_iter().find(|(_, standing)| join.is_reason_to_skip(*standing));
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

    pub(super) fn spec(&self, place: usize) -> &TaskSpec {
        &self.settings.plan.tasks()[place]
    }

    pub(super) fn status(&self, place: usize) -> Option<&TaskStatus> {
        self.state.task(self.name(place))
    }

    /// Asks for a slot for a task that could start and has its locks.
    fn want_slot(&mut self, place: usize) {
        let (owner, precedence) = (self.owner(place, Rank::Main), self.precedence(place));
        self.slots.want_task(owner, precedence);
    }

    /// Gives a slot to the agent of a task. The turn counts once, when the slot is taken.
    fn take_slot(&mut self, place: usize, agent: AgentId) {
        match self.preparing.remove(&place) {
            Some(before) => self.slots.hand_over(&before, agent),
            None => {
                let owner = self.owner(place, Rank::Main);
                self.slots.begin(agent, Rank::Main, owner, place);
            }
        }
    }

    /// Stores the value of an ended task for templates.
    pub(super) fn note_value(&mut self, place: usize) {
        let name = self.name(place).clone();
        // The output of a completed task was stored when it was checked.
        let known = self.values.remove(name.as_str());
        let known = known.unwrap_or_else(|| {
            // The instances of a fan-out that did not complete have their ends nevertheless.
            let ends = self.agenda.is_awaited(place).then(|| self.ends_of_instances(place));
            scope::value_of(self.spec(place), ends.flatten().unwrap_or_default())
        });
        if let Some(status) = self.state.task(&name) {
            let results = self.settings.plan.is_read_as_file(place);
            let results = results.then_some(self.settings.results.as_path());
            let value = scope::ended(status, &known, self.state.partial(status), results);
            for (instance, _) in &status.instances {
                self.values.remove(instance.as_str());
            }
            self.values.insert(name.to_string(), value);
        }
        self.drop_unused_value(place);
    }

    /// Drops the value of a task that no later task may name: outputs can be large.
    fn drop_unused_value(&mut self, place: usize) {
        let may_be_named = self.settings.grows && self.settings.plan.member(place).is_none();
        if !self.agenda.is_awaited(place) && !may_be_named {
            let name = self.name(place).clone();
            self.values.remove(name.as_str());
        }
    }
}

impl RunMachine {
    /// Decides about a task that was touched and has no change on its way to the journal.
    pub(super) fn decide_task(&mut self, place: usize) {
        match self.facts.task_state(place) {
            TaskState::Pending | TaskState::Ready | TaskState::Waiting => {}
            TaskState::Running if self.facts.spec(place).fan_out.is_some() => {
                return self.post(Decision::SettleFanOut(place));
            }
            TaskState::Running => return self.post(Decision::SettleAttempt(place)),
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Reused => return,
        }
        let next = self.unstarted(place);
        if self.facts.preparing.contains_key(&place) {
            let holds = self.facts.is_disk_full || self.facts.holds_starts();
            match next {
                Unstarted::Starts if !self.facts.is_prepared(place) => return,
                Unstarted::Starts if !holds => return self.start_task(place),
                _ => self.facts.give_back(place),
            }
        }
        match next {
            Unstarted::Starts if self.facts.spec(place).fan_out.is_some() => {
                self.post(Decision::FanOut(place));
            }
            Unstarted::Starts if self.facts.is_approval(place) => {
                self.post(Decision::Approve(place));
            }
            Unstarted::Starts if self.facts.is_graph(place) => {
                self.post(Decision::CompleteGraph(place));
            }
            Unstarted::Starts if self.facts.claim_locks(place) => self.facts.want_slot(place),
            Unstarted::Starts => self.facts.slots.forget_task(place),
            Unstarted::Waits => {
                self.facts.slots.forget_task(place);
                self.facts.release_locks(place);
            }
            Unstarted::Becomes(event) => {
                self.facts.slots.forget_task(place);
                self.facts.evaluating.remove(&place);
                match *event {
                    Event::TaskReady(_) => self.record_task(place, *event),
                    event => self.end_unstarted(place, event),
                }
            }
        }
    }

    fn unstarted(&mut self, place: usize) -> Unstarted {
        if let Some(reason) = self.facts.cancelled.get(&place) {
            let cancelled = TaskCancelled { reason: reason.clone() };
            return Unstarted::Becomes(Box::new(cancelled.into()));
        }
        if self.facts.task_state(place) == TaskState::Pending {
            let change = self.pending(place).map(Box::new);
            return change.map_or(Unstarted::Waits, Unstarted::Becomes);
        }
        // One task is enough to record the timeout: the failure is taken, so the others are
        // cancelled.
        if let Some(failure) = self.facts.untold.take() {
            let attempt = self.facts.status(place).map_or(0, |status| status.attempt);
            return Unstarted::Becomes(Box::new(self.facts.failed(place, attempt, failure)));
        }
        if let Some(event) = self.facts.not_to_start(place) {
            return Unstarted::Becomes(Box::new(event));
        }
        let waits_for_resume = self.facts.waiting_for_resume.contains(&place);
        match waits_for_resume || self.facts.timers.is_set(&Timer::Retry(place)) {
            true => Unstarted::Waits,
            false => Unstarted::Starts,
        }
    }

    /// Returns the change of a task that waits for its dependencies, if there is one. A task whose
    /// dependency failed is skipped unless its `join` allows it.
    fn pending(&mut self, place: usize) -> Option<Event> {
        match self.facts.agenda.readiness(place, self.facts.spec(place).effective_join()) {
            Readiness::Ready if self.facts.waits_for_content(place) => {
                self.facts.not_to_start(place)
            }
            Readiness::Wait => self.facts.not_to_start(place),
            Readiness::Skip => Some(self.facts.skipped(place)),
            Readiness::Ready => match self.facts.spec(place).when.clone() {
                None => Some(TaskReady {}.into()),
                Some(when) => match self.facts.truth(place, Wanted::When)? {
                    Ok(true) => Some(TaskReady {}.into()),
                    Ok(false) => {
                        let reason = format!("`when` is false: {when}");
                        Some(TaskSkipped { reason, because: None }.into())
                    }
                    Err(failure) => Some(self.facts.failed(place, 0, failure)),
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
        if self.facts.has_agents(place) || self.facts.has_agents_of_instances(place) {
            return self.post(Decision::Dismiss(place, reason));
        }
        self.record_task(place, event);
    }

    /// Begins an attempt of a task that has got a slot, or keeps the slot until its program is rendered.
    pub(super) fn start_task(&mut self, place: usize) {
        let Some(beginning) = self.beginning(place) else {
            let attempt = self.facts.status(place).map_or(0, |status| status.attempt) + 1;
            let agent = AgentId::main(self.facts.name(place), attempt);
            self.facts.take_slot(place, agent.clone());
            self.facts.preparing.insert(place, agent);
            return;
        };
        if !matches!(beginning, Beginning::Starts { .. } | Beginning::GoesOn(..)) {
            self.facts.give_back(place);
        }
        match beginning {
            Beginning::Fails(failure) => {
                let attempt = self.facts.status(place).map_or(0, |status| status.attempt);
                let failed = self.facts.failed(place, attempt, failure);
                self.end_unstarted(place, failed);
            }
            Beginning::Reuses { key, output } => match self.facts.has_agents(place) {
                true => self.post(Decision::Dismiss(place, REUSED.to_owned())),
                false => {
                    self.post(Decision::CheckOutput(place, Made::Whole(output), Some(key)));
                }
            },
            Beginning::GoesOn(agent, started) => {
                self.facts.take_slot(place, agent);
                self.record_task(place, started.into());
            }
            Beginning::Starts { key, program } => {
                if let Some(failure) = self.facts.bound(place, 1) {
                    self.facts.give_back(place);
                    let attempt = self.facts.status(place).map_or(0, |status| status.attempt);
                    let failed = self.facts.failed(place, attempt, failure);
                    return self.end_unstarted(place, failed);
                }
                match self.facts.has_agents(place) {
                    true => {
                        self.facts.give_back(place);
                        self.post(Decision::Dismiss(place, CHANGED.to_owned()));
                    }
                    false => self.start_attempt(place, key, program),
                }
            }
        }
    }

    /// Records a new attempt together with its agent.
    fn start_attempt(&mut self, place: usize, key: String, program: Program) {
        let attempt = self.facts.status(place).map_or(0, |status| status.attempt) + 1;
        let task = self.facts.name(place).clone();
        let agent = AgentId::main(&task, attempt);
        self.facts.take_slot(place, agent.clone());
        self.facts.proposed.insert(place);
        self.facts.count_from_now(place);
        let started = self.facts.started(place, attempt, &agent, key);
        let schema = self.facts.spec(place).acceptance.schema.as_ref();
        let answer_schema = schema.map(|schema| Json::encode(schema.document()));
        let spawned = AgentSpawned { answer_schema, ..AgentSpawned::main(program) };
        self.record(vec![Draft::task(&task, started), Draft::agent(&task, &agent, spawned)]);
    }

    /// Decides in which way the next attempt of a task begins. Returns `None` if its program must be rendered
    /// first.
    fn beginning(&mut self, place: usize) -> Option<Beginning> {
        let program = match self.facts.program(place, Wanted::Program)? {
            Ok(program) => program,
            Err(failure) => return Some(Beginning::Fails(failure)),
        };
        let key = self.facts.content(place, &program).key();
        if let Some(output) = self.facts.kept_result(place, &key) {
            return Some(Beginning::Reuses { key, output });
        }
        let status = self.facts.status(place).filter(|status| status.is_held());
        let same = status.filter(|status| status.key.as_ref() == Some(&key));
        match same.and_then(|status| Some((status.agent.clone()?, status.attempt))) {
            // An agent that was asked to end is of no more use; one that has ended settles its
            // attempt.
            Some((agent, attempt)) if self.facts.told(&agent).is_none() => {
                let started = self.facts.started(place, attempt, &agent, key);
                Some(Beginning::GoesOn(agent, started))
            }
            Some(_) | None => Some(Beginning::Starts { key, program }),
        }
    }

    /// Handles a recorded change of a task.
    pub(super) fn task_changed(&mut self, place: usize, event: &Event) {
        match event {
            Event::TaskStarted(TaskStarted { instances: Some(_), .. }) => {
                self.post(Decision::Expand(place));
            }
            Event::TaskStarted(_) => {
                self.post(Decision::LimitTask(place));
                self.post(Decision::ResumeAgentsOf(place));
            }
            Event::TaskRetrying(retrying) if retrying.on_resume => {
                self.facts.waiting_for_resume.insert(place);
            }
            Event::TaskRetrying(retrying) => {
                let pause = Duration::from_millis(retrying.pause_ms);
                self.facts.timers.set(self.facts.now.since + pause, Timer::Retry(place));
            }
            Event::TaskFailed(_) => self.post(Decision::HeedFailure(place)),
            _ => {}
        }
        let Some(status) = self.facts.status(place) else { return };
        let (state, agent) = (status.state, status.agent.clone());
        if state.is_end() || state == TaskState::Waiting {
            self.facts.timers.cancel(&Timer::TaskLimit(place));
            // Released only now: the work that gets the slot must already see that this task
            // failed.
            agent.iter().for_each(|agent| self.facts.slots.release(agent));
            self.facts.release_locks(place);
            self.facts.judged.remove(&place);
            self.facts.evaluating.remove(&place);
        }
        if state.is_end() {
            self.facts.shares.ended(place);
            self.facts.waiting_for_resume.remove(&place);
            self.facts.timers.cancel(&Timer::Retry(place));
            self.facts.note_value(place);
            self.facts.items.remove(&place);
            for dependency in self.facts.settings.plan.dependencies(place).to_vec() {
                self.facts.drop_unused_value(dependency);
            }
        }
    }
}
