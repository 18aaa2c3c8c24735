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
/// included.
fn table(rows: &[CostRow], state: &RunState) -> String {
    let name = |row: &CostRow| printable::line(&row.name).into_owned();
    let widest = rows.iter().map(|row| name(row).len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{}  {:>8}  {:>8}  {:>8}  {:>8}  {:>10}  {:>9}  {:>9}  {:>10}\n",
        printable::padded("NAME", widest),
        "IN",
        "CACHED",
        "WRITTEN",
        "OUT",
        "COST",
        "INCL. IN",
        "INCL. OUT",
        "INCL. COST"
    );
    let mut line = |name: &str, own: &Spending, inclusive: &Spending| {
        text.push_str(&format!(
            "{}  {:>8}  {:>8}  {:>8}  {:>8}  {:>10}  {:>9}  {:>9}  {:>10}\n",
            printable::padded(name, widest),
            short(own.usage.input),
            short(own.usage.cache_read),
            short(own.usage.cache_write),
            short(own.usage.output),
            money(own.cost_usd()),
            short(inclusive.usage.context()),
            short(inclusive.usage.output),
            money(inclusive.cost_usd()),
        ));
    };
    for row in rows {
        line(&name(row), &row.own, &row.inclusive);
    }
    let total = state.spending();
    line("total", &total, &total);
    text
}

fn money(cost: Option<f64>) -> String {
    cost.map_or("no price".to_owned(), |cost| format!("${cost:.4}"))
}
