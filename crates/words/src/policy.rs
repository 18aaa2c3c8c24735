//! Arithmetic of retries, restarts and circuit breakers.
//!
//! Pure: the caller gives the time, as a duration since any fixed moment, and chance, as a number
//! from 0 to 1.

use std::collections::VecDeque;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::{FailureKind, Remedy};

/// Number of attempts for something that can fail, and the pauses between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The most attempts, the first included.
    pub max_attempts: u32,
    /// The longest that the first pause may be.
    pub initial_interval: Duration,
    /// Factor by which the longest possible pause grows from one pause to the next.
    pub backoff_factor: f64,
    /// The longest that any pause may be.
    pub max_interval: Duration,
    /// True if a pause is drawn evenly from zero to its ceiling ("full jitter").
    pub jitter: bool,
    /// The kinds of failure after which another attempt is made.
    pub retry_on: Vec<FailureKind>,
}

impl RetryPolicy {
    /// Returns the policy of one attempt, without retries.
    #[must_use]
    pub fn never() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// Returns the pause before the next attempt after attempt number `attempt` (from 1) failed, or
    /// `None` if no attempt is left or a failure of this kind is not retried. `chance` is a number
    /// from 0 to 1.
    #[must_use]
    pub fn pause(&self, attempt: u32, kind: FailureKind, chance: f64) -> Option<Duration> {
        if attempt >= self.max_attempts || !self.retry_on.contains(&kind) {
            return None;
        }
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let ceiling = self.initial_interval.as_secs_f64() * self.backoff_factor.powi(exponent);
        let ceiling = ceiling.min(self.max_interval.as_secs_f64());
        Some(Duration::from_secs_f64(if self.jitter { ceiling * chance } else { ceiling }))
    }
}

impl Default for RetryPolicy {
    /// Ten attempts with pauses of at most half a second at first and 32 s at last. An agent that
    /// runs for hours survives an outage of some minutes.
    fn default() -> Self {
        Self {
            max_attempts: 10,
            initial_interval: Duration::from_millis(500),
            backoff_factor: 2.0,
            max_interval: Duration::from_secs(32),
            jitter: true,
            retry_on: FailureKind::mended_by(Remedy::Time).collect(),
        }
    }
}

/// The cases in which an agent that ended is started again. The words are those of Erlang/OTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartStrategy {
    /// After a crash. An agent that ends normally is not restarted, so this equals `transient`.
    Permanent,
    /// After a crash.
    #[default]
    Transient,
    /// Never.
    Temporary,
}

/// Limits on the restarts of one agent after crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartPolicy {
    /// The cases in which the agent is restarted.
    pub strategy: RestartStrategy,
    /// The most restarts within `window`.
    pub max_restarts: u32,
    /// The length of time over which restarts are counted.
    pub window: Duration,
}

impl Default for RestartPolicy {
    /// Three restarts within a minute.
    fn default() -> Self {
        Self {
            strategy: RestartStrategy::Transient,
            max_restarts: 3,
            window: Duration::from_secs(60),
        }
    }
}

impl RestartPolicy {
    /// Returns the pause before restart number `restart` (from 1): 50 ms, doubled each time, at
    /// most 5 s. The cause of a crash may pass with time, and restarts in quick succession would
    /// only load the machine.
    #[must_use]
    pub fn pause(restart: u32) -> Duration {
        // Seven doublings already pass 5 s; an unbounded shift would overflow.
        let doublings = restart.saturating_sub(1).min(7);
        Duration::from_millis(50 << doublings).min(Duration::from_secs(5))
    }
}

/// The restarts of one agent that still count against its policy.
#[derive(Clone, Debug, Default)]
pub struct RestartWindow {
    restarts: VecDeque<Duration>,
}

impl RestartWindow {
    /// Creates the window from the times of earlier restarts, the oldest first.
    #[must_use]
    pub fn after(restarts: impl IntoIterator<Item = Duration>) -> Self {
        Self { restarts: restarts.into_iter().collect() }
    }

    /// Asks for a restart at the time `now`. Returns true and counts it if the policy allows it.
    pub fn admit(&mut self, policy: &RestartPolicy, now: Duration) -> bool {
        if policy.strategy == RestartStrategy::Temporary {
            return false;
        }
        while self.restarts.front().is_some_and(|at| now.saturating_sub(*at) > policy.window) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= policy.max_restarts as usize {
            return false;
        }
        self.restarts.push_back(now);
        true
    }
}

/// The state of a [`Breaker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Every call may start.
    Closed,
    /// No call may start until the pause is over.
    Open,
    /// One probe call is under way; its end decides whether the breaker closes.
    HalfOpen,
}

/// A circuit breaker: stops calls that keep failing, and lets one probe through after a pause.
#[derive(Clone, Debug)]
pub struct Breaker {
    threshold: u32,
    first_cooldown: Duration,
    longest_cooldown: Duration,
    cooldown: Duration,
    failures: u32,
    opened_at: Option<Duration>,
    probing: bool,
}

impl Breaker {
    /// Creates a closed breaker that opens after `threshold` failures in a row (at least one) and
    /// lets a probe through `cooldown` later.
    #[must_use]
    pub fn new(threshold: u32, cooldown: Duration) -> Self {
        Self::growing(threshold, cooldown, cooldown)
    }

    /// Creates a closed breaker whose pause is `first`, and doubles with each probe that fails up to `longest`.
    #[must_use]
    pub fn growing(threshold: u32, first: Duration, longest: Duration) -> Self {
        Self {
            threshold: threshold.max(1),
            first_cooldown: first,
            longest_cooldown: longest,
            cooldown: first,
            failures: 0,
            opened_at: None,
            probing: false,
        }
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        match (self.opened_at, self.probing) {
            (None, _) => BreakerState::Closed,
            (Some(_), true) => BreakerState::HalfOpen,
            (Some(_), false) => BreakerState::Open,
        }
    }

    /// Returns true if a call may start now. When the pause of an open breaker is over, the first
    /// call that asks becomes the probe.
    pub fn admit(&mut self, now: Duration) -> bool {
        let Some(opened_at) = self.opened_at else { return true };
        if self.probing || now.saturating_sub(opened_at) < self.cooldown {
            return false;
        }
        self.probing = true;
        true
    }

    /// Returns the time until a probe may start; zero if one may start now.
    #[must_use]
    pub fn wait(&self, now: Duration) -> Duration {
        let opened_at = self.opened_at.unwrap_or_default();
        (opened_at + self.cooldown).saturating_sub(now)
    }

    /// Reports that a call succeeded, which closes the breaker. Returns true if the state changed.
    pub fn succeed(&mut self) -> bool {
        let was = self.state();
        self.failures = 0;
        self.opened_at = None;
        self.probing = false;
        self.cooldown = self.first_cooldown;
        was != BreakerState::Closed
    }

    /// Reports that a call failed. The breaker opens when the threshold is reached or the call was
    /// the probe. Returns true if the state changed.
    pub fn fail(&mut self, now: Duration) -> bool {
        let was = self.state();
        self.failures = self.failures.saturating_add(1);
        if self.probing {
            self.cooldown = self.cooldown.saturating_mul(2).min(self.longest_cooldown);
        }
        if self.probing || self.failures >= self.threshold {
            // A call that began before the breaker opened and fails later starts the pause again.
            self.opened_at = Some(now);
            self.probing = false;
        }
        was != self.state()
    }

    /// Reports that the probe ended without a result (it was cancelled), so that another may start.
    pub fn abandon(&mut self) {
        self.probing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_grow_to_the_ceiling_and_end() {
        let policy = RetryPolicy {
            max_attempts: 5,
            initial_interval: S,
            backoff_factor: 2.0,
            max_interval: 3 * S,
            jitter: false,
            retry_on: vec![FailureKind::RateLimit],
        };
        let pause = |attempt| policy.pause(attempt, FailureKind::RateLimit, 1.0);
        assert_eq!(
            [pause(1), pause(2), pause(3), pause(4), pause(5)],
            [Some(S), Some(2 * S), Some(3 * S), Some(3 * S), None]
        );
        assert_eq!(policy.pause(1, FailureKind::Auth, 1.0), None);
        let jittered = RetryPolicy { jitter: true, ..policy };
        assert_eq!(jittered.pause(2, FailureKind::RateLimit, 0.25), Some(S / 2));
    }

    #[test]
    fn restarts_are_counted_within_the_window() {
        let policy = RestartPolicy::default();
        let mut window = RestartWindow::default();
        assert!(window.admit(&policy, S));
        assert!(window.admit(&policy, 2 * S));
        assert!(window.admit(&policy, 3 * S));
        assert!(!window.admit(&policy, 4 * S));
        assert!(window.admit(&policy, 62 * S));
        let never = RestartPolicy { strategy: RestartStrategy::Temporary, ..policy };
        assert!(!RestartWindow::default().admit(&never, S));
    }

    #[test]
    fn restarts_wait_longer_each_time() {
        let pauses = [1, 2, 8, 100].map(|restart| RestartPolicy::pause(restart).as_millis());
        assert_eq!(pauses, [50, 100, 5_000, 5_000]);
    }

    #[test]
    fn the_breaker_opens_probes_and_closes() {
        let mut breaker = Breaker::new(3, 10 * S);
        assert!(!breaker.fail(S) && !breaker.fail(S));
        assert!(breaker.fail(S));
        assert!(!breaker.admit(5 * S));
        assert_eq!(breaker.wait(5 * S), 6 * S);
        assert!(breaker.admit(11 * S));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(!breaker.admit(11 * S), "one probe only");
        breaker.fail(11 * S);
        assert!(!breaker.admit(12 * S));
        assert!(breaker.admit(21 * S));
        assert!(breaker.succeed());
        assert!(breaker.admit(21 * S));
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn the_pause_grows_while_probes_fail() {
        let mut breaker = Breaker::growing(1, S, 5 * S);
        let mut now = S;
        for pause in [1, 2, 4, 5, 5] {
            breaker.fail(now);
            assert_eq!(breaker.wait(now), pause * S);
            now += pause * S;
            assert!(breaker.admit(now));
        }
        breaker.succeed();
        breaker.fail(now);
        assert_eq!(breaker.wait(now), S);
    }
}
