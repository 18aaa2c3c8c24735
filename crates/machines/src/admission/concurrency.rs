//! The number of calls to a provider at the same time: it begins low, is halved when the provider is
//! overloaded, and grows back.
//!
//! Pure: time is given as the time since the admission began.

use std::time::Duration;

/// The calls at the same time with which a run begins: the default of `max_concurrency`.
const FIRST: usize = 8;

/// Time in which the number of calls doubles at first. A provider that refuses calls refuses them at once, so
/// few calls are refused until the first refusal is known; 64 agents are at work after three seconds.
const DOUBLING: Duration = Duration::from_secs(1);

/// Weight of the newest call in the share of those that found no capacity.
const NEWEST: f64 = 1.0 / 16.0;

/// The share from which the measurement begins.
const USUAL: f64 = 0.25;

/// The share above which the number of calls is halved: where a quarter is refused by chance, the measured share
/// stays below it.
const MOST: f64 = 0.55;

/// The most calls at the same time, and how many of them are made now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Concurrency {
    max: usize,
    is_adaptive: bool,
    /// The time of the first call.
    began: Option<Duration>,
    /// The part of `max` that is used; the fraction grows by one after as many calls as it has.
    window: f64,
    /// The time of the newest halving.
    halved_at: Option<Duration>,
    /// The share of the newest calls for which there was no capacity.
    share: f64,
}

impl Concurrency {
    pub(super) fn new(max: usize, is_adaptive: bool) -> Self {
        let max = max.max(1);
        Self { max, is_adaptive, began: None, window: max as f64, halved_at: None, share: USUAL }
    }

    /// Takes note of a call that starts.
    pub(super) fn start(&mut self, now: Duration) {
        self.began.get_or_insert(now);
    }

    /// Returns how many calls may be made at the same time.
    pub(super) fn limit(&self, now: Duration) -> usize {
        // The window is at most `max` and at least one, so the conversion loses only the fraction.
        let window = (self.window as usize).clamp(1, self.max);
        window.min(self.first(now))
    }

    /// Returns the time at which the limit grows by itself.
    pub(super) fn grows_at(&self, now: Duration) -> Option<Duration> {
        let began = self.began.filter(|_| self.first(now) < self.max)?;
        Some(began + DOUBLING * (self.doublings(now) + 1))
    }

    fn doublings(&self, now: Duration) -> u32 {
        let since = self.began.map_or(Duration::ZERO, |began| now.saturating_sub(began));
        u32::try_from(since.as_millis() / DOUBLING.as_millis()).unwrap_or(u32::MAX)
    }

    /// Returns the limit at the beginning of a run.
    fn first(&self, now: Duration) -> usize {
        match self.is_adaptive && self.halved_at.is_none() {
            true => FIRST.checked_shl(self.doublings(now).min(32)).unwrap_or(usize::MAX).max(FIRST),
            false => usize::MAX,
        }
    }

    /// Takes note of a call that gave a reply.
    pub(super) fn succeeded(&mut self) {
        self.window = (self.window + 1.0 / self.window).min(self.max as f64);
        self.share -= self.share * NEWEST;
    }

    /// Takes note that refusals say nothing of the number of calls.
    pub(super) fn recover(&mut self) {
        self.window = self.max as f64;
    }

    /// Takes note that there was no capacity for a call. It is refused by chance or because there are too many:
    /// only where most are refused there are too many.
    pub(super) fn no_capacity(&mut self, now: Duration, started: Duration, out: usize) {
        self.share += (1.0 - self.share) * NEWEST;
        if self.share > MOST {
            self.share = USUAL;
            self.overloaded(now, started, out);
        }
    }

    /// Takes note that the provider refused a call for want of capacity. It started at `started`, and
    /// `out` calls were under way with it. Calls that started before the newest halving change nothing.
    pub(super) fn overloaded(&mut self, now: Duration, started: Duration, out: usize) {
        if !self.is_adaptive || self.halved_at.is_some_and(|at| started <= at) {
            return;
        }
        self.halved_at = Some(now);
        let used = self.window.min(out.max(1) as f64);
        self.window = (used / 2.0).max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn calls_begin_gradually_once() {
        let mut calls = Concurrency::new(50, true);
        assert_eq!((calls.limit(9 * S), calls.grows_at(9 * S)), (8, None));
        calls.start(9 * S);
        assert_eq!(calls.grows_at(9 * S), Some(10 * S));
        let limits = [9, 10, 11, 12, 60, 4_000_000].map(|at| calls.limit(at * S));
        assert_eq!(limits, [8, 16, 32, 50, 50, 50]);
        assert_eq!(calls.grows_at(12 * S), None);
        let few = Concurrency::new(3, true);
        assert_eq!((few.limit(S), few.grows_at(S)), (3, None));
        assert_eq!(Concurrency::new(50, false).limit(S), 50);
    }

    #[test]
    fn a_part_of_calls_without_capacity_costs_no_more_than_itself() {
        let mut calls = Concurrency::new(16, true);
        calls.start(S);
        for at in 20..200 {
            calls.no_capacity(at * S, at * S, 16);
            (0..3).for_each(|_| calls.succeeded());
        }
        assert_eq!(calls.limit(200 * S), 16);
        (0..12).for_each(|_| calls.no_capacity(201 * S, 200 * S, 16));
        assert_eq!(calls.limit(201 * S), 8, "nobody gets through");
        calls.recover();
        assert_eq!(calls.limit(201 * S), 16);
    }

    #[test]
    fn an_overload_halves_them_once_and_replies_bring_them_back() {
        let mut calls = Concurrency::new(16, true);
        calls.start(S);
        for _ in 0..8 {
            calls.overloaded(20 * S, 19 * S, 16);
        }
        assert_eq!(calls.limit(20 * S), 8, "those under way count as one");
        calls.overloaded(22 * S, 21 * S, 8);
        assert_eq!(calls.limit(22 * S), 4);
        (0..5).for_each(|_| calls.succeeded());
        assert_eq!(calls.limit(22 * S), 5);
        (0..500).for_each(|_| calls.succeeded());
        assert_eq!(calls.limit(22 * S), 16);
        for at in 23..40 {
            calls.overloaded(at * S, at * S, 1);
        }
        assert_eq!(calls.limit(40 * S), 1, "one call is always made");
        let mut fixed = Concurrency::new(16, false);
        fixed.overloaded(S, S, 16);
        assert_eq!(fixed.limit(S), 16);
    }
}
