//! Gives each node its extent across the layers, and each wire its columns: where it leaves a layer and where it enters
//! the next one.
//!
//! Pure. *Across* is horizontal where layers follow each other downward, and vertical otherwise; *along* is the other
//! one. The rule that keeps wires apart is here: no drop in the column of another wire's stem.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::layers::{Layered, Node, Wire};
use super::{Direction, Item, Spread, width_of};

/// The rounds in which boxes move towards their neighbours.
const ROUNDS: usize = 4;

/// Where everything stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Placed {
    /// The first cell of each node across.
    pub(super) start: Vec<usize>,
    /// The cells that each node takes across.
    pub(super) across: Vec<usize>,
    /// The cells that each layer takes along.
    pub(super) along: Vec<usize>,
    /// The columns of the drops of each wire, in the order of its `bottoms`.
    pub(super) drops: Vec<Vec<Vec<usize>>>,
}

impl Placed {
    /// Returns the column in which a node leads on.
    pub(super) fn out(&self, node: Node) -> usize {
        self.start[node] + self.across[node] / 2
    }
}

/// Places the nodes of all layers.
pub(super) fn placed(
    items: &[Item],
    layered: &Layered,
    direction: Direction,
    spread: Spread,
) -> Placed {
    let across = extents(items, layered, direction);
    let along = layered.layers.iter().map(|layer| along(items, layer, direction)).collect();
    let gaps = Gaps { direction, items: layered.items };
    let mut centres = packed(layered, &across, gaps);
    if spread == Spread::Aligned {
        for _ in 0..ROUNDS {
            align(layered, &across, gaps, &mut centres);
        }
    }
    let mut placed = Placed { start: vec![0; layered.nodes], across, along, drops: Vec::new() };
    settle(layered, gaps, &centres, &mut placed);
    placed
}

/// Returns the cells across of each node: a box has space for a drop of each wire that leads to it.
fn extents(items: &[Item], layered: &Layered, direction: Direction) -> Vec<usize> {
    let mut drops = vec![0; layered.nodes];
    layered
        .wires
        .iter()
        .flatten()
        .flat_map(|wire| &wire.bottoms)
        .for_each(|node| drops[*node] += 1);
    let extent = |node: Node| match items.get(node) {
        Some(item) => size(item, direction).0.max(drops[node] + 2),
        None => 1,
    };
    (0..layered.nodes).map(extent).collect()
}

/// Returns the cells of a box across and along.
fn size(item: &Item, direction: Direction) -> (usize, usize) {
    let width = item.lines.iter().map(|line| width_of(line)).max().unwrap_or(0) + 4;
    let height = item.lines.len().max(1) + 2;
    match direction {
        Direction::Down => (width, height),
        Direction::Right => (height, width),
    }
}

fn along(items: &[Item], layer: &[Node], direction: Direction) -> usize {
    let boxes = layer.iter().filter_map(|node| items.get(*node));
    boxes.map(|item| size(item, direction).1).max().unwrap_or(1)
}

/// The cells between neighbours of a layer.
#[derive(Clone, Copy, Debug)]
struct Gaps {
    direction: Direction,
    items: usize,
}

impl Gaps {
    fn between(self, one: Node, other: Node) -> usize {
        let are_boxes = one < self.items && other < self.items;
        match self.direction {
            Direction::Down => 1 + usize::from(are_boxes),
            // Boxes one above the other have their borders between them.
            Direction::Right => usize::from(!are_boxes),
        }
    }
}

/// Returns the least distance between the centres of each node of a layer and the next one, as sums from the first.
fn offsets(layer: &[Node], across: &[usize], gaps: Gaps) -> Vec<f64> {
    let mut sum = 0.0;
    let mut offsets = Vec::with_capacity(layer.len());
    for (at, node) in layer.iter().enumerate() {
        if let Some(last) = at.checked_sub(1).map(|last| layer[last]) {
            let half = float(across[last] + across[*node]) / 2.0;
            sum += half + float(gaps.between(last, *node));
        }
        offsets.push(sum);
    }
    offsets
}

/// Returns the centres of nodes that stand as close as they can, each layer around the same line.
fn packed(layered: &Layered, across: &[usize], gaps: Gaps) -> Vec<f64> {
    let mut centres = vec![0.0; layered.nodes];
    for layer in &layered.layers {
        let offsets = offsets(layer, across, gaps);
        let middle = offsets.last().copied().unwrap_or(0.0) / 2.0;
        for (node, offset) in layer.iter().zip(&offsets) {
            centres[*node] = offset - middle;
        }
    }
    centres
}

/// Moves the nodes towards the middle of their neighbours: those below, and then those above.
fn align(layered: &Layered, across: &[usize], gaps: Gaps, centres: &mut [f64]) {
    for layer in (0..layered.layers.len().saturating_sub(1)).rev() {
        let pulls = pulls(&layered.wires[layer], centres, |wire| (&wire.bottoms, &wire.tops));
        pull(&layered.layers[layer], &pulls, across, gaps, centres);
    }
    for layer in 1..layered.layers.len() {
        let pulls = pulls(&layered.wires[layer - 1], centres, |wire| (&wire.tops, &wire.bottoms));
        pull(&layered.layers[layer], &pulls, across, gaps, centres);
    }
}

/// Returns the sum and the number of the centres that each node is pulled to.
fn pulls(
    wires: &[Wire],
    centres: &[f64],
    ends: impl Fn(&Wire) -> (&Vec<Node>, &Vec<Node>),
) -> BTreeMap<Node, (f64, f64)> {
    let mut pulls: BTreeMap<Node, (f64, f64)> = BTreeMap::new();
    for wire in wires {
        let (from, to) = ends(wire);
        let sum: f64 = from.iter().map(|node| centres[*node]).sum();
        for node in to {
            let pull = pulls.entry(*node).or_default();
            *pull = (pull.0 + sum, pull.1 + float(from.len()));
        }
    }
    pulls
}

/// Moves the nodes of a layer so that the squares of their distances from where they are pulled to are least, without
/// changing their order: neighbours that would overlap form a block, which stands in the middle of their wishes.
fn pull(
    layer: &[Node],
    pulls: &BTreeMap<Node, (f64, f64)>,
    across: &[usize],
    gaps: Gaps,
    centres: &mut [f64],
) {
    let offsets = offsets(layer, across, gaps);
    // The sum of the wishes of a block, and the number of its nodes.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (node, offset) in layer.iter().zip(&offsets) {
        let wish = pulls.get(node).map_or(centres[*node], |(sum, count)| sum / count) - offset;
        blocks.push((wish, 1));
        while let [.., (one, ones), (other, others)] = blocks[..]
            && one / float(ones) > other / float(others)
        {
            blocks.truncate(blocks.len() - 2);
            blocks.push((one + other, ones + others));
        }
    }
    let places =
        blocks.iter().flat_map(|(sum, count)| std::iter::repeat_n(sum / float(*count), *count));
    for ((node, offset), place) in layer.iter().zip(&offsets).zip(places) {
        centres[*node] = place + offset;
    }
}

/// Gives each node its cells and each wire its columns, layer by layer.
fn settle(layered: &Layered, gaps: Gaps, centres: &[f64], placed: &mut Placed) {
    let left = (0..layered.nodes).map(|node| centres[node] - float(placed.across[node]) / 2.0);
    let left = left.fold(f64::INFINITY, f64::min);
    let wished = |node: Node, across: usize| whole(centres[node] - float(across) / 2.0 - left);
    for (at, layer) in layered.layers.iter().enumerate() {
        let wires: &[Wire] = at.checked_sub(1).map_or(&[], |above| &layered.wires[above]);
        let mut entries = Entries::new(wires, placed);
        let mut next = 0;
        for (place, node) in layer.iter().enumerate() {
            if let Some(last) = place.checked_sub(1) {
                next += gaps.between(layer[last], *node);
            }
            let start = wished(*node, placed.across[*node]).max(next);
            let (start, across) = match *node < layered.items {
                true => (start, entries.enter_box(*node, start, placed.across[*node])),
                false => (entries.enter_pass(*node, next, start), 1),
            };
            (placed.start[*node], placed.across[*node]) = (start, across);
            next = start + across;
        }
        if at > 0 {
            let columns = |(number, wire): (usize, &Wire)| {
                wire.bottoms.iter().map(|node| entries.columns[&(number, *node)]).collect()
            };
            placed.drops.push(wires.iter().enumerate().map(columns).collect());
        }
    }
}

/// The columns in which the wires between two layers enter the lower one.
struct Entries {
    /// The columns of stems, each with its wire.
    stems: BTreeMap<usize, usize>,
    /// The middle of the stems of each wire.
    middles: Vec<f64>,
    /// The wires that lead to each node.
    into: BTreeMap<Node, Vec<usize>>,
    /// The columns that were given: for a wire and a node.
    columns: BTreeMap<(usize, Node), usize>,
}

impl Entries {
    fn new(wires: &[Wire], placed: &Placed) -> Self {
        let (mut stems, mut into) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
        let mut middles = Vec::with_capacity(wires.len());
        for (number, wire) in wires.iter().enumerate() {
            let columns = || wire.tops.iter().map(|node| placed.out(*node));
            stems.extend(columns().map(|column| (column, number)));
            middles.push(columns().map(float).sum::<f64>() / float(wire.tops.len().max(1)));
            wire.bottoms.iter().for_each(|node| into.entry(*node).or_default().push(number));
        }
        Self { stems, middles, into, columns: BTreeMap::new() }
    }

    fn is_free(&self, column: usize, wire: usize) -> bool {
        self.stems.get(&column).is_none_or(|owner| *owner == wire)
    }

    /// Returns the column of a pass: at `wished` or behind it, below its own stem if that is close.
    fn enter_pass(&mut self, node: Node, first: usize, wished: usize) -> usize {
        let wire = self.into.get(&node).and_then(|wires| wires.first()).copied().unwrap_or(0);
        let own = whole(self.middles.get(wire).copied().unwrap_or(0.0));
        let is_close = own >= first && own.abs_diff(wished) <= 2;
        let mut column = if is_close && self.is_free(own, wire) { own } else { wished };
        while !self.is_free(column, wire) {
            column += 1;
        }
        self.columns.insert((wire, node), column);
        column
    }

    /// Gives a box a column of each of its wires and returns the cells that it takes across: more than wished where
    /// stems of others stand in too many of its columns.
    fn enter_box(&mut self, node: Node, start: usize, across: usize) -> usize {
        let mut wires = self.into.get(&node).cloned().unwrap_or_default();
        wires.sort_by(|one, other| {
            self.middles[*one].total_cmp(&self.middles[*other]).then(one.cmp(other))
        });
        let mut across = across;
        // Stems have a cell between them, so that every second column at least is free.
        while let Err(missing) = self.enter(node, &wires, start, across) {
            across += missing;
        }
        across
    }

    fn enter(
        &mut self,
        node: Node,
        wires: &[usize],
        start: usize,
        across: usize,
    ) -> Result<(), usize> {
        let inner = start + 1..start + across - 1;
        let mut taken = BTreeSet::new();
        for (at, wire) in wires.iter().enumerate() {
            let slot = inner.start + (at + 1) * inner.len() / (wires.len() + 1);
            let own = whole(self.middles[*wire]);
            let is_straight = self.stems.get(&own) == Some(wire) && inner.contains(&own);
            let wish = if is_straight { own } else { slot };
            let is_open = |column: usize| self.is_free(column, *wire) && !taken.contains(&column);
            // Behind the last one, so that wires enter in the order in which they come.
            let behind = taken.last().map_or(inner.start, |last| last + 1)..inner.end;
            let column = nearest(&behind, wish, is_open)
                .or_else(|| nearest(&inner, wish, is_open))
                .ok_or(wires.len() - at)?;
            taken.insert(column);
            self.columns.insert((*wire, node), column);
        }
        Ok(())
    }
}

/// Returns the open column of a range that is nearest to the wished one.
fn nearest(range: &Range<usize>, wish: usize, is_open: impl Fn(usize) -> bool) -> Option<usize> {
    let wish = wish.clamp(range.start, range.end.saturating_sub(1).max(range.start));
    let sides = |away: usize| [wish.checked_sub(away), wish.checked_add(away)];
    let columns = (0..range.len()).flat_map(sides).flatten();
    columns.filter(|column| range.contains(column)).find(|column| is_open(*column))
}

#[expect(clippy::cast_precision_loss, reason = "cells are far below 2^52")]
fn float(cells: usize) -> f64 {
    cells as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded and not below 0; the cells of a drawing are far below 2^52"
)]
fn whole(cells: f64) -> usize {
    cells.round().max(0.0) as usize
}
