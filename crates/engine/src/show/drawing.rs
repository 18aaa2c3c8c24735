//! Places boxes and lines for a graph in layers, for a terminal and for SVG alike.
//!
//! Pure and deterministic: integers in, integers out, in cells of a terminal. Knows boxes and what stands before them,
//! not tasks. It neither prints nor colours.
//!
//! A box stands one layer after the last of those before it. Boxes of one layer that lead to the same boxes share a
//! *wire*, because everything at one end of it is connected with everything at the other. A wire that leads past a
//! layer takes a *pass* there: a place one cell wide between the boxes. Between two layers each wire has its own stems
//! (from above), at most one trunk on a track, and drops (to below). A drop never stands in the column of another
//! wire's stem, so lines of two wires only ever cross.

mod layers;
mod placing;
mod routing;
mod svg;
mod text;

pub use self::svg::{Look, svg};
pub use self::text::text;

/// The most boxes, passes and ends of lines that are placed. 10,000 tasks of a usual graph have a quarter of them; it
/// bounds the time to seconds.
pub const MOST_PARTS: usize = 200_000;

/// What is drawn as one box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Its lines of text, safe to show. A box is as wide as the longest of them.
    pub lines: Vec<String>,
    /// The places of the items before it, in any order.
    pub before: Vec<usize>,
    /// True if it may be left out: the lines to it end with a hollow arrow.
    pub is_conditional: bool,
}

/// The side to which the layers follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From top to bottom.
    Down,
    /// From left to right.
    Right,
}

/// How the boxes of a layer stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Below what stands before them, so that lines are short.
    Aligned,
    /// As close as they can.
    Packed,
}

/// A cell: its column and its row, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// The column.
    pub x: usize,
    /// The row.
    pub y: usize,
}

/// A box with its border, in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its upper left corner.
    pub at: Cell,
    /// Its width: at least 3.
    pub width: usize,
    /// Its height: at least 3.
    pub height: usize,
}

/// A straight line of one wire, with both its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The number of the wire. A wire that passes layers keeps it.
    pub wire: usize,
    /// The end to the left or above.
    pub from: Cell,
    /// The end to the right or below.
    pub to: Cell,
}

/// The end of a line, in the cell before a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// The number of the wire.
    pub wire: usize,
    /// The place of the box in the list of items.
    pub item: usize,
    /// Its cell.
    pub at: Cell,
}

/// A graph with the place of everything in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// The direction of all lines.
    pub direction: Direction,
    /// The width in cells.
    pub width: usize,
    /// The height in cells.
    pub height: usize,
    /// The boxes, in the order of the items.
    pub frames: Vec<Frame>,
    /// The lines. The first cell of a line that leaves a box is in the border of the box.
    pub segments: Vec<Segment>,
    /// The ends of the lines.
    pub arrows: Vec<Arrow>,
}

/// The reason why a graph cannot be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrawingError {
    /// Some items stand before each other.
    #[error("some of its tasks wait for each other")]
    Circle,
    /// It has more than [`MOST_PARTS`] parts.
    #[error("it has too many tasks and lines")]
    TooLarge,
}

/// Places the items and the lines between them.
///
/// # Errors
/// Returns an error if the items form a circle, or if there would be more than [`MOST_PARTS`] parts.
pub fn draw(items: &[Item], direction: Direction, spread: Spread) -> Result<Drawing, DrawingError> {
    let layered = layers::layered(items)?;
    let placed = placing::placed(items, &layered, direction, spread);
    Ok(routing::routed(&layered, &placed, direction))
}

/// Returns the cells that a text takes in a terminal.
#[must_use]
pub fn width_of(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

#[cfg(test)]
mod tests;
