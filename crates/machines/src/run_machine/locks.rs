//! The locks of tasks: named resources that one task at a time may use, and the limits of fan-outs on
//! how many of their instances are at work.
//!
//! Pure. A task gets its locks one after the other, in one order for all tasks, and keeps those that it
//! has while it waits for the next, and then for a slot. So tasks never wait for each other in a circle.
//! The line before each lock is a queue in which owners take turns ([`Turns`]), as that for slots: a
//! fan-out whose instances need a lock does not keep it from others, and a task that needs several is
//! overtaken by no other task of its owner.

use std::collections::{BTreeSet, HashMap};

use super::turns::{Owner, Precedence, Turns};
use crate::id::Name;

/// A lock that a task needs, with the number of tasks that may hold it at the same time. Tasks get
/// their locks in the order of this type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Lock {
    /// The limit of the fan-out at this place in the plan.
    FanOut {
        /// The place.
        place: usize,
        /// The most instances at work.
        most: usize,
    },
    /// A resource of the configuration: one task at a time.
    Named(Name),
}

impl Lock {
    fn capacity(&self) -> usize {
        match self {
            Self::Named(_) => 1,
            Self::FanOut { most, .. } => *most,
        }
    }
}

/// The state of one lock.
#[derive(Clone, Debug, Default)]
struct Line {
    /// Number of tasks that have it.
    taken: usize,
    waiting: Turns<(), Precedence>,
}

/// The claim of a task on its locks.
#[derive(Clone, Debug)]
struct Claim {
    owner: Owner,
    precedence: Precedence,
    /// Its locks, in their order.
    locks: Vec<Lock>,
    /// Number of them that it has: the first ones. It stands in the line before the next.
    has: usize,
}

/// The locks of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    lines: HashMap<Lock, Line>,
    /// The claims of the tasks that wait for their locks or have them, by place in the plan.
    claims: HashMap<usize, Claim>,
    /// The locks that may have something to give.
    due: BTreeSet<Lock>,
}

impl Locks {
    /// Claims these locks for a task, unless it has claimed them before. Returns true if it has all of
    /// them.
    pub(super) fn claim(&mut self, owner: Owner, precedence: Precedence, locks: Vec<Lock>) -> bool {
        if locks.is_empty() {
            return true;
        }
        let task = precedence.task;
        if let Some(claim) = self.claims.get(&task) {
            if claim.has == claim.locks.len() || claim.precedence == precedence {
                return claim.has == claim.locks.len();
            }
            self.leave_line(task);
        }
        let has = self.claims.get(&task).map_or(0, |claim| claim.has);
        self.claims.insert(task, Claim { owner, precedence, locks, has });
        self.join_line(task);
        false
    }

    fn join_line(&mut self, task: usize) {
        let Some(claim) = self.claims.get(&task) else { return };
        let Some(lock) = claim.locks.get(claim.has) else { return };
        let line = self.lines.entry(lock.clone()).or_default();
        line.waiting.insert((), claim.owner, claim.precedence);
        self.due.insert(lock.clone());
    }

    fn leave_line(&mut self, task: usize) {
        let Some(claim) = self.claims.get(&task) else { return };
        let Some(lock) = claim.locks.get(claim.has) else { return };
        if let Some(line) = self.lines.get_mut(lock) {
            line.waiting.remove((), claim.owner, claim.precedence);
        }
    }

    /// Gives the locks that are free to those who are next, and returns the tasks that have all of
    /// theirs because of that.
    pub(super) fn grant(&mut self) -> Vec<usize> {
        let mut complete = Vec::new();
        // Whoever gets a lock waits for a later one next, so no lock is due twice.
        while let Some(lock) = self.due.pop_first() {
            while let Some(line) = self.lines.get_mut(&lock)
                && line.taken < lock.capacity()
                && let Some(((), owner, next)) = line.waiting.next(|()| true)
            {
                line.waiting.remove((), owner, next);
                line.waiting.had(owner);
                line.taken += 1;
                let Some(claim) = self.claims.get_mut(&next.task) else { continue };
                claim.has += 1;
                match claim.has == claim.locks.len() {
                    true => complete.push(next.task),
                    false => self.join_line(next.task),
                }
            }
        }
        complete
    }

    /// Gives a task that is at work already its locks.
    pub(super) fn hold(&mut self, owner: Owner, precedence: Precedence, locks: Vec<Lock>) {
        for lock in &locks {
            self.lines.entry(lock.clone()).or_default().taken += 1;
        }
        let has = locks.len();
        self.claims.insert(precedence.task, Claim { owner, precedence, locks, has });
    }

    /// Notes that an owner had its turn with these locks before.
    pub(super) fn had(&mut self, owner: Owner, locks: Vec<Lock>) {
        for lock in locks {
            self.lines.entry(lock).or_default().waiting.had(owner);
        }
    }

    /// Returns the lock for which a task stands in line.
    pub(super) fn missing(&self, task: usize) -> Option<&Lock> {
        let claim = self.claims.get(&task)?;
        claim.locks.get(claim.has)
    }

    /// Returns the locks that tasks have, each with such a task by its place in the plan.
    pub(super) fn held(&self) -> impl Iterator<Item = (&Lock, usize)> {
        self.claims
            .iter()
            .flat_map(|(task, claim)| claim.locks.iter().take(claim.has).map(|lock| (lock, *task)))
    }

    /// Returns the tasks that have one of these locks, if more have it than may. No machine lets that happen; a
    /// replay of its records can.
    pub(super) fn overdrawn(&self, locks: &[Lock]) -> Vec<usize> {
        let is_over =
            |lock: &&Lock| self.lines.get(*lock).is_some_and(|line| line.taken > lock.capacity());
        let over: Vec<_> = locks.iter().filter(is_over).collect();
        match over.is_empty() {
            true => Vec::new(),
            false => {
                self.held().filter(|(lock, _)| over.contains(lock)).map(|(_, at)| at).collect()
            }
        }
    }

    /// Returns the tasks of each line in the order in which they get the lock, by place in the plan.
    pub(super) fn lines_in_order(&self) -> Vec<Vec<usize>> {
        let tasks = |line: &Line| line.waiting.in_order().map(|next| next.task).collect();
        self.lines.values().map(tasks).collect()
    }

    /// Ends the claim of a task, if it has one.
    pub(super) fn release(&mut self, task: usize) {
        self.leave_line(task);
        let Some(claim) = self.claims.remove(&task) else { return };
        for lock in claim.locks.into_iter().take(claim.has) {
            if let Some(line) = self.lines.get_mut(&lock) {
                line.taken -= 1;
                self.due.insert(lock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Lock {
        Lock::Named(Name::new(text).expect("a name"))
    }

    /// A task that came when its number says, of an owner for each ten of them.
    pub(super) fn claim(locks: &mut Locks, task: usize, needs: &[&Lock]) {
        let precedence = Precedence::new(task, 0, task as u64, needs.len() > 1);
        let needs = needs.iter().map(|lock| (*lock).clone()).collect();
        locks.claim(Owner::Task(task / 10), precedence, needs);
    }

    /// Lets tasks with these locks compete until none is left: each claims, works, or gives up, in an
    /// order that the seed decides. Returns how many were at work at most for each lock.
    fn compete(needs: &[Vec<Lock>], seed: u64) -> HashMap<Lock, usize> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut locks, mut most) = (Locks::default(), HashMap::new());
        let mut open: Vec<usize> = (0..needs.len()).collect();
        let (mut at_work, mut waiting): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut done = 0;
        while done < needs.len() {
            if !open.is_empty() && (at_work.is_empty() || rng.bool()) {
                let task = open.swap_remove(rng.usize(..open.len()));
                claim(&mut locks, task, &needs[task].iter().collect::<Vec<_>>());
                match needs[task].is_empty() {
                    true => at_work.push(task),
                    false => waiting.push(task),
                }
            } else {
                assert!(!at_work.is_empty(), "everybody waits: {locks:?}");
                let lot = if rng.u32(..5) == 0 && !waiting.is_empty() {
                    &mut waiting
                } else {
                    &mut at_work
                };
                let task = lot.swap_remove(rng.usize(..lot.len()));
                locks.release(task);
                done += 1;
            }
            let complete = locks.grant();
            waiting.retain(|task| !complete.contains(task));
            at_work.extend(complete);
            for lock in needs.iter().flatten() {
                let held = at_work.iter().filter(|task| needs[**task].contains(lock)).count();
                let most = most.entry(lock.clone()).or_default();
                *most = held.max(*most);
            }
        }
        assert!(locks.claims.is_empty() && locks.lines.values().all(|line| line.taken == 0));
        assert!(locks.lines.values().all(|line| line.waiting.is_empty()));
        most
    }

    #[test]
    fn every_task_gets_its_locks_and_none_is_held_too_often() {
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let all = [Lock::FanOut { place: 1, most: 3 }, named("a"), named("b")];
            let needs: Vec<Vec<Lock>> = (0..rng.usize(1..40))
                .map(|_| all.iter().filter(|_| rng.bool()).cloned().collect())
                .collect();
            for (lock, most) in compete(&needs, seed) {
                assert!(most <= lock.capacity(), "{lock:?} {seed}");
            }
        }
    }

    #[test]
    fn a_task_with_two_locks_starts_after_at_most_one_holder_of_each() {
        let (x, y) = (named("x"), named("y"));
        let mut locks = Locks::default();
        claim(&mut locks, 1, &[&x]);
        claim(&mut locks, 2, &[&y]);
        assert_eq!(locks.grant(), [1, 2]);
        // Those that came before it and wait already are overtaken, and none overtakes it.
        claim(&mut locks, 3, &[&x]);
        claim(&mut locks, 4, &[&y]);
        claim(&mut locks, 5, &[&x, &y]);
        claim(&mut locks, 6, &[&x]);
        locks.release(1);
        assert_eq!(locks.grant(), Vec::<usize>::new());
        locks.release(2);
        assert_eq!(locks.grant(), [5]);
        locks.release(5);
        assert_eq!(locks.grant(), [3, 4]);
        locks.release(3);
        assert_eq!(locks.grant(), [6]);
    }

    #[test]
    fn owners_take_turns_at_a_lock() {
        let (x, mut locks) = (named("x"), Locks::default());
        (0..8).for_each(|task| claim(&mut locks, task, &[&x]));
        assert_eq!(locks.grant(), [0]);
        // Another owner comes late, and has the next turn.
        claim(&mut locks, 10, &[&x]);
        claim(&mut locks, 11, &[&x]);
        let mut order = vec![0];
        for _ in 0..5 {
            locks.release(order[order.len() - 1]);
            order.extend(locks.grant());
        }
        assert_eq!(order, [0, 10, 1, 11, 2, 3]);
    }

    #[test]
    fn a_task_whose_precedence_changes_stands_in_line_once() {
        let (x, mut locks) = (named("x"), Locks::default());
        (0..3).for_each(|task| claim(&mut locks, task, &[&x]));
        assert_eq!(locks.grant(), [0]);
        let longer = Precedence::new(2, 7, 2, false);
        locks.claim(Owner::Task(0), longer, vec![x]);
        locks.release(0);
        assert_eq!(locks.grant(), [2]);
        locks.release(2);
        assert_eq!(locks.grant(), [1]);
        locks.release(1);
        assert!(locks.grant().is_empty());
    }
}
