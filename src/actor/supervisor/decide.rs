//! What happens next in the plan: which tasks become ready, start, are skipped, end the run.

use std::time::Duration;

use ractor::ActorRef;

use super::program::{self, Scope};
use super::restore::{CHANGED, REUSED, UNUSED};
use super::{CancelTarget, RunEnd, State, Stop, Supervisor, SupervisorMsg};
use crate::actor::Services;
use crate::actor::slots::Rank;
use crate::event::{Draft, Event, PauseCause, RunPaused, RunStatus};
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, Name};
use crate::journal::room::{PATIENCE, Room};
use crate::plan::{
    Readiness, Standing, TaskCancelled, TaskFailed, TaskReady, TaskSkipped, TaskStarted, TaskState,
};
use crate::run_state::TaskStatus;
use crate::spec::{Join, TaskSpec};
use crate::template;
use crate::turn::content::Content;
use crate::turn::{AgentSpawned, Outcome, Program};

impl Supervisor {
    /// Proposes all that follows from the state now. Called after every change.
    pub(super) fn decide(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State) {
        if state.end.is_none() || state.finishing {
            return;
        }
        if state.interrupted.is_some() {
            return self.pause_when_quiet(state);
        }
        while let Some(ticket) = state.slots.resume_one() {
            // An agent that was cancelled while it waited has dropped its end; its slot comes
            // back with its end.
            let _ = ticket.send(());
        }
        if state.room == Room::Enough {
            self.start_children(state);
        }
        for task in self.plan.tasks() {
            if !state.proposed.contains(&task.name) {
                self.decide_task(myself, state, task);
            }
        }
        self.complete_when_done(state);
    }

    fn decide_task(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State, task: &TaskSpec) {
        let Some(status) = state.run.task(&task.name) else { return };
        let now = status.state;
        let attempts = status.attempt;
        let begun = now.is_end() || now == TaskState::Running;
        if let Some(reason) = state.cancel_requested.get(&task.name).filter(|_| !begun) {
            let event = TaskCancelled { reason: reason.clone() }.into();
            return self.propose_task(state, &task.name, event);
        }
        match now {
            TaskState::Pending => {
                if let Some(event) = self.judge_pending(state, task) {
                    self.propose_task(state, &task.name, event);
                }
            }
            TaskState::Ready | TaskState::Waiting => {
                if let Some(failure) = Self::out_of_time(state) {
                    let event = TaskFailed { attempt: attempts, failure };
                    self.propose_task(state, &task.name, event.into());
                } else if let Some(event) = self.not_to_start(state, task) {
                    self.propose_task(state, &task.name, event);
                } else if !state.resting.contains(&task.name)
                    && state.room == Room::Enough
                    && state.slots.has_room(Rank::Main)
                {
                    self.start_task(myself, state, task, attempts + 1);
                }
            }
            TaskState::Running
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Reused => {}
        }
    }

    /// Why nothing new starts, as the event that ends a task which has not begun. A task that waits
    /// for the mere end of others is meant for this very case, and starts.
    fn not_to_start(&self, state: &State, task: &TaskSpec) -> Option<Event> {
        if let Some(stop) = &state.stopped {
            let reason = stop.reason().to_owned();
            return Some(TaskCancelled { reason }.into());
        }
        if task.join == Join::AllDone {
            return None;
        }
        let failed = state.first_failed.as_ref().filter(|_| self.services.limits.fail_fast)?;
        let reason = format!("not started: task `{failed}` failed");
        Some(TaskSkipped { reason, because: Some(failed.clone()) }.into())
    }

    /// Why a task fails that could have begun when the run's time was used up: one task must tell
    /// what the run's end is due to, also when none was at work by then.
    fn out_of_time(state: &State) -> Option<Failure> {
        let Some(Stop::TimedOut(failure)) = &state.stopped else { return None };
        let tells = |(name, task): (&Name, &TaskStatus)| match task.state {
            TaskState::Running => true,
            // It begins this moment, or its end is on its way.
            TaskState::Ready | TaskState::Waiting => state.proposed.contains(name),
            TaskState::Failed => {
                task.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Timeout)
            }
            TaskState::Pending
            | TaskState::Completed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Reused => false,
        };
        (!state.run.tasks().any(tells)).then(|| failure.clone())
    }

    fn judge_pending(&self, state: &State, task: &TaskSpec) -> Option<Event> {
        let readiness = self.plan.readiness(task, |name| state.run.standing(name));
        match readiness {
            Readiness::Wait => self.not_to_start(state, task),
            Readiness::Skip { because } => {
                let reason = match state.run.standing(&because) {
                    Standing::SkippedByFailure => format!("task `{because}` was skipped"),
                    _ => format!("task `{because}` did not succeed"),
                };
                Some(TaskSkipped { reason, because: Some(because) }.into())
            }
            Readiness::Ready => match &task.when {
                None => Some(TaskReady {}.into()),
                Some(when) => match template::is_true(when, &self.scope(state).values(task)) {
                    Ok(true) => Some(TaskReady {}.into()),
                    Ok(false) => {
                        let reason = format!("`when` is false: {when}");
                        Some(TaskSkipped { reason, because: None }.into())
                    }
                    Err(error) => Some(template_failed("when", &error, 0)),
                },
            },
        }
    }

    /// Begins an attempt: announces it together with its agent.
    fn start_task(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        task: &TaskSpec,
        attempt: u32,
    ) {
        let program = match self.scope(state).program(task) {
            Ok(program) => program,
            Err((place, error)) => {
                let event = template_failed(place, &error, attempt - 1);
                return self.propose_task(state, &task.name, event);
            }
        };
        let key = self.content_key(task, &program);
        if let Some(output) = state.run.earlier_result(&key).cloned() {
            return self.reuse(myself, state, task, key, output);
        }
        if let Some(status) = state.run.task(&task.name).filter(|status| status.is_held()) {
            if status.key.as_ref() == Some(&key) {
                return self.go_on(state, &task.name);
            }
            self.dismiss(state, CHANGED, |_, _, of| *of == task.name);
        }
        let agent = AgentId::main(&task.name, attempt);
        state.slots.take(agent.clone(), Rank::Main);
        state.proposed.insert(task.name.clone());
        let started = TaskStarted { attempt, agent: agent.clone(), key: Some(key) };
        let spawned = AgentSpawned { program, depth: 0, parent: None, call: None };
        let drafts =
            vec![Draft::task(&task.name, started), Draft::agent(&task.name, &agent, spawned)];
        self.propose(state, drafts);
    }

    /// Goes on with the attempt that was under way when another configuration was accepted: it would
    /// be made from the same now.
    fn go_on(&self, state: &mut State, task: &Name) {
        let Some(status) = state.run.task(task) else { return };
        let Some(agent) = status.agent.clone() else { return };
        let (attempt, key) = (status.attempt, status.key.clone());
        state.slots.take(agent.clone(), Rank::Main);
        self.propose_task(state, task, TaskStarted { attempt, agent, key }.into());
    }

    /// What templates of tasks may name by now.
    pub(super) fn scope<'a>(&'a self, state: &'a State) -> Scope<'a> {
        let Services { run, workflow, inputs, .. } = &*self.services;
        Scope { run: *run, workflow, inputs, ended: &state.values }
    }

    /// The key of what a task's result is made from.
    fn content_key(&self, task: &TaskSpec, program: &Program) -> String {
        let Services { env, agents, models, .. } = &*self.services;
        let agent = |name: &Name| agents.get(name).map(|spec| &**spec);
        let model = |name: &Name| models.get(name).map(|service| &service.spec);
        Content::of(program, task.output, env, agent, model).key()
    }

    fn propose_task(&self, state: &mut State, task: &Name, event: Event) {
        state.proposed.insert(task.clone());
        self.propose(state, vec![Draft::task(task, event)]);
    }

    /// A task has a new state: notes what templates see of it, and sets its clock.
    pub(super) fn task_changed(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        task: &Name,
        event: &Event,
    ) {
        match event {
            Event::TaskStarted(_) => self.start_clock_of(myself, state, task),
            Event::TaskRetrying(retrying) => {
                let pause = Duration::from_millis(retrying.pause_ms);
                self.rest(myself, state, pause, task);
            }
            Event::TaskFailed(_) => self.task_failed(state, task),
            _ => {}
        }
        let Some(status) = state.run.task(task) else { return };
        if status.state.is_end() || status.state == TaskState::Waiting {
            // Not before: what takes the place must know that this one failed.
            status.agent.iter().for_each(|agent| state.slots.release(agent));
        }
        if status.state.is_end() {
            let reason = no_more_needed(status);
            Self::note_end(state, task);
            self.dismiss(state, &reason, |_, _, of| of == task);
        }
    }

    /// The task begins no attempt until this time is over.
    pub(super) fn rest(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        pause: Duration,
        task: &Name,
    ) {
        state.resting.insert(task.clone());
        self.later(myself, state, pause, SupervisorMsg::RetryNow(task.clone()));
    }

    pub(super) fn task_failed(&self, state: &mut State, task: &Name) {
        state.first_failed.get_or_insert_with(|| task.clone());
        if self.services.limits.fail_fast && self.services.limits.cancel_running {
            let stop = Stop::Cancelled(format!("task `{task}` failed"));
            self.stop_everything(state, stop);
        }
    }

    /// Notes what templates see of a task that has ended.
    pub(super) fn note_end(state: &mut State, task: &Name) {
        let Some(status) = state.run.task(task) else { return };
        // A completed task's value was noted when it was settled.
        let output = state.values.get_mut(task.as_str()).map(|known| known["output"].take());
        let value = program::ended(status, output.unwrap_or_default());
        state.values.insert(task.to_string(), value);
    }

    /// Cancels; false when there is no such target. What has ended already is cancelled.
    pub(super) fn cancel(&self, state: &mut State, target: &CancelTarget, reason: &str) -> bool {
        match target {
            CancelTarget::Run => {
                self.stop_everything(state, Stop::Cancelled(reason.to_owned()));
                true
            }
            CancelTarget::Task(task) => {
                let Some(status) = state.run.task(task) else { return false };
                let agent = status.agent.clone();
                // What has not begun is cancelled by the next decision, and an agent whose
                // announcement is on its way when it arrives.
                state.cancel_requested.insert(task.clone(), reason.to_owned());
                if let Some(agent) = agent {
                    let outcome = Outcome::Cancelled { reason: reason.to_owned() };
                    self.end_agent(state, &agent, outcome);
                }
                true
            }
            CancelTarget::Agent(agent) => {
                if !state.run.agents().contains_key(agent) {
                    return false;
                }
                let outcome = Outcome::Cancelled { reason: reason.to_owned() };
                self.end_agent(state, agent, outcome);
                true
            }
        }
    }

    pub(super) fn stop_everything(&self, state: &mut State, stop: Stop) {
        for agent in self.main_agents(state) {
            self.end_agent(state, &agent, stop.outcome());
        }
        state.stopped.get_or_insert(stop);
    }

    fn main_agents(&self, state: &State) -> Vec<AgentId> {
        let open = state.run.agents().iter().filter(|(_, status)| status.outcome.is_none());
        open.filter(|(_, status)| status.parent.is_none()).map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn interrupt(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        reason: String,
    ) {
        if state.interrupted.is_some() {
            return;
        }
        state.interrupted = Some(reason);
        if state.room == Room::Scarce {
            // On a full disk nothing that is asked for now may ever be recorded.
            let patience = self.services.limits.grace_period + PATIENCE;
            self.later(myself, state, patience, SupervisorMsg::PauseOverdue);
        }
        state.waiting_children.clear();
        for live in state.live.values() {
            // An agent that is gone has stopped.
            let _ = live.actor.send_message(crate::actor::agent::AgentMsg::Interrupt);
        }
        self.pause_when_quiet(state);
    }

    /// Records the pause once no agent is at work any more.
    fn pause_when_quiet(&self, state: &mut State) {
        // What an agent's end set off is recorded first: a resumed run need not do it again.
        let quiet = state.live.is_empty() && state.proposed.is_empty() && state.ending.is_empty();
        if !quiet || state.finishing {
            return;
        }
        state.finishing = true;
        let reason = state.interrupted.clone().unwrap_or_default();
        self.propose(state, vec![Draft::run(RunPaused { reason, cause: PauseCause::Interrupted })]);
    }

    fn complete_when_done(&self, state: &mut State) {
        let all_ended = state.run.tasks().all(|(_, status)| status.state.is_end());
        // Also one that crashed ends before the run does.
        let quiet = state.live.is_empty()
            && state.proposed.is_empty()
            && state.ending.is_empty()
            && state.condemned.is_empty();
        if !all_ended || !quiet {
            return;
        }
        let mixed = match (&state.stopped, self.services.limits.fail_fast) {
            (Some(_), _) => RunStatus::Cancelled,
            (None, true) => RunStatus::Failed,
            (None, false) => RunStatus::Partial,
        };
        state.finishing = true;
        let result = state.run.result(mixed);
        self.propose(state, vec![Draft::run(result)]);
    }

    /// A bug in the plan's own state: ends the run and says so.
    pub(super) fn broken(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        reason: String,
    ) {
        self.finish(myself, state, RunEnd::Broken(reason));
    }
}

/// Why the agents end that a task still has when it has ended itself.
fn no_more_needed(status: &TaskStatus) -> String {
    let failure = status.failure.as_ref().map(|failure| failure.message.clone());
    let why = status.reason.clone().or(failure);
    why.unwrap_or_else(|| match status.state {
        TaskState::Reused => REUSED.to_owned(),
        _ => UNUSED.to_owned(),
    })
}

fn template_failed(place: &str, error: &template::TemplateError, attempt: u32) -> Event {
    let message = format!("`{place}`, line {}: {}", error.line, error.message);
    TaskFailed { attempt, failure: Failure::new(FailureKind::Template, message) }.into()
}
