//! Replacement of a range: the messages that stand in its place, with the active request that must
//! not be lost and with fillers where roles would not alternate.

use super::{Entry, View};
use crate::context::record::Record;
use crate::message::{Block, Message, Role};

/// Text of a user message that stands only so that roles alternate.
const USER_FILLER: &str = "Continue.";
/// Text of an assistant message that stands only so that roles alternate.
pub(in crate::context) const ASSISTANT_FILLER: &str = "Understood.";

/// Text of the assistant message before a record.
const SET_ASIDE: &str = "[set aside]";

/// Returns the message of a request without the tool results beside it.
pub(in crate::context) fn without_results(entry: &Entry) -> Option<Message> {
    let mut message: Message = entry.json.decode().ok()?;
    message.content.retain(|block| !matches!(block, Block::ToolResult(_)));
    Some(message)
}

/// Returns the active request without the results beside it, if it stands in the range and nowhere
/// else.
pub(in crate::context) fn lost_request(view: &View, from: u64, to: u64) -> Option<Message> {
    let view = view.taken_apart(from, to);
    // The test is `to`, not `from`: a slot that an earlier edit left at `to` stands for no message
    // and is removed with the range.
    if view.slots().any(|slot| slot.to > to && slot.entry.is_request) {
        return None;
    }
    let newest = view.covered(from, to).rfind(|slot| slot.entry.is_request)?;
    without_results(&newest.entry)
}

/// Returns the messages of a record in the view: one that says that messages were set aside, the
/// record, and whatever [`instead`] adds; and the position of the record among them.
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

/// Returns the messages that stand in the place of a range: `with`, the active request if it stands
/// in the range, and fillers where roles would not alternate.
pub(in crate::context) fn instead(
    view: &View,
    from: u64,
    to: u64,
    mut with: Vec<Message>,
) -> Vec<Message> {
    with.extend(lost_request(view, from, to));
    let next = view.slots().find(|slot| slot.to > to).map(|slot| slot.entry.role);
    let before = view.before(from);
    alternating(before.map(|slot| slot.entry.role), with, next)
}

/// Adds fillers where roles would not alternate. A view begins with a user message, or with a
/// summary that the provider wrote, which has the role of the assistant.
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

/// Returns a filler of the role opposite to `beside`.
fn filler(beside: Role) -> Message {
    match beside {
        Role::User => Message::assistant(ASSISTANT_FILLER),
        Role::Assistant => Message::user(USER_FILLER),
    }
}
