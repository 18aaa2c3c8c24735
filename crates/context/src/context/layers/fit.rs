//! Fit: shortens results to a preview, unread ones included, when nothing else was enough.
//!
//! Pure. The largest results come first; each is stored in full.

use serde::{Deserialize, Serialize};

use super::limit::{Goal, Limit};
use super::persist::{Persist, largest, proposal};
use super::{Proposal, Surroundings};
use crate::context::view::View;

/// Layer name under which shortened results are recorded.
pub const NAME: &str = "fit";

/// Shortens results when the view is over its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fit {
    /// Limit of the view above which results are shortened.
    pub limit: Limit,
    /// Size at which shortening stops.
    pub goal: Goal,
    /// Number of characters of a result that the model still reads.
    pub fit_preview_chars: usize,
    /// Text in the place of a stored result.
    pub persist: Persist,
}

impl Fit {
    /// Returns the proposal to shorten the largest results, if it is due.
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
