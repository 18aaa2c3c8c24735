//! Digest: a chain of records, made without a model.
//!
//! The view consists of the records, oldest first, the active request, and the newest messages word
//! for word. Leaving a token in the view costs its rent, the price of a cached read, every turn;
//! removing it rewrites everything behind it. So the newest messages grow until their rent equals
//! the price of rewriting. Then all but the last of them become one record at the end of the chain,
//! and everything before that record stays in the cache. Records are merged in pairs, as in a
//! binary counter, so that each message is rewritten a number of times that grows with the
//! logarithm of the conversation, and the chain hardly grows at all.

use serde::{Deserialize, Serialize};

use super::Surroundings;
use crate::context::Edit;
use crate::context::layers::gather::gather;
use crate::context::record::{Known, Record, RecordLine, merge};
use crate::context::view::{Slot, Standing, View};
use crate::message::{Message, Role};

/// Layer name under which records are recorded.
pub const NAME: &str = "digest";

/// Least number of the newest messages that stay word for word: the exchange that the model has not
/// read yet and the three before it.
const LEAST_TAIL_MESSAGES: usize = 7;

/// Keeps a chain of records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// Most tokens of a conversation that is left whole: so short a one costs little in any case,
    /// and nothing of it is worth losing.
    pub whole: u64,
    /// Largest share of the room for messages that a view may fill.
    pub trigger: f64,
    /// Size that an edit must reach at the latest, as a share of that room.
    pub target: f64,
    /// Tokens of the newest messages that an edit leaves word for word.
    pub keep_tokens: u64,
    /// Size of a merged record, as a share of the two records it was made of.
    pub merge_share: f64,
}

/// A record before the newest messages.
#[derive(Clone, Debug)]
struct HeldRecord {
    record: Record,
    /// True if the record must still be put into the view.
    is_new: bool,
}

impl Digest {
    /// Returns the edits that are due now; each makes the view smaller.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Vec<Edit> {
        let Some(tail) = self.due(view, around) else { return Vec::new() };
        let mut parts = self.parts(view, tail);
        while let Some(at) = pair(&parts) {
            self.merge_at(&mut parts, at, view);
        }
        let target = share(around.window.room(), self.target.min(self.trigger));
        loop {
            let (edits, chars) = shrinking(view, &parts, around.state);
            // Merging the newest records leaves the front of the chain, and with it the cache,
            // unchanged.
            let newest = parts.len().checked_sub(2);
            match newest.filter(|_| around.tokens(chars) > target) {
                Some(at) => self.merge_at(&mut parts, at, view),
                None => return edits,
            }
        }
    }

    /// Returns the first message that stays word for word, if an edit is due.
    fn due(&self, view: &View, around: &Surroundings<'_>) -> Option<u64> {
        let all = around.tokens(view.chars());
        let ceiling = share(around.window.room(), self.trigger);
        let chain = view.slots().rfind(is_chain);
        let begun = chain.is_some();
        let end = chain.map_or(0, |slot| slot.to);
        let newest = view.slots().filter(|slot| slot.from >= end);
        let newest: usize = newest.filter(|slot| !is_chain(slot)).map(chars_but_request).sum();
        let keep = self.keep(around);
        let grown = around.tokens(newest) > keep + self.batch(view, keep, around);
        // Until the first record or summary, only the size counts; then prices and the ceiling.
        let is_due = if begun { grown || all > ceiling } else { all > self.whole.min(ceiling) };
        is_due.then(|| self.cut(view, keep, around)).flatten()
    }

    /// Returns the tokens that stay word for word: fewer where the window is small.
    fn keep(&self, around: &Surroundings<'_>) -> u64 {
        self.keep_tokens.min(around.window.room() / 8)
    }

    /// Returns the tokens by which the view may grow between two edits.
    ///
    /// With growth `g` a turn, the rent of a batch of `x` tokens is `read * x^2 / 2g` until it is
    /// removed, and each edit writes the `keep` tokens behind it anew instead of reading them. The
    /// cost for each token is least at `x = sqrt(2 * (write - read) * keep * g / read)`.
    fn batch(&self, view: &View, keep: u64, around: &Surroundings<'_>) -> u64 {
        let price = around.price;
        if price.read <= 0.0 {
            return u64::MAX / 2;
        }
        let chars = usize::try_from(view.appended_chars()).unwrap_or(usize::MAX);
        let growth = around.tokens(chars) / view.replies().max(1);
        let rewrite = (price.write.max(1.0) - price.read).max(0.0);
        let squared = 2.0 * rewrite * float(keep) * float(growth) / price.read;
        whole(squared.sqrt())
    }

    /// Returns the first of the newest messages that stay: a reply, with enough text behind it.
    fn cut(&self, view: &View, keep: u64, around: &Surroundings<'_>) -> Option<u64> {
        let (mut chars, mut messages) = (0, 0);
        for slot in view.slots().rev() {
            if is_chain(&slot) {
                return None;
            }
            chars += slot.entry.chars;
            messages += 1;
            let is_enough = messages >= LEAST_TAIL_MESSAGES && around.tokens(chars) >= keep;
            if is_enough && slot.entry.role == Role::Assistant {
                let has_more = view.slots().next().is_some_and(|first| first.to <= slot.from);
                return has_more.then_some(slot.from);
            }
        }
        None
    }

    /// Returns the records before `tail`, with a new record of the newest messages among them.
    fn parts(&self, view: &View, tail: u64) -> Vec<HeldRecord> {
        let active = view.slots().rfind(|slot| slot.entry.is_request);
        let is_active = |slot: &Slot| active.is_some_and(|active| active.serial == slot.serial);
        let task = view.task();
        let is_task = |slot: &Slot| task.is_some_and(|task| task.serial == slot.serial);
        let mut known = known_of(view, active);
        let chain = view.slots().rfind(is_chain);
        let chain_end = chain.map_or(0, |slot| slot.to);
        let mut parts: Vec<HeldRecord> = Vec::new();
        // A request that is no longer active becomes a line of the record after it.
        let mut asked = Vec::new();
        for slot in view.slots().take_while(|slot| slot.to <= chain_end) {
            if let Some(record) = &slot.record {
                let (mut record, is_new) = (Record::clone(record), !asked.is_empty());
                record.lines.splice(0..0, asked.drain(..));
                parts.push(HeldRecord { record, is_new });
            } else if slot.entry.is_request && !is_active(slot) && !is_task(slot) {
                let line = RecordLine::asked(slot.to.saturating_sub(1), &text_of(slot));
                if slot.from == slot.to {
                    asked.push(line);
                } else {
                    let (from, to) = (slot.from, slot.to);
                    let record = Record { from, to, lines: vec![line], ..Record::default() };
                    parts.push(HeldRecord { record, is_new: true });
                }
            }
        }
        // The task prompt stays in its place, and so does the active request when it is the first
        // of the newest messages. An older request that no record took becomes part of the new
        // record.
        let chain_end = task.map_or(chain_end, |task| task.to.max(chain_end));
        let is_first = |slot: &&Slot| slot.from == chain_end && slot.to > chain_end;
        let from = active.filter(is_first).map_or(chain_end, |slot| slot.to);
        if from < tail {
            let record = gather(view, from, tail, &mut known);
            parts.push(HeldRecord { record, is_new: true });
        }
        parts
    }

    /// Merges the record at `at` with the next one.
    fn merge_at(&self, parts: &mut Vec<HeldRecord>, at: usize, view: &View) {
        let mut known = Known::default();
        for part in &parts[..at] {
            known.add_record(&part.record);
        }
        let taken: Vec<Record> = parts.drain(at..at + 2).map(|part| part.record).collect();
        let (uses, now) = (view.uses(), view.next_message());
        let record = merge(&taken, uses, now, &mut known, self.merge_share, usize::MAX);
        parts.insert(at, HeldRecord { record, is_new: true });
    }
}

impl HeldRecord {
    fn edit(&self, state: Option<&str>) -> Option<Edit> {
        let state = state.map(str::to_owned);
        self.is_new.then(|| Edit::Record(Record { state, ..self.record.clone() }))
    }
}

/// Returns the newest pair of adjacent records whose older record has no higher level.
fn pair(parts: &[HeldRecord]) -> Option<usize> {
    parts.windows(2).rposition(|pair| pair[0].record.level <= pair[1].record.level)
}

/// Returns true if a slot is a replacement that an edit made of a range. A replaced message that
/// still has calls or results stands for itself, and is gathered like any other.
fn is_chain(slot: &&Slot) -> bool {
    let is_whole = slot.entry.calls.is_empty() && slot.entry.answers.is_empty();
    slot.standing == Standing::Instead && is_whole
}

/// Returns the lines and words that stay in the view anyway: those of the records, of summaries, of
/// the active request and of the task prompt. Other requests are left out, because little of them
/// stays.
fn known_of(view: &View, active: Option<&Slot>) -> Known {
    let mut known = Known::default();
    for slot in view.slots().filter(|slot| slot.standing == Standing::Instead) {
        match &slot.record {
            Some(record) => known.add_record(record),
            None if slot.entry.is_request => {}
            None => known.add(&text_of(slot)),
        }
    }
    for kept in active.into_iter().chain(view.task()) {
        known.add(&text_of(kept));
    }
    known
}

/// Returns the edits that put the new records into the view, and the size of the view after them in
/// characters. An edit that would not make the view smaller by itself is left out, and its range
/// stays as it is. Only the last record carries the state.
fn shrinking(view: &View, parts: &[HeldRecord], state: Option<&str>) -> (Vec<Edit>, usize) {
    let mut after = view.clone();
    let mut edits = Vec::new();
    let last = parts.len().saturating_sub(1);
    let state_of = |at| if at == last { state } else { None };
    for edit in parts.iter().enumerate().filter_map(|(at, part)| part.edit(state_of(at))) {
        let mut next = after.clone();
        if next.apply(&edit).is_ok() && next.chars() < after.chars() {
            after = next;
            edits.push(edit);
        }
    }
    (edits, after.chars())
}

fn text_of(slot: &Slot) -> String {
    slot.entry.json.decode::<Message>().map(|message| message.text()).unwrap_or_default()
}

fn chars_but_request(slot: &Slot) -> usize {
    if slot.entry.is_request { 0 } else { slot.entry.chars }
}

fn share(of: u64, share: f64) -> u64 {
    whole(float(of) * share)
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn float(tokens: u64) -> f64 {
    tokens as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "token counts are far below 2^52 and not negative"
)]
fn whole(tokens: f64) -> u64 {
    tokens.max(0.0) as u64
}

#[cfg(test)]
mod tests;
