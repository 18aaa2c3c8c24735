//! Decides about the agents that the last process left: those that are still needed get their slots and
//! actors back, and the others end.

use ahash::{HashMap, HashMapExt};

use super::{Agents, Stage};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::run_machine::decision::{Decision, PARENT_ENDED, SUPERSEDED};
use crate::run_machine::desk::Desk;
use crate::run_machine::{Facts, GivenUp};
use crate::run_state::AgentUse;
use crate::turn::Outcome;

/// Reason for ending an agent whose task is gone from the configuration.
const TASK_REMOVED: &str = "its task was removed from the configuration";

impl Facts {
    /// Returns the agents of a task that the last process left and that have neither an actor nor
    /// an outcome.
    fn unfinished_of(&self, task: &Name) -> Vec<AgentId> {
        let unfinished = self.agents.unfinished_of_task.get(task).into_iter().flatten();
        let is_idle = |id: &&AgentId| {
            let agent = self.agents.open.get(*id);
            agent
                .is_some_and(|agent| agent.stage == Stage::Idle && agent.required_outcome.is_none())
        };
        unfinished.filter(is_idle).cloned().collect()
    }
}

impl Desk<'_, Agents> {
    /// Notes for which tasks the agents worked.
    pub(in crate::run_machine) fn take_up(&mut self) {
        let mut of_task: HashMap<Name, Vec<AgentId>> = HashMap::new();
        for id in self.agents.unfinished.keys() {
            if let Some(agent) = self.state.agents().get(id) {
                of_task.entry(agent.task.clone()).or_default().push(id.clone());
            }
        }
        self.own().unfinished_of_task = of_task;
    }

    /// Resumes the agents of all attempts that are under way, and ends those that are needed no more.
    pub(in crate::run_machine) fn resume_agents(&mut self) {
        for place in 0..self.settings.plan.tasks().len() {
            if self.task_state(place) == TaskState::Running {
                self.resume_agents_of(place);
            }
        }
        self.dismiss_unused();
    }

    /// Fails the task of work that is not tried again; another attempt may follow, as after each failure.
    pub(in crate::run_machine) fn give_up(&mut self, given_up: GivenUp) {
        let GivenUp { work, failure } = given_up;
        let agent = self.state.agents().get(&AgentId::from_text(&work));
        let task = agent.map(|agent| agent.task.clone()).or_else(|| Name::of_record(&work).ok());
        let Some(place) = task.and_then(|task| self.settings.plan.place(&task)) else {
            return;
        };
        let main = self.status(place).and_then(|status| status.agent.clone());
        match (self.task_state(place), main) {
            (state, _) if state.is_end() => {}
            // Its instances end by themselves.
            _ if self.agenda.instances(place).open() > 0 => {}
            (TaskState::Running, Some(main)) if self.agents.unfinished.contains_key(&main) => {
                let outcome = Outcome::Failed { failure, partial: None };
                self.end_attempt(&main, &outcome);
            }
            _ => self.post(Decision::FailAttempt(place, failure)),
        }
    }

    /// Resumes the agents of a running attempt that had not ended, in the order in which they were
    /// spawned.
    pub(in crate::run_machine) fn resume_agents_of(&mut self, place: usize) {
        let task = self.name(place).clone();
        let mut unfinished = self.unfinished_of(&task);
        unfinished.retain(|id| self.state.agent_use(id) == AgentUse::Current);
        unfinished.sort_by_key(|id| self.agents.unfinished.get(id).map(|agent| agent.first));
        for id in unfinished {
            let Some(agent) = self.state.agents().get(&id) else { continue };
            let parent = agent.parent.clone();
            let is_gone = |parent: &AgentId| !self.agents.is_open(parent);
            let orphaned = agent.is_delegated() && parent.as_ref().is_some_and(is_gone);
            // A check works in the slot of its attempt, if that has one.
            let lender = parent.filter(|main| agent.check.is_some() && self.scarce.holds(main));
            let holds = lender.is_some() || self.scarce.holds(&id);
            if let Some(main) = lender {
                self.post(Decision::HandOver(main, id.clone()));
            }
            let waits = self.agents.unfinished.get(&id).is_some_and(|agent| agent.waits);
            if orphaned {
                let outcome = Outcome::Cancelled { reason: PARENT_ENDED.to_owned() };
                self.end_agent(&id, outcome);
            } else if waits || self.has_open_question(&id) {
                // The agent takes a slot when its children have ended or a person has answered.
                self.post(Decision::Release(id.clone()));
                self.fold(&id);
            } else if holds {
                self.fold(&id);
            } else {
                self.post(Decision::ReturnTo(id));
            }
        }
    }

    /// Ends the agents of a task and of its instances that wait to be resumed, with this reason. The task is decided again
    /// when all its agents have ended.
    pub(in crate::run_machine) fn dismiss_left_of(&mut self, place: usize, reason: &str) {
        let instances = self.status(place).map(|status| status.instances.clone());
        let instances = instances.unwrap_or_default();
        let names = instances.iter().map(|(name, _)| name).chain([self.name(place)]);
        let unfinished = names.flat_map(|name| self.unfinished_of(name)).collect();
        self.dismiss(unfinished, reason);
    }

    /// Ends the agents that the run no longer needs.
    pub(in crate::run_machine) fn dismiss_unused(&mut self) {
        for (unused, reason) in
            [(AgentUse::TaskRemoved, TASK_REMOVED), (AgentUse::Superseded, SUPERSEDED)]
        {
            let unfinished = self.agents.unfinished.keys();
            let unfinished =
                unfinished.filter(|id| self.state.agent_use(id) == unused).cloned().collect();
            self.dismiss(unfinished, reason);
        }
    }

    fn dismiss(&mut self, agents: Vec<AgentId>, reason: &str) {
        let cancelled = || Outcome::Cancelled { reason: reason.to_owned() };
        let mut idle = Vec::new();
        for id in agents {
            if let Some(agent) = self.own().open.get_mut(&id)
                && agent.stage == Stage::Idle
            {
                agent.required_outcome.get_or_insert_with(cancelled);
                idle.push(id);
            }
        }
        self.end_idle(idle);
    }
}
