//! How many children the run and each of its tasks may still have.

use super::facts::Facts;
use crate::id::{AgentId, Name};

impl Facts {
    /// Returns the number of children that the run may still have, with those on their way to the
    /// journal.
    pub(super) fn children_left(&self) -> usize {
        let used = self.state.descendants() + self.coming.len() + self.counted;
        self.settings.limits.max_descendants.saturating_sub(used)
    }

    /// Returns the number of children that the task at `place` may still have.
    pub(super) fn children_left_for(&self, place: usize) -> usize {
        self.shares.left(self.whole(place), self.children_left())
    }

    /// Returns the task at `place`, or the fan-out of which it is an instance.
    pub(super) fn whole(&self, place: usize) -> usize {
        self.settings.plan.member(place).map_or(place, |member| member.of)
    }

    /// Returns the task whose share an agent uses.
    pub(super) fn sharer(&self, agent: &AgentId) -> Option<usize> {
        let agent = self.state.agents().get(agent)?;
        let place = self.settings.plan.place(&agent.task)?;
        Some(self.shares.owner(self.whole(place)))
    }

    /// Returns true if the agents of a task may delegate.
    fn may_delegate(&self, place: usize) -> bool {
        let has_others = |name: &Name| {
            self.settings.agents.get(name).is_some_and(|agent| !agent.sub_agents.is_empty())
        };
        self.spec(place).agents().any(has_others)
    }

    /// Adds the tasks of the plan from `first` on to those that use a share.
    pub(super) fn share_children(&mut self, first: usize) {
        let plan = &self.settings.plan;
        for proposed in self.state.proposed_plans().iter().filter(|proposed| proposed.unasked) {
            let by = self.state.agents().get(&proposed.by).and_then(|by| plan.place(&by.task));
            let Some(by) = by.map(|by| self.whole(by)) else { continue };
            let tasks = proposed.tasks.iter().filter_map(|task| plan.place(&task.name));
            for task in tasks.filter(|task| *task >= first) {
                self.shares.lend(task, by);
            }
        }
        let places = (first..plan.tasks().len()).filter(|place| plan.member(*place).is_none());
        let uses = |place: &usize| {
            let is_lent = self.shares.is_lent(*place);
            (is_lent || self.may_delegate(*place)) && !self.task_state(*place).is_end()
        };
        let tasks: Vec<_> = places.filter(uses).collect();
        self.shares.add(tasks);
    }

    /// Counts the children that the run has from before.
    pub(super) fn count_earlier_children(&mut self) {
        for agent in self.state.agents().values() {
            let count = match (agent.is_delegated(), self.state.is_unasked(&agent.task)) {
                (true, false) => 1,
                (_, true) => agent.round as usize,
                (false, false) => continue,
            };
            if let Some(place) = self.settings.plan.place(&agent.task) {
                self.shares.count(self.whole(place), count);
            }
        }
    }
}
