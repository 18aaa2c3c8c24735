//! Joined slots: adjacent user messages are sent as one message, but stay apart for the layers.
//!
//! Pure. Roles alternate on the wire. Where an edit puts a user message beside another, the two
//! become one slot of the view, which remembers its parts: each part stands for its own messages,
//! and a later edit may remove one of them.

use std::ops::Range;
use std::slice;
use std::sync::Arc;

use super::{Entry, Slot, Standing, View};
use crate::message::{Block, Json, Message, Role};

impl Slot {
    /// Returns the slots that were joined into this one, or the slot itself.
    pub fn apart(&self) -> slice::Iter<'_, Self> {
        match &self.parts {
            Some(parts) => parts.iter(),
            None => slice::from_ref(self).iter(),
        }
    }

    /// Returns true if this slot and the next must be joined. Adjacent user messages that no edit
    /// made are left to the repair, and a record is never joined.
    fn joins(&self, next: &Self) -> bool {
        let is_edit = |slot: &Self| slot.apart().any(|part| part.standing == Standing::Instead);
        let is_user = |slot: &Self| slot.entry.role == Role::User && slot.record.is_none();
        is_user(self) && is_user(next) && (is_edit(self) || is_edit(next))
    }

    /// Returns this slot and the next as one.
    fn joined(&self, next: &Self, serial: u64) -> Self {
        let parts: Arc<[Self]> = self.apart().chain(next.apart()).cloned().collect();
        let is_same = self.standing == next.standing;
        Self {
            from: self.from,
            to: next.to,
            serial,
            standing: if is_same { self.standing } else { Standing::Cleared },
            record: None,
            entry: entry_of(&parts).into(),
            parts: Some(parts),
        }
    }
}

impl View {
    /// Returns true if a user message can follow the last one, or stand beside it: a record stands alone.
    #[must_use]
    pub fn takes_beside(&self) -> bool {
        self.slots.back().is_none_or(|slot| slot.record.is_none())
    }

    /// Appends a user message that asks for nothing behind another one: both are sent as one. Behind a record, which
    /// stands alone, it is left out. `message` is what `json` says.
    pub fn push_beside(&mut self, json: Json, message: &Message) {
        if self.takes_beside() {
            let entry = Entry { is_request: false, is_prompt: true, ..Entry::of(json, message) };
            self.add_part(entry, message);
        }
    }

    /// Appends what somebody said to the agent while it worked: beside the last message, if that is the user's. It is
    /// a request if `is_request`. Not behind a record. `message` is what `json` says.
    pub fn push_said(&mut self, json: Json, message: &Message, is_request: bool) {
        self.add_part(Entry { is_request, ..Entry::of(json, message) }, message);
    }

    fn add_part(&mut self, entry: Entry, message: &Message) {
        let beside = self.slots.back().is_some_and(|slot| slot.entry.role == Role::User);
        self.add(entry, message);
        if let Some(place) = self.slots.len().checked_sub(2).filter(|_| beside) {
            self.join_with_next(place);
        }
    }

    /// Returns true if a joined slot touches the range.
    pub(super) fn is_joined_at(&self, from: u64, to: u64) -> bool {
        self.slots.range(self.touching(from, to)).any(|slot| slot.parts.is_some())
    }

    /// Takes apart the joined slots that touch the range.
    pub(super) fn take_apart(&mut self, from: u64, to: u64) {
        for place in self.touching(from, to).rev() {
            self.take_apart_at(place);
        }
    }

    /// Takes a slot apart, if it was joined.
    pub(super) fn take_apart_at(&mut self, place: usize) {
        let Some(parts) = self.slots.get(place).and_then(|slot| slot.parts.clone()) else { return };
        // `extent` stays as it is: it counts the texts of the parts, joined or not.
        self.chars -= self.slots[place].entry.chars;
        self.chars += parts.iter().map(|part| part.entry.chars).sum::<usize>();
        let tail = self.slots.split_off(place + 1);
        self.slots.pop_back();
        self.slots.extend(parts.iter().cloned());
        self.slots.extend(tail);
    }

    /// Joins adjacent user messages in and around the range.
    pub(super) fn join_touching(&mut self, from: u64, to: u64) {
        let Range { start: mut first, mut end } = self.touching(from, to);
        let is_user = |at: usize| self.slots.get(at).is_some_and(|s| s.entry.role == Role::User);
        while first > 0 && is_user(first - 1) {
            first -= 1;
        }
        while is_user(end) {
            end += 1;
        }
        for place in (first + 1..end).rev() {
            if self.slots[place - 1].joins(&self.slots[place]) {
                self.join_with_next(place - 1);
            }
        }
    }

    fn join_with_next(&mut self, place: usize) {
        let serial = self.serial();
        let Some(next) = self.slots.remove(place + 1) else { return };
        let both = self.slots[place].joined(&next, serial);
        self.chars -= self.slots[place].entry.chars + next.entry.chars;
        self.chars += both.entry.chars;
        self.slots[place] = both;
    }

    fn touching(&self, from: u64, to: u64) -> Range<usize> {
        let first = self.slots.partition_point(|slot| slot.to < from);
        first..self.slots.partition_point(|slot| slot.from <= to).max(first)
    }

    /// Clears `is_request` in all slots of an edit but the one that repeats the active request, if
    /// one does.
    pub(super) fn keep_one_request(&self, fresh: &mut [Slot]) {
        let Some(request) = self.request() else { return };
        let asked = texts(&request.json);
        let repeats = |slot: &Slot| slot.entry.is_request && texts(&slot.entry.json) == asked;
        let Some(kept) = fresh.iter().rposition(repeats) else { return };
        for (at, slot) in fresh.iter_mut().enumerate() {
            if slot.entry.is_request && at != kept {
                slot.entry = Entry { is_request: false, ..Entry::clone(&slot.entry) }.into();
            }
        }
    }
}

fn entry_of(parts: &[Slot]) -> Entry {
    let message = joined(parts.iter().map(|part| &part.entry.json));
    let is_request = parts.iter().any(|part| part.entry.is_request);
    Entry { is_request, ..Entry::of(Json::encode(&message), &message) }
}

fn texts(message: &Json) -> Vec<String> {
    let content = message.decode::<Message>().map(|message| message.content).unwrap_or_default();
    let texts = content.into_iter().filter_map(|block| match block {
        Block::Text(text) => Some(text),
        Block::ToolUse(_) | Block::ToolResult(_) | Block::Other(_) => None,
    });
    texts.collect()
}

/// Joins user messages into one. Tool results come first, as every provider requires.
pub(in crate::context) fn joined<'a>(messages: impl Iterator<Item = &'a Json>) -> Message {
    // Every message was decoded when it joined the view, so decoding cannot fail and lose one here.
    let messages = messages.filter_map(|json| json.decode::<Message>().ok());
    let blocks: Vec<Block> = messages.flat_map(|message| message.content).collect();
    let is_result = |block: &Block| matches!(block, Block::ToolResult(_));
    let (mut content, other): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_result);
    content.extend(other);
    Message { role: Role::User, content }
}
