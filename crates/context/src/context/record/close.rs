//! Closing: what a record keeps of requests that are no longer active.
//!
//! Pure. Of each request its own words, every sentence that binds, the files that it changed, the
//! last check with its outcome, the last decision and question, and a few calls whose lines are
//! used again. Closed records are merged when together they become too long.

use std::collections::{BTreeMap, HashSet};

use super::bound::{Judge, REQUEST_CHARS, chars_of, supersede, within};
use super::entry::Deed;
use super::rank::Candidates;
use super::speech::{sentences, shortened};
use super::{Changed, Entry, Known, Record, Work};

/// Most characters of a closed request.
const ASKED_CHARS: usize = 200;
/// Most characters of the command of the last check of a request.
const CHECK_CHARS: usize = 400;
/// Sentences of the agent that stay of a request: the last ones.
const LAST_SAID: usize = 2;
/// Most files of a request in a merged record: those changed last.
const MERGED_FILES: usize = 5;
/// Shares of a merged record, after its requests and their rules: calls, names and values. The rest
/// is for files, checks and decisions.
const CALL_SHARE: f64 = 0.3;
const NAME_SHARE: f64 = 0.5;
const VALUE_SHARE: f64 = 0.1;

/// Most characters of what a closed record keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closing<'a> {
    /// What the worth of an entry depends on.
    pub judge: Judge<'a>,
    /// Most characters of calls whose lines are used again.
    pub calls: usize,
    /// Most characters of names.
    pub names: usize,
    /// Most characters of values.
    pub values: usize,
}

impl PartialEq for Judge<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.now == other.now
    }
}

/// Returns the closed record of a range with these entries. `known` is what stands elsewhere in the
/// view; the record is added to it.
#[must_use]
pub fn close(
    (from, to): (u64, u64),
    mut entries: Vec<Entry>,
    mut found: Candidates,
    known: &mut Known,
    closing: &Closing<'_>,
) -> Record {
    // What is left out may still be listed by its names.
    entries.iter().flat_map(Entry::texts).for_each(|text| found.add_own(text));
    supersede(&mut entries);
    let mut left = closing.calls;
    let mut kept = Vec::new();
    for request in requests(entries) {
        kept.extend(closed(request, known, closing.judge, &mut left));
    }
    let judge = closing.judge;
    let names = found.names(judge.uses, judge.now, known, closing.names);
    let values = found.values(known, closing.values);
    Record { from, to, entries: kept, names, values, ..Record::default() }
}

/// Splits entries where a request begins.
fn requests(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut all: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        match all.last_mut() {
            Some(last) if !matches!(entry, Entry::Asked { .. }) => last.push(entry),
            _ => all.push(vec![entry]),
        }
    }
    all
}

/// Returns what stays of one request.
fn closed(
    entries: Vec<Entry>,
    known: &mut Known,
    judge: Judge<'_>,
    left: &mut usize,
) -> Vec<Entry> {
    let files = files(&entries);
    let keep = kept(&entries, judge, left);
    let (mut asked, mut rest) = (Vec::new(), Vec::new());
    for (place, entry) in entries.into_iter().enumerate() {
        match entry {
            Entry::Asked { at, text } => {
                let text = own_words(&text, known);
                known.add(&text);
                asked.push(Entry::Asked { at, text });
            }
            Entry::Rule { .. } => {
                known.add_entry(&entry);
                asked.push(entry);
            }
            Entry::Files { .. } | Entry::Line { .. } => rest.push(entry),
            entry if keep.contains(&place) => {
                known.add_entry(&entry);
                rest.push(entry);
            }
            _ => {}
        }
    }
    asked.extend(files);
    asked.extend(rest);
    asked.iter().for_each(|entry| known.add_entry(entry));
    asked
}

/// Returns the words of a request that no other request has said, or its beginning.
fn own_words(text: &str, known: &Known) -> String {
    let own: Vec<&str> = sentences(text).filter(|sentence| known.is_news(sentence)).collect();
    let own = if own.is_empty() { text.to_owned() } else { own.join(" ") };
    shortened(&own, ASKED_CHARS)
}

/// Returns the files that a request changed, with the messages that did.
fn files(entries: &[Entry]) -> Option<Entry> {
    let mut files: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for entry in entries {
        let (at, paths) = match entry {
            Entry::Work(work) => (work.at, &work.paths),
            Entry::Left(left) => (left.last, &left.paths),
            _ => continue,
        };
        for path in paths {
            let changed = files.entry(path).or_default();
            if changed.last() != Some(&at) {
                changed.push(at);
            }
        }
    }
    let changed = |(path, mut by): (&str, Vec<u64>)| {
        // The first change and the last one are enough to find the others.
        if by.len() > 2 {
            by.drain(1..by.len() - 1);
        }
        Changed { path: path.to_owned(), by }
    };
    let mut changed: Vec<Changed> = files.into_iter().map(changed).collect();
    changed.sort_by_key(|file| file.by.last().copied());
    let at = changed.last()?.by.last().copied().unwrap_or_default();
    Some(Entry::Files { at, changed })
}

/// Returns the places of the entries that stay: the last check, the last sentences and questions of
/// the agent, and calls whose lines are used again, as far as there is room.
fn kept(entries: &[Entry], judge: Judge<'_>, left: &mut usize) -> HashSet<usize> {
    let places = || entries.iter().enumerate().rev();
    let mut keep: HashSet<usize> = HashSet::new();
    let is_check = |entry: &Entry| {
        entry.work().is_some_and(|w| w.deed == Deed::Check && w.body().len() <= CHECK_CHARS)
    };
    keep.extend(places().find(|(_, entry)| is_check(entry)).map(|(place, _)| place));
    let said = places().filter(|(_, entry)| matches!(entry, Entry::Said { .. }));
    keep.extend(said.take(LAST_SAID).map(|(place, _)| place));
    let asks = places().find(|(_, entry)| matches!(entry, Entry::Question { .. }));
    keep.extend(asks.map(|(place, _)| place));
    let todo = |entry: &Entry| entry.work().is_some_and(|work| work.deed == Deed::Todo);
    keep.extend(places().find(|(_, entry)| todo(entry)).map(|(place, _)| place));
    keep.extend(reused(entries, judge, left, &keep));
    keep
}

/// Returns the places of the calls whose lines are used again most for their size, as far as there
/// is room.
#[expect(clippy::cast_precision_loss, reason = "a call has far fewer than 2^52 characters")]
fn reused(
    entries: &[Entry],
    judge: Judge<'_>,
    left: &mut usize,
    keep: &HashSet<usize>,
) -> Vec<usize> {
    let worth = |(place, entry): (usize, &Entry)| {
        let work: &Work = entry.work().filter(|_| !keep.contains(&place))?;
        let (chars, lines) = (entry.chars(), judge.reuse(work));
        let reuse = lines as f64 / chars as f64;
        Some((reuse + judge.worth(work, chars) * 1e-3, place, chars))
    };
    let mut all: Vec<_> = entries.iter().enumerate().filter_map(worth).collect();
    all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    let mut chosen = Vec::new();
    for (_, place, chars) in all {
        if chars <= *left {
            *left -= chars;
            chosen.push(place);
        }
    }
    chosen
}

/// Merges closed records into one of about so many characters.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a view has far fewer than 2^52 characters, and shares are not negative"
)]
pub fn merge(records: &[Record], most_chars: usize, known: &mut Known, judge: Judge<'_>) -> Record {
    let mut found = Candidates::default();
    let (mut asked, mut rest) = (Vec::new(), Vec::new());
    for record in records {
        found.add_listed(&record.names, &record.values);
        for entry in &record.entries {
            match entry {
                Entry::Asked { at, text } => {
                    asked.push(Entry::Asked { at: *at, text: shortened(text, REQUEST_CHARS) });
                }
                Entry::Rule { .. } => asked.push(entry.clone()),
                Entry::Files { at, changed } => {
                    let first = changed.len().saturating_sub(MERGED_FILES);
                    let changed = changed[first..].to_vec();
                    rest.push(Entry::Files { at: *at, changed });
                }
                _ => rest.push(entry.clone()),
            }
        }
    }
    rest.iter().flat_map(Entry::texts).for_each(|text| found.add_own(text));
    supersede(&mut rest);
    rest.retain(|entry| !matches!(entry, Entry::Left(_)));
    let asked = within(asked, most_chars, judge);
    let room = most_chars.saturating_sub(chars_of(&asked)) as f64;
    let share = |share: f64| (room * share) as usize;
    let (works, told): (Vec<_>, Vec<_>) = rest
        .into_iter()
        .partition(|entry| matches!(entry, Entry::Work(work) if work.deed != Deed::Check));
    let told_room = share(1.0 - CALL_SHARE - NAME_SHARE - VALUE_SHARE);
    let mut kept = newest(told, told_room);
    kept.extend(best(works, share(CALL_SHARE), judge));
    let mut entries = asked;
    entries.extend(kept);
    // A request comes before everything that was done for it.
    entries.sort_by_key(|entry| (entry.at(), !matches!(entry, Entry::Asked { .. })));
    entries.iter().for_each(|entry| known.add_entry(entry));
    let names = found.names(judge.uses, judge.now, known, share(NAME_SHARE));
    let values = found.values(known, share(VALUE_SHARE));
    Record {
        from: records.first().map_or(0, |record| record.from),
        to: records.last().map_or(0, |record| record.to),
        level: records.iter().map(|record| record.level).max().unwrap_or(0) + 1,
        entries,
        names,
        values,
        ..Record::default()
    }
}

/// Returns the newest entries that fit.
fn newest(entries: Vec<Entry>, mut room: usize) -> Vec<Entry> {
    let mut kept = Vec::new();
    for entry in entries.into_iter().rev() {
        let chars = entry.chars();
        if chars <= room {
            room -= chars;
            kept.push(entry);
        }
    }
    kept.reverse();
    kept
}

/// Returns the calls that are worth most and fit.
fn best(entries: Vec<Entry>, mut room: usize, judge: Judge<'_>) -> Vec<Entry> {
    let worth = |entry: &Entry| entry.work().map_or(0.0, |w| judge.worth(w, entry.chars()));
    let mut all: Vec<(f64, Entry)> =
        entries.into_iter().map(|entry| (worth(&entry), entry)).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut kept = Vec::new();
    for (_, entry) in all {
        let chars = entry.chars();
        if chars <= room {
            room -= chars;
            kept.push(entry);
        }
    }
    kept
}
