//! The locks of tasks: named resources that one task at a time may use, and the limits of fan-outs on
//! how many of their instances are at work.
//!
//! Pure. A task takes all its locks at once when an attempt begins, so tasks never wait for each
//! other in a circle. A task that finds a lock taken waits in the line of that lock and holds
//! nothing meanwhile.

use std::collections::{HashMap, HashSet, VecDeque};

use super::RunMachine;
use crate::id::Name;

/// A lock that a task needs, with the number of tasks that may hold it at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lock {
    /// A resource of the configuration: one task at a time.
    Named(Name),
    /// The limit of the fan-out at this place in the plan.
    FanOut {
        /// The place.
        place: usize,
        /// The most instances at work.
        most: usize,
    },
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
    held: usize,
    /// The tasks that found it taken, by place in the plan. One that waits no longer stays in the
    /// line and is skipped.
    waiting: VecDeque<usize>,
}

/// The locks of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    lines: HashMap<Lock, Line>,
    holders: HashSet<usize>,
    /// The lock in whose line each waiting task stands.
    waits_for: HashMap<usize, Lock>,
}

impl Locks {
    /// Returns true if a task can have all of these locks now. Otherwise the task waits in the line
    /// of the first that is taken, and the tasks that are to be decided instead of it are added to
    /// `woken`.
    pub(super) fn are_free(&mut self, task: usize, locks: &[Lock], woken: &mut Vec<usize>) -> bool {
        let is_taken =
            |lock: &&Lock| self.lines.get(lock).is_some_and(|line| line.held >= lock.capacity());
        let Some(taken) = locks.iter().find(is_taken).cloned() else { return true };
        if self.waits_for.get(&task) != Some(&taken) {
            self.lines.entry(taken.clone()).or_default().waiting.push_back(task);
            self.waits_for.insert(task, taken);
            // It may have been woken for another of its locks, which is free for the next in line.
            self.wake(locks, woken);
        }
        false
    }

    /// Gives a task its locks, which must be free.
    pub(super) fn take(&mut self, task: usize, locks: &[Lock]) {
        self.waits_for.remove(&task);
        if !locks.is_empty() && self.holders.insert(task) {
            for lock in locks {
                self.lines.entry(lock.clone()).or_default().held += 1;
            }
        }
    }

    /// Takes the locks of a task away, if it holds or wants them. The tasks that may have them now
    /// are added to `woken`.
    pub(super) fn release(&mut self, task: usize, locks: &[Lock], woken: &mut Vec<usize>) {
        self.waits_for.remove(&task);
        if self.holders.remove(&task) {
            for lock in locks {
                if let Some(line) = self.lines.get_mut(lock) {
                    line.held -= 1;
                }
            }
        }
        self.wake(locks, woken);
    }

    /// Takes from the line of each lock as many tasks as the lock has room for.
    fn wake(&mut self, locks: &[Lock], woken: &mut Vec<usize>) {
        for lock in locks {
            let Some(line) = self.lines.get_mut(lock) else { continue };
            let mut free = lock.capacity().saturating_sub(line.held);
            while free > 0
                && let Some(next) = line.waiting.pop_front()
            {
                if self.waits_for.get(&next) == Some(lock) {
                    self.waits_for.remove(&next);
                    woken.push(next);
                    free -= 1;
                }
            }
        }
    }
}

impl RunMachine {
    /// Returns the locks that the task at `place` needs while an attempt is at work.
    fn locks_of(&self, place: usize) -> Vec<Lock> {
        let named = self.spec(place).locks.iter().cloned().map(Lock::Named);
        let member = self.settings.plan.member(place);
        let limit = member.and_then(|member| {
            let most = self.spec(member.of).fan_out.as_ref()?.max_concurrency?;
            Some(Lock::FanOut { place: member.of, most })
        });
        named.chain(limit).collect()
    }

    /// Returns true if a task can have all its locks now; otherwise it waits for one of them.
    pub(super) fn locks_are_free(&mut self, place: usize) -> bool {
        let (locks, mut woken) = (self.locks_of(place), Vec::new());
        let is_free = self.open.locks.are_free(place, &locks, &mut woken);
        woken.into_iter().for_each(|task| self.agenda.touch(task));
        is_free
    }

    /// Gives a task its locks for an attempt.
    pub(super) fn take_locks(&mut self, place: usize) {
        let locks = self.locks_of(place);
        self.open.locks.take(place, &locks);
    }

    /// Releases the locks of a task whose attempt has ended, or that will not start.
    pub(super) fn release_locks(&mut self, place: usize) {
        let (locks, mut woken) = (self.locks_of(place), Vec::new());
        self.open.locks.release(place, &locks, &mut woken);
        woken.into_iter().for_each(|task| self.agenda.touch(task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Lock {
        Lock::Named(Name::new(text).expect("a name"))
    }

    /// Lets tasks with these locks compete until none is left, and returns how many were at work at
    /// most for each lock.
    fn compete(needs: &[Vec<Lock>], seed: u64) -> HashMap<Lock, usize> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut locks, mut most) = (Locks::default(), HashMap::new());
        let mut open: Vec<usize> = (0..needs.len()).collect();
        let (mut at_work, mut done) = (Vec::new(), 0);
        while done < needs.len() {
            let mut woken = Vec::new();
            if !open.is_empty() && (at_work.is_empty() || rng.bool()) {
                let task = open.swap_remove(rng.usize(..open.len()));
                if locks.are_free(task, &needs[task], &mut woken) {
                    locks.take(task, &needs[task]);
                    at_work.push(task);
                }
            } else {
                assert!(!at_work.is_empty(), "everybody waits: {locks:?}");
                let task = at_work.swap_remove(rng.usize(..at_work.len()));
                locks.release(task, &needs[task], &mut woken);
                done += 1;
            }
            open.extend(woken);
            for lock in needs.iter().flatten() {
                let held = at_work.iter().filter(|task| needs[**task].contains(lock)).count();
                let most = most.entry(lock.clone()).or_default();
                *most = held.max(*most);
            }
        }
        most
    }

    #[test]
    fn every_task_gets_its_locks_and_none_is_held_too_often() {
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let all = [named("a"), named("b"), Lock::FanOut { place: 1, most: 3 }];
            let needs: Vec<Vec<Lock>> = (0..rng.usize(1..20))
                .map(|_| all.iter().filter(|_| rng.bool()).cloned().collect())
                .collect();
            for (lock, most) in compete(&needs, seed) {
                assert!(most <= lock.capacity(), "{lock:?} {seed}");
            }
        }
    }
}
