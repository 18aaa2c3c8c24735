//! `cargo bench --bench context [-- FILE...]`: the cost of each preset, and how much it keeps.
//!
//! Conversations of an agent at work are made from seeds or read from files. They go through the
//! presets in the same way as in `callsheet context replay --compare`: first through every preset
//! with its own constants; then through `adaptive` with other values of its constants, one constant
//! at a time. This shows the frontier of cost against the share that is kept. Costs are ratios to
//! the cheaper of the documented presets. No time is measured, and no row begins after 45 s.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

#[path = "context/race.rs"]
mod race;
#[path = "context/tree.rs"]
mod tree;
#[path = "context/work.rs"]
mod work;

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use callsheet::context::laboratory::score::{Score, Share};
use callsheet::context::layers::preset::Preset;
use callsheet::report::short;
use serde_json::{Map, Value, json};

use self::race::{Outcome, WINDOW, run};
use self::work::Conversation;

/// Conversations that are made: their number, and the tokens of each. Their seeds count from 1.
const MADE: [(u64, usize); 3] = [(3, 300_000), (4, 60_000), (6, 20_000)];
/// Classes of conversations by size: the least tokens of a class, and its name.
const CLASSES: [(usize, &str); 3] = [(100_000, "long"), (50_000, "middle"), (0, "short")];
/// The documented presets. Costs are ratios to the cheaper of them.
const DOCUMENTED: [&str; 2] = ["three-layer", "four-layer"];
/// No row begins later than this after the start.
const LAST_START: Duration = Duration::from_secs(45);

fn main() -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    // Cargo adds the flag `--bench`.
    let files = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let mut conversations =
        files.map(|file| race::read(Path::new(&file))).collect::<Result<Vec<_>, _>>()?;
    if conversations.is_empty() {
        let sizes = MADE.iter().flat_map(|(count, tokens)| (0..*count).map(|_| *tokens));
        let made = (1..).zip(sizes).map(|(seed, tokens)| Conversation::at_work(seed, tokens));
        conversations.extend(made);
    }
    let classes = classes(conversations);
    let deadline = began + LAST_START;
    println!("window {}; billed in input tokens: written 1.25, read 0.1, output 5", short(WINDOW));
    println!("old: last seen more than 10 messages before");
    let presets: Vec<Preset> = Preset::NAMES.into_iter().filter_map(Preset::named).collect();
    let mut bases = Vec::new();
    for (name, class) in &classes {
        let outcomes = run(&presets, class, deadline);
        let documented = outcomes.iter().filter(|row| DOCUMENTED.contains(&row.preset.as_str()));
        let base = documented.map(|row| row.score.billed).reduce(f64::min);
        let base = base.ok_or("none of the documented presets ran")?;
        show_presets(name, class, &outcomes, base);
        bases.push(base);
    }
    for (constant, values) in grids() {
        let Some(own) = Preset::adaptive().constants().get(constant).cloned() else { continue };
        let values = with_own(values, &own);
        let presets = values.iter().map(|value| {
            let constants = Map::from_iter([(constant.to_owned(), value.clone())]);
            Preset::adaptive().with_constants(&constants)
        });
        let presets = presets.collect::<Result<Vec<_>, _>>()?;
        let columns = classes.iter().map(|(_, class)| run(&presets, class, deadline));
        let columns: Vec<Vec<Outcome>> = columns.collect();
        show_frontier(constant, &own, &values, &classes, &columns, &bases);
    }
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

type Class = (&'static str, Vec<Conversation>);

fn classes(conversations: Vec<Conversation>) -> Vec<Class> {
    let mut classes = CLASSES.map(|(_, name)| (name, Vec::new()));
    for conversation in conversations {
        let tokens = conversation.tokens();
        let at = CLASSES.iter().position(|(least, _)| tokens >= *least).unwrap_or_default();
        classes[at].1.push(conversation);
    }
    classes.into_iter().filter(|(_, class)| !class.is_empty()).collect()
}

/// Returns the values that each constant takes.
fn grids() -> [(&'static str, Vec<Value>); 3] {
    let tokens = |thousands: [f64; 11]| thousands.map(|k| json!((k * 1e3) as u64)).to_vec();
    let shares = [0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0];
    [
        ("keep_tokens", tokens([0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 4.0, 5.0, 6.5, 8.0, 12.0])),
        ("merge_share", shares.map(|share| json!(share)).to_vec()),
        ("whole", tokens([0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 48.0, 60.0])),
    ]
}

/// Returns the values in order, with the preset's own value among them.
fn with_own(mut values: Vec<Value>, own: &Value) -> Vec<Value> {
    if !values.contains(own) {
        values.push(own.clone());
    }
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    values.sort_by(|one, other| number(one).total_cmp(&number(other)));
    values
}

fn show_presets(name: &str, class: &[Conversation], outcomes: &[Outcome], base: f64) {
    let tokens: usize = class.iter().map(Conversation::tokens).sum();
    println!("\n{name}: {} conversations, {} tokens", class.len(), short(tokens as u64));
    println!(
        "{:12} {:>8} {:>6} {:>8} {:>10} {:>9} {:>9} {:>11} {:>6} {:>11} {:>8} {:>6} {:>6}",
        "preset",
        "billed",
        "ratio",
        "largest",
        "recall_old",
        "lines_old",
        "summaries",
        "constraints",
        "files",
        "files_whole",
        "outcomes",
        "values",
        "order"
    );
    for Outcome { preset, score, answers, .. } in outcomes {
        println!(
            "{preset:12} {:>8} {:>6.2} {:>8} {:>10} {:>9} {:>9} {:>11} {:>6} {:>11} {:>8} {:>6} {:>6}",
            short(score.billed.round() as u64),
            score.billed / base,
            short(score.largest.round() as u64),
            ratio(score.names_old),
            ratio(score.lines_old),
            score.summary_calls,
            ratio(answers.constraints),
            ratio(answers.files),
            ratio(answers.files_whole),
            ratio(answers.outcomes),
            ratio(answers.values),
            ratio(answers.order)
        );
    }
}

/// Prints one row for each value, three columns for each class, and a star if no other value is as
/// cheap and keeps as much.
fn show_frontier(
    constant: &str,
    own: &Value,
    values: &[Value],
    classes: &[Class],
    columns: &[Vec<Outcome>],
    bases: &[f64],
) {
    println!("\nadaptive over `{constant}` (its own: {own}; *: on the frontier)");
    print!("{constant:>11}");
    for (name, _) in classes {
        print!("   {name:>7} {:>10} {:>9}", "recall_old", "lines_old");
    }
    println!();
    for (place, value) in values.iter().enumerate() {
        let number = value.to_string();
        print!("{number:>11}");
        for (outcomes, base) in columns.iter().zip(bases) {
            let Some(outcome) = outcomes.iter().find(|outcome| outcome.place == place) else {
                print!("   {:>28}", "no time was left");
                continue;
            };
            let score = &outcome.score;
            let is_beaten = outcomes.iter().any(|other| beats(&other.score, score));
            print!(
                "   {:>6.3}{} {:>10} {:>9}",
                score.billed / base,
                if is_beaten { ' ' } else { '*' },
                ratio(score.names_old),
                ratio(score.lines_old)
            );
        }
        println!();
    }
}

/// Returns true if `one` costs no more and keeps no less than `other`, and is not equal to it.
fn beats(one: &Score, other: &Score) -> bool {
    let kept = |score: &Score| [score.names_old.held, score.lines_old.held];
    let is_as_good =
        one.billed <= other.billed && kept(one).iter().zip(kept(other)).all(|(a, b)| *a >= b);
    is_as_good && (one.billed < other.billed || kept(one) != kept(other))
}

fn ratio(share: Share) -> String {
    share.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
}
