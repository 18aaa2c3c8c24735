//! `check --cost`: what a run may cost, by task and in all, and what bounds the most.

use super::super::locate::Project;
use super::super::{dry_run, printable, say, say_json};
use crate::config::Config;
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::report::forecast::{Binder, EarlierRun, ForecastRow, forecast};
use crate::report::short;
use crate::spec::budget::Amount;
use crate::spending::Usd;

/// The most earlier runs that count, the newest ones that completed.
const MOST_COUNTED: usize = 20;

/// The most earlier runs that are read for them: a file whose runs fail for long must not make `check` slow.
const MOST_READ: usize = 200;

/// Prints the forecast.
pub(super) fn run(project: &Project, config: &Config, json: bool) -> Exit {
    let Some(plan) = dry_run::plan(config, &[]) else { return Exit::Usage };
    let earlier = earlier_runs(project, config);
    let rows = forecast(config, plan.tasks(), &earlier);
    match json {
        true => say_json(&rows.iter().map(|row| format!("{}\n", row.json())).collect::<String>()),
        false => say(&text(&rows, &earlier)),
    }
}

/// Reads what the newest runs of this file cost, as far as they can be read.
fn earlier_runs(project: &Project, config: &Config) -> Vec<EarlierRun> {
    let hash = blake3::hash(config.text.as_bytes()).to_hex().to_string();
    let is_of_file = |run: &RecordedRun| run.is_of(&config.file);
    let runs = project.runs().into_iter().filter(is_of_file).take(MOST_READ);
    runs.filter_map(|run| match run.state(|_| {}) {
        (state, Ok(())) => EarlierRun::of(&state, &hash),
        (_, Err(_)) => None,
    })
    .take(MOST_COUNTED)
    .collect()
}

fn text(rows: &[ForecastRow], earlier: &[EarlierRun]) -> String {
    let name = |row: &ForecastRow| match row.of {
        "run" => "in all".to_owned(),
        "agent" => format!("each agent {}", row.name),
        of => format!("{of} {}", row.name),
    };
    let width = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
    let head = ["LEAST", "LIKELY", "MOST"];
    let line = |name: &str, [least, likely, most]: [&str; 3], by: &str| {
        format!("{}  {least:>12}  {likely:>12}  {most:>12}  {by}\n", printable::padded(name, width))
    };
    let mut text = format!("\n{}", line("", head, "BOUND BY"));
    for row in rows {
        let most = match row.most.by {
            Binder::Nothing => "unbounded".to_owned(),
            _ => amount(row.most.amount),
        };
        let likely = row.likely.map_or("unknown".to_owned(), |(likely, _)| amount(likely));
        let cells = [amount(row.least), likely, most];
        let cells = cells.each_ref().map(String::as_str);
        text.push_str(&line(&name(row), cells, &printable::line(&row.most.by.words())));
    }
    text.push_str(&basis(earlier));
    let all = rows.last().filter(|row| row.most.amount != Amount::default());
    if matches!(all.map(|row| &row.most.by), Some(Binder::Limits | Binder::Nothing)) {
        text.push_str("help: `max_cost` of [budget] bounds what a run may cost\n");
    }
    text
}

/// Says what the likely cost is made from.
fn basis(earlier: &[EarlierRun]) -> String {
    let same = earlier.iter().filter(|run| run.is_same).count();
    let runs = |count: usize| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    match (same, earlier.len()) {
        (0, 0) => "likely: unknown, no earlier run of this file has completed\n".to_owned(),
        (0, all) => {
            format!("likely: the median of {}, of which none had this content\n", runs(all))
        }
        (same, _) => format!("likely: the median of {} of this content\n", runs(same)),
    }
}

/// Formats an amount: money, or tokens where a model has no price.
fn amount(amount: Amount) -> String {
    match amount.cost {
        Usd::MOST => format!("{} tokens", short(amount.tokens)),
        cost if cost.dollars() < 100.0 => format!("${:.4}", cost.dollars()),
        cost => format!("${:.0}", cost.dollars()),
    }
}
