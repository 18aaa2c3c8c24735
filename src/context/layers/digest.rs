//! Digest: a chain of records, made without a model.
//!
//! The view is the records, oldest first, the active request, and the newest messages word for
//! word. Leaving a token in the view costs its rent, the price of a cached read, every turn;
//! removing it rewrites what stands behind it. So the newest messages are let grow until the rent
//! that they have cost equals the price of rewriting, then all but the last of them become one
//! record at the end of the chain: what stands before it stays in the cache. Records are merged in
//! pairs, as in a binary counter, so that each message is rewritten a number of times
//! that grows with the logarithm of the conversation, and the chain hardly grows at all.

use serde::{Deserialize, Serialize};

use super::Surroundings;
use crate::context::Edit;
use crate::context::layers::gather::gather;
use crate::context::record::{Known, Record, RecordLine, merge};
use crate::context::view::{Slot, Standing, View};
use crate::message::{Message, Role};

/// The layer name under which records are recorded.
pub const NAME: &str = "digest";

/// How many of the newest messages stay word for word at least: the exchange that the model has
/// not read yet and the three before it.
const LEAST_TAIL_MESSAGES: usize = 7;

/// Keeps a chain of records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// A conversation of at most this many tokens is left whole: so short a one costs little
    /// whatever is done, and nothing of it is worth losing.
    pub whole: u64,
    /// No view has more than this share of the room for messages.
    pub trigger: f64,
    /// What an edit reaches at the latest, as a share of that room.
    pub target: f64,
    /// How many tokens of the newest messages an edit leaves word for word.
    pub keep_tokens: u64,
    /// What a record that was merged from two has of their size.
    pub merge_share: f64,
}

/// A record in front of the newest messages.
#[derive(Clone, Debug)]
struct HeldRecord {
    record: Record,
    /// Whether it has to be put into the view: else it stands there already.
    is_new: bool,
}

impl Digest {
    /// The edits that are due now; each makes the view smaller.
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
            let newest = parts.len().checked_sub(2);
            match newest.filter(|_| around.tokens(chars) > target) {
                Some(at) => self.merge_at(&mut parts, at, view),
                None => return edits,
            }
        }
    }

    /// The message from which on everything stays word for word, if an edit is due.
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
        let is_due = if begun { grown || all > ceiling } else { all > self.whole.min(ceiling) };
        is_due.then(|| self.cut(view, keep, around)).flatten()
    }

    /// How many tokens stay word for word: less where the window is small.
    fn keep(&self, around: &Surroundings<'_>) -> u64 {
        self.keep_tokens.min(around.window.room() / 8)
    }

    /// How many tokens are let grow between two edits.
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

    /// Where the newest messages begin that stay: at a reply, with enough behind it.
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

    /// The records in front of `tail`, with a new one of the newest messages among them.
    fn parts(&self, view: &View, tail: u64) -> Vec<HeldRecord> {
        let active = view.slots().rfind(|slot| slot.entry.is_request);
        let is_active = |slot: &Slot| active.is_some_and(|active| active.serial == slot.serial);
        let task = view.task();
        let is_task = |slot: &Slot| task.is_some_and(|task| task.serial == slot.serial);
        let mut known = known_of(view, active);
        let chain = view.slots().rfind(is_chain);
        let chain_end = chain.map_or(0, |slot| slot.to);
        let mut parts: Vec<HeldRecord> = Vec::new();
        // Requests that are active no more go into the record after them.
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
        // of the newest messages. One that is left over after the last record is gathered.
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

/// The newest pair of neighbouring records of which the older has no higher level.
fn pair(parts: &[HeldRecord]) -> Option<usize> {
    parts.windows(2).rposition(|pair| pair[0].record.level <= pair[1].record.level)
}

/// Whether a place is what an edit left of a range. A message that was cut stands for itself, and its
/// calls and results are told like those of any other.
fn is_chain(slot: &&Slot) -> bool {
    let is_whole = slot.entry.calls.is_empty() && slot.entry.answers.is_empty();
    slot.standing == Standing::Instead && is_whole
}

/// What stays in the view says: the records, what a summary left, and the active request. Of a
/// request that is active no more little stays.
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

/// The edits that put the new records into the view, without those that would not make it smaller
/// by themselves, and its size after them. What is left out stays in the view as it stands. The
/// state stands beside the last of the records.
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
