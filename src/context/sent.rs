//! A message as it is sent: one place of the view, or several user messages that are one.
//!
//! Pure. Roles alternate on the wire, so user messages side by side are joined; the view keeps
//! them apart, because each stands for something of its own.

use std::collections::vec_deque;

use super::view::Slot;
use crate::message::{Block, Json, Message, Role};

/// One message to send.
#[derive(Clone, Debug)]
pub struct Sent<'a> {
    first: &'a Slot,
    rest: vec_deque::Iter<'a, Slot>,
}

impl<'a> Sent<'a> {
    pub(super) fn new(first: &'a Slot, rest: vec_deque::Iter<'a, Slot>) -> Self {
        Self { first, rest }
    }

    /// The places that it is made of.
    pub fn slots(&self) -> impl Iterator<Item = &'a Slot> {
        std::iter::once(self.first).chain(self.rest.clone())
    }

    /// Changes whenever the message does: a key for what is derived from it.
    #[must_use]
    pub fn key(&self) -> (u64, usize) {
        let newest = self.slots().map(|slot| slot.serial).max();
        (newest.unwrap_or_default(), self.rest.len())
    }

    /// The message.
    #[must_use]
    pub fn json(&self) -> Json {
        match self.rest.len() {
            0 => self.first.entry.json.clone(),
            _ => joined(self.slots().map(|slot| &slot.entry.json)),
        }
    }

    /// The message together with a user message that follows it.
    #[must_use]
    pub fn json_with(&self, next: &Json) -> Json {
        joined(self.slots().map(|slot| &slot.entry.json).chain([next]))
    }
}

/// User messages as one: the results of calls come first, as every provider wants them.
pub(super) fn joined<'a>(messages: impl Iterator<Item = &'a Json>) -> Json {
    // What stands in a view was read when it came, so that nothing is lost here.
    let messages = messages.filter_map(|json| json.decode::<Message>().ok());
    let blocks: Vec<Block> = messages.flat_map(|message| message.content).collect();
    let is_result = |block: &Block| matches!(block, Block::ToolResult(_));
    let (mut content, other): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_result);
    content.extend(other);
    Json::encode(&Message { role: Role::User, content })
}
