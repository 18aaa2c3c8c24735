//! Decides how a run resumes from the end of its records. For a new run it only starts the limits.
//!
//! The open data is derived from the state: pauses between attempts end at their recorded time,
//! agents that are still needed get their slots and actors back, and the other agents end.

use std::time::Duration;

use super::agents::PARENT_ENDED;
use super::decision::Decision;
use super::facts::{Facts, Stage};
use super::slots::Rank;
use super::tasks::SUPERSEDED;
use super::timers::Timer;
use super::{CancelTarget, GivenUp, RunMachine, scope};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::run_state::AgentUse;
use crate::template::Known;
use crate::turn::Outcome;

/// Reason for ending an agent whose task is gone from the configuration.
const TASK_REMOVED: &str = "its task was removed from the configuration";

impl Facts {
    /// Returns the agents of a task that the last process left and that have neither an actor nor
    /// an outcome.
    fn left_of(&self, task: &Name) -> Vec<AgentId> {
        let left = self.left_of_task.get(task).into_iter().flatten();
        let is_idle = |id: &&AgentId| {
            let agent = self.agents.get(*id);
            agent.is_some_and(|agent| agent.stage == Stage::Idle && agent.told.is_none())
        };
        left.filter(is_idle).cloned().collect()
    }
}

impl RunMachine {
    /// Derives what no record holds from the state, as far as the plan as it was written goes.
    pub(super) fn take_up_written(&mut self) {
        for id in self.facts.left.keys().cloned().collect::<Vec<_>>() {
            if let Some(agent) = self.facts.state.agents().get(&id) {
                self.facts.left_of_task.entry(agent.task.clone()).or_default().push(id);
            }
        }
        for (task, value) in &mut self.facts.values {
            let (task, output) = (self.facts.settings.plan.task(task), std::mem::take(value));
            *value = match task {
                Some(task) => scope::value_of(task, output),
                // An instance: the plan learns of it below.
                None => Known::object([("output", output)]),
            };
        }
        self.take_up(0);
    }

    /// Derives the rest, once the instances of what had fanned out are in the plan behind the `written` tasks.
    pub(super) fn take_up_instances(&mut self, written: usize) {
        self.take_up(written);
        self.facts.share_children(0);
        self.facts.count_earlier_children();
        self.count_earlier_turns();
        if self.facts.stopping_failure().is_some() {
            self.facts.spare();
            (0..written).for_each(|place| self.facts.spare_added_before(place));
        }
    }

    /// Stops again what was stopped, and what is not to be tried again.
    pub(super) fn stop_as_before(&mut self) {
        self.fail_as_before();
        if let Some(reason) = self.left_cancel.take() {
            self.post(Decision::Cancel(CancelTarget::Run, reason));
        }
        if let Some(given_up) = self.left_given_up.take() {
            self.post(Decision::GiveUp(given_up));
        }
    }

    /// Resumes the agents of all attempts that are under way, and ends those that are needed no more.
    pub(super) fn resume_agents(&mut self) {
        for place in 0..self.facts.settings.plan.tasks().len() {
            if self.facts.task_state(place) == TaskState::Running {
                self.resume_agents_of(place);
            }
        }
        self.dismiss_unused();
    }

    /// Fails the task of work that is not tried again; another attempt may follow, as after each failure.
    pub(super) fn give_up(&mut self, given_up: GivenUp) {
        let GivenUp { work, failure } = given_up;
        let agent = self.facts.state.agents().get(&AgentId::from_text(&work));
        let task = agent.map(|agent| agent.task.clone()).or_else(|| Name::of_record(&work).ok());
        let Some(place) = task.and_then(|task| self.facts.settings.plan.place(&task)) else {
            return;
        };
        let main = self.facts.status(place).and_then(|status| status.agent.clone());
        match (self.facts.task_state(place), main) {
            (state, _) if state.is_end() => {}
            // Its instances end by themselves.
            _ if self.facts.agenda.instances(place).open() > 0 => {}
            (TaskState::Running, Some(main)) if self.facts.left.contains_key(&main) => {
                let outcome = Outcome::Failed { failure, partial: None };
                self.post(Decision::EndAttempt(main, outcome));
            }
            _ => self.post(Decision::FailAttempt(place, failure)),
        }
    }

    fn take_up(&mut self, first: usize) {
        (first..self.facts.settings.plan.tasks().len()).for_each(|place| self.take_up_task(place));
    }

    /// Derives what no record holds of one task.
    fn take_up_task(&mut self, place: usize) {
        let Some(status) = self.facts.status(place) else { return };
        match (status.state, status.retry_ms) {
            (TaskState::Waiting, Some(until)) => {
                // The clock may have gone back meanwhile.
                let most = status.pause_ms.unwrap_or(u64::MAX);
                let left = until.saturating_sub(self.facts.now.wall_ms);
                let pause = u64::try_from(left).unwrap_or(0).min(most);
                let at = self.facts.now.since + Duration::from_millis(pause);
                self.facts.timers.set(at, Timer::Retry(place));
            }
            (TaskState::Running, _) if status.agent.is_some() => self.facts.hold_locks(place),
            (state, _) if state.is_end() => self.facts.note_value(place),
            _ => {}
        }
    }

    /// Counts the turns that were had before this process, in their order: the next ones are had by those
    /// who would have had them then.
    fn count_earlier_turns(&mut self) {
        let mut turns = Vec::new();
        for place in 0..self.facts.settings.plan.tasks().len() {
            let Some(status) = self.facts.status(place) else { continue };
            let began = status.agent.as_ref().map(|_| status.began_seq);
            let began = began.filter(|seq| *seq > 0).map(|seq| (seq, place, Rank::Main));
            let child = Some(status.child_seq).filter(|seq| *seq > 0);
            turns.extend(began.into_iter().chain(child.map(|seq| (seq, place, Rank::Child))));
        }
        turns.sort_unstable();
        for (_, place, rank) in turns {
            let owner = self.facts.owner(place, rank);
            self.facts.slots.had(rank, owner, place);
            if rank == Rank::Main {
                self.facts.had_locks(place);
            }
        }
    }

    /// Cancels the work at hand again, if a recorded failure had cancelled it.
    fn fail_as_before(&mut self) {
        let cancels = self.facts.settings.limits.cancel_running;
        let failed = self.facts.stopping_failure().filter(|_| cancels);
        if let Some(task) = failed {
            let reason = format!("task `{task}` failed");
            self.post(Decision::Stop(super::facts::Stop::Cancelled(reason)));
        }
    }

    /// Resumes the agents of a running attempt that had not ended, in the order in which they were
    /// spawned.
    pub(super) fn resume_agents_of(&mut self, place: usize) {
        let task = self.facts.name(place).clone();
        let mut left = self.facts.left_of(&task);
        left.retain(|id| self.facts.state.agent_use(id) == AgentUse::Current);
        left.sort_by_key(|id| self.facts.left.get(id).map(|left| left.first));
        for id in left {
            let Some(agent) = self.facts.state.agents().get(&id) else { continue };
            let parent = agent.parent.clone();
            let is_open = |parent: &AgentId| self.facts.agents.contains_key(parent);
            let orphaned = agent.is_delegated() && parent.as_ref().is_some_and(|p| !is_open(p));
            if let Some(main) = parent.filter(|_| agent.check.is_some()) {
                // A check works in the slot of its attempt, if that has one.
                self.facts.slots.hand_over(&main, id.clone());
            }
            let waits = self.facts.left.get(&id).is_some_and(|left| left.waits);
            if orphaned {
                let outcome = Outcome::Cancelled { reason: PARENT_ENDED.to_owned() };
                self.post(Decision::EndAgent(id, outcome));
            } else if waits || self.facts.has_open_question(&id) {
                // The agent takes a slot when its children have ended or a person has answered.
                self.facts.slots.release(&id);
                self.post(Decision::Fold(id));
            } else if self.facts.slots.holds(&id) {
                self.post(Decision::Fold(id));
            } else {
                let rank = self.facts.rank(&id);
                self.facts.slots.return_to(id, rank);
            }
        }
    }

    /// Ends the agents of a task and of its instances that wait to be resumed, with this reason. The task is decided again
    /// when all its agents have ended.
    pub(super) fn dismiss_left_of(&mut self, place: usize, reason: &str) {
        let instances = self.facts.status(place).map(|status| status.instances.clone());
        let instances = instances.unwrap_or_default();
        let names = instances.iter().map(|(name, _)| name).chain([self.facts.name(place)]);
        let left = names.flat_map(|name| self.facts.left_of(name)).collect();
        self.dismiss(left, reason);
    }

    /// Ends the agents that the run no longer needs.
    pub(super) fn dismiss_unused(&mut self) {
        for (unused, reason) in
            [(AgentUse::TaskRemoved, TASK_REMOVED), (AgentUse::Superseded, SUPERSEDED)]
        {
            let left = self.facts.left.keys();
            let left =
                left.filter(|id| self.facts.state.agent_use(id) == unused).cloned().collect();
            self.dismiss(left, reason);
        }
    }

    fn dismiss(&mut self, agents: Vec<AgentId>, reason: &str) {
        let told = || Outcome::Cancelled { reason: reason.to_owned() };
        let mut idle = Vec::new();
        for id in agents {
            if let Some(agent) = self.facts.agents.get_mut(&id)
                && agent.stage == Stage::Idle
            {
                agent.told.get_or_insert_with(told);
                idle.push(id);
            }
        }
        self.post(Decision::EndIdle(idle));
    }
}
