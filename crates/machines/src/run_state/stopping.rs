//! The failures in the fold of a run that keep other tasks from starting.

use super::RunState;
use crate::id::Name;
use crate::plan::Consequence;

impl RunState {
    /// Returns the task that failed first under the configuration in force, among those whose
    /// failure concerns the whole run under `limits.fail_fast`. Instances are not among them.
    #[must_use]
    pub fn first_failed(&self) -> Option<&Name> {
        self.first_failed.as_ref()
    }

    /// Returns the task whose failure keeps all others from starting, whatever `limits.fail_fast`
    /// says.
    #[must_use]
    pub fn stopped_by(&self) -> Option<&Name> {
        self.stopped_by.as_ref()
    }

    /// Returns the number of the record since which a failure keeps others from starting, under this
    /// value of `limits.fail_fast`; `None` if none does.
    #[must_use]
    pub fn stopped_since(&self, fail_fast: bool) -> Option<u64> {
        // The first failure comes no later than the first that stops the others by itself.
        let first = self.first_failed.as_ref().filter(|_| fail_fast);
        let task = self.tasks.get(first.or(self.stopped_by.as_ref())?)?;
        Some(task.ended_seq)
    }

    pub(super) fn note_failure(&mut self, name: &Name, consequence: Option<Consequence>) {
        match consequence {
            Some(Consequence::Continue | Consequence::SkipDependents) => return,
            Some(Consequence::Stop) => {
                self.stopped_by.get_or_insert_with(|| name.clone());
            }
            None => {}
        }
        self.first_failed.get_or_insert_with(|| name.clone());
    }
}
