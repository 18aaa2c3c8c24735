//! How many child agents may begin in a time.
//!
//! Pure: whoever asks keeps the moments at which children began, on any clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration;

/// A count in a sliding window of time. Written `60/1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct SpawnRate {
    /// The most children that begin within the window; at least 1.
    pub most: u32,
    /// The length of the window, above zero.
    pub window: Duration,
}

impl SpawnRate {
    /// Returns the moment from which another child may begin, if those before it began at these moments, the oldest
    /// first; `None` if it may begin whenever it wants.
    #[must_use]
    pub fn next(&self, began: impl DoubleEndedIterator<Item = Duration>) -> Option<Duration> {
        let place = usize::try_from(self.most.max(1)).unwrap_or(usize::MAX);
        began.rev().nth(place - 1).map(|oldest| oldest.saturating_add(self.window))
    }
}

impl Default for SpawnRate {
    /// Returns one a second on average. A child works for some seconds at least, so a parent that has 20 of them at
    /// work (`max_children`) rarely waits; one that delegates without end needs 40 s more for its 100 children
    /// (`max_descendants`), in which somebody or a rule of loops can notice it.
    fn default() -> Self {
        Self { most: 60, window: Duration::from_secs(60) }
    }
}

/// A text that is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rate is a count and a time, like `5/10s`")]
pub struct NoRate;

impl FromStr for SpawnRate {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        let (count, time) = text.split_once('/').ok_or(NoRate)?;
        let most = count.parse().ok().filter(|most| *most > 0).ok_or(NoRate)?;
        let window = duration::parse(time).filter(|time| !time.is_zero()).ok_or(NoRate)?;
        Ok(Self { most, window })
    }
}

impl TryFrom<String> for SpawnRate {
    type Error = NoRate;

    fn try_from(text: String) -> Result<Self, NoRate> {
        text.parse()
    }
}

impl fmt::Display for SpawnRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.most, duration::text(self.window))
    }
}

impl From<SpawnRate> for String {
    fn from(rate: SpawnRate) -> Self {
        rate.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_and_written() {
        for text in ["60/1m", "5/10s", "1/500ms"] {
            assert_eq!(text.parse::<SpawnRate>().map(|rate| rate.to_string()).as_deref(), Ok(text));
        }
        for wrong in ["", "5", "0/10s", "5/0s", "-1/10s", "5/10", "5 / 10s", "x/1s"] {
            assert_eq!(wrong.parse::<SpawnRate>(), Err(NoRate), "{wrong}");
        }
    }

    #[test]
    fn the_window_slides() {
        let rate = SpawnRate { most: 2, window: Duration::from_secs(10) };
        let next = |began: &[u64]| {
            rate.next(began.iter().copied().map(Duration::from_secs)).map(|at| at.as_secs())
        };
        assert_eq!(next(&[]), None);
        assert_eq!(next(&[3]), None);
        // The last two count, and another one may begin when the first of them leaves the window.
        assert_eq!(next(&[3, 4]), Some(13));
        assert_eq!(next(&[1, 3, 4]), Some(13));
        assert_eq!(next(&[3, 4, 13]), Some(14));
    }
}
