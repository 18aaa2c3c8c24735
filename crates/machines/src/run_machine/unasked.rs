//! Bounds the work of tasks that agents proposed and that no person was asked about: it counts as
//! delegated work, so that a proposal spends no more than delegations could.
//!
//! Each agent of such a task, of its instances, attempts and checks, and each further round of one, is
//! a child of the run for `limits.max_descendants`. None of them makes more calls of its model than a
//! child would.

use super::Facts;
use crate::failure::{Failure, FailureKind};
use crate::id::AgentId;
use crate::spec::TaskSpec;

impl Facts {
    /// Returns the reason why these tasks, about which no person was asked, are too many.
    pub(super) fn too_many(&self, by: &AgentId, tasks: &[TaskSpec]) -> Option<String> {
        // What others proposed uses their shares.
        let sharer = self.sharer(by);
        let coming = self.growth.unasked_by(|by| self.sharer(by) == sharer);
        let plans = self.state.proposed_plans().iter();
        let plans = plans.filter(|plan| plan.unasked && self.sharer(&plan.by) == sharer);
        let is_ahead = |name| {
            let status = self.state.task(name);
            status.is_some_and(|status| status.attempt == 0 && !status.state.is_end())
        };
        let ahead = plans.flat_map(|plan| &plan.tasks).filter(|task| is_ahead(&task.name)).count();
        let left = sharer.map_or(0, |sharer| self.children_left_for(sharer));
        let left = left.saturating_sub(coming + ahead);
        (tasks.len() > left).then(|| {
            let (most, count) = (self.settings.limits.max_descendants, tasks.len());
            format!(
                "tasks that no person was asked about count as children: of the {most} that the run may \
                 have, {left} are left for this task with all that it proposed, and these are {count} \
                 tasks; do the work yourself"
            )
        })
    }

    /// Returns the failure of a task about which no person was asked if these many more agents would be
    /// too many.
    pub(super) fn bound(&self, place: usize, more: usize) -> Option<Failure> {
        let left = self.children_left_for(place);
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
}
