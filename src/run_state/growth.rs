//! The growth of a run's plan: the tasks that agents proposed and that were added to it.

use std::collections::{BTreeMap, HashSet};

use super::{RunState, TaskStatus};
use crate::event::PlanExtended;

impl RunState {
    /// Adds tasks to the plan. Those that are there already stay as they are: a fork is created with
    /// all tasks, and shares the records that added some of them.
    pub(super) fn extend_plan(&mut self, extended: &PlanExtended) {
        for planned in &extended.tasks {
            if !self.tasks.contains_key(&planned.name) {
                self.tasks.insert(planned.name.clone(), TaskStatus::default());
                self.order.push(planned.name.clone());
                self.open_tasks += 1;
            }
        }
        let Some(created) = &mut self.created else { return };
        created.files.extend(extended.files.clone());
        let known: HashSet<_> = created.tasks.iter().map(|task| task.name.clone()).collect();
        let new = extended.tasks.iter().filter(|task| !known.contains(&task.name));
        created.tasks.extend(new.cloned());
        // The files are kept once.
        created.proposed.push(PlanExtended { files: BTreeMap::new(), ..extended.clone() });
    }

    /// Returns the plans that agents proposed and that were added, in their order.
    #[must_use]
    pub fn proposed_plans(&self) -> &[PlanExtended] {
        self.created().map_or(&[], |created| &created.proposed)
    }
}
