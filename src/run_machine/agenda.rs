//! The tasks that have to be decided: how their dependencies stand, and which were touched.
//!
//! Pure. Derived from the plan and the state, and kept up to date one change at a time, so that no
//! decision has to look for its tasks.

use std::collections::VecDeque;

use crate::plan::{Plan, Readiness, Standing, Tally};
use crate::run_state::RunState;
use crate::spec::Join;

/// The dependencies of all tasks, and the tasks that were touched since they were last decided.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    tallies: Vec<Tally>,
    /// For each task, the number of its dependents that have not ended.
    waiting: Vec<usize>,
    touched: VecDeque<usize>,
    is_touched: Vec<bool>,
    /// The number of touches so far: the work that events have caused.
    #[cfg(test)]
    touches: usize,
}

impl Agenda {
    /// The agenda of a run, with every task touched that has not ended.
    pub(super) fn new(plan: &Plan, state: &RunState) -> Self {
        let count = plan.tasks().len();
        let standings: Vec<_> =
            plan.tasks().iter().map(|task| state.standing(&task.name)).collect();
        let mut agenda = Self {
            tallies: vec![Tally::default(); count],
            waiting: vec![0; count],
            touched: VecDeque::new(),
            is_touched: vec![false; count],
            #[cfg(test)]
            touches: 0,
        };
        for place in 0..count {
            for dependency in plan.dependencies(place) {
                agenda.tallies[place].add(standings[*dependency]);
                agenda.waiting[*dependency] += usize::from(standings[place] == Standing::Open);
            }
            if standings[place] == Standing::Open {
                agenda.touch(place);
            }
        }
        agenda
    }

    /// Has a task decided.
    pub(super) fn touch(&mut self, place: usize) {
        #[cfg(test)]
        {
            self.touches += 1;
        }
        if !std::mem::replace(&mut self.is_touched[place], true) {
            self.touched.push_back(place);
        }
    }

    /// Has every task decided: something happened that concerns the run as a whole.
    pub(super) fn touch_all(&mut self) {
        (0..self.tallies.len()).for_each(|place| self.touch(place));
    }

    #[cfg(test)]
    pub(super) fn touches(&self) -> usize {
        self.touches
    }

    /// The next task to decide.
    pub(super) fn next_touched(&mut self) -> Option<usize> {
        let place = self.touched.pop_front()?;
        self.is_touched[place] = false;
        Some(place)
    }

    /// Takes in that a task has another standing, and touches it with the tasks that depend on it.
    pub(super) fn changed(&mut self, plan: &Plan, place: usize, before: Standing, now: Standing) {
        self.touch(place);
        if before == now {
            return;
        }
        for dependent in plan.dependents(place) {
            self.tallies[*dependent].change(before, now);
            self.touch(*dependent);
        }
        for dependency in plan.dependencies(place) {
            self.waiting[*dependency] += usize::from(now == Standing::Open);
            self.waiting[*dependency] -= usize::from(before == Standing::Open);
        }
    }

    /// Whether a task may start, as far as its dependencies decide.
    pub(super) fn readiness(&self, place: usize, join: Join) -> Readiness {
        self.tallies[place].readiness(join)
    }

    /// Whether a task that depends on this one has not ended.
    pub(super) fn is_awaited(&self, place: usize) -> bool {
        self.waiting[place] > 0
    }
}
