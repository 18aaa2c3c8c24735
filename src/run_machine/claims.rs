//! The locks that tasks need, and when they claim, hold and release them.

use super::facts::Facts;
use super::locks::Lock;
use super::slots::Rank;
use super::turns::Precedence;

impl Facts {
    /// Returns the locks that the task at `place` needs while an attempt is at work, in their order.
    fn locks_of(&self, place: usize) -> Vec<Lock> {
        let named = self.spec(place).locks.iter().cloned().map(Lock::Named);
        let member = self.settings.plan.member(place);
        let limit = member.and_then(|member| {
            let most = self.spec(member.of).fan_out.as_ref()?.max_concurrency?;
            Some(Lock::FanOut { place: member.of, most })
        });
        let mut locks: Vec<_> = named.chain(limit).collect();
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    /// Returns the precedence of a task among those of its owner.
    pub(super) fn precedence(&self, place: usize) -> Precedence {
        let since = self.status(place).map_or(0, |status| status.ready_seq);
        let needs_several = self.spec(place).locks.len() > 1;
        Precedence::new(place, self.agenda.path(place), since, needs_several)
    }

    /// Claims the locks of a task that could start. Returns true if it has all of them.
    pub(super) fn claim_locks(&mut self, place: usize) -> bool {
        let (owner, precedence) = (self.owner(place, Rank::Main), self.precedence(place));
        let locks = self.locks_of(place);
        self.locks.claim(owner, precedence, locks)
    }

    /// Gives the locks that are free to those who are next. The tasks that have all of theirs want a
    /// slot now.
    pub(super) fn grant_locks(&mut self) {
        for task in self.locks.grant() {
            self.agenda.touch(task);
        }
    }

    /// Gives the task of an attempt that is at work its locks.
    pub(super) fn hold_locks(&mut self, place: usize) {
        let locks = self.locks_of(place);
        if !locks.is_empty() {
            let (owner, precedence) = (self.owner(place, Rank::Main), self.precedence(place));
            self.locks.hold(owner, precedence, locks);
        }
    }

    /// Notes that a task had its locks before this process.
    pub(super) fn had_locks(&mut self, place: usize) {
        let (owner, locks) = (self.owner(place, Rank::Main), self.locks_of(place));
        self.locks.had(owner, locks);
    }

    /// Releases the locks of a task whose attempt has ended, or that will not start now.
    pub(super) fn release_locks(&mut self, place: usize) {
        self.locks.release(place);
    }
}
