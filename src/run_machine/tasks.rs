//! Decides about tasks: when they become ready, start, are skipped or cancelled, and how they end.

use std::time::Duration;

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
}

impl RunMachine {
    /// Decides about a task that was touched and has no change on its way to the journal.
    pub(super) fn decide_task(&mut self, place: usize) {
        match self.facts.task_state(place) {
            TaskState::Pending | TaskState::Ready | TaskState::Waiting => {}
            TaskState::Running if self.facts.spec(place).fan_out.is_some() => {
                return self.settle_fan_out(place);
            }
            TaskState::Running => return self.settle_when_quiet(place),
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
                _ => self.give_back(place),
            }
        }
        match next {
            Unstarted::Starts if self.facts.spec(place).fan_out.is_some() => {
                self.start_fan_out(place)
            }
            Unstarted::Starts if self.facts.is_approval(place) => self.decide_approval(place),
            Unstarted::Starts if self.facts.is_graph(place) => self.complete_graph(place),
            Unstarted::Starts if self.claim_locks(place) => self.want_slot(place),
            Unstarted::Starts => self.facts.slots.forget_task(place),
            Unstarted::Waits => {
                self.facts.slots.forget_task(place);
                self.release_locks(place);
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

    /// Asks for a slot for a task that could start and has its locks.
    fn want_slot(&mut self, place: usize) {
        let (owner, precedence) =
            (self.facts.owner(place, Rank::Main), self.facts.precedence(place));
        self.facts.slots.want_task(owner, precedence);
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
                Some(when) => match self.truth(place, Wanted::When)? {
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
        // Both are asked: agents of an attempt and of instances may wait to be resumed.
        let has_agents = self.wait_for_agents(place, &reason);
        if !self.wait_for_instances(place, &reason) && !has_agents {
            self.record_task(place, event);
        }
    }

    /// Returns true if a task still has agents, and ends those that wait to be resumed, with this
    /// reason. The task is decided again when its agents have ended.
    pub(super) fn wait_for_agents(&mut self, place: usize, reason: &str) -> bool {
        let has_agents = self.facts.status(place).is_some_and(|status| status.open_agents > 0);
        if has_agents {
            let task = self.facts.name(place).clone();
            self.dismiss_left_of(&task, reason);
        }
        has_agents
    }

    /// Gives free slots to waiting agents and tasks.
    pub(super) fn fill_slots(&mut self) {
        while let Some(next) = self.next_for_slot() {
            match next {
                Next::Return(agent) => self.slot_granted(agent),
                Next::Child(child) => self.start_child(child),
                Next::Task(place) => self.start_task(place),
            }
        }
    }

    fn next_for_slot(&mut self) -> Option<Next<super::facts::Child>> {
        let next = self.facts.slots.next_return();
        // On a full disk, or without a quota, begun agents still get their slots back, but nothing new starts.
        if next.is_some() || self.facts.is_disk_full || self.facts.holds_starts() {
            return next;
        }
        self.facts.slots.next_start()
    }

    /// Begins an attempt of a task that has got a slot, or keeps the slot until its program is rendered.
    pub(super) fn start_task(&mut self, place: usize) {
        let Some(beginning) = self.beginning(place) else {
            let attempt = self.facts.status(place).map_or(0, |status| status.attempt) + 1;
            let agent = AgentId::main(self.facts.name(place), attempt);
            self.take_slot(place, agent.clone());
            self.facts.preparing.insert(place, agent);
            return;
        };
        if !matches!(beginning, Beginning::Starts { .. } | Beginning::GoesOn(..)) {
            self.give_back(place);
        }
        match beginning {
            Beginning::Fails(failure) => {
                let attempt = self.facts.status(place).map_or(0, |status| status.attempt);
                let failed = self.facts.failed(place, attempt, failure);
                self.end_unstarted(place, failed);
            }
            Beginning::Reuses { key, output } => {
                if !self.wait_for_agents(place, REUSED) {
                    self.check_output(place, Made::Whole(output), Some(key));
                }
            }
            Beginning::GoesOn(agent, started) => {
                self.take_slot(place, agent);
                self.record_task(place, started.into());
            }
            Beginning::Starts { key, program } => {
                if let Some(failure) = self.facts.bound(place, 1) {
                    self.give_back(place);
                    let attempt = self.facts.status(place).map_or(0, |status| status.attempt);
                    let failed = self.facts.failed(place, attempt, failure);
                    return self.end_unstarted(place, failed);
                }
                match self.wait_for_agents(place, CHANGED) {
                    true => self.give_back(place),
                    false => self.start_attempt(place, key, program),
                }
            }
        }
    }

    /// Gives a slot to the agent of a task. The turn counts once, when the slot is taken.
    fn take_slot(&mut self, place: usize, agent: AgentId) {
        match self.facts.preparing.remove(&place) {
            Some(before) => self.facts.slots.hand_over(&before, agent),
            None => {
                let owner = self.facts.owner(place, Rank::Main);
                self.facts.slots.begin(agent, Rank::Main, owner, place);
            }
        }
    }

    /// Records a new attempt together with its agent.
    fn start_attempt(&mut self, place: usize, key: String, program: Program) {
        let attempt = self.facts.status(place).map_or(0, |status| status.attempt) + 1;
        let task = self.facts.name(place).clone();
        let agent = AgentId::main(&task, attempt);
        self.take_slot(place, agent.clone());
        self.facts.proposed.insert(place);
        self.count_from_now(place);
        let started = self.facts.started(place, attempt, &agent, key);
        let schema = self.facts.spec(place).acceptance.schema.as_ref();
        let answer_schema = schema.map(|schema| Json::encode(schema.document()));
        let spawned = AgentSpawned { answer_schema, ..AgentSpawned::main(program) };
        self.record(vec![Draft::task(&task, started), Draft::agent(&task, &agent, spawned)]);
    }

    /// Decides in which way the next attempt of a task begins. Returns `None` if its program must be rendered
    /// first.
    fn beginning(&mut self, place: usize) -> Option<Beginning> {
        let program = match self.program(place, Wanted::Program)? {
            Ok(program) => program,
            Err(failure) => return Some(Beginning::Fails(failure)),
        };
        let key = self.content(place, &program).key();
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
            Event::TaskStarted(TaskStarted { instances: Some(_), .. }) => self.expand(place),
            Event::TaskStarted(_) => {
                self.start_task_limit(place);
                self.resume_agents_of(place);
            }
            Event::TaskRetrying(retrying) if retrying.on_resume => {
                self.facts.waiting_for_resume.insert(place);
            }
            Event::TaskRetrying(retrying) => {
                let pause = Duration::from_millis(retrying.pause_ms);
                self.facts.timers.set(self.facts.now.since + pause, Timer::Retry(place));
            }
            Event::TaskFailed(_) => self.task_failed(place),
            _ => {}
        }
        let Some(status) = self.facts.status(place) else { return };
        let (state, agent) = (status.state, status.agent.clone());
        if state.is_end() || state == TaskState::Waiting {
            self.facts.timers.cancel(&Timer::TaskLimit(place));
            // Released only now: the work that gets the slot must already see that this task
            // failed.
            agent.iter().for_each(|agent| self.facts.slots.release(agent));
            self.release_locks(place);
            self.facts.judged.remove(&place);
            self.facts.evaluating.remove(&place);
        }
        if state.is_end() {
            self.facts.shares.ended(place);
            self.facts.waiting_for_resume.remove(&place);
            self.facts.timers.cancel(&Timer::Retry(place));
            self.note_value(place);
            self.facts.items.remove(&place);
            for dependency in self.facts.settings.plan.dependencies(place).to_vec() {
                self.drop_unused_value(dependency);
            }
        }
    }

    /// Stores the value of an ended task for templates.
    pub(super) fn note_value(&mut self, place: usize) {
        let name = self.facts.name(place).clone();
        // The output of a completed task was stored when it was checked.
        let known = self.facts.values.remove(name.as_str());
        let known = known.unwrap_or_else(|| {
            // The instances of a fan-out that did not complete have their ends nevertheless.
            let ends =
                self.facts.agenda.is_awaited(place).then(|| self.facts.ends_of_instances(place));
            scope::value_of(self.facts.spec(place), ends.flatten().unwrap_or_default())
        });
        if let Some(status) = self.facts.state.task(&name) {
            let results = self.facts.settings.plan.is_read_as_file(place);
            let results = results.then_some(self.facts.settings.results.as_path());
            let value = scope::ended(status, &known, self.facts.state.partial(status), results);
            for (instance, _) in &status.instances {
                self.facts.values.remove(instance.as_str());
            }
            self.facts.values.insert(name.to_string(), value);
        }
        self.drop_unused_value(place);
    }

    /// Drops the value of a task that no later task may name: outputs can be large.
    fn drop_unused_value(&mut self, place: usize) {
        let may_be_named =
            self.facts.settings.grows && self.facts.settings.plan.member(place).is_none();
        if !self.facts.agenda.is_awaited(place) && !may_be_named {
            let name = self.facts.name(place).clone();
            self.facts.values.remove(name.as_str());
        }
    }
}
