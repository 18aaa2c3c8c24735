//! The growth of a run's plan: the tasks that agents proposed and that were added to it.

use std::collections::{BTreeMap, HashSet};

use super::{Moment, RunState, TaskStatus};
use crate::event::PlanExtended;
use crate::id::Name;

impl RunState {
    /// Adds tasks to the plan. Those that are there already stay as they are: a fork is created with
    /// all tasks, and shares the records that added some of them.
    pub(super) fn extend_plan(&mut self, at: Moment, extended: &PlanExtended) {
        let by = self.agents.get(&extended.by).and_then(|agent| self.tasks.get(&agent.task));
        self.proposers.extend(by.and_then(|task| task.key.clone()));
        for planned in &extended.tasks {
            if !self.tasks.contains_key(&planned.name) {
                let added = TaskStatus { added_seq: at.seq, since: at, ..TaskStatus::default() };
                self.tasks.insert(planned.name.clone(), added);
                self.order.push(planned.name.clone());
                self.open_tasks = self.open_tasks.saturating_add(1);
            }
        }
        let Some(created) = &mut self.created else { return };
        created.files.extend(extended.files.clone());
        let known: HashSet<_> = created.tasks.iter().map(|task| task.name.clone()).collect();
        let new = extended.tasks.iter().filter(|task| !known.contains(&task.name));
        created.tasks = created.tasks.iter().chain(new).cloned().collect();
        // The files are kept once.
        created.proposed.push(PlanExtended { files: BTreeMap::new(), ..extended.clone() });
    }

    /// Returns true if an agent proposed this task, or the one that fanned out to it, and no person was
    /// asked about it.
    #[must_use]
    pub fn is_unasked(&self, task: &Name) -> bool {
        let written = task.of_instance().unwrap_or(task.as_str());
        let mut plans = self.proposed_plans().iter().filter(|plan| plan.unasked);
        plans.any(|plan| plan.tasks.iter().any(|task| task.name.as_str() == written))
    }

    /// Returns the plans that agents proposed and that were added, in their order.
    #[must_use]
    pub fn proposed_plans(&self) -> &[PlanExtended] {
        self.created().map_or(&[], |created| &created.proposed)
    }
}
