//! The clock of a run, which runs only while the run is open.
//!
//! Pure. The clock adds up the wall time between the records of one opening. So a limit means the
//! same in a live run, in a run that is resumed a day later, and in a fork.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A reading of a run's clock: the time for which the run had been open, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reading(u64);

impl Reading {
    /// Returns the open time from `then` to this reading.
    #[must_use]
    pub fn since(self, then: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(then.0))
    }
}

/// The clock of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock(Reading);

impl Clock {
    pub(super) fn reading(self) -> Reading {
        self.0
    }

    /// Adds the milliseconds of wall time that passed while the run was open. Negative time, from a
    /// wall clock that was set back, is ignored.
    pub(super) fn passed(&mut self, ms: i64) {
        self.0.0 = self.0.0.saturating_add(u64::try_from(ms).unwrap_or(0));
    }
}

/// Measures open time, with breaks that do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopwatch {
    /// The time taken up to the last break.
    before: Duration,
    /// The reading at the end of the last break; `None` during a break.
    since: Option<Reading>,
}

impl Stopwatch {
    /// Starts a stopwatch now.
    #[must_use]
    pub fn started(now: Reading) -> Self {
        Self { before: Duration::ZERO, since: Some(now) }
    }

    /// Ends a break. Does nothing if there is none.
    pub fn resume(&mut self, now: Reading) {
        self.since.get_or_insert(now);
    }

    /// Begins a break.
    pub fn stop(&mut self, now: Reading) {
        *self = Self { before: self.taken(now), since: None };
    }

    /// Returns the time taken so far, without breaks.
    #[must_use]
    pub fn taken(&self, now: Reading) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

impl super::RunState {
    /// Returns the phase of the run.
    #[must_use]
    pub fn phase(&self) -> super::RunPhase {
        self.phase
    }

    /// Returns the reading of the run's clock. The clock stands still while no process drives the
    /// run, and while it is paused.
    #[must_use]
    pub fn reading(&self) -> Reading {
        self.clock.reading()
    }

    /// Returns the part of its time limit that the run has used: the time for which it was open
    /// since it began, or since a new configuration was last accepted.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.reading().since(self.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Draft, Event, PauseCause, Record, RunOpened, RunPaused};
    use crate::run_state::RunState;

    /// Makes an event of a run from its mark.
    fn event(mark: char, epoch: u64) -> Event {
        match mark {
            'o' => RunOpened { pid: 1, ..RunOpened::by_this_process(epoch) }.into(),
            'p' | 'f' => {
                let cause = match mark {
                    'p' => PauseCause::Interrupted,
                    _ => PauseCause::DiskFull,
                };
                RunPaused { reason: String::new(), cause }.into()
            }
            _ => crate::event::GatewayResumed {
                provider: crate::id::Name::new("p").expect("a name"),
            }
            .into(),
        }
    }

    #[test]
    fn only_the_time_counts_for_which_the_run_was_open() {
        // Each record: `o`pened, `p`aused, disk `f`ull, or anything else; its epoch and wall time.
        type Row = (&'static str, &'static [(char, u64, i64)], u64);
        let rows: [Row; 7] = [
            ("at work", &[('o', 1, 100), ('.', 1, 150), ('.', 1, 400)], 300),
            ("told to stop", &[('o', 1, 0), ('p', 1, 50), ('o', 2, 9_000), ('.', 2, 9_010)], 60),
            ("killed", &[('o', 1, 0), ('.', 1, 50), ('o', 2, 9_000), ('.', 2, 9_010)], 60),
            ("killed twice", &[('o', 1, 0), ('o', 2, 9_000), ('o', 3, 90_000)], 0),
            (
                "no room on the disk",
                &[('o', 1, 0), ('f', 1, 10), ('.', 1, 500), ('o', 1, 900), ('.', 1, 905)],
                15,
            ),
            (
                "killed while there was no room",
                &[('o', 1, 0), ('f', 1, 10), ('.', 1, 20), ('o', 2, 900), ('.', 2, 905)],
                15,
            ),
            ("a clock that was set back", &[('o', 1, 900), ('.', 1, 100), ('.', 1, 130)], 30),
        ];
        for (what, records, wanted) in rows {
            let mut state = RunState::default();
            for (seq, (mark, epoch, ts_ms)) in (1..).zip(records) {
                let Draft { task, agent, event } = Draft::run(event(*mark, *epoch));
                let record = Record { seq, epoch: *epoch, ts_ms: *ts_ms, task, agent, event };
                state.apply(&record).expect("a legal record");
            }
            assert_eq!(state.spent(), Duration::from_millis(wanted), "{what}");
        }
    }

    #[test]
    fn a_stopwatch_leaves_its_breaks_out() {
        let mut watch = Stopwatch::started(Reading(10));
        watch.stop(Reading(30));
        watch.stop(Reading(40));
        assert_eq!(watch.taken(Reading(99)), Duration::from_millis(20));
        watch.resume(Reading(50));
        watch.resume(Reading(60));
        assert_eq!(watch.taken(Reading(65)), Duration::from_millis(35));
    }
}
