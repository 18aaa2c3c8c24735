//! The tasks that need a decision: the state of their dependencies, and the tasks that were
//! touched.
//!
//! Pure. It is derived from the plan and the state and updated one change at a time, so no decision
//! has to search for its tasks.

use std::collections::VecDeque;
use std::ops::Range;

use ahash::HashMap;

use crate::plan::{Plan, Readiness, Standing, Tally};
use crate::run_state::RunState;
use crate::spec::Join;

/// The dependencies of all tasks, and the tasks touched since the last decision about them.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    tallies: Vec<Tally>,
    /// For each task that has fanned out, the number of its instances by their standing.
    instances: HashMap<usize, Tally>,
    /// For each task, the number of its dependants that have not ended. The task of an instance
    /// counts as its dependant.
    waiting: Vec<usize>,
    /// For each task, the number of tasks on the longest path that waits for it.
    paths: Vec<u32>,
    touched: VecDeque<usize>,
    is_touched: Vec<bool>,
    /// Number of touches so far: a measure of the work that events have caused.
    #[cfg(test)]
    touches: usize,
}

impl Agenda {
    /// Makes the agenda of a run, with every task touched that has not ended.
    pub(super) fn new(plan: &Plan, state: &RunState) -> Self {
        let mut agenda = Self::default();
        agenda.extend(plan, state, 0..plan.tasks().len());
        agenda
    }

    /// Adds tasks of the plan, and touches those that have not ended.
    pub(super) fn extend(&mut self, plan: &Plan, state: &RunState, added: Range<usize>) {
        self.resize(added.end);
        self.measure(plan, state, added.clone());
        let standing = |place: usize| state.standing(&plan.tasks()[place].name);
        for place in added {
            let is_open = standing(place) == Standing::Open;
            for dependency in plan.dependencies(place) {
                self.tallies[place].add(standing(*dependency));
                self.waiting[*dependency] += usize::from(is_open);
            }
            if is_open {
                self.touch(place);
            }
        }
    }

    /// Measures the paths behind the tasks that were added, and anew behind the open ones before them,
    /// which are touched if theirs has become longer.
    fn measure(&mut self, plan: &Plan, state: &RunState, added: Range<usize>) {
        let is_open = |place: &usize| state.standing(&plan.tasks()[*place].name) == Standing::Open;
        // For each of them, the number of its dependants that were not measured yet.
        let mut found: Vec<usize> = added.clone().filter(is_open).collect();
        let mut left: HashMap<usize, usize> = found.iter().map(|place| (*place, 0)).collect();
        while let Some(place) = found.pop() {
            for before in plan.dependencies(place).iter().filter(|before| is_open(before)) {
                let is_new = !left.contains_key(before);
                *left.entry(*before).or_default() += 1;
                found.extend(Some(*before).filter(|_| is_new));
            }
        }
        let mut last: Vec<usize> =
            added.clone().filter(|place| left.get(place) == Some(&0)).collect();
        while let Some(place) = last.pop() {
            let path = self.paths[place].saturating_add(1);
            for before in plan.dependencies(place) {
                let Some(left) = left.get_mut(before) else { continue };
                if self.paths[*before] < path {
                    self.paths[*before] = path;
                    if *before < added.start {
                        self.touch(*before);
                    }
                }
                *left -= 1;
                if *left == 0 {
                    last.push(*before);
                }
            }
        }
    }

    /// Returns the number of tasks on the longest path that waits for a task.
    pub(super) fn path(&self, place: usize) -> u32 {
        self.paths[place]
    }

    fn resize(&mut self, count: usize) {
        self.tallies.resize(count, Tally::default());
        self.waiting.resize(count, 0);
        self.paths.resize(count, 0);
        self.is_touched.resize(count, false);
    }

    /// Adds the instances of a fan-out, and touches those that have not ended, or their task if
    /// there is none.
    pub(super) fn expand(&mut self, place: usize, instances: Range<usize>, state: &[Standing]) {
        self.resize(instances.end);
        let mut tally = Tally::default();
        for (instance, standing) in instances.zip(state) {
            tally.add(*standing);
            self.waiting[instance] = 1;
            if *standing == Standing::Open {
                self.touch(instance);
            }
        }
        self.instances.insert(place, tally);
        if tally.open() == 0 {
            self.touch(place);
        }
    }

    /// Returns the number of a fan-out's instances by their standing.
    pub(super) fn instances(&self, place: usize) -> Tally {
        self.instances.get(&place).copied().unwrap_or_default()
    }

    /// Marks a task for a decision.
    pub(super) fn touch(&mut self, place: usize) {
        #[cfg(test)]
        {
            self.touches += 1;
        }
        if !std::mem::replace(&mut self.is_touched[place], true) {
            self.touched.push_back(place);
        }
    }

    /// Marks every task for a decision, after an event that concerns the run as a whole.
    pub(super) fn touch_all(&mut self) {
        (0..self.tallies.len()).for_each(|place| self.touch(place));
    }

    #[cfg(test)]
    pub(super) fn touches(&self) -> usize {
        self.touches
    }

    /// Returns true if a task needs a decision.
    pub(super) fn is_due(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Takes the next task that needs a decision.
    pub(super) fn next_touched(&mut self) -> Option<usize> {
        let place = self.touched.pop_front()?;
        self.is_touched[place] = false;
        Some(place)
    }

    /// Notes the new standing of a task, and touches the task and its dependants.
    pub(super) fn changed(&mut self, plan: &Plan, place: usize, before: Standing, now: Standing) {
        self.touch(place);
        if before == now {
            return;
        }
        if let Some(member) = plan.member(place)
            && let Some(tally) = self.instances.get_mut(&member.of)
        {
            tally.change(before, now);
            if tally.open() == 0 {
                self.touch(member.of);
            }
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

    /// Returns the readiness of a task, as far as its dependencies decide it.
    pub(super) fn readiness(&self, place: usize, join: Join) -> Readiness {
        self.tallies[place].readiness(join)
    }

    /// Returns true if a dependency of this task has not ended.
    pub(super) fn open_before(&self, place: usize) -> bool {
        self.tallies[place].open() > 0
    }

    /// Returns true if a dependant of this task has not ended.
    pub(super) fn is_awaited(&self, place: usize) -> bool {
        self.waiting[place] > 0
    }
}
