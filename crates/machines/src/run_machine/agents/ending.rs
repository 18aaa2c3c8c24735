//! Decides how agents end: one that must end is asked first, and killed when its grace is over.

use std::time::Duration;

use super::{Agents, Stage};
use crate::id::AgentId;
use crate::run_machine::Action;
use crate::run_machine::decision::{Decision, PARENT_ENDED};
use crate::run_machine::desk::Desk;
use crate::run_machine::timers::Timer;
use crate::turn::Outcome;

/// Reason for cancelling the children of an agent that was asked to end.
pub(super) const PARENT_STOPPED: &str = "its parent was stopped";

/// Time after which a killed actor counts as gone. A kill takes effect at the next await, which
/// code that blocks its thread never reaches.
const KILL_MARGIN: Duration = Duration::from_secs(5);

impl Desk<'_, Agents> {
    /// Asks an agent and its children to end.
    pub(in crate::run_machine) fn end_agent(&mut self, id: &AgentId, outcome: Outcome) {
        let Some(agent) = self.own().open.get_mut(id) else { return };
        if agent.required_outcome.is_some() || agent.stage == Stage::Ending {
            return;
        }
        agent.required_outcome = Some(outcome.clone());
        let stage = agent.stage;
        match stage {
            Stage::Live => {
                self.act(Action::End { agent: id.clone(), outcome });
                let at = self.now.since + self.end_grace();
                self.post(Decision::SetTimer(at, Timer::EndOverdue(id.clone())));
            }
            Stage::Idle => self.end_idle(vec![id.clone()]),
            // It ends as soon as its record is durable, its fold is done, or its actor is gone.
            Stage::Folding | Stage::Restarting | Stage::Killed | Stage::Ending => {}
        }
        self.end_children(id, PARENT_STOPPED);
    }

    /// Ends the children of an agent, and drops those that wait for a slot.
    fn end_children(&mut self, parent: &AgentId, reason: &str) {
        let Some(status) = self.state.agents().get(parent) else { return };
        let (place, children) = (self.settings.plan.place(&status.task), status.children.clone());
        let parent = parent.clone();
        place
            .into_iter()
            .for_each(|place| self.post(Decision::ForgetChildren(place, parent.clone())));
        for child in children {
            self.post(Decision::ForgetAnswer(child.clone()));
            self.end_agent(&child, Outcome::Cancelled { reason: reason.to_owned() });
        }
    }

    /// Asks for the ends of agents without an actor to be recorded, with the outcomes that they
    /// were given.
    pub(in crate::run_machine) fn end_idle(&mut self, agents: Vec<AgentId>) {
        let mut ends = Vec::with_capacity(agents.len());
        for id in agents {
            self.post(Decision::CancelTimer(Timer::Restart(id.clone())));
            self.own().unfinished.remove(&id);
            // A slot that the agent holds is released when its subtree has ended.
            self.post(Decision::Withdraw(id.clone()));
            self.own().set_stage(&id, Stage::Ending);
            if let Some(outcome) = self.agents.required_outcome(&id).cloned() {
                ends.push((id, outcome));
            }
        }
        if !ends.is_empty() {
            self.act(Action::EndIdle(ends));
        }
    }

    /// Handles the recorded end of an agent.
    pub(in crate::run_machine) fn ended(&mut self, id: &AgentId) {
        self.post(Decision::CancelTimer(Timer::EndOverdue(id.clone())));
        self.post(Decision::CancelTimer(Timer::KillOverdue(id.clone())));
        self.post(Decision::CancelTimer(Timer::AgentLimit(id.clone())));
        self.own().remove(id);
        self.end_children(id, PARENT_ENDED);
        for agent in self.line_of(id) {
            if !self.is_subtree_over(&agent) {
                break;
            }
            self.subtree_ended(&agent);
        }
        self.touch_task_of(id);
    }

    /// Releases the slot of an agent whose whole subtree has ended. That of a child is released with its result.
    fn subtree_ended(&mut self, id: &AgentId) {
        let Some(status) = self.state.agents().get(id) else { return };
        if status.call.is_some() {
            return self.post(Decision::EndChild(id.clone()));
        }
        let (parent, is_check) = (status.parent.clone(), status.check.is_some());
        let current = self.state.task(&status.task).and_then(|task| task.agent.clone());
        if let Some(main) =
            parent.as_ref().filter(|main| is_check && current.as_ref() == Some(main))
        {
            self.post(Decision::HandOver(id.clone(), main.clone()));
            self.post(Decision::Withdraw(id.clone()));
        } else if current.as_ref() != Some(id) {
            // The slot of a task's current agent is released at the end of the attempt.
            self.post(Decision::Release(id.clone()));
        }
    }

    /// Ends the agents of an attempt: its main agent, or the check that judges it.
    pub(in crate::run_machine) fn end_attempt(&mut self, main: &AgentId, outcome: &Outcome) {
        self.end_agent(main, outcome.clone());
        let children = self.state.agents().get(main).map(|main| main.children.as_slice());
        let is_check = |id: &&AgentId| {
            let agent = self.state.agents().get(*id);
            agent.is_some_and(|agent| agent.check.is_some()) && self.agents.is_open(id)
        };
        let checks: Vec<_> = children.into_iter().flatten().filter(is_check).cloned().collect();
        for check in checks {
            self.end_agent(&check, outcome.clone());
        }
    }

    /// Kills the actor of an agent.
    pub(in crate::run_machine) fn kill(&mut self, agent: &AgentId) {
        if self.agents.is_live(agent) {
            self.own().set_stage(agent, Stage::Killed);
            self.act(Action::Kill(agent.clone()));
            let at = self.now.since + KILL_MARGIN;
            self.post(Decision::SetTimer(at, Timer::KillOverdue(agent.clone())));
        }
    }
}
