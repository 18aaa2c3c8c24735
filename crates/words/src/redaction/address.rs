//! The keys in an address: its user and password, and values of its query.
//!
//! Pure. An address need not be valid: it is read before anything else has looked at it.

use super::{SHORTEST_WORD, key_shapes};

/// Names of values of a query that are keys, beside those of headers.
const NAMES: [&str; 6] = ["key", "code", "pass", "pwd", "sig", "auth"];

/// The text that stands for the keys of an address where it is told.
const HIDDEN: &str = "[redacted]";

/// The parts of an address; each but the last keeps the character at its end.
struct Parts<'a> {
    scheme: &'a str,
    /// The user and the password, without the `@`.
    user: Option<&'a str>,
    rest: &'a str,
    /// What stands behind the `?`.
    query: &'a str,
}

/// Returns the texts of an address that are secret, as they are written and as they are sent.
#[must_use]
pub fn texts_of_address(address: &str) -> Vec<String> {
    let parts = parts(address);
    let mut all = Vec::new();
    if let Some(user) = parts.user {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        // The server reads both as one text, which is sent in base64.
        all.extend([user, password]);
        if password.is_empty() || name.len() >= SHORTEST_WORD {
            all.push(name);
        }
    }
    all.extend(
        pairs(parts.query).filter(|(name, value)| is_key(name, value)).map(|(_, value)| value),
    );
    all.retain(|text| !text.is_empty());
    let mut all: Vec<String> =
        all.iter().flat_map(|text| [(*text).to_owned(), sent(text)]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the passwords of an address with a scheme, as they are written and as they are sent.
pub(super) fn password(address: &str) -> Vec<String> {
    let parts = parts(address);
    let password = parts.user.filter(|_| !parts.scheme.is_empty());
    let password = password.and_then(|user| user.split_once(':')).map(|(_, password)| password);
    password.into_iter().flat_map(|password| [password.to_owned(), sent(password)]).collect()
}

/// Returns an address as it may be told: without its keys.
#[must_use]
pub fn without_keys(address: &str) -> String {
    let Parts { scheme, user, rest, query } = parts(address);
    let mut told = scheme.to_owned();
    if user.is_some() {
        told.push_str(HIDDEN);
        told.push('@');
    }
    told.push_str(rest);
    for (place, (name, value)) in pairs(query).enumerate() {
        let hidden = is_key(name, value);
        told.push_str(if place == 0 { "" } else { "&" });
        match value.is_empty() {
            true => told.push_str(name),
            false => told.push_str(&format!("{name}={}", if hidden { HIDDEN } else { value })),
        }
    }
    told
}

fn parts(address: &str) -> Parts<'_> {
    let start = address.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = address.split_at(start);
    let (before, query) = match rest.find('?') {
        Some(at) => rest.split_at(at + 1),
        None => (rest, ""),
    };
    let host = before.find(['/', '?', '#']).unwrap_or(before.len());
    let user = before[..host].rfind('@').map(|at| &before[..at]);
    let rest = user.map_or(before, |user| &before[user.len() + 1..]);
    Parts { scheme, user, rest, query }
}

/// Returns the names and values of a query; a value without a name has an empty one.
fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|_| !query.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn is_key(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    !value.is_empty()
        && (NAMES.contains(&name.as_str())
            || name.ends_with("-key")
            || key_shapes::reason(&name, &sent(value)).is_some())
}

/// Returns a part of an address without the encoding of an address.
fn sent(text: &str) -> String {
    let digit = |at: usize| char::from(*text.as_bytes().get(at)?).to_digit(16);
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.as_bytes().get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                // Two digits of base 16 are at most 255.
                bytes.extend(u8::try_from(high * 16 + low).ok());
                at += 3;
            }
            (byte, ..) => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_an_address_are_found_and_left_out() {
        let cases: [(&str, &[&str], &str); 9] = [
            ("https://a.example/v1", &[], "https://a.example/v1"),
            ("a.example:80?x", &[], "a.example:80?x"),
            (
                "https://team:p%2Fw@a.example:8/v1?api-version=2024-10-21",
                &["p%2Fw", "p/w", "team:p%2Fw", "team:p/w"],
                "https://[redacted]@a.example:8/v1?api-version=2024-10-21",
            ),
            ("https://abc@a.example", &["abc"], "https://[redacted]@a.example"),
            ("https://abc:@a@b.example/@c", &["@a", "abc:@a"], "https://[redacted]@b.example/@c"),
            (
                "https://a.example/v1?deployment=gpt-4o&subscription_key=a%&x",
                &["a%"],
                "https://a.example/v1?deployment=gpt-4o&subscription_key=[redacted]&x",
            ),
            (
                "http://a?code=c&token=&SIG=s",
                &["c", "s"],
                "http://a?code=[redacted]&token&SIG=[redacted]",
            ),
            ("http://a?k=sk-0123456789abcdef", &["sk-0123456789abcdef"], "http://a?k=[redacted]"),
            ("", &[], ""),
        ];
        for (address, keys, told) in cases {
            let mut found = texts_of_address(address);
            found.sort_unstable();
            assert_eq!(found, keys, "{address}");
            assert_eq!(without_keys(address), told);
        }
    }
}
