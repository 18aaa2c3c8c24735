//! Makes text of models, tools, files and people safe to show: characters that steer a terminal,
//! turn the direction of reading or are not seen are replaced by their numbers, such as `\u{1b}`.
//!
//! Pure. The only such function of the program: what is shown on a terminal or written to a log
//! passes it. What is recorded does not. The result holds no such character, is the same when it
//! passes again, and is at most ten times as long.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// The characters that are not shown as they are, as ranges in order: control characters, and the
/// default-ignorable characters of Unicode 16 with the separators of lines and the format controls
/// that a terminal does not show. The two noncharacters at the end of each plane are hidden too.
const HIDDEN: [(char, char); 21] = [
    ('\0', '\u{1f}'),
    ('\u{7f}', '\u{9f}'),
    // Soft hyphen, and the joiner of graphemes.
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    // The Arabic mark of direction.
    ('\u{61c}', '\u{61c}'),
    // Hangul fillers and Khmer vowels that show nothing.
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    // Mongolian selectors.
    ('\u{180b}', '\u{180f}'),
    // Zero width, marks of direction, separators of lines and paragraphs, embeddings.
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fdd0}', '\u{fdef}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    // Format controls of hieroglyphs, shorthand and music.
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    // Tags and more selectors.
    ('\u{e0000}', '\u{e0fff}'),
];

/// Begins each row of a text of models, commands and files that stands on rows of its own, behind an
/// indentation. No row that the program writes itself begins so.
pub const MARK: &str = "| ";

/// Returns the most columns that a character takes in a terminal.
pub fn columns(c: char) -> usize {
    match c {
        // Wide characters begin with the Hangul letters; dashes and dots of prose are among them.
        ..'\u{1100}' | '\u{2000}'..='\u{206f}' => 1,
        _ => 2,
    }
}

/// The widest column of a table, in characters: a longer name moves the rest of its own row and of no other.
/// Names of files of a repository and of models have any length.
pub const WIDEST: usize = 1_000;

/// Returns a text with blanks behind it, as wide as its column: at least `width` characters, but no blank beyond
/// [`WIDEST`]. Tables pad with it and not with the width of a format, which panics above 65,535.
pub fn padded(text: &str, width: usize) -> String {
    let blanks = width.min(WIDEST).saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(blanks))
}

/// Returns true if a character steers a terminal, changes how its neighbours look, or is not seen.
pub fn is_hidden(c: char) -> bool {
    match c {
        ' '..='~' => false,
        _ => {
            let after = HIDDEN.partition_point(|(_, last)| *last < c);
            let is_listed = HIDDEN.get(after).is_some_and(|(first, _)| *first <= c);
            is_listed || u32::from(c) & 0xfffe == 0xfffe
        }
    }
}

/// Returns a text of several lines safe to show: newlines and tabs stay, the carriage return of a
/// line's end is left out, everything else that is hidden is replaced.
pub fn block(text: &str) -> Cow<'_, str> {
    shown(text, |c| match c {
        '\n' => Some('\n'),
        '\t' => Some('\t'),
        _ => None,
    })
}

/// Returns a text as one line that is safe to show: a tab becomes a blank, everything else that is
/// hidden is replaced, newlines too.
pub fn line(text: &str) -> Cow<'_, str> {
    shown(text, |c| (c == '\t').then_some(' '))
}

/// Returns the same JSON with the hidden characters of its texts as `\u` escapes: readers get the
/// same values.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_kept = |c: char| !is_hidden(c) || matches!(c, '\n' | '\t');
    if text.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            // Between the values of a document, because texts have them escaped already.
            '\r' => {}
            c if is_kept(c) => out.push(c),
            c => {
                let escape = |unit: &mut u16| format!("\\u{unit:04x}");
                out.extend(c.encode_utf16(&mut [0; 2]).iter_mut().map(escape));
            }
        }
    }
    Cow::Owned(out)
}

/// Returns the characters of a text, and for each whether it must be replaced by its number.
pub(crate) fn marked(text: &str) -> impl Iterator<Item = (char, bool)> {
    Marked { chars: text.chars().peekable(), before: None }
}

struct Marked<'a> {
    chars: Peekable<Chars<'a>>,
    before: Option<char>,
}

impl Iterator for Marked<'_> {
    type Item = (char, bool);

    fn next(&mut self) -> Option<(char, bool)> {
        let c = self.chars.next()?;
        let before = self.before.replace(c);
        let hidden = is_hidden(c) && !selects_a_look(before, c, self.chars.peek().copied());
        Some((c, hidden))
    }
}

/// Returns true for a selector of text or emoji style that stands directly after a symbol which has
/// both: replies are full of them, and one of them hides nothing.
fn selects_a_look(before: Option<char>, c: char, next: Option<char>) -> bool {
    let Some(before) = before.filter(|_| matches!(c, '\u{fe0e}' | '\u{fe0f}')) else {
        return false;
    };
    match before {
        // The keys of a telephone.
        '0'..='9' | '#' | '*' => next == Some('\u{20e3}'),
        '©' | '®' | '‼' | '⁉' | '™' | 'ℹ' | '〰' | '〽' | '㊗' | '㊙' => true,
        '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{27bf}' | '\u{2900}'..='\u{2bff}' => true,
        '\u{1f000}'..='\u{1faff}' => true,
        _ => false,
    }
}

fn shown(text: &str, keeps: impl Fn(char) -> Option<char>) -> Cow<'_, str> {
    // Nearly every text; what is more than these characters is looked at one by one.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let is_same = |(c, hidden): (char, bool)| !hidden || keeps(c) == Some(c);
    if marked(text).all(is_same) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut rest = marked(text).peekable();
    while let Some((c, hidden)) = rest.next() {
        match keeps(c) {
            _ if !hidden => out.push(c),
            Some(kept) => out.push(kept),
            None if c == '\r' && keeps('\n').is_some() && is_newline(rest.peek()) => {}
            None => out.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(out)
}

fn is_newline(next: Option<&(char, bool)>) -> bool {
    next.is_some_and(|(c, _)| *c == '\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_column_of_any_length_is_padded_and_none_is_padded_without_bound() {
        assert_eq!(padded("\u{e9}", 3), "\u{e9}  ");
        assert_eq!(padded("long", 3), "long");
        let long = "a".repeat(70_000);
        assert_eq!(padded(&long, long.len()), long);
        assert_eq!(padded("a", long.len()).len(), WIDEST);
    }

    #[test]
    fn texts_are_shown_like_this() {
        // The text, as a block, as a line.
        let table = [
            (
                "plain – ünïcödé 漢字 ✓ 🎉 π",
                "plain – ünïcödé 漢字 ✓ 🎉 π",
                "plain – ünïcödé 漢字 ✓ 🎉 π",
            ),
            ("a\tb\nc", "a\tb\nc", "a b\\u{a}c"),
            ("a\r\nb", "a\nb", "a\\u{d}\\u{a}b"),
            ("12 %\r99 %", "12 %\\u{d}99 %", "12 %\\u{d}99 %"),
            ("\r\r\n", "\\u{d}\n", "\\u{d}\\u{d}\\u{a}"),
            ("\x1b[2J\x1b]0;t\x07", "\\u{1b}[2J\\u{1b}]0;t\\u{7}", "\\u{1b}[2J\\u{1b}]0;t\\u{7}"),
            ("\u{9b}31m\u{90}q\u{9c}", "\\u{9b}31m\\u{90}q\\u{9c}", "\\u{9b}31m\\u{90}q\\u{9c}"),
            ("x\x08\x7f\0", "x\\u{8}\\u{7f}\\u{0}", "x\\u{8}\\u{7f}\\u{0}"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}", "a\\u{202e}b\\u{2066}"),
            ("\u{feff}l\u{200b}s", "\\u{feff}l\\u{200b}s", "\\u{feff}l\\u{200b}s"),
            ("t\u{e0041}", "t\\u{e0041}", "t\\u{e0041}"),
            ("a\u{2028}b\u{85}c", "a\\u{2028}b\\u{85}c", "a\\u{2028}b\\u{85}c"),
            ("co\u{ad}op\u{3164}", "co\\u{ad}op\\u{3164}", "co\\u{ad}op\\u{3164}"),
            // A selector stays where it chooses the look of a symbol, and only there.
            ("⚠\u{fe0f} ✔\u{fe0e} 1\u{fe0f}\u{20e3}", "⚠️ ✔︎ 1️⃣", "⚠️ ✔︎ 1️⃣"),
            ("⚠\u{fe0f}\u{fe0f}", "⚠\u{fe0f}\\u{fe0f}", "⚠\u{fe0f}\\u{fe0f}"),
            ("a\u{fe0f}1\u{fe0f}2", "a\\u{fe0f}1\\u{fe0f}2", "a\\u{fe0f}1\\u{fe0f}2"),
            // Emoji that are joined are shown by their parts.
            ("👩\u{200d}💻", "👩\\u{200d}💻", "👩\\u{200d}💻"),
            ("\\u{1b}", "\\u{1b}", "\\u{1b}"),
        ];
        for (text, as_block, as_line) in table {
            assert_eq!(block(text), as_block, "{text:?}");
            assert_eq!(line(text), as_line, "{text:?}");
        }
    }

    #[test]
    fn the_table_is_in_order_and_has_every_range() {
        assert!(HIDDEN.windows(2).all(|two| two[0].0 <= two[0].1 && two[0].1 < two[1].0));
        let count = (0..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|c| is_hidden(*c));
        // The ends of each range, and what stands beside it.
        for (c, hidden) in [
            ('\u{1f}', true),
            (' ', false),
            ('~', false),
            ('\u{7f}', true),
            ('\u{9f}', true),
            ('\u{a0}', false),
            ('\u{ad}', true),
            ('\u{61c}', true),
            ('\u{115f}', true),
            ('\u{180e}', true),
            ('\u{2010}', false),
            ('\u{200a}', false),
            ('\u{200b}', true),
            ('\u{200f}', true),
            ('\u{2027}', false),
            ('\u{2028}', true),
            ('\u{2029}', true),
            ('\u{202a}', true),
            ('\u{202e}', true),
            ('\u{202f}', false),
            ('\u{2060}', true),
            ('\u{2066}', true),
            ('\u{2069}', true),
            ('\u{2070}', false),
            ('\u{fe00}', true),
            ('\u{feff}', true),
            ('\u{fffd}', false),
            ('\u{e0000}', true),
            ('\u{e007f}', true),
            ('\u{e01ef}', true),
            ('\u{e1000}', false),
            ('\u{ffff}', true),
            ('\u{1fffd}', false),
            (char::MAX, true),
        ] {
            assert_eq!(is_hidden(c), hidden, "{:04x}", u32::from(c));
        }
        assert!(count.count() < 5_000);
    }

    #[test]
    fn time_and_size_grow_with_the_text_only() {
        for text in ["\r", "\u{202e}", "⚠\u{fe0f}", "\r\n", "\x1b[31m", "a"] {
            let long = text.repeat(1_000_000 / text.len());
            let began = std::time::Instant::now();
            for shown in [block(&long), line(&long), json(&long)] {
                assert!(shown.len() <= 10 * long.len());
            }
            // A quadratic search would take hours.
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "{text:?}");
        }
    }

    /// Texts in which hidden characters and those that make exceptions are common.
    fn texts() -> impl Strategy<Value = String> {
        let special = "[\0-\x1f\x7f-\u{9f}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{fe0e}\u{fe0f}\u{20e3}⚠1#\r\n\t\\\\\"]";
        let piece = prop_oneof![any::<char>().prop_map(String::from), special, "[a-z ]{1,3}"];
        prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left(text in texts()) {
            for (shown, kept) in [(block(&text), "\n\t"), (line(&text), "")] {
                let left = marked(&shown).find(|(c, hidden)| *hidden && !kept.contains(*c));
                prop_assert_eq!(left, None);
                let bare = |c: char| is_hidden(c) && !"\u{fe0e}\u{fe0f}".contains(c) && !kept.contains(c);
                prop_assert!(!shown.contains(bare));
            }
            let (as_block, as_line) = (block(&text), line(&text));
            prop_assert_eq!(block(&as_block), as_block.clone());
            prop_assert_eq!(line(&as_line), as_line.clone());
            // A line is a block, and what was made for people stays as it is.
            prop_assert_eq!(block(&as_line), as_line.clone());
            prop_assert_eq!(line(&as_block).contains('\n'), false);
        }

        #[test]
        fn json_has_the_same_values(text in texts(), pretty in any::<bool>()) {
            let value = serde_json::json!({ text.as_str(): [text.as_str(), {"n": 1}] });
            let written = if pretty { format!("{value:#}\r\n") } else { value.to_string() };
            let shown = json(&written);
            prop_assert!(!shown.contains(|c| is_hidden(c) && c != '\n'));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
            prop_assert_eq!(json(&shown), shown.clone());
        }

        #[test]
        fn visible_text_stays(text in "[ -~äöü漢字✓—…🎉]{0,80}") {
            prop_assert_eq!(block(&text), text.as_str());
            prop_assert_eq!(line(&text), text.as_str());
            prop_assert_eq!(json(&text), text.as_str());
        }
    }
}
