//! Admission to a provider: decides which calls may start now, by permits, the pace of calls, a
//! shared pause and a circuit breaker.
//!
//! Pure: time is given as the time since the admission began. The caller reports that a call wants
//! to start, that the provider has taken it, or that it has ended, and receives the calls that may start
//! and the events to be recorded. A call has a key: a call that asks twice has one place in the line, and a
//! new gateway after a crash knows which calls are under way. The order of the keys is the order in
//! which calls start.

mod call;
mod concurrency;
mod limit_detector;
mod pace;
mod quota;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

pub use self::call::Rules;
pub use self::call::{Action, CallEnd};
use self::call::{Hold, Out, Waiting};
use self::concurrency::Concurrency;
use self::limit_detector::{LimitDetector, Refused, Says};
use self::pace::Pacing;
pub use self::pace::{Allowance, PerMinute, Remaining};
use self::quota::Closed;
pub use self::quota::{OnQuota, QuotaRule};
use crate::event::{GatewayBreaker, GatewayParked, GatewayResumed, QuotaWait};
use crate::id::Name;
use crate::policy::{Breaker, BreakerState};

/// Failures in a row, over all agents, that open the breaker: more than one unlucky call makes with
/// its first retries.
const BREAKER_THRESHOLD: u32 = 8;

/// Failures of calls that started within this time of the one before count as one: what twenty agents meet at
/// the same moment is one event, and no outage.
const ONE_EVENT: Duration = Duration::from_millis(100);

/// Time that an open breaker waits before it lets one probe through; it doubles with each probe that fails, up
/// to [`LONGEST_COOLDOWN`].
const FIRST_COOLDOWN: Duration = Duration::from_secs(1);

/// The longest such time. Twenty agents with ten attempts each survive an outage of many minutes.
const LONGEST_COOLDOWN: Duration = Duration::from_secs(15);

/// Pause after a 429 that names none: the shortest that the official clients make after a second
/// failure. It doubles while the provider takes no call between two refusals.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after a 429 that names none: the limits of the public services are those of a minute.
const LONGEST_DEFAULT_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause that a provider can impose on calls: a day, the longest that a quota of the public
/// services lasts. A longer value is a mistake and would overflow the clock.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// Time for which the first call after a pause is alone unless the provider takes it before. A refusal comes
/// at once, while a model may think for minutes before its first word.
const ALONE: Duration = Duration::from_secs(3);

/// The calls to one provider that are under way or want to start.
#[derive(Clone, Debug)]
pub struct Admission<K> {
    provider: Name,
    shares_pauses: bool,
    /// The calls that want to start.
    waiting: BTreeMap<K, Waiting>,
    out: HashMap<K, Out>,
    concurrency: Concurrency,
    pacing: Pacing,
    paused_until: Option<Duration>,
    /// Number of pauses in a row between which the provider took no call.
    vain_pauses: u32,
    /// The first call after a pause and its start, until the provider has taken it.
    alone: Option<(K, Duration)>,
    /// True if the next call goes alone: from the end of a pause, or of a limit that was used up, until
    /// the first call after it.
    is_careful: bool,
    quota: QuotaRule,
    /// The quota, while it is used up: calls go one at a time until the provider has taken one.
    closed: Option<Closed>,
    detector: LimitDetector,
    breaker: Breaker,
    /// The time of the newest failure that counted.
    failed_at: Option<Duration>,
}

impl<K: Clone + Ord + Hash> Admission<K> {
    /// Creates the admission to a provider.
    #[must_use]
    pub fn new(provider: Name, rules: Rules) -> Self {
        Self {
            provider,
            shares_pauses: rules.shares_pauses,
            waiting: BTreeMap::new(),
            out: HashMap::new(),
            concurrency: Concurrency::new(rules.max_concurrency, rules.is_adaptive),
            pacing: Pacing::new(rules.per_minute),
            paused_until: None,
            vain_pauses: 0,
            alone: None,
            is_careful: false,
            quota: rules.quota,
            closed: None,
            detector: LimitDetector::default(),
            breaker: Breaker::growing(BREAKER_THRESHOLD, FIRST_COOLDOWN, LONGEST_COOLDOWN),
            failed_at: None,
        }
    }

    /// Takes over from an earlier process that the quota is used up, for this time from now on.
    pub fn close_for(&mut self, left: Duration) {
        self.closed = Some(Closed::at(Duration::ZERO));
        self.paused_until = Some(left.min(LONGEST_PAUSE)).filter(|left| !left.is_zero());
    }

    /// Reports that a call of about this many tokens wants to start after this pause of its own. A call that
    /// was admitted before is admitted again, since the first answer may not have reached it.
    pub fn ask(&mut self, now: Duration, key: K, tokens: u64, pause: Duration) -> Vec<Action<K>> {
        if self.out.contains_key(&key) {
            return vec![Action::Admit(key)];
        }
        self.waiting.insert(key, Waiting { tokens, from: now + pause.min(LONGEST_PAUSE) });
        self.admit(now)
    }

    /// Reports that the provider has taken a call, with what its headers tell of its limits.
    pub fn taken(&mut self, now: Duration, key: &K, allowance: Allowance) -> Vec<Action<K>> {
        self.pacing.report(now, allowance);
        let mut actions = Vec::new();
        if let Some(mut out) = self.out.remove(key) {
            self.note_answer(key);
            self.note_taken(&mut out);
            self.reopen(out.started, &mut actions);
            self.out.insert(key.clone(), out);
        }
        actions.extend(self.admit(now));
        actions
    }

    /// Notes that the quota is there again if a call that started at this time was taken.
    fn reopen(&mut self, started: Duration, actions: &mut Vec<Action<K>>) {
        if self.closed.take_if(|closed| closed.is_try(started)).is_some() {
            self.paused_until = None;
            actions.push(self.resumed());
        }
    }

    fn resumed(&self) -> Action<K> {
        let resumed = GatewayResumed { provider: self.provider.clone() };
        Action::Record(Box::new(resumed.into()))
    }

    fn note_answer(&mut self, key: &K) {
        self.vain_pauses = 0;
        self.alone.take_if(|(alone, _)| alone == key);
    }

    fn note_taken(&mut self, out: &mut Out) {
        if !std::mem::replace(&mut out.is_taken, true) && self.detector.taken(out.asks) {
            self.no_limit();
        }
    }

    /// Forgets what was learned from refusals that are noise.
    fn no_limit(&mut self) {
        self.pacing.forget();
        self.concurrency.recover();
    }

    /// Reports that a call has ended, or no longer wants to start.
    pub fn done(&mut self, now: Duration, key: &K, end: CallEnd) -> Vec<Action<K>> {
        let mut actions = Vec::new();
        self.waiting.remove(key);
        if let Some(mut out) = self.out.remove(key) {
            let says_no =
                matches!(end, CallEnd::RateLimited { .. } | CallEnd::QuotaExhausted { .. });
            if !says_no && end != CallEnd::Abandoned {
                self.note_answer(key);
            }
            if matches!(end, CallEnd::Succeeded { .. } | CallEnd::Refused) {
                self.note_taken(&mut out);
                self.reopen(out.started, &mut actions);
            } else if out.asks && !matches!(end, CallEnd::RateLimited { .. }) {
                self.detector.unanswered(now);
            }
            if self.alone.take_if(|(alone, _)| alone == key).is_some() {
                // It was given up, or refused again.
                self.is_careful = true;
            }
            self.judge(now, end, out, &mut actions);
        }
        actions.extend(self.admit(now));
        actions
    }

    /// Admits the calls that may start because time has passed.
    pub fn wake(&mut self, now: Duration) -> Vec<Action<K>> {
        self.admit(now)
    }

    /// Returns the time at which a waiting call may be admitted even if no call ends before.
    #[must_use]
    pub fn next_wake(&self, now: Duration) -> Option<Duration> {
        // A pause ends with a recorded event, even if no call waits.
        if self.paused_until.is_some() || self.waiting.is_empty() {
            return self.paused_until;
        }
        match self.hold(now) {
            Some(Hold::Until(at)) => Some(at),
            Some(Hold::CallEnds) => None,
            None if self.detector.is_asking() => Some(now),
            None => self.waiting.values().map(|waiting| waiting.from.max(now)).min(),
        }
    }

    /// Returns the keys of the calls under way.
    pub fn out(&self) -> impl Iterator<Item = &K> {
        self.out.keys()
    }

    fn judge(&mut self, now: Duration, end: CallEnd, out: Out, actions: &mut Vec<Action<K>>) {
        let under_way = self.out.len() + 1;
        let changed = match end {
            CallEnd::Succeeded { tokens } => {
                self.pacing.ended(out.tokens, tokens);
                self.concurrency.succeeded();
                self.breaker.succeed()
            }
            CallEnd::Refused => {
                self.pacing.returned(out.tokens);
                self.breaker.succeed()
            }
            CallEnd::Failed => self.failed(now, out),
            CallEnd::Overloaded => {
                self.concurrency.no_capacity(now, out.started, under_way);
                self.failed(now, out)
            }
            CallEnd::RateLimited { retry_after, left, reason } => {
                self.pacing.returned(out.tokens);
                match self.says(now, out, left) {
                    Says::Limit => {
                        self.concurrency.overloaded(now, out.started, under_way);
                        if self.shares_pauses {
                            self.refused(now, out, retry_after, reason, actions);
                        }
                    }
                    Says::Nothing | Says::AskOne => self.pacing.not_served(out.round),
                }
                // The provider answered: a rate limit is no outage, so the breaker closes.
                self.breaker.succeed()
            }
            CallEnd::QuotaExhausted { resets_in, reason } => {
                self.pacing.returned(out.tokens);
                if self.quota.on != OnQuota::Fail {
                    self.quota_exhausted(now, out.started, resets_in, reason, actions);
                }
                self.breaker.succeed()
            }
            // Only the end of the probe itself decides about the probe.
            CallEnd::Abandoned if out.is_probe => {
                self.breaker.abandon();
                true
            }
            CallEnd::Abandoned => false,
        };
        if changed {
            actions.push(self.breaker_event());
        }
    }

    /// Counts a failure for the breaker. Returns true if its state changed.
    fn failed(&mut self, now: Duration, out: Out) -> bool {
        let is_same = self.failed_at.is_some_and(|at| out.started < at + ONE_EVENT);
        if is_same && !out.is_probe {
            return false;
        }
        self.failed_at = Some(now);
        self.breaker.fail(now)
    }

    /// Returns what the refusal of a call says about the pace.
    fn says(&mut self, now: Duration, out: Out, left: Option<u64>) -> Says {
        let refused = Refused {
            started: out.started,
            asked: out.asks,
            is_first: out.is_first,
            is_old: out.round != self.pacing.round(),
            is_early: self.pacing.is_early(now),
            others: self.waiting.len() + self.out.len(),
            left,
        };
        self.detector.refused(now, refused)
    }

    fn breaker_event(&self) -> Action<K> {
        let (provider, state) = (self.provider.clone(), self.breaker.state());
        Action::Record(Box::new(GatewayBreaker { provider, state }.into()))
    }

    /// Makes all calls wait after the refusal of one, unless they already wait longer.
    fn refused(
        &mut self,
        now: Duration,
        out: Out,
        retry_after: Option<Duration>,
        reason: String,
        actions: &mut Vec<Action<K>>,
    ) {
        let is_first = out.round == self.pacing.round();
        let default = DEFAULT_PAUSE * 2_u32.pow(self.vain_pauses.min(6));
        let pause = retry_after.unwrap_or(default.min(LONGEST_DEFAULT_PAUSE)).min(LONGEST_PAUSE);
        // Calls that were under way at the first refusal make the pause longer only if they say so.
        let is_news = is_first || retry_after.is_some();
        let until = match (is_news, self.paused_until) {
            (true, None) => now + pause,
            (true, Some(already)) => already.max(now + pause),
            (false, already) => already.unwrap_or(now),
        };
        if !self.pacing.refused(now, out.round, until) {
            self.vain_pauses += 1;
        }
        if self.paused_until.is_some_and(|already| already >= until) || until <= now {
            return;
        }
        self.paused_until = Some(until);
        self.park(now, until, reason, None, actions);
    }

    /// Makes all calls wait until the quota is reset, as far as that is known, and then try one at a time.
    fn quota_exhausted(
        &mut self,
        now: Duration,
        started: Duration,
        resets_in: Option<Duration>,
        reason: String,
        actions: &mut Vec<Action<K>>,
    ) {
        let is_news = self.closed.is_none_or(|closed| closed.is_try(started));
        let mut closed = self.closed.unwrap_or(Closed::at(now));
        // A call that was under way at the first refusal says something new only about the reset.
        let until = match (is_news, resets_in) {
            (true, _) => closed.refused(now, resets_in),
            (false, Some(left)) => now + left.min(LONGEST_PAUSE),
            (false, None) => return,
        };
        self.closed = Some(closed);
        if self.paused_until.is_some_and(|already| already >= until) && !is_news {
            return;
        }
        self.paused_until = Some(self.paused_until.map_or(until, |already| already.max(until)));
        let wait = match closed.may_wait(self.quota, until) {
            true => QuotaWait::InProcess,
            false => QuotaWait::Resume,
        };
        self.park(now, until, reason, Some(wait), actions);
    }

    fn park(
        &self,
        now: Duration,
        until: Duration,
        reason: String,
        quota: Option<QuotaWait>,
        actions: &mut Vec<Action<K>>,
    ) {
        let for_ms = u64::try_from((until - now).as_millis()).unwrap_or(u64::MAX);
        let provider = self.provider.clone();
        let parked = GatewayParked { provider, for_ms, reason, quota };
        actions.push(Action::Record(Box::new(parked.into())));
    }

    /// Returns the reason why no further call may start, if there is one.
    fn hold(&self, now: Duration) -> Option<Hold> {
        if let Some(until) = self.paused_until.filter(|until| now < *until) {
            return Some(Hold::Until(until));
        }
        if self.out.len() >= self.concurrency.limit(now) {
            return Some(self.concurrency.grows_at(now).map_or(Hold::CallEnds, Hold::Until));
        }
        // While a probe is under way the breaker is half open: its end decides, not a timer.
        if self.breaker.state() == BreakerState::HalfOpen {
            return Some(Hold::CallEnds);
        }
        if self.closed.is_some() && self.alone.is_some() {
            return Some(Hold::CallEnds);
        }
        let is_open = self.breaker.state() == BreakerState::Open;
        let breaker = is_open.then(|| now + self.breaker.wait(now));
        let alone = self.alone.as_ref().map(|(_, since)| *since + ALONE);
        let pace = Some(self.pacing.ready_at(now));
        // The call that asks goes before its time.
        let others = match self.detector.holds_until() {
            Some(until) => Some(until),
            None => alone.max(pace),
        };
        let until = breaker.max(others).unwrap_or_default();
        (until > now).then_some(Hold::Until(until))
    }

    /// Admits waiting calls, the first by their order, while nothing forbids it.
    fn admit(&mut self, now: Duration) -> Vec<Action<K>> {
        let mut actions = Vec::new();
        if self.paused_until.take_if(|until| *until <= now).is_some() {
            self.is_careful = true;
            // The end of a quota window is known only when a call was taken.
            if self.closed.is_none() {
                actions.push(self.resumed());
            }
        }
        if self.detector.give_up(now) {
            self.no_limit();
        }
        self.is_careful |= self.closed.is_some();
        let all = self.concurrency.limit(now);
        self.is_careful |= self.pacing.forget_old(now, all);
        while self.hold(now).is_none() {
            let Some(key) = self.next(now) else { return actions };
            if !self.breaker.admit(now) {
                return actions;
            }
            let Some(Waiting { tokens, .. }) = self.waiting.remove(&key) else { return actions };
            let is_probe = self.breaker.state() == BreakerState::HalfOpen;
            if is_probe {
                actions.push(self.breaker_event());
            }
            let round = self.pacing.round();
            let tokens = self.pacing.start(now, tokens);
            self.concurrency.start(now);
            let asks = self.detector.start(now);
            let is_first = !asks && std::mem::take(&mut self.is_careful);
            if is_first {
                self.alone = Some((key.clone(), now));
            }
            let (started, is_taken) = (now, false);
            let out = Out { is_probe, started, is_first, asks, is_taken, round, tokens };
            self.out.insert(key.clone(), out);
            actions.push(Action::Admit(key));
        }
        actions
    }

    /// Returns the first call by its order whose own pause is over. The call that asks need not wait for that.
    fn next(&self, now: Duration) -> Option<K> {
        let asks = self.detector.is_asking();
        let mut ready = self.waiting.iter().filter(|(_, waiting)| asks || waiting.from <= now);
        ready.next().map(|(key, _)| key.clone())
    }
}

#[cfg(test)]
mod tests;
