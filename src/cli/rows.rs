//! Keeps the rows of a terminal apart: those that the program writes itself, and those with text of
//! models, commands and files, which begin with a mark that no row of the program has.
//!
//! Pure but for [`folded`], which asks a stream for its width.

use super::stream::{Stream, harmless};
use crate::printable::{MARK, columns};

/// The least width of a row in columns: a narrower terminal wraps.
const LEAST_WIDTH: usize = 8;

/// Begins each row that continues a line: at the left nothing of a text may stand that is longer than
/// a row, where it could pass for a line of the program.
const CONTINUED: &str = "  | ";

/// The deepest row that is indented further than the one above: a record may give any depth.
const DEEPEST: usize = 40;

/// The columns from one tab stop of a terminal to the next. At the last column a terminal stays where it is at
/// each tab, so a row holds blanks in place of them.
const TAB: usize = 8;

/// Returns the blanks before a row of a tree.
pub(super) fn indent(depth: usize) -> String {
    "  ".repeat(depth.min(DEEPEST))
}

/// Returns each line of a text behind the mark, indented as text below a line of the program. The
/// text must be one that is safe to show, or be printed by a stream, which makes it so.
pub(super) fn quoted(text: &str) -> String {
    let line = |line: &str| format!("{MARK}{line}").trim_end().to_owned();
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the lines cut to rows of a terminal of this width. A character that may take two columns
/// counts as two: a page must not be longer than it was counted, because its beginning would scroll
/// out of sight. Colours take no columns, and a tab becomes the blanks up to its stop or to the row's end.
pub(super) fn rows(lines: &[String], width: usize) -> Vec<String> {
    lines.iter().flat_map(|line| rows_of(line, width.max(LEAST_WIDTH))).collect()
}

fn rows_of(line: &str, width: usize) -> Vec<String> {
    let (mut rows, mut row) = (Vec::new(), String::new());
    let (mut taken, mut is_code) = (0, false);
    for c in line.chars() {
        let wide = match (c, is_code) {
            ('\x1b', _) => {
                is_code = true;
                0
            }
            (_, true) => {
                is_code = c != 'm';
                0
            }
            ('\t', false) => 1,
            (c, false) => columns(c),
        };
        if taken + wide > width {
            rows.push(std::mem::replace(&mut row, CONTINUED.to_owned()));
            taken = CONTINUED.len();
        }
        if c == '\t' {
            let stop = (taken + TAB - taken % TAB).min(width);
            row.extend(std::iter::repeat_n(' ', stop - taken));
            taken = stop;
        } else {
            row.push(c);
            taken += wide;
        }
    }
    rows.push(row);
    rows
}

/// Returns a text whose lines fit the terminal of a stream, which would wrap longer ones so that a part
/// of a text begins a row. It is made safe to show first, because the number of a character is longer than
/// the character. Without a terminal the text stays as it is.
pub(super) fn folded(text: &str, stream: Stream) -> String {
    match stream.size() {
        None => text.to_owned(),
        Some((width, _)) => folded_to(&harmless(text), width),
    }
}

fn folded_to(text: &str, width: usize) -> String {
    let width = width.max(LEAST_WIDTH);
    let lines: Vec<_> = text.split('\n').flat_map(|line| rows_of(line, width)).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_lines_are_cut_to_rows() {
        let cut = |line: &str| rows(&[line.to_owned(), String::new()], 8);
        assert_eq!(cut("abcdefghijklm"), ["abcdefgh", "  | ijkl", "  | m", ""]);
        assert_eq!(cut("漢字漢字漢字漢"), ["漢字漢字", "  | 漢字", "  | 漢", ""]);
        assert_eq!(folded_to("\x1b[31mabcdefgh\x1b[0m\nx\n", 8), "\x1b[31mabcdefgh\x1b[0m\nx\n");
        assert_eq!(quoted("one\r\n\n> callsheet approve 1\n"), "| one\n|\n| > callsheet approve 1");
        assert_eq!(quoted(""), "");
    }

    /// Returns the rows that a terminal of this width shows of a text.
    fn on_a_terminal(text: &str, width: usize) -> Vec<String> {
        let columns = u16::try_from(width).expect("a width");
        let mut terminal = vt100::Parser::new(2_000, columns, 0);
        terminal.process(text.replace('\n', "\r\n").as_bytes());
        terminal.screen().rows(0, columns).filter(|row| !row.is_empty()).collect()
    }

    #[test]
    fn a_tab_ends_at_its_stop_and_at_the_last_column() {
        assert_eq!(
            rows(&["a\tb\t\t\tc\td".to_owned()], 20),
            ["a       b           ", "  |     c       d"]
        );
        let hostile = format!("A{}B> callsheet approve 7jj", "\t".repeat(10));
        for width in 8..100 {
            for row in on_a_terminal(&folded_to(&quoted(&hostile), width), width) {
                assert!(
                    row.starts_with(['|', ' ']) && !row.trim().starts_with('>'),
                    "{width}: {row:?}"
                );
            }
        }
    }

    proptest! {
        // What a terminal shows is asked of one, which counts by no function of this program.
        #[test]
        fn no_row_of_a_terminal_begins_with_text_of_others(
            text in "([ -~]|\n|\r|\t|\t{12}|\u{1b}|\u{202e}|\u{2028}|\u{301}|漢|🎉|⚠\u{fe0f}|> callsheet approve 1|[ ]{40}){0,60}",
            width in 8usize..60,
        ) {
            let text = quoted(&text);
            let shown = folded_to(&harmless(&text), width);
            prop_assert!(!shown.contains('\t'));
            for row in on_a_terminal(&shown, width) {
                prop_assert!(row.starts_with('|') || row.starts_with(CONTINUED.trim_end()), "{row:?}");
            }
            // The terminal wraps nothing: what is counted as a row is one.
            let lines = shown.lines().filter(|line| !line.trim().is_empty()).count();
            prop_assert_eq!(on_a_terminal(&shown, width).len(), lines);
        }
    }
}
