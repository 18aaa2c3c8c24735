//! Ranges of the view: the places where one may be cut, and the edits that replace one.
//!
//! Pure. Cuts are made between exchanges only: a call and its results stay together or go together.

use crate::context::Edit;
use crate::context::view::{ASSISTANT_FILLER, Slot, View, instead, lost_request, without_results};
use crate::message::{Json, Message, Role};

/// Returns the range from the view's first message to the exchange that the model has not read yet,
/// or to an own answer that the model is about to continue.
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

/// Returns the position at which the batch of a slot begins: the message that made the calls which
/// the slot answers, even when several messages of results lie between.
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

/// Returns the end of the first `count` slots, moved forward over the results of the calls that the
/// last of them makes.
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

/// Returns an earlier end for a range that ends at `to`, so that the newest exchanges before `to`
/// stay, as long as they and everything behind them have at most `chars` characters; `None` when
/// nothing would be left to cover.
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
        // The range ends before an assistant's message, so that its calls keep their results.
        if slot.entry.role == Role::Assistant && slot.to > slot.from && slots.peek().is_some() {
            end = slot.from;
        }
    }
    (end > 0).then_some(end)
}

/// Returns an earlier end for a range that ends at `to`, so that the newest messages of the conversation
/// stay: this many, or as many as have at most `chars` characters. The range ends before an assistant's
/// message, so that its calls keep their results.
#[must_use]
pub fn before_newest(view: &View, to: u64, messages: u64, chars: usize) -> u64 {
    let oldest = view.next_message().saturating_sub(messages);
    let (mut end, mut left) = (to, chars);
    for slot in view.slots().rev() {
        let Some(less) = left.checked_sub(slot.entry.chars) else { break };
        if end <= oldest {
            break;
        }
        left = less;
        if slot.entry.role == Role::Assistant && slot.from < slot.to {
            end = end.min(slot.from);
        }
    }
    end
}

/// Returns the edit that puts `with` in the place of a range. An active request in the range is
/// kept word for word behind `with`; fillers make roles alternate with the neighbours.
#[must_use]
pub fn replacement(view: &View, from: u64, to: u64, with: Vec<Message>) -> Edit {
    let with = instead(view, from, to, with);
    Edit::Replace { from, to, with: with.iter().map(Json::encode).collect() }
}

/// Returns the same edit without fillers. Where `with` stands beside another user message, the view
/// joins the two; behind a record, which is never joined, a filler stands first.
#[must_use]
pub fn joining(view: &View, from: u64, to: u64, mut with: Vec<Message>) -> Edit {
    with.extend(lost_request(view, from, to));
    let apart = view.taken_apart(from, to);
    if apart.before(from).is_some_and(|slot| slot.record.is_some()) {
        let next = apart.slots().find(|slot| slot.to > to).map(|slot| slot.entry.role);
        if with.first().map(|message| message.role).or(next) == Some(Role::User) {
            with.insert(0, Message::assistant(ASSISTANT_FILLER));
        }
    }
    Edit::Replace { from, to, with: with.iter().map(Json::encode).collect() }
}

/// Returns the characters that replacing a range removes: all but those of the active request.
#[must_use]
pub fn chars(view: &View, from: u64, to: u64) -> usize {
    let covered: usize = view.covered(from, to).map(|slot| slot.entry.chars).sum();
    let kept =
        lost_request(view, from, to).map(|kept| Json::encode(&kept).as_str().chars().count());
    covered.saturating_sub(kept.unwrap_or_default())
}

/// Returns the active request, without the tool results beside it.
#[must_use]
pub fn request(view: &View) -> Option<Message> {
    view.request().and_then(without_results)
}
