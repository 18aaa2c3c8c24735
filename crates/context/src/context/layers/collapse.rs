//! Collapse: folds closed spans of the view into short entries, without a model.
//!
//! Pure. A span is a run of whole batches that the model has read. An entry never changes once it
//! is there: later folds add entries of their own. While the layer is switched on, no summary is
//! due by itself.

use serde::{Deserialize, Serialize};

use super::limit::{Goal, Limit};
use super::template::fill;
use super::{Proposal, Surroundings};
use crate::context::view::range;
use crate::context::view::{Slot, Standing, View};
use crate::message::{Message, Role};

/// Layer name under which folds are recorded.
pub const NAME: &str = "collapse";

/// Most characters of a line of an entry: the beginning of a command or a path says what it was.
const LINE_CHARS: usize = 120;

/// Folds closed spans when the view is over its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collapse {
    /// True if the layer is switched on.
    pub collapse: bool,
    /// Limit of the view above which spans are folded.
    pub limit: Limit,
    /// Size at which folding stops.
    pub goal: Goal,
    /// Number of messages after which a span ends at the next reply.
    pub collapse_span: usize,
    /// Number of the newest messages that stay.
    pub collapse_keep: usize,
    /// Text before the calls of a span; `{n}` is the number of its messages, `{path}` the
    /// transcript.
    pub collapse_text: String,
}

impl Collapse {
    /// Returns the folds that are due, oldest first.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Vec<Proposal> {
        let excess = self.collapse.then(|| self.limit.excess(&self.goal, view, around)).flatten();
        let Some(mut excess) = excess else { return Vec::new() };
        let mut proposals = Vec::new();
        for span in self.spans(view) {
            let (Some(first), Some(last)) = (span.first(), span.last()) else { continue };
            if excess == 0 {
                break;
            }
            let entry = self.entry(&span, around);
            let before: usize = span.iter().map(|slot| slot.entry.chars).sum();
            let Some(gain) = before.checked_sub(entry.chars().count()) else { continue };
            excess = excess.saturating_sub(gain);
            let with = vec![Message::user(entry)];
            proposals.push(range::joining(view, first.from, last.to, with).into());
        }
        proposals
    }

    /// Returns the closed spans, oldest first. Requests and replacements made by edits end a span
    /// and belong to none.
    fn spans<'a>(&self, view: &'a View) -> Vec<Vec<&'a Slot>> {
        let read = range::consumed(view).map_or(0, |(_, to)| to);
        let newest = view.slots().rev().nth(self.collapse_keep.saturating_sub(1));
        let end = newest.map_or(0, |slot| slot.from).min(read);
        let mut spans: Vec<Vec<&Slot>> = vec![Vec::new()];
        for slot in view.slots().take_while(|slot| slot.to <= end) {
            let is_open =
                slot.entry.is_request || slot.parts.is_some() || slot.standing == Standing::Instead;
            let is_full = spans.last().is_some_and(|span| span.len() >= self.collapse_span);
            // A span begins with the assistant, so that it holds whole batches.
            if is_open || (is_full && slot.entry.role == Role::Assistant) {
                spans.push(Vec::new());
            }
            let span = spans.last_mut().filter(|span| {
                !is_open && (!span.is_empty() || slot.entry.role == Role::Assistant)
            });
            if let Some(span) = span {
                span.push(slot);
            }
        }
        // A span must not end with the assistant, because the answer to its calls would stay behind
        // it.
        for span in &mut spans {
            while span.last().is_some_and(|slot| slot.entry.role == Role::Assistant) {
                span.pop();
            }
        }
        spans
    }

    fn entry(&self, span: &[&Slot], around: &Surroundings<'_>) -> String {
        let n = span.len().to_string();
        let mut entry = fill(&self.collapse_text, &[("n", &n), ("path", around.transcript)]);
        for slot in span {
            let Ok(message) = slot.entry.json.decode::<Message>() else { continue };
            for call in message.tool_calls() {
                let line = format!("- {} {}", call.name, call.input.as_str());
                entry.push('\n');
                entry.extend(line.chars().take(LINE_CHARS));
            }
        }
        entry
    }
}
