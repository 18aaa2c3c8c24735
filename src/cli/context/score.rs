//! `context score`: asks the views of presets for the facts of recorded conversations.

use serde_json::{Map, Value, json};

use super::own::{self, Contender};
use super::race::{self, Outcome};
use super::table::{self, Table};
use crate::cli::locate::Project;
use crate::cli::{args, say, say_json};
use crate::exit::Exit;
use crate::report::short;

/// Explains the cost.
const COST: &str = "COST: of the input and the summaries, in input tokens.\n";

pub(super) fn run(project: &Project, verb: &args::Score) -> Result<(), Exit> {
    let (configured, terms) = own::read(project, &verb.own, None, None)?;
    let mut contenders: Vec<_> = configured.into_iter().collect();
    match &verb.preset {
        Some(name) => contenders.push(Contender::named(name)?),
        None => contenders.extend(Contender::all()),
    }
    let each = |name: &str, outcome: &Outcome| show(name, &contenders, outcome, verb.json);
    let total = race::each(project, &verb.sources, &terms, &contenders, each)?;
    if total.sources > 1 && !verb.json {
        each("all", &total.outcome)?;
    }
    if total.sources > 0 && !verb.json {
        done(say(&format!("{COST}{}", table::LEGEND)))?;
    }
    total.wrong.map_or(Ok(()), Err)
}

pub(super) fn done(exit: Exit) -> Result<(), Exit> {
    if exit == Exit::Done { Ok(()) } else { Err(exit) }
}

fn show(
    name: &str,
    contenders: &[Contender],
    outcome: &Outcome,
    as_json: bool,
) -> Result<(), Exit> {
    if as_json {
        let rows = contenders.iter().enumerate();
        let rows =
            rows.map(|(at, contender)| format!("{}\n", document(name, contender, outcome, at)));
        return done(say_json(&rows.collect::<String>()));
    }
    let mut table = Table::new(name, contenders, outcome, &[]);
    for (at, contender) in contenders.iter().enumerate() {
        let cost = |kept: Option<&race::Kept>| {
            short(kept.map_or(0.0, |kept| kept.score.billed).max(0.0).round() as u64)
        };
        let (all, theirs) = (&outcome.all.kept[at], outcome.sub_agents.kept.get(at));
        let costs = (cost(Some(all)), cost(theirs));
        table.row(&contender.name, (&costs.0, &costs.1), (&[], &[]), all);
    }
    done(say(&table.text()))
}

fn document(name: &str, contender: &Contender, outcome: &Outcome, at: usize) -> Value {
    let kept = &outcome.all.kept[at];
    let members = table::members(name, contender, (outcome, at)).into_iter();
    let mut row: Map<_, _> = members.map(|(key, value)| (key.to_owned(), value)).collect();
    row.insert("names_old".to_owned(), json!(kept.score.names_old));
    row.insert("lines_old".to_owned(), json!(kept.score.lines_old));
    row.extend(kept.answers.all().map(|(name, share)| (name.to_owned(), json!(share))));
    row.into()
}
