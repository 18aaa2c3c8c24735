//! Persisting: a tool result is stored in full, and a preview of it stands in the view.
//!
//! Pure. The store names a result by its hash, so that the same bytes are stored once and nothing
//! is ever overwritten. The view knows which results are stored; this is never read from their
//! text.

use serde::{Deserialize, Serialize};

use super::template::fill;
use super::{Proposal, Spill, Surroundings};
use crate::context::view::{Clearable, Slot, View};
use crate::context::{ClearedResult, Edit};
use crate::message::{Block, Message, ResultContent};
use crate::output::Stored;

/// Text in the place of a stored result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persist {
    /// Number of its characters that the model still reads.
    pub preview_chars: usize,
    /// Template: `{path}` is the path of the stored result, `{preview}` its beginning.
    pub persisted_text: String,
}

/// A tool result in the view that may be stored, or shortened when it already is.
#[derive(Clone, Debug)]
pub struct Candidate {
    message: u64,
    /// Id of the call that it answers.
    pub tool_use_id: String,
    text: String,
    /// Size in characters.
    pub chars: usize,
    /// The stored result, and the number of its characters in the text, when the text is a preview.
    preview_of: Option<(Stored, usize)>,
}

/// A result that is stored, and its replacement.
#[derive(Clone, Debug)]
pub struct Persisted {
    cleared: ClearedResult,
    spill: Option<Spill>,
    /// Number of characters that the replacement saves.
    pub freed: usize,
}

/// Returns the plain-text results of a message, largest first.
#[must_use]
pub fn candidates(view: &View, slot: &Slot) -> Vec<Candidate> {
    let Ok(message) = slot.entry.json.decode::<Message>() else { return Vec::new() };
    let own = |result: &&Clearable| result.message == slot.from;
    let known: Vec<_> = view.results().filter(own).collect();
    let texts = message.content.into_iter().filter_map(|block| match block {
        Block::ToolResult(result) => {
            let ResultContent::Text(text) = result.content else { return None };
            let (chars, tool_use_id) = (text.chars().count(), result.tool_use_id);
            let known = known.iter().find(|known| known.tool_use_id == tool_use_id);
            let preview_of = known.and_then(|known| {
                Some((known.stored.clone()?, usize::try_from(known.kept_chars).ok()?))
            });
            Some(Candidate { message: slot.from, tool_use_id, text, chars, preview_of })
        }
        Block::Text(_) | Block::ToolUse(_) | Block::Other(_) => None,
    });
    let mut all: Vec<_> = texts.collect();
    all.sort_by_key(|candidate| std::cmp::Reverse(candidate.chars));
    all
}

/// Returns the plain-text results of the view from a message on, largest first.
#[must_use]
pub fn largest(view: &View, from: u64) -> Vec<Candidate> {
    let slots = view.slots().filter(|slot| slot.from >= from && !slot.entry.answers.is_empty());
    let mut all: Vec<_> = slots.flat_map(|slot| candidates(view, slot)).collect();
    all.sort_by_key(|candidate| std::cmp::Reverse(candidate.chars));
    all
}

impl Candidate {
    /// Returns the full text; `None` when the result is a preview of a stored one.
    #[must_use]
    pub fn into_whole(self) -> Option<String> {
        self.preview_of.is_none().then_some(self.text)
    }
}

impl Persist {
    /// Returns the replacement of a result, with a preview of at most so many characters; `None`
    /// when it would not be shorter. A result that is already stored is only shortened.
    #[must_use]
    pub fn persisted(
        &self,
        candidate: &Candidate,
        preview_chars: usize,
        around: &Surroundings<'_>,
    ) -> Option<Persisted> {
        let (stored, spill, beginning) = match &candidate.preview_of {
            Some((stored, kept)) => {
                let beginning = self.preview(&candidate.text, stored, around)?;
                (stored.clone(), None, first(beginning, *kept))
            }
            None => {
                let spill = Spill::of(candidate.text.clone());
                (spill.stored.clone(), Some(spill), candidate.text.as_str())
            }
        };
        let preview = first(beginning, preview_chars);
        let path = around.path_of(&stored);
        let text = fill(&self.persisted_text, &[("path", &path), ("preview", preview)]);
        let freed = candidate.chars.checked_sub(text.chars().count()).filter(|freed| *freed > 0)?;
        let cleared = ClearedResult {
            message: candidate.message,
            tool_use_id: candidate.tool_use_id.clone(),
            text,
            stored: Some(stored),
            kept_chars: preview.chars().count() as u64,
        };
        Some(Persisted { cleared, spill, freed })
    }

    /// Returns the preview in a replacement that this type wrote. The caller knows from the view
    /// that the text is one.
    fn preview<'a>(
        &self,
        text: &'a str,
        stored: &Stored,
        around: &Surroundings<'_>,
    ) -> Option<&'a str> {
        let opening = self.persisted_text.split("{preview}").next()?;
        text.strip_prefix(&fill(opening, &[("path", &around.path_of(stored))]))
    }
}

/// Returns the first characters of a text.
fn first(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}

/// Returns the proposal to store these results; `None` when there are none.
#[must_use]
pub fn proposal(all: Vec<Persisted>) -> Option<Proposal> {
    let (results, spills): (Vec<_>, Vec<_>) =
        all.into_iter().map(|persisted| (persisted.cleared, persisted.spill)).unzip();
    let spills = spills.into_iter().flatten().collect();
    (!results.is_empty()).then_some(Proposal { edit: Edit::ClearResults { results }, spills })
}
