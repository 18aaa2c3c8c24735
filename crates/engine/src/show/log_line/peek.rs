//! Reads only as much of a JSON text as a log line needs: results can be long, and lines are short.
//!
//! Pure. It takes texts with their quotes, as they are in a document that was parsed before.

use std::borrow::Cow;

use super::words::first_line;
use crate::message::scan::plain;

/// Bytes that are read first, escapes included: enough for most first lines and the start of the
/// second.
const PEEK: usize = 500;

/// Returns [`first_line`] of the decoded text, or `None` if this is not a JSON text.
pub(super) fn first_line_of(raw: &str, max: usize) -> Option<String> {
    if let Some(begin) = beginning(raw) {
        let said = begin.trim();
        // The part read is enough only if it holds the whole line, or as much of it as is shown,
        // and if more follows: otherwise the sign for an omission would be wrong.
        if said.contains(['\n', '\r']) || said.chars().nth(max).is_some() {
            return Some(first_line(said, max));
        }
    }
    let text: Cow<'_, str> = serde_json::from_str(raw).ok()?;
    Some(first_line(&text, max))
}

/// Decodes the beginning of a text that is longer than twice [`PEEK`]; returns `None` for a shorter
/// one.
fn beginning(raw: &str) -> Option<String> {
    let inner = raw.strip_prefix('"')?;
    if inner.len() <= 2 * PEEK {
        return None;
    }
    let (mut end, bytes) = (0, inner.as_bytes());
    while end < PEEK {
        end += plain(bytes.get(end..PEEK)?);
        if end < PEEK {
            end += escape(inner.get(end..)?)?.1;
        }
    }
    let begin = inner.get(..inner.floor_char_boundary(end))?;
    serde_json::from_str(&format!("\"{begin}\"")).ok()
}

/// Returns the length of the decoded text, in bytes.
pub(super) fn decoded_len(raw: &str) -> Option<usize> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    let (mut length, mut at) = (0, 0);
    while at < inner.len() {
        // Everything before an escape is as long as it looks.
        let plain = plain(&inner.as_bytes()[at..]);
        (length, at) = (length + plain, at + plain);
        if at < inner.len() {
            let (decoded, raw) = escape(inner.get(at..)?)?;
            (length, at) = (length + decoded, at + raw);
        }
    }
    Some(length)
}

/// Returns the text of a tool's result with its quotes, if the block has the form in which callsheet writes it. A
/// text is not looked through for its end: of what it is taken for, [`decoded_len`] finds out.
pub(super) fn content_of(block: &str) -> Option<&str> {
    let id = block.strip_prefix(r#"{"type":"tool_result","tool_use_id":""#)?;
    let (id, content) = id.split_once('"')?;
    let content = content.strip_prefix(r#","content":"#)?.strip_suffix('}')?;
    let content = content.strip_suffix(r#","is_error":true"#).unwrap_or(content);
    let is_text = content.len() > 1 && content.starts_with('"') && content.ends_with('"');
    (is_text && !id.contains('\\')).then_some(content)
}

/// Returns two lengths in bytes: of the character that an escape stands for, and of the escape
/// itself; `None` if there is none. A character outside the basic plane counts with both halves of its escape.
fn escape(text: &str) -> Option<(usize, usize)> {
    if !text.starts_with('\\') {
        // A quote within a text is its end.
        return None;
    }
    if text.as_bytes().get(1) != Some(&b'u') {
        return Some((1, 2));
    }
    let code = u32::from_str_radix(text.get(2..6)?, 16).ok()?;
    match char::from_u32(code) {
        Some(c) => Some((c.len_utf8(), 6)),
        None => Some((4, 12)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(text: &str, raw: &str) {
        assert_eq!(decoded_len(raw), Some(text.len()), "{raw}");
        for max in [0, 5, 160, 5_000] {
            assert_eq!(first_line_of(raw, max), Some(first_line(text, max)), "{raw}");
        }
    }

    /// Returns the JSON text with every character that is not ASCII as an escape, as some encoders
    /// write it.
    fn escaped(text: &str) -> String {
        let unit = |unit: u16| match unit {
            0x5c => "\\\\".to_owned(),
            0x22 => "\\\"".to_owned(),
            0x20..0x7f => char::from_u32(unit.into()).unwrap().to_string(),
            unit => format!("\\u{unit:04X}"),
        };
        let units: String = text.encode_utf16().map(unit).collect();
        format!("\"{units}\"")
    }

    #[test]
    fn long_texts_are_read_in_part() {
        for line in ["short\n", "\n\n  \"indented\"\t\\ \r\n", "é😀\u{1}", "no end", "\n", "x\n\n"]
        {
            for times in [1, 200, 1_500] {
                let text = line.repeat(times);
                same(&text, &serde_json::to_string(&text).unwrap());
                same(&text, &escaped(&text));
            }
        }
        let raw = serde_json::to_string(&"one line\n".repeat(500)).unwrap();
        assert!(beginning(&raw).is_some_and(|begin| begin.len() < 2 * PEEK));
        assert_eq!((first_line_of("[1]", 9), decoded_len("7")), (None, None));
        // Half a character is let pass where a document is only looked over.
        for bad in [r#""\ud800""#, r#""\ud800é\u00""#, r#""\""#] {
            assert_eq!(first_line_of(bad, 9), None, "{bad}");
            let _ = decoded_len(bad);
            let long = format!(
                "\"{}{}{}\"",
                "x".repeat(PEEK - 7),
                &bad[1..bad.len() - 1],
                "é".repeat(PEEK)
            );
            assert_eq!(first_line_of(&long, 9), None, "{long}");
            let _ = decoded_len(&long);
        }
    }

    proptest! {
        #[test]
        fn a_part_tells_the_same_as_the_whole(
            parts in prop::collection::vec("[\\PC\\n\\t\"\\\\😀]{0,60}", 0..80),
        ) {
            let text = parts.concat();
            same(&text, &serde_json::to_string(&text).unwrap());
            same(&text, &escaped(&text));
        }
    }
}
