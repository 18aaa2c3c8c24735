//! Ranges of the view: where one may be cut, and what may stand in its place.
//!
//! Pure. Cuts are made between exchanges only: a call and its results stay together or go together.

use crate::context::Edit;
use crate::context::view::{Slot, View, instead, lost_request, without_results};
use crate::message::{Json, Message, Role};

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
