//! Gives each item its layer and each layer its order, and makes the wires between the layers.
//!
//! Pure. Knows neither sizes nor places.

use std::collections::HashMap;

use super::{DrawingError, Item, MOST_PARTS};

/// The rounds in which the order of the layers follows their neighbours: later ones change little.
const SWEEPS: usize = 6;

/// What stands in a layer: an item by its place, or, behind the last item, a pass.
pub(super) type Node = usize;

/// A wire between two layers.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire {
    /// The number of the wire, the same between all layers.
    pub(super) number: usize,
    /// What it comes from, in the upper layer.
    pub(super) tops: Vec<Node>,
    /// What it leads to, in the lower layer.
    pub(super) bottoms: Vec<Node>,
}

/// The layers of a graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Layered {
    /// The number of items; a node from there on is a pass.
    pub(super) items: usize,
    /// The number of nodes.
    pub(super) nodes: usize,
    /// The nodes of each layer, in order.
    pub(super) layers: Vec<Vec<Node>>,
    /// The wires between each layer and the next one.
    pub(super) wires: Vec<Vec<Wire>>,
}

/// Returns the layers of the items.
pub(super) fn layered(items: &[Item]) -> Result<Layered, DrawingError> {
    let before = before(items);
    let ends: usize = before.iter().map(Vec::len).sum();
    if items.len() + ends > MOST_PARTS {
        return Err(DrawingError::TooLarge);
    }
    let after = after(&before);
    let layer_of = longest_paths(&before, &after).ok_or(DrawingError::Circle)?;
    let mut layers = vec![Vec::new(); layer_of.iter().max().map_or(0, |last| last + 1)];
    for (item, layer) in layer_of.iter().enumerate() {
        layers[*layer].push(item);
    }
    let wires = vec![Vec::new(); layers.len().saturating_sub(1)];
    let mut layered = Layered { items: items.len(), nodes: items.len(), layers, wires };
    layered.connect(&layer_of, &after)?;
    layered.order();
    Ok(layered)
}

/// Returns the places before each item, each once and in order.
fn before(items: &[Item]) -> Vec<Vec<usize>> {
    let sorted = |item: &Item| {
        let mut before: Vec<_> =
            item.before.iter().copied().filter(|place| *place < items.len()).collect();
        before.sort_unstable();
        before.dedup();
        before
    };
    items.iter().map(sorted).collect()
}

fn after(before: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut after = vec![Vec::new(); before.len()];
    for (item, places) in before.iter().enumerate() {
        places.iter().for_each(|place| after[*place].push(item));
    }
    after
}

/// Returns the layer of each item: the length of the longest path to it. `None` if some form a circle.
fn longest_paths(before: &[Vec<usize>], after: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut waits: Vec<_> = before.iter().map(Vec::len).collect();
    let mut layers = vec![0; before.len()];
    let mut ready: Vec<_> = (0..before.len()).filter(|item| waits[*item] == 0).collect();
    let mut placed = 0;
    while let Some(item) = ready.pop() {
        placed += 1;
        for next in &after[item] {
            layers[*next] = layers[*next].max(layers[item] + 1);
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.push(*next);
            }
        }
    }
    (placed == before.len()).then_some(layers)
}

impl Layered {
    /// Makes the wires: one for all items of a layer that lead to the same items.
    fn connect(&mut self, layer_of: &[usize], after: &[Vec<usize>]) -> Result<(), DrawingError> {
        let mut groups: Vec<(&[usize], Vec<usize>)> = Vec::new();
        let mut known: HashMap<(usize, &[usize]), usize> = HashMap::new();
        let leading = after.iter().map(Vec::as_slice).enumerate();
        for (item, targets) in leading.filter(|(_, targets)| !targets.is_empty()) {
            let group = *known.entry((layer_of[item], targets)).or_insert_with(|| {
                groups.push((targets, Vec::new()));
                groups.len() - 1
            });
            groups[group].1.push(item);
        }
        let mut parts = self.items;
        for (number, (targets, sources)) in groups.into_iter().enumerate() {
            let first = layer_of[sources[0]];
            let last = targets.iter().map(|target| layer_of[*target]).max().unwrap_or(first);
            parts += targets.len() + sources.len() + (last - first);
            if parts > MOST_PARTS {
                return Err(DrawingError::TooLarge);
            }
            let mut by_layer: HashMap<usize, Vec<Node>> = HashMap::new();
            for target in targets {
                by_layer.entry(layer_of[*target]).or_default().push(*target);
            }
            let mut tops = sources;
            for layer in first..last {
                let mut bottoms = by_layer.remove(&(layer + 1)).unwrap_or_default();
                let is_last = layer + 1 == last;
                let next = if is_last { Vec::new() } else { vec![self.pass(layer + 1)] };
                bottoms.extend(&next);
                self.wires[layer].push(Wire { number, tops, bottoms });
                tops = next;
            }
        }
        Ok(())
    }

    fn pass(&mut self, layer: usize) -> Node {
        let node = self.nodes;
        self.nodes += 1;
        self.layers[layer].push(node);
        node
    }

    /// Orders each layer by the middle of its neighbours, down and up in turns, and keeps the order whose trunks are
    /// shortest: shorter ones cross less.
    fn order(&mut self) {
        let mut places = vec![0; self.nodes];
        self.number(&mut places);
        let (mut best, mut least) = (self.layers.clone(), self.length(&places));
        for sweep in 0..SWEEPS {
            for step in 1..self.layers.len() {
                let (layer, wires, is_down) = match sweep % 2 {
                    0 => (step, step - 1, true),
                    _ => (self.layers.len() - 1 - step, self.layers.len() - 1 - step, false),
                };
                self.sort(layer, wires, is_down, &mut places);
            }
            let length = self.length(&places);
            if length < least {
                (best, least) = (self.layers.clone(), length);
            }
        }
        self.layers = best;
    }

    /// Sorts a layer by the neighbours at the other end of these wires.
    fn sort(&mut self, layer: usize, wires: usize, is_down: bool, places: &mut [usize]) {
        let mut pulls: HashMap<Node, (f64, f64)> = HashMap::new();
        for wire in &self.wires[wires] {
            let (from, to) =
                if is_down { (&wire.tops, &wire.bottoms) } else { (&wire.bottoms, &wire.tops) };
            let sum: f64 = from.iter().map(|node| float(places[*node])).sum();
            for node in to {
                let pull = pulls.entry(*node).or_default();
                *pull = (pull.0 + sum, pull.1 + float(from.len()));
            }
        }
        let middle = |node: &Node| match pulls.get(node) {
            Some((sum, count)) => sum / count,
            None => float(places[*node]),
        };
        let mut keyed: Vec<_> =
            self.layers[layer].iter().map(|node| (middle(node), *node)).collect();
        keyed.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        for (place, (_, node)) in keyed.iter().enumerate() {
            places[*node] = place;
        }
        self.layers[layer] = keyed.into_iter().map(|(_, node)| node).collect();
    }

    fn number(&self, places: &mut [usize]) {
        for layer in &self.layers {
            layer.iter().enumerate().for_each(|(place, node)| places[*node] = place);
        }
    }

    fn length(&self, places: &[usize]) -> usize {
        let span = |wire: &Wire| {
            let all = || wire.tops.iter().chain(&wire.bottoms).map(|node| places[*node]);
            all().max().unwrap_or(0) - all().min().unwrap_or(0)
        };
        self.wires.iter().flatten().map(span).sum()
    }
}

#[expect(clippy::cast_precision_loss, reason = "places are far below 2^52")]
fn float(place: usize) -> f64 {
    place as f64
}
