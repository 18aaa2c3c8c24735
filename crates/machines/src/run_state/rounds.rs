//! The rounds of attempts: agents that have ended and are asked again, and the checks of their
//! answers.

use super::{AgentStatus, RunState};
use crate::event::{Event, Record};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::turn::{AgentRestarted, CheckPlace, Feedback};

impl RunState {
    /// Opens the agent of a running attempt again, for the next round, the agent of a check whose answer
    /// gave no verdict, or a child whose answer did not fit the schema that its parent wants, or that gets another job.
    pub(super) fn begin_round(
        &mut self,
        record: &Record,
        id: &AgentId,
        feedback: &Feedback,
    ) -> Result<(), String> {
        let Some(agent) = self.agents.get_mut(id) else { return Ok(()) };
        let task = self.tasks.get_mut(&agent.task).ok_or("its task is gone")?;
        let main = task.agent.as_ref().filter(|_| task.state == TaskState::Running);
        if !main.is_some_and(|main| id.is_within(main)) {
            return Err("its task has no attempt with it".to_owned());
        }
        if !agent.has_subtree_ended() {
            return Err("an agent still works for it".to_owned());
        }
        if task.agent.as_ref() == Some(id) {
            task.rounds.push(feedback.cause);
        }
        task.open_agents = task.open_agents.saturating_add(1);
        agent.round += 1;
        agent.outcome = None;
        agent.apply(&record.event, record.into(), self.clock.reading());
        // A round is no crash.
        agent.restarted.pop();
        if let Event::AgentRestarted(AgentRestarted { asked: Some(asked), .. }) = &record.event {
            agent.call = Some(asked.call.clone());
            (agent.background, agent.is_told) = (asked.background, false);
            agent.wanted.iter_mut().for_each(|wanted| wanted.since = self.clock.reading());
            self.by_call.insert(asked.call.clone(), id.clone());
        }
        // The last round ended with those that worked in the background.
        let (children, parent) = (agent.children.clone(), agent.parent.clone());
        let is_background = agent.background;
        let task = agent.task.clone();
        self.for_each_ancestor(id, |agent| agent.open = agent.open.saturating_add(1));
        self.open_agents = self.open_agents.saturating_add(1);
        self.descendants += usize::from(self.is_unasked(&task));
        for child in children {
            self.agents.get_mut(&child).into_iter().for_each(|child| child.is_told = true);
        }
        if let Some(parent) = parent.and_then(|parent| self.agents.get_mut(&parent)) {
            parent.knows_of_children &= !is_background;
        }
        Ok(())
    }

    /// Returns the agent that makes a check of an agent's answer, once it was spawned.
    #[must_use]
    pub(crate) fn check(
        &self,
        main: &AgentId,
        place: CheckPlace,
    ) -> Option<(&AgentId, &AgentStatus)> {
        // The checks of the last round come last.
        let children = self.agents.get(main)?.children.iter().rev();
        let known = children.filter_map(|id| self.agents.get_key_value(id));
        known.into_iter().find(|(_, agent)| agent.check == Some(place))
    }

    /// Returns the checks of a task's latest attempt, in the order in which they began.
    pub fn checks_of_task(&self, name: &Name) -> impl Iterator<Item = (&AgentId, &AgentStatus)> {
        let main = self.tasks.get(name).and_then(|task| task.agent.as_ref());
        let children = main.and_then(|main| self.agents.get(main)).map(|main| &main.children);
        let known = children.into_iter().flatten().filter_map(|id| self.agents.get_key_value(id));
        known.filter(|(_, agent)| agent.check.is_some())
    }
}
