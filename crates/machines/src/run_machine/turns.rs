//! The queue in which work waits for something that is scarce: owners take turns.
//!
//! Pure. Every piece of work has an [`Owner`], and the owner whose latest turn lies furthest back is
//! served next: one that had none yet comes first. So an owner with much work delays nobody by more
//! than one piece at a time, and one with little, such as a chain of tasks, is served as soon as
//! something comes free. Of the work of one owner the least comes first, by its own order. Nothing is
//! searched: what waits is kept in the order in which it is served.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ahash::HashMap;

/// Those who take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Owner {
    /// All tasks of the graph that are no instances.
    Graph,
    /// The task at this place: its instances, if it fans out, and the children of all its agents.
    Task(usize),
}

/// The place of a task among those of its owner. It follows from the plan and the journal alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Precedence {
    /// Number of tasks on the longest path that waits for it.
    path: Reverse<u32>,
    /// Number of the record since which it waits.
    since: u64,
    /// Its place in the plan.
    pub(super) task: usize,
}

impl Precedence {
    /// Makes the precedence of a task. One that needs several locks comes before all that need fewer,
    /// in the order in which they came: each of its locks is kept for it while it waits for the next.
    pub(super) fn new(task: usize, path: u32, since: u64, needs_several: bool) -> Self {
        Self { path: Reverse(if needs_several { u32::MAX } else { path }), since, task }
    }
}

/// Work that waits. The work of a class `C` is passed over as long as the class has no capacity.
#[derive(Clone, Debug)]
pub(super) struct Turns<C, W> {
    /// For each owner, the number of its latest turn.
    latest: HashMap<Owner, u64>,
    /// Number of turns so far.
    count: u64,
    classes: BTreeMap<C, Class<W>>,
}

/// The work of one class.
#[derive(Clone, Debug)]
struct Class<W> {
    waiting: HashMap<Owner, BTreeSet<W>>,
    /// The owners that have some, by their latest turn.
    order: BTreeSet<(u64, Owner)>,
}

impl<C, W> Default for Turns<C, W> {
    fn default() -> Self {
        Self { latest: HashMap::default(), count: 0, classes: BTreeMap::new() }
    }
}

impl<C: Copy + Ord, W: Copy + Ord> Turns<C, W> {
    /// Returns true if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Adds work that waits.
    pub(super) fn insert(&mut self, class: C, owner: Owner, work: W) {
        let turn = self.latest(owner);
        let none = || Class { waiting: HashMap::default(), order: BTreeSet::new() };
        let class = self.classes.entry(class).or_insert_with(none);
        class.waiting.entry(owner).or_default().insert(work);
        class.order.insert((turn, owner));
    }

    /// Removes work, if it waits.
    pub(super) fn remove(&mut self, class: C, owner: Owner, work: W) {
        let turn = self.latest(owner);
        let Some(found) = self.classes.get_mut(&class) else { return };
        let Some(waiting) = found.waiting.get_mut(&owner) else { return };
        waiting.remove(&work);
        if waiting.is_empty() {
            found.waiting.remove(&owner);
            found.order.remove(&(turn, owner));
        }
        if found.waiting.is_empty() {
            self.classes.remove(&class);
        }
    }

    /// Returns the work that is next, among the classes that have capacity. It still waits.
    pub(super) fn next(&self, has_capacity: impl Fn(C) -> bool) -> Option<(C, Owner, W)> {
        let first = |(class, found): (&C, &Class<W>)| {
            let (turn, owner) = *found.order.first()?;
            Some((turn, owner, *found.waiting.get(&owner)?.first()?, *class))
        };
        let firsts =
            self.classes.iter().filter(|(class, _)| has_capacity(**class)).filter_map(first);
        let (_, owner, work, class) = firsts.min()?;
        Some((class, owner, work))
    }

    /// Returns the work in the order in which it is served if nothing else comes.
    pub(super) fn in_order(&self) -> impl Iterator<Item = W> {
        let mut left = self.clone();
        std::iter::from_fn(move || {
            let (class, owner, work) = left.next(|_| true)?;
            left.remove(class, owner, work);
            left.had(owner);
            Some(work)
        })
    }

    /// Notes that an owner had a turn, and returns its number.
    pub(super) fn had(&mut self, owner: Owner) -> u64 {
        self.count += 1;
        let before = self.latest.insert(owner, self.count).unwrap_or(0);
        for class in self.classes.values_mut() {
            if class.order.remove(&(before, owner)) {
                class.order.insert((self.count, owner));
            }
        }
        self.count
    }

    fn latest(&self, owner: Owner) -> u64 {
        self.latest.get(&owner).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves everything, and returns the work in its order.
    fn order<W: Copy + Ord>(turns: &mut Turns<(), W>) -> Vec<W> {
        let mut order = Vec::new();
        while let Some(((), owner, work)) = turns.next(|()| true) {
            turns.remove((), owner, work);
            turns.had(owner);
            order.push(work);
        }
        order
    }

    #[test]
    fn whoever_waits_longest_for_a_turn_has_it() {
        let mut turns = Turns::default();
        for work in [30, 31, 32, 33] {
            turns.insert((), Owner::Task(3), work);
        }
        turns.had(Owner::Task(3));
        turns.insert((), Owner::Graph, 1);
        turns.insert((), Owner::Task(4), 41);
        turns.insert((), Owner::Task(4), 40);
        assert_eq!(order(&mut turns), [1, 40, 30, 41, 31, 32, 33]);
        // One that comes back after others had their turns is not behind them.
        turns.insert((), Owner::Task(3), 34);
        turns.insert((), Owner::Graph, 2);
        assert_eq!(order(&mut turns), [2, 34]);
        assert!(turns.is_empty());
    }

    #[test]
    fn a_class_without_capacity_is_passed_over_and_a_turn_counts_for_all_of_them() {
        let mut turns = Turns::default();
        turns.insert('a', Owner::Graph, 1);
        turns.insert('b', Owner::Graph, 2);
        turns.insert('b', Owner::Task(7), 3);
        assert_eq!(turns.next(|class| class != 'a'), Some(('b', Owner::Graph, 2)));
        assert_eq!(turns.next(|_| true), Some(('a', Owner::Graph, 1)));
        turns.remove('a', Owner::Graph, 1);
        turns.had(Owner::Graph);
        assert_eq!(turns.next(|_| true), Some(('b', Owner::Task(7), 3)));
        assert_eq!(turns.next(|class| class == 'a'), None);
    }

    #[test]
    fn of_one_owner_the_longest_path_is_first_but_for_what_needs_several() {
        let mut turns = Turns::default();
        let works = [(1, 0, 5, false), (2, 9, 6, false), (3, 9, 4, false), (4, 0, 9, true)];
        let works =
            works.map(|(task, path, since, several)| Precedence::new(task, path, since, several));
        works.iter().for_each(|work| turns.insert((), Owner::Graph, *work));
        let order: Vec<usize> = order(&mut turns).iter().map(|work| work.task).collect();
        assert_eq!(order, [4, 3, 2, 1]);
    }

    /// Random owners with random work: between two turns of an owner that always has work, no other has
    /// two.
    #[test]
    fn nobody_waits_for_more_than_a_turn_of_each_other() {
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let owners = rng.usize(2..6);
            let mut turns = Turns::default();
            let mut left: Vec<usize> = (0..owners).map(|_| rng.usize(1..30)).collect();
            for (owner, count) in left.iter().enumerate() {
                (0..*count).for_each(|n| turns.insert(rng.bool(), Owner::Task(owner), n));
            }
            let mut since: Vec<Vec<usize>> = vec![vec![0; owners]; owners];
            while let Some((class, owner, work)) = turns.next(|_| true) {
                turns.remove(class, owner, work);
                turns.had(owner);
                let Owner::Task(owner) = owner else { panic!("no such owner") };
                left[owner] -= 1;
                for other in (0..owners).filter(|other| left[*other] > 0 && *other != owner) {
                    since[other][owner] += 1;
                    assert!(since[other][owner] <= 1, "{seed}: {other} waits for {owner}");
                }
                since[owner] = vec![0; owners];
            }
            assert!(left.iter().all(|left| *left == 0), "{seed}: {left:?}");
        }
    }
}
