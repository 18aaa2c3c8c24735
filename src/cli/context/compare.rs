//! `context replay --compare`: prints what every preset would have cost and kept.

use std::collections::BTreeMap;

use serde_json::json;

use super::replay::{RESULTS, window};
use super::source::{Source, replaying};
use crate::cli::locate::Project;
use crate::cli::paint::{self, Progress};
use crate::cli::{args, say, say_json};
use crate::context::laboratory::replay::Replay;
use crate::context::laboratory::score::{Said, Score, Scorer, Share};
use crate::context::layers::Surroundings;
use crate::context::layers::preset::Preset;
use crate::conversation::{Billed, History};
use crate::exit::Exit;
use crate::message::Role;
use crate::printable;
use crate::report::short;
use crate::spec::{Price, RelativePrice};

/// Price of a token that is cached for an hour, relative to one that is cached for five minutes:
/// the published prices are 2 and 1.25 input tokens.
const HOUR: f64 = 2.0 / 1.25;

/// Costs of one conversation, or of several: estimated for each preset, and as recorded.
#[derive(Debug, Default)]
struct Comparison {
    /// Score of each preset, by its index in [`Preset::NAMES`].
    scores: BTreeMap<usize, Score>,
    recorded: Recording,
}

/// Costs that a recording reports of itself.
#[derive(Clone, Copy, Debug, Default)]
struct Recording {
    /// Number of replies that report their usage.
    replies: u64,
    billed: Billed,
    /// The largest request, in tokens.
    largest: u64,
}

pub(super) fn run(project: &Project, verb: &args::Replay) -> Result<(), Exit> {
    let (mut total, mut wrong) = (Comparison::default(), None);
    for name in &verb.sources {
        // A file that cannot be read does not prevent the comparison of the others.
        let compared =
            paint::working(&replaying(name), |shown| compare(project, verb, name, shown));
        match compared {
            Ok(comparison) => {
                done(show(name, &comparison, verb))?;
                total.add(comparison);
            }
            Err(exit) => wrong = Some(exit),
        }
    }
    if verb.sources.len() > 1 && !verb.json {
        done(show("all", &total, verb))?;
    }
    if !verb.json && !total.scores.is_empty() {
        done(say(&legend(verb.price.as_ref())))?;
    }
    wrong.map_or(Ok(()), Err)
}

fn done(exit: Exit) -> Result<(), Exit> {
    if exit == Exit::Done { Ok(()) } else { Err(exit) }
}

/// Replays one conversation under every preset at once, so that it is read once.
fn compare(
    project: &Project,
    verb: &args::Replay,
    name: &str,
    progress: &Progress,
) -> Result<Comparison, Exit> {
    let mut source = Source::open(project, name, History::Whole, progress)?;
    let price = relative(verb.price.as_ref());
    let window = window(verb.context_window, verb.max_output_tokens, &source);
    let around = Surroundings { price, ..Surroundings::new(name, RESULTS, window) };
    let presets: Vec<_> = Preset::NAMES.into_iter().filter_map(Preset::named).collect();
    let mut races: Vec<_> =
        presets.iter().map(|preset| (Replay::new(preset, around), Scorer::new(price))).collect();
    let (mut said, mut recorded, mut number) = (Said::default(), Recording::default(), 0);
    while let Some(message) = source.next()? {
        if message.role == Role::Assistant {
            let used = said.used_by(&message.json);
            for (replay, scorer) in &mut races {
                let turn = replay.before_call();
                let system = source.system.text(replay.view());
                let done = (turn.edits.len(), turn.summary_calls.as_slice());
                scorer.request(replay.view(), &system, done, &said, &used);
            }
        }
        if let Some(billed) = message.billed {
            recorded.replies += 1;
            recorded.billed += billed;
            recorded.largest = recorded.largest.max(billed.usage.context());
        }
        said.push(&message.json);
        for (replay, _) in &mut races {
            let pushed = replay.push(message.json.clone());
            pushed.map_err(|error| source.unfit(number, &error))?;
        }
        number += 1;
    }
    let scores = races.iter().map(|(_, scorer)| scorer.score()).enumerate().collect();
    Ok(Comparison { scores, recorded })
}

fn relative(price: Option<&Price>) -> RelativePrice {
    price.and_then(Price::relative).unwrap_or_default()
}

impl Comparison {
    fn add(&mut self, other: Self) {
        for (preset, score) in other.scores {
            *self.scores.entry(preset).or_default() += score;
        }
        self.recorded.replies += other.recorded.replies;
        self.recorded.billed += other.recorded.billed;
        self.recorded.largest = self.recorded.largest.max(other.recorded.largest);
    }
}

impl Recording {
    /// Returns the cost of the input, in input tokens.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    fn input(&self, price: &RelativePrice) -> f64 {
        let usage = self.billed.usage;
        let hour = self.billed.cache_write_1h;
        let write = (usage.cache_write - hour) as f64 + hour as f64 * HOUR;
        usage.input as f64 + usage.cache_read as f64 * price.read + write * price.write
    }

    /// Returns the cost of the output, in input tokens.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    fn output(&self, price: &RelativePrice) -> f64 {
        self.billed.usage.output as f64 * price.output
    }
}

fn show(name: &str, comparison: &Comparison, verb: &args::Replay) -> Exit {
    let price = verb.price.as_ref();
    match verb.json {
        true => say_json(&rows(name, comparison, price)),
        false => say(&table(&printable::line(name), comparison, price)),
    }
}

fn rows(name: &str, comparison: &Comparison, price: Option<&Price>) -> String {
    let usd = |tokens: f64| price.map(|price| dollars(tokens, price));
    let mut rows: Vec<_> = comparison
        .scores
        .iter()
        .map(|(preset, score)| {
            json!({
                "kind": "preset",
                "file": name,
                "preset": Preset::NAMES[*preset],
                "turns": score.turns,
                "billed": score.billed.round(),
                "cost_usd": usd(score.billed),
                "largest": score.largest.round(),
                "edits": score.edits,
                "summary_calls": score.summary_calls,
                "names": score.names,
                "names_old": score.names_old,
                "lines": score.lines,
                "lines_old": score.lines_old,
            })
        })
        .collect();
    let recorded = &comparison.recorded;
    if recorded.replies > 0 {
        let ratios = relative(price);
        let (input, output) = (recorded.input(&ratios), recorded.output(&ratios));
        rows.push(json!({
            "kind": "recorded",
            "file": name,
            "turns": recorded.replies,
            "usage": recorded.billed.usage,
            "cache_write_1h": recorded.billed.cache_write_1h,
            "billed": input.round(),
            "billed_output": output.round(),
            "cost_usd": usd(input),
            "cost_usd_output": usd(output),
            "largest": recorded.largest,
        }));
    }
    rows.iter().map(|row| format!("{row}\n")).collect()
}

fn table(name: &str, comparison: &Comparison, price: Option<&Price>) -> String {
    let cost = |tokens: f64| match price {
        Some(price) => format!("${:.2}", dollars(tokens, price)),
        None => whole(tokens),
    };
    let turns = comparison.scores.values().next().map_or(0, |score| score.turns);
    let mut text = format!(
        "{name}: {turns} replies\n{:12}  {:>9}  {:>8}  {:>6}  {:>9}  {:>6}  {:>6}  {:>6}  {:>6}\n",
        "PRESET", "COST", "LARGEST", "EDITS", "SUMMARIES", "NAMES", "OLD", "LINES", "OLD"
    );
    for (preset, score) in &comparison.scores {
        text.push_str(&format!(
            "{:12}  {:>9}  {:>8}  {:>6}  {:>9}  {:>6}  {:>6}  {:>6}  {:>6}\n",
            Preset::NAMES[*preset],
            cost(score.billed),
            whole(score.largest),
            score.edits,
            score.summary_calls,
            ratio(score.names),
            ratio(score.names_old),
            ratio(score.lines),
            ratio(score.lines_old),
        ));
    }
    let recorded = &comparison.recorded;
    if recorded.replies > 0 {
        let ratios = relative(price);
        text.push_str(&format!(
            "{:12}  {:>9}  {:>8}  as {} replies were billed, tools included; their output: {}\n",
            "recorded",
            cost(recorded.input(&ratios)),
            short(recorded.largest),
            recorded.replies,
            cost(recorded.output(&ratios)),
        ));
    }
    text.push('\n');
    text
}

/// Explains the columns of the table.
fn legend(price: Option<&Price>) -> String {
    let RelativePrice { write, read, output } = relative(price);
    // Rounded, because 0.3 / 3 is not exactly 0.1.
    let [write, read, output] = [write, read, output].map(|ratio| (ratio * 1e4).round() / 1e4);
    let unit = match price {
        Some(price) => format!("in US dollars at {} a million input tokens", price.input),
        None => "in input tokens (--price gives dollars)".to_owned(),
    };
    format!(
        "COST: of the input and the summaries, {unit}; a token written to the cache costs {write} \
         input tokens,\none read from it {read}, one of a summary {output}. Estimated at 4 \
         characters a token, without tools. The replies cost the same under every preset.\nNAMES, \
         LINES: of the names and whole lines that the next tool call used and that had appeared \
         before,\nthe share that the view held; OLD: those last seen more than 10 messages \
         before.\n"
    )
}

fn dollars(tokens: f64, price: &Price) -> f64 {
    tokens * price.input / 1e6
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "token counts are positive and far below 2^64"
)]
fn whole(tokens: f64) -> String {
    short(tokens.round() as u64)
}

fn ratio(share: Share) -> String {
    share.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}
