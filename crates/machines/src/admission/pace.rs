//! The pace of calls to a provider: how many may start in a length of time.
//!
//! Pure: time is given as the time since the admission began. A limit is configured, reported by the
//! provider's headers, or learned from a refusal. Calls are spaced evenly, because a burst that a limit
//! of a minute allows breaks the shorter windows that providers also count in.

use std::collections::VecDeque;
use std::time::Duration;

/// Time that a start may be late without moving the following ones: the timers of a busy machine
/// are some milliseconds late, and without it the pace would stay below the limit.
const SLACK: Duration = Duration::from_millis(50);

/// Time in which the pace learned from a first refusal doubles if no other refusal follows. It grows with
/// the cube of the time, so it stays near a limit that was found, and leaves one that has gone. The time
/// doubles with each refusal that confirms the pace, at most [`CONFIRMATIONS`] times.
const RECOVERY: Duration = Duration::from_secs(10);

/// The same for a pace that was learned from less than [`MANY`] calls, which may be that of a bucket that was
/// nearly empty: soon the limit is met, and learned from more.
const RECOVERY_OF_FEW: Duration = Duration::from_secs(2);

/// Refusals that make a learned pace surer: then it doubles in 80 s.
const CONFIRMATIONS: u32 = 3;

/// The part of the time in which a learned pace doubles within which a limit refuses nothing, as the pace has
/// hardly grown.
const EARLY: f64 = 0.3;

/// Calls in a row without a refusal that are no noise, at which one of fifty or more is refused.
const QUIET: f64 = 50.0;

/// Calls in a row without a refusal that are so few that noise is likely, however slow they were.
const OFTEN: f64 = 5.0;

/// The part of the pace at which a call was refused that is kept, if many calls were taken at it.
const KEPT: f64 = 0.95;

/// Calls that are enough to say so.
const MANY: usize = 10;

/// Growth at which a learned pace no longer limits anything.
const FORGOTTEN: f64 = 8.0;

/// The same for a pace that was learned from less than [`MANY`] calls.
const FORGOTTEN_OF_FEW: f64 = 64.0;

/// The slowest pace that is learned, in calls a second: one in two minutes. A pause that a provider asks
/// for can be longer; after it the pace must not keep calls for hours.
const SLOWEST: f64 = 1.0 / 120.0;

/// Time over which the pace before a refusal is measured. What was called long before says nothing
/// about the limit.
const MEASURED: Duration = Duration::from_secs(10);

/// Time without a call after which a measurement begins anew.
const IDLE: Duration = Duration::from_secs(1);

/// Weight of the newest call in the usual number of tokens of a call.
const NEWEST: f64 = 0.25;

/// The longest time to a reset that is spread over the calls. A longer one is that of a day's or a month's
/// limit, of which a run may use all at once.
const LONGEST_RESET: Duration = Duration::from_secs(10 * 60);

/// The rest of a limit, as a provider's headers tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Calls or tokens that are left.
    pub left: u64,
    /// Time until the limit is full again.
    pub resets_in: Duration,
}

/// What a provider's headers tell of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The rest of the requests.
    pub requests: Option<Remaining>,
    /// The rest of the tokens: the smallest, if there are several such limits.
    pub tokens: Option<Remaining>,
}

/// The limits of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerMinute {
    /// The most calls in a minute.
    pub requests: Option<u64>,
    /// The most tokens in a minute.
    pub tokens: Option<u64>,
}

/// Calls or tokens that start evenly spaced.
#[derive(Clone, Copy, Debug)]
struct Pace {
    per_second: f64,
    /// The time from which the next call may start.
    next: Duration,
}

impl Pace {
    fn per_minute(most: u64) -> Self {
        // A limit fits into 52 bits, up to which the conversion is exact.
        Self { per_second: most.max(1) as f64 / 60.0, next: Duration::ZERO }
    }

    fn start(&mut self, now: Duration, cost: f64) {
        let from = self.next.max(now.saturating_sub(SLACK));
        self.next = from.saturating_add(self.time(cost));
    }

    /// Corrects the cost of a call that has started.
    fn correct(&mut self, assumed: f64, cost: f64) {
        self.next = match cost >= assumed {
            true => self.next.saturating_add(self.time(cost - assumed)),
            false => self.next.saturating_sub(self.time(assumed - cost)),
        };
    }

    /// Returns the time that this much takes: an hour at most, so that one absurd count stops nobody
    /// for longer.
    fn time(&self, cost: f64) -> Duration {
        Duration::from_secs_f64((cost / self.per_second).clamp(0.0, 3_600.0))
    }
}

/// A limit that headers tell, until it is full again.
#[derive(Clone, Copy, Debug)]
struct Reported {
    pace: Pace,
    until: Duration,
    left: u64,
}

impl Reported {
    /// Spreads what is left over the time until the reset. For a limit that is filled up all the time, this
    /// ends at the pace at which it is filled.
    fn new(now: Duration, remaining: Remaining) -> Option<Self> {
        let Remaining { left, resets_in } = remaining;
        if resets_in.is_zero() || resets_in > LONGEST_RESET {
            return None;
        }
        let until = now + resets_in;
        // Half a call more, so that the last one comes before the reset and not with it.
        let per_second = (left as f64 + 0.5) / resets_in.as_secs_f64();
        let next = if left == 0 { until } else { Duration::ZERO };
        Some(Self { pace: Pace { per_second, next }, until, left })
    }

    /// Replaces an earlier report. What has started since keeps its distance.
    fn replace(earlier: &mut Option<Self>, now: Duration, remaining: Option<Remaining>) {
        let Some(remaining) = remaining else { return };
        let before = earlier.map_or(Duration::ZERO, |reported| reported.pace.next);
        *earlier = Self::new(now, remaining);
        if let Some(reported) = earlier {
            // The distance at the new pace: an old, slower one no longer counts.
            let spaced = before.min(now + reported.pace.time(1.0));
            reported.pace.next = reported.pace.next.max(spaced);
        }
    }
}

/// The calls since the last refusal, and the pace that the refusal before allows.
#[derive(Clone, Debug, Default)]
struct Learned {
    /// The number of the measurement: one ends with each refusal of a call that started in it.
    round: u64,
    began: Duration,
    started: f64,
    /// The starts of the newest calls, at most [`MANY`] and one.
    newest: VecDeque<Duration>,
    /// The measurement that the newest refusal ended, if the provider had taken any call in it.
    measured: Option<Measured>,
    next: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    began: Duration,
    until: Duration,
    served: f64,
    /// The pace that is kept of the one before.
    least: f64,
    confirmed: u32,
    /// True if it was learned from few calls.
    is_of_few: bool,
}

impl Measured {
    fn per_second(&self) -> f64 {
        let time = self.until.saturating_sub(self.began).as_secs_f64().max(0.001);
        (self.served / time).max(self.least)
    }

    /// Returns the time since the pause, in units of that in which the pace doubles.
    fn quiet(&self, now: Duration) -> f64 {
        let recovery = if self.is_of_few { RECOVERY_OF_FEW } else { RECOVERY };
        let recovery = recovery.as_secs_f64() * f64::from(2_u32.pow(self.confirmed));
        now.saturating_sub(self.until).as_secs_f64() / recovery
    }

    /// Returns the pace at this time, unless it has grown so much that it limits nothing.
    fn at(&self, now: Duration) -> Option<f64> {
        let growth = 1.0 + self.quiet(now).powi(3);
        let forgotten = if self.is_of_few { FORGOTTEN_OF_FEW } else { FORGOTTEN };
        (growth < forgotten).then(|| self.per_second() * growth)
    }
}

impl Learned {
    /// Returns the pace at this time in calls a second, if there is one.
    fn per_second(&self, now: Duration) -> Option<f64> {
        self.measured.as_ref()?.at(now)
    }

    /// Returns the pace at which the newest calls started: less than was allowed if there were fewer.
    fn newest_pace(&self) -> Option<f64> {
        let time = self.newest.back()?.saturating_sub(*self.newest.front()?).as_secs_f64();
        (time > 0.0).then(|| (self.newest.len() - 1) as f64 / time)
    }

    fn start(&mut self, now: Duration) {
        // A slow pace is no idleness.
        let pause = self.per_second(now).map_or(0.0, |per_second| 3.0 / per_second);
        let pause = IDLE.max(Duration::from_secs_f64(pause));
        let last = self.newest.back().copied().unwrap_or_default();
        if now.saturating_sub(last) > pause {
            (self.began, self.started) = (now, 0.0);
        }
        let measured = now.saturating_sub(self.began);
        if measured > MEASURED {
            self.began += measured / 2;
            self.started /= 2.0;
        }
        self.started += 1.0;
        self.newest.push_back(now);
        if self.newest.len() > MANY + 1 {
            self.newest.pop_front();
        }
        if let Some(per_second) = self.per_second(now) {
            let mut pace = Pace { per_second, next: self.next };
            pace.start(now, 1.0);
            self.next = pace.next;
        }
    }

    /// Takes note at `now` of the refusal of a call that started in this round. `until` is the end of the pause
    /// that follows. Returns true if the provider has taken a call since the refusal before.
    fn refused(&mut self, now: Duration, round: u64, until: Duration) -> bool {
        if round != self.round {
            // Calls that were under way at the first refusal of their round.
            if let Some(measured) = self.measured.as_mut().filter(|_| round + 1 == self.round) {
                measured.served -= 1.0;
                measured.until = measured.until.max(until);
                self.began = self.began.max(measured.until);
            }
            // Of a provider that took none nothing is learned but the pause.
            self.measured.take_if(|measured| measured.served < 0.5);
            return true;
        }
        let served = self.started - 1.0;
        self.started = 0.0;
        self.round += 1;
        if served < 0.5 {
            // The pause was too short: it belongs to the measurement before.
            if let Some(measured) = &mut self.measured {
                measured.until = until;
            }
            self.began = until;
            return false;
        }
        let before = self.measured.and_then(|measured| Some((measured, measured.at(now)?)));
        let sent = now.saturating_sub(self.began).as_secs_f64();
        let is_burst = sent < 0.25 * until.saturating_sub(self.began).as_secs_f64();
        // Pauses are often told in whole seconds, so the pause after a burst is about the time in which as
        // many calls may start.
        let began = if is_burst && before.is_none() { now } else { self.began };
        let (least, confirmed) = match before {
            Some((before, pace)) if served >= MANY as f64 => {
                let pace = pace.min(self.newest_pace().unwrap_or(pace));
                (KEPT * pace, (before.confirmed + 1).min(CONFIRMATIONS))
            }
            Some(_) => (SLOWEST, 0),
            None if is_burst && served >= MANY as f64 => (SLOWEST, CONFIRMATIONS - 1),
            None => (SLOWEST, 0),
        };
        let is_of_few = served < MANY as f64;
        self.measured = Some(Measured { began, until, served, least, confirmed, is_of_few });
        self.began = until;
        self.next = until;
        true
    }
}

/// The pace of calls to a provider.
#[derive(Clone, Debug, Default)]
pub(super) struct Pacing {
    requests: Option<Pace>,
    tokens: Option<Pace>,
    reported_requests: Option<Reported>,
    reported_tokens: Option<Reported>,
    learned: Learned,
    /// The usual number of tokens of a call.
    usual: Option<f64>,
}

impl Pacing {
    pub(super) fn new(limits: PerMinute) -> Self {
        Self {
            requests: limits.requests.map(Pace::per_minute),
            tokens: limits.tokens.map(Pace::per_minute),
            ..Self::default()
        }
    }

    /// Returns the time from which the next call may start.
    pub(super) fn ready_at(&self, now: Duration) -> Duration {
        let reported = [self.reported_requests, self.reported_tokens].into_iter().flatten();
        let reported = reported
            .filter(|reported| reported.until > now)
            .map(|reported| reported.pace.next.min(reported.until));
        let own = [self.requests, self.tokens].into_iter().flatten().map(|pace| pace.next);
        let learned = self.learned.per_second(now).map(|_| self.learned.next);
        reported.chain(own).chain(learned).max().unwrap_or_default()
    }

    /// Counts a call that starts, of about this many tokens. Returns the tokens that are assumed.
    pub(super) fn start(&mut self, now: Duration, tokens: u64) -> f64 {
        let tokens = self.usual.unwrap_or(tokens as f64);
        let reported = self.reported_requests.as_mut().map(|reported| &mut reported.pace);
        self.requests.iter_mut().chain(reported).for_each(|pace| pace.start(now, 1.0));
        let reported = self.reported_tokens.as_mut().map(|reported| &mut reported.pace);
        self.tokens.iter_mut().chain(reported).for_each(|pace| pace.start(now, tokens));
        self.learned.start(now);
        tokens
    }

    /// Forgets the limits that are full again. Returns true if so little was left of one that so many calls
    /// at once could use up the next as well: nothing is known of it until a response tells.
    pub(super) fn forget_old(&mut self, now: Duration, calls: usize) -> bool {
        let is_old = |reported: &mut Reported| reported.until <= now;
        let requests = self.reported_requests.take_if(is_old).map(|reported| reported.left);
        let tokens = self.reported_tokens.take_if(is_old).map(|reported| reported.left);
        let usual = self.usual.unwrap_or(0.0);
        requests.is_some_and(|left| left < calls as u64)
            || tokens.is_some_and(|left| (left as f64) < usual * calls as f64)
    }

    /// Returns the number of the measurement to which a call that starts now belongs.
    pub(super) fn round(&self) -> u64 {
        self.learned.round
    }

    /// Returns whether a refusal now comes earlier than a limit would refuse; `None` if no pace is learned.
    pub(super) fn is_early(&self, now: Duration) -> Option<bool> {
        let measured = self.learned.measured.filter(|measured| measured.at(now).is_some())?;
        let started = self.learned.started;
        Some(measured.quiet(now) < EARLY && started < QUIET || started < OFTEN)
    }

    /// Takes note of a call of this round that was refused and teaches nothing.
    pub(super) fn not_served(&mut self, round: u64) {
        if round == self.learned.round {
            self.learned.started = (self.learned.started - 1.0).max(0.0);
        }
    }

    /// Forgets the pace that was learned.
    pub(super) fn forget(&mut self) {
        self.learned.measured = None;
    }

    /// Takes note of the tokens of a call that has ended.
    pub(super) fn ended(&mut self, assumed: f64, tokens: u64) {
        let tokens = tokens as f64;
        let usual = self.usual.unwrap_or(tokens);
        self.usual = Some(usual + NEWEST * (tokens - usual));
        if let Some(pace) = &mut self.tokens {
            pace.correct(assumed, tokens);
        }
    }

    /// Takes note of a call that was refused: it cost nothing.
    pub(super) fn returned(&mut self, assumed: f64) {
        if let Some(pace) = &mut self.tokens {
            pace.correct(assumed, 0.0);
        }
    }

    /// Takes note of the limits in the headers of a response.
    pub(super) fn report(&mut self, now: Duration, allowance: Allowance) {
        Reported::replace(&mut self.reported_requests, now, allowance.requests);
        Reported::replace(&mut self.reported_tokens, now, allowance.tokens);
    }

    /// Takes note of the refusal of a call of this round, and of the end of the pause after it. Returns
    /// true if the provider has taken a call since the refusal before.
    pub(super) fn refused(&mut self, now: Duration, round: u64, until: Duration) -> bool {
        self.learned.refused(now, round, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const S: Duration = Duration::from_secs(1);

    /// Starts as many calls of these tokens as may start until then.
    fn starts(pacing: &mut Pacing, from: Duration, until: Duration, tokens: u64) -> Vec<Duration> {
        let (mut now, mut at) = (from, Vec::new());
        loop {
            now = now.max(pacing.ready_at(now));
            if now >= until || at.len() > 10_000 {
                return at;
            }
            pacing.start(now, tokens);
            at.push(now);
            if pacing.ready_at(now) <= now {
                now += MS;
            }
        }
    }

    #[test]
    fn configured_limits_space_the_calls() {
        let limits = PerMinute { requests: Some(600), tokens: None };
        let at = starts(&mut Pacing::new(limits), 5 * S, 65 * S, 0);
        assert!((600..=601).contains(&at.len()), "{}", at.len());
        let within = |from: Duration| at.iter().filter(|at| (from..from + S).contains(at)).count();
        assert!((5..64).all(|second| within(second * S) <= 11), "{at:?}");
        let limits = PerMinute { requests: None, tokens: Some(6_000) };
        let at = starts(&mut Pacing::new(limits), Duration::ZERO, 60 * S, 1_000);
        assert_eq!(at.len(), 6);
    }

    #[test]
    fn tokens_are_corrected_once_they_are_known() {
        let mut pacing = Pacing::new(PerMinute { requests: None, tokens: Some(60_000) });
        let assumed = pacing.start(S, 10_000);
        assert!(pacing.ready_at(S) > 10 * S);
        pacing.ended(assumed, 1_000);
        assert!(pacing.ready_at(S) <= 2 * S, "{:?}", pacing.ready_at(S));
        // The next call is assumed to be as large as the last one.
        assert!((pacing.start(2 * S, 10_000) - 1_000.0).abs() < 1.0);
        pacing.returned(1_000.0);
        assert!(pacing.ready_at(2 * S) <= 2 * S);
        // No count stops everybody for good.
        pacing.ended(0.0, u64::MAX);
        assert!(pacing.ready_at(2 * S) <= 3_603 * S);
    }

    #[test]
    fn headers_spread_what_is_left_over_the_time_to_the_reset() {
        let mut pacing = Pacing::default();
        let allowance = |left, resets_in| Allowance {
            requests: Some(Remaining { left, resets_in }),
            tokens: None,
        };
        pacing.report(S, allowance(10, 10 * S));
        assert!((10..=11).contains(&starts(&mut pacing, S, 11 * S, 0).len()));
        assert!(starts(&mut pacing, 11 * S, 12 * S, 0).len() > 900, "the report is over");
        pacing.report(12 * S, allowance(0, 3 * S));
        assert_eq!(pacing.ready_at(12 * S), 15 * S);
        pacing.report(13 * S, allowance(5_000, S));
        assert!(pacing.ready_at(13 * S) <= 13 * S + MS, "a newer report replaces it");
        // The limit of a day is not spread, and a missing time means nothing.
        for odd in [allowance(5, 3_600 * S), allowance(0, Duration::ZERO)] {
            pacing.report(14 * S, odd);
            assert!(pacing.ready_at(14 * S) <= 14 * S, "{odd:?}");
        }
    }

    #[test]
    fn a_refusal_teaches_the_pace_that_was_served() {
        let mut pacing = Pacing::default();
        for call in 0..16 {
            pacing.start(100 * S + call * MS, 0);
        }
        // Ten of the sixteen were taken, and the window ends a second after it began.
        for _ in 0..6 {
            assert!(pacing.refused(100 * S, 0, 101 * S));
        }
        let at = starts(&mut pacing, 101 * S, 106 * S, 0);
        assert!((48..=53).contains(&at.len()), "{}", at.len());
        // Later the pace grows, slowly at first, and at last it is forgotten.
        let at = starts(&mut pacing, 111 * S, 112 * S, 0);
        assert!((10..=11).contains(&at.len()), "{}", at.len());
        let at = starts(&mut pacing, 141 * S, 142 * S, 0);
        assert!((19..=23).contains(&at.len()), "{}", at.len());
        assert!(starts(&mut pacing, 190 * S, 191 * S, 0).len() > 900);
    }

    #[test]
    fn a_pause_that_was_too_short_belongs_to_the_measurement() {
        let mut pacing = Pacing::default();
        for _ in 0..51 {
            pacing.start(100 * S, 0);
        }
        assert!(pacing.refused(100 * S, 0, 101 * S));
        for (round, at) in [(1, 103), (2, 107), (3, 115), (4, 130), (5, 160)] {
            pacing.start(at * S - S, 0);
            assert!(!pacing.refused(at * S - S, round, at * S), "nothing was taken since");
        }
        // 50 calls in a minute.
        let at = starts(&mut pacing, 160 * S, 184 * S, 0);
        assert!((19..=22).contains(&at.len()), "{}", at.len());
    }
}
