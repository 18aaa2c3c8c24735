//! The books of a purse: what each scope has spent and reserved, and who waits.

use crate::id::{AgentId, Name};
use crate::run_machine::request::{Purpose, Reservation};
use crate::spec::budget::Amount;

/// The book of a scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Book {
    /// What is spent and known.
    pub(super) settled: Amount,
    /// The most that may be spent beyond it, for ever.
    pub(super) unsettled: Amount,
    /// What is reserved for calls that are under way.
    pub(super) open: Amount,
    /// What is held back for last replies.
    pub(super) held: Amount,
}

impl Book {
    /// Returns all that is spent or may be.
    pub(super) fn taken(&self) -> Amount {
        self.settled + self.unsettled + self.open + self.held
    }

    /// Returns true if calls are under way.
    pub(super) fn is_open(&self) -> bool {
        self.open.calls > 0
    }
}

/// What an agent has spent and reserved.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// What is spent and known.
    pub(super) settled: Amount,
    /// The most that may be spent beyond it.
    pub(super) unsettled: Amount,
    /// Its calls under way, oldest first: a turn, and a summary that is written ahead of need. There may be more while
    /// the end of one is on its way to the journal, or after one that was never announced.
    pub(super) granted: Vec<(Purpose, Amount)>,
    /// What is held back for its last reply.
    pub(super) held: Amount,
    /// The model of its latest call.
    pub(super) model: Option<Name>,
}

impl Account {
    /// Takes out the reservation for a call of this kind.
    pub(super) fn take(&mut self, purpose: Purpose) -> Option<Amount> {
        let is_same = |granted: &(Purpose, Amount)| granted.0.is_summary() == purpose.is_summary();
        let place = self.granted.iter().position(is_same)?;
        Some(self.granted.remove(place).1)
    }
}

/// A call that waits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiting {
    pub(super) agent: AgentId,
    /// The id of the request.
    pub(super) id: String,
    pub(super) wish: Reservation,
}
