//! What holds of every drawing, and how some of them look.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use proptest::prelude::*;

use super::*;

fn item(name: &str, before: &[usize]) -> Item {
    Item { lines: vec![name.to_owned()], before: before.to_vec(), is_conditional: false }
}

fn shown(items: &[Item], direction: Direction, spread: Spread) -> String {
    text(&draw(items, direction, spread).expect("drawn"), items, |_, line| line.to_owned())
}

#[test]
fn a_diamond_with_a_line_past_a_layer() {
    let mut items = [
        item("plan", &[]),
        item("write", &[0]),
        item("test", &[0]),
        item("join", &[1, 2]),
        item("end", &[3, 0]),
    ];
    items[2].is_conditional = true;
    assert_snapshot!(shown(&items, Direction::Down, Spread::Aligned), @r"
             ┌──────┐
             │ plan │
             └───┬──┘
        ┌────────┼──────┐
        ▼        ▽      │
    ┌───────┐  ┌──────┐ │
    │ write │  │ test │ │
    └───┬───┘  └───┬──┘ │
        └─────┬────┘    │
              ▼         │
          ┌──────┐      │
          │ join │      │
          └───┬──┘      │
              └───┐ ┌───┘
                  ▼ ▼
                ┌─────┐
                │ end │
                └─────┘
    ");
    assert_snapshot!(shown(&items, Direction::Right, Spread::Aligned), @r"
               ┌───────┐
             ┌▶│ write ├─┐
             │ └───────┘ │ ┌──────┐
    ┌──────┐ │ ┌───────┐ ├▶│ join ├─┐  ┌─────┐
    │ plan ├─┼▷│ test  ├─┘ └──────┘ └─▶│ end │
    └──────┘ │ └───────┘             ┌▶│     │
             │                       │ └─────┘
             └───────────────────────┘
    ");
}

#[test]
fn wide_names_and_names_of_many_cells_fill_their_boxes() {
    let items = [item("漢字", &[]), item("e\u{301}", &[0]), item("🎉 done", &[0])];
    let shown = shown(&items, Direction::Down, Spread::Packed);
    assert_snapshot!(shown, @r"
        ┌──────┐
        │ 漢字 │
        └───┬──┘
      ┌─────┤
      ▼     ▼
    ┌───┐  ┌─────────┐
    │ é │  │ 🎉 done │
    └───┘  └─────────┘
    ");
    // A terminal puts the right borders of a row of boxes into one column.
    let widths: BTreeSet<_> = shown.lines().skip(5).map(width_of).collect();
    assert_eq!(widths.len(), 1, "{shown}");
}

#[test]
fn nothing_is_drawn_of_nothing_and_circles_are_refused() {
    let none = draw(&[], Direction::Down, Spread::Aligned).expect("drawn");
    assert_eq!((none.width, none.height), (0, 0));
    let circle = [item("a", &[1]), item("b", &[0])];
    let refused = draw(&circle, Direction::Down, Spread::Aligned);
    assert_eq!(refused, Err(DrawingError::Circle));
    // A place that does not exist is no line.
    assert!(draw(&[item("a", &[7])], Direction::Down, Spread::Aligned).is_ok());
}

/// Graphs in which each item stands after a few of those before it, near or far.
fn graphs() -> impl Strategy<Value = Vec<Item>> {
    let before = prop::collection::vec(any::<prop::sample::Index>(), 0..5);
    let some = (before, 1usize..4, 0usize..14, any::<bool>());
    prop::collection::vec(some, 0..40).prop_map(|all| {
        let item = |(at, (before, lines, width, is_conditional)): (
            usize,
            (Vec<prop::sample::Index>, _, _, _),
        )| Item {
            lines: vec!["x".repeat(width); lines],
            before: before.iter().filter(|_| at > 0).map(|place| place.index(at)).collect(),
            is_conditional,
        };
        all.into_iter().enumerate().map(item).collect()
    })
}

fn cells(segment: &Segment) -> impl Iterator<Item = Cell> {
    let Segment { from, to, .. } = *segment;
    (from.x..=to.x).flat_map(move |x| (from.y..=to.y).map(move |y| Cell { x, y }))
}

fn is_in(frame: &Frame, at: Cell) -> bool {
    let columns = frame.at.x..frame.at.x + frame.width;
    columns.contains(&at.x) && (frame.at.y..frame.at.y + frame.height).contains(&at.y)
}

/// Checks that boxes keep apart, that lines keep out of them, and that lines of two wires only cross.
fn check_places(drawing: &Drawing) -> Result<(), TestCaseError> {
    let mut boxes: HashMap<Cell, usize> = HashMap::new();
    for (place, frame) in drawing.frames.iter().enumerate() {
        prop_assert!(frame.width >= 3 && frame.height >= 3);
        prop_assert!(frame.at.x + frame.width <= drawing.width, "{frame:?}");
        prop_assert!(frame.at.y + frame.height <= drawing.height, "{frame:?}");
        for x in frame.at.x..frame.at.x + frame.width {
            for y in frame.at.y..frame.at.y + frame.height {
                prop_assert_eq!(boxes.insert(Cell { x, y }, place), None, "two boxes overlap");
            }
        }
    }
    // The wires of each cell, and whether they go across or down there.
    let mut inked: HashMap<Cell, BTreeMap<usize, (bool, bool)>> = HashMap::new();
    for segment in &drawing.segments {
        prop_assert!(segment.from.x == segment.to.x || segment.from.y == segment.to.y);
        prop_assert!(segment.from < segment.to, "{segment:?}");
        let is_flat = segment.from.y == segment.to.y;
        for (number, at) in cells(segment).enumerate() {
            prop_assert!(at.x < drawing.width && at.y < drawing.height);
            let begins_at_a_border = number == 0
                && match drawing.direction {
                    Direction::Down => !is_flat,
                    Direction::Right => is_flat,
                };
            prop_assert!(!boxes.contains_key(&at) || begins_at_a_border, "{segment:?} in a box");
            let (flat, steep) = inked.entry(at).or_default().entry(segment.wire).or_default();
            let is_within = at != segment.from && at != segment.to;
            // An end of a line counts as both: nothing may cross there.
            *flat |= is_flat || !is_within;
            *steep |= !is_flat || !is_within;
        }
    }
    for (at, wires) in &inked {
        let apart = match wires.values().collect::<Vec<_>>()[..] {
            [_] => true,
            [one, other] => one != other && *one != (true, true) && *other != (true, true),
            _ => false,
        };
        prop_assert!(apart, "{at:?}: {wires:?}");
    }
    Ok(())
}

/// Checks that the lines connect what the items say, and nothing else.
fn check_lines(items: &[Item], drawing: &Drawing) -> Result<(), TestCaseError> {
    let wanted: BTreeSet<(usize, usize)> = items
        .iter()
        .enumerate()
        .flat_map(|(at, item)| item.before.iter().map(move |before| (*before, at)))
        .collect();
    let mut by_wire: BTreeMap<usize, BTreeSet<Cell>> = BTreeMap::new();
    for segment in &drawing.segments {
        by_wire.entry(segment.wire).or_default().extend(cells(segment));
    }
    let mut drawn = BTreeSet::new();
    for (wire, cells) in &by_wire {
        // All cells of a wire hang together.
        let mut open: Vec<_> = cells.iter().take(1).copied().collect();
        let mut seen: BTreeSet<_> = open.iter().copied().collect();
        while let Some(Cell { x, y }) = open.pop() {
            let near = [(x + 1, y), (x.wrapping_sub(1), y), (x, y + 1), (x, y.wrapping_sub(1))];
            for at in near.map(|(x, y)| Cell { x, y }) {
                if cells.contains(&at) && seen.insert(at) {
                    open.push(at);
                }
            }
        }
        prop_assert_eq!(seen.len(), cells.len(), "wire {} is in pieces", wire);
        let from = |at: &Cell| drawing.frames.iter().position(|frame| is_in(frame, *at));
        let sources: BTreeSet<_> = cells.iter().filter_map(from).collect();
        let arrows = drawing.arrows.iter().filter(|arrow| arrow.wire == *wire);
        for arrow in arrows {
            prop_assert!(cells.contains(&arrow.at), "an arrow stands at the end of its line");
            let next = match drawing.direction {
                Direction::Down => Cell { y: arrow.at.y + 1, ..arrow.at },
                Direction::Right => Cell { x: arrow.at.x + 1, ..arrow.at },
            };
            prop_assert!(is_in(&drawing.frames[arrow.item], next), "{arrow:?} points at its box");
            drawn.extend(sources.iter().map(|source| (*source, arrow.item)));
        }
    }
    prop_assert_eq!(drawn, wanted);
    Ok(())
}

const WAYS: [(Direction, Spread); 4] = [
    (Direction::Down, Spread::Aligned),
    (Direction::Down, Spread::Packed),
    (Direction::Right, Spread::Aligned),
    (Direction::Right, Spread::Packed),
];

proptest! {
    #[test]
    fn boxes_keep_apart_and_lines_connect_what_they_should(items in graphs()) {
        for (direction, spread) in WAYS {
            let drawing = draw(&items, direction, spread).expect("no circle");
            check_places(&drawing)?;
            check_lines(&items, &drawing)?;
            prop_assert_eq!(&draw(&items, direction, spread).expect("drawn"), &drawing);
            let text = text(&drawing, &items, |_, line| line.to_owned());
            prop_assert_eq!(text.lines().count(), drawing.height);
            prop_assert!(text.lines().all(|line| width_of(line) <= drawing.width));
            let heads = text.chars().filter(|c| "▼▽▶▷".contains(*c)).count();
            prop_assert_eq!(heads, drawing.arrows.len(), "{}", text);
        }
    }

    #[test]
    fn no_text_leaves_its_place_in_a_document(name in "(<|>|&|\"|'|\\]\\]>|[ -~]|\u{1b}|\u{0}|\u{fffe}|é|漢){0,40}") {
        let items = [item(&name, &[]), item("end", &[0])];
        let drawing = draw(&items, Direction::Down, Spread::Aligned).expect("drawn");
        let look = Look { title: name.clone(), fill: "#ffffff" };
        let document = svg(&drawing, &items, &[look.clone(), look], &name);
        let plain = [item("", &[]), item("end", &[0])];
        let like = svg(&drawing, &plain, &[Look::default(), Look::default()], "");
        for sign in ['<', '>', '"'] {
            let count = |text: &str| text.matches(sign).count();
            prop_assert_eq!(count(&document), count(&like), "{}", document);
        }
        prop_assert!(!document.chars().any(|c| c.is_control() && c != '\n'), "{document}");
    }
}

/// The places before each item of a large graph.
type Before<'a> = &'a dyn Fn(usize) -> Vec<usize>;

/// The time in which 10,000 tasks must be placed and written by a development build on a busy machine; it takes a few
/// seconds at most.
const BOUND: Duration = Duration::from_secs(60);

#[test]
fn ten_thousand_tasks_are_placed_in_time_or_refused() {
    let number = |place: usize| format!("t{place}");
    let many = 10_000;
    let chain = |at: usize| at.checked_sub(1).into_iter().collect::<Vec<_>>();
    let near = |at: usize| (1..4).filter_map(|back| at.checked_sub(back * 7)).collect();
    let layers = |at: usize| match at / 100 {
        0 => Vec::new(),
        layer => (0..3).map(|step| (layer - 1) * 100 + (at * 17 + step * 31) % 100).collect(),
    };
    let fan = |at: usize| if at == many - 1 { (1..at).collect() } else { vec![0; at.min(1)] };
    // Each with a target of its own beside the common one: nothing shares a wire.
    let comb = |at: usize| match at {
        0..5_000 => Vec::new(),
        9_999 => (0..5_000).collect(),
        at => vec![at - 5_000],
    };
    let shapes: [(&str, Before<'_>); 5] =
        [("chain", &chain), ("near", &near), ("layers", &layers), ("fan", &fan), ("comb", &comb)];
    for (name, before) in shapes {
        let items: Vec<_> = (0..many).map(|at| item(&number(at), &before(at))).collect();
        for (direction, spread) in [WAYS[0], WAYS[3]] {
            let begun = Instant::now();
            let drawing = draw(&items, direction, spread).unwrap_or_else(|e| panic!("{name}: {e}"));
            let looks = vec![Look::default(); many];
            let document = svg(&drawing, &items, &looks, name);
            assert!(document.ends_with("</svg>\n"));
            let took = begun.elapsed();
            println!("{name} {direction:?}: {took:?}, {} bytes", document.len());
            assert!(took < BOUND, "{name}: {took:?}");
        }
    }
    // Lines past half of the layers: 5,000 in each.
    let long = (0..many).map(|at| {
        let far = at.checked_sub(5_000);
        item("x", &chain(at).into_iter().chain(far).collect::<Vec<_>>())
    });
    let long: Vec<_> = long.collect();
    assert_eq!(draw(&long, Direction::Down, Spread::Aligned), Err(DrawingError::TooLarge));
}
