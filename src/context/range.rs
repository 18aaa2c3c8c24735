//! Ranges of the view: where one may be cut, and what may stand in its place.
//!
//! Pure. Cuts are made between exchanges only: a call and its results stay together or go together.

use super::Edit;
use super::record::Record;
use super::view::{Entry, Slot, View};
use crate::message::{Block, Json, Message, Role};

/// What a user says where roles must alternate and there is nothing to say.
const USER_FILLER: &str = "Continue.";
/// What an assistant says where roles must alternate and there is nothing to say.
pub(super) const ASSISTANT_FILLER: &str = "Understood.";

/// What the assistant says before a record.
const SET_ASIDE: &str = "[set aside]";

/// From the view's first message to the exchange that the model has not read yet, or to an answer
/// of its own that it is about to continue.
#[must_use]
pub fn consumed(view: &View) -> Option<(u64, u64)> {
    let from = view.slots().next()?.from;
    let mut slots = view.slots().rev();
    let last = slots.next()?;
    let to = match last.entry.role {
        Role::User if last.entry.answers.is_empty() => last.from,
        Role::User => slots.next()?.from,
        Role::Assistant => last.from,
    };
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
/// the last of it, when it stands in the range; roles alternate with what stands around.
#[must_use]
pub fn replacement(view: &View, from: u64, to: u64, with: Vec<Message>) -> Edit {
    let with = instead(view, from, to, with);
    Edit::Replace { from, to, with: with.iter().map(Json::encode).collect() }
}

/// The same, without anything that nobody said: where `with` stands beside what a user said, the
/// view joins them.
#[must_use]
pub fn joining(view: &View, from: u64, to: u64, mut with: Vec<Message>) -> Edit {
    with.extend(lost_request(view, from, to));
    Edit::Replace { from, to, with: with.iter().map(Json::encode).collect() }
}

/// The characters of a range that give way when it is replaced: all but the active request.
#[must_use]
pub fn chars(view: &View, from: u64, to: u64) -> usize {
    let covered: usize = view.covered(from, to).map(|slot| slot.entry.chars).sum();
    let kept =
        lost_request(view, from, to).map(|kept| Json::encode(&kept).as_str().chars().count());
    covered.saturating_sub(kept.unwrap_or_default())
}

/// The active request, without the results that came beside it.
#[must_use]
pub fn request(view: &View) -> Option<Message> {
    view.request().and_then(without_results)
}

fn without_results(entry: &Entry) -> Option<Message> {
    let mut message: Message = entry.json.decode().ok()?;
    message.content.retain(|block| !matches!(block, Block::ToolResult(_)));
    Some(message)
}

/// The active request without the results that came beside it, if it stands in the range and
/// nowhere else.
fn lost_request(view: &View, from: u64, to: u64) -> Option<Message> {
    let view = view.taken_apart(from, to);
    // What an earlier edit left at `to` has no messages of its own and is covered too.
    if view.slots().any(|slot| slot.to > to && slot.entry.is_request) {
        return None;
    }
    let newest = view.covered(from, to).rfind(|slot| slot.entry.is_request)?;
    without_results(&newest.entry)
}

/// The messages that a record stands as in the view: one that says that messages were set aside,
/// the record, and what [`replacement`] adds. The place of the record among them is given, too.
pub(super) fn of_record(view: &View, record: &Record) -> (Vec<Message>, usize) {
    let mut with = Vec::new();
    if view.slots().next().is_some_and(|first| first.to <= record.from) {
        with.push(Message::assistant(SET_ASIDE));
    }
    with.push(record.message());
    let text = with.last().map(Message::text);
    let with = instead(view, record.from, record.to, with);
    let place = with.iter().position(|message| Some(message.text()) == text);
    (with, place.unwrap_or_default())
}

/// What stands in the place of a range: `with`, the active request if it stands in the range, and
/// fillers where roles would not alternate.
fn instead(view: &View, from: u64, to: u64, mut with: Vec<Message>) -> Vec<Message> {
    with.extend(lost_request(view, from, to));
    let next = view.slots().find(|slot| slot.to > to).map(|slot| slot.entry.role);
    let before = view.before(from);
    alternating(before.map(|slot| slot.entry.role), with, next)
}

/// The messages with fillers where roles would not alternate. A view begins with a user message,
/// or with a summary that the provider wrote, which is an assistant's.
fn alternating(before: Option<Role>, with: Vec<Message>, next: Option<Role>) -> Vec<Message> {
    let opens = with.first().map(|message| message.role);
    let before = before.or(opens.filter(|role| *role == Role::Assistant).map(|_| Role::User));
    let mut last = before.unwrap_or(Role::Assistant);
    let mut messages = Vec::with_capacity(with.len() + 2);
    for message in with {
        if message.role == last {
            messages.push(filler(last));
        }
        last = message.role;
        messages.push(message);
    }
    if next == Some(last) {
        messages.push(filler(last));
    }
    messages
}

/// A message of the other role than `beside`.
fn filler(beside: Role) -> Message {
    match beside {
        Role::User => Message::assistant(ASSISTANT_FILLER),
        Role::Assistant => Message::user(USER_FILLER),
    }
}
