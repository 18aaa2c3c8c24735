//! Checks the parts of a file that are kept: the format, the JSON, and the form of a message.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::scan::{Members, Scanner, is_space};
use super::{ConversationError, ConversationErrorKind as Kind, Format, Position, Result};
use crate::message::{Json, Role};

/// The most characters that are quoted of a file of unknown format.
const QUOTED_CHARS: usize = 60;

/// Recognises the format by the beginning of the file.
pub(super) fn format(scanner: &mut Scanner) -> Result<Format> {
    scanner.take_byte_order_mark()?;
    let start = scanner.at();
    let document = match scanner.peek()? {
        None => return Err(Kind::Empty.at(start)),
        Some(b'[') => Ok(true),
        Some(b'{') => is_document(scanner),
        Some(_) => Ok(false),
    };
    if matches!(document, Ok(true)) {
        return Ok(Format::Document);
    }
    // Lines may be broken, even the first one, so the lines are tried even after an error.
    scanner.go_to(start)?;
    match (format_of_lines(scanner)?, document) {
        (Some(format), _) => Ok(format),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => {
            scanner.go_to(start)?;
            let mut line = Vec::new();
            scanner.line(&mut line)?;
            let line = String::from_utf8_lossy(&line);
            let found: String = line.trim().chars().take(QUOTED_CHARS).collect();
            let (is_json, found) = (found.starts_with('{'), format!("{found:?}"));
            Err(Kind::Unknown { found, is_json }.at(start))
        }
    }
}

/// Returns true if the object that is next has a key of a conversation.
fn is_document(scanner: &mut Scanner) -> Result<bool> {
    let mut members = Members::enter(scanner)?;
    while let Some(key) = members.next_key()? {
        if key == "messages" || key == "system" {
            return Ok(true);
        }
        members.scanner().pass_over_value()?;
    }
    Ok(false)
}

/// Returns the format of the first line that shows one.
fn format_of_lines(scanner: &mut Scanner) -> Result<Option<Format>> {
    #[derive(Deserialize)]
    struct Keys<'a> {
        #[serde(borrow)]
        r#type: Option<Cow<'a, str>>,
        #[serde(borrow)]
        uuid: Option<&'a RawValue>,
        #[serde(borrow)]
        seq: Option<&'a RawValue>,
        #[serde(borrow)]
        message: Option<&'a RawValue>,
    }
    let mut line = Vec::new();
    while scanner.line(&mut line)?.is_some() {
        match serde_json::from_slice::<Keys<'_>>(&line) {
            Ok(Keys { uuid: Some(_), .. }) => return Ok(Some(Format::ClaudeCode)),
            Ok(Keys { seq: Some(_), message: Some(_), .. }) => return Ok(Some(Format::Transcript)),
            // An entry without links, as a session prints it to a pipe.
            Ok(Keys { r#type: Some(kind), message: Some(_), .. })
                if kind == "user" || kind == "assistant" =>
            {
                return Ok(Some(Format::ClaudeCode));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(None)
}

/// Checks that bytes which begin at `start` are one JSON value, and returns it in its normal form.
pub(super) fn json(bytes: &[u8], start: Position) -> Result<Json> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Kind::NotUtf8.at(after(start, &bytes[..error.valid_up_to()])))?;
    // This check comes before whitespace is removed: `1 2` is a mistake, not 12.
    serde_json::from_str::<&RawValue>(text).map_err(|error| syntax(&error, text, start))?;
    Json::parse(normal(text)).map_err(|error| syntax(&error, text, start))
}

/// Checks the form of a message that begins at `start`, and returns its role.
pub(super) fn role(message: &Json, start: Position) -> Result<Role> {
    #[derive(Deserialize)]
    #[serde(expecting = "an object")]
    struct Shape<'a> {
        #[serde(borrow)]
        role: Cow<'a, str>,
        #[serde(borrow)]
        content: &'a RawValue,
    }
    let none = |error: serde_json::Error| Kind::NotAMessage(reason(&error)).at(start);
    let Shape { role, content } = serde_json::from_str(message.as_str()).map_err(none)?;
    let role = match role.as_ref() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => return Err(Kind::Role(other.to_owned()).at(start)),
    };
    match content.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(content.get()).map(drop).map_err(none)?,
        Some(b'[') => blocks(content).map(drop).map_err(none)?,
        _ => {
            let reason = "its content is neither a text nor a list of blocks".to_owned();
            return Err(Kind::NotAMessage(reason).at(start));
        }
    }
    Ok(role)
}

/// A block of a message: its type, and its text verbatim.
#[derive(Debug)]
pub(super) struct RawBlock<'a> {
    /// The type that the block states; it need not be known.
    pub kind: Cow<'a, str>,
    /// The text of the whole block.
    pub text: &'a str,
}

/// Returns the blocks of a list.
pub(super) fn blocks(list: &RawValue) -> serde_json::Result<Vec<RawBlock<'_>>> {
    #[derive(Deserialize)]
    #[serde(expecting = "a block, which is an object")]
    struct Shape<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    let list: Vec<&RawValue> = serde_json::from_str(list.get())?;
    let blocks = list.into_iter().map(|raw| {
        let Shape { r#type } = serde_json::from_str(raw.get())?;
        Ok(RawBlock { kind: r#type, text: raw.get() })
    });
    blocks.collect()
}

/// Removes the whitespace between values and the escapes that are not needed, so that a text has
/// the same size whichever program wrote it. `json` must be valid JSON.
pub(super) fn normal(json: &str) -> String {
    let compact = compact(json);
    let mut out = String::with_capacity(compact.len());
    let mut rest = &*compact;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (char, len) = match unit(rest) {
            Some(high @ 0xD800..=0xDBFF) => match rest.get(ESCAPE..).and_then(unit) {
                Some(low @ 0xDC00..=0xDFFF) => {
                    let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                    (char::from_u32(code), 2 * ESCAPE)
                }
                // Half of a surrogate pair is no character: the program that wrote it cut a text
                // inside one.
                _ => (Some(char::REPLACEMENT_CHARACTER), ESCAPE),
            },
            Some(0xDC00..=0xDFFF) => (Some(char::REPLACEMENT_CHARACTER), ESCAPE),
            Some(code) => (char::from_u32(code), ESCAPE),
            None => (rest.starts_with("\\/").then_some('/'), 2),
        };
        // A text that is not JSON after all stays as it is; the code that reads it reports the
        // mistake.
        let Some((escape, behind)) = rest.split_at_checked(len) else { break };
        match char.filter(|char| !matches!(char, '"' | '\\' | '\0'..='\x1f')) {
            Some(char) => out.push(char),
            None => out.push_str(escape),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Length in bytes of an escaped UTF-16 unit, such as `\u00e9`.
const ESCAPE: usize = 6;

/// Returns the UTF-16 unit that a text begins with, if it is escaped by its number.
fn unit(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// Removes the whitespace between the values of JSON.
fn compact(json: &str) -> Cow<'_, str> {
    let (mut in_text, mut is_escaped) = (false, false);
    let mut is_kept = |byte: u8| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            _ => {}
        }
        in_text || !is_space(byte)
    };
    let bytes = json.as_bytes();
    let Some(first) = bytes.iter().position(|byte| !is_kept(*byte)) else {
        return Cow::Borrowed(json);
    };
    let (mut out, mut begin) = (json[..first].to_owned(), first + 1);
    for (at, byte) in bytes.iter().enumerate().skip(first + 1) {
        if !is_kept(*byte) {
            out.push_str(&json[begin..at]);
            begin = at + 1;
        }
    }
    out.push_str(&json[begin..]);
    Cow::Owned(out)
}

/// Makes an error of a syntax mistake, at its own place in a text that begins at `start`.
fn syntax(error: &serde_json::Error, text: &str, start: Position) -> ConversationError {
    let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let before: usize = lines.map(str::len).sum();
    let at = (before + error.column().saturating_sub(1)).min(text.len());
    Kind::Syntax(reason(error)).at(after(start, &text.as_bytes()[..at]))
}

/// Returns the place after bytes that begin at `start`.
fn after(start: Position, bytes: &[u8]) -> Position {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    Position { line: start.line + lines as u64, byte: start.byte + bytes.len() as u64 }
}

/// Returns serde's message without its place, which counts from the beginning of the value.
pub(super) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
