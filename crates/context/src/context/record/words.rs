//! Words, lines and values: the pieces of a text that is to be shortened.
//!
//! Pure. [`Uses`] counts the lines and words that an agent writes into its own tool calls: an agent
//! is likely to use again what it used before.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use ahash::RandomState;
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
    Runs { text, at: 0 }.filter_map(|run| {
        let begins = match run.as_bytes() {
            [b'a'..=b'z' | b'A'..=b'Z' | b'_', ..] => 0,
            _ => run.find(|c: char| c.is_alphabetic() || c == '_')?,
        };
        let word = &run[begins..];
        // A text has at most as many characters as bytes.
        let is_long = word.len() >= WORD_CHARS
            && (word.is_ascii() || word.chars().take(WORD_CHARS).count() == WORD_CHARS);
        is_long.then(|| word.trim_end_matches(['.', '/', '-'])).filter(|word| !word.is_empty())
    })
}

/// The runs of characters that words consist of.
struct Runs<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Runs<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        let sort = |at: usize| bytes.get(at).map(|byte| SORTS[usize::from(*byte)]);
        let mut begin = self.at;
        loop {
            while sort(self.at) == Some(Sort::Part) {
                self.at += 1;
            }
            let width = match sort(self.at) {
                None => {
                    let run = &self.text[begin..];
                    return (!run.is_empty()).then_some(run);
                }
                Some(Sort::Part | Sort::Gap) => 1,
                Some(Sort::Foreign) => {
                    let c = self.text[self.at..].chars().next()?;
                    if c.is_alphanumeric() {
                        self.at += c.len_utf8();
                        continue;
                    }
                    c.len_utf8()
                }
            };
            let run = &self.text[begin..self.at];
            self.at += width;
            if !run.is_empty() {
                return Some(run);
            }
            begin = self.at;
        }
    }
}

/// What a byte is for words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Part,
    Gap,
    /// A byte of a character beyond ASCII, which Unicode's tables know.
    Foreign,
}

const SORTS: [Sort; 256] = {
    let mut sorts = [Sort::Foreign; 256];
    let mut at = 0;
    while at < 128 {
        let byte = at as u8;
        let is_part = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-');
        sorts[at] = if is_part { Sort::Part } else { Sort::Gap };
        at += 1;
    }
    sorts
};

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
    lines: Counts,
    words: Counts,
    seen: Counts,
    said: Counts,
}

impl Uses {
    /// Adds the arguments of a call of this message.
    pub fn note_call(&mut self, message: u64, input: &str) {
        self.lines.note(message, lines(input));
        self.words.note(message, words(input));
    }

    /// Adds a result of this message.
    pub fn note_result(&mut self, message: u64, content: &str) {
        self.seen.note(message, words(content));
    }

    /// Adds what the agent said in this message.
    pub fn note_said(&mut self, message: u64, text: &str) {
        self.said.note(message, words(text));
    }

    /// Returns the use of a word in what the agent said.
    #[must_use]
    pub fn in_said(&self, word: &str) -> Use {
        self.said.of(word)
    }

    /// Returns the use of a word in results.
    #[must_use]
    pub fn in_results(&self, word: &str) -> Use {
        self.seen.of(word)
    }

    /// Returns the use of a line in calls.
    #[must_use]
    pub fn of_line(&self, line: &str) -> Use {
        self.lines.of(line)
    }

    /// Returns the use of a word in calls.
    #[must_use]
    pub fn of_word(&self, word: &str) -> Use {
        self.words.of(word)
    }
}

/// The uses of lines or words, by the hashes of their texts.
#[derive(Clone, Debug, Default)]
struct Counts {
    uses: HashMap<u64, Counted, BuildHasherDefault<Hashed>>,
    /// Number of calls or results so far.
    notes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    count: u32,
    /// Number of the last call or result that held it: each counts once.
    note: u32,
    last: u64,
}

impl Counts {
    fn note<'a>(&mut self, message: u64, items: impl Iterator<Item = &'a str>) {
        self.notes = self.notes.wrapping_add(1);
        for item in items {
            let used = self.uses.entry(KEYS.hash_one(item)).or_default();
            if used.count == 0 || used.note != self.notes {
                used.count += 1;
            }
            (used.note, used.last) = (self.notes, message);
        }
        if self.uses.len() > MOST_USES {
            let mut ages: Vec<u64> = self.uses.values().map(|used| used.last).collect();
            let middle = ages.len() / 2;
            let (_, median, _) = ages.select_nth_unstable(middle);
            let median = *median;
            self.uses.retain(|_, used| used.last > median);
        }
    }

    fn of(&self, item: &str) -> Use {
        let used = self.uses.get(&KEYS.hash_one(item)).copied().unwrap_or_default();
        Use { count: used.count, last: used.last }
    }
}

/// The secret of the hashes: whoever writes the texts cannot choose words whose hashes meet.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash of a key that is a hash itself.
#[derive(Clone, Copy, Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        // Keys of other types are not hashed with it; all of their bytes count all the same.
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_names_paths_and_long_words() {
        let found: Vec<_> =
            words("see src/lib.rs: 12parse_all(x), naïveté in it. a-b-c-d").collect();
        assert_eq!(found, ["src/lib.rs", "parse_all", "naïveté", "a-b-c-d"]);
    }

    /// The words as a plain reading of the rule gives them.
    fn plain(text: &str) -> Vec<&str> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
        let runs = text.split(move |c: char| !is_part(c));
        let words = runs.filter_map(|run| {
            let word = &run[run.find(|c: char| c.is_alphabetic() || c == '_')?..];
            let is_long = word.chars().take(WORD_CHARS).count() == WORD_CHARS;
            is_long.then(|| word.trim_end_matches(['.', '/', '-'])).filter(|word| !word.is_empty())
        });
        words.collect()
    }

    proptest! {
        #[test]
        fn words_are_found_in_any_text(
            parts in prop::collection::vec("[a-z_./0-9-]{0,9}|[ \\n,(]{1,2}|[äé漢٣ª🚀ǅ_]{1,7}", 0..12),
        ) {
            let text = parts.concat();
            prop_assert_eq!(words(&text).collect::<Vec<_>>(), plain(&text), "{:?}", text);
        }
    }

    #[test]
    fn a_call_counts_once_and_several_of_a_message_count_each() {
        let mut uses = Uses::default();
        uses.note_call(0, "parse_all parse_all");
        assert_eq!(uses.of_word("parse_all"), Use { count: 1, last: 0 });
        uses.note_call(0, "parse_all");
        assert_eq!(uses.of_word("parse_all"), Use { count: 2, last: 0 });
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
        assert!(uses.seen.uses.len() <= MOST_USES);
        assert_eq!(uses.in_results(&format!("word-{}", MOST_USES + 9)).count, 1);
    }
}
