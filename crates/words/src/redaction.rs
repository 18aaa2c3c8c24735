//! Redaction: replaces keys and other secrets in the output of tools.
//!
//! Pure. `redaction/address.rs` finds the keys of an address, `redaction/key_shapes.rs` tells texts that
//! look like keys, `redaction/variables.rs` values of variables that may be secrets. The result store redacts what is written to it in parts; the caller redacts any other output
//! when it arrives, before it is recorded and before a model reads it.

mod address;
pub mod key_shapes;
mod variables;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

pub use self::address::{texts_of_address, without_keys};
pub use self::variables::{may_be_secret, texts_of_variable};

/// The shortest text, in bytes, that is treated as a secret. A shorter one would be found by chance
/// in ordinary text.
const SHORTEST_SECRET: usize = 8;

/// The text that replaces a secret.
const REDACTED: &str = "[redacted]";

/// The fewest characters of a word in a header's value that is treated as a secret of its own.
const SHORTEST_WORD: usize = 16;

/// Returns the texts that are secret of the value of a secret header: the whole value, and its long
/// words, as the key after `Bearer` and the values of a cookie.
pub fn texts_of_header(value: &str) -> impl Iterator<Item = String> {
    let words = value.split([' ', ';', ',', '=']).filter(|word| word.len() >= SHORTEST_WORD);
    std::iter::once(value).chain(words).map(str::to_owned)
}

/// Secret texts that no record may contain.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The secrets as they were given, and their parts that are secrets of their own.
    texts: Arc<[String]>,
    /// The secrets in every spelling that is replaced, the longest first.
    spelled: Arc<[String]>,
    /// Automaton that finds all secrets in one pass; absent if there are none.
    finder: Option<AhoCorasick>,
}

impl Secrets {
    /// Keeps those of the texts that are long enough not to occur by chance.
    #[must_use]
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let is_long = |text: &String| text.len() >= SHORTEST_SECRET;
        let given: Vec<String> = texts.into_iter().filter(is_long).collect();
        if given.is_empty() {
            return Self::default();
        }
        let parts: Vec<String> = given.iter().flat_map(|secret| parts(secret)).collect();
        let mut given: Vec<String> = given.into_iter().chain(parts).filter(is_long).collect();
        given.sort_unstable();
        given.dedup();
        let mut spelled: Vec<String> =
            given.iter().flat_map(|secret| spellings(secret)).filter(is_long).collect();
        spelled.sort_unstable();
        spelled.dedup();
        spelled.sort_by_key(|text| std::cmp::Reverse(text.len()));
        let finder =
            AhoCorasick::new(&spelled).expect("secrets are far below its limit of 2^31 states");
        Self { finder: Some(finder), texts: given.into(), spelled: spelled.into() }
    }

    /// Returns the texts themselves, for the wrapper of a command: it redacts an output before it
    /// stores it.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns true if there is a secret in the text.
    #[must_use]
    pub fn are_in(&self, text: &str) -> bool {
        self.finder.as_ref().is_some_and(|finder| finder.is_match(text))
    }

    /// Returns the number of bytes at the end of the text with which a secret may begin. Other spellings
    /// than the plain one are not looked for.
    fn open_at_end(&self, text: &str) -> usize {
        let of_secret = |secret: &String| {
            let most = text.len().min(secret.len() - 1);
            let ends = (1..=most).rev().filter(|length| secret.is_char_boundary(*length));
            ends.into_iter().find(|length| text.ends_with(&secret[..*length]))
        };
        self.texts.iter().filter_map(of_secret).max().unwrap_or(0)
    }

    /// Replaces every secret in the text.
    pub fn redact(&self, text: &mut String) {
        if self.are_in(text) {
            let mut redactor = Redactor { held: text.as_bytes().into(), ..self.redactor() };
            // Secrets are whole texts, so the bytes around them are valid UTF-8.
            *text = String::from_utf8_lossy(&redactor.finish()).into_owned();
        }
    }

    /// Replaces every secret in the texts, keys and numbers of a value. Returns true if there was one.
    pub fn redact_value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => {
                let is_in = self.are_in(text);
                self.redact(text);
                is_in
            }
            Value::Array(items) => {
                items.iter_mut().fold(false, |found, item| self.redact_value(item) | found)
            }
            Value::Object(fields) => {
                let in_a_key = fields.keys().any(|key| self.are_in(key));
                if in_a_key {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(mut key, field)| {
                            self.redact(&mut key);
                            (key, field)
                        })
                        .collect();
                }
                let fields = fields.values_mut();
                fields.fold(in_a_key, |found, field| self.redact_value(field) | found)
            }
            Value::Number(number) if self.are_in(&number.to_string()) => {
                *value = REDACTED.into();
                true
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Redacts a text that comes in parts.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        Redactor { secrets: self.clone(), held: Vec::new(), covered: 0 }
    }
}

/// Returns the parts of a secret that programs print alone: the password of an address, and the lines of a
/// PEM, which show up one by one where a program prints a file with numbers or indented.
fn parts(secret: &str) -> Vec<String> {
    if secret.contains("-----BEGIN ") {
        let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        // Where a PEM stands in a variable, its lines are often parted by the two characters `\n`.
        let lines = secret.split(['\n', '\r']).flat_map(|line| line.split("\\n")).map(str::trim);
        return lines
            .filter(|line| line.len() >= SHORTEST_WORD && line.bytes().all(is_of_key))
            .map(str::to_owned)
            .collect();
    }
    address::password(secret)
}

/// The characters beside letters and digits that programs leave as they are in a part of a URL: the
/// standard's, Python's `quote`, JavaScript's `encodeURIComponent` and `encodeURI`, and those of forms.
const LEFT_IN_URLS: [&str; 6] =
    ["-._~", "-._~/", "-._~!*'()", "-._~!*'();/?:@&=+$,#", "-._", "*-._"];

/// Returns a text as programs write it in a URL: with each set of characters that are left, and with
/// both cases of the digits.
fn in_urls(secret: &str) -> impl Iterator<Item = String> {
    LEFT_IN_URLS.into_iter().flat_map(move |left| {
        [false, true].map(|is_lower| {
            let spell = |byte: u8| match byte {
                _ if byte.is_ascii_alphanumeric() || left.as_bytes().contains(&byte) => {
                    char::from(byte).to_string()
                }
                _ if is_lower => format!("%{byte:02x}"),
                _ => format!("%{byte:02X}"),
            };
            secret.bytes().map(spell).collect()
        })
    })
}

/// Returns a text as it stands between the quotes of a JSON text: as most programs write it, with `\/`,
/// with numbers for what is not ASCII, and with numbers for all of it.
fn in_json(secret: &str) -> impl Iterator<Item = String> {
    let json = Value::from(secret).to_string();
    let plain = json[1..json.len() - 1].to_owned();
    let number = |unit: u16| format!("\\u{unit:04x}");
    let spell = |character: char| match character.is_ascii() {
        true => character.to_string(),
        false => character.encode_utf16(&mut [0; 2]).iter().copied().map(number).collect(),
    };
    let ascii: String = plain.chars().map(spell).collect();
    let numbers: String = secret.encode_utf16().map(number).collect();
    let upper = secret.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
    let texts = [plain, ascii].into_iter().flat_map(|text| [text.replace('/', "\\/"), text]);
    texts.chain([numbers, upper])
}

/// Returns a text as pages and serializers write it whose JSON may stand in a page: with `&`, `<`, `>` and quotes
/// as entities (named, decimal or hexadecimal quotes), and as numbers in JSON, as Go's encoder does.
fn in_pages(secret: &str) -> impl Iterator<Item = String> {
    let with = |text: &str, pairs: &[(char, &str)]| {
        let spell = |character: char| {
            let pair = pairs.iter().find(|(plain, _)| *plain == character);
            pair.map_or_else(|| character.to_string(), |(_, spelled)| (*spelled).to_owned())
        };
        text.chars().map(spell).collect::<String>()
    };
    let json = Value::from(secret).to_string();
    let json =
        with(&json[1..json.len() - 1], &[('&', "\\u0026"), ('<', "\\u003c"), ('>', "\\u003e")]);
    let upper = json.replace("\\u003c", "\\u003C").replace("\\u003e", "\\u003E");
    let quotes = [
        ("&quot;", "&#39;"),
        ("&quot;", "&#x27;"),
        ("&quot;", "&apos;"),
        ("&#34;", "&#39;"),
        ("\"", "'"),
    ];
    let pages = quotes.map(|(double, single)| {
        with(secret, &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', double), ('\'', single)])
    });
    pages.into_iter().chain([json, upper])
}

/// Returns a secret in the spellings in which tools commonly print it: as it is, as a JSON text, in a page, in
/// a URL, in hexadecimal, and in base64, where it may begin at any of three places of a group.
fn spellings(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut all = vec![secret.to_owned(), hex.to_uppercase(), hex];
    all.extend(in_json(secret));
    all.extend(in_pages(secret));
    for url in in_urls(secret) {
        // Forms write a space as `+`.
        all.push(url.replace("%20", "+"));
        all.push(url);
    }
    for before in 0..3 {
        let padded = [&[0; 2][..before], bytes].concat();
        for alphabet in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let text = alphabet.encode(&padded);
            // Characters that other bytes share are left out: those that hold bits of the bytes before
            // the secret, and the last one, unless the secret ends with a group.
            let first = (before * 8).div_ceil(6);
            let last = padded.len() * 8 / 6;
            all.extend(text.get(first..last).map(str::to_owned));
        }
    }
    all
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
        let longest = self.secrets.spelled.first().map_or(0, String::len);
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

    /// Returns the whole lines among the bytes that are held back, without secrets: what may be shown before more comes.
    /// They come once more from [`Redactor::push`].
    #[must_use]
    pub fn held_lines(&self) -> Vec<u8> {
        let Some(finder) = self.secrets.finder.clone() else { return Vec::new() };
        // Where no line ends within a secret, no line that is whole can hold the beginning of it.
        let secrets = self.secrets.spelled.iter().filter(|secret| secret.contains('\n'));
        let open = secrets.map(|secret| open_at_end(&self.held, secret)).max().unwrap_or(0);
        let closed = &self.held[..self.held.len() - open];
        let end = closed.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // What follows the lines stays, all of it: a secret may begin in them and end behind them, also one whose last
        // bytes may be the beginning of another.
        let (secrets, held) = (self.secrets.clone(), self.held.clone());
        Self { secrets, held, covered: self.covered }.emit(&finder, end)
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

/// Returns the number of bytes at the end with which this secret may begin.
fn open_at_end(bytes: &[u8], secret: &str) -> usize {
    let most = bytes.len().min(secret.len().saturating_sub(1));
    (1..=most).rev().find(|length| bytes.ends_with(&secret.as_bytes()[..*length])).unwrap_or(0)
}

/// Redacts a text that is shown while it arrives: it holds back only an end with which a secret may
/// begin.
#[derive(Debug)]
pub struct LiveRedactor {
    secrets: Secrets,
    held: String,
}

impl LiveRedactor {
    /// Creates a redactor of these secrets.
    #[must_use]
    pub fn new(secrets: &Secrets) -> Self {
        Self { secrets: secrets.clone(), held: String::new() }
    }

    /// Adds the next piece, and returns what may be shown; it may be empty.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        self.secrets.redact(&mut self.held);
        let open = self.secrets.open_at_end(&self.held);
        let rest = self.held.split_off(self.held.len() - open);
        std::mem::replace(&mut self.held, rest)
    }

    /// Returns the rest at the end of the text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
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
    fn whole_lines_can_be_shown_before_more_comes() {
        let secrets = Secrets::new(["hunter22".to_owned(), "first-line\nsecond-line".to_owned()]);
        for (text, shown) in [
            ("one\ntwo", "one\n"),
            ("one", ""),
            ("x hunter22 y\n", "x [redacted] y\n"),
            ("a\nhunter", "a\n"),
            // The end may be a part of the longer one.
            ("a\nfirst-line\n", "a\n"),
            ("first-line\nsecond-line x", "[redacted]"),
        ] {
            let mut redactor = secrets.redactor();
            let passed = redactor.push(text.as_bytes()).into_owned();
            let so_far = [&passed[..], &redactor.held_lines()].concat();
            assert_eq!(String::from_utf8_lossy(&so_far), shown, "{text:?}");
            // Nothing was taken out.
            let mut whole = text.to_owned();
            secrets.redact(&mut whole);
            let all = [passed, redactor.finish()].concat();
            assert_eq!(String::from_utf8_lossy(&all), whole, "{text:?}");
        }
        assert!(Secrets::default().redactor().held_lines().is_empty());
    }

    #[test]
    fn a_whole_secret_of_several_lines_at_the_end_is_no_line_to_show() {
        let two_lines = "alpha-one\nbeta-two-a";
        let key = "-----BEGIN KEY-----\nc2hvcnQ\n-----END KEY-----";
        // Each ends as it begins, so that its last bytes may be the beginning of one more.
        for secret in [two_lines, key, "<alpha>\nbeta<al"] {
            let secrets = Secrets::new([secret.to_owned()]);
            let page = secret.replace('<', "&lt;").replace('>', "&gt;");
            for spelled in [secret, page.as_str()] {
                let mut redactor = secrets.redactor();
                let passed = redactor.push(format!("x\n{spelled}").as_bytes()).into_owned();
                let so_far = [&passed[..], &redactor.held_lines()].concat();
                assert_eq!(String::from_utf8_lossy(&so_far), "x\n[redacted]", "{spelled:?}");
            }
            // Nor is a part of it, in whichever spelling.
            let mut redactor = secrets.redactor();
            let part = &page[..=page.find('\n').unwrap()];
            let passed = redactor.push(format!("x\n{part}").as_bytes()).into_owned();
            let so_far = [&passed[..], &redactor.held_lines()].concat();
            assert_eq!(String::from_utf8_lossy(&so_far), "x\n", "{part:?}");
        }
    }

    #[test]
    fn a_text_that_is_shown_at_once_holds_back_what_may_be_a_secret() {
        let secrets = Secrets::new(["hunter22".to_owned(), "22-and-more".to_owned()]);
        let text = "say hunt, hunter22-and, hunter2 \u{e9} h";
        for size in 1..text.len() {
            let mut live = LiveRedactor::new(&secrets);
            let pieces: Vec<char> = text.chars().collect();
            let pieces = pieces.chunks(size).map(|piece| piece.iter().collect::<String>());
            let mut shown: String = pieces.map(|piece| live.push(&piece)).collect();
            shown.push_str(&live.finish());
            assert_eq!(shown, "say hunt, [redacted]-and, hunter2 \u{e9} h", "{size}");
        }
        let mut live = LiveRedactor::new(&secrets);
        assert_eq!((live.push("see").as_str(), live.push(" h").as_str()), ("see", " "));
    }

    #[test]
    fn a_key_within_a_header_goes_too() {
        let secrets = Secrets::new(texts_of_header("Bearer 0123456789abcdef"));
        let mut text = "Bearer 0123456789abcdef, bearer:0123456789abcdef, Bearer".to_owned();
        secrets.redact(&mut text);
        assert_eq!(text, "[redacted], bearer:[redacted], Bearer");
    }

    #[test]
    fn keys_and_numbers_of_a_value_are_redacted_too() {
        let secrets = Secrets::new(["hunter22".to_owned(), "12345678".to_owned()]);
        let mut value = serde_json::json!({"a hunter22": [1, 12_345_678, "x"], "b": null});
        assert!(secrets.redact_value(&mut value));
        let redacted = serde_json::json!({"a [redacted]": [1, "[redacted]", "x"], "b": null});
        assert_eq!(value, redacted);
        assert!(!secrets.redact_value(&mut value));
    }

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
    fn a_secret_is_found_in_the_spellings_of_tools() {
        let secret = "s3cr3t/+\"tok\u{e9}n\" 0123456789";
        let secrets = Secrets::new([secret.to_owned()]);
        for before in ["", "x", "xy", "xyz", "user:"] {
            let whole = format!("{before}{secret} and more");
            for alphabet in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let mut text = alphabet.encode(&whole);
                let length = text.len();
                secrets.redact(&mut text);
                assert!(text.contains(REDACTED), "{text}");
                // What is left of it are the characters that it shares with its neighbours.
                let rest = length - (text.len() - REDACTED.len());
                assert!(rest + 4 >= secret.len() * 8 / 6, "{text}");
            }
        }
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        let json = serde_json::to_string(secret).expect("encodes");
        for spelled in [&hex, &hex.to_uppercase(), &json] {
            let mut text = format!("a {spelled} b");
            secrets.redact(&mut text);
            assert!(text.contains(REDACTED) && text.len() < 30, "{text}");
        }
        let mut url = "?k=s3cr3t%2F%2B%22tok%C3%A9n%22%200123456789&x".to_owned();
        secrets.redact(&mut url);
        assert_eq!(url, "?k=[redacted]&x");
        assert_eq!(secrets.texts(), [secret]);
    }

    #[test]
    fn a_secret_is_found_as_programs_write_it_in_pages() {
        let secrets = Secrets::new(["aB&c<d>e'f\"g9Zz".to_owned()]);
        let spelled = [
            // Go: json.Marshal, html.EscapeString.
            "aB\\u0026c\\u003cd\\u003ee'f\\\"g9Zz",
            "aB&amp;c&lt;d&gt;e&#39;f&#34;g9Zz",
            // .NET writes the digits of these in upper case.
            "aB\\u0026c\\u003Cd\\u003Ee'f\\\"g9Zz",
            // Python: html.escape with and without quotes. PHP: htmlspecialchars, also as XML.
            "aB&amp;c&lt;d&gt;e&#x27;f&quot;g9Zz",
            "aB&amp;c&lt;d&gt;e'f\"g9Zz",
            "aB&amp;c&lt;d&gt;e&#39;f&quot;g9Zz",
            "aB&amp;c&lt;d&gt;e&apos;f&quot;g9Zz",
        ];
        for spelled in spelled {
            let mut text = format!("{{{spelled}}}");
            secrets.redact(&mut text);
            assert_eq!(text, "{[redacted]}", "{spelled}");
        }
    }

    #[test]
    fn a_secret_is_found_as_programs_write_it_in_urls_and_json() {
        let secret = "aB/c+d e:~9\u{e9}Zz";
        let secrets = Secrets::new([secret.to_owned()]);
        let spelled = [
            // Python: quote, quote_plus, json.dumps.
            "aB/c%2Bd%20e%3A~9%C3%A9Zz",
            "aB%2Fc%2Bd+e%3A~9%C3%A9Zz",
            "aB/c+d e:~9\\u00e9Zz",
            // PHP: urlencode, json_encode, also without numbers.
            "aB%2Fc%2Bd+e%3A%7E9%C3%A9Zz",
            "aB\\/c+d e:~9\\u00e9Zz",
            "aB\\/c+d e:~9\u{e9}Zz",
            // Numbers for all of it.
            "\\u0061\\u0042\\u002f\\u0063\\u002b\\u0064\\u0020\\u0065\\u003a\\u007e\\u0039\\u00e9\\u005a\\u007a",
            "\\u0061\\u0042\\u002F\\u0063\\u002B\\u0064\\u0020\\u0065\\u003A\\u007E\\u0039\\u00E9\\u005A\\u007A",
            // JavaScript: encodeURI.
            "aB/c+d%20e:~9%C3%A9Zz",
            // Digits in lower case, with the letters of the secret as they are.
            "aB%2fc%2bd%20e%3a~9%c3%a9Zz",
            "aB/c%2bd%20e%3a~9%c3%a9Zz",
        ];
        for spelled in spelled {
            let mut text = format!("<{spelled}>");
            secrets.redact(&mut text);
            assert_eq!(text, "<[redacted]>", "{spelled}");
        }
    }

    #[test]
    fn the_password_of_an_address_and_the_lines_of_a_pem_are_secrets_of_their_own() {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7";
        let other = "VJTUt9Us8cKjMzEfYyjiWA4R4";
        let pem =
            format!("-----BEGIN PRIVATE KEY-----\n{line}\r\n{other}\n-----END PRIVATE KEY-----\n");
        let words =
            format!("{{\"k\": \"-----BEGIN KEY-----\\n{line}\\n{other}\\n-----END KEY-----\"}}");
        for secret in [pem, words] {
            let secrets = Secrets::new([secret]);
            let mut text = format!("1 {line}\n2 {other}\n-----BEGIN KEY-----");
            secrets.redact(&mut text);
            assert_eq!(text, "1 [redacted]\n2 [redacted]\n-----BEGIN KEY-----");
            // The wrapper of a command is given the texts, and makes the same of them.
            assert_eq!(Secrets::new(secrets.texts().to_vec()).spelled, secrets.spelled);
        }
        let cases = [
            ("postgres://app:s3cr%2Fetpw@db:5432/app?x=1", "s3cr%2Fetpw", true),
            ("postgres://app:s3cr%2Fetpw@db:5432/app", "s3cr/etpw", true),
            ("mysql+pymysql://u:p@ss:w0rd@db/x", "p@ss:w0rd", true),
            ("redis://:longpassword@h", "longpassword", true),
            // A text that short would be found by chance, and these are no passwords.
            ("postgres://app:short@db/app", "short", false),
            ("https://host.example:8080/path@1", "8080/path", false),
            ("https://longusername@host.example/", "host.example", false),
        ];
        for (address, password, is_secret) in cases {
            let secrets = Secrets::new([address.to_owned()]);
            assert_eq!(secrets.are_in(&format!("pw={password};")), is_secret, "{address}");
        }
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
            let longest = secrets.spelled[0].len();
            assert!(redactor.held.len() < longest, "{}", redactor.held.len());
        }
        out.extend_from_slice(&redactor.push(b"xx 0000"));
        out.extend_from_slice(&redactor.finish());
        assert_eq!(String::from_utf8(out).expect("text"), "[redacted]x 0000");
    }
}
