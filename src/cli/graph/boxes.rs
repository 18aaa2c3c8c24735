//! The task graph as boxes and lines: what a box says, which boxes share one, and the layout that fits a terminal.
//!
//! Pure. The places of boxes and lines are computed by [`drawing`].

use std::collections::HashMap;

use super::{Node, fill, places};
use crate::cli::paint::Paint;
use crate::plan::Mark;
use crate::report::fold;
use crate::show::drawing::{self, Direction, Drawing, DrawingError, Item, Look, Spread};
use crate::show::names::cut_middle;

/// The most boxes on a terminal: more are no picture.
const MOST_BOXES: usize = 60;

/// The most rows of a drawing on a terminal. It bounds the memory of one that is very wide and high.
const MOST_ROWS: usize = 1_000;

/// The most characters of a name in a box, and where space is short.
const WIDEST: usize = 30;
const NARROW: usize = 16;

/// The signs of marks where a box has space for its name only.
const SIGNS: [(Mark, char); 3] = [(Mark::When, '?'), (Mark::Foreach, '*'), (Mark::Until, '@')];

/// Tasks that are drawn as one box: they have the same state and work, and the same tasks before and after them.
struct Boxed<'a> {
    members: Vec<&'a Node>,
    /// The places of the boxes before it.
    before: Vec<usize>,
}

/// The amount of text in a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// Name, work, marks and state.
    Full,
    /// Name with signs of its marks, and state.
    Brief,
}

/// Draws the tasks for a terminal of so many columns.
///
/// # Errors
/// Returns the reason in words if they do not fit.
pub(super) fn in_columns(nodes: &[Node], columns: usize, paint: Paint) -> Result<String, String> {
    let each = each(nodes);
    let mut drawn = None;
    if nodes.len() <= MOST_BOXES {
        drawn = fitting(&each, columns).map_err(|error| error.to_string())?;
    }
    let (boxes, drawn) = match drawn {
        Some(drawn) => (each, Some(drawn)),
        None => {
            let shared = shared(each);
            if shared.len() > MOST_BOXES {
                return Err(format!(
                    "a graph of {} boxes is no picture",
                    fold::count(shared.len())
                ));
            }
            let drawn = fitting(&shared, columns).map_err(|error| error.to_string())?;
            (shared, drawn)
        }
    };
    let Some((drawing, items, detail)) = drawn else {
        return Err(format!("the graph does not fit {columns} columns"));
    };
    let painted = |place: usize, line: &str| {
        let state = boxes.get(place).and_then(|boxed| boxed.members.first()?.state);
        state.map_or_else(|| line.to_owned(), |word| paint.state(word, line))
    };
    let mut text = drawing::text(&drawing, &items, painted);
    text.push_str(&legend(&boxes, drawing.direction, detail));
    Ok(text)
}

/// Draws the tasks as SVG, each in a box of its own.
///
/// # Errors
/// Returns an error if they form a circle or are too many.
pub(super) fn document(nodes: &[Node]) -> Result<String, DrawingError> {
    let boxes = each(nodes);
    let items = items(&boxes, Detail::Full, WIDEST);
    let down = drawing::draw(&items, Direction::Down, Spread::Aligned)?;
    let right = drawing::draw(&items, Direction::Right, Spread::Aligned)?;
    // The one that is nearer to a square; a cell is twice as high as it is wide.
    let side = |drawing: &Drawing| drawing.width.max(2 * drawing.height);
    let drawing = if side(&down) <= side(&right) { down } else { right };
    let look = |node: &Node| Look {
        title: node.task.name.to_string(),
        fill: node.state.map_or("#ffffff", fill),
    };
    let looks: Vec<_> = nodes.iter().map(look).collect();
    Ok(drawing::svg(&drawing, &items, &looks, "task graph"))
}

fn each(nodes: &[Node]) -> Vec<Boxed<'_>> {
    let places = places(nodes);
    let boxed = |node| Boxed { members: vec![node], before: before(node, &places) };
    nodes.iter().map(boxed).collect()
}

fn before(node: &Node, places: &HashMap<&crate::id::Name, usize>) -> Vec<usize> {
    let mut before: Vec<_> =
        node.task.depends_on.iter().filter_map(|name| places.get(name).copied()).collect();
    before.sort_unstable();
    before.dedup();
    before
}

/// Puts tasks into one box that only differ in their names.
fn shared(each: Vec<Boxed<'_>>) -> Vec<Boxed<'_>> {
    let mut after = vec![Vec::new(); each.len()];
    for (place, boxed) in each.iter().enumerate() {
        boxed.before.iter().for_each(|before| after[*before].push(place));
    }
    let mut known = HashMap::new();
    let mut shared: Vec<Boxed<'_>> = Vec::new();
    let mut box_of = Vec::with_capacity(each.len());
    for (boxed, after) in each.into_iter().zip(after) {
        let Boxed { members, before } = boxed;
        let Some(node) = members.first().copied() else { continue };
        let marks = node.task.marks.clone();
        let key = (node.state, node.work(), marks, before.clone(), after);
        let place = *known.entry(key).or_insert(shared.len());
        box_of.push(place);
        match shared.get_mut(place) {
            Some(of) => of.members.push(node),
            None => shared.push(Boxed { members, before }),
        }
    }
    for boxed in &mut shared {
        boxed.before.iter_mut().for_each(|before| *before = box_of[*before]);
        boxed.before.sort_unstable();
        boxed.before.dedup();
    }
    shared
}

/// Returns the first of these layouts that fits, each in the direction that takes fewer rows: with all texts, closer,
/// with short texts, and closer.
fn fitting(
    boxes: &[Boxed<'_>],
    columns: usize,
) -> Result<Option<(Drawing, Vec<Item>, Detail)>, DrawingError> {
    for (detail, widest) in
        [(Detail::Full, WIDEST), (Detail::Brief, WIDEST), (Detail::Brief, NARROW)]
    {
        let items = items(boxes, detail, widest);
        for spread in [Spread::Aligned, Spread::Packed] {
            let down = drawing::draw(&items, Direction::Down, spread)?;
            let right = drawing::draw(&items, Direction::Right, spread)?;
            let fits = |drawing: &Drawing| drawing.width <= columns && drawing.height <= MOST_ROWS;
            let least = [down, right].into_iter().filter(fits).min_by_key(|drawing| drawing.height);
            if let Some(drawing) = least {
                return Ok(Some((drawing, items, detail)));
            }
        }
    }
    Ok(None)
}

fn items(boxes: &[Boxed<'_>], detail: Detail, widest: usize) -> Vec<Item> {
    let item = |boxed: &Boxed<'_>| Item {
        lines: lines(boxed, detail, widest),
        before: boxed.before.clone(),
        is_conditional: boxed.members.iter().any(|node| node.task.marks.contains(&Mark::When)),
    };
    boxes.iter().map(item).collect()
}

fn lines(boxed: &Boxed<'_>, detail: Detail, widest: usize) -> Vec<String> {
    let Some(node) = boxed.members.first() else { return Vec::new() };
    let names: Vec<_> = boxed.members.iter().map(|node| node.task.name.as_str()).collect();
    let name = cut_middle(&fold::label(&names), widest).into_owned();
    let count = match boxed.members.len() {
        1 => None,
        many => Some(format!("{} tasks", fold::count(many))),
    };
    let marks = &node.task.marks;
    let mut lines = match detail {
        Detail::Full => {
            let mut lines = vec![name];
            lines.extend(count);
            lines.push(cut_middle(&node.work(), widest).into_owned());
            let marks: Vec<_> = marks.iter().filter_map(|mark| words(*mark, node)).collect();
            if !marks.is_empty() {
                lines.push(marks.join(", "));
            }
            lines
        }
        Detail::Brief => {
            let signs = SIGNS.iter().filter(|(mark, _)| marks.contains(mark)).map(|(_, sign)| sign);
            let signs: String = signs.collect();
            let blank = if signs.is_empty() { "" } else { " " };
            let mut lines = vec![format!("{name}{blank}{signs}")];
            lines.extend(count);
            lines
        }
    };
    lines.extend(node.state.map(str::to_owned));
    lines
}

/// Returns a mark in words; a sub-graph is named as the work already.
fn words(mark: Mark, node: &Node) -> Option<String> {
    match mark {
        Mark::Foreach if node.instances > 0 => {
            Some(format!("{} {}", mark.as_str(), fold::count(node.instances)))
        }
        Mark::When | Mark::Foreach | Mark::Until => Some(mark.as_str().to_owned()),
        Mark::Workflow => None,
    }
}

/// Returns the line that says what signs mean, if there are any.
fn legend(boxes: &[Boxed<'_>], direction: Direction, detail: Detail) -> String {
    let has = |mark: Mark| {
        boxes.iter().flat_map(|boxed| &boxed.members).any(|node| node.task.marks.contains(&mark))
    };
    let hollow = match direction {
        Direction::Down => '▽',
        Direction::Right => '▷',
    };
    let mut parts = Vec::new();
    if has(Mark::When) {
        let sign = if detail == Detail::Brief { "? " } else { "" };
        parts.push(format!("{hollow} {sign}may be skipped (when)"));
    }
    if detail == Detail::Brief {
        let signs = [(Mark::Foreach, "* foreach"), (Mark::Until, "@ until")];
        parts.extend(
            signs.iter().filter(|(mark, _)| has(*mark)).map(|(_, text)| (*text).to_owned()),
        );
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("{}\n", parts.join("   ")),
    }
}
