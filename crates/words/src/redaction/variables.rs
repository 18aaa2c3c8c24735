//! Tells which values of environment variables may be secrets, whatever their names.
//!
//! Pure. A value counts as one unless it is too short, a path, a number or plain words: those are found
//! by chance in texts that have nothing to do with it.

use super::{SHORTEST_SECRET, SHORTEST_WORD};

/// The most letters of a word of a language or of the name of a setting.
const LONGEST_PLAIN: usize = 20;

/// Returns true if a value may be a secret.
#[must_use]
pub fn may_be_secret(value: &str) -> bool {
    let value = value.trim();
    let is_path = ["/", "./", "../", "~/"].iter().any(|start| value.starts_with(start));
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit() || b"+-.,:/ ".contains(&byte));
    let mut words = value.split([' ', '_', '-', '.', ',']);
    value.len() >= SHORTEST_SECRET && !is_path && !is_number && !words.all(is_plain)
}

/// Returns true for a word of letters as people write it.
fn is_plain(word: &str) -> bool {
    let rest = word.get(1..).unwrap_or_default();
    let is_lower = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase());
    word.len() <= LONGEST_PLAIN
        && (word.bytes().all(|byte| byte.is_ascii_uppercase())
            || (word.starts_with(|c: char| c.is_ascii_alphabetic()) && is_lower(rest)))
}

/// Returns the texts that are secret of the value of a variable: the whole value, and its long parts, as
/// the key in a connection string, the fields of a JSON text and the lines of a certificate.
#[must_use]
pub fn texts_of_variable(value: &str) -> Vec<String> {
    if !may_be_secret(value) {
        return Vec::new();
    }
    let ends = |c: char| c.is_whitespace() || ";,=\"'&{}[]".contains(c);
    let is_part = |part: &&str| part.len() >= SHORTEST_WORD && may_be_secret(part);
    // As JSON has it, a line break is two characters.
    let parts = value.split("\\n").flat_map(move |piece| piece.split(ends)).filter(is_part);
    let addresses = value.split_whitespace().filter(|part| part.contains("://"));
    let keys = addresses.flat_map(super::texts_of_address);
    let mut all: Vec<String> = [value.to_owned(), value.trim().to_owned()].into();
    all.extend(parts.map(str::to_owned).chain(keys));
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_told_by_the_value() {
        for secret in [
            "https://hooks.slack.com/services/T0/B0/XXXX",
            "DefaultEndpointsProtocol=https;AccountKey=abcd0123abcd0123==",
            "{\"private_key\": \"-----BEGIN\"}",
            "sk_live_51abcdef",
            "hf_AbCdEfGhIjKlMnOp",
            "SG.aBcDe.fGhIj",
            "eyJhbGciOi.eyJzdWIi.c2ln",
            "machine example.com login me password hush-12",
            "dop_v1_0123456789abcdef",
            "s3cr3t-0",
            "hunterTwo",
            "qzxcvbnmasdfghjklqwertyuiop",
        ] {
            assert!(may_be_secret(secret), "{secret}");
        }
        for plain in [
            "",
            "1",
            "true",
            "debug",
            "production",
            "/home/me/.ssh/agent",
            "./ledger",
            "~/x/y/z/w",
            "8080",
            "127.0.0.1:8080",
            "2026-11-24",
            "release-candidate",
            "Europe",
            "US-EAST",
            "s3cr3t",
            "Unit tests",
        ] {
            assert!(!may_be_secret(plain), "{plain}");
            assert!(texts_of_variable(plain).is_empty(), "{plain}");
        }
    }

    #[test]
    fn the_long_parts_of_a_secret_are_secret_too() {
        let has = |value: &str, part: &str| {
            let texts = texts_of_variable(value);
            assert!(texts.iter().any(|text| text == part), "{part}: {texts:?}");
        };
        has("AccountName=x;AccountKey=abcd0123abcd0123abcd==", "abcd0123abcd0123abcd");
        has("{\"private_key\": \"MIIEvQIBADANBgkq\\nhkiG9w0BAQEFAASC\"}", "hkiG9w0BAQEFAASC");
        has("-----BEGIN X-----\nMIIEvQIBADANBgkqhkiG\n-----END X-----\n", "MIIEvQIBADANBgkqhkiG");
        has("https://me:Pass-word-77@example.com/db", "Pass-word-77");
        has("token-0123456789\n", "token-0123456789");
    }
}
