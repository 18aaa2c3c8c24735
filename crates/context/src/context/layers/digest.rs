//! Digest: keeps records in the place of older messages, made without a model.
//!
//! The view consists of the records of closed requests, the active request word for word, the
//! records of what was done for it, and the newest messages word for word. Leaving a token in the
//! view costs its rent, the price of a cached read, every turn; removing it rewrites everything
//! behind it. So the newest messages grow until their rent equals the price of rewriting. Then all
//! but the last of them become one open record behind the others, and everything before it stays in
//! the cache. When a new request has come, the records of the one before become a closed record.
//! Closed and open records have bounds of their own, and are rewritten when they pass them.

mod sizes;

use serde::{Deserialize, Serialize};

pub use self::sizes::Economy;
use self::sizes::Sizes;
use super::Surroundings;
use crate::context::Edit;
use crate::context::layers::gather::{Gathered, rules_once};
use crate::context::record::bound::{Judge, within};
use crate::context::record::words::strings_of;
use crate::context::record::{Closing, Known, Record, close, merge};
use crate::context::view::{Slot, Standing, View};
use crate::message::{Block, Message, Role};

/// Layer name under which records are recorded.
pub const NAME: &str = "digest";

/// Least number of the newest messages that stay word for word: the exchange that the model has not
/// read yet and the two before it.
const LEAST_TAIL_MESSAGES: usize = 6;

/// Characters of names and of values in an open record, without what is lent, and the number of lent
/// characters for each one more.
const OPEN_NAMES: usize = 1_000;
const OPEN_VALUES: usize = 500;
const LENT_TO_NAMES: usize = 26;
const LENT_TO_VALUES: usize = 35;

/// Shares of the bound of closed records: calls, names and values of one that was just closed.
const CLOSED_CALLS: usize = 26;
const CLOSED_NAMES: usize = 10;
const CLOSED_VALUES: usize = 86;

/// Parts of the bounds that are tried until the view is small enough.
const FACTORS: [f64; 4] = [1.0, 0.5, 0.25, 0.1];

/// Keeps records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// The point between the bill and what is kept; a factor for all shares.
    pub economy: Economy,
    /// Most tokens of a conversation that is left whole; absent: as many as the window allows.
    pub whole: Option<u64>,
    /// Largest share of the room for messages that a view may fill.
    pub trigger: f64,
    /// Size that an edit must reach at the latest, as a share of that room.
    pub target: f64,
    /// Least tokens of the newest messages that an edit leaves word for word.
    pub keep_tokens: u64,
    /// Share of the window below which a conversation is left whole, beside what closed records do
    /// not use.
    pub whole_share: f64,
    /// Largest share of the window for the records of closed requests.
    pub closed_share: f64,
    /// Largest share of the window for the records of the active request.
    pub open_share: f64,
    /// Size of open records that were rewritten, as a share of their bound.
    pub open_target: f64,
    /// Size of merged closed records, as a share of what they were together.
    pub merge_share: f64,
}

/// The parts of a view, by the numbers of their messages.
#[derive(Debug)]
struct Layout<'a> {
    active: Option<&'a Slot>,
    /// First message behind what no record replaces: the task prompt, and a model's summary.
    begin: u64,
    /// The closed records, one behind the other from `begin` on.
    closed: Vec<&'a Record>,
    /// First message behind the closed records.
    closed_end: u64,
    /// First message behind all records.
    end: u64,
}

impl Digest {
    /// Returns the edits that are due now; each makes the view smaller.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Vec<Edit> {
        let mut edits = self.records_due(view, around);
        let (mut after, mut applied) = (None, 0);
        // What one record gave up may let another pass. Found with the next turn, it would cost the
        // provider's cache once more. Each edit makes the view smaller, so this ends.
        while applied < edits.len() {
            let after = after.get_or_insert_with(|| view.clone());
            for edit in &edits[applied..] {
                if after.apply(edit).is_err() {
                    return edits;
                }
            }
            applied = edits.len();
            edits.extend(self.records_due(after, around));
        }
        edits
    }

    fn records_due(&self, view: &View, around: &Surroundings<'_>) -> Vec<Edit> {
        let layout = Layout::of(view);
        let closed_chars = layout.closed.iter().map(|record| record.chars()).sum();
        let sizes = Sizes::of(self, around, around.tokens(closed_chars));
        let Some(tail) = self.due(view, &layout, sizes, around) else { return Vec::new() };
        let target = share(around.window.free_tokens(), self.target.min(self.trigger));
        let ceiling = share(around.window.free_tokens(), self.trigger);
        let mut edits = Vec::new();
        for factor in FACTORS {
            let records = self.records(view, &layout, tail, sizes.scaled(factor), around);
            let (found, chars) = shrinking(view, records, around.state);
            let tokens = around.tokens(chars);
            edits = found;
            if tokens <= target || (factor == 1.0 && tokens <= ceiling) {
                break;
            }
        }
        // Earlier records are rewritten with a new one only: by themselves they would give up again
        // and again what little they have.
        let folds = |edit: &Edit| matches!(edit, Edit::Record(record) if record.to > layout.end);
        if edits.iter().any(folds) { edits } else { Vec::new() }
    }

    /// Returns the first message that stays word for word, if an edit is due.
    fn due(
        &self,
        view: &View,
        layout: &Layout<'_>,
        sizes: Sizes,
        around: &Surroundings<'_>,
    ) -> Option<u64> {
        let all = around.tokens(view.chars());
        let ceiling = share(around.window.free_tokens(), self.trigger);
        let begun = layout.end > 0;
        if !begun && all <= sizes.whole.min(ceiling) {
            return None;
        }
        let tail = cut(view, sizes.keep, around)?;
        let (mut folds, mut kept) = (0, 0);
        let stands = |slot: &&Slot| slot.from >= layout.end && !layout.is_active(slot);
        for slot in view.slots().filter(stands).filter(|slot| !is_chain(slot)) {
            *(if slot.from < tail { &mut folds } else { &mut kept }) += slot.entry.chars;
        }
        let batch = sizes::batch(view, around.tokens(kept), around);
        // Without a message to fold nothing is gained by rewriting the records again.
        let is_due = folds > 0 && (!begun || all > ceiling || around.tokens(folds) > batch);
        is_due.then_some(tail)
    }

    /// Returns the records that stand before `tail`, as far as they are new.
    fn records(
        &self,
        view: &View,
        layout: &Layout<'_>,
        tail: u64,
        sizes: Sizes,
        around: &Surroundings<'_>,
    ) -> Vec<Record> {
        let judge = Judge { uses: view.uses(), now: view.next_message() };
        let (border, open_from) = layout.border(tail);
        let mut known = known_of(view, layout, border, tail);
        let mut records = Vec::new();
        records.extend(self.closed(view, layout, border, sizes, around, &mut known, judge));
        if open_from < tail {
            records.extend(self.open(view, (open_from, tail), sizes, around, &mut known, judge));
        }
        records
    }

    /// Returns the record of what lies between the closed records and `border`, merged with these
    /// if they pass their bound together.
    #[expect(clippy::too_many_arguments, reason = "what stands in the view and how it is judged")]
    fn closed(
        &self,
        view: &View,
        layout: &Layout<'_>,
        border: u64,
        sizes: Sizes,
        around: &Surroundings<'_>,
        known: &mut Known,
        judge: Judge<'_>,
    ) -> Option<Record> {
        let bound = around.chars(sizes.closed);
        let mut all: Vec<Record> = layout.closed.iter().copied().cloned().collect();
        let mut own = known.clone();
        if layout.closed_end < border {
            let Gathered { mut entries, found, .. } = Gathered::of(view, layout.closed_end, border);
            rules_once(&mut entries, &mut own);
            let closing = Closing {
                judge,
                calls: bound / CLOSED_CALLS,
                names: bound / CLOSED_NAMES,
                values: bound / CLOSED_VALUES,
            };
            all.push(close((layout.closed_end, border), entries, found, &mut own, &closing));
        }
        let chars: usize = all.iter().map(Record::chars).sum();
        if chars > bound {
            // The records may say again what only they said.
            let mut others = Known::default();
            outside(view, layout, border).for_each(|slot| others.add(&text_of(slot)));
            let room = around.chars(share(around.tokens(chars.min(bound)), self.merge_share));
            let merged = merge(&all, room, &mut others, judge);
            *known = others;
            return Some(merged);
        }
        *known = own;
        all.pop().filter(|_| layout.closed_end < border)
    }

    /// Returns the records of the active request that are new: that of the range, and where all
    /// pass their bound also that which takes the place of the earlier ones.
    fn open(
        &self,
        view: &View,
        (from, tail): (u64, u64),
        sizes: Sizes,
        around: &Surroundings<'_>,
        known: &mut Known,
        judge: Judge<'_>,
    ) -> Vec<Record> {
        let earlier: Vec<&Record> = view
            .slots()
            .filter_map(|slot| slot.record.as_deref())
            .filter(|record| record.from >= from && record.to <= tail)
            .collect();
        let begin = earlier.last().map_or(from, |record| record.to).max(from);
        let lent = around.chars(sizes.unused);
        let (names, values) =
            (OPEN_NAMES + lent / LENT_TO_NAMES, OPEN_VALUES + lent / LENT_TO_VALUES);
        let mut records = Vec::new();
        if begin < tail {
            let mut gathered = Gathered::of(view, begin, tail);
            gathered.compare(&earlier);
            let Gathered { mut entries, found, .. } = gathered;
            rules_once(&mut entries, known);
            let entries = within(entries, around.chars(sizes.open), judge);
            entries.iter().for_each(|entry| known.add_entry(entry));
            let names = found.names(judge.uses, judge.now, known, names);
            let values = found.values(known, values);
            let (from, to, open) = (begin, tail, true);
            records.push(Record { from, to, open, entries, names, values, ..Record::default() });
        }
        let newest: usize = records.iter().map(Record::chars).sum();
        let before: usize = earlier.iter().map(|record| record.chars()).sum();
        let bound = around.chars(sizes.open);
        if newest + before > bound && earlier.len() + records.len() > 1 {
            let room =
                around.chars(share(around.tokens(bound), self.open_target)).saturating_sub(newest);
            if let Some(rewritten) = rewritten(&earlier, room, judge, names * 2, values * 2) {
                records.insert(0, rewritten);
            }
        }
        records
    }
}

/// Returns one open record in the place of several, in about so many characters.
fn rewritten(
    records: &[&Record],
    room: usize,
    judge: Judge<'_>,
    names: usize,
    values: usize,
) -> Option<Record> {
    let (first, last) = (records.first()?, records.last()?);
    let mut gathered = Gathered::default();
    records.iter().for_each(|record| gathered.take(record));
    let Gathered { entries, found, .. } = gathered;
    let (names, values) = (names.min(room / 4), values.min(room / 10));
    let entries = within(entries, room.saturating_sub(names + values), judge);
    let mut known = Known::default();
    entries.iter().for_each(|entry| known.add_entry(entry));
    let names = found.names(judge.uses, judge.now, &mut known, names);
    let values = found.values(&mut known, values);
    let level = records.iter().map(|record| record.level).max().unwrap_or(0) + 1;
    let (from, to, open) = (first.from, last.to, true);
    Some(Record { from, to, level, open, entries, names, values, state: None })
}

impl<'a> Layout<'a> {
    fn of(view: &'a View) -> Self {
        let active = view.slots().rfind(|slot| slot.entry.is_request);
        let task = view.task().map_or(0, |task| task.to);
        let summary = view.slots().filter(is_chain).filter(|slot| is_summary(slot));
        let begin = summary.map(|slot| slot.to).next_back().unwrap_or(0).max(task);
        let (mut closed, mut closed_end) = (Vec::new(), begin);
        for slot in view.slots().filter(|slot| slot.to >= begin) {
            let is_active = active.is_some_and(|active| active.serial == slot.serial);
            match slot.record.as_deref() {
                Some(record) if record.from == closed_end && !record.open => {
                    closed_end = record.to;
                    closed.push(record);
                }
                // A request that an edit left between records is closed with what follows it.
                None if slot.entry.is_request && slot.from >= begin && !is_active => break,
                _ => {}
            }
        }
        let end = view.slots().rfind(is_chain).map_or(0, |slot| slot.to);
        Self { active, begin, closed, closed_end, end }
    }

    /// Returns the first message that no closed record may cover, and the first that an open one may.
    /// Results beside a request go with their calls; the request then stands behind the record.
    fn border(&self, tail: u64) -> (u64, u64) {
        match self.active {
            Some(active) if active.from < tail => {
                let has_results = !active.entry.answers.is_empty();
                let border = if has_results { active.to } else { active.from };
                (border.max(self.closed_end), active.to.max(self.closed_end))
            }
            _ => (tail.max(self.closed_end), tail),
        }
    }

    fn is_active(&self, slot: &Slot) -> bool {
        self.active.is_some_and(|active| active.serial == slot.serial)
    }
}

/// Returns the first of the newest messages that stay: a reply, with enough text behind it.
fn cut(view: &View, keep: u64, around: &Surroundings<'_>) -> Option<u64> {
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

/// Returns true if a slot is a replacement that an edit made of a range. A replaced message that
/// still has calls or results stands for itself, and is gathered like any other.
fn is_chain(slot: &&Slot) -> bool {
    let is_whole = slot.entry.calls.is_empty() && slot.entry.answers.is_empty();
    slot.standing == Standing::Instead && is_whole
}

/// Returns true if a replacement is a text that no record made: a summary, or a marker.
fn is_summary(slot: &Slot) -> bool {
    let is_text = slot.record.is_none() && !slot.entry.is_request;
    is_text && slot.entry.role == Role::User && slot.from < slot.to
}

/// Returns the slots that stay beside the closed records: what is before them, the active request
/// and the newest messages.
fn outside<'a>(
    view: &'a View,
    layout: &'a Layout<'_>,
    border: u64,
) -> impl Iterator<Item = &'a Slot> {
    view.slots().filter(move |slot| {
        slot.to <= layout.begin || slot.from >= border || layout.is_active(slot)
    })
}

/// Returns the words that stay in the view anyway: those of the closed records, of the active
/// request, of its records, and of the newest messages.
fn known_of(view: &View, layout: &Layout<'_>, border: u64, tail: u64) -> Known {
    let mut known = Known::default();
    for record in &layout.closed {
        known.add_record(record);
    }
    for slot in outside(view, layout, border) {
        match &slot.record {
            Some(record) => known.add_record(record),
            None if slot.from >= tail || layout.is_active(slot) || is_chain(&slot) => {
                known.add(&text_of(slot));
            }
            None => {}
        }
    }
    known
}

/// Returns the edits that put the new records into the view, and the size of the view after them in
/// characters. An edit that would not make the view smaller by itself is left out, and its range
/// stays as it is. Only the newest record of the view carries the state.
fn shrinking(view: &View, mut records: Vec<Record>, state: Option<&str>) -> (Vec<Edit>, usize) {
    loop {
        let stands_behind = |last: &Record| {
            let mut slots = view.slots().filter_map(|slot| slot.record.as_deref());
            slots.any(|record| record.from >= last.to)
        };
        let newest = records.last().filter(|last| !stands_behind(last)).map(|last| last.to);
        let (mut after, mut edits, mut has_newest) = (view.clone(), Vec::new(), false);
        for record in &records {
            let is_newest = newest == Some(record.to);
            let state = state.filter(|_| is_newest).map(str::to_owned);
            let edit = Edit::Record(Record { state, ..record.clone() });
            let mut next = after.clone();
            if next.apply(&edit).is_ok() && next.chars() < after.chars() {
                after = next;
                edits.push(edit);
                has_newest |= is_newest;
            }
        }
        // Without the one that carries the state the next is the newest.
        if has_newest || newest.is_none() || records.pop().is_none() {
            return (edits, after.chars());
        }
    }
}

/// Returns the texts of a message: what was said, called and answered.
fn text_of(slot: &Slot) -> String {
    let Ok(message) = slot.entry.json.decode::<Message>() else { return String::new() };
    let texts = message.content.iter().map(|block| match block {
        Block::Text(text) => text.clone(),
        Block::ToolUse(call) => strings_of(&call.input),
        Block::ToolResult(result) => result.text(),
        Block::Other(_) => String::new(),
    });
    texts.collect::<Vec<_>>().join("\n")
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
