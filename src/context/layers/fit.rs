//! Fit: results are shortened to a preview, unread ones included, when nothing else was enough.
//!
//! Pure. Largest first; each is stored whole.

use serde::{Deserialize, Serialize};

use super::limit::{Goal, Limit};
use super::persist::{Persist, largest, proposal};
use super::{Proposal, Surroundings};
use crate::context::view::View;

/// The layer name under which shortened results are recorded.
pub const NAME: &str = "fit";

/// Shortens results when the view is over its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fit {
    /// They are shortened when the view is over it.
    pub limit: Limit,
    /// Where shortening stops.
    pub goal: Goal,
    /// How many characters of a result the model still reads.
    pub fit_preview_chars: usize,
    /// What stands in the place of a stored result.
    pub persist: Persist,
}

impl Fit {
    /// The results to shorten.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Option<Proposal> {
        let mut excess = self.limit.excess(&self.goal, view, around)?;
        let mut chosen = Vec::new();
        for candidate in largest(view, 0) {
            if excess == 0 {
                break;
            }
            let preview = self.fit_preview_chars;
            if let Some(persisted) = self.persist.persisted(&candidate, preview, around) {
                excess = excess.saturating_sub(persisted.freed);
                chosen.push(persisted);
            }
        }
        proposal(chosen)
    }
}
