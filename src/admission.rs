//! Admission to a provider: decides which calls may start now, by permits, the pace of calls, a
//! shared pause and a circuit breaker.
//!
//! Pure: time is given as the time since the admission began. The caller reports that a call wants
//! to start, that the provider has taken it, or that it has ended, and receives the calls that may start
//! and the events to be recorded. A call has a key: a call that asks twice has one place in the line, and a
//! new gateway after a crash knows which calls are under way. The order of the keys is the order in
//! which calls start.

mod concurrency;
mod pace;
mod quota;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use self::concurrency::Concurrency;
use self::pace::Pacing;
pub use self::pace::{Allowance, PerMinute, Remaining};
use self::quota::Closed;
pub use self::quota::{OnQuota, QuotaRule};
use crate::event::{Event, GatewayBreaker, GatewayParked, GatewayResumed, QuotaWait};
use crate::id::Name;
use crate::policy::{Breaker, BreakerState};

/// Failures in a row, over all agents, that open the breaker: more than one unlucky call makes with
/// its first retries, fewer than twenty parallel agents make in one round.
const BREAKER_THRESHOLD: u32 = 8;

/// Time that an open breaker waits before it lets one probe through.
const BREAKER_COOLDOWN: Duration = Duration::from_secs(15);

/// Pause after a 429 that names none: the shortest that the official clients make after a second
/// failure. It doubles while the provider takes no call between two refusals.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after a 429 that names none: the limits of the public services are those of a minute.
const LONGEST_DEFAULT_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause that a provider can impose on calls: a day, the longest that a quota of the public
/// services lasts. A longer value is a mistake and would overflow the clock.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// Time for which the first call after a pause is alone unless the provider takes it before. A refusal comes
/// at once, while a model may think for minutes before its first word.
const ALONE: Duration = Duration::from_secs(3);

/// The rules of the calls to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The most calls in progress at the same time.
    pub max_concurrency: usize,
    /// True if the number of calls begins low, and is halved while the provider is overloaded.
    pub is_adaptive: bool,
    /// True if a 429 of one call makes all calls wait.
    pub shares_pauses: bool,
    /// The limits of calls and tokens in a minute.
    pub per_minute: PerMinute,
    /// What follows when the quota is used up.
    pub quota: QuotaRule,
}

impl Rules {
    /// Returns the rules of a provider that limits nothing but the calls at the same time.
    #[must_use]
    pub fn of(max_concurrency: usize) -> Self {
        let (per_minute, quota) = (PerMinute::default(), QuotaRule::default());
        Self { max_concurrency, is_adaptive: false, shares_pauses: true, per_minute, quota }
    }
}

/// The result of a call, as far as it matters for other calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The call gave a reply.
    Succeeded {
        /// The tokens that count against a limit of tokens: all but those read from a cache.
        tokens: u64,
    },
    /// The provider asked to slow down.
    RateLimited {
        /// The pause that the provider asked for, if it named one.
        retry_after: Option<Duration>,
        /// The provider's own words.
        reason: String,
    },
    /// The quota of the account is used up.
    QuotaExhausted {
        /// The time until its reset, if the provider named it.
        resets_in: Option<Duration>,
        /// The provider's own words.
        reason: String,
    },
    /// The provider has no capacity.
    Overloaded,
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

/// A call under way.
#[derive(Clone, Copy, Debug)]
struct Out {
    /// True for the breaker's probe.
    is_probe: bool,
    started: Duration,
    /// The measurement of the pace that it belongs to.
    round: u64,
    /// The tokens that were assumed at its start.
    tokens: f64,
}

/// The reason why no call may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Until this time, unless a call ends before.
    Until(Duration),
    /// Until a call ends.
    CallEnds,
}

/// The calls to one provider that are under way or want to start.
#[derive(Clone, Debug)]
pub(crate) struct Admission<K> {
    provider: Name,
    shares_pauses: bool,
    /// The calls that want to start, with their tokens.
    waiting: BTreeMap<K, u64>,
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
    breaker: Breaker,
}

impl<K: Clone + Ord + Hash> Admission<K> {
    /// Creates the admission to a provider.
    #[must_use]
    pub(crate) fn new(provider: Name, rules: Rules) -> Self {
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
            breaker: Breaker::new(BREAKER_THRESHOLD, BREAKER_COOLDOWN),
        }
    }

    /// Takes over from an earlier process that the quota is used up, for this time from now on.
    pub(crate) fn close_for(&mut self, left: Duration) {
        self.closed = Some(Closed::at(Duration::ZERO));
        self.paused_until = Some(left.min(LONGEST_PAUSE)).filter(|left| !left.is_zero());
    }

    /// Reports that a call of about this many tokens wants to start. A call that was admitted before is
    /// admitted again, since the first answer may not have reached it.
    pub(crate) fn ask(&mut self, now: Duration, key: K, tokens: u64) -> Vec<Effect<K>> {
        if self.out.contains_key(&key) {
            return vec![Effect::Admit(key)];
        }
        self.waiting.insert(key, tokens);
        self.admit(now)
    }

    /// Reports that the provider has taken a call, with what its headers tell of its limits.
    pub(crate) fn taken(&mut self, now: Duration, key: &K, told: Allowance) -> Vec<Effect<K>> {
        self.pacing.told(now, told);
        let mut effects = Vec::new();
        if let Some(started) = self.out.get(key).map(|out| out.started) {
            self.note_taken(key);
            self.reopen(started, &mut effects);
        }
        effects.extend(self.admit(now));
        effects
    }

    /// Notes that the quota is there again if a call that started at this time was taken.
    fn reopen(&mut self, started: Duration, effects: &mut Vec<Effect<K>>) {
        if self.closed.take_if(|closed| closed.is_try(started)).is_some() {
            self.paused_until = None;
            effects.push(self.resumed());
        }
    }

    fn resumed(&self) -> Effect<K> {
        let resumed = GatewayResumed { provider: self.provider.clone() };
        Effect::Record(Box::new(resumed.into()))
    }

    fn note_taken(&mut self, key: &K) {
        self.vain_pauses = 0;
        self.alone.take_if(|(alone, _)| alone == key);
    }

    /// Reports that a call has ended, or no longer wants to start.
    pub(crate) fn done(&mut self, now: Duration, key: &K, end: CallEnd) -> Vec<Effect<K>> {
        let mut effects = Vec::new();
        self.waiting.remove(key);
        if let Some(out) = self.out.remove(key) {
            let says_no =
                matches!(end, CallEnd::RateLimited { .. } | CallEnd::QuotaExhausted { .. });
            if !says_no && end != CallEnd::Abandoned {
                self.note_taken(key);
            }
            if matches!(end, CallEnd::Succeeded { .. } | CallEnd::Refused) {
                self.reopen(out.started, &mut effects);
            }
            if self.alone.take_if(|(alone, _)| alone == key).is_some() {
                // It was given up, or refused again.
                self.is_careful = true;
            }
            self.judge(now, end, out, &mut effects);
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
        // A pause ends with a recorded event, even if no call waits.
        if self.paused_until.is_some() || self.waiting.is_empty() {
            return self.paused_until;
        }
        match self.hold(now) {
            Some(Hold::Until(at)) => Some(at),
            Some(Hold::CallEnds) => None,
            None => Some(now),
        }
    }

    /// Returns the keys of the calls under way.
    pub(crate) fn out(&self) -> impl Iterator<Item = &K> {
        self.out.keys()
    }

    fn judge(&mut self, now: Duration, end: CallEnd, out: Out, effects: &mut Vec<Effect<K>>) {
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
            CallEnd::Failed => self.breaker.fail(now),
            CallEnd::Overloaded => {
                self.concurrency.overloaded(now, out.started, under_way);
                self.breaker.fail(now)
            }
            CallEnd::RateLimited { retry_after, reason } => {
                self.pacing.returned(out.tokens);
                self.concurrency.overloaded(now, out.started, under_way);
                if self.shares_pauses {
                    self.refused(now, out, retry_after, reason, effects);
                }
                // The provider answered: a rate limit is no outage, so the breaker closes.
                self.breaker.succeed()
            }
            CallEnd::QuotaExhausted { resets_in, reason } => {
                self.pacing.returned(out.tokens);
                if self.quota.on != OnQuota::Fail {
                    self.quota_exhausted(now, out.started, resets_in, reason, effects);
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
            effects.push(self.breaker_event());
        }
    }

    fn breaker_event(&self) -> Effect<K> {
        let (provider, state) = (self.provider.clone(), self.breaker.state());
        Effect::Record(Box::new(GatewayBreaker { provider, state }.into()))
    }

    /// Makes all calls wait after the refusal of one, unless they already wait longer.
    fn refused(
        &mut self,
        now: Duration,
        out: Out,
        retry_after: Option<Duration>,
        reason: String,
        effects: &mut Vec<Effect<K>>,
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
        self.park(now, until, reason, None, effects);
    }

    /// Makes all calls wait until the quota is reset, as far as that is known, and then try one at a time.
    fn quota_exhausted(
        &mut self,
        now: Duration,
        started: Duration,
        resets_in: Option<Duration>,
        reason: String,
        effects: &mut Vec<Effect<K>>,
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
        self.park(now, until, reason, Some(wait), effects);
    }

    fn park(
        &self,
        now: Duration,
        until: Duration,
        reason: String,
        quota: Option<QuotaWait>,
        effects: &mut Vec<Effect<K>>,
    ) {
        let for_ms = u64::try_from((until - now).as_millis()).unwrap_or(u64::MAX);
        let provider = self.provider.clone();
        let parked = GatewayParked { provider, for_ms, reason, quota };
        effects.push(Effect::Record(Box::new(parked.into())));
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
        let until = [breaker, alone, pace].into_iter().flatten().max().unwrap_or_default();
        (until > now).then_some(Hold::Until(until))
    }

    /// Admits waiting calls, the first by their order, while nothing forbids it.
    fn admit(&mut self, now: Duration) -> Vec<Effect<K>> {
        let mut effects = Vec::new();
        if self.paused_until.take_if(|until| *until <= now).is_some() {
            self.is_careful = true;
            // The end of a quota window is known only when a call was taken.
            if self.closed.is_none() {
                effects.push(self.resumed());
            }
        }
        self.is_careful |= self.closed.is_some();
        let all = self.concurrency.limit(now);
        self.is_careful |= self.pacing.forget_old(now, all);
        while !self.waiting.is_empty() && self.hold(now).is_none() && self.breaker.admit(now) {
            let Some((key, tokens)) = self.waiting.pop_first() else { return effects };
            let is_probe = self.breaker.state() == BreakerState::HalfOpen;
            if is_probe {
                effects.push(self.breaker_event());
            }
            let round = self.pacing.round();
            let tokens = self.pacing.start(now, tokens);
            self.concurrency.start(now);
            if std::mem::take(&mut self.is_careful) {
                self.alone = Some((key.clone(), now));
            }
            self.out.insert(key.clone(), Out { is_probe, started: now, round, tokens });
            effects.push(Effect::Admit(key));
        }
        effects
    }
}

#[cfg(test)]
mod tests;
