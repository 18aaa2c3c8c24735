//! `ps`: runs, tasks and agents, from the journals.

use std::io;

use super::args;
use super::locate::{Place, fold};
use super::paint::{self, Paint};
use super::say;
use crate::exit::Exit;
use crate::journal::stamp;
use crate::report::{self, Row};

pub(super) fn run(place: &Place, verb: &args::Ps) -> Exit {
    let mut rows = Vec::new();
    let runs = place.runs();
    for (at, dir) in runs.iter().enumerate() {
        let live = dir.is_live();
        // Without `-a`: what is at work now, or else how the newest run ended.
        let wanted = verb.all || live || (at == 0 && !runs.iter().any(|dir| dir.is_live()));
        if !wanted {
            continue;
        }
        match fold(dir, |_| {}) {
            Ok(state) => rows.extend(report::rows(&state, live, stamp::now_ms())),
            Err(exit) => return exit,
        }
    }
    if verb.json {
        let lines: String = rows.iter().map(|row| format!("{}\n", row.json())).collect();
        return say(&lines);
    }
    if rows.is_empty() {
        return say(&format!("no runs in {}\n", place.runs_folder().display()));
    }
    say(&table(&rows, verb.tree, Paint::new(paint::is_on(&io::stdout()))))
}

fn table(rows: &[Row], tree: bool, paint: Paint) -> String {
    let name = |row: &Row| {
        let shown = match row.kind {
            "run" => format!("{} {}", row.name, row.run),
            "agent" if tree => {
                row.name.rsplit('/').next().map(|last| format!("@{last}")).unwrap_or_default()
            }
            "agent" => format!("@{}", row.name),
            _ => row.name.clone(),
        };
        let depth = if tree { row.depth } else { row.depth.min(2) };
        format!("{}{shown}", "  ".repeat(depth))
    };
    let widest = rows.iter().map(|row| name(row).len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:widest$}  {:9}  {:>4}  {:>7}  {:>7}  {:>9}  {:>6}  WAITS FOR\n",
        "NAME", "STATE", "TURN", "IN", "OUT", "COST", "AGE"
    );
    for row in rows {
        let name = format!("{:widest$}", name(row));
        let state = paint.state(&row.state, &format!("{:9}", row.state));
        let turn = row.turn.filter(|turn| *turn > 0).map(|turn| turn.to_string());
        let cost = row.cost_usd.filter(|cost| *cost > 0.0).map(|cost| format!("${cost:.4}"));
        let age = row.age_s.map(|age| format!("{age:.0}s"));
        let line = format!(
            "{name}  {state}  {:>4}  {:>7}  {:>7}  {:>9}  {:>6}  {}",
            turn.unwrap_or_default(),
            report::short(row.usage.context()),
            report::short(row.usage.output),
            cost.unwrap_or_default(),
            age.unwrap_or_default(),
            row.waiting_for.as_deref().unwrap_or_default(),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
