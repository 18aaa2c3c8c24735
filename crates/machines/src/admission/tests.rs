//! Tests of the admission under a clock of its own, with calls that are numbers.

use super::*;
use crate::event::Event;

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
        let admission = Admission::new(provider, Rules::of(capacity));
        let (now, admitted, events) = (Duration::ZERO, Vec::new(), Vec::new());
        Self { admission, now, calls: 0, admitted, events }
    }

    fn take(&mut self, actions: Vec<Action<u32>>) {
        for action in actions {
            match action {
                Action::Admit(call) => self.admitted.push(call),
                Action::Record(event) => self.events.push(*event),
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
        let actions = self.admission.ask(self.now, call, 0, Duration::ZERO);
        self.take(actions);
        while !self.admitted.contains(&call) {
            match self.admission.next_wake(self.now).filter(|at| *at <= until) {
                Some(at) => {
                    self.now = at;
                    let actions = self.admission.wake(self.now);
                    self.take(actions);
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
        let actions = self.admission.done(self.now, &call, end);
        self.take(actions);
    }

    /// A call that fails, a second after the one before.
    fn fail(&mut self) {
        self.now += S;
        let call = self.start();
        self.end(call, CallEnd::Failed);
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
        alone.fail();
    }
    let call = alone.start();
    alone.end(call, CallEnd::Refused);
    for _ in 0..8 {
        assert_eq!(alone.breaker(), [], "failures count in a row only");
        alone.fail();
    }
    assert_eq!(alone.within(S / 2), None, "it is open");
    assert_eq!(alone.breaker(), [Open]);
    let probe = alone.within(S).expect("a probe after the pause");
    assert_eq!(alone.within(60 * S), None, "one probe only");
    assert_eq!(alone.breaker(), [Open, HalfOpen]);
    alone.end(probe, CallEnd::Failed);
    assert_eq!(alone.within(S + S / 2), None, "the next pause is longer");
    // A probe that is given up says nothing: the next one is let through at once.
    let probe = alone.within(S).expect("a probe");
    alone.end(probe, CallEnd::Abandoned);
    let probe = alone.start();
    alone.end(probe, CallEnd::Succeeded { tokens: 0 });
    let (_, _) = (alone.start(), alone.start());
    assert_eq!(alone.breaker(), [Open, HalfOpen, Open, HalfOpen, Open, HalfOpen, Closed]);
}

#[test]
fn what_many_calls_meet_at_once_is_no_outage() {
    let mut alone = Alone::new(64);
    let calls: Vec<u32> = (0..20).map(|_| alone.start()).collect();
    for call in calls {
        alone.now += S / 100;
        alone.end(call, CallEnd::Failed);
    }
    assert_eq!(alone.breaker(), []);
    alone.start();
}

#[test]
fn a_call_given_up_beside_the_probe_lets_no_second_one_through() {
    let mut alone = Alone::new(64);
    let old = alone.start();
    for _ in 0..8 {
        alone.fail();
    }
    let probe = alone.within(20 * S).expect("a probe");
    alone.end(old, CallEnd::Abandoned);
    assert_eq!(alone.within(60 * S), None, "one probe only");
    alone.end(probe, CallEnd::Succeeded { tokens: 0 });
    alone.start();
}

#[test]
fn a_pause_holds_everybody_and_the_longest_wins() {
    let mut alone = Alone::new(2);
    let limited = |seconds| CallEnd::RateLimited {
        retry_after: Some(Duration::from_secs(seconds)),
        left: None,
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
        let actions = alone.admission.ask(alone.now, call, 0, Duration::ZERO);
        assert_eq!(actions, []);
    }
    alone.end(101, CallEnd::Abandoned);
    alone.end(held, CallEnd::Succeeded { tokens: 0 });
    alone.end(100, CallEnd::Succeeded { tokens: 0 });
    assert_eq!(alone.admitted, [held, 100, 102]);
}

#[test]
fn a_call_that_asks_twice_has_one_place() {
    let mut alone = Alone::new(1);
    alone.now = S;
    for _ in 0..2 {
        assert_eq!(alone.admission.ask(S, 7, 0, Duration::ZERO), [Action::Admit(7)]);
    }
    assert_eq!(alone.admission.ask(S, 8, 0, Duration::ZERO), []);
    assert_eq!(alone.admission.ask(S, 8, 0, Duration::ZERO), []);
    alone.end(7, CallEnd::Succeeded { tokens: 0 });
    alone.end(8, CallEnd::Succeeded { tokens: 0 });
    assert_eq!(alone.admitted, [8]);
    assert_eq!(alone.admission.out().count(), 0);
}

#[test]
fn a_provider_that_refuses_everything_is_asked_less_and_less() {
    let mut alone = Alone::new(8);
    let limited = || limited_for(None);
    let mut at = Vec::new();
    for refusals in 0..9 {
        let call = alone.within(100 * S).expect("it starts");
        at.push(alone.now);
        if refusals > 0 {
            assert_eq!(alone.within(2 * S / 3), None, "it is alone");
        }
        alone.end(call, limited());
    }
    let pauses: Vec<_> = at[1..].windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn the_refused_call_asks_for_all_before_its_own_pause_is_over() {
    let mut alone = Alone::new(8);
    for call in 1..=12 {
        let actions = alone.admission.ask(alone.now, call, 0, Duration::ZERO);
        alone.take(actions);
    }
    alone.now += S / 500;
    alone.end(1, limited_for(Some(S)));
    let actions = alone.admission.ask(alone.now, 1, 0, S);
    alone.take(actions);
    assert_eq!(alone.admitted.len(), 8, "the others wait for its answer");
    assert_eq!((next_moment(&mut alone), alone.now), (vec![1], S * 12 / 1_000));
    let at = alone.now + S / 500;
    let mut limited = alone.admission.clone();
    let mut at_limit = at;
    for refusals in 1..=3 {
        limited.done(at_limit, &1, limited_for(Some(S)));
        limited.ask(at_limit, 1, 0, S);
        let wake = limited.next_wake(at_limit);
        let pause = if refusals < 3 { S / 100 } else { S };
        assert_eq!(wake, Some(at_limit + pause), "{refusals}: it is a limit after three");
        at_limit += pause;
        limited.wake(at_limit);
    }
    let actions = alone.admission.taken(at, &1, Allowance::default());
    alone.take(actions);
    alone.end(2, CallEnd::Succeeded { tokens: 0 });
    assert_eq!(alone.admitted.last(), Some(&9), "it was noise");
    assert_eq!(alone.events, []);
}

#[test]
fn after_a_pause_one_call_goes_first_but_not_for_long() {
    let mut alone = Alone::new(8);
    let first = alone.start();
    let limited = limited_for(Some(S));
    alone.end(first, limited);
    let probe = alone.within(2 * S).expect("the pause is over");
    assert_eq!(alone.within(2 * S), None, "the provider has not taken it yet");
    let actions = alone.admission.taken(alone.now, &probe, Allowance::default());
    alone.take(actions);
    alone.within(Duration::ZERO).expect("it has");
    // A model that thinks for long does not keep the others.
    let limited = limited_for(Some(S));
    alone.end(probe, limited);
    alone.within(4 * S).expect("the pause is over");
    let since = alone.now;
    alone.within(10 * S).expect("it was not refused");
    assert_eq!(alone.now - since, ALONE);
}

fn limited_for(retry_after: Option<Duration>) -> CallEnd {
    CallEnd::RateLimited { retry_after, left: None, reason: "slow down".to_owned() }
}

fn no(resets_in: Option<Duration>) -> CallEnd {
    CallEnd::QuotaExhausted { resets_in, reason: "used up".to_owned() }
}

fn parked(alone: &Alone) -> Vec<(u64, Option<QuotaWait>)> {
    let parked = alone.events.iter().filter_map(|event| match event {
        Event::GatewayParked(parked) => Some((parked.for_ms / 1000, parked.quota)),
        _ => None,
    });
    parked.collect()
}

fn resumed(alone: &Alone) -> usize {
    alone.events.iter().filter(|event| matches!(event, Event::GatewayResumed(_))).count()
}

/// Refuses eight calls under way of 64; returns the admission with the others waiting.
fn closed(rule: QuotaRule, resets_in: Option<Duration>) -> Alone {
    let mut alone = Alone::new(8);
    alone.admission.quota = rule;
    for call in 1..=64 {
        let actions = alone.admission.ask(alone.now, call, 0, Duration::ZERO);
        alone.take(actions);
    }
    assert_eq!(alone.admitted.len(), 8);
    for call in 1..=8 {
        alone.now += S / 100;
        alone.end(call, no(resets_in.map(|left| left - S * call / 100)));
        // It asks again at once.
        let actions = alone.admission.ask(alone.now, call, 0, Duration::ZERO);
        alone.take(actions);
    }
    assert_eq!((alone.admitted.len(), resumed(&alone)), (8, 0));
    alone
}

/// Goes to the next moment at which a call may start; returns the calls that start.
fn next_moment(alone: &mut Alone) -> Vec<u32> {
    let before = alone.admitted.len();
    while alone.admitted.len() == before {
        alone.now = alone.admission.next_wake(alone.now).expect("somebody waits");
        let actions = alone.admission.wake(alone.now);
        alone.take(actions);
    }
    alone.admitted[before..].to_vec()
}

#[test]
fn a_quota_is_tried_by_one_call_until_the_provider_takes_it() {
    let mut alone = closed(QuotaRule::default(), Some(S * 3_600));
    assert_eq!(parked(&alone), [(3_599, Some(QuotaWait::InProcess))]);
    assert_eq!(next_moment(&mut alone), [1], "the oldest alone");
    assert_eq!(alone.now.as_secs(), 3_600);
    alone.now += S * 60;
    let actions = alone.admission.wake(alone.now);
    alone.take(actions);
    assert_eq!((alone.admitted.len(), resumed(&alone)), (9, 0), "it is still alone, however long");
    alone.end(1, no(Some(S * 100)));
    let actions = alone.admission.ask(alone.now, 1, 0, Duration::ZERO);
    alone.take(actions);
    assert_eq!(parked(&alone).len(), 2);
    assert_eq!((next_moment(&mut alone), resumed(&alone)), (vec![1], 0));
    let actions = alone.admission.taken(alone.now, &1, Allowance::default());
    alone.take(actions);
    assert_eq!(resumed(&alone), 1);
    assert_eq!(alone.admitted.len(), 10 + 7, "all that may be made at the same time");
}

#[test]
fn a_reset_that_nobody_names_is_tried_at_growing_intervals() {
    let mut alone = closed(QuotaRule::default(), None);
    let mut last = alone.now;
    let mut waits = Vec::new();
    for _ in 0..8 {
        let tried = next_moment(&mut alone);
        assert_eq!(tried, [1]);
        waits.push((alone.now - last).as_secs());
        last = alone.now;
        alone.end(1, no(None));
        let actions = alone.admission.ask(alone.now, 1, 0, Duration::ZERO);
        alone.take(actions);
    }
    assert_eq!(waits, [59, 120, 240, 480, 960, 1_800, 1_800, 1_800]);
}

#[test]
fn a_wait_beyond_its_limit_is_for_a_later_process() {
    let most = |secs| QuotaRule { on: OnQuota::Wait, max_wait: Some(S * secs) };
    let of = |rule, resets_in| parked(&closed(rule, resets_in))[0].1;
    assert_eq!(of(most(3_600), Some(S * 3_000)), Some(QuotaWait::InProcess));
    assert_eq!(of(most(3_600), Some(S * 4_000)), Some(QuotaWait::Resume));
    let pause = QuotaRule { on: OnQuota::Pause, max_wait: None };
    assert_eq!(of(pause, Some(S * 10)), Some(QuotaWait::Resume));
    let mut alone = Alone::new(8);
    alone.admission.quota = QuotaRule { on: OnQuota::Fail, max_wait: None };
    let first = alone.start();
    alone.end(first, no(Some(S * 10)));
    alone.start();
    assert_eq!(parked(&alone), []);
}

#[test]
fn a_quota_that_an_earlier_process_found_used_up_is_not_tried_before_its_reset() {
    let mut alone = Alone::new(8);
    alone.admission.close_for(S * 50);
    for call in 1..=64 {
        let actions = alone.admission.ask(alone.now, call, 0, Duration::ZERO);
        alone.take(actions);
    }
    assert!(alone.admitted.is_empty());
    assert_eq!((next_moment(&mut alone), alone.now), (vec![1], S * 50));
    alone.end(1, CallEnd::Failed);
    assert_eq!((alone.admitted.len(), resumed(&alone)), (2, 0), "no answer is no reset");
    alone.end(2, CallEnd::Succeeded { tokens: 5 });
    assert_eq!((alone.admitted.len(), resumed(&alone)), (10, 1));
}
