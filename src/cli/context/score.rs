//! `context score`: asks the views of presets for the facts of a recorded conversation.

use std::fmt::Write as _;

use serde_json::{Map, json};

use super::replay::{RESULTS, window};
use super::source::{Source, replaying};
use crate::cli::locate::Project;
use crate::cli::paint::{self, Progress};
use crate::cli::{args, say, say_json};
use crate::context::laboratory::asker::{Answers, Asker};
use crate::context::laboratory::facts::Facts;
use crate::context::laboratory::replay::Replay;
use crate::context::laboratory::score::{Said, Score, Scorer, Share};
use crate::context::layers::Surroundings;
use crate::context::layers::preset::Preset;
use crate::conversation::History;
use crate::exit::Exit;
use crate::message::Role;
use crate::printable;
use crate::report::short;

/// Explains the columns of the table.
const LEGEND: &str = "\
COST: of the input and the summaries, in input tokens. The rest: the share that the view answers before each
reply, asked for facts that stand more than 10 messages back (-: nothing was asked). CONSTRAINTS: binding
sentences of people, word for word. FILES: files changed for the open request. WHOLE: those whose newest text or
edit stands. OUTCOMES: last outcomes of tests and builds, with their command. VALUES: numbers that the reply
cites. ORDER: quoted lines that were neighbours. NAMES, LINES: those that the next tool call used.
";

/// The cost of a preset and what it keeps.
type Row = (&'static str, Score, Answers);

pub(super) fn run(project: &Project, verb: &args::Score) -> Result<(), Exit> {
    let presets = match &verb.preset {
        Some(name) => vec![super::preset(name)?],
        None => Preset::NAMES.into_iter().filter_map(Preset::named).collect(),
    };
    let mut wrong = None;
    for name in &verb.sources {
        // A file that cannot be read does not prevent the score of the others.
        let scored = paint::working(&replaying(name), |progress| {
            score(project, verb, name, &presets, progress)
        });
        match scored {
            Ok(rows) => done(show(name, &rows, verb.json))?,
            Err(exit) => wrong = Some(exit),
        }
    }
    if !verb.json && wrong.is_none() {
        done(say(LEGEND))?;
    }
    wrong.map_or(Ok(()), Err)
}

fn done(exit: Exit) -> Result<(), Exit> {
    if exit == Exit::Done { Ok(()) } else { Err(exit) }
}

/// Replays one conversation under the presets at once, so that it is read once.
fn score(
    project: &Project,
    verb: &args::Score,
    name: &str,
    presets: &[Preset],
    progress: &Progress,
) -> Result<Vec<Row>, Exit> {
    let mut source = Source::open(project, name, History::Whole, progress)?;
    let around = Surroundings::new(name, RESULTS, window(verb.context_window, 0, &source));
    let racer = |preset| (Replay::new(preset, around), Scorer::new(around.price), Asker::default());
    let mut races: Vec<_> = presets.iter().map(racer).collect();
    let (mut said, mut facts, mut number) = (Said::default(), Facts::default(), 0);
    while let Some(message) = source.next()? {
        if message.role == Role::Assistant {
            let used = said.used_by(&message.json);
            for (replay, scorer, asker) in &mut races {
                let turn = replay.before_call();
                let system = source.system.text(replay.view());
                let done = (turn.edits.len(), turn.summary_calls.as_slice());
                scorer.request(replay.view(), &system, done, &said, &used);
                asker.request(replay.view(), &system, &facts, &message.json);
            }
        }
        said.push(&message.json);
        facts.push(&message.json);
        for (replay, ..) in &mut races {
            let pushed = replay.push(message.json.clone());
            pushed.map_err(|error| source.unfit(number, &error))?;
        }
        number += 1;
    }
    let names = presets
        .iter()
        .filter_map(|preset| Preset::NAMES.into_iter().find(|name| *name == preset.name));
    let scores = races.iter().map(|(_, scorer, asker)| (scorer.score(), asker.answers()));
    Ok(names.zip(scores).map(|(name, (score, answers))| (name, score, answers)).collect())
}

fn show(name: &str, rows: &[Row], as_json: bool) -> Exit {
    if as_json {
        let rows = rows.iter().map(|row| format!("{}\n", document(name, row)));
        return say_json(&rows.collect::<String>());
    }
    let turns = rows.first().map_or(0, |(_, score, _)| score.turns);
    let mut text = format!("{}: {turns} replies\n{:12}", printable::line(name), "PRESET");
    let heads = ["COST", "CONSTRAINTS", "FILES", "WHOLE", "OUTCOMES", "VALUES", "ORDER"];
    for head in heads.into_iter().chain(["NAMES", "LINES"]) {
        let _ = write!(text, "  {head:>width$}", width = width(head));
    }
    text.push('\n');
    for (preset, score, answers) in rows {
        let _ = write!(text, "{preset:12}  {:>7}", short(score.billed.max(0.0).round() as u64));
        let kept = answers.all().map(|(_, share)| share);
        let kept = kept.into_iter().chain([score.names_old, score.lines_old]);
        for (share, head) in kept.zip(heads.into_iter().skip(1).chain(["NAMES", "LINES"])) {
            let _ = write!(text, "  {:>width$}", ratio(share), width = width(head));
        }
        text.push('\n');
    }
    text.push('\n');
    say(&text)
}

fn width(head: &str) -> usize {
    head.len().max(if head == "COST" { 7 } else { 5 })
}

fn document(name: &str, (preset, score, answers): &Row) -> serde_json::Value {
    let mut row = Map::from_iter([
        ("file".to_owned(), json!(name)),
        ("preset".to_owned(), json!(preset)),
        ("turns".to_owned(), json!(score.turns)),
        ("billed".to_owned(), json!(score.billed.round())),
        ("largest".to_owned(), json!(score.largest.round())),
        ("names_old".to_owned(), json!(score.names_old)),
        ("lines_old".to_owned(), json!(score.lines_old)),
    ]);
    row.extend(answers.all().map(|(name, share)| (name.to_owned(), json!(share))));
    row.into()
}

fn ratio(share: Share) -> String {
    share.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}
