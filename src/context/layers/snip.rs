//! Snip: the middle of a long view is dropped; a marker says how much.
//!
//! Pure. Nothing is lost: the marker stands for a range of the conversation, which the transcript
//! has whole.

use serde::{Deserialize, Serialize};

use super::template::fill;
use super::{Proposal, Surroundings};
use crate::context::Edit;
use crate::context::view::range;
use crate::context::view::{Slot, Standing, View};
use crate::message::{Message, Role};

/// The layer name under which snips are recorded.
pub const NAME: &str = "snip";

/// What the number in a marker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnipCount {
    /// The messages that this snip took out of the view, an earlier marker included.
    Removed,
    /// All messages of the conversation that the marker stands for.
    Covered,
}

/// What a snip that the model asks for comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snipped {
    /// How many messages the view has then.
    pub messages: usize,
    /// How many tokens it loses.
    pub tokens_freed: u64,
    /// The marker, if anything is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundary_message: Option<String>,
}

/// Drops the middle of a view that has too many messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snip {
    /// The most messages that a view may have.
    pub snip_max_messages: usize,
    /// How many of the oldest stay.
    pub snip_head: usize,
    /// How many of the newest stay. The further head and tail together are under the limit, the
    /// rarer the snips are, and each costs the cache of the tail.
    pub snip_tail: usize,
    /// The marker; `{n}` is the number of messages, `{path}` the transcript.
    pub snip_text: String,
    /// What the marker counts.
    pub snip_count: SnipCount,
}

impl Snip {
    /// The snip that is due, if one is. Calls and their results stay together or go together, and
    /// the active request stays.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Option<Proposal> {
        let is_long = view.parts().count() > self.snip_max_messages;
        is_long.then(|| self.cut(view, around, self.snip_tail))?.map(Proposal::from)
    }

    /// The snip that leaves so many of the newest messages, and those that go with them.
    #[must_use]
    pub fn cut(&self, view: &View, around: &Surroundings<'_>, newest: usize) -> Option<Edit> {
        let slots: Vec<&Slot> = view.parts().collect();
        let head = self.head_end(&slots);
        let tail = range::batch_start(&slots, slots.len().saturating_sub(newest));
        let middle = slots.get(head..tail)?;
        // An earlier marker, with the request that it kept, would only be replaced by itself.
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

    /// What the model reads when it asks for a snip, amid the batch in which it asks.
    #[must_use]
    pub fn answer(&self, view: &View, around: &Surroundings<'_>, newest: usize) -> Snipped {
        // The results of this batch will be one message more, which goes with its calls.
        let edit = self.cut(view, around, newest.saturating_sub(1).max(1));
        let with = match &edit {
            Some(Edit::Replace { with, .. }) => with.first(),
            _ => None,
        };
        let marker = with.and_then(|json| Some(json.decode::<Message>().ok()?.text()));
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

    /// Where the head ends: after whole batches, and after a user message, which the marker can
    /// join.
    fn head_end(&self, slots: &[&Slot]) -> usize {
        let end = range::batch_end(slots, self.snip_head);
        match end.checked_sub(1).map(|last| slots[last].entry.role) {
            Some(Role::Assistant) if end < slots.len() => end + 1,
            _ => end,
        }
    }
}
