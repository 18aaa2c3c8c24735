//! Persisting: a tool result is stored whole, and a preview of it stands in the view.
//!
//! Pure. The store names a result by its hash, so that the same bytes are stored once and nothing
//! is ever overwritten. Whether a result is stored is known to the view, never read from its text.

use serde::{Deserialize, Serialize};

use super::template::fill;
use super::{Proposal, Spill, Surroundings};
use crate::context::view::{Slot, View};
use crate::context::{ClearedResult, Edit};
use crate::message::{Message, ResultContent};

/// What stands in the place of a result that was stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persist {
    /// How many characters of it the model still reads.
    pub preview_chars: usize,
    /// The text; `{path}` is where the whole is stored, `{preview}` its beginning.
    pub persisted_text: String,
}

/// A tool result in the view that may be stored.
#[derive(Clone, Debug)]
pub struct Candidate {
    message: u64,
    tool_use_id: String,
    text: String,
    /// Its size in characters.
    pub chars: usize,
}

/// A result that is to be stored, and what stands in its place.
#[derive(Clone, Debug)]
pub struct Persisted {
    cleared: ClearedResult,
    spill: Spill,
    /// How many characters shorter the view's text becomes.
    pub freed: usize,
}

/// The plain-text results of a message that are not stored yet, largest first.
#[must_use]
pub fn candidates(view: &View, slot: &Slot) -> Vec<Candidate> {
    let Ok(message) = slot.entry.json.decode::<Message>() else { return Vec::new() };
    let stored = |id: &str| {
        let mut own = view.results().filter(|result| result.message == slot.from);
        own.any(|result| result.stored.is_some() && result.tool_use_id == id)
    };
    let texts = message.content.into_iter().filter_map(|block| match block {
        crate::message::Block::ToolResult(result) if !stored(&result.tool_use_id) => {
            let ResultContent::Text(text) = result.content else { return None };
            let chars = text.chars().count();
            let (message, tool_use_id) = (slot.from, result.tool_use_id);
            Some(Candidate { message, tool_use_id, text, chars })
        }
        _ => None,
    });
    let mut all: Vec<_> = texts.collect();
    all.sort_by_key(|candidate| std::cmp::Reverse(candidate.chars));
    all
}

impl Persist {
    /// What becomes of a result, with a preview of at most so many characters; `None` when the text
    /// would be no shorter.
    #[must_use]
    pub fn persisted(
        &self,
        candidate: &Candidate,
        preview_chars: usize,
        around: &Surroundings<'_>,
    ) -> Option<Persisted> {
        let spill = Spill::of(candidate.text.clone());
        let preview: String = candidate.text.chars().take(preview_chars).collect();
        let kept_chars = preview.chars().count() as u64;
        let path = spill.path(around);
        let text = fill(&self.persisted_text, &[("path", &path), ("preview", &preview)]);
        let freed = candidate.chars.checked_sub(text.chars().count()).filter(|freed| *freed > 0)?;
        let cleared = ClearedResult {
            message: candidate.message,
            tool_use_id: candidate.tool_use_id.clone(),
            text,
            stored: Some(spill.stored.clone()),
            kept_chars,
        };
        Some(Persisted { cleared, spill, freed })
    }
}

/// The proposal to store these results.
#[must_use]
pub fn proposal(all: Vec<Persisted>) -> Option<Proposal> {
    let (results, spills): (Vec<_>, Vec<_>) =
        all.into_iter().map(|persisted| (persisted.cleared, persisted.spill)).unzip();
    (!results.is_empty()).then_some(Proposal { edit: Edit::ClearResults { results }, spills })
}
