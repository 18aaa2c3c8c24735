//! Turns the tables `budget` into budgets, and checks what they limit.

use std::collections::BTreeMap;

use super::Setting;
use super::raw::Budget as Raw;
use super::shape::Field;
use crate::id::Name;
use crate::spec::budget::{Budget, Caps, OnExceed};
use crate::spec::{AgentSpec, TaskSpec};
use crate::spending::Usd;

/// Turns a table `budget` into a budget; `None` if it limits nothing.
pub(super) fn budget(raw: Option<&Raw>) -> Option<Budget> {
    let raw = raw?;
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let caps = Caps {
        max_cost: raw.max_cost.map(Usd::from_dollars),
        max_tokens: *raw.max_tokens,
        max_calls: *raw.max_calls,
        max_time_ms: raw.max_time.map(millis),
    };
    let shares = raw.warn_at.as_ref().map(|shares| {
        let mut shares: Vec<_> = shares.iter().map(|share| thousandths(share.value)).collect();
        shares.sort_unstable();
        shares.dedup();
        shares
    });
    let default = Budget::default();
    let warn_at = shares.unwrap_or(default.warn_at);
    let budget = Budget { caps, warn_at, on_exceed: *raw.on_exceed, hand_over: *raw.hand_over };
    (!caps.is_empty()).then_some(budget)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it lies between 0 and 1,000"
)]
fn thousandths(share: f64) -> u16 {
    (share * 1_000.0).round().clamp(0.0, 1_000.0) as u16
}

/// Reports budgets that limit nothing, and limits that can never be reached.
pub(super) fn check(setting: Setting<'_>, agents: &BTreeMap<Name, AgentSpec>, tasks: &[TaskSpec]) {
    let raw = setting.raw;
    let run = budget(raw.budget.as_ref());
    report_unused(setting, &raw.budget, "budget");
    for (entry, task) in raw.tasks.values() {
        report_unused(setting, &task.budget, &format!("tasks.{}.budget", entry.name));
        let spec = tasks.iter().find(|spec| spec.name.as_str() == entry.name);
        let own = spec.and_then(|spec| spec.budget.as_ref());
        report_wider(setting, &task.budget, own, run.as_ref(), "the run");
    }
    for (entry, agent) in raw.agents.values() {
        report_unused(setting, &agent.budget, &format!("agents.{}.budget", entry.name));
        let own = agents.get(entry.name.as_str()).and_then(|spec| spec.budget.as_ref());
        report_wider(setting, &agent.budget, own, run.as_ref(), "the run");
    }
}

fn report_unused(setting: Setting<'_>, raw: &Field<Option<Raw>>, path: &str) {
    // A limit that could not be read is reported already, and so is a key that may have been one.
    let is_unread = |raw: &Raw| {
        let Raw { max_cost, max_tokens, max_calls, max_time, .. } = raw;
        max_cost.is_wrong() || max_tokens.is_wrong() || max_calls.is_wrong() || max_time.is_wrong()
    };
    let is_told = || {
        raw.as_ref().is_none_or(is_unread)
            || setting.problems.mentions("unknown_key", &format!("in [{path}]"))
    };
    if let Some(at) = raw.at()
        && budget(raw.as_ref()).is_none()
        && !is_told()
    {
        let message = "the budget has no limit, so nothing limits spending";
        let help = "set `max_cost`, `max_tokens`, `max_calls` or `max_time`";
        setting.problems.warning("unused_key", &at.key, message, help);
    }
}

fn report_wider(
    setting: Setting<'_>,
    raw: &Field<Option<Raw>>,
    own: Option<&Budget>,
    outer: Option<&Budget>,
    whole: &str,
) {
    let (Some(at), Some(own), Some(outer)) = (raw.at(), own, outer) else { return };
    // What the outer one only reports does not bind.
    if outer.on_exceed == OnExceed::Warn {
        return;
    }
    let narrowed = own.caps.narrowed_to(outer.caps);
    let wider = |mine: Option<u64>, least: Option<u64>| mine.is_some_and(|mine| least < Some(mine));
    let (mine, least) = (own.caps.max_cost, narrowed.max_cost);
    let cost = |cost: Option<Usd>| cost.map(Usd::picodollars);
    let is_wider = wider(cost(mine), cost(least))
        || wider(own.caps.max_tokens, narrowed.max_tokens)
        || wider(own.caps.max_calls, narrowed.max_calls)
        || wider(own.caps.max_time_ms, narrowed.max_time_ms);
    if is_wider {
        let message =
            format!("a limit of the budget is higher than that of {whole}, and is never reached");
        let help = format!("lower it, or raise that of {whole}");
        setting.problems.warning("budget_never_reached", &at.key, message, help);
    }
}
