//! `cost`: prints tokens and money of a run by agent, task or model, or of several runs.

use std::time::Duration;

use super::args::{self, CostBy};
use super::locate::{Project, began_ms};
use super::short_id::ShortIds;
use super::{complain, refusal, say, say_json};
use crate::duration;
use crate::exit::Exit;
use crate::journal::JournalError;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::printable;
use crate::report::{self, CostRow, RunCost, short};
use crate::spending::Spending;

pub(super) fn run(project: &Project, verb: &args::Cost) -> Exit {
    if verb.all || verb.since.is_some() {
        return over_runs(project, verb);
    }
    let state = match project.run(verb.run.as_deref()).and_then(|dir| project.state(&dir)) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let rows = match verb.by.unwrap_or(CostBy::Task) {
        CostBy::Agent => report::cost_by_agent(&state),
        CostBy::Task => report::cost_by_task(&state),
        CostBy::Model => report::cost_by_model(&state),
    };
    show(&rows, &state.spending(), verb.json)
}

fn show(rows: &[CostRow], total: &Spending, json: bool) -> Exit {
    if json {
        return say_json(&rows.iter().map(|row| format!("{}\n", row.json())).collect::<String>());
    }
    say(&table(rows, total))
}

/// Prints the cost of several runs. One that cannot be read does not hide the others.
fn over_runs(project: &Project, verb: &args::Cost) -> Exit {
    if let Some(by @ (CostBy::Agent | CostBy::Task)) = verb.by {
        let part = if by == CostBy::Agent { "agent" } else { "task" };
        complain(&format!("error: `--by {part}` needs one run: name it, or leave `--by` out"));
        return Exit::Usage;
    }
    let since = verb.since.as_deref().map(|text| (text, duration::parse(text)));
    let first_ms = match since {
        None => i64::MIN,
        Some((_, Some(time))) => began_after(time),
        Some((text, None)) => {
            complain(&format!("error: `--since` cannot be `{text}`: write a time like 12h or 7d"));
            return Exit::Usage;
        }
    };
    let runs = match project.listed() {
        Ok(runs) => runs,
        Err(exit) => return exit,
    };
    let removed = match project.removed(&runs) {
        Ok(removed) => removed,
        Err(exit) => return exit,
    };
    let names = removed.iter().map(|run| run.run.to_string());
    let ids = ShortIds::of_runs(runs.iter().map(|run| run.name()).chain(names));
    let (mut costs, mut rows, mut worst) = (Vec::new(), Vec::new(), Exit::Done);
    for run in runs.iter().filter(|run| run.has_begun() && is_since(began_ms(run), first_ms)) {
        match cost_of(project, run) {
            Ok((workflow, cost)) => {
                rows.push(cost.row(run.name(), format!("{} {workflow}", ids.of(&run.name()))));
                costs.push(cost);
            }
            Err(exit) => worst = exit,
        }
    }
    for run in removed.iter().rev().filter(|run| run.started_ms() >= first_ms) {
        let (id, cost, name) = (run.run.to_string(), run.cost(), printable::line(&run.name));
        rows.push(cost.row(id.clone(), format!("{} {name} (removed)", ids.of(&id))));
        costs.push(cost);
    }
    if verb.by == Some(CostBy::Model) {
        rows = report::cost_of_runs_by_model(&costs);
    }
    let total = costs.iter().map(|cost| cost.own).sum();
    let said = show(&rows, &total, verb.json);
    if said == Exit::Done { worst } else { said }
}

fn began_after(time: Duration) -> i64 {
    stamp::now_ms().saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

/// A run whose beginning cannot be read counts: its error is printed.
fn is_since(began_ms: Option<i64>, first_ms: i64) -> bool {
    began_ms.is_none_or(|began| began >= first_ms)
}

/// Returns the workflow of a run, safe to show, and what the run itself cost.
fn cost_of(project: &Project, run: &RecordedRun) -> Result<(String, RunCost), Exit> {
    let (state, cost) = match RunCost::read(&**run) {
        // A run that is just being created has cost nothing.
        Err(JournalError::NeverBegan) if run.is_live() => return Ok(Default::default()),
        read => read.map_err(|error| refusal::refused(&project.flags(), Some(run), &error))?,
    };
    let workflow = state.created().map(|created| printable::line(&created.workflow).into_owned());
    Ok((workflow.unwrap_or_default(), cost))
}

/// Formats a line for each row: tokens and money of its own calls, then with its children's calls
/// included. Requests whose end nobody knows have a column of their own, if there are any.
fn table(rows: &[CostRow], total: &Spending) -> String {
    let widest = rows.iter().map(|row| row.shown.chars().count()).max().unwrap_or(0).max(5);
    let unsettled = report::unsettled(total);
    let line = |name: &str, cells: [String; 9]| {
        let [input, cached, written, output, cost, lost, all_in, all_out, all] = cells;
        let lost = unsettled.as_ref().map(|_| format!("{lost:>11}  ")).unwrap_or_default();
        let name = printable::padded(name, widest);
        format!(
            "{name}  {input:>8}  {cached:>8}  {written:>8}  {output:>8}  {cost:>10}  {lost}{all_in:>9}  \
             {all_out:>9}  {all:>10}\n"
        )
    };
    let head = [
        "IN",
        "CACHED",
        "WRITTEN",
        "OUT",
        "COST",
        "UNSETTLED",
        "INCL. IN",
        "INCL. OUT",
        "INCL. COST",
    ];
    let cells = |own: &Spending, all: &Spending| {
        let usage = own.usage;
        [
            short(usage.input),
            short(usage.cache_read),
            short(usage.cache_write),
            short(usage.output),
            money(own.cost_usd()),
            money(own.unsettled.most_usd()),
            short(all.usage.context()),
            short(all.usage.output),
            money(all.cost_usd()),
        ]
    };
    let mut text = line("NAME", head.map(str::to_owned));
    for row in rows {
        text.push_str(&line(&row.shown, cells(&row.own, &row.inclusive)));
    }
    text.push_str(&line("total", cells(total, total)));
    text.extend(unsettled.map(|unsettled| format!("{unsettled}\n")));
    text
}

fn money(cost: Option<f64>) -> String {
    cost.map_or("no price".to_owned(), |cost| format!("${cost:.4}"))
}
