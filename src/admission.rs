//! Admission to a provider: decides which calls may start now, by permits, a shared pause and a
//! circuit breaker.
//!
//! Pure: time is given as the time since the admission began. The caller reports that a call wants
//! to start or has ended, and receives the calls that may start and the events to be recorded. A
//! call has a key: a call that asks twice has one place in the line, and a new gateway after a
//! crash knows which calls are under way.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use crate::event::{Event, GatewayBreaker, GatewayParked, GatewayResumed};
use crate::id::Name;
use crate::policy::{Breaker, BreakerState};

/// Failures in a row, over all agents, that open the breaker: more than one unlucky call makes with
/// its first retries, fewer than twenty parallel agents make in one round.
const BREAKER_THRESHOLD: u32 = 8;

/// Time that an open breaker waits before it lets one probe through.
const BREAKER_COOLDOWN: Duration = Duration::from_secs(15);

/// Pause after a 429 that names none: the shortest that the official clients make after a second
/// failure.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause that a provider can impose on calls: a day, the longest that a quota of the public
/// services lasts. A longer value is a mistake and would overflow the clock.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// The result of a call, as far as it matters for other calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The call gave a reply.
    Succeeded,
    /// The provider asked to slow down.
    RateLimited {
        /// The pause that the provider asked for, if it named one.
        retry_after: Option<Duration>,
        /// The provider's own words.
        reason: String,
    },
    /// The call failed in a way that may affect all calls to the provider.
    Failed,
    /// The provider answered, but refused this one request.
    Refused,
    /// The caller stopped waiting for the call, so it has no result.
    Abandoned,
}

/// A consequence that the caller must carry out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect<K> {
    /// Start this call.
    Admit(K),
    /// Record this event in the journal.
    Record(Box<Event>),
}

/// The calls to one provider that are under way or want to start.
#[derive(Clone, Debug)]
pub(crate) struct Admission<K> {
    provider: Name,
    capacity: usize,
    /// True if a 429 of one call makes all calls wait.
    shares_pauses: bool,
    /// Keys in the order of asking; includes calls that gave up and are skipped when their turn
    /// comes.
    line: VecDeque<K>,
    /// Keys in `line` that still want to start.
    waiting: HashSet<K>,
    /// The calls under way; the value is true for the breaker's probe.
    out: HashMap<K, bool>,
    paused_until: Option<Duration>,
    breaker: Breaker,
}

impl<K: Clone + Eq + Hash> Admission<K> {
    /// Creates the admission to a provider that takes `capacity` calls at once (at least one).
    #[must_use]
    pub(crate) fn new(provider: Name, capacity: usize, shares_pauses: bool) -> Self {
        Self {
            provider,
            capacity: capacity.max(1),
            shares_pauses,
            line: VecDeque::new(),
            waiting: HashSet::new(),
            out: HashMap::new(),
            paused_until: None,
            breaker: Breaker::new(BREAKER_THRESHOLD, BREAKER_COOLDOWN),
        }
    }

    /// Reports that a call wants to start. A call that was admitted before is admitted again, since
    /// the first answer may not have reached it.
    pub(crate) fn ask(&mut self, now: Duration, key: K) -> Vec<Effect<K>> {
        if self.out.contains_key(&key) {
            return vec![Effect::Admit(key)];
        }
        if self.waiting.insert(key.clone()) {
            self.line.push_back(key);
        }
        self.admit(now)
    }

    /// Reports that a call has ended, or no longer wants to start.
    pub(crate) fn done(&mut self, now: Duration, key: &K, end: CallEnd) -> Vec<Effect<K>> {
        let mut effects = Vec::new();
        // A call that only waited stays in `line`; `admit` skips it there.
        self.waiting.remove(key);
        if let Some(is_probe) = self.out.remove(key) {
            self.judge(now, end, is_probe, &mut effects);
        }
        effects.extend(self.admit(now));
        effects
    }

    /// Admits the calls that may start because time has passed.
    pub(crate) fn wake(&mut self, now: Duration) -> Vec<Effect<K>> {
        self.admit(now)
    }

    /// Returns the time at which a waiting call may be admitted even if no call ends before.
    #[must_use]
    pub(crate) fn next_wake(&self, now: Duration) -> Option<Duration> {
        if self.waiting.is_empty() && self.paused_until.is_none() {
            return None;
        }
        // A pause ends with a recorded event, even if no call waits.
        if let Some(until) = self.paused_until {
            return Some(until);
        }
        // While a probe is under way the breaker is half open: its end decides, not a timer.
        let wait = self.breaker.wait(now);
        let is_open = self.breaker.state() == BreakerState::Open;
        (is_open && self.out.len() < self.capacity).then_some(now + wait)
    }

    /// Returns the keys of the calls under way.
    pub(crate) fn out(&self) -> impl Iterator<Item = &K> {
        self.out.keys()
    }

    fn judge(&mut self, now: Duration, end: CallEnd, is_probe: bool, effects: &mut Vec<Effect<K>>) {
        let changed = match end {
            CallEnd::Succeeded | CallEnd::Refused => self.breaker.succeed(),
            CallEnd::Failed => self.breaker.fail(now),
            CallEnd::RateLimited { retry_after, reason } => {
                if self.shares_pauses {
                    self.pause(now, retry_after.unwrap_or(DEFAULT_PAUSE), reason, effects);
                }
                // The provider answered: a rate limit is no outage, so the breaker closes.
                self.breaker.succeed()
            }
            // Only the end of the probe itself decides about the probe.
            CallEnd::Abandoned if is_probe => {
                self.breaker.abandon();
                true
            }
            CallEnd::Abandoned => false,
        };
        if changed {
            effects.push(self.breaker_event());
        }
    }

    fn breaker_event(&self) -> Effect<K> {
        let (provider, state) = (self.provider.clone(), self.breaker.state());
        Effect::Record(Box::new(GatewayBreaker { provider, state }.into()))
    }

    /// Makes all calls wait for `pause`, unless they already wait longer.
    fn pause(
        &mut self,
        now: Duration,
        pause: Duration,
        reason: String,
        effects: &mut Vec<Effect<K>>,
    ) {
        let pause = pause.min(LONGEST_PAUSE);
        let until = now + pause;
        if self.paused_until.is_some_and(|already| already >= until) {
            return;
        }
        self.paused_until = Some(until);
        let for_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let provider = self.provider.clone();
        let parked = GatewayParked { provider, for_ms, reason };
        effects.push(Effect::Record(Box::new(parked.into())));
    }

    /// Admits waiting calls, the oldest first, while there is capacity and neither a pause nor the
    /// breaker forbids it.
    fn admit(&mut self, now: Duration) -> Vec<Effect<K>> {
        let mut effects = Vec::new();
        if let Some(until) = self.paused_until {
            if now < until {
                return effects;
            }
            self.paused_until = None;
            let resumed = GatewayResumed { provider: self.provider.clone() };
            effects.push(Effect::Record(Box::new(resumed.into())));
        }
        while self.out.len() < self.capacity {
            while self.line.front().is_some_and(|key| !self.waiting.contains(key)) {
                self.line.pop_front();
            }
            if self.line.is_empty() || !self.breaker.admit(now) {
                return effects;
            }
            let Some(key) = self.line.pop_front() else { return effects };
            self.waiting.remove(&key);
            let is_probe = self.breaker.state() == BreakerState::HalfOpen;
            if is_probe {
                effects.push(self.breaker_event());
            }
            self.out.insert(key.clone(), is_probe);
            effects.push(Effect::Admit(key));
        }
        effects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// An admission under a clock, with calls that are numbers.
    struct Alone {
        admission: Admission<u32>,
        now: Duration,
        calls: u32,
        admitted: Vec<u32>,
        events: Vec<Event>,
    }

    impl Alone {
        fn new(capacity: usize) -> Self {
            let provider = Name::new("main").expect("a name");
            let admission = Admission::new(provider, capacity, true);
            let (now, admitted, events) = (Duration::ZERO, Vec::new(), Vec::new());
            Self { admission, now, calls: 0, admitted, events }
        }

        fn take(&mut self, effects: Vec<Effect<u32>>) {
            for effect in effects {
                match effect {
                    Effect::Admit(call) => self.admitted.push(call),
                    Effect::Record(event) => self.events.push(*event),
                }
            }
        }

        /// A call that starts at once.
        fn start(&mut self) -> u32 {
            self.within(Duration::ZERO).expect("it starts")
        }

        /// A call that starts within this time, or is given up.
        fn within(&mut self, wait: Duration) -> Option<u32> {
            self.calls += 1;
            let (call, until) = (self.calls, self.now + wait);
            let effects = self.admission.ask(self.now, call);
            self.take(effects);
            while !self.admitted.contains(&call) {
                match self.admission.next_wake(self.now).filter(|at| *at <= until) {
                    Some(at) => {
                        self.now = at;
                        let effects = self.admission.wake(self.now);
                        self.take(effects);
                    }
                    None => {
                        self.now = until;
                        self.end(call, CallEnd::Abandoned);
                        return None;
                    }
                }
            }
            Some(call)
        }

        fn end(&mut self, call: u32, end: CallEnd) {
            let effects = self.admission.done(self.now, &call, end);
            self.take(effects);
        }

        fn breaker(&self) -> Vec<BreakerState> {
            let states = self.events.iter().filter_map(|event| match event {
                Event::GatewayBreaker(changed) => Some(changed.state),
                _ => None,
            });
            states.collect()
        }
    }

    #[test]
    fn the_breaker_opens_and_lets_exactly_one_probe_through() {
        use BreakerState::{Closed, HalfOpen, Open};
        let mut alone = Alone::new(64);
        for _ in 0..7 {
            let call = alone.start();
            alone.end(call, CallEnd::Failed);
        }
        let call = alone.start();
        alone.end(call, CallEnd::Refused);
        for _ in 0..8 {
            assert_eq!(alone.breaker(), [], "failures count in a row only");
            let call = alone.start();
            alone.end(call, CallEnd::Failed);
        }
        assert_eq!(alone.within(10 * S), None, "it is open");
        assert_eq!(alone.breaker(), [Open]);
        let probe = alone.within(10 * S).expect("a probe after the pause");
        assert_eq!(alone.within(60 * S), None, "one probe only");
        assert_eq!(alone.breaker(), [Open, HalfOpen]);
        alone.end(probe, CallEnd::Failed);
        assert_eq!(alone.within(14 * S), None, "the pause begins anew");
        // A probe that is given up says nothing: the next one is let through at once.
        let probe = alone.within(2 * S).expect("a probe");
        alone.end(probe, CallEnd::Abandoned);
        let probe = alone.start();
        alone.end(probe, CallEnd::Succeeded);
        let (_, _) = (alone.start(), alone.start());
        assert_eq!(alone.breaker(), [Open, HalfOpen, Open, HalfOpen, Open, HalfOpen, Closed]);
    }

    #[test]
    fn a_call_given_up_beside_the_probe_lets_no_second_one_through() {
        let mut alone = Alone::new(64);
        let old = alone.start();
        for _ in 0..8 {
            let call = alone.start();
            alone.end(call, CallEnd::Failed);
        }
        let probe = alone.within(20 * S).expect("a probe");
        alone.end(old, CallEnd::Abandoned);
        assert_eq!(alone.within(60 * S), None, "one probe only");
        alone.end(probe, CallEnd::Succeeded);
        alone.start();
    }

    #[test]
    fn a_pause_holds_everybody_and_the_longest_wins() {
        let mut alone = Alone::new(2);
        let limited = |seconds| CallEnd::RateLimited {
            retry_after: Some(Duration::from_secs(seconds)),
            reason: "slow down".to_owned(),
        };
        let (first, second) = (alone.start(), alone.start());
        assert_eq!(alone.within(S), None, "the capacity is used up");
        alone.end(first, limited(30));
        alone.end(second, limited(5));
        assert_eq!(alone.within(29 * S), None, "the shorter pause does not end the longer one");
        let third = alone.within(2 * S).expect("the pause is over");
        // A pause of any length must not overflow the clock.
        alone.end(third, limited(u64::MAX));
        assert_eq!(alone.within(3_600 * S), None);
        alone.within(24 * 3_600 * S).expect("a day is the most");
        let is_pause = |event: &&Event| matches!(event, Event::GatewayParked(_));
        assert_eq!(alone.events.iter().filter(is_pause).count(), 2);
    }

    #[test]
    fn calls_that_were_given_up_cost_nothing_and_the_oldest_goes_first() {
        let mut alone = Alone::new(1);
        let held = alone.start();
        for _ in 0..5 {
            assert_eq!(alone.within(S), None);
        }
        for call in [100, 101, 102] {
            let effects = alone.admission.ask(alone.now, call);
            assert_eq!(effects, []);
        }
        alone.end(101, CallEnd::Abandoned);
        alone.end(held, CallEnd::Succeeded);
        alone.end(100, CallEnd::Succeeded);
        assert_eq!(alone.admitted, [held, 100, 102]);
    }

    #[test]
    fn a_call_that_asks_twice_has_one_place() {
        let mut alone = Alone::new(1);
        for _ in 0..2 {
            assert_eq!(alone.admission.ask(S, 7), [Effect::Admit(7)]);
        }
        assert_eq!(alone.admission.ask(S, 8), []);
        assert_eq!(alone.admission.ask(S, 8), []);
        alone.end(7, CallEnd::Succeeded);
        alone.end(8, CallEnd::Succeeded);
        assert_eq!(alone.admitted, [8]);
        assert_eq!(alone.admission.out().count(), 0);
    }
}
