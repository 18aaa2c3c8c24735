//! Bounds the work of tasks that agents proposed and that no person was asked about: it counts as
//! delegated work, so that a proposal spends no more than delegations could.
//!
//! Each agent of such a task, of its instances, attempts and checks, and each further round of one, is
//! a child of the run for `limits.max_descendants`. None of them makes more calls of its model than a
//! child would.

use super::RunMachine;
use crate::failure::{Failure, FailureKind};
use crate::id::AgentId;
use crate::spec::TaskSpec;

impl RunMachine {
    /// Returns the number of children that the run may still have, with those on their way to the
    /// journal.
    fn children_left(&self) -> usize {
        let used = self.state.descendants() + self.open.coming.len() + self.open.counted;
        self.settings.limits.max_descendants.saturating_sub(used)
    }

    /// Returns the reason why these tasks, about which no person was asked, are too many.
    pub(super) fn too_many(&self, tasks: &[TaskSpec]) -> Option<String> {
        let coming = self.open.growing.values().filter(|growing| growing.unasked);
        let coming: usize = coming.map(|growing| growing.tasks.len()).sum();
        let plans = self.state.proposed_plans().iter().filter(|plan| plan.unasked);
        let is_ahead = |name| {
            let status = self.state.task(name);
            status.is_some_and(|status| status.attempt == 0 && !status.state.is_end())
        };
        let ahead = plans.flat_map(|plan| &plan.tasks).filter(|task| is_ahead(&task.name)).count();
        let left = self.children_left().saturating_sub(coming + ahead);
        (tasks.len() > left).then(|| {
            let (most, count) = (self.settings.limits.max_descendants, tasks.len());
            format!(
                "tasks that no person was asked about count as children; the run may have {most} \
                 children, {left} more than it has and will have, and these are {count} tasks; do the \
                 work yourself"
            )
        })
    }

    /// Returns the failure of a task about which no person was asked if these many more agents would be
    /// too many.
    pub(super) fn bound(&self, place: usize, more: usize) -> Option<Failure> {
        let left = self.children_left();
        if more <= left || !self.state.is_unasked(self.name(place)) {
            return None;
        }
        let most = self.settings.limits.max_descendants;
        let wanted = match more {
            1 => "another agent".to_owned(),
            many => format!("{many} instances"),
        };
        let message = format!(
            "an agent proposed the task and no person was asked, so its agents count as children of the \
             run: `limits.max_descendants` is {most} and leaves {left}, and the task wants {wanted}"
        );
        Some(Failure::new(FailureKind::LimitReached, message))
    }

    /// Counts an agent of a task, or a further round of it, until its record is durable.
    pub(super) fn count_from_now(&mut self, place: usize) {
        self.open.counted += usize::from(self.state.is_unasked(self.name(place)));
    }

    /// Notes that an agent is counted by its record.
    pub(super) fn is_counted(&mut self, agent: &AgentId) {
        let Some(status) = self.state.agents().get(agent) else { return };
        if !status.is_delegated() && self.state.is_unasked(&status.task) {
            self.open.counted = self.open.counted.saturating_sub(1);
        }
    }
}
