//! Reactive: makes a request shorter that a provider refused as too long.
//!
//! Pure. An option of a preset: the older part is replaced by a summary, or by a plain note where
//! there is none; where little is left to replace, the largest results are stored.

use serde::{Deserialize, Serialize};

use super::persist::{Persist, largest, proposal};
use super::summary::{Covered, Quote, Summary, SummaryRequest};
use super::{Proposal, Surroundings};
use crate::context::view::range;
use crate::context::view::{Slot, View};
use crate::context::{CompactionTrigger, Edit};

/// Layer name under which the edits are recorded.
pub const NAME: &str = "reactive";

/// Input of the summariser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReactiveInput {
    /// All messages.
    All,
    /// The messages that the summary replaces.
    Replaced,
}

/// Selection of the results that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReactiveShed {
    /// The single largest one, when the view has no more messages than are kept.
    Largest,
    /// One after the other, largest first, until the view fills at most half of its room.
    Half,
}

/// Settings for shortening a refused request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reactive {
    /// Number of the newest messages that stay.
    pub reactive_tail: usize,
    /// Input of the summariser.
    pub reactive_input: ReactiveInput,
    /// User message in the place of the others, in the form of a `summary_text`.
    pub reactive_text: String,
    /// Text in the place of the summary where there is none.
    pub reactive_fallback: String,
    /// Selection of the results that are stored.
    pub reactive_shed: ReactiveShed,
    /// Text in the place of a stored result.
    pub persist: Persist,
}

impl Reactive {
    /// Returns the request for a summary, with the settings that put it into the view.
    #[must_use]
    pub fn request(
        &self,
        summary: &Summary,
        view: &View,
        around: &Surroundings<'_>,
        focus: Option<String>,
    ) -> Option<(Summary, SummaryRequest)> {
        let (from, to) = self.range(view)?;
        let reads_to = match self.reactive_input {
            ReactiveInput::All => view.next_message(),
            ReactiveInput::Replaced => to,
        };
        let covered = Covered { from, to, reads_to };
        let trigger = CompactionTrigger::Reactive;
        let request = summary.request(view, around, trigger, focus, covered);
        Some((self.summary(summary), request))
    }

    /// Returns the edit that stands in when no summary can be had. `path` is the transcript.
    #[must_use]
    pub fn fallback(&self, summary: &Summary, view: &View, path: &str) -> Option<Edit> {
        let (from, to) = self.range(view)?;
        let plain = Summary { summary_quote: Quote::Bare, ..self.summary(summary) };
        Some(plain.edit(view, from, to, path, &self.reactive_fallback))
    }

    /// Proposes to store the largest results from a message on.
    #[must_use]
    pub fn shed(&self, view: &View, around: &Surroundings<'_>, from: u64) -> Option<Proposal> {
        let mut excess = match self.reactive_shed {
            ReactiveShed::Largest if view.slots().len() > self.reactive_tail => return None,
            ReactiveShed::Largest => 1,
            ReactiveShed::Half => {
                let half = around.window.free_tokens() / 2;
                (around.tokens(view.chars()).saturating_sub(half)) as usize
            }
        };
        let mut chosen = Vec::new();
        for candidate in largest(view, from) {
            if excess == 0 {
                break;
            }
            let Some(persisted) =
                self.persist.persisted(&candidate, self.persist.preview_chars, around)
            else {
                break;
            };
            excess = excess.saturating_sub(match self.reactive_shed {
                ReactiveShed::Largest => 1,
                ReactiveShed::Half => around.tokens(persisted.freed) as usize,
            });
            chosen.push(persisted);
        }
        proposal(chosen)
    }

    /// Returns the range that is replaced: everything before the newest messages and the batch that
    /// these begin with. Where nothing is before them, everything that the model has read.
    fn range(&self, view: &View) -> Option<(u64, u64)> {
        let slots: Vec<&Slot> = view.slots().collect();
        let tail = range::batch_start(&slots, slots.len().saturating_sub(self.reactive_tail));
        let (from, to) = (slots.first()?.from, slots.get(tail)?.from);
        if from < to { Some((from, to)) } else { range::consumed(view) }
    }

    fn summary(&self, summary: &Summary) -> Summary {
        let (summary_text, summary_reply) = (self.reactive_text.clone(), String::new());
        Summary { summary_text, summary_reply, ..summary.clone() }
    }
}
