//! Redaction: replaces keys and other secrets in the output of tools.
//!
//! Pure. The result store redacts what is written to it in parts; the caller redacts any other output
//! when it arrives, before it is recorded and before a model reads it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use serde_json::Value;

/// The shortest text, in bytes, that is treated as a secret. A shorter one would be found by chance
/// in ordinary text.
const SHORTEST_SECRET: usize = 8;

/// The text that replaces a secret.
const REDACTED: &str = "[redacted]";

/// Secret texts that no record may contain.
#[derive(Clone, Default)]
pub struct Secrets {
    texts: Arc<[String]>,
    /// Automaton that finds all secrets in one pass; absent if there are none.
    finder: Option<AhoCorasick>,
}

impl Secrets {
    /// Keeps those of the texts that are long enough not to occur by chance.
    #[must_use]
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let long = texts.into_iter().filter(|text| text.len() >= SHORTEST_SECRET);
        let mut texts: Vec<String> = long.collect();
        if texts.is_empty() {
            return Self::default();
        }
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        let finder =
            AhoCorasick::new(&texts).expect("secrets are far below its limit of 2^31 states");
        Self { finder: Some(finder), texts: texts.into() }
    }

    /// Returns the texts themselves, for the wrapper of a command: it redacts an output before it
    /// stores it.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Replaces every secret in the text.
    pub fn redact(&self, text: &mut String) {
        match &self.finder {
            Some(finder) if finder.is_match(text.as_str()) => {
                let mut redactor = Redactor { held: text.as_bytes().into(), ..self.redactor() };
                // Secrets are whole texts, so the bytes around them are valid UTF-8.
                *text = String::from_utf8_lossy(&redactor.finish()).into_owned();
            }
            Some(_) | None => {}
        }
    }

    /// Replaces every secret in the texts of a value.
    pub fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.redact(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.redact_value(field));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Redacts a text that comes in parts.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        Redactor { secrets: self.clone(), held: Vec::new(), covered: 0 }
    }
}

/// Redacts a stream of bytes: a secret that is cut by the end of a part is found all the same.
#[derive(Debug)]
pub struct Redactor {
    secrets: Secrets,
    /// The last bytes that were pushed, in which a secret may begin.
    held: Vec<u8>,
    /// Bytes at the beginning of `held` that are the end of a secret that was replaced already.
    covered: usize,
}

impl Redactor {
    /// Returns an upper bound for the bytes that [`Redactor::push`] returns for this many.
    #[must_use]
    pub fn most_of(&self, bytes: usize) -> usize {
        match self.secrets.finder {
            // The text that replaces a secret may be longer than the shortest secret.
            Some(_) => (self.held.len() + bytes) * REDACTED.len() / SHORTEST_SECRET,
            None => bytes,
        }
    }

    /// Adds the next bytes, and returns those that are known to hold no secret.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(finder) = self.secrets.finder.clone() else { return Cow::Borrowed(bytes) };
        self.held.extend_from_slice(bytes);
        let longest = self.secrets.texts.first().map_or(0, String::len);
        // A secret that is longer than the rest could begin from here on.
        let safe = (self.held.len() + 1).saturating_sub(longest);
        Cow::Owned(self.emit(&finder, safe))
    }

    /// Returns the rest at the end of the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        match self.secrets.finder.clone() {
            Some(finder) => self.emit(&finder, self.held.len()),
            None => Vec::new(),
        }
    }

    /// Takes `safe` bytes out of those that are held, and returns them redacted. Secrets that overlap
    /// are replaced as one.
    fn emit(&mut self, finder: &AhoCorasick, safe: usize) -> Vec<u8> {
        if safe == 0 {
            return Vec::new();
        }
        let (mut out, mut done, mut covered) = (Vec::with_capacity(safe), 0, 0);
        let ranges = merged(finder, &self.held, self.covered);
        for (place, (start, end)) in ranges.into_iter().enumerate() {
            if start >= safe {
                break;
            }
            out.extend_from_slice(&self.held[done..start]);
            let is_continued = place == 0 && self.covered > 0;
            if !is_continued {
                out.extend_from_slice(REDACTED.as_bytes());
            }
            // The rest of such a secret is dropped next time. So no more is ever held than the
            // longest secret, however many of them overlap.
            (done, covered) = (end.min(safe), end.saturating_sub(safe));
        }
        out.extend_from_slice(&self.held[done..safe]);
        self.held.drain(..safe);
        self.covered = covered;
        out
    }
}

/// Returns the ranges of the secrets in `bytes`, from left to right; secrets that overlap give one
/// range. The first `covered` bytes are the end of a secret.
fn merged(finder: &AhoCorasick, bytes: &[u8], covered: usize) -> Vec<(usize, usize)> {
    let found = finder.find_overlapping_iter(bytes).map(|found| (found.start(), found.end()));
    let mut found: Vec<_> = found.chain((covered > 0).then_some((0, covered))).collect();
    found.sort_unstable();
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (start, end) in found {
        match ranges.last_mut() {
            Some((_, last)) if start < *last => *last = end.max(*last),
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} of them)", self.texts.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_secrets_go_and_short_texts_stay() {
        let secrets = ["hunter22", "hunter22-and-more", "short"].map(str::to_owned);
        let secrets = Secrets::new(secrets);
        let mut text = "hunter22-and-more, hunter22 and short".to_owned();
        secrets.redact(&mut text);
        assert_eq!(text, "[redacted], [redacted] and short");
        assert!(!format!("{secrets:?}").contains("hunter"));
    }

    #[test]
    fn a_stream_is_redacted_wherever_it_is_cut() {
        let secrets = ["hunter22", "hunter22-and-more", "22-and-most"].map(str::to_owned);
        let secrets = Secrets::new(secrets);
        let text = "a hunter22-and-more, hunter22-and-most, hunter22 and hunter2";
        let mut whole = text.to_owned();
        secrets.redact(&mut whole);
        assert_eq!(whole, "a [redacted], [redacted], [redacted] and hunter2");
        for first in 0..text.len() {
            for second in first..text.len() {
                let mut redactor = secrets.redactor();
                let mut out = Vec::new();
                for part in [&text[..first], &text[first..second], &text[second..]] {
                    out.extend_from_slice(&redactor.push(part.as_bytes()));
                }
                out.extend_from_slice(&redactor.finish());
                assert_eq!(String::from_utf8(out).expect("text"), whole, "{first} {second}");
            }
        }
    }

    #[test]
    fn secrets_that_overlap_themselves_are_not_held() {
        let secrets = Secrets::new(["00000000".to_owned(), "00000000x".to_owned()]);
        let mut redactor = secrets.redactor();
        let mut out = Vec::new();
        for _ in 0..1_000 {
            out.extend_from_slice(&redactor.push(&[b'0'; 1_000]));
            assert!(redactor.held.len() < 9, "{}", redactor.held.len());
        }
        out.extend_from_slice(&redactor.push(b"xx 0000"));
        out.extend_from_slice(&redactor.finish());
        assert_eq!(String::from_utf8(out).expect("text"), "[redacted]x 0000");
    }
}
