//! The tool results of a view: a list of those that stand in it, with their sizes.
//!
//! Pure. Kept beside the messages, so that no layer has to decode a message to find its results.

use std::collections::HashMap;

use super::{Slot, View};
use crate::context::ClearedResult;
use crate::message::{Block, Message, ResultContent};
use crate::output::Stored;

/// A tool result that stands in the view, in full or as a preview, and may be cleared.
#[derive(Clone, Debug)]
pub struct Clearable {
    /// Number of the message that holds the result.
    pub message: u64,
    /// Id of the call that the result answers.
    pub tool_use_id: String,
    /// Name of the tool of that call, or `unknown`.
    pub tool: String,
    /// Size of the content in characters; `None` when the content is not plain text.
    pub chars: Option<usize>,
    /// Number of blocks of the content; 0 when it is not a list.
    pub blocks: usize,
    /// Name and size of the stored result, when the view holds only a preview of it.
    pub stored: Option<Stored>,
    /// Number of characters of the full content that the preview repeats.
    pub kept_chars: u64,
}

impl View {
    /// Returns the tool results in the view, in full or as a preview, oldest first.
    pub fn results(&self) -> impl DoubleEndedIterator<Item = &Clearable> + ExactSizeIterator {
        self.results.iter()
    }

    /// Makes a result count as the newest, because a later result refers to it.
    pub fn renew(&mut self, message: u64, tool_use_id: &str) {
        let Some(place) = self.result_place(message, tool_use_id) else { return };
        let result = self.results.remove(place);
        self.results.extend(result);
    }

    /// Adds a sentence for the model to the last message, if that holds results of tools. It asks for nothing: the
    /// active request stays the one before. Returns false if there is no such message.
    pub fn add_to_results(&mut self, text: &str) -> bool {
        let Some(place) = self.slots.len().checked_sub(1) else { return false };
        let Slot { standing, entry, .. } = &self.slots[place];
        let standing = *standing;
        if entry.answers.is_empty() {
            return false;
        }
        let Ok(mut message) = entry.json.decode::<Message>() else { return false };
        message.content.push(Block::Text(text.to_owned()));
        self.rewrite(place, &message);
        // It has not been sent yet: nothing was cleared.
        self.slots[place].standing = standing;
        true
    }

    /// Adds the results of a message that joins the view.
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

    /// Returns the position of a result in the list; searches from the newest.
    fn result_place(&self, message: u64, tool_use_id: &str) -> Option<usize> {
        let mut newest = self.results.iter();
        newest.rposition(|result| result.message == message && result.tool_use_id == tool_use_id)
    }

    /// Updates the list for cleared results of a message: a preview gets its smaller size, and a result of
    /// which nothing is left is removed.
    pub(super) fn note_cleared(&mut self, message: u64, cleared: &[ClearedResult]) {
        let by_id: HashMap<_, _> =
            cleared.iter().map(|result| (result.tool_use_id.as_str(), result)).collect();
        self.results.retain_mut(|result| {
            if result.message != message {
                return true;
            }
            let Some(cleared) = by_id.get(result.tool_use_id.as_str()) else { return true };
            result.chars = Some(cleared.text.chars().count());
            result.stored.clone_from(&cleared.stored);
            result.kept_chars = cleared.kept_chars;
            cleared.kept_chars > 0
        });
    }

    /// Removes the results of a range of messages from the list.
    pub(super) fn forget_results(&mut self, from: u64, to: u64) {
        let is_gone = |result: &Clearable| result.message >= from && result.message < to;
        self.results.retain(|result| !is_gone(result));
    }
}
