//! The shares of the tasks in the children that a run may have (`limits.max_descendants`).
//!
//! Pure. The children belong to all tasks whose agents may delegate, in equal shares. A task may use
//! more than its share, but not what is kept for another one that has not ended: as much of that one's
//! share as it has not used. What a task that has ended did not use is there for the others. So a task
//! with many children leaves no other without, whichever begins first. The instances of a fan-out have
//! one share together. Tasks that an agent proposed and about which no person was asked, whose agents
//! count as children, use the share of the task of that agent, as if it had delegated the work.

use ahash::{HashMap, HashSet};

/// The shares of a run. Tasks are named by their place in the plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// The most children of the run.
    most: usize,
    /// The task whose share a task uses, where it is not its own.
    lent: HashMap<usize, usize>,
    /// The tasks that use a share and have not ended.
    open: HashSet<usize>,
    shares: HashMap<usize, Share>,
    /// Number of tasks that have a share.
    count: usize,
    /// The sum of what is kept for those that have not ended.
    kept: usize,
}

/// What one task has used of the children, and whether something is kept for it.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    used: usize,
    /// True if it has a share. Others use what is not kept.
    is_due: bool,
    /// Number of the tasks that use it and have not ended.
    open: usize,
}

impl Shares {
    /// Makes the shares of a run that may have so many children.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Returns the task whose share a task uses.
    pub(super) fn owner(&self, task: usize) -> usize {
        self.lent.get(&task).copied().unwrap_or(task)
    }

    /// Returns true if a task uses the share of another one.
    pub(super) fn is_lent(&self, task: usize) -> bool {
        self.lent.contains_key(&task)
    }

    /// Lets a task use the share of another one.
    pub(super) fn lend(&mut self, task: usize, from: usize) {
        let owner = self.owner(from);
        self.lent.insert(task, owner);
    }

    /// Returns what is kept for a task that has a share.
    fn kept_for(&self, owner: usize) -> usize {
        let share = self.shares.get(&owner).filter(|share| share.is_due && share.open > 0);
        share.map_or(0, |share| (self.most / self.count.max(1)).saturating_sub(share.used))
    }

    /// Adds tasks that have not ended and use a share. Each share may become another one, so this
    /// looks at all of them.
    pub(super) fn add(&mut self, tasks: impl IntoIterator<Item = usize>) {
        for task in tasks.into_iter().filter(|task| self.open.insert(*task)).collect::<Vec<_>>() {
            let owner = self.owner(task);
            let share = self.shares.entry(owner).or_default();
            self.count += usize::from(!share.is_due);
            share.is_due = true;
            share.open += 1;
        }
        self.kept = self.shares.keys().map(|owner| self.kept_for(*owner)).sum();
    }

    /// Notes that a task has ended.
    pub(super) fn ended(&mut self, task: usize) {
        if self.open.remove(&task) {
            self.change(task, |share| share.open -= 1);
        }
    }

    /// Counts children of a task.
    pub(super) fn count(&mut self, task: usize, more: usize) {
        self.change(task, |share| share.used += more);
    }

    /// Takes a child of a task back that did not come to be.
    pub(super) fn take_back(&mut self, task: usize) {
        self.change(task, |share| share.used = share.used.saturating_sub(1));
    }

    fn change(&mut self, task: usize, change: impl FnOnce(&mut Share)) {
        let owner = self.owner(task);
        let before = self.kept_for(owner);
        change(self.shares.entry(owner).or_default());
        self.kept = self.kept - before + self.kept_for(owner);
    }

    /// Returns the number of children that a task may still have, of so many that are left to the run.
    pub(super) fn left(&self, task: usize, of_run: usize) -> usize {
        of_run.saturating_sub(self.kept - self.kept_for(self.owner(task)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_task_takes_what_is_kept_for_another() {
        let mut shares = Shares::new(100);
        shares.add([0, 1]);
        // The greedy one may have its half.
        assert_eq!(shares.left(0, 100), 50);
        shares.count(0, 50);
        assert_eq!((shares.left(0, 50), shares.left(1, 50)), (0, 50));
        shares.count(1, 1);
        assert_eq!(shares.left(0, 49), 0);
        // What the other did not use is free when it has ended.
        shares.ended(1);
        shares.ended(1);
        assert_eq!((shares.left(0, 49), shares.left(1, 49)), (49, 49));
        // A task that came later has a share of its own, as far as something is left.
        shares.add([2]);
        assert_eq!((shares.left(0, 49), shares.left(2, 49)), (16, 49));
        shares.count(0, 16);
        shares.take_back(0);
        assert_eq!(shares.left(0, 34), 1);
    }

    #[test]
    fn whoever_is_alone_has_all_and_who_delegates_unforeseen_has_what_is_not_kept() {
        let mut shares = Shares::new(10);
        assert_eq!(shares.left(7, 10), 10);
        shares.add([0]);
        assert_eq!((shares.left(0, 10), shares.left(7, 10)), (10, 0));
        shares.count(0, 4);
        assert_eq!(shares.left(0, 6), 6);
        // More tasks than children: nothing is kept, and the first that come have them.
        let mut shares = Shares::new(3);
        shares.add(0..5);
        assert_eq!(shares.left(4, 3), 3);
    }

    #[test]
    fn what_an_agent_proposes_uses_the_share_of_its_task() {
        let mut shares = Shares::new(100);
        shares.add([0, 1]);
        // The first proposes a task, whose agent proposes another.
        shares.lend(5, 0);
        shares.lend(6, 5);
        shares.add([5, 6]);
        assert_eq!([0, 1, 5, 6].map(|task| shares.left(task, 100)), [50; 4]);
        shares.count(6, 50);
        assert_eq!([0, 1, 5].map(|task| shares.left(task, 50)), [0, 50, 0]);
        // Something is kept until all that use the share have ended.
        shares.take_back(6);
        shares.ended(0);
        assert_eq!((shares.left(5, 51), shares.left(1, 51)), (1, 50));
        shares.ended(5);
        shares.ended(6);
        assert_eq!(shares.left(1, 51), 51);
    }

    #[test]
    fn all_tasks_together_have_no_more_than_the_run_and_each_its_share() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (most, count) = (rng.usize(1..60), rng.usize(1..9));
            let mut shares = Shares::new(most);
            shares.add(0..count);
            let (mut used, mut open) = (vec![0; count], vec![true; count]);
            for _ in 0..500 {
                let task = rng.usize(..count);
                let left = most - used.iter().sum::<usize>();
                if open[task] && rng.u32(..50) == 0 {
                    open[task] = false;
                    shares.ended(task);
                } else if open[task] {
                    let may = shares.left(task, left);
                    assert!(may > 0 || used[task] >= most / count, "{seed}: {used:?}");
                    if may > 0 {
                        shares.count(task, 1);
                        used[task] += 1;
                    }
                }
            }
            assert!(used.iter().sum::<usize>() <= most, "{seed}");
        }
    }
}
