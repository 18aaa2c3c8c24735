//! Idle: clears old results in one batch after a long pause.
//!
//! Pure. After such a pause the provider no longer has the conversation in its cache, so that a
//! changed prefix costs nothing more.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clear::Clearing;
use super::{Proposal, Surroundings};
use crate::context::view::View;

/// The layer name under which cleared results are recorded.
pub const NAME: &str = "idle";

/// Clears old results when there was no request for a long time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// Least pause, in minutes.
    pub idle_minutes: u64,
    /// Selection of the results that are cleared.
    pub clearing: Clearing,
}

impl Idle {
    /// Proposes to clear all old results, if the pause was long enough.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Option<Proposal> {
        let pause = Duration::from_secs(self.idle_minutes.saturating_mul(60));
        (around.idle >= pause).then(|| self.clearing.propose(view, around, usize::MAX, 0))?
    }
}
