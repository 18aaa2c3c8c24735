//! Ranges of the view: where one may be cut, and what may stand in its place.
//!
//! Pure. Cuts are made between exchanges only: a call and its results stay together or go together.

use super::Edit;
use super::view::{Slot, View};
use crate::message::{Block, Json, Message, Role};

/// What a user says where roles must alternate and there is nothing to say.
const USER_FILLER: &str = "Continue.";

/// From the view's first message to the exchange that the model has not read yet, or to an answer
/// of its own that it is about to continue.
#[must_use]
pub fn consumed(view: &View) -> Option<(u64, u64)> {
    let from = view.slots().next()?.from;
    let mut to = view.slots().next_back()?.from;
    let mut has_results = false;
    for slot in view.slots().rev() {
        if slot.entry.role == Role::Assistant {
            if has_results || slot.to == view.next_message() {
                to = slot.from;
            }
            break;
        }
        to = slot.from;
        has_results |= !slot.entry.answers.is_empty();
    }
    (from < to).then_some((from, to))
}

/// Where the batch begins to which a place belongs: at the message that made the calls which it
/// answers, also over several messages of results.
#[must_use]
pub fn batch_start(slots: &[&Slot], at: usize) -> usize {
    let Some(slot) = slots.get(at).filter(|slot| !slot.entry.answers.is_empty()) else { return at };
    for before in (0..at).rev() {
        let entry = &slots[before].entry;
        if entry.calls.iter().any(|(id, _)| slot.entry.answers.contains(id)) {
            return before;
        }
        if entry.answers.is_empty() {
            break;
        }
    }
    at
}

/// The end of the first `count` places, moved on over the results of the calls that the last of
/// them makes.
#[must_use]
pub fn batch_end(slots: &[&Slot], count: usize) -> usize {
    let mut end = count.min(slots.len());
    let Some(last) = end.checked_sub(1) else { return end };
    let calls = &slots[batch_start(slots, last)].entry.calls;
    let answers = |slot: &&Slot| {
        let mut ids = slot.entry.answers.iter();
        ids.any(|id| calls.iter().any(|(call, _)| call == id))
    };
    while slots.get(end).is_some_and(answers) {
        end += 1;
    }
    end
}

/// An earlier end of a range that ends at `to`, so that the newest exchanges before it stay, as far
/// as they have at most `chars` characters together with what stands behind; `None` when that
/// leaves nothing to cover.
#[must_use]
pub fn before_tail(view: &View, to: u64, chars: usize) -> Option<u64> {
    let behind: usize =
        view.slots().rev().take_while(|slot| slot.from >= to).map(|slot| slot.entry.chars).sum();
    let mut left = chars.checked_sub(behind)?;
    let mut end = to;
    let mut slots = view.slots().rev().skip_while(|slot| slot.to > to).peekable();
    while let Some(slot) = slots.next() {
        let Some(less) = left.checked_sub(slot.entry.chars) else { break };
        left = less;
        // A range ends before an assistant's message: what answers its calls stays with them.
        if slot.entry.role == Role::Assistant && slot.to > slot.from && slots.peek().is_some() {
            end = slot.from;
        }
    }
    (end > 0).then_some(end)
}

/// The edit that puts `with` in the place of a range. The active request stays word for word, as
/// the last of it, when it stands in the range; an assistant speaks after a user only.
#[must_use]
pub fn replacement(view: &View, from: u64, to: u64, mut with: Vec<Message>) -> Edit {
    if is_request_in(view, from, to) {
        with.extend(request(view));
    }
    let before = view.slots().take_while(|slot| slot.to <= from).last();
    // What an earlier edit left at `to` has no messages of its own and is covered too.
    let next = view.slots().find(|slot| slot.to > to).map(|slot| slot.entry.role);
    let with = alternating(before.map(|slot| slot.entry.role), with, next);
    Edit::Replace { from, to, with: with.iter().map(Json::encode).collect() }
}

/// The active request without the results that came beside it.
#[must_use]
pub fn request(view: &View) -> Option<Message> {
    let mut request: Message = view.request()?.json.decode().ok()?;
    request.content.retain(|block| !matches!(block, Block::ToolResult(_)));
    Some(request)
}

/// The characters of a range that give way when it is replaced: all but the active request.
#[must_use]
pub fn chars(view: &View, from: u64, to: u64) -> usize {
    let covered: usize = view.covered(from, to).map(|slot| slot.entry.chars).sum();
    match view.request().filter(|_| is_request_in(view, from, to)) {
        Some(request) => covered.saturating_sub(request.chars),
        None => covered,
    }
}

/// Whether the active request stands in the range and nowhere else.
fn is_request_in(view: &View, from: u64, to: u64) -> bool {
    match view.slots().rfind(|slot| slot.entry.is_request) {
        Some(slot) => slot.from >= from && slot.to <= to,
        // An earlier replacement holds it: that of the view's beginning.
        None => view.slots().next().is_some_and(|first| first.from >= from),
    }
}

/// The messages with fillers where two of the assistant would meet. The view begins with a user
/// message; user messages side by side are sent as one.
fn alternating(before: Option<Role>, with: Vec<Message>, next: Option<Role>) -> Vec<Message> {
    let mut last = before.unwrap_or(Role::Assistant);
    let mut messages = Vec::with_capacity(with.len() + 2);
    for message in with {
        if (message.role, last) == (Role::Assistant, Role::Assistant) {
            messages.push(Message::user(USER_FILLER));
        }
        last = message.role;
        messages.push(message);
    }
    if (next, last) == (Some(Role::Assistant), Role::Assistant) {
        messages.push(Message::user(USER_FILLER));
    }
    messages
}
