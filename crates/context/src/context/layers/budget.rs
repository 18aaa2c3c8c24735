//! Budget: bounds the characters of the results of one batch of calls together.
//!
//! Pure. It looks only at the last message, before the model has read it, so that large content is
//! stored before a later layer could remove it.

use serde::{Deserialize, Serialize};

use super::persist::{Persist, Persisted, candidates, proposal};
use super::{Proposal, Surroundings};
use crate::context::measure::message_chars;
use crate::context::view::{Slot, View};
use crate::message::{Message, ResultContent};

/// Layer name under which stored results are recorded.
pub const NAME: &str = "budget";

/// Stores the largest results of a batch until the others are within the budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Most characters of the results of one message together.
    pub batch_budget_chars: usize,
    /// Results of at most this many characters are never stored. With 0 the total is bounded
    /// whatever their sizes: where full previews are too much, they become shorter. `four-layer` has
    /// the 30,000 of the code of its design; the text of that design has no minimum, which is 0.
    pub persist_min_chars: usize,
    /// Text in the place of a stored result.
    pub persist: Persist,
}

impl Budget {
    /// Proposes to store the largest results of the last message, until the others are within the
    /// budget.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Option<Proposal> {
        let last = view.slots().next_back()?;
        // The JSON of a message is never shorter than the texts in it, so a small message needs no
        // decoding.
        if last.entry.answers.is_empty() || last.entry.chars <= self.batch_budget_chars {
            return None;
        }
        let total = result_chars(last);
        if total <= self.batch_budget_chars {
            return None;
        }
        let mut preview_chars = self.persist.preview_chars;
        loop {
            let (left, chosen) = self.choose(view, last, total, preview_chars, around);
            let is_met = left <= self.batch_budget_chars;
            if is_met || self.persist_min_chars > 0 || preview_chars == 0 {
                return proposal(chosen);
            }
            preview_chars /= 2;
        }
    }

    /// Returns the results to store when previews have so many characters, and the characters that
    /// all results then have.
    fn choose(
        &self,
        view: &View,
        last: &Slot,
        mut total: usize,
        preview_chars: usize,
        around: &Surroundings<'_>,
    ) -> (usize, Vec<Persisted>) {
        let mut chosen = Vec::new();
        for candidate in candidates(view, last) {
            if total <= self.batch_budget_chars || candidate.chars <= self.persist_min_chars {
                break;
            }
            if let Some(persisted) = self.persist.persisted(&candidate, preview_chars, around) {
                total -= persisted.freed;
                chosen.push(persisted);
            }
        }
        (total, chosen)
    }
}

/// Returns the characters of a message's results: of a text, or of the JSON of anything else, whose images count as their tokens.
fn result_chars(slot: &Slot) -> usize {
    let Ok(message) = slot.entry.json.decode::<Message>() else { return 0 };
    let sizes = message.tool_results().map(|result| match &result.content {
        ResultContent::Text(text) => text.chars().count(),
        ResultContent::Blocks(blocks) => message_chars(blocks),
    });
    sizes.sum()
}
