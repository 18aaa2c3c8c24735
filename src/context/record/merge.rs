//! Merging of records: makes one record of several, smaller than they were together.

use std::collections::HashSet;

use super::{Kind, Known, LEAST_WORTH, Record, RecordLine, pick};
use crate::context::record::words::{Uses, words};

/// Most characters of a request that stay in a merged record.
const REQUEST_CHARS: usize = 120;
/// Share of the room for call lines that were used only once, or not lately.
const CALL_SHARE: f64 = 0.2;
/// Share of the room for names.
const NAME_SHARE: f64 = 0.4;
/// Most messages since its last use for a line that calls used more than once to stay.
const REUSED_WITHIN: u64 = 80;
/// Number of messages over which the worth of a used line falls to about a third.
const LINE_DECAY: f64 = 100.0;
/// Number of messages over which the worth of a used name falls to about a third.
const NAME_DECAY: f64 = 400.0;
/// Worth of a line that was used once; each repeated use adds 1.
const FIRST_USE: f64 = 0.3;

/// Characters that the line of a tool's name takes, with the number of the message.
const TOOL_CHARS: usize = 10;

/// Merges consecutive records into one of about `share` of their size, or of `most_chars` if that
/// is less. `now` is the number that the conversation's next message gets.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a view has far fewer than 2^52 characters, and shares are not negative"
)]
pub fn merge(
    records: &[Record],
    uses: &Uses,
    now: u64,
    known: &mut Known,
    share: f64,
    most_chars: usize,
) -> Record {
    let all: Vec<&RecordLine> = records.iter().flat_map(|record| &record.lines).collect();
    let mut keep: HashSet<usize> = HashSet::new();
    let reused: Vec<usize> = (0..all.len())
        .filter(|at| all[*at].kind == Kind::Call && is_reused(all[*at], uses, now))
        .collect();
    let chars = |places: &[usize]| places.iter().map(|at| all[*at].chars()).sum::<usize>();
    let names: usize =
        records.iter().flat_map(|r| &r.names).map(|name| name.chars().count() + 1).sum();
    let total: usize = all.iter().map(|line| line.chars()).sum::<usize>() + names;
    let reused = within(reused, most_chars / 2, &all);
    let rest = total - chars(&reused).min(total);
    let room = ((rest as f64 * share) as usize).min(most_chars.saturating_sub(chars(&reused)));
    keep.extend(&reused);
    let mut used = keep_calls(&all, &mut keep, uses, now, (room as f64 * CALL_SHARE) as usize);
    // Where there is not enough room for all requests, the newest stay.
    for (at, line) in all.iter().enumerate().rev() {
        let chars = line.chars().min(REQUEST_CHARS);
        if line.kind == Kind::Asked && used + chars <= room {
            keep.insert(at);
            used += chars;
        }
    }
    for at in &keep {
        known.add(&all[*at].text);
    }
    let names =
        keep_names(records, &all, &keep, known, uses, now, (room as f64 * NAME_SHARE) as usize);
    used += names.iter().map(|name| name.chars().count() + 1).sum::<usize>();
    keep_prose(&all, &mut keep, known, room.saturating_sub(used));
    Record {
        from: records.first().map_or(0, |record| record.from),
        to: records.last().map_or(0, |record| record.to),
        level: level(records),
        lines: finished(&all, &keep),
        names,
        state: None,
    }
}

/// Returns the level of the merged record. As in a binary counter it is one more than the highest
/// level if two records have that level.
fn level(records: &[Record]) -> u32 {
    let highest = records.iter().map(|record| record.level).max().unwrap_or(0);
    let carries = records.iter().filter(|record| record.level == highest).count() > 1;
    highest + u32::from(carries)
}

fn is_reused(line: &RecordLine, uses: &Uses, now: u64) -> bool {
    let used = uses.of_line(line.text.trim());
    used.count > 1 && now.saturating_sub(used.last) <= REUSED_WITHIN
}

/// Returns the newest positions whose lines fit in the room together.
fn within(places: Vec<usize>, room: usize, all: &[&RecordLine]) -> Vec<usize> {
    let mut used = 0;
    let newest = places.into_iter().rev().take_while(|at| {
        used += all[*at].chars();
        used <= room
    });
    newest.collect()
}

/// Keeps the call lines that are most likely to be used again; returns the characters that they
/// take.
#[expect(clippy::cast_precision_loss, reason = "message numbers are far below 2^52")]
fn keep_calls(
    all: &[&RecordLine],
    keep: &mut HashSet<usize>,
    uses: &Uses,
    now: u64,
    room: usize,
) -> usize {
    let worth = |line: &RecordLine| {
        let used = uses.of_line(line.text.trim());
        let age = now.saturating_sub(used.last.max(line.at)) as f64;
        let repeats = f64::from(used.count.saturating_sub(1)) + FIRST_USE;
        repeats * (-age / LINE_DECAY).exp() / line.chars() as f64
    };
    let calls = (0..all.len()).filter(|at| all[*at].kind == Kind::Call && !keep.contains(at));
    let mut calls: Vec<_> = calls.map(|at| (worth(all[at]), at)).collect();
    calls.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    let mut used = 0;
    let mut named: HashSet<u64> = keep.iter().map(|at| all[*at].at).collect();
    for (_, at) in calls {
        let tool = if named.contains(&all[at].at) { 0 } else { TOOL_CHARS };
        let chars = all[at].chars() + tool;
        if used + chars <= room {
            used += chars;
            keep.insert(at);
            named.insert(all[at].at);
        }
    }
    used
}

/// Keeps the names of the dropped call lines and those that the records list, the most used first.
#[expect(clippy::cast_precision_loss, reason = "message numbers are far below 2^52")]
fn keep_names(
    records: &[Record],
    all: &[&RecordLine],
    keep: &HashSet<usize>,
    known: &mut Known,
    uses: &Uses,
    now: u64,
    room: usize,
) -> Vec<String> {
    let gone = (0..all.len()).filter(|at| all[*at].kind == Kind::Call && !keep.contains(at));
    let of_lines = gone.flat_map(|at| words(&all[at].text));
    let listed = records.iter().flat_map(|record| record.names.iter().map(String::as_str));
    let candidates: HashSet<&str> =
        of_lines.chain(listed).filter(|name| !known.words.contains(*name)).collect();
    let worth = |name: &str| {
        let used = uses.of_word(name);
        f64::from(used.count) * (-(now.saturating_sub(used.last) as f64) / NAME_DECAY).exp()
    };
    let mut candidates: Vec<_> = candidates.into_iter().map(|name| (worth(name), name)).collect();
    candidates.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let (mut names, mut used) = (Vec::new(), 0);
    for (_, name) in candidates {
        let chars = name.chars().count() + 1;
        if used + chars <= room {
            used += chars;
            names.push(name.to_owned());
        }
    }
    known.words.extend(names.iter().cloned());
    names
}

/// Fills the rest of the room with clauses and failures.
fn keep_prose(all: &[&RecordLine], keep: &mut HashSet<usize>, known: &mut Known, room: usize) {
    let is_prose = |at: &usize| matches!(all[*at].kind, Kind::Said | Kind::Failed);
    let prose: Vec<_> = (0..all.len()).filter(is_prose).collect();
    let texts: Vec<&str> = prose.iter().map(|at| all[*at].text.as_str()).collect();
    keep.extend(pick(&texts, known, room, LEAST_WORTH).into_iter().map(|place| prose[place]));
}

/// Returns the lines that stay, in order, each group of call lines below the name of its tool.
fn finished(all: &[&RecordLine], keep: &HashSet<usize>) -> Vec<RecordLine> {
    let mut lines: Vec<RecordLine> = Vec::new();
    let mut tool: Option<&RecordLine> = None;
    for (at, line) in all.iter().enumerate() {
        if line.kind == Kind::Tool {
            tool = Some(line);
        } else if keep.contains(&at) {
            if line.kind == Kind::Call
                && let Some(tool) = tool.take()
            {
                lines.push(tool.clone());
            }
            let mut line = (*line).clone();
            if line.kind == Kind::Asked
                && let Some((end, _)) = line.text.char_indices().nth(REQUEST_CHARS)
            {
                line.text.truncate(end);
                line.text.push_str("...");
            }
            lines.push(line);
        }
    }
    lines
}
