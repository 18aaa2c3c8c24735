//! Fingerprints: short hashes by which a call that is made again, and a result that says the same again, are
//! recognised.
//!
//! Pure. A text is hashed in one pass, without the parts that differ each time although nothing has changed
//! (`normal`). Owns what counts as the same call, the same result and the same error; decides nothing from it.

mod normal;

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::normal::{Parts, normalised};
use crate::message::Json;

/// The most bytes of arguments that are read as JSON: longer ones hold a whole file, which is hashed as it is.
const READ_BYTES: usize = 64 << 10;

/// The most bytes of an error that tell its kind: a message and a few lines of a trace.
const ERROR_BYTES: usize = 600;

/// The most bytes of arguments that are looked for in an error.
const NAMED_BYTES: usize = 4 << 10;

/// What tools return that print nothing.
const SILENCE: [&str; 2] = ["", "(no output)"];

/// The longest result that may say "nothing found".
const BARE_BYTES: usize = 200;

/// A hash of 64 bits, written as 16 hexadecimal digits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Fingerprint(u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<Fingerprint> for String {
    fn from(print: Fingerprint) -> Self {
        print.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Self)
    }
}

impl Fingerprint {
    /// Returns the fingerprint of a text as it is.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self::ended(Hasher::of("text").with(text.as_bytes()))
    }

    /// Returns the fingerprint of a call: the tool and its arguments. The order of keys, white space around a text,
    /// `./` before a path, times and the length of a `sleep` do not count. Only the arguments in `keys` count, if there are any.
    #[must_use]
    pub fn of_call(tool: &str, input: &Json, keys: &[String]) -> Self {
        let mut hasher = Hasher::of("call").with(tool.as_bytes()).with(&[0]);
        let text = input.as_str();
        let read = (text.len() <= READ_BYTES).then(|| serde_json::from_str(text).ok()).flatten();
        match read {
            Some(Value::Object(mut fields)) => {
                if !keys.is_empty() {
                    fields.retain(|name, _| keys.contains(name));
                }
                hash_value(&mut hasher, &Value::Object(fields));
            }
            Some(value) => hash_value(&mut hasher, &value),
            None => hasher.add(text.as_bytes()),
        }
        Self::ended(hasher)
    }

    /// Returns the fingerprint of a result. Times, durations, ids of processes and requests, addresses in memory, names of
    /// temporary files and white space at the ends do not count.
    #[must_use]
    pub fn of_result(text: &str) -> Self {
        let mut hasher = Hasher::of("result");
        normalised(text.trim(), Parts::All, &mut |bytes| hasher.add(bytes));
        Self::ended(hasher)
    }

    /// Returns true if this is the fingerprint of a result that is empty.
    #[must_use]
    pub fn is_of_silence(self) -> bool {
        SILENCE.iter().any(|text| self == Self::of_result(text))
    }

    /// Returns the fingerprint of an error without what it says of the arguments of the call: words with digits, and
    /// words that stand in the arguments. `None` if the rest says nothing, as a bare exit code does.
    #[must_use]
    pub fn of_error(tool: &str, text: &str, input: &Json) -> Option<Self> {
        let given: BTreeSet<&str> = words(beginning(input.as_str(), NAMED_BYTES)).collect();
        let mut hasher = Hasher::of("error").with(tool.as_bytes());
        let (mut telling, mut was_left_out) = (0, false);
        for word in words(beginning(text, ERROR_BYTES)) {
            let is_left_out = word.contains(|c: char| c.is_ascii_digit()) || given.contains(word);
            if !is_left_out {
                telling += usize::from(!STATUS_WORDS.contains(&word.to_lowercase().as_str()));
                hasher.add(word.as_bytes());
                hasher.add(&[0]);
            } else if !was_left_out {
                hasher.add(&[1]);
            }
            was_left_out = is_left_out;
        }
        (telling >= 2).then(|| Self::ended(hasher))
    }

    /// Returns the fingerprint of several ones, whatever their order.
    #[must_use]
    pub fn of_all(prints: impl IntoIterator<Item = Self>) -> Self {
        Self(prints.into_iter().fold(0, |all, print| all.wrapping_add(print.0)))
    }

    /// Returns the fingerprint of two, in this order.
    #[must_use]
    pub fn of_pair(one: Self, other: Self) -> Self {
        Self(one.0.rotate_left(17) ^ other.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn ended(hasher: Hasher) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *hasher.0.finalize().as_bytes();
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

/// Words that tell only that something failed.
const STATUS_WORDS: [&str; 8] =
    ["error", "exit", "code", "status", "failed", "with", "command", "the"];

/// The hash of one text, which tells its kind too.
struct Hasher(blake3::Hasher);

impl Hasher {
    fn of(kind: &str) -> Self {
        Self(blake3::Hasher::new()).with(kind.as_bytes()).with(&[0])
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        self.add(bytes);
        self
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

fn hash_value(hasher: &mut Hasher, value: &Value) {
    match value {
        Value::Null => hasher.add(b"n"),
        Value::Bool(truth) => hasher.add(if *truth { b"t" } else { b"f" }),
        Value::Number(number) => {
            hasher.add(b"#");
            hasher.add(number.to_string().as_bytes());
        }
        Value::String(text) => {
            hasher.add(b"\"");
            let mut plain = text.trim();
            while let Some(rest) = plain.strip_prefix("./") {
                plain = rest;
            }
            normalised(plain, Parts::Times, &mut |bytes| hasher.add(bytes));
        }
        Value::Array(items) => {
            hasher.add(b"[");
            items.iter().for_each(|item| hash_value(hasher, item));
            hasher.add(b"]");
        }
        Value::Object(fields) => {
            hasher.add(b"{");
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in fields {
                hasher.add(name.as_bytes());
                hasher.add(b":");
                hash_value(hasher, value);
            }
            hasher.add(b"}");
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Returns true if a result says that nothing was found, or nothing at all: it is no news that it says so of other
/// arguments too.
#[must_use]
pub fn says_nothing(text: &str) -> bool {
    let text = text.trim();
    if text.len() > BARE_BYTES {
        return false;
    }
    let text = text.to_lowercase();
    let is_empty = ["", "[]", "{}", "null", "none", "(no output)", "0"].contains(&text.as_str());
    let finds_nothing =
        ["not found", "no match", "no such", "no file", "no result", "0 results", "0 matches"];
    is_empty
        || text.starts_with("no ")
        || text.starts_with("nothing ")
        || finds_nothing.iter().any(|words| text.contains(words))
        || words(&text)
            .all(|word| STATUS_WORDS.contains(&word) || word.chars().all(|c| c.is_ascii_digit()))
}

/// Returns true if an error tells of something that may pass with time: a network, a server that is busy.
#[must_use]
pub fn may_pass(error: &str) -> bool {
    let text = beginning(error, ERROR_BYTES).to_lowercase();
    let signs = [
        "timed out",
        "timeout",
        "connection re",
        "connection closed",
        "temporarily unavailable",
        "temporary failure",
        "too many requests",
        "rate limit",
        "service unavailable",
        "bad gateway",
        "overloaded",
        "try again",
        "http 429",
        "http 502",
        "http 503",
        "http 504",
    ];
    signs.iter().any(|sign| text.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::encode(&serde_json::from_str::<Value>(text).expect("JSON"))
    }

    fn call(input: &str) -> Fingerprint {
        Fingerprint::of_call("t", &json(input), &[])
    }

    #[test]
    fn a_call_is_the_same_whatever_its_form() {
        let one = call(r#"{"path":"a/b","n":1}"#);
        assert_eq!(one, call(r#"{"n":1,"path":" ./a/b\n"}"#));
        assert_ne!(one, call(r#"{"n":2,"path":"a/b"}"#));
        assert_ne!(one, Fingerprint::of_call("u", &json(r#"{"path":"a/b","n":1}"#), &[]));
        assert_ne!(call(r#"{"a":["b","c"]}"#), call(r#"{"a":["bc"]}"#));
        let since = |time: &str| call(&format!(r#"{{"since":"{time}"}}"#));
        assert_eq!(since("2026-11-24T10:11:12Z"), since("2026-11-24T10:11:59.5Z"));
        // The same question after a longer pause.
        assert_eq!(since("sleep 10; make"), since("sleep 2.5m; make"));
        assert_ne!(since("head -n 10s"), since("head -n 20s"));
    }

    #[test]
    fn only_the_named_arguments_count() {
        let of = |input: &str| Fingerprint::of_call("t", &json(input), &["q".to_owned()]);
        assert_eq!(of(r#"{"q":1,"id":1}"#), of(r#"{"q":1,"id":2}"#));
        assert_ne!(of(r#"{"q":1}"#), of(r#"{"q":2}"#));
    }

    #[test]
    fn arguments_that_are_no_json_or_very_long_are_taken_as_they_are() {
        let raw = |text: &str| {
            let json: Json = serde_json::from_str(text).unwrap_or_else(|_| Json::encode(&text));
            Fingerprint::of_call("t", &json, &[])
        };
        assert_eq!(raw("{oops"), raw("{oops"));
        let long = |end: &str| call(&format!(r#"{{"text":"{}{end}"}}"#, "x".repeat(READ_BYTES)));
        assert_eq!(long("a"), long("a"));
        assert_ne!(long("a"), long("b"));
    }

    #[test]
    fn an_error_is_the_same_for_other_arguments() {
        let of = |text: &str, input: &str| Fingerprint::of_error("read_file", text, &json(input));
        let one = of("File not found: src/main.rs", r#"{"path":"src/main.rs"}"#);
        assert!(one.is_some());
        assert_eq!(one, of("File not found: lib/x7.txt", r#"{"path":"lib/x7.txt"}"#));
        assert_ne!(one, of("Permission denied: src/main.rs", r#"{"path":"src/main.rs"}"#));
        assert_eq!(of("Exit code 1", "{}"), None);
    }

    #[test]
    fn results_that_say_nothing_are_known() {
        for text in ["", " \n", "[]", "No matches found", "grep: x: No such file", "Exit code 1"] {
            assert!(says_nothing(text), "{text:?}");
        }
        for text in ["ok", "attached", "available", "fn main() {}", "3 tests failed"] {
            assert!(!says_nothing(text), "{text:?}");
        }
        assert!(may_pass("curl: (28) Connection timed out") && !may_pass("no such file"));
    }

    #[test]
    fn it_is_written_as_sixteen_digits() {
        let print = Fingerprint(0xab);
        assert_eq!(serde_json::to_string(&print).expect("JSON"), "\"00000000000000ab\"");
        let read: Fingerprint = serde_json::from_str("\"00000000000000ab\"").expect("reads");
        assert_eq!(read, print);
        assert!(serde_json::from_str::<Fingerprint>("\"xyz\"").is_err());
    }
}
