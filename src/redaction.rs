//! Redaction: keys and secrets are taken out of what tools give back.
//!
//! Pure. It happens where output enters, before anything is recorded and before a model reads it.

use std::fmt;

/// Shorter texts are left alone: they would be found by chance everywhere.
const SHORTEST_SECRET: usize = 8;

/// What stands in the place of a secret.
const REDACTED: &str = "[redacted]";

/// The texts that no record may hold.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Of these texts those that are long enough to be told from chance.
    #[must_use]
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let long = texts.into_iter().filter(|text| text.len() >= SHORTEST_SECRET);
        let mut texts: Vec<_> = long.collect();
        // A secret that contains another must go first, or a rest of it would stay.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self(texts)
    }

    /// The texts themselves, for the wrapper of a command, which redacts what it keeps.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.0
    }

    /// Replaces every secret in the text.
    pub fn redact(&self, text: &mut String) {
        for secret in &self.0 {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), REDACTED);
            }
        }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} of them)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_secret_goes_first_and_short_ones_stay() {
        let secrets = ["hunter22", "hunter22-and-more", "short"].map(str::to_owned);
        let secrets = Secrets::new(secrets);
        let mut text = "hunter22-and-more, hunter22 and short".to_owned();
        secrets.redact(&mut text);
        assert_eq!(text, "[redacted], [redacted] and short");
        assert!(!format!("{secrets:?}").contains("hunter"));
    }
}
