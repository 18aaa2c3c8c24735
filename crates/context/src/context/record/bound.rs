//! Bounds of records: which calls are left out of a record that has become too long.
//!
//! Pure. Whole calls are left out behind markers, those first that a later call replaced, then those
//! that are least likely to be needed: neighbours share a marker. Only where that is not enough go
//! sentences, and last of all requests.

use std::collections::HashSet;

use super::entry::Deed;
use super::speech::shortened;
use super::words::{Uses, lines};
use super::{Entry, LeftOut, Work};

/// Worth of a change of a file, which the agent has to know to go on.
const CHANGE_WORTH: f64 = 3.0;
/// Worth of the last run of a test or a build.
const CHECK_WORTH: f64 = 2.0;
/// Worth of a call whose lines other calls repeat.
const REUSED_WORTH: f64 = 0.5;
/// Worth of any other call.
const LEAST_WORTH: f64 = 0.1;
/// Characters added to the length of a call, so that short ones are not worth too much.
const LENGTH: f64 = 60.0;
/// Number of messages over which the worth of a call falls to about a third.
const DECAY: f64 = 300.0;
/// A long argument is cut where it takes more than this share of its record.
const LARGEST_SHARE: usize = 3;
/// Most characters of a request where the record is short of room.
pub(super) const REQUEST_CHARS: usize = 120;

/// What the worth of an entry depends on, besides the entry.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// Uses of lines and words.
    pub uses: &'a Uses,
    /// Number of the next message.
    pub now: u64,
}

impl Judge<'_> {
    /// Returns the worth of a call for its size.
    #[expect(clippy::cast_precision_loss, reason = "message numbers are far below 2^52")]
    pub(super) fn worth(&self, work: &Work, chars: usize) -> f64 {
        let kind = match work.deed {
            Deed::Write | Deed::Edit | Deed::Todo => CHANGE_WORTH,
            Deed::Check => CHECK_WORTH,
            Deed::Command | Deed::Other => 0.0,
        };
        let reused = if self.reuse(work) > 0 { REUSED_WORTH } else { 0.0 };
        let age = self.now.saturating_sub(work.at) as f64;
        (kind + reused + LEAST_WORTH) / (chars as f64 + LENGTH).sqrt() * (-age / DECAY).exp()
    }

    /// Returns the number of lines of a call that other calls repeat.
    pub(super) fn reuse(&self, work: &Work) -> usize {
        work.parts
            .iter()
            .flat_map(|part| lines(&part.text))
            .filter(|line| self.uses.of_line(line).count > 1)
            .count()
    }
}

/// Puts markers in the place of the calls that a later one replaced: what was written to a file
/// before it was written anew, a call before the same call, and a todo list before the next.
pub fn supersede(entries: &mut [Entry]) {
    let mut written: HashSet<String> = HashSet::new();
    let mut made: HashSet<(String, String, String)> = HashSet::new();
    let mut has_todo = false;
    for entry in entries.iter_mut().rev() {
        let Entry::Work(work) = entry else { continue };
        let is_replaced = match work.deed {
            Deed::Write | Deed::Edit => work.paths.iter().all(|path| written.contains(path)),
            Deed::Todo => has_todo,
            Deed::Check | Deed::Command | Deed::Other => false,
        };
        let is_again = !made.insert((work.tool.clone(), work.arguments.clone(), work.body()));
        if work.deed == Deed::Write && !has_failed(work) {
            written.extend(work.paths.iter().cloned());
        }
        has_todo |= work.deed == Deed::Todo;
        if is_replaced || is_again {
            let (at, last) = (work.at, work.at);
            *entry = Entry::Left(LeftOut { at, last, calls: 1, paths: Vec::new() });
        }
    }
}

/// Returns true if a change did not happen, as far as its outcome tells.
fn has_failed(work: &Work) -> bool {
    !work.outcome.is_empty()
}

/// Returns the entries in about so many characters.
#[must_use]
pub fn within(mut entries: Vec<Entry>, most_chars: usize, judge: Judge<'_>) -> Vec<Entry> {
    supersede(&mut entries);
    let mut entries = neighbours_joined(entries);
    if chars_of(&entries) <= most_chars {
        return entries;
    }
    for entry in &mut entries {
        cut_parts(entry, most_chars / LARGEST_SHARE);
    }
    leave_out(&mut entries, most_chars, judge);
    let mut entries = neighbours_joined(entries);
    shed(&mut entries, most_chars);
    entries
}

/// Leaves out the calls that are worth least until the rest fits.
fn leave_out(entries: &mut [Entry], most_chars: usize, judge: Judge<'_>) {
    let mut total = chars_of(entries);
    let mut works: Vec<(f64, usize, usize)> = entries
        .iter()
        .enumerate()
        .filter_map(|(place, entry)| {
            let chars = entry.chars();
            Some((judge.worth(entry.work()?, chars), place, chars))
        })
        .collect();
    works.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for (_, place, chars) in works {
        if total <= most_chars {
            break;
        }
        entries[place] = left(&entries[place]);
        total = total + entries[place].chars() - chars;
    }
}

/// Returns the marker in the place of a call.
fn left(entry: &Entry) -> Entry {
    let paths = entry.work().map(|work| work.paths.clone()).unwrap_or_default();
    Entry::Left(LeftOut { at: entry.at(), last: entry.at(), calls: 1, paths })
}

/// Cuts the long arguments of a call that is longer than that: their beginnings and ends stay, with
/// a marker between them.
fn cut_parts(entry: &mut Entry, most_chars: usize) {
    let chars = entry.chars();
    if chars <= most_chars {
        return;
    }
    if let Entry::Work(work) = entry {
        for part in &mut work.parts {
            let own = part.text.len();
            part.cut(own.saturating_mul(most_chars) / chars.max(1));
        }
    }
}

/// Joins the markers that have no call between them.
fn neighbours_joined(entries: Vec<Entry>) -> Vec<Entry> {
    let mut joined: Vec<Entry> = Vec::with_capacity(entries.len());
    let mut open: Option<usize> = None;
    for entry in entries {
        match (&entry, open.map(|at| &mut joined[at])) {
            (Entry::Left(next), Some(Entry::Left(before))) => before.join(next),
            (Entry::Left(_), _) => {
                open = Some(joined.len());
                joined.push(entry);
            }
            (Entry::Said { .. } | Entry::Question { .. }, _) => joined.push(entry),
            _ => {
                open = None;
                joined.push(entry);
            }
        }
    }
    joined
}

/// Removes what a record can do without, until the rest fits: sentences of the agent, the oldest
/// first; then requests are shortened; then everything but the rules that fit in half of the room.
fn shed(entries: &mut Vec<Entry>, most_chars: usize) {
    let mut over = chars_of(entries).saturating_sub(most_chars);
    let mut drop_while = |entries: &mut Vec<Entry>, is_wanted: &dyn Fn(&Entry) -> bool| {
        entries.retain(|entry| {
            let goes = over > 0 && is_wanted(entry);
            over = if goes { over.saturating_sub(entry.chars()) } else { over };
            !goes
        });
    };
    drop_while(entries, &|entry| matches!(entry, Entry::Said { .. } | Entry::Line { .. }));
    drop_while(entries, &|entry| matches!(entry, Entry::Left(left) if left.paths.is_empty()));
    drop_while(entries, &|entry| matches!(entry, Entry::Left(_) | Entry::Files { .. }));
    if chars_of(entries) <= most_chars {
        return;
    }
    for entry in entries.iter_mut() {
        if let Entry::Asked { text, .. } = entry {
            *text = shortened(text, REQUEST_CHARS);
        }
    }
    newest_within(entries, most_chars / 2, |entry| matches!(entry, Entry::Rule { .. }));
    newest_within(entries, most_chars / 2, |entry| !matches!(entry, Entry::Rule { .. }));
}

/// Keeps the newest of these entries, in so many characters.
fn newest_within(entries: &mut Vec<Entry>, room: usize, is_wanted: impl Fn(&Entry) -> bool) {
    let mut left = room;
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries.drain(..).rev() {
        let chars = entry.chars();
        if !is_wanted(&entry) {
            kept.push(entry);
        } else if chars <= left {
            left -= chars;
            kept.push(entry);
        }
    }
    kept.reverse();
    *entries = kept;
}

/// Returns the size of entries in characters.
#[must_use]
pub fn chars_of(entries: &[Entry]) -> usize {
    entries.iter().map(Entry::chars).sum()
}
