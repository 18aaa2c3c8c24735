//! `cost`: tokens and money by agent, task or model.

use super::args::{self, CostBy};
use super::locate::{Place, fold};
use super::say;
use crate::exit::Exit;
use crate::message::Usage;
use crate::report::{self, short};

pub(super) fn run(place: &Place, verb: &args::Cost) -> Exit {
    let state = match place.run(verb.run.as_deref()).and_then(|dir| fold(&dir, |_| {})) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let rows = match verb.by {
        CostBy::Agent => report::cost_by_agent(&state),
        CostBy::Task => report::cost_by_task(&state),
        CostBy::Model => report::cost_by_model(&state),
    };
    if verb.json {
        return say(&rows.iter().map(|row| format!("{}\n", row.json())).collect::<String>());
    }
    let widest = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:widest$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>10}  {:>10}\n",
        "NAME", "IN", "CACHED", "WRITTEN", "OUT", "OWN", "INCLUSIVE"
    );
    let money =
        |cost: Option<f64>| cost.map_or("no price".to_owned(), |cost| format!("${cost:.4}"));
    let mut line = |name: &str, usage: &Usage, own: Option<f64>, inclusive: Option<f64>| {
        text.push_str(&format!(
            "{name:widest$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>10}  {:>10}\n",
            short(usage.input),
            short(usage.cache_read),
            short(usage.cache_write),
            short(usage.output),
            money(own),
            money(inclusive),
        ));
    };
    for row in &rows {
        line(&row.name, &row.own.0, row.own.1, row.inclusive.1);
    }
    line("total", &state.usage(), state.cost_usd(), state.cost_usd());
    say(&text)
}
