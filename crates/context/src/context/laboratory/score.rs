//! Scores of a policy: the cost of the views that it sends, and the share of needed text that they
//! keep.
//!
//! Pure. The cost is that of the input under prefix caching: the prefix that is byte-equal to that
//! of the request before is read from the cache, everything else is written. What is kept is
//! measured by the agent's next tool call: of the names and whole lines in it that had appeared
//! before, the share that the view holds. A token is four characters of compact JSON; system prompt
//! and messages count, tools do not.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::context::laboratory::replay::SummaryCall;
use crate::context::view::{Standing, View};
use crate::message::Json;
use crate::spec::RelativePrice;

/// Least characters of a name: shorter ones are too common to say anything.
const LEAST_NAME_CHARS: usize = 6;
/// Least characters of a line: shorter ones are too common to say anything.
const LEAST_LINE_CHARS: usize = 16;
/// Least tokens of a prefix that is cached: the smallest such limit of the published models.
const LEAST_CACHED_TOKENS: f64 = 1024.0;
/// A word is old when it was last seen more messages ago than this.
pub(super) const OLD_MESSAGES: u64 = 10;

/// A name or a line as its hash: kept for whole conversations, and never shown.
type Word = u64;

/// Number of hits among a number of wanted items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Number of wanted items that the view held.
    pub held: u64,
    /// Number of wanted items.
    pub of: u64,
}

impl Share {
    pub(super) fn count(&mut self, is_held: bool) {
        self.held += u64::from(is_held);
        self.of += 1;
    }

    /// Returns the share; `None` where nothing was wanted.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn ratio(&self) -> Option<f64> {
        (self.of > 0).then(|| self.held as f64 / self.of as f64)
    }
}

impl std::ops::AddAssign for Share {
    fn add_assign(&mut self, other: Self) {
        self.held += other.held;
        self.of += other.of;
    }
}

/// Cost and kept share of a policy over a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Number of requests.
    pub turns: u64,
    /// Cost of the input and of the summary calls, in input tokens.
    pub billed: f64,
    /// Tokens of the largest request.
    pub largest: f64,
    /// Number of changes of the view.
    pub edits: u64,
    /// Number of model calls for summaries.
    pub summary_calls: u64,
    /// Names that the next tool calls used.
    pub names: Share,
    /// Those of them last seen long before.
    pub names_old: Share,
    /// Whole lines that the next tool calls repeated.
    pub lines: Share,
    /// Those of them last seen long before.
    pub lines_old: Share,
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.turns += other.turns;
        self.billed += other.billed;
        self.largest = self.largest.max(other.largest);
        self.edits += other.edits;
        self.summary_calls += other.summary_calls;
        self.names += other.names;
        self.names_old += other.names_old;
        self.lines += other.lines;
        self.lines_old += other.lines_old;
    }
}

/// Size and words of a message.
#[derive(Debug)]
struct Measured {
    tokens: f64,
    words: Words,
}

/// Names and lines of a text, each once.
#[derive(Debug, Default)]
struct Words {
    names: Box<[Word]>,
    lines: Box<[Word]>,
}

/// The conversation so far: every message, measured once for all policies.
#[derive(Debug, Default)]
pub struct Said {
    messages: Vec<Arc<Measured>>,
    last_name: HashMap<Word, u64>,
    last_line: HashMap<Word, u64>,
}

/// Words of the earlier conversation that the next tool call uses, each with true if it is old.
#[derive(Debug, Default)]
pub struct Used {
    names: Vec<(Word, bool)>,
    lines: Vec<(Word, bool)>,
}

impl Said {
    /// Adds the next message of the conversation.
    pub fn push(&mut self, message: &Json) {
        let number = self.messages.len() as u64;
        let measured = Measured::of(message);
        self.last_name.extend(measured.words.names.iter().map(|word| (*word, number)));
        self.last_line.extend(measured.words.lines.iter().map(|word| (*word, number)));
        self.messages.push(Arc::new(measured));
    }

    /// Returns the earlier words that the next message, a reply, uses in its calls.
    #[must_use]
    pub fn used_by(&self, reply: &Json) -> Used {
        let call = blocks(&reply.to_value())
            .filter(|block| block["type"] == "tool_use")
            .map(|block| plain(&block["input"]))
            .collect::<Vec<_>>();
        let words = Words::of(&call.join("\n"));
        let next = self.messages.len() as u64;
        let seen = |last: &HashMap<Word, u64>, words: &[Word]| {
            let seen = words.iter().filter_map(|word| Some((*word, *last.get(word)?)));
            seen.map(|(word, at)| (word, next - at > OLD_MESSAGES)).collect()
        };
        Used {
            names: seen(&self.last_name, &words.names),
            lines: seen(&self.last_line, &words.lines),
        }
    }
}

/// Scores the views of one policy, one request after the other.
#[derive(Debug)]
pub struct Scorer {
    price: RelativePrice,
    score: Score,
    /// System prompt of the request before, with its size in tokens.
    system: (String, f64),
    parts: Vec<SentMessage>,
    before: f64,
    names: HashMap<Word, u32>,
    lines: HashMap<Word, u32>,
}

/// A message of the request before.
#[derive(Debug)]
struct SentMessage {
    serial: u64,
    json: Json,
    measured: Arc<Measured>,
}

impl Scorer {
    /// Creates a scorer with these prices.
    #[must_use]
    pub fn new(price: RelativePrice) -> Self {
        Self {
            price,
            score: Score::default(),
            system: (String::new(), 0.0),
            parts: Vec::new(),
            before: 0.0,
            names: HashMap::new(),
            lines: HashMap::new(),
        }
    }

    /// Scores a request: this view under this system prompt, after `edits` changes and these
    /// summary calls, sent when the conversation was `said`; the reply to it uses `used`.
    pub fn request(
        &mut self,
        view: &View,
        system: &str,
        (edits, summary_calls): (usize, &[SummaryCall]),
        said: &Said,
        used: &Used,
    ) {
        let cached = self.hold(view, system, said);
        let cached = if cached < LEAST_CACHED_TOKENS { 0.0 } else { cached };
        let total = self.system.1 + self.parts.iter().map(|part| part.measured.tokens).sum::<f64>();
        self.score.turns += 1;
        self.score.edits += edits as u64;
        self.score.summary_calls += summary_calls.len() as u64;
        self.score.billed += self.price.read * cached + self.price.write * (total - cached);
        for call in summary_calls {
            self.score.billed += self.summary(call);
        }
        self.score.largest = self.score.largest.max(total);
        self.before = total;
        self.recall(used);
    }

    /// Returns the score so far.
    #[must_use]
    pub fn score(&self) -> Score {
        self.score
    }

    /// Returns the cost of a summary call, in input tokens.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    fn summary(&self, call: &SummaryCall) -> f64 {
        let (input, output) = (call.input_tokens as f64, call.output_tokens as f64);
        let input = if call.shares_prefix {
            let warm = input.min(self.before);
            self.price.read * warm + self.price.write * (input - warm)
        } else {
            input
        };
        input + self.price.output * output
    }

    /// Makes this request the one before; returns the tokens of the unchanged prefix.
    fn hold(&mut self, view: &View, system: &str, said: &Said) -> f64 {
        let stands = self.parts.iter().zip(view.slots());
        let stands = stands
            .take_while(|(part, slot)| part.serial == slot.serial || part.json == slot.entry.json)
            .count();
        let is_same_system = self.score.turns > 0 && self.system.0 == system;
        for part in self.parts.split_off(stands) {
            release(&mut self.names, &part.measured.words.names);
            release(&mut self.lines, &part.measured.words.lines);
        }
        let cached: f64 = self.parts.iter().map(|part| part.measured.tokens).sum();
        for slot in view.slots().skip(stands) {
            let said = usize::try_from(slot.from).ok().and_then(|place| said.messages.get(place));
            let measured = match said {
                Some(measured) if slot.standing == Standing::Verbatim => measured.clone(),
                _ => Arc::new(Measured::of(&slot.entry.json)),
            };
            hold(&mut self.names, &measured.words.names);
            hold(&mut self.lines, &measured.words.lines);
            let json = slot.entry.json.clone();
            self.parts.push(SentMessage { serial: slot.serial, json, measured });
        }
        if is_same_system {
            return self.system.1 + cached;
        }
        let before = Words::of(&self.system.0);
        release(&mut self.names, &before.names);
        release(&mut self.lines, &before.lines);
        let words = Words::of(system);
        hold(&mut self.names, &words.names);
        hold(&mut self.lines, &words.lines);
        self.system = (system.to_owned(), tokens(system));
        0.0
    }

    fn recall(&mut self, used: &Used) {
        for (word, is_old) in &used.names {
            let is_held = self.names.contains_key(word);
            self.score.names.count(is_held);
            if *is_old {
                self.score.names_old.count(is_held);
            }
        }
        for (word, is_old) in &used.lines {
            let is_held = self.lines.contains_key(word);
            self.score.lines.count(is_held);
            if *is_old {
                self.score.lines_old.count(is_held);
            }
        }
    }
}

fn hold(held: &mut HashMap<Word, u32>, words: &[Word]) {
    for word in words {
        *held.entry(*word).or_default() += 1;
    }
}

fn release(held: &mut HashMap<Word, u32>, words: &[Word]) {
    for word in words {
        if let Some(count) = held.get_mut(word) {
            *count -= 1;
            if *count == 0 {
                held.remove(word);
            }
        }
    }
}

impl Measured {
    fn of(message: &Json) -> Self {
        match message.decode::<Value>() {
            Ok(value) => {
                Self { tokens: tokens(&value.to_string()), words: Words::of(&text(&value)) }
            }
            // A string with half a surrogate pair, or nesting too deep to decode: measured as it
            // stands.
            Err(_) => Self { tokens: tokens(message.as_str()), words: Words::of(message.as_str()) },
        }
    }
}

impl Words {
    fn of(text: &str) -> Self {
        let names: HashSet<_> = names(text).map(word).collect();
        let lines: HashSet<_> = lines(text).map(word).collect();
        Self { names: names.into_iter().collect(), lines: lines.into_iter().collect() }
    }
}

fn word(text: &str) -> Word {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns paths and identifiers.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let runs = text.split(move |c| !is_part(c));
    let names = runs.filter_map(|run| {
        let start = run.find(|c: char| c.is_ascii_alphabetic() || c == '_')?;
        Some(&run[start..]).filter(|name| name.len() >= LEAST_NAME_CHARS)
    });
    names.map(|name| name.trim_end_matches(['.', '/', '-'])).filter(|name| !name.is_empty())
}

/// Returns whole lines.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let is_space = |c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c);
    let lines = text.split('\n').map(move |line| line.trim_matches(is_space));
    lines.filter(|line| line.chars().count() >= LEAST_LINE_CHARS)
}

/// Returns the text of a message: its texts, the texts within its calls, and its results.
pub(super) fn text(message: &Value) -> String {
    if let Value::String(text) = &message["content"] {
        return text.clone();
    }
    let parts = blocks(message).filter_map(|block| match block["type"].as_str()? {
        "text" => Some(block["text"].as_str()?.to_owned()),
        "tool_use" => Some(plain(&block["input"])),
        "tool_result" => Some(result_text(block)),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// Returns the text of a result.
pub(super) fn result_text(block: &Value) -> String {
    match &block["content"] {
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| part["text"].as_str().unwrap_or_default());
            texts.collect::<Vec<_>>().join(" ")
        }
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}

pub(super) fn blocks(message: &Value) -> impl Iterator<Item = &Value> {
    message["content"].as_array().into_iter().flatten()
}

/// Returns the texts inside a tool's input, without their JSON escapes.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join("\n"),
        Value::Object(members) => members.values().map(plain).collect::<Vec<_>>().join("\n"),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a text has far fewer than 2^52 characters")]
fn tokens(text: &str) -> f64 {
    text.chars().count() as f64 / 4.0
}

#[cfg(test)]
mod tests;
