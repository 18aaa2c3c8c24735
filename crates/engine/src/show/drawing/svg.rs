//! A drawing as one SVG document that loads nothing and runs nothing.
//!
//! Pure. Every text is escaped here: names come from files and records of others.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Cell, Direction, Drawing, Item, Segment};
use crate::printable;

/// The pixels of a cell: those of a character in the font of the document.
const WIDE: usize = 9;
const HIGH: usize = 18;

/// The pixels around the drawing.
const MARGIN: usize = 12;

/// What an item has in the document beside its lines.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Its whole name, which is shown on pointing at it.
    pub title: String,
    /// The colour of its box, in the notation of CSS.
    pub fill: &'static str,
}

/// Returns the document. `looks` has the order of the items.
#[must_use]
pub fn svg(drawing: &Drawing, items: &[Item], looks: &[Look], title: &str) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = document(drawing, items, looks, title, &mut out);
    out
}

fn document(
    drawing: &Drawing,
    items: &[Item],
    looks: &[Look],
    title: &str,
    out: &mut String,
) -> std::fmt::Result {
    let (width, height) = (drawing.width * WIDE + 2 * MARGIN, drawing.height * HIGH + 2 * MARGIN);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, monospace\" font-size=\"14\">"
    )?;
    writeln!(out, "<title>{}</title>", escaped(title))?;
    writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>")?;
    lines(drawing, out)?;
    for arrow in &drawing.arrows {
        let is_hollow = items.get(arrow.item).is_some_and(|item| item.is_conditional);
        head(drawing.direction, arrow.at, is_hollow, out)?;
    }
    for ((frame, item), look) in drawing.frames.iter().zip(items).zip(looks) {
        let (x, y) = (MARGIN + frame.at.x * WIDE, MARGIN + frame.at.y * HIGH);
        // The border stands in the middle of its cells.
        let (left, top) = (x + WIDE / 2, y + HIGH / 2);
        let (wide, high) = ((frame.width - 1) * WIDE, (frame.height - 1) * HIGH);
        writeln!(out, "<g><title>{}</title>", escaped(&look.title))?;
        writeln!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{wide}\" height=\"{high}\" rx=\"5\" fill=\"{}\" stroke=\"#444444\"/>",
            escaped(look.fill)
        )?;
        let above = (frame.height - 2).saturating_sub(item.lines.len()) / 2;
        let middle = left + wide / 2;
        for (number, line) in item.lines.iter().enumerate() {
            let base = y + (1 + above + number) * HIGH + 14;
            writeln!(
                out,
                "<text x=\"{middle}\" y=\"{base}\" text-anchor=\"middle\">{}</text>",
                escaped(line)
            )?;
        }
        writeln!(out, "</g>")?;
    }
    writeln!(out, "</svg>")
}

/// Writes the lines, and a dot where a wire branches: two lines that cross have none.
fn lines(drawing: &Drawing, out: &mut String) -> std::fmt::Result {
    // A place of a wire: its cells along and across, so that the ends at a trunk follow each other.
    let key = |wire: usize, at: Cell| match drawing.direction {
        Direction::Down => (wire, at.y, at.x),
        Direction::Right => (wire, at.x, at.y),
    };
    let mut path = String::new();
    // The lines of a wire that lead away from each end of a line.
    let mut ends: BTreeMap<(usize, usize, usize), (Cell, usize)> = BTreeMap::new();
    for Segment { wire, from, to } in &drawing.segments {
        let ((x, y), (to_x, to_y)) = (centre(*from), centre(*to));
        write!(path, "M{x} {y}L{to_x} {to_y}")?;
        for end in [from, to] {
            ends.entry(key(*wire, *end)).or_insert((*end, 0)).1 += 1;
        }
    }
    for Segment { wire, from, to } in &drawing.segments {
        let (from, to) = (key(*wire, *from), key(*wire, *to));
        // Only at a trunk do other lines end between its own ends.
        if from.1 == to.1 {
            let within = ends.range_mut(from..to).skip(1);
            within.for_each(|(_, (_, count))| *count += 2);
        }
    }
    writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"#666666\" stroke-width=\"1.5\"/>")?;
    for (at, _) in ends.values().filter(|(_, count)| *count > 2) {
        let (x, y) = centre(*at);
        writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"2.5\" fill=\"#666666\"/>")?;
    }
    Ok(())
}

fn centre(at: Cell) -> (usize, usize) {
    (MARGIN + at.x * WIDE + WIDE / 2, MARGIN + at.y * HIGH + HIGH / 2)
}

fn head(direction: Direction, at: Cell, is_hollow: bool, out: &mut String) -> std::fmt::Result {
    let (x, y) = centre(at);
    let fill = if is_hollow { "#ffffff" } else { "#666666" };
    // The point touches the border of the box, which is half a cell behind the next cell's edge.
    let points = match direction {
        Direction::Down => {
            let point = y + HIGH;
            format!("{},{} {},{} {x},{point}", x - 4, point - 9, x + 4, point - 9)
        }
        Direction::Right => {
            let point = x + WIDE;
            format!("{},{} {},{} {point},{y}", point - 9, y - 4, point - 9, y + 4)
        }
    };
    writeln!(out, "<polygon points=\"{points}\" fill=\"{fill}\" stroke=\"#666666\"/>")
}

/// Returns a text as XML shows it: no tag begins in it, and no character of it is forbidden there.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable::line(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
