//! The moment of a record, and how the process that drives a run began and ended, as the records tell.

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::{Record, RunOpened};

/// The moment of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    /// Number of the record; 0 if none is known.
    pub seq: u64,
    /// Its wall time in milliseconds since the Unix epoch.
    pub ms: i64,
}

impl From<&Record> for Moment {
    fn from(record: &Record) -> Self {
        Self { seq: record.seq, ms: record.ts_ms }
    }
}

/// The process that opened a run last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Its id.
    pub pid: u32,
    /// Who opened the run, as `user@host/pid`, if that is recorded.
    pub by: Option<String>,
    /// The moment at which it opened the run.
    pub at: Moment,
}

impl RunState {
    /// Returns the process that opened the run last.
    #[must_use]
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Returns the moment of the creation of the run.
    #[must_use]
    pub fn created_at(&self) -> Moment {
        self.created_at
    }

    /// Returns the moment of the latest pause or end of the run, or of the beginning of the hook that is at work:
    /// of the record that says in which phase the run is.
    #[must_use]
    pub fn phase_since(&self) -> Moment {
        self.phase_since
    }

    /// Returns the moment of the latest record.
    #[must_use]
    pub fn last(&self) -> Moment {
        Moment { seq: self.last_seq, ms: self.last_ms }
    }

    pub(super) fn opened_by(&mut self, opened: &RunOpened, at: Moment) {
        // After a pause that ends by itself the same process goes on.
        if opened.reason.is_none() {
            self.opening = Opening { pid: opened.pid, by: opened.by.clone(), at };
        }
        self.phase_since = at;
    }
}
