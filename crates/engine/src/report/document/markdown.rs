//! A page as Markdown that is readable as plain text.
//!
//! Pure. Text from outside stands in code spans and fences that are longer than any in it, so that
//! it can make no heading, link, image or tag.

use std::borrow::Cow;

use super::page::{Block, Inline};
use crate::printable;

/// Returns the page as text.
pub(super) fn text(page: &[Block]) -> String {
    let mut text = String::new();
    for block in page {
        if !text.is_empty() {
            text.push('\n');
        }
        match block {
            Block::Heading(level, line) => {
                text.push_str(&"#".repeat(usize::from(*level)));
                text.push_str(&format!(" {}\n", of_line(line)));
            }
            Block::Paragraph(line) => text.push_str(&format!("{}\n", of_line(line))),
            Block::List(items) => {
                items.iter().for_each(|item| text.push_str(&format!("- {}\n", of_line(item))));
            }
            Block::Table(head, rows) => table(head, rows, &mut text),
            Block::Verbatim(body) => verbatim(body, &mut text),
        }
    }
    text
}

fn of_line(line: &[Inline]) -> String {
    line.iter().map(inline).collect()
}

fn inline(part: &Inline) -> Cow<'_, str> {
    match part {
        Inline::Plain(text) => Cow::Borrowed(text),
        Inline::State(text) => format!("**{text}**").into(),
        Inline::Foreign(text) => code(text).into(),
    }
}

/// Returns a code span with the text.
fn code(text: &str) -> String {
    let shown = printable::line(text);
    let shown = shown.trim();
    if shown.is_empty() {
        return "(empty)".to_owned();
    }
    let fence = "`".repeat(longest_run(shown) + 1);
    // A blank keeps a backtick at an end apart from the fence; readers take it away.
    let pad = if shown.starts_with('`') || shown.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{shown}{pad}{fence}")
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

fn verbatim(body: &str, text: &mut String) {
    let shown = printable::block(body);
    let fence = "`".repeat((longest_run(&shown) + 1).max(3));
    text.push_str(&format!("{fence}text\n{}\n{fence}\n", shown.trim_end()));
}

/// Writes a table whose columns stand below each other as plain text too.
fn table(head: &[&str], rows: &[Vec<Inline>], text: &mut String) {
    // In a table a bar ends the cell even in a code span, unless it is escaped.
    let cell = |part: &Inline| inline(part).replace('|', "\\|");
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let widths: Vec<_> = head
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            cells
                .map(|cell| cell.chars().count())
                .chain([name.len(), 3])
                .max()
                .unwrap_or(3)
                .min(printable::WIDEST)
        })
        .collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        for (cell, width) in cells.zip(&widths) {
            text.push_str(&format!("| {} ", printable::padded(cell, *width)));
        }
        text.push_str("|\n");
    };
    line(&mut head.iter().copied());
    let rule: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
    line(&mut rule.iter().map(String::as_str));
    for row in &rows {
        line(&mut row.iter().map(String::as_str));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_cannot_leave_its_span() {
        for (text, wanted) in [
            ("plain", "`plain`"),
            ("a`b", "``a`b``"),
            ("`a``", "``` `a`` ```"),
            ("one\ntwo\u{1b}[1m", "`one\\u{a}two\\u{1b}[1m`"),
            (" \n", "`\\u{a}`"),
            ("", "(empty)"),
            ("# x ![a](http://e/) <b>", "`# x ![a](http://e/) <b>`"),
        ] {
            assert_eq!(code(text), wanted, "{text:?}");
        }
        let mut fenced = String::new();
        verbatim("```\n# heading\n````", &mut fenced);
        assert_eq!(fenced, "`````text\n```\n# heading\n````\n`````\n");
        let mut cells = String::new();
        table(&["a"], &[vec![Inline::Foreign("x|y".to_owned())]], &mut cells);
        assert_eq!(cells, "| a      |\n| ------ |\n| `x\\|y` |\n");
    }
}
