//! Budgets that are used up and wait for a person, as `pending`, `ps` and the end of a run name them.

use serde_json::{Value, json};

use super::locate::Project;
use super::scope;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::run_machine::purse;
use crate::run_state::RunState;
use crate::run_state::budgets::Exceeded;
use crate::show::question::safe;
use crate::spec::budget::{Measure, OnExceed};

/// Returns the budgets that agents of a run wait for, unless new limits were left for the next process.
pub(super) fn waited_for<'a>(
    run: &RecordedRun,
    state: &'a RunState,
) -> impl Iterator<Item = &'a Exceeded> + use<'a> {
    let store = crate::trust::Store::of_user();
    let run = run.clone();
    let is_open = state.completed().is_none();
    state.budgets().all_exceeded().filter(move |exceeded| {
        let scope = &exceeded.event.scope;
        let left = crate::run::answers::left_for(&*run, &purse::id_of(scope), &store);
        is_open && exceeded.event.on_exceed == OnExceed::Pause && left.is_none()
    })
}

/// Returns a budget that is waited for as `pending --json` prints it.
pub(super) fn row(run: &RecordedRun, exceeded: &Exceeded) -> Value {
    let scope = &exceeded.event.scope;
    let (task, agent) = scope::task_and_agent(scope);
    json!({
        "id": purse::id_of(scope),
        "run": run.name(),
        "task": task,
        "agent": agent,
        "kind": "budget",
        "message": exceeded.event.words(),
        "since": stamp::text(exceeded.ts_ms),
        "until": null,
    })
}

/// Returns the flag that sets a limit.
pub(super) fn flag(measure: Measure) -> &'static str {
    match measure {
        Measure::Cost => "--max-cost USD",
        Measure::Tokens => "--max-tokens N",
        Measure::Calls => "--max-calls N",
        Measure::Time => "--max-time TIME",
    }
}

/// Returns a budget that is waited for in words, with the command that raises it.
pub(super) fn waiting_text(project: &Project, run: &RecordedRun, exceeded: &Exceeded) -> String {
    format!(
        "budget  of {} in run {}\n    {}\n  > {}\n",
        safe(&exceeded.event.scope.words()),
        project.short(run),
        safe(&exceeded.event.words()),
        command(project, run, exceeded)
    )
}

/// Returns the command that raises a budget.
pub(super) fn command(project: &Project, run: &RecordedRun, exceeded: &Exceeded) -> String {
    let address = scope::address(project, run, &exceeded.event.scope);
    format!("callsheet budget{} {address} {}", project.flags(), flag(exceeded.event.measure))
}
