//! Gathering: makes the first record of a range from its messages.

use std::collections::HashMap;

use crate::context::record::words::{LINE_CHARS, clauses, is_name, strings_of, words};
use crate::context::record::{Kind, Known, LEAST_WORTH, Record, RecordLine, merge, pick};
use crate::context::view::{Slot, Standing, View};
use crate::message::{Block, Message};

/// Most characters of a request that is no longer the active one.
const REQUEST_CHARS: usize = 300;
/// Most characters of a clause.
const CLAUSE_CHARS: usize = 200;
/// Most characters of a line that reports a failure.
const FAILED_CHARS: usize = 100;
/// Divisor for the agent's own words: at most a third of their characters stay.
const SAID_SHARE: usize = 3;
/// Most names that stay because results showed them more than once.
const MOST_NAMES: usize = 60;
/// Most characters of a name: a longer run of letters is data.
const MOST_NAME_CHARS: usize = 80;
/// Least number of results that held a name for it to stay.
const SEEN_OFTEN: u32 = 2;

/// Returns the record of a range of the view. Text that `known` already has is left out; the text
/// of the record is added to `known`.
#[must_use]
pub fn gather(view: &View, from: u64, to: u64, known: &mut Known) -> Record {
    let (lines, names) = gather_slots(view, view.covered(from, to), known);
    Record { from, to, lines, names, ..Record::default() }
}

/// Returns the lines and the names of these slots.
fn gather_slots<'a>(
    view: &View,
    slots: impl IntoIterator<Item = &'a Slot>,
    known: &mut Known,
) -> (Vec<RecordLine>, Vec<String>) {
    let mut lines = Vec::new();
    let mut seen: HashMap<String, u32> = HashMap::new();
    let active = view.slots().rfind(|slot| slot.entry.is_request).map(|slot| slot.serial);
    // The active request stays word for word, outside the record.
    for slot in slots.into_iter().filter(|slot| Some(slot.serial) != active) {
        let Ok(message) = slot.entry.json.decode::<Message>() else { continue };
        for block in &message.content {
            gather_block(slot, block, known, &mut lines, &mut seen, view);
        }
    }
    let lines = keep_said(lines, known);
    let names = names(seen, known);
    (lines, names)
}

impl RecordLine {
    /// Creates the line of a request that is no longer the active one.
    #[must_use]
    pub fn asked(at: u64, text: &str) -> Self {
        Self { at, kind: Kind::Asked, text: one_line(text, REQUEST_CHARS) }
    }
}

/// Returns the record of a range that may already hold records, of about `most_chars` characters at
/// most.
#[must_use]
pub fn gather_within(view: &View, from: u64, to: u64, most_chars: usize) -> Record {
    let mut known = Known::default();
    let mut whole = Record { from, to, ..Record::default() };
    let slots: Vec<&Slot> = view.covered(from, to).collect();
    for run in slots.chunk_by(|a, b| a.record.is_none() && b.record.is_none()) {
        let (lines, names) = match run {
            [Slot { record: Some(record), .. }] => {
                known.add_record(record);
                whole.level = whole.level.max(record.level);
                (record.lines.clone(), record.names.clone())
            }
            run => gather_slots(view, run.iter().copied(), &mut known),
        };
        whole.lines.extend(lines);
        whole.names.extend(names);
    }
    if whole.chars() <= most_chars {
        return whole;
    }
    let (uses, now) = (view.uses(), view.next_message());
    merge(&[whole], uses, now, &mut Known::default(), 1.0, most_chars)
}

fn gather_block(
    slot: &Slot,
    block: &Block,
    known: &mut Known,
    lines: &mut Vec<RecordLine>,
    seen: &mut HashMap<String, u32>,
    view: &View,
) {
    let at = slot.from.min(slot.to.saturating_sub(1));
    match block {
        Block::Text(text) if slot.entry.is_request => {
            let line = RecordLine::asked(at, text);
            known.add(&line.text);
            lines.push(line);
        }
        // Fillers, which only keep roles alternating, say nothing.
        Block::Text(_) if slot.standing == Standing::Instead && slot.from == slot.to => {}
        Block::Text(text) => lines.extend(clauses(text).map(|clause| {
            let text = one_line(clause, CLAUSE_CHARS);
            RecordLine { at, kind: Kind::Said, text }
        })),
        // The present todo list stands beside the record, as part of the state.
        Block::ToolUse(call) if call.name == "todo_write" => {}
        Block::ToolUse(call) => {
            let before = lines.len();
            lines.push(RecordLine {
                at,
                kind: Kind::Tool,
                text: one_line(&call.name, CLAUSE_CHARS),
            });
            for line in strings_of(&call.input).lines() {
                let trimmed = line.trim();
                let is_short = trimmed.chars().take(LINE_CHARS).count() < LINE_CHARS;
                let is_new =
                    if is_short { known.new_words(trimmed) > 0 } else { !known.has_line(trimmed) };
                if is_new {
                    known.add(line);
                    lines.push(RecordLine { at, kind: Kind::Call, text: line.to_owned() });
                }
            }
            // The name of a tool without a new line below it says nothing.
            if lines.len() == before + 1 {
                lines.truncate(before);
            }
        }
        Block::ToolResult(result) => {
            let text = result.text();
            let failed = text.lines().map(str::trim).rfind(|line| tells_of_failure(line));
            if let Some(line) = failed.map(|line| one_line(line, FAILED_CHARS))
                && !known.has_line(&line)
            {
                known.add(&line);
                lines.push(RecordLine { at, kind: Kind::Failed, text: line });
            }
            for word in words(&text) {
                let often = view.uses().seen(word);
                let is_name = is_name(word) && word.chars().nth(MOST_NAME_CHARS).is_none();
                if often >= SEEN_OFTEN && is_name && !known.has_word(word) {
                    seen.insert(word.to_owned(), often);
                }
            }
        }
        Block::Other(_) => {}
    }
}

/// Drops the clauses that say nothing new or too little for their size.
fn keep_said(lines: Vec<RecordLine>, known: &mut Known) -> Vec<RecordLine> {
    let said: Vec<_> = (0..lines.len()).filter(|at| lines[*at].kind == Kind::Said).collect();
    let clauses: Vec<&str> = said.iter().map(|at| lines[*at].text.as_str()).collect();
    let all: usize = said.iter().map(|at| lines[*at].chars()).sum();
    let picked = pick(&clauses, known, all / SAID_SHARE, LEAST_WORTH);
    let mut keep: Vec<bool> = lines.iter().map(|line| line.kind != Kind::Said).collect();
    for place in picked {
        keep[said[place]] = true;
    }
    lines.into_iter().zip(keep).filter_map(|(line, keep)| keep.then_some(line)).collect()
}

/// Returns the names that results showed most often and that no line of the record has.
fn names(seen: HashMap<String, u32>, known: &mut Known) -> Vec<String> {
    let mut names: Vec<_> = seen.into_iter().collect();
    names.retain(|(name, _)| !known.has_word(name));
    names.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    names.truncate(MOST_NAMES);
    let names: Vec<String> = names.into_iter().map(|(name, _)| name).collect();
    known.add_names(&names);
    names
}

/// Returns true if a line of a result reports a failure, judged by common words for one.
fn tells_of_failure(line: &str) -> bool {
    let lower = line.to_lowercase();
    ["error", "fail", "exception", "traceback", "panicked", "assert"]
        .iter()
        .any(|word| lower.contains(word))
}

/// Returns the beginning of a text as one line.
fn one_line(text: &str, most_chars: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > most_chars {
            break;
        }
    }
    match line.char_indices().nth(most_chars) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
