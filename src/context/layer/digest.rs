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
use crate::context::record::{Known, Line, Record, gather, merge};
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

/// A part of the view in front of the newest messages.
#[derive(Clone, Debug)]
enum Part {
    /// A record, and whether the view holds it already.
    Record { record: Record, stands: bool },
    /// The active request, or what a summary left: it stays as it stands.
    Fixed { chars: usize },
}

impl Part {
    fn chars(&self) -> usize {
        match self {
            // With the message that says that messages were set aside.
            Self::Record { record, .. } => record.chars() + 120,
            Self::Fixed { chars } => *chars,
        }
    }
}

impl Digest {
    /// The edits that are due now.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Vec<Edit> {
        let Some(tail) = self.due(view, around) else { return Vec::new() };
        let mut parts = self.parts(view, tail);
        self.merge_pairs(&mut parts, view);
        let tail_chars: usize =
            view.slots().filter(|slot| slot.from >= tail).map(|slot| slot.entry.chars).sum();
        self.reach_target(&mut parts, view, tail_chars, around);
        let fresh = parts.into_iter().filter_map(|part| match part {
            Part::Record { record, stands: false } => Some(Edit::Record(record)),
            Part::Record { .. } | Part::Fixed { .. } => None,
        });
        fresh.collect()
    }

    /// The message from which on everything stays word for word, if an edit is due.
    fn due(&self, view: &View, around: &Surroundings<'_>) -> Option<u64> {
        let all = around.tokens(view.chars());
        let ceiling = share(around.window.room(), self.trigger);
        let chain = view.slots().rfind(|slot| slot.standing == Standing::Instead);
        let begun = chain.is_some();
        let end = chain.map_or(0, |slot| slot.to);
        let newest = view.slots().filter(|slot| slot.from >= end);
        let newest: usize =
            newest.filter(|slot| slot.standing != Standing::Instead).map(chars_but_request).sum();
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
            if slot.standing == Standing::Instead {
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

    /// The parts in front of `tail`, the newest messages among them as new records.
    fn parts(&self, view: &View, tail: u64) -> Vec<Part> {
        let active = view.slots().rfind(|slot| slot.entry.is_request);
        let mut known = known_of(view.slots().filter(|slot| slot.standing == Standing::Instead));
        if let Some(active) = active {
            known.add(&text_of(active));
        }
        let chain = view.slots().rfind(|slot| slot.standing == Standing::Instead);
        let chain_end = chain.map_or(0, |slot| slot.to);
        let mut parts: Vec<Part> = Vec::new();
        let mut asked = Vec::new();
        for slot in view.slots().take_while(|slot| slot.to <= chain_end) {
            let is_active = active.is_some_and(|active| active.serial == slot.serial);
            if let Some(record) = &slot.record {
                let (mut record, stands) = (Record::clone(record), asked.is_empty());
                record.lines.splice(0..0, asked.drain(..));
                parts.push(Part::Record { record, stands });
            } else if is_active || !slot.entry.is_request {
                parts.push(Part::Fixed { chars: slot.entry.chars });
            } else if slot.from == slot.to {
                // A request that is active no more goes into the record after it.
                asked.push(Line::asked(slot.from, &text_of(slot)));
            } else {
                let lines = vec![Line::asked(slot.from, &text_of(slot))];
                let record = Record { from: slot.from, to: slot.to, lines, ..Record::default() };
                parts.push(Part::Record { record, stands: false });
            }
        }
        self.add_newest(&mut parts, asked, view, chain_end, tail, &mut known);
        parts
    }

    /// Adds the record of the messages between the chain and `tail`. The active request among them
    /// stands after it, or stays in its place when it is the first of them.
    fn add_newest(
        &self,
        parts: &mut Vec<Part>,
        asked: Vec<Line>,
        view: &View,
        chain_end: u64,
        tail: u64,
        known: &mut Known,
    ) {
        let active = view.slots().rfind(|slot| slot.entry.is_request);
        let active =
            active.filter(|slot| slot.from >= chain_end && slot.to > chain_end && slot.to <= tail);
        let fixed = active.map(|slot| Part::Fixed { chars: slot.entry.chars });
        let is_first = active.is_some_and(|slot| slot.from == chain_end);
        let from = active.filter(|_| is_first).map_or(chain_end, |slot| slot.to);
        let record = (from < tail).then(|| {
            let mut record = gather(view, from, tail, known);
            record.lines.splice(0..0, asked);
            Part::Record { record, stands: false }
        });
        if is_first {
            parts.extend(fixed.into_iter().chain(record));
        } else {
            parts.extend(record.into_iter().chain(fixed));
        }
    }

    /// Merges the newest neighbours of which the older has no higher level, while there are any.
    fn merge_pairs(&self, parts: &mut Vec<Part>, view: &View) {
        while let Some(at) = pair(parts) {
            self.merge_at(parts, at, view);
        }
    }

    /// Merges further until the view is under its target, whatever the levels.
    fn reach_target(
        &self,
        parts: &mut Vec<Part>,
        view: &View,
        tail_chars: usize,
        around: &Surroundings<'_>,
    ) {
        let target = share(around.window.room(), self.target.min(self.trigger));
        loop {
            let chain: usize = parts.iter().map(Part::chars).sum();
            if around.tokens(chain + tail_chars) <= target {
                return;
            }
            let records: Vec<usize> =
                (0..parts.len()).filter(|at| matches!(parts[*at], Part::Record { .. })).collect();
            let Some(&[.., at, _]) = records.get(..) else { return };
            self.merge_at(parts, at, view);
        }
    }

    /// Merges the record at `at` with the next one; a request between them then stands after both.
    fn merge_at(&self, parts: &mut Vec<Part>, at: usize, view: &View) {
        let next = (at + 1..parts.len()).find(|at| matches!(parts[*at], Part::Record { .. }));
        let Some(next) = next else { return };
        let taken: Vec<Part> = parts.drain(at..=next).collect();
        let mut known = Known::default();
        for part in parts.iter() {
            if let Part::Record { record, .. } = part {
                known.add(&record.render());
            }
        }
        let mut records = Vec::new();
        let mut between = Vec::new();
        for part in taken {
            match part {
                Part::Record { record, .. } => records.push(record),
                Part::Fixed { .. } => between.push(part),
            }
        }
        let (uses, now) = (view.uses(), view.next_message());
        let record = merge(&records, uses, now, &mut known, self.merge_share, usize::MAX);
        let merged = std::iter::once(Part::Record { record, stands: false });
        parts.splice(at..at, merged.chain(between));
    }
}

/// The newest pair of neighbouring records of which the older has no higher level.
fn pair(parts: &[Part]) -> Option<usize> {
    let records = parts.iter().enumerate().filter_map(|(at, part)| match part {
        Part::Record { record, .. } => Some((at, record.level)),
        Part::Fixed { .. } => None,
    });
    let records: Vec<_> = records.collect();
    records.windows(2).rev().find(|pair| pair[0].1 <= pair[1].1).map(|pair| pair[0].0)
}

/// What these slots say.
fn known_of<'a>(slots: impl Iterator<Item = &'a Slot>) -> Known {
    let mut known = Known::default();
    for slot in slots {
        known.add(&text_of(slot));
    }
    known
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
