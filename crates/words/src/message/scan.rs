//! Finds the parts of a message's text without a parser, where it has the form in which callsheet writes it.
//!
//! Pure. The text must be JSON: then only its strings have to be stepped over, and their ends are found eight bytes
//! at a time.

/// Returns the number of bytes before the first escape or quote.
#[must_use]
pub fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // The lowest bit that is set is that of the first byte which is zero.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zero(word ^ (ONES * u64::from(b'\\'))) | zero(word ^ (ONES * u64::from(b'"')));
        if found != 0 {
            return at * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let end = rest.iter().position(|byte| matches!(byte, b'\\' | b'"'));
    words.len() * 8 + end.unwrap_or(rest.len())
}

/// Returns the blocks of a message, as its text has them. `None` if it has another form, sound or not.
#[must_use]
pub fn blocks(message: &str) -> Option<Vec<&str>> {
    let (_, content) = message.strip_prefix(r#"{"role":""#)?.split_once('"')?;
    let list = content.strip_prefix(r#","content":["#)?.strip_suffix("]}")?;
    let (mut blocks, mut begin, mut at, mut depth) = (Vec::new(), 0, 0, 0_usize);
    while let Some(byte) = list.as_bytes().get(at) {
        at += 1;
        match byte {
            b'"' => at = end_of_string(list.as_bytes(), at)?,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                blocks.push(&list[begin..at - 1]);
                begin = at;
            }
            _ => {}
        }
    }
    if !list.is_empty() {
        blocks.push(&list[begin..]);
    }
    let is_object = |block: &&str| block.starts_with('{') && block.ends_with('}');
    (depth == 0 && blocks.iter().all(is_object)).then_some(blocks)
}

/// Returns the place behind the quote that ends the string which goes on at a place.
fn end_of_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += plain(bytes.get(at..)?);
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(serde::Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        content: Vec<&'a RawValue>,
    }

    fn parsed(message: &str) -> Vec<&str> {
        let outer: Outer<'_> = serde_json::from_str(message).unwrap();
        outer.content.into_iter().map(RawValue::get).collect()
    }

    #[test]
    fn other_forms_are_left_to_a_parser() {
        for other in [
            r#"{"content":[{}],"role":"user"}"#,
            r#"{"role":"user","content":"]}"}"#,
            r#"{"role":"user","content":[{}],"more":[{}]}"#,
            r#"{"role":"user","content":[{} ]}"#,
            r#"{"role":"user","content":[7]}"#,
            r#"{"role":"user","content":[{}"#,
            r#"{"role":"user","content":[{"a":"]}"#,
        ] {
            assert_eq!(blocks(other), None, "{other}");
        }
        assert_eq!(blocks(r#"{"role":"user","content":[]}"#), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn the_blocks_are_those_that_a_parser_finds(
            texts in prop::collection::vec("[a-z\"\\\\{}\\[\\],\\né😀]{0,40}", 0..5),
        ) {
            let block = |text: &String| serde_json::json!({ "type": "x", "a": [text, { text: 1 }] });
            let content: Vec<_> = texts.iter().map(block).collect();
            let content = serde_json::to_string(&content).unwrap();
            let message = format!(r#"{{"role":"user","content":{content}}}"#);
            prop_assert_eq!(blocks(&message), Some(parsed(&message)));
        }

        #[test]
        fn nothing_before_the_end_is_an_escape_or_a_quote(text in "[a-zé\"\\\\]{0,60}") {
            let end = text.bytes().position(|byte| matches!(byte, b'\\' | b'"'));
            prop_assert_eq!(plain(text.as_bytes()), end.unwrap_or(text.len()));
        }
    }
}
