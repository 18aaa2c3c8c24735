//! `ps`: lists runs, tasks and agents, from the journals.

use super::args;
use super::awaited_budgets;
use super::locate::Project;
use super::paint::{self, Paint};
use super::questions;
use super::rows::indent;
use super::short_id::ShortIds;
use super::stream::Stream;
use super::times::Times;
use super::{complain, refusal, say, say_json};
use crate::client::Client;
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::journal::{JournalError, stamp};
use crate::printable;
use crate::report::{self, Row};
use crate::show;
use crate::show::names::cut_middle;
use crate::spending::Spending;

pub(super) fn run(project: &Project, verb: &args::Ps) -> Exit {
    let runs = match project.listed() {
        Ok(runs) => runs,
        Err(exit) => return exit,
    };
    let (mut rows, mut worst) = (Vec::new(), Exit::Done);
    for (run, live) in chosen(&runs, verb.all) {
        let (mut of_run, exit) = rows_of(project, run, live, verb.json);
        rows.append(&mut of_run);
        // A run that cannot be read does not hide the others.
        worst = if exit == Exit::Done { worst } else { exit };
    }
    let said = if verb.json {
        say_json(&rows.iter().map(|row| format!("{}\n", row.json())).collect::<String>())
    } else if rows.is_empty() && worst == Exit::Done {
        complain(&format!("no runs in {}", project.runs_folder().display()));
        Exit::Done
    } else {
        let paint = Paint::of(Stream::Out);
        let width = Stream::Out.width();
        let ids = ShortIds::of_runs(project.runs().iter().map(|run| run.name()));
        let rows = if verb.tree { report::folded_rows(rows) } else { rows };
        let rows: Vec<_> = rows.into_iter().map(in_one_line).collect();
        say(&match verb.tree {
            true => tree(&rows, &ids, paint, width),
            false => self::runs(&rows, &ids, &project.times, paint, width),
        })
    };
    if said == Exit::Done { worst } else { said }
}

/// Returns the runs that are listed, each with whether it is live: first those that need a person or a resume. Without
/// `all`, these and the live ones, or else the newest run.
fn chosen(runs: &[RecordedRun], all: bool) -> Vec<(&RecordedRun, bool)> {
    let mut found: Vec<_> =
        runs.iter().map(|run| (run, run.is_live(), needs_somebody(run))).collect();
    let newest = match found.iter().any(|(_, live, needs)| *live || *needs) {
        true => None,
        false => runs.iter().find(|run| run.has_begun()),
    };
    let is_newest = |run: &RecordedRun| newest.is_some_and(|newest| newest.name() == run.name());
    found.retain(|(run, live, needs)| all || *live || *needs || is_newest(run));
    // Those of one kind stay in their order.
    found.sort_by_key(|(_, _, needs)| !needs);
    found.into_iter().map(|(run, live, _)| (run, live)).collect()
}

fn needs_somebody(run: &RecordedRun) -> bool {
    let (state, read) = run.state(|_| {});
    read.is_ok() && questions::needs_somebody(run, &state, run.is_live())
}

/// Returns the rows of a run, and the exit code: not [`Exit::Done`] if its journal cannot be read.
fn rows_of(project: &Project, run: &RecordedRun, live: bool, as_json: bool) -> (Vec<Row>, Exit) {
    let (mut state, read) = run.state(|_| {});
    state.lose_requests_unless(live);
    // What a live run has acknowledged may be newer than what was just read.
    let sound = || if live { Ok(()) } else { run.refuse_unsound(&state) };
    let error = match read.and_then(|()| sound()) {
        Ok(()) => {
            let mut rows = report::rows(&state, live, stamp::now_ms());
            if let (Some(first), true) = (rows.first_mut(), live)
                && let Some(busy) = Client::of(run.clone()).busy()
            {
                first.waiting_for = Some(format!("the supervisor: {busy}"));
            }
            if let (Some(first), true) = (rows.first_mut(), report::is_resumable(&state, live)) {
                let id = if as_json { run.name() } else { project.short(run) };
                let is_answered = questions::of_run(run, &state).is_empty()
                    && awaited_budgets::waited_for(run, &state).next().is_none();
                first.waiting_for = Some(match is_answered {
                    true => project.resume_command(&id),
                    false => format!("callsheet pending{} {id}", project.flags()),
                });
            }
            return (rows, Exit::Done);
        }
        // A run whose first records are being written has no name yet.
        Err(JournalError::NeverBegan) if live => return (Vec::new(), Exit::Done),
        Err(error) => error,
    };
    let (id, word) = (run.name(), refusal::word(&error));
    let row = report::unread_row(id, &state, word, error.to_string());
    let exit = match error {
        // A run that never began is listed as `empty`, which is no error.
        JournalError::NeverBegan => Exit::Done,
        _ => refusal::refused(&project.flags(), Some(run), &error),
    };
    (vec![row], exit)
}

/// Returns a row whose texts are safe to show in one line, before they are cut to a width.
fn in_one_line(row: Row) -> Row {
    let line = |text: &str| printable::line(text).into_owned();
    let (waiting_for, unprotected) = (row.waiting_for.as_deref(), row.unprotected.as_deref());
    let (waiting_for, unprotected) = (waiting_for.map(line), unprotected.map(line));
    let untold = row.untold.as_deref().map(line);
    Row { name: line(&row.name), waiting_for, unprotected, untold, ..row }
}

/// The most characters of a name in a line: with the other columns it fits 80.
const NAME: usize = 26;

/// Formats an age in one unit: `7s`, `12m`, `3h`, `5d`.
fn age(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7_200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3_600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// Formats the runs, one a line.
fn runs(rows: &[Row], ids: &ShortIds, times: &Times, paint: Paint, width: Option<usize>) -> String {
    let id = |row: &Row| ids.of(&row.run);
    let widest = rows.iter().map(|row| id(row).len()).max().unwrap_or(0).max(3);
    let names = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let names = names.clamp(4, 20);
    let mut text = format!(
        "{:widest$}  {:names$}  {:9}  {:>7}  {:>6}  {:>5}  {:>8}  WAITS FOR\n",
        "RUN", "NAME", "STATE", "STARTED", "TOOK", "TASKS", "COST"
    );
    for row in rows.iter().filter(|row| row.kind == "run") {
        let name = fitted(&row.name, names);
        let state = paint.state(&row.state, &format!("{:9}", row.state));
        let tasks = row.tasks.map(|(done, all)| format!("{done}/{all}"));
        let line = format!(
            "{:widest$}  {name}  {state}  {:>7}  {:>6}  {:>5}  {:>8}",
            id(row),
            row.started_ms.map(|ms| times.short(ms)).unwrap_or_default(),
            row.took.map(|took| age(took.as_secs_f64())).unwrap_or_default(),
            tasks.unwrap_or_default(),
            cost(row),
        );
        push_line(&mut text, &line, &note(row), width);
    }
    text
}

/// Returns the last part of the name of an agent. A key may hold a slash, too.
fn last_part(row: &Row) -> &str {
    let last = row.name.rsplit('/').next().unwrap_or_default();
    // The names are the same up to the key.
    let shown = row.shown.get(row.name.len() - last.len()..);
    shown.filter(|_| last.contains('[')).unwrap_or(last)
}

/// Formats the runs with their tasks and agents as a tree.
fn tree(rows: &[Row], ids: &ShortIds, paint: Paint, width: Option<usize>) -> String {
    let name = |row: &Row| {
        let shown = match row.kind {
            "run" => format!("{} {}", ids.of(&row.run), row.name).trim().to_owned(),
            "agent" => format!("@{}", last_part(row)),
            _ => row.shown.clone(),
        };
        format!("{}{shown}", indent(row.depth))
    };
    let widest = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
    let widest = widest.clamp(4, NAME);
    let mut text = format!(
        "{:widest$}  {:9}  {:>4}  {:>6}  {:>6}  {:>8}  {:>4}  WAITS FOR\n",
        "NAME", "STATE", "TURN", "IN", "OUT", "COST", "IDLE"
    );
    for row in rows {
        let state = paint.state(&row.state, &format!("{:9}", row.state));
        let turn = row.inclusive.map_or(row.turn.map(u64::from), |all| Some(all.turns));
        let turn = turn.filter(|turn| *turn > 0).map(|turn| turn.to_string());
        let spending = spending(row);
        let line = format!(
            "{}  {state}  {:>4}  {:>6}  {:>6}  {:>8}  {:>4}",
            fitted(&name(row), widest),
            turn.unwrap_or_default(),
            report::short(spending.usage.context()),
            report::short(spending.usage.output),
            cost(row),
            row.age_s.map(age).unwrap_or_default(),
        );
        push_line(&mut text, &line, &note(row), width);
    }
    text
}

/// Returns what a row shows as spent: of a fan-out with its instances.
fn spending(row: &Row) -> Spending {
    row.inclusive.map_or(row.spending, |all| all.spending)
}

/// Returns the cost of a row. A plus says that requests may have cost more, whose end nobody knows.
fn cost(row: &Row) -> String {
    let spending = spending(row);
    let more = if spending.unsettled.requests > 0 { "+" } else { "" };
    let cost = spending.cost_usd().filter(|cost| *cost > 0.0 || !more.is_empty());
    cost.map(|cost| match cost < 10.0 {
        true => format!("${cost:.4}{more}"),
        false => format!("${cost:.2}{more}"),
    })
    .unwrap_or_default()
}

/// Returns the thing that a row waits for, or else what was left undone.
fn note(row: &Row) -> String {
    let undone = || report::undone(&row.shortfalls);
    let first = row.waiting_for.clone().or_else(undone);
    let notes = row.unprotected.clone().into_iter().chain(first).chain(row.untold.clone());
    let notes: Vec<String> = notes.collect();
    notes.join("; ")
}

/// Appends a line of cells with a note at its end. The note is cut to the width of the terminal;
/// without one, nothing is lost.
fn push_line(text: &mut String, cells: &str, note: &str, width: Option<usize>) {
    let line = match width {
        None => format!("{cells}  {note}"),
        Some(width) => {
            let room = width.saturating_sub(paint::visible(cells) + 2);
            format!("{cells}  {}", show::cut(note, room))
        }
    };
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Returns a text of exactly so many characters: filled with spaces, or cut in the middle, because
/// the ends of names tell most.
fn fitted(text: &str, width: usize) -> String {
    printable::padded(&cut_middle(text, width), width)
}
