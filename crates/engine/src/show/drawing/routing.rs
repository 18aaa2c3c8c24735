//! Gives trunks their tracks between the layers, and makes frames and lines of it all.
//!
//! Pure. Knows that [`placing`](super::placing) has kept stems and drops of different wires apart, so any track fits.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::layers::{Layered, Wire};
use super::placing::Placed;
use super::{Arrow, Cell, Direction, Drawing, Frame, Segment};

/// The most tracks at which a trunk looks for space before it takes a new one: bounds the time.
const LOOKED_AT: usize = 64;

/// The columns of a wire between two layers.
#[derive(Clone, Debug)]
struct Columns {
    stems: Vec<usize>,
    drops: Vec<usize>,
}

impl Columns {
    fn span(&self) -> (usize, usize) {
        let all = || self.stems.iter().chain(&self.drops).copied();
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }

    fn is_straight(&self) -> bool {
        let (low, high) = self.span();
        low == high
    }
}

/// Makes a drawing of nodes that have their places.
pub(super) fn routed(layered: &Layered, placed: &Placed, direction: Direction) -> Drawing {
    let mut pen = Pen { direction, segments: Vec::new(), arrows: Vec::new() };
    let mut frames = vec![Frame { at: Cell { x: 0, y: 0 }, width: 0, height: 0 }; layered.items];
    // Lines from left to right need a cell before the first track, or they would look like a border.
    let lead = usize::from(direction == Direction::Right);
    let (mut begin, mut across) = (0, 0);
    for (at, layer) in layered.layers.iter().enumerate() {
        let along = placed.along[at];
        for node in layer {
            let (start, extent) = (placed.start[*node], placed.across[*node]);
            across = across.max(start + extent);
            if let Some(frame) = frames.get_mut(*node) {
                *frame = pen.frame(start, begin, extent, along);
            }
        }
        let Some(wires) = layered.wires.get(at) else {
            begin += along;
            break;
        };
        let columns = |(wire, drops): (&Wire, &Vec<usize>)| Columns {
            stems: wire.tops.iter().map(|node| placed.out(*node)).collect(),
            drops: drops.clone(),
        };
        let columns: Vec<_> = wires.iter().zip(&placed.drops[at]).map(columns).collect();
        let (tracks, count) = tracks(&columns);
        let channel = Channel {
            top: begin,
            end: begin + along,
            first_track: begin + along + lead,
            bottom: begin + along + lead + count,
        };
        for ((wire, columns), track) in wires.iter().zip(&columns).zip(tracks) {
            pen.wire(wire, columns, track, channel, layered.items);
        }
        begin = channel.bottom + 1;
    }
    let (width, height) = match direction {
        Direction::Down => (across, begin),
        Direction::Right => (begin, across),
    };
    let Pen { segments, arrows, .. } = pen;
    Drawing { direction, width, height, frames, segments, arrows }
}

/// Returns the track of each wire and the number of tracks; a straight wire needs none.
fn tracks(columns: &[Columns]) -> (Vec<usize>, usize) {
    let mut order: Vec<_> =
        (0..columns.len()).filter(|wire| !columns[*wire].is_straight()).collect();
    // Trunks to the right lie the higher the further right they begin, and trunks to the left the other way round:
    // so they do not cross each other's stems.
    let key = |wire: &usize| {
        let (low, high) = columns[*wire].span();
        let is_right = columns[*wire].stems.iter().all(|stem| 2 * stem <= low + high);
        let rank = if is_right { (0, Reverse(low), 0) } else { (1, Reverse(0), high) };
        (rank, *wire)
    };
    order.sort_by_key(key);
    let mut taken: Vec<BTreeMap<usize, usize>> = Vec::new();
    let mut tracks = vec![0; columns.len()];
    for wire in order {
        let (low, high) = columns[wire].span();
        // Between two trunks of a track a cell is left.
        let fits = |track: &BTreeMap<usize, usize>| {
            track.range(..=high + 1).next_back().is_none_or(|(_, end)| end + 1 < low)
        };
        let first = taken.len().saturating_sub(LOOKED_AT);
        let found = (first..taken.len()).find(|track| fits(&taken[*track]));
        let track = found.unwrap_or_else(|| {
            taken.push(BTreeMap::new());
            taken.len() - 1
        });
        taken[track].insert(low, high);
        tracks[wire] = track;
    }
    (tracks, taken.len())
}

/// The space between two layers, in cells along.
#[derive(Clone, Copy, Debug)]
struct Channel {
    /// The first cell of the upper layer.
    top: usize,
    /// The first cell behind the upper layer.
    end: usize,
    first_track: usize,
    /// The last cell, which holds the arrows.
    bottom: usize,
}

struct Pen {
    direction: Direction,
    segments: Vec<Segment>,
    arrows: Vec<Arrow>,
}

impl Pen {
    fn cell(&self, across: usize, along: usize) -> Cell {
        match self.direction {
            Direction::Down => Cell { x: across, y: along },
            Direction::Right => Cell { x: along, y: across },
        }
    }

    fn frame(&self, start: usize, begin: usize, across: usize, along: usize) -> Frame {
        let at = self.cell(start, begin);
        match self.direction {
            Direction::Down => Frame { at, width: across, height: along },
            Direction::Right => Frame { at, width: along, height: across },
        }
    }

    fn line(&mut self, wire: usize, from: (usize, usize), to: (usize, usize)) {
        let (from, to) = (self.cell(from.0, from.1), self.cell(to.0, to.1));
        self.segments.push(Segment { wire, from, to });
    }

    fn wire(
        &mut self,
        wire: &Wire,
        columns: &Columns,
        track: usize,
        channel: Channel,
        items: usize,
    ) {
        let (low, high) = columns.span();
        let track = match columns.is_straight() {
            true => channel.bottom,
            false => channel.first_track + track,
        };
        for (node, column) in wire.tops.iter().zip(&columns.stems) {
            // A pass goes through its whole layer; a box is left at its border.
            let begin = if *node < items { channel.end - 1 } else { channel.top };
            self.line(wire.number, (*column, begin), (*column, track));
        }
        if low < high {
            self.line(wire.number, (low, track), (high, track));
        }
        for (node, column) in wire.bottoms.iter().zip(&columns.drops) {
            // The line of a pass begins in the cell behind this one.
            let bottom = if *node < items { channel.bottom } else { channel.bottom + 1 };
            if track < bottom {
                self.line(wire.number, (*column, track), (*column, bottom));
            }
            if *node < items {
                let at = self.cell(*column, channel.bottom);
                self.arrows.push(Arrow { wire: wire.number, item: *node, at });
            }
        }
    }
}
