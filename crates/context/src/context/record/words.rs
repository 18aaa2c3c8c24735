//! Words, lines and values: the pieces of a text that is to be shortened.
//!
//! Pure. [`Uses`] counts the lines and words that an agent writes into its own tool calls: an agent
//! is likely to use again what it used before.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::message::Json;

/// Least characters of a word: shorter ones are in every text and say nothing.
const WORD_CHARS: usize = 6;
/// Least characters of a line: shorter ones (`}`, `else:`) are not worth remembering.
pub const LINE_CHARS: usize = 16;

/// Most entries of each table of counts. Beyond it the half that was used longest ago is forgotten.
const MOST_USES: usize = 1 << 16;

/// A number of three digits and more, a hash or a version.
static VALUE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(0x[0-9a-f]{4,}|\d+\.\d+(?:\.\d+)+|\d{3,})\b").expect("a valid pattern")
});

/// Returns the words of a text: names, paths and words of prose of six characters or more.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
    let runs = text.split(move |c: char| !is_part(c));
    runs.filter_map(|run| {
        let begins = run.find(|c: char| c.is_alphabetic() || c == '_')?;
        let word = &run[begins..];
        (word.chars().take(WORD_CHARS).count() == WORD_CHARS)
            .then(|| word.trim_end_matches(['.', '/', '-']))
            .filter(|word| !word.is_empty())
    })
}

/// Returns the numbers of three digits and more, hashes and versions in a text.
pub fn values(text: &str) -> impl Iterator<Item = &str> {
    let is_joined = |c: Option<char>| c.is_some_and(|c| c == '.' || c.is_alphanumeric());
    VALUE.find_iter(text).filter_map(move |found| {
        let is_part = is_joined(text[..found.start()].chars().next_back());
        // A full stop ends a sentence, not a version.
        let mut after = text[found.end()..].chars();
        let goes_on = after.next() == Some('.') && after.next().is_some_and(char::is_alphanumeric);
        (!is_part && !goes_on).then_some(found.as_str())
    })
}

/// Returns true if a word names something (a path, an identifier) and is not a word of prose.
#[must_use]
pub fn is_name(word: &str) -> bool {
    word.chars().skip(1).any(|c| c.is_uppercase() || c.is_numeric() || matches!(c, '_' | '.' | '/'))
}

/// Returns the lines of a text that are long enough to be told apart, without the space around
/// them.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| line.chars().take(LINE_CHARS).count() == LINE_CHARS)
}

/// Returns the strings in a tool's arguments, with a line break between them.
#[must_use]
pub fn strings_of(input: &Json) -> String {
    fn gather(value: &Value, all: &mut Vec<String>) {
        match value {
            Value::String(text) => all.push(text.clone()),
            Value::Array(values) => values.iter().for_each(|value| gather(value, all)),
            Value::Object(fields) => fields.values().for_each(|value| gather(value, all)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut all = Vec::new();
    gather(&input.to_value(), &mut all);
    all.join("\n")
}

/// Number of uses of a line or a word, and the message of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Number of calls or results that hold it.
    pub count: u32,
    /// Number of the message with the last of them.
    pub last: u64,
}

/// Counts of the lines and words in an agent's tool calls, and of the words in the results and in what
/// it said.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    lines: HashMap<u64, Use>,
    words: HashMap<u64, Use>,
    seen: HashMap<u64, Use>,
    said: HashMap<u64, Use>,
}

impl Uses {
    /// Adds the arguments of a call of this message.
    pub fn note_call(&mut self, message: u64, input: &str) {
        note(&mut self.lines, message, lines(input));
        note(&mut self.words, message, words(input));
    }

    /// Adds a result of this message.
    pub fn note_result(&mut self, message: u64, content: &str) {
        note(&mut self.seen, message, words(content));
    }

    /// Adds what the agent said in this message.
    pub fn note_said(&mut self, message: u64, text: &str) {
        note(&mut self.said, message, words(text));
    }

    /// Returns the use of a word in what the agent said.
    #[must_use]
    pub fn in_said(&self, word: &str) -> Use {
        self.said.get(&key(word)).copied().unwrap_or_default()
    }

    /// Returns the use of a word in results.
    #[must_use]
    pub fn in_results(&self, word: &str) -> Use {
        self.seen.get(&key(word)).copied().unwrap_or_default()
    }

    /// Returns the use of a line in calls.
    #[must_use]
    pub fn of_line(&self, line: &str) -> Use {
        self.lines.get(&key(line)).copied().unwrap_or_default()
    }

    /// Returns the use of a word in calls.
    #[must_use]
    pub fn of_word(&self, word: &str) -> Use {
        self.words.get(&key(word)).copied().unwrap_or_default()
    }
}

fn key(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn note<'a>(uses: &mut HashMap<u64, Use>, message: u64, items: impl Iterator<Item = &'a str>) {
    let once: HashSet<&str> = items.collect();
    for item in once {
        let used = uses.entry(key(item)).or_default();
        used.count += 1;
        used.last = message;
    }
    if uses.len() > MOST_USES {
        let mut ages: Vec<u64> = uses.values().map(|used| used.last).collect();
        let middle = ages.len() / 2;
        let (_, median, _) = ages.select_nth_unstable(middle);
        let median = *median;
        uses.retain(|_, used| used.last > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_names_paths_and_long_words() {
        let found: Vec<_> =
            words("see src/lib.rs: 12parse_all(x), naïveté in it. a-b-c-d").collect();
        assert_eq!(found, ["src/lib.rs", "parse_all", "naïveté", "a-b-c-d"]);
    }

    #[test]
    fn uses_are_counted_by_message_and_bounded() {
        let mut uses = Uses::default();
        uses.note_call(1, "cargo test --lib words\ncargo test --lib words");
        uses.note_call(3, "cargo test --lib words");
        assert_eq!(uses.of_line("cargo test --lib words"), Use { count: 2, last: 3 });
        for message in 0..(MOST_USES as u64 + 10) {
            uses.note_result(message, &format!("word-{message}"));
        }
        assert!(uses.seen.len() <= MOST_USES);
        assert_eq!(uses.in_results(&format!("word-{}", MOST_USES + 9)).count, 1);
    }
}
