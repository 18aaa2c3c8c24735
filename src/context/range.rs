//! Ranges of the view: where one may be cut, and what may stand in its place.
//!
//! Pure. Cuts are made between exchanges only: a call and its results stay together or go together.

use super::Edit;
use super::record::Record;
use super::view::View;
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

/// The edit that puts `with` in the place of a range. The active request stays word for word, as
/// the last of it, when it stands in the range; roles alternate with what stands around.
#[must_use]
pub fn replacement(view: &View, from: u64, to: u64, with: Vec<Message>) -> Edit {
    let with = instead(view, from, to, with);
    Edit::Replace { from, to, with: with.iter().map(Json::encode).collect() }
}

/// The messages that a record stands as in the view: one that says that messages were set aside,
/// the record, and what [`replacement`] adds. The place of the record among them is given, too.
pub(super) fn of_record(view: &View, record: &Record) -> (Vec<Message>, usize) {
    let mut with = Vec::new();
    if view.slots().next().is_some_and(|first| first.to <= record.from) {
        with.push(Message::assistant(SET_ASIDE));
    }
    with.push(Message::user(record.render()));
    let text = with.last().map(Message::text);
    let with = instead(view, record.from, record.to, with);
    let place = with.iter().position(|message| Some(message.text()) == text);
    (with, place.unwrap_or_default())
}

/// What stands in the place of a range: `with`, the active request if it stands in the range, and
/// fillers where roles would not alternate.
fn instead(view: &View, from: u64, to: u64, mut with: Vec<Message>) -> Vec<Message> {
    // What an earlier edit left at `to` has no messages of its own and is covered too.
    let mut tail = view.slots().filter(|slot| slot.to > to).peekable();
    let next = tail.peek().map(|slot| slot.entry.role);
    if !tail.any(|slot| slot.entry.is_request)
        && let Some(request) = view.covered(from, to).rfind(|slot| slot.entry.is_request)
        && let Ok(mut request) = request.entry.json.decode::<Message>()
    {
        request.content.retain(|block| !matches!(block, Block::ToolResult(_)));
        with.push(request);
    }
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
