//! Where the money of a subject went, as lines for people and as JSON.
//!
//! Pure. The items are those of `why::bill` of the machines.

use serde_json::{Value, json};

use super::{short, unsettled};
use crate::show::names::Names;
use crate::show::why::subject;
use crate::spending::Spending;
use crate::why::{Item, Purpose, Subject};

/// The most items that are shown without `--all`.
const MOST: usize = 5;

/// Returns a bill in lines that are safe to show: its dearest items with their share, the rest in one, and the sum.
#[must_use]
pub fn lines(about: &Subject, items: &[Item], names: &Names, all: bool) -> Vec<String> {
    let total: Spending = items.iter().map(|item| item.spending).sum();
    let cost = |spending: &Spending| match spending.cost_usd() {
        Some(cost) => format!("${cost:.4}"),
        None => format!("{} tokens", short(spending.usage.context() + spending.usage.output)),
    };
    let mut lines = vec![format!("{} spent {}", subject(about, names), cost(&total))];
    let shown = if all { items.len() } else { items.len().min(MOST) };
    for item in &items[..shown] {
        let who = subject(&Subject::Agent(item.agent.clone()), names);
        let calls = if item.calls == 1 { "call" } else { "calls" };
        let cost = match (item.purpose, item.spending.unsettled.most_usd()) {
            (Purpose::Unsettled, Some(most)) => format!("at most ${most:.4}"),
            (Purpose::Unsettled, None) => "no price".to_owned(),
            _ => cost(&item.spending),
        };
        let words = words(item.purpose);
        lines.push(format!("{cost:>16}  {who}: {} {calls}, {words}", item.calls));
    }
    if shown < items.len() {
        let rest: Spending = items[shown..].iter().map(|item| item.spending).sum();
        lines.push(format!(
            "{:>16}  {} more items: --all shows them",
            cost(&rest),
            items.len() - shown
        ));
    }
    lines.extend(unsettled(&total));
    lines
}

fn words(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Replies => "answered",
        Purpose::FailedCalls => "failed or cut",
        Purpose::Summaries => "for summaries of its context",
        Purpose::EarlierAttempt => "of an attempt that was given up",
        Purpose::Unsettled => "whose outcome is unknown",
    }
}

/// Returns the items of a bill as JSON, the dearest first.
#[must_use]
pub fn json(items: &[Item]) -> Value {
    let item = |item: &Item| {
        json!({
            "agent": item.agent,
            "spent_on": item.purpose.as_str(),
            "calls": item.calls,
            "usage": item.spending.usage,
            "cost_usd": item.spending.cost_usd(),
            "unsettled_usd": item.spending.unsettled.most_usd(),
        })
    };
    items.iter().map(item).collect()
}
