//! Keeps the rows of a terminal apart: those that the program writes itself, and those with text of
//! models, commands and files, which begin with a mark that no row of the program has.
//!
//! Pure but for [`folded`], which asks a stream for its width.

use super::stream::Stream;
use crate::printable::{self, MARK, columns};

/// The least width of a row in columns: a narrower terminal wraps.
const LEAST_WIDTH: usize = 8;

/// Begins each row that continues a line: at the left nothing of a text may stand that is longer than
/// a row, where it could pass for a line of the program.
const CONTINUED: &str = "  | ";

/// The deepest row that is indented further than the one above: a record may give any depth.
const DEEPEST: usize = 40;

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
/// out of sight. Colours take no columns.
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
            (c, false) => columns(c),
        };
        if taken + wide > width {
            rows.push(std::mem::replace(&mut row, CONTINUED.to_owned()));
            taken = CONTINUED.len();
        }
        row.push(c);
        taken += wide;
    }
    rows.push(row);
    rows
}

/// Returns a text of others with marks or lines of this program around it as it is shown by a stream,
/// as [`folded`] does.
pub(super) fn folded_block(text: &str, stream: Stream) -> String {
    folded(&printable::block(text), stream)
}

/// Returns a text whose lines fit the terminal of a stream, which would wrap longer ones so that a part
/// of a text begins a row. Without a terminal the text stays as it is. The text must be safe to show.
pub(super) fn folded(text: &str, stream: Stream) -> String {
    match stream.size() {
        None => text.to_owned(),
        Some((width, _)) => folded_to(text, width),
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

    proptest! {
        #[test]
        fn no_row_begins_with_text_of_others(
            text in "([ -~]|\n|\r|\t|\u{1b}|\u{202e}|\u{2028}|漢|> callsheet approve 1|[ ]{40}){0,60}",
            width in 8usize..60,
        ) {
            let shown = folded_to(&printable::block(&quoted(&text)), width);
            for row in shown.lines().filter(|row| !row.is_empty()) {
                prop_assert!(row.starts_with('|') || row.starts_with(CONTINUED), "{row:?}");
                prop_assert!(row.chars().map(columns).sum::<usize>() <= width, "{row:?}");
            }
            let lines = printable::block(&quoted(&text)).lines().count();
            prop_assert!(shown.lines().count() >= lines);
        }
    }
}
