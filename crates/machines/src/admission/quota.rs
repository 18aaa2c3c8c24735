//! Quota windows: whether a quota that is used up is waited for, and when the provider is called again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LONGEST_PAUSE;

/// Time to the first call to a provider that did not say when its quota is reset; it doubles with each
/// call in vain.
const FIRST_PROBE: Duration = Duration::from_secs(60);

/// The shortest time to the next call after a refusal that names a reset, doubled with each call in vain up to
/// [`FIRST_PROBE`]: a server that names a thousandth of a second must not keep the run asking and recording.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// The longest time between two calls to such a provider: a window of five hours is not noticed later than
/// a tenth of it.
const LONGEST_PROBE: Duration = Duration::from_secs(30 * 60);

/// What follows when the quota of a provider is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnQuota {
    /// The run waits until the quota is reset, and goes on by itself.
    #[default]
    Wait,
    /// The run pauses and its process ends; a later process resumes it.
    Pause,
    /// The call fails.
    Fail,
}

/// The rule for a quota that is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaRule {
    /// What follows.
    pub on: OnQuota,
    /// The longest time that is waited for one reset, if there is a limit; after it the run pauses.
    pub max_wait: Option<Duration>,
}

/// A quota that is used up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    since: Duration,
    /// Time of the last refusal that said something new: calls that started before it say nothing about
    /// the time after it.
    last: Duration,
    /// Number of calls in vain in a row.
    vain: u32,
}

impl Closed {
    pub(super) fn at(now: Duration) -> Self {
        Self { since: now, last: now, vain: 0 }
    }

    /// Returns true if a call that started at this time was a try whether the quota is reset.
    pub(super) fn is_try(&self, started: Duration) -> bool {
        started >= self.last
    }

    /// Notes the refusal of a try, or the first refusal; returns the time of the next try. A reset that is named
    /// again and again and does not come is tried at most once a minute.
    pub(super) fn refused(&mut self, now: Duration, resets_in: Option<Duration>) -> Duration {
        self.last = now;
        let growth = 2_u32.pow(self.vain.min(6));
        self.vain = self.vain.saturating_add(1);
        let pause = match resets_in {
            Some(named) => named.max((LEAST_PAUSE * growth).min(FIRST_PROBE)),
            None => (FIRST_PROBE * growth).min(LONGEST_PROBE),
        };
        now + pause.min(LONGEST_PAUSE)
    }

    /// Returns true if a wait until this time is within the limit.
    pub(super) fn may_wait(&self, rule: QuotaRule, until: Duration) -> bool {
        let waits = until.saturating_sub(self.since);
        rule.on == OnQuota::Wait && rule.max_wait.is_none_or(|most| waits <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_that_never_comes_is_tried_once_a_minute_at_most() {
        let s = Duration::from_secs;
        let mut closed = Closed::at(Duration::ZERO);
        let named = Some(Duration::from_millis(1));
        let pauses: Vec<_> = (0..9).map(|_| closed.refused(s(100), named) - s(100)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60].map(s));
        // A reset that is far away is believed.
        assert_eq!(closed.refused(s(100), Some(s(18_000))), s(18_100));
        let mut unnamed = Closed::at(Duration::ZERO);
        let pauses: Vec<_> = (0..7).map(|_| unnamed.refused(s(0), None)).collect();
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1_800, 1_800].map(s));
    }
}
