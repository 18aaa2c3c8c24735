//! Counts the children of the run: how many it and each of its tasks may still have.

use super::Facts;
use super::desk::Desk;
use super::shares::Shares;
use crate::id::{AgentId, Name};

/// The children that are counted.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    /// The shares of the tasks in the children of the run.
    shares: Shares,
    /// Number of agents and rounds on their way to the journal that count as children, although no
    /// agent delegated to them.
    coming: usize,
}

impl Sharing {
    /// Makes the count of a run that may have so many children.
    pub(super) fn new(most: usize) -> Self {
        Self { shares: Shares::new(most), coming: 0 }
    }
}

impl Facts {
    /// Returns the number of children that the run may still have, with those on their way to the
    /// journal.
    pub(super) fn children_left(&self) -> usize {
        let used = self.state.descendants() + self.agents.coming() + self.sharing.coming;
        self.settings.limits.max_descendants.saturating_sub(used)
    }

    /// Returns the number of children that the task at `place` may still have.
    pub(super) fn children_left_for(&self, place: usize) -> usize {
        self.sharing.shares.left(self.whole(place), self.children_left())
    }

    /// Returns the task at `place`, or the fan-out of which it is an instance.
    pub(super) fn whole(&self, place: usize) -> usize {
        self.settings.plan.member(place).map_or(place, |member| member.of)
    }

    /// Returns the task whose share an agent uses.
    pub(super) fn sharer(&self, agent: &AgentId) -> Option<usize> {
        let agent = self.state.agents().get(agent)?;
        let place = self.settings.plan.place(&agent.task)?;
        Some(self.sharing.shares.owner(self.whole(place)))
    }

    /// Returns true if the agents of a task may delegate.
    fn may_delegate(&self, place: usize) -> bool {
        let has_others = |name: &Name| {
            self.settings.agents.get(name).is_some_and(|agent| !agent.sub_agents.is_empty())
        };
        self.spec(place).agents().any(has_others)
    }
}

impl Desk<'_, Sharing> {
    /// Counts the children that the run has from before.
    pub(super) fn take_up(&mut self) {
        self.plan_extended(0);
        let mut counts = Vec::new();
        for agent in self.state.agents().values() {
            let count = match (agent.is_delegated(), self.state.is_unasked(&agent.task)) {
                (true, false) => 1,
                (_, true) => agent.round as usize,
                (false, false) => continue,
            };
            counts.extend(self.settings.plan.place(&agent.task).map(|place| (place, count)));
        }
        counts.into_iter().for_each(|(place, count)| self.count(place, count));
    }

    /// Adds the tasks of the plan from `first` on to those that use a share.
    pub(super) fn plan_extended(&mut self, first: usize) {
        let plan = &self.settings.plan;
        let unasked = self.state.proposed_plans().iter().filter(|proposed| proposed.unasked);
        let lent = unasked.flat_map(|proposed| {
            let by = self.state.agents().get(&proposed.by).and_then(|by| plan.place(&by.task));
            let tasks = proposed.tasks.iter().filter_map(|task| plan.place(&task.name));
            tasks.filter(|task| *task >= first).filter_map(move |task| Some((task, by?)))
        });
        for (task, by) in lent.collect::<Vec<_>>() {
            let by = self.whole(by);
            self.own().shares.lend(task, by);
        }
        let places = first..self.settings.plan.tasks().len();
        let places = places.filter(|place| self.settings.plan.member(*place).is_none());
        let uses = |place: &usize| {
            let is_lent = self.sharing.shares.is_lent(*place);
            (is_lent || self.may_delegate(*place)) && !self.task_state(*place).is_end()
        };
        let tasks: Vec<_> = places.filter(uses).collect();
        self.own().shares.add(tasks);
    }

    /// Counts children of a task.
    pub(super) fn count(&mut self, place: usize, count: usize) {
        let whole = self.whole(place);
        self.own().shares.count(whole, count);
    }

    /// Takes a child of a task back that did not come to be.
    pub(super) fn take_back(&mut self, place: usize) {
        let whole = self.whole(place);
        self.own().shares.take_back(whole);
    }

    /// Counts an agent of a task, or a further round of it, until its record is durable.
    pub(super) fn count_from_now(&mut self, place: usize) {
        if self.state.is_unasked(self.name(place)) {
            self.own().coming += 1;
            self.count(place, 1);
        }
    }

    /// Notes that an agent is counted by its record.
    pub(super) fn is_counted(&mut self, agent: &AgentId) {
        let Some(status) = self.state.agents().get(agent) else { return };
        // A child is counted by its call, but each further round of it is not.
        let by_call = status.is_delegated() && status.round == 1;
        if !by_call && self.state.is_unasked(&status.task) {
            self.own().coming = self.sharing.coming.saturating_sub(1);
        }
    }

    /// Notes that a task has ended.
    pub(super) fn task_ended(&mut self, place: usize) {
        self.own().shares.ended(place);
    }
}
