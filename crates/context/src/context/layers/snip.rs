//! Snip: drops the middle of a long view; a marker says how much.
//!
//! Pure. Nothing is lost: the marker stands for a range of the conversation, and the transcript
//! holds the whole range.

use serde::{Deserialize, Serialize};

use super::template::fill;
use super::{Proposal, Surroundings};
use crate::context::Edit;
use crate::context::view::range;
use crate::context::view::{Slot, Standing, View};
use crate::message::{Message, Role};

/// Layer name under which snips are recorded.
pub const NAME: &str = "snip";

/// Unit of the number in a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnipCount {
    /// The messages that this snip removed from the view, an earlier marker included.
    Removed,
    /// All messages of the conversation that the marker stands for.
    Covered,
}

/// Outcome of a snip that the model asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snipped {
    /// Number of messages of the view afterwards.
    pub messages: usize,
    /// Number of tokens that the view loses.
    pub tokens_freed: u64,
    /// Text of the marker, if anything is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundary_message: Option<String>,
}

/// Drops the middle of a view that has too many messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snip {
    /// Most messages of a view.
    pub snip_max_messages: usize,
    /// Number of the oldest messages that stay.
    pub snip_head: usize,
    /// Number of the newest messages that stay. The further head and tail together are below the
    /// limit, the rarer the snips are; each snip costs the cache of the tail.
    pub snip_tail: usize,
    /// Text of the marker; `{n}` is the number of messages, `{path}` the transcript.
    pub snip_text: String,
    /// Unit of the number in the marker.
    pub snip_count: SnipCount,
}

impl Snip {
    /// Returns the snip that is due, if one is. Calls and their results stay or go together, and
    /// the active request stays.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Option<Proposal> {
        let is_long = view.parts().count() > self.snip_max_messages;
        is_long.then(|| self.cut(view, around, self.snip_tail))?.map(Proposal::from)
    }

    /// Returns the edit that keeps `newest` of the newest messages, and those that belong to them.
    #[must_use]
    pub fn cut(&self, view: &View, around: &Surroundings<'_>, newest: usize) -> Option<Edit> {
        let slots: Vec<&Slot> = view.parts().collect();
        let head = self.head_end(&slots);
        let tail = range::batch_start(&slots, slots.len().saturating_sub(newest));
        let middle = slots.get(head..tail)?;
        // An earlier marker, with the request that it kept, would only be replaced by a copy of
        // itself.
        if middle.iter().all(|slot| slot.standing == Standing::Instead) {
            return None;
        }
        let (from, to) = (middle.first()?.from, middle.last()?.to);
        let n = match self.snip_count {
            SnipCount::Removed => middle.len().to_string(),
            SnipCount::Covered => (to - from).to_string(),
        };
        let marker = fill(&self.snip_text, &[("n", &n), ("path", around.transcript)]);
        let marker = (!marker.is_empty()).then(|| Message::user(marker));
        Some(range::joining(view, from, to, marker.into_iter().collect()))
    }

    /// Returns the answer to a call of the `snip` tool, in the middle of the batch of that call.
    #[must_use]
    pub fn answer(&self, view: &View, around: &Surroundings<'_>, newest: usize) -> Snipped {
        // The results of this batch will be one more message, which belongs to its calls.
        let edit = self.cut(view, around, newest.saturating_sub(1).max(1));
        let marker = match &edit {
            Some(Edit::Replace { with, .. }) => {
                let mut with = with.iter().filter_map(|json| json.decode::<Message>().ok());
                with.find(|message| message.role == Role::User).map(|marker| marker.text())
            }
            _ => None,
        };
        let mut after = view.clone();
        let is_smaller =
            edit.is_some_and(|edit| after.apply(&edit).is_ok()) && after.chars() <= view.chars();
        let (after, marker) = if is_smaller { (&after, marker) } else { (view, None) };
        let freed = view.chars().saturating_sub(after.chars());
        Snipped {
            messages: after.slots().len() + 1,
            tokens_freed: around.tokens(freed),
            boundary_message: marker,
        }
    }

    /// Returns the end of the head: after whole batches, and after a user message, which the marker
    /// can join.
    fn head_end(&self, slots: &[&Slot]) -> usize {
        let end = range::batch_end(slots, self.snip_head);
        match end.checked_sub(1).map(|last| slots[last].entry.role) {
            Some(Role::Assistant) if end < slots.len() => end + 1,
            _ => end,
        }
    }
}
