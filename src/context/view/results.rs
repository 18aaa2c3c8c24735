//! The tool results of a view: which stand in it, and how large they are.
//!
//! Pure. Kept beside the messages, so that no layer has to read a message to know of its results.

use super::View;
use crate::context::ClearedResult;
use crate::message::{Message, ResultContent};
use crate::output::Stored;

/// A tool result that still stands in the view, in full or as a preview, and may be cleared.
#[derive(Clone, Debug)]
pub struct Clearable {
    /// The message that holds it.
    pub message: u64,
    /// The call that it answers.
    pub tool_use_id: String,
    /// The tool of that call, or `unknown`.
    pub tool: String,
    /// The size of its content; `None` when the content is not a plain text.
    pub chars: Option<usize>,
    /// How many blocks its content has, if it is a list.
    pub blocks: usize,
    /// The stored whole, when what stands in the view is a preview of it.
    pub stored: Option<Stored>,
    /// How many characters of the whole that preview has.
    pub kept_chars: u64,
}

impl View {
    /// The tool results that stand in the view, in full or as a preview, oldest first.
    pub fn results(&self) -> impl DoubleEndedIterator<Item = &Clearable> + ExactSizeIterator {
        self.results.iter()
    }

    /// Makes a result count as the newest: a later one refers to it.
    pub fn renew(&mut self, message: u64, tool_use_id: &str) {
        let Some(place) = self.result_place(message, tool_use_id) else { return };
        let result = self.results.remove(place);
        self.results.extend(result);
    }

    /// Takes in the results of a message that joins the view.
    pub(super) fn note_results(&mut self, message: u64, decoded: &Message) {
        let calls = self.slots.back().map(|slot| slot.entry.clone());
        for result in decoded.tool_results() {
            let call = calls.iter().flat_map(|e| e.calls.iter());
            let mut tool = call.filter(|(id, _)| *id == result.tool_use_id).map(|(_, tool)| tool);
            self.results.push_back(Clearable {
                message,
                tool_use_id: result.tool_use_id.clone(),
                tool: tool.next_back().map_or("unknown", String::as_str).to_owned(),
                chars: match &result.content {
                    ResultContent::Text(text) => Some(text.chars().count()),
                    ResultContent::Blocks(_) => None,
                },
                blocks: match &result.content {
                    ResultContent::Text(_) => 0,
                    ResultContent::Blocks(blocks) => {
                        blocks.decode::<Vec<serde::de::IgnoredAny>>().map_or(0, |list| list.len())
                    }
                },
                stored: None,
                kept_chars: 0,
            });
        }
    }

    /// Where a result stands in the list: a recent one is found first.
    fn result_place(&self, message: u64, tool_use_id: &str) -> Option<usize> {
        let mut newest = self.results.iter();
        newest.rposition(|result| result.message == message && result.tool_use_id == tool_use_id)
    }

    /// Keeps the list of results in line with what is cleared: a preview is shorter, a result of
    /// which nothing is left is no longer one.
    pub(super) fn note_cleared(&mut self, cleared: &ClearedResult) {
        let place = self.result_place(cleared.message, &cleared.tool_use_id);
        let Some(place) = place else { return };
        if cleared.kept_chars > 0 {
            self.results[place].chars = Some(cleared.text.chars().count());
            self.results[place].stored.clone_from(&cleared.stored);
            self.results[place].kept_chars = cleared.kept_chars;
        } else {
            self.results.remove(place);
        }
    }

    /// Strikes the results of the messages of a range from the list.
    pub(super) fn forget_results(&mut self, from: u64, to: u64) {
        let is_gone = |result: &Clearable| result.message >= from && result.message < to;
        self.results.retain(|result| !is_gone(result));
    }
}
