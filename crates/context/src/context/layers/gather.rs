//! Gathering: makes the entries of a record from the messages of a range.

use std::collections::{HashMap, HashSet};

use crate::context::record::bound::{Judge, within};
use crate::context::record::calls::{checks, work_of};
use crate::context::record::outcome::{headline, outcome};
use crate::context::record::rank::Candidates;
use crate::context::record::speech::{binding, deciding, question};
use crate::context::record::words::strings_of;
use crate::context::record::{Deed, Entry, Known, Record, Work};
use crate::context::view::{Slot, Standing, View};
use crate::message::{Block, Message, ToolCall, ToolResult};
use crate::own_tool::OwnTool;

/// Most characters of a request that is no longer the active one, before its record is closed.
const REQUEST_CHARS: usize = 2_000;
/// Most sentences of a message that stay: the last ones, in which the agent comes to its decision.
const MOST_SAID: usize = 2;
/// Characters of names and values in a record that has no bound of its own.
const NAMES_CHARS: usize = 1_500;
const VALUES_CHARS: usize = 500;

/// The entries of a range, and the names and values that may be listed behind them.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// Entries, in the order of the messages.
    pub entries: Vec<Entry>,
    /// Names and values.
    pub found: Candidates,
    /// The place of the entry of each call that has no outcome yet.
    pending: HashMap<String, usize>,
    /// What the agent said in the range: repeated, a sentence is left out.
    said: HashSet<String>,
}

impl Gathered {
    /// Gathers what a range of the view holds, records included.
    #[must_use]
    pub fn of(view: &View, from: u64, to: u64) -> Self {
        let mut gathered = Self::default();
        let active = view.slots().rfind(|slot| slot.entry.is_request).map(|slot| slot.serial);
        for slot in view.covered(from, to) {
            match &slot.record {
                Some(record) => gathered.take(record),
                // The active request stays word for word, outside the record.
                None => gathered.read(slot, Some(slot.serial) == active),
            }
        }
        gathered
    }

    /// Adds what a record holds.
    pub fn take(&mut self, record: &Record) {
        self.entries.extend(record.entries.iter().cloned());
        self.found.add_listed(&record.names, &record.values);
    }

    /// Says of each call that was made before how often it was, and how it ended the time before if
    /// it ended in another way.
    pub fn compare(&mut self, earlier: &[&Record]) {
        let mut known: Vec<Work> = Vec::new();
        let earlier = earlier.iter().flat_map(|record| &record.entries).filter_map(Entry::work);
        known.extend(earlier.filter(|work| work.deed == Deed::Check).cloned());
        for entry in &mut self.entries {
            let Entry::Work(work) = entry else { continue };
            if work.deed != Deed::Check || work.runs > 0 {
                continue;
            }
            if let Some(before) = known.iter().rfind(|known| known.is_same(work)) {
                work.runs = before.runs.max(1) + 1;
                let told = headline(&before.outcome);
                work.before = told.filter(|told| Some(*told) != headline(&work.outcome)).cloned();
            }
            known.push(work.clone());
        }
    }

    fn read(&mut self, slot: &Slot, is_active: bool) {
        let Ok(message) = slot.entry.json.decode::<Message>() else { return };
        let at = slot.from.min(slot.to.saturating_sub(1));
        // Fillers, which only keep roles alternating, say nothing.
        let is_filler = slot.standing == Standing::Instead && slot.from == slot.to;
        let ends = slot.entry.calls.is_empty();
        for block in &message.content {
            match block {
                Block::Text(_) if is_active => {}
                Block::Text(text) if slot.entry.is_request => self.request(at, text),
                Block::Text(_) if is_filler => {}
                Block::Text(text) => self.speech(at, text, ends),
                // The present todo list stands beside the record, as part of the state.
                Block::ToolUse(call) if call.name == OwnTool::TodoWrite.name() => {}
                Block::ToolUse(call) => self.call(at, call),
                // Of a result that was cleared only the marker is here.
                Block::ToolResult(result) if slot.standing == Standing::Cleared => {
                    self.pending.remove(&result.tool_use_id);
                }
                Block::ToolResult(result) => self.result(result),
                Block::Other(_) => {}
            }
        }
    }

    fn request(&mut self, at: u64, text: &str) {
        self.entries.push(Entry::Asked { at, text: text.chars().take(REQUEST_CHARS).collect() });
        self.entries.extend(binding(text).into_iter().map(|text| Entry::Rule { at, text }));
        self.found.add_own(text);
    }

    fn speech(&mut self, at: u64, text: &str, ends: bool) {
        let deciding = deciding(text);
        let first = deciding.len().saturating_sub(MOST_SAID);
        for sentence in deciding.into_iter().skip(first) {
            if self.said.insert(sentence.clone()) {
                self.entries.push(Entry::Said { at, text: sentence });
            }
        }
        if ends && let Some(text) = question(text) {
            self.entries.push(Entry::Question { at, text });
        }
        self.found.add_own(text);
    }

    fn call(&mut self, at: u64, call: &ToolCall) {
        self.pending.insert(call.id.clone(), self.entries.len());
        self.entries.push(Entry::Work(work_of(at, call)));
        self.found.add_own(&strings_of(&call.input));
    }

    fn result(&mut self, result: &ToolResult) {
        let text = result.text();
        self.found.add_result(&text);
        let Some(place) = self.pending.remove(&result.tool_use_id) else { return };
        if let Some(Entry::Work(work)) = self.entries.get_mut(place) {
            work.outcome = outcome(work.deed, checks(work), &text, result.is_error);
        }
    }
}

/// Keeps the first of each rule; a rule that `known` has is left out.
pub fn rules_once(entries: &mut Vec<Entry>, known: &mut Known) {
    entries.retain(|entry| match entry {
        Entry::Rule { text, .. } => known.add_rule(text),
        _ => true,
    });
}

/// Returns the record of a range that may already hold records, of about `most_chars` characters at
/// most.
#[must_use]
pub fn gather_within(view: &View, from: u64, to: u64, most_chars: usize) -> Record {
    let Gathered { mut entries, found, .. } = Gathered::of(view, from, to);
    rules_once(&mut entries, &mut Known::default());
    let judge = Judge { uses: view.uses(), now: view.next_message() };
    let lists = NAMES_CHARS + VALUES_CHARS;
    let (names, values) = match most_chars / 4 {
        room if room < lists => (room / 4 * 3, room / 4),
        _ => (NAMES_CHARS, VALUES_CHARS),
    };
    // The head and the end of the record, with the labels of its lists.
    let around = Record { from, to, ..Record::default() }.chars() + 20;
    let entries = within(entries, most_chars.saturating_sub(names + values + around), judge);
    let mut known = Known::default();
    entries.iter().for_each(|entry| known.add_entry(entry));
    let names = found.names(judge.uses, judge.now, &mut known, names);
    let values = found.values(&mut known, values);
    let level = view.covered(from, to).filter_map(|slot| Some(slot.record.as_ref()?.level)).max();
    Record { from, to, level: level.unwrap_or(0), entries, names, values, ..Record::default() }
}
