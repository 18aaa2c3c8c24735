//! The tables of the benchmark: presets, values of a constant, and constants changed by a tenth.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use callsheet::context::layers::preset::Preset;
use callsheet::message::Json;
use serde_json::{Map, Value, json};

use crate::asked::{Asked, Class};
use crate::figures::{Bases, Figures, KEPT, base_presets};
use crate::made::Conversation;
use crate::race;

/// Seeds of each kind and form for the tables.
const SEEDS: u64 = 3;
/// Seeds of each kind and form for the margins: the fewest that show a constant that fits by chance.
const MARGIN_SEEDS: u64 = 2;
/// Most that a share may fall when a constant changes by a tenth.
const MOST_FALL: f64 = 0.01;
/// Most that a bill may rise when a constant changes by a tenth, as a ratio.
const MOST_RISE: f64 = 0.02;
/// No kind begins later than this after the start.
const LAST_START: Duration = Duration::from_secs(900);
/// Presets that are run at a time: a conversation is read once for all of them.
const AT_A_TIME: usize = 16;

/// Prints a table of all presets for each window, kind and form.
pub(crate) fn presets(asked: &Asked) -> Result<(), Box<dyn Error>> {
    let own = |preset: Preset| match preset.name == asked.preset.name {
        true => asked.preset.clone(),
        false => preset,
    };
    let presets: Vec<_> = Preset::NAMES.into_iter().filter_map(Preset::named).map(own).collect();
    let labels: Vec<_> = presets.iter().map(|preset| preset.name.clone()).collect();
    table(asked, &presets, &labels)
}

/// Prints a table of the values of one constant for each window, kind and form.
pub(crate) fn sweep(asked: &Asked, name: &str, values: &[Value]) -> Result<(), Box<dyn Error>> {
    let with = |value: &Value| asked.preset.clone().with_constants(&one(name, value.clone()));
    let presets = values.iter().map(with).collect::<Result<Vec<_>, _>>()?;
    let labels: Vec<_> = values.iter().map(|value| format!("{name}={value}")).collect();
    table(asked, &presets, &labels)
}

fn table(asked: &Asked, presets: &[Preset], labels: &[String]) -> Result<(), Box<dyn Error>> {
    // The figures of all kinds, by window and form.
    let mut all: BTreeMap<(u64, &str), Vec<Vec<Figures>>> = BTreeMap::new();
    each_class(asked, SEEDS, |class, window| {
        let tokens: usize = class.conversations.iter().map(Conversation::tokens).sum();
        let count = class.conversations.len();
        let tokens = tokens / count;
        let head = format!("{}: {count} conversations of {tokens} tokens in the mean", class.name);
        let figures = figures(presets, class, window);
        show(&head, window, labels, &figures);
        all.entry((window, class.form)).or_default().push(figures);
    })?;
    for ((window, form), kinds) in all.iter().filter(|(_, kinds)| kinds.len() > 1) {
        let of_all = |place| Figures::over(kinds.iter().map(|figures| &figures[place]));
        let figures: Vec<_> = (0..presets.len()).map(of_all).collect();
        let head = format!("all {} kinds, {form}: their means, each with the worst", kinds.len());
        show(&head, *window, labels, &figures);
    }
    Ok(())
}

/// Writes each conversation as a file, as `callsheet context replay` reads it.
pub(crate) fn write(asked: &Asked, dir: &str) -> Result<(), Box<dyn Error>> {
    let dir = Path::new(dir);
    std::fs::create_dir_all(dir)?;
    for class in asked.classes(0, SEEDS)? {
        for Conversation { name, system, messages } in class.conversations {
            let messages: Vec<Value> = messages.iter().map(Json::to_value).collect();
            let file = format!("{} {}.json", name.replace(' ', "-"), class.form).replace(' ', "-");
            let text = serde_json::to_string(&json!({"system": system, "messages": messages}))?;
            std::fs::write(dir.join(file), text)?;
        }
    }
    Ok(())
}

/// Changes each numeric constant by a tenth; returns true if a figure gets worse by more than it may.
pub(crate) fn margin(asked: &Asked) -> Result<bool, Box<dyn Error>> {
    let mut labels = vec![String::new()];
    let mut presets = vec![asked.preset.clone()];
    for (name, value) in asked.preset.constants() {
        for factor in [0.9, 1.1] {
            let Some(changed) = scaled(&value, factor) else { continue };
            // A constant that cannot have this value is not made worse by it.
            if let Ok(preset) = asked.preset.clone().with_constants(&one(&name, changed.clone())) {
                labels.push(format!("{name} {value} -> {changed}"));
                presets.push(preset);
            }
        }
    }
    println!(
        "{} constants of `{}` changed by a tenth, one at a time",
        labels.len() - 1,
        asked.preset.name
    );
    let mut is_worse = false;
    each_class(asked, MARGIN_SEEDS, |class, window| {
        let all = figures(&presets, class, window);
        for (label, changed) in labels.iter().zip(&all).skip(1) {
            for worse in worse(&all[0], changed) {
                println!("{label}: {} at {window}: {worse}", class.name);
                is_worse = true;
            }
        }
    })?;
    if !is_worse {
        println!(
            "no share fell by more than {MOST_FALL}, no bill rose by more than {:.0} %",
            MOST_RISE * 100.0
        );
    }
    Ok(is_worse)
}

/// Returns what got worse by more than it may.
fn worse(own: &Figures, changed: &Figures) -> Vec<String> {
    let shares = KEPT.iter().zip(own.kept.iter().zip(&changed.kept));
    let fell = shares.filter_map(|(name, (own, changed))| {
        let (own, changed) = (own.as_ref()?.mean, changed.as_ref()?.mean);
        (own - changed > MOST_FALL).then(|| format!("{name} {own:.3} -> {changed:.3}"))
    });
    let bill = own
        .bill
        .zip(changed.bill)
        .filter(|(own, changed)| changed.mean > own.mean * (1.0 + MOST_RISE));
    let bill = bill.map(|(own, changed)| format!("bill {:.3} -> {:.3}", own.mean, changed.mean));
    fell.chain(bill).collect()
}

/// Returns a number multiplied by a factor: a whole number stays one. None for anything else, and for
/// zero.
fn scaled(value: &Value, factor: f64) -> Option<Value> {
    let number = value.as_f64().filter(|number| *number != 0.0)?;
    if !value.is_u64() {
        return Some(json!(number * factor));
    }
    // A small count changes by one.
    let whole = (number * factor).round();
    let whole = if whole == number { number + (factor - 1.0).signum() } else { whole };
    (whole >= 0.0).then(|| json!(whole as u64))
}

fn one(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}

fn each_class(
    asked: &Asked,
    seeds: u64,
    mut each: impl FnMut(&Class, u64),
) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    for &window in &asked.windows {
        for class in asked.classes(window, seeds)? {
            if began.elapsed() > LAST_START {
                println!("{} at {window}: no time was left", class.name);
                continue;
            }
            each(&class, window);
        }
    }
    Ok(())
}

/// Returns the figures of presets over the conversations of a class.
fn figures(presets: &[Preset], class: &Class, window: u64) -> Vec<Figures> {
    let bases = Bases::of(&race::run(&base_presets(), &class.conversations, window), 0);
    let parts = presets.chunks(AT_A_TIME).flat_map(|part| {
        let outcomes = race::run(part, &class.conversations, window);
        (0..part.len()).map(|place| Figures::of(&outcomes, place, &bases)).collect::<Vec<_>>()
    });
    parts.collect()
}

fn show(head: &str, window: u64, labels: &[String], figures: &[Figures]) {
    println!("\n{head}, window {window}");
    let width = labels.iter().map(String::len).max().unwrap_or_default().max(12);
    println!("{:width$}{}", "", Figures::heads());
    for (label, figures) in labels.iter().zip(figures) {
        println!("{label:width$}{}", figures.row());
    }
}
