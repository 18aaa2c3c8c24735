//! The rule by which old runs are removed.
//!
//! Pure: it is told how many runs are newer, and how long ago a run ended. Which runs may go at all decides
//! whoever looks at them.

use std::time::Duration;

/// What is kept of the runs of a folder. A run goes only if every bound that is set lets it go; without a bound
/// none goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// Number of the newest runs that are kept.
    pub runs: Option<usize>,
    /// The time for which a run is kept after its end.
    pub time: Option<Duration>,
}

impl Keeping {
    /// Returns true if a run with so many newer ones may go, whenever it ended.
    #[must_use]
    pub fn may_go(&self, newer: usize) -> bool {
        *self != Self::default() && self.runs.is_none_or(|kept| newer >= kept)
    }

    /// Returns true if a run with so many newer ones goes that ended so long ago.
    #[must_use]
    pub fn goes(&self, newer: usize, ended: Duration) -> bool {
        self.may_go(newer) && self.time.is_none_or(|kept| ended > kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_only_if_every_bound_lets_it_go() {
        let rule = |runs, days: Option<u64>| Keeping {
            runs,
            time: days.map(|days| Duration::from_secs(days * 86_400)),
        };
        // (rule, newer runs, days since the end, goes)
        for (rule, newer, days, goes) in [
            (rule(None, None), 1_000, 1_000, false),
            (rule(Some(2), None), 1, 1_000, false),
            (rule(Some(2), None), 2, 0, true),
            (rule(Some(0), None), 0, 0, true),
            (rule(None, Some(30)), 0, 30, false),
            (rule(None, Some(30)), 0, 31, true),
            (rule(Some(2), Some(30)), 2, 30, false),
            (rule(Some(2), Some(30)), 1, 31, false),
            (rule(Some(2), Some(30)), 2, 31, true),
        ] {
            let ended = Duration::from_secs(days * 86_400);
            assert_eq!(rule.goes(newer, ended), goes, "{rule:?} {newer} {days}");
        }
    }
}
