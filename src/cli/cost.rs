//! `cost`: prints tokens and money by agent, task or model.

use super::args::{self, CostBy};
use super::locate::Project;
use super::{say, say_json};
use crate::exit::Exit;
use crate::printable;
use crate::report::{self, CostRow, short};
use crate::run_state::RunState;
use crate::spending::Spending;

pub(super) fn run(project: &Project, verb: &args::Cost) -> Exit {
    let state = match project.run(verb.run.as_deref()).and_then(|dir| project.state(&dir)) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let rows = match verb.by {
        CostBy::Agent => report::cost_by_agent(&state),
        CostBy::Task => report::cost_by_task(&state),
        CostBy::Model => report::cost_by_model(&state),
    };
    if verb.json {
        return say_json(&rows.iter().map(|row| format!("{}\n", row.json())).collect::<String>());
    }
    say(&table(&rows, &state))
}

/// Formats a line for each row: tokens and money of its own calls, then with its children's calls
/// included. Requests whose end nobody knows have a column of their own, if there are any.
fn table(rows: &[CostRow], state: &RunState) -> String {
    let widest = rows.iter().map(|row| row.shown.chars().count()).max().unwrap_or(0).max(5);
    let total = state.spending();
    let unsettled = report::unsettled(&total);
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
    text.push_str(&line("total", cells(&total, &total)));
    text.extend(unsettled.map(|unsettled| format!("{unsettled}\n")));
    text
}

fn money(cost: Option<f64>) -> String {
    cost.map_or("no price".to_owned(), |cost| format!("${cost:.4}"))
}
