//! Asks the views of a policy for the facts of the conversation, before each reply: what its agent
//! would have to know and could see nowhere else.
//!
//! Pure. A fact is asked for once it stands more than ten messages back. Each message of a view is
//! read once and remembered as long as it stands there, so a question costs little more than the
//! messages that are new.

use std::collections::HashMap;

use serde::Serialize;

use super::facts::{Facts, FileFact, MOST_BEFORE, RunFact};
use super::score::{OLD_MESSAGES, Share, blocks, result_text, text};
use crate::context::view::{Slot, Standing, View};
use crate::message::Json;

/// Bytes behind a command within which its outcome must stand.
const BEHIND_COMMAND: usize = 700;
/// Most bytes of a command that are looked for.
const COMMAND_BYTES: usize = 80;
/// The share of a file's lines that must stand in one message, in their order.
const WHOLE: f64 = 0.9;

/// The share of the facts that the views answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answers {
    /// Binding sentences of people, of any request, that stand word for word.
    pub constraints: Share,
    /// Files changed for the open request whose path stands.
    pub files: Share,
    /// Those whose newest text, or newest edit, stands.
    pub files_whole: Share,
    /// Test and build commands of the open request whose last outcome stands with them.
    pub outcomes: Share,
    /// Values that the reply cites and that a result gave long before.
    pub values: Share,
    /// Neighbouring lines of quoted calls that were neighbours when they were written.
    pub order: Share,
}

impl std::ops::AddAssign for Answers {
    fn add_assign(&mut self, other: Self) {
        self.constraints += other.constraints;
        self.files += other.files;
        self.files_whole += other.files_whole;
        self.outcomes += other.outcomes;
        self.values += other.values;
        self.order += other.order;
    }
}

impl Answers {
    /// Returns the shares with their names.
    #[must_use]
    pub fn all(&self) -> [(&'static str, Share); 6] {
        [
            ("constraints", self.constraints),
            ("files", self.files),
            ("files_whole", self.files_whole),
            ("outcomes", self.outcomes),
            ("values", self.values),
            ("order", self.order),
        ]
    }
}

/// A message of a view, with what is known of it.
#[derive(Debug)]
struct Read {
    text: String,
    /// Its lines, without blanks at their ends, and without the signs of a hunk.
    lines: Vec<String>,
    bare: Vec<String>,
    /// The results in it, by the id of their call.
    results: HashMap<String, String>,
    is_recorded: bool,
    /// The binding sentences that were looked for, in their order: true where it stands.
    sentences: Vec<bool>,
    files: HashMap<u64, bool>,
    runs: HashMap<u64, bool>,
    order: Option<Share>,
}

/// Asks the views of one policy, one request after the other.
#[derive(Debug, Default)]
pub struct Asker {
    answers: Answers,
    read: HashMap<u64, Read>,
}

impl Asker {
    /// Asks a view under this system prompt, sent when the conversation was `facts`; `reply` follows.
    pub fn request(&mut self, view: &View, system: &str, facts: &Facts, reply: &Json) {
        let mut before = std::mem::take(&mut self.read);
        let mut order = Vec::new();
        for slot in view.slots() {
            let read = before.remove(&slot.serial).unwrap_or_else(|| Read::of(slot));
            self.read.insert(slot.serial, read);
            order.push(slot.serial);
        }
        let is_old = |at: u64| facts.messages.saturating_sub(at) > OLD_MESSAGES;
        let binding = &facts.binding;
        self.read.values_mut().for_each(|read| read.look_for(binding));
        for (number, (at, sentence)) in binding.iter().enumerate() {
            if is_old(*at) {
                let stands = self.any(|read| read.sentences[number]) || system.contains(sentence);
                self.answers.constraints.count(stands);
            }
        }
        for (path, fact) in facts.files.iter().filter(|(_, fact)| is_old(fact.at)) {
            let end = path.rsplit('/').take(2).collect::<Vec<_>>();
            let end = (end.len() == 2).then(|| format!("{}/{}", end[1], end[0]));
            let names = |read: &Read| {
                read.text.contains(path) || end.as_ref().is_some_and(|end| read.text.contains(end))
            };
            let is_named = self.any(names);
            self.answers.files.count(is_named);
            if !fact.lines.is_empty() {
                let stands = self.read.values_mut().any(|read| read.holds_file(fact));
                self.answers.files_whole.count(stands);
            }
        }
        for (command, fact) in facts.runs.iter().filter(|(_, fact)| is_old(fact.at)) {
            let others =
                facts.runs.keys().filter(|other| *other != command).map(|other| head(other));
            let others: Vec<_> = others.filter(|other| other.len() > 12).collect();
            let stands =
                self.read.values_mut().any(|read| read.holds_outcome(command, fact, &others));
            self.answers.outcomes.count(stands);
        }
        for value in Facts::values_in(reply) {
            if facts.values.get(&value).is_some_and(|at| is_old(*at)) {
                let stands = self.any(|read| read.text.contains(&value));
                self.answers.values.count(stands || system.contains(&value));
            }
        }
        for serial in order {
            if let Some(read) = self.read.get_mut(&serial) {
                self.answers.order += read.order_in(facts);
            }
        }
    }

    /// Returns the answers so far.
    #[must_use]
    pub fn answers(&self) -> Answers {
        self.answers
    }

    fn any(&self, holds: impl Fn(&Read) -> bool) -> bool {
        self.read.values().any(holds)
    }
}

impl Read {
    fn of(slot: &Slot) -> Self {
        let value = slot.entry.json.to_value();
        let text = text(&value);
        let lines: Vec<String> = text.split('\n').map(|line| line.trim().to_owned()).collect();
        let bare = lines.iter().map(|line| bare(line).to_owned()).collect();
        let results = blocks(&value).filter(|block| block["type"] == "tool_result");
        let results = results.map(|block| {
            let id = block["tool_use_id"].as_str().unwrap_or_default();
            (id.to_owned(), result_text(block))
        });
        Self {
            results: results.collect(),
            is_recorded: slot.standing == Standing::Verbatim,
            text,
            lines,
            bare,
            sentences: Vec::new(),
            files: HashMap::new(),
            runs: HashMap::new(),
            order: None,
        }
    }

    fn look_for(&mut self, binding: &[(u64, String)]) {
        let new = binding.iter().skip(self.sentences.len());
        let stands = new.map(|(_, sentence)| self.text.contains(sentence)).collect::<Vec<_>>();
        self.sentences.extend(stands);
    }

    fn holds_file(&mut self, fact: &FileFact) -> bool {
        if let Some(known) = self.files.get(&fact.version) {
            return *known;
        }
        let holds = share_in_order(&fact.lines, &self.bare) >= WHOLE
            || share_in_order(&fact.lines, &self.lines) >= WHOLE;
        self.files.insert(fact.version, holds);
        holds
    }

    /// Returns true if the outcome of a command stands in its result, or behind the command and before
    /// the next one.
    fn holds_outcome(&mut self, command: &str, fact: &RunFact, others: &[&str]) -> bool {
        if let Some(known) = self.runs.get(&fact.version) {
            return *known;
        }
        let in_result =
            self.results.get(&fact.call).is_some_and(|result| result.contains(&fact.end));
        let head = head(command);
        let behind = self.text.match_indices(head).any(|(at, _)| {
            let rest = &self.text[at + head.len()..];
            let longest = command.len() - head.len() + BEHIND_COMMAND;
            let span = cut(rest, longest);
            let next = others.iter().filter(|other| !other.starts_with(head));
            let next = next.filter_map(|other| span.find(other)).min().unwrap_or(span.len());
            span[..next].contains(&fact.end)
        });
        self.runs.insert(fact.version, in_result || behind);
        in_result || behind
    }

    /// Returns how many neighbouring lines of calls stand here, and how many of them were neighbours. A
    /// recorded message quotes nothing.
    fn order_in(&mut self, facts: &Facts) -> Share {
        if self.is_recorded {
            return Share::default();
        }
        *self.order.get_or_insert_with(|| {
            let mut share = Share::default();
            for at in 1..self.lines.len() {
                let pairs = [&self.lines, &self.bare].map(|lines| (&lines[at - 1], &lines[at]));
                let known = pairs.into_iter().find_map(|(first, second)| {
                    let before = facts.before.get(second).filter(|all| all.len() < MOST_BEFORE)?;
                    facts.written.contains(first).then(|| before.contains(first))
                });
                if let Some(were_neighbours) = known {
                    share.count(were_neighbours);
                }
            }
            share
        })
    }
}

/// Returns the beginning of a command, by which it is looked for.
fn head(command: &str) -> &str {
    cut(command.lines().next().unwrap_or_default(), COMMAND_BYTES)
}

/// Returns the beginning of a text, of at most so many bytes.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes.min(text.len()))]
}

/// Returns a line without the signs of a hunk.
fn bare(line: &str) -> &str {
    line.trim_start_matches(['+', '-', ' ']).trim()
}

/// Returns the share of the wanted lines that stand among others in their order.
#[expect(clippy::cast_precision_loss, reason = "a file has far fewer than 2^52 lines")]
fn share_in_order(wanted: &[String], lines: &[String]) -> f64 {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        places.entry(line).or_default().push(at);
    }
    let (mut next, mut found) = (0, 0);
    for line in wanted {
        let at = places.get(line.as_str()).and_then(|all| {
            let first = all.partition_point(|at| *at < next);
            all.get(first).copied()
        });
        if let Some(at) = at {
            (next, found) = (at + 1, found + 1);
        }
    }
    f64::from(found) / (wanted.len().max(1) as f64)
}

#[cfg(test)]
mod tests;
