//! A drawing as lines of text, in the characters for boxes.
//!
//! Pure. Where two lines cross, the vertical one is whole and the other passes below it, so that a corner or a branch
//! is never mistaken for a crossing.

use super::{Cell, Direction, Drawing, Frame, Item, Segment, width_of};

const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;

/// The characters by the sides to which their lines lead.
const LINES: [char; 16] =
    [' ', '│', '│', '│', '─', '┘', '┐', '┤', '─', '└', '┌', '├', '─', '┴', '┬', '┼'];

/// A cell with lines of at most two wires.
#[derive(Clone, Copy, Debug, Default)]
struct Inked {
    sides: u8,
    /// The wire, from 1; 0 for a border.
    wire: usize,
}

/// Returns the lines of a drawing, each without blanks at its end. `paint` gets the place of an item and one of its
/// lines with the blanks around it, and returns that line, perhaps coloured.
///
/// The time and the space grow with the area of the drawing.
#[must_use]
pub fn text(drawing: &Drawing, items: &[Item], paint: impl Fn(usize, &str) -> String) -> String {
    let mut sheet = Sheet::new(drawing.width, drawing.height);
    drawing.frames.iter().for_each(|frame| sheet.border(*frame));
    drawing.segments.iter().for_each(|segment| sheet.line(*segment));
    for arrow in &drawing.arrows {
        let is_hollow = items.get(arrow.item).is_some_and(|item| item.is_conditional);
        let head = match (drawing.direction, is_hollow) {
            (Direction::Down, false) => '▼',
            (Direction::Down, true) => '▽',
            (Direction::Right, false) => '▶',
            (Direction::Right, true) => '▷',
        };
        sheet.put(arrow.at, head);
    }
    let mut inside: Vec<Vec<(usize, usize, String)>> = vec![Vec::new(); drawing.height];
    for (place, (frame, item)) in drawing.frames.iter().zip(items).enumerate() {
        let above = (frame.height - 2).saturating_sub(item.lines.len()) / 2;
        for (number, line) in item.lines.iter().enumerate() {
            if let Some(row) = inside.get_mut(frame.at.y + 1 + above + number) {
                let text = paint(place, &centred(line, frame.width - 2));
                row.push((frame.at.x + 1, frame.width - 2, text));
            }
        }
    }
    let mut out = String::new();
    for (y, mut texts) in inside.into_iter().enumerate() {
        texts.sort_by_key(|(x, ..)| *x);
        out.push_str(sheet.row(y, &texts).trim_end());
        out.push('\n');
    }
    out
}

/// Returns a text with blanks around it, so many cells wide.
fn centred(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(width_of(text));
    format!("{}{text}{}", " ".repeat(blanks / 2), " ".repeat(blanks - blanks / 2))
}

struct Sheet {
    width: usize,
    cells: Vec<Inked>,
    heads: Vec<(usize, char)>,
}

impl Sheet {
    fn new(width: usize, height: usize) -> Self {
        Self { width, cells: vec![Inked::default(); width * height], heads: Vec::new() }
    }

    fn border(&mut self, Frame { at, width, height }: Frame) {
        let (right, bottom) = (at.x + width - 1, at.y + height - 1);
        let corner = |x, y| Cell { x, y };
        for (from, to) in [
            (at, corner(right, at.y)),
            (corner(at.x, bottom), corner(right, bottom)),
            (at, corner(at.x, bottom)),
            (corner(right, at.y), corner(right, bottom)),
        ] {
            self.stroke(0, from, to);
        }
    }

    fn line(&mut self, Segment { wire, from, to }: Segment) {
        self.stroke(wire + 1, from, to);
    }

    fn stroke(&mut self, wire: usize, from: Cell, to: Cell) {
        for x in from.x..=to.x {
            for y in from.y..=to.y {
                let mut sides = 0;
                sides |= if x > from.x { LEFT } else { 0 } | if x < to.x { RIGHT } else { 0 };
                sides |= if y > from.y { UP } else { 0 } | if y < to.y { DOWN } else { 0 };
                self.ink(y * self.width + x, wire, sides);
            }
        }
    }

    fn ink(&mut self, at: usize, wire: usize, sides: u8) {
        let Some(cell) = self.cells.get_mut(at) else { return };
        let is_crossed = cell.sides != 0 && cell.wire != 0 && wire != 0 && cell.wire != wire;
        // A line that leaves a box is part of its border there.
        cell.sides = if is_crossed { UP | DOWN } else { cell.sides | sides };
        cell.wire = cell.wire.max(wire);
    }

    fn put(&mut self, at: Cell, head: char) {
        self.heads.push((at.y * self.width + at.x, head));
        if let Some(cell) = self.cells.get_mut(at.y * self.width + at.x) {
            // A number that no side has: the head is found by it.
            cell.sides = HEAD;
            cell.wire = self.heads.len() - 1;
        }
    }

    /// Returns a row of cells, with the texts that begin in it.
    fn row(&self, y: usize, texts: &[(usize, usize, String)]) -> String {
        let mut row = String::new();
        let (mut x, mut texts) = (0, texts.iter().peekable());
        while x < self.width {
            if let Some((_, width, text)) = texts.next_if(|(start, ..)| *start == x) {
                row.push_str(text);
                x += width;
                continue;
            }
            let Inked { sides, wire } = self.cells[y * self.width + x];
            row.push(match sides {
                HEAD => self.heads.get(wire).map_or(' ', |(_, head)| *head),
                sides => LINES.get(usize::from(sides)).copied().unwrap_or(' '),
            });
            x += 1;
        }
        row
    }
}

/// Marks a cell with the head of an arrow.
const HEAD: u8 = 16;
