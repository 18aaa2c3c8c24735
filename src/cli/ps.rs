//! `ps`: lists runs, tasks and agents, from the journals.

use std::io;

use super::args;
use super::locate::Project;
use super::paint::{self, Paint};
use super::{complain, refusal, say};
use crate::exit::Exit;
use crate::journal::file::RunDir;
use crate::journal::{JournalError, snapshot, stamp, walk};
use crate::report::{self, Row};

pub(super) fn run(project: &Project, verb: &args::Ps) -> Exit {
    let mut rows = Vec::new();
    let mut worst = Exit::Done;
    let runs = project.runs();
    // Without `-a`: the live runs, or else the newest run.
    let newest = match runs.iter().any(RunDir::is_live) {
        true => None,
        false => runs.iter().position(walk::has_begun),
    };
    for (at, dir) in runs.iter().enumerate() {
        let live = dir.is_live();
        if verb.all || live || newest == Some(at) {
            let (mut of_run, exit) = rows_of(project, dir, live);
            rows.append(&mut of_run);
            // A run that cannot be read does not hide the others.
            worst = if exit == Exit::Done { worst } else { exit };
        }
    }
    let said = if verb.json {
        say(&rows.iter().map(|row| format!("{}\n", row.json())).collect::<String>())
    } else if rows.is_empty() && worst == Exit::Done {
        complain(&format!("no runs in {}", project.runs_folder().display()));
        Exit::Done
    } else {
        say(&table(&rows, verb.tree, Paint::new(paint::is_on(&io::stdout()))))
    };
    if said == Exit::Done { worst } else { said }
}

/// Returns the rows of a run, and the exit code: not [`Exit::Done`] if its journal cannot be read.
fn rows_of(project: &Project, dir: &RunDir, live: bool) -> (Vec<Row>, Exit) {
    let (state, read) = snapshot::fold(dir, |_| {});
    let error = match read {
        Ok(()) => {
            let mut rows = report::rows(&state, live, stamp::now_ms());
            if let (Some(run), true) = (rows.first_mut(), report::is_resumable(&state, live)) {
                run.waiting_for = Some(project.resume_command(&run.run));
            }
            return (rows, Exit::Done);
        }
        // A run whose first records are being written has no name yet.
        Err(JournalError::NeverBegan) if live => return (Vec::new(), Exit::Done),
        Err(error) => error,
    };
    let (id, word) = (refusal::name(dir), refusal::word(&error));
    let row = report::unread_row(id, &state, word, error.to_string());
    let exit = match error {
        // A run that never began is listed as `empty`, which is no error.
        JournalError::NeverBegan => Exit::Done,
        _ => refusal::refused(&project.flags(), Some(dir), &error),
    };
    (vec![row], exit)
}

/// Formats an age in one unit: `7s`, `12m`, `3h`, `5d`.
fn age(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7_200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3_600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

fn table(rows: &[Row], tree: bool, paint: Paint) -> String {
    let name = |row: &Row| {
        let shown = match row.kind {
            "run" => format!("{} {}", row.name, row.run).trim_start().to_owned(),
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
        let cost =
            row.spending.cost_usd().filter(|cost| *cost > 0.0).map(|cost| format!("${cost:.4}"));
        let age = row.age_s.map(age);
        let line = format!(
            "{name}  {state}  {:>4}  {:>7}  {:>7}  {:>9}  {:>6}  {}",
            turn.unwrap_or_default(),
            report::short(row.spending.usage.context()),
            report::short(row.spending.usage.output),
            cost.unwrap_or_default(),
            age.unwrap_or_default(),
            row.waiting_for.as_deref().unwrap_or_default(),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
