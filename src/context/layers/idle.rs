//! Idle: after a long pause old results are cleared at once.
//!
//! Pure. By then the provider has forgotten its cache of the conversation, so that a rewritten
//! prefix costs nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clear::Clearing;
use super::{Proposal, Surroundings};
use crate::context::view::View;

/// The layer name under which cleared results are recorded.
pub const NAME: &str = "idle";

/// Clears old results when there was no request for long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// For how many minutes.
    pub idle_minutes: u64,
    /// What is cleared.
    pub clearing: Clearing,
}

impl Idle {
    /// All old results, if the pause was long enough.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Option<Proposal> {
        let pause = Duration::from_secs(self.idle_minutes.saturating_mul(60));
        (around.idle >= pause).then(|| self.clearing.propose(view, around, usize::MAX, 0))?
    }
}
