//! `budget`: shows the budgets of a run, or sets the limits of one, with or without a process that drives the run.

use super::locate::Project;
use super::scope::{self, Change};
use super::{args, complain, say};
use crate::exit::Exit;
use crate::id::Name;
use crate::journal::source::RecordedRun;
use crate::run::control;
use crate::run_machine::purse;
use crate::run_state::RunState;
use crate::show::question::safe;
use crate::spec::budget::{Amount, Caps, Scope};
use crate::spending::{Spending, Usd};

pub(super) fn run(project: &Project, verb: &args::Budget) -> Exit {
    let (run, scope, state) = match scope::found(project, &verb.what) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let caps = verb.limits.caps();
    match caps.is_empty() {
        true => say(&text(&state, &scope)),
        false => set(project, &run, &scope, &caps),
    }
}

/// Sets the limits of a scope, for a process that begins to drive the run at once.
pub(super) fn left(project: &Project, run: &RecordedRun, scope: &Scope, caps: &Caps) -> Exit {
    let change = purse::change(scope, caps, control::this_process());
    scope::change(project, run, scope, change).map_or_else(|exit| exit, |_| Exit::Done)
}

/// Sets the limits of a scope, and says so.
fn set(project: &Project, run: &RecordedRun, scope: &Scope, caps: &Caps) -> Exit {
    let change = purse::change(scope, caps, control::this_process());
    let words = scope.words();
    match scope::change(project, run, scope, change) {
        Ok(Change::Counted) => complain(&format!("budget of {} set: {caps}", safe(&words))),
        Ok(Change::Left) => {
            complain(&format!(
                "budget of {} set: {caps}; no process drives the run, which takes it up when it is resumed:",
                safe(&words)
            ));
            complain(&format!("  {}", project.resume_command(&project.short(run))));
        }
        Err(exit) => return exit,
    }
    Exit::Done
}

/// Returns what a scope has spent, the limits that a person set, and whether they are used up.
fn text(state: &RunState, scope: &Scope) -> String {
    let spending = spent(state, scope);
    let (settled, unsettled) = (Amount::settled(&spending), Amount::unsettled(&spending));
    let mut text = format!(
        "{}: {} settled, up to {} unsettled; {} tokens, {} calls\n",
        safe(&scope.words()),
        money(settled.cost),
        money(unsettled.cost),
        settled.tokens,
        settled.calls
    );
    let changed = state.budgets().changed(scope);
    if !changed.is_empty() {
        text.push_str(&format!("limits set by a person: {changed}\n"));
    }
    match state.budgets().exceeded(scope) {
        Some(exceeded) => text.push_str(&format!("used up: {}\n", safe(&exceeded.event.words()))),
        None => text.push_str("not used up\n"),
    }
    text
}

fn money(cost: Usd) -> String {
    match cost == Usd::MOST {
        true => "no price".to_owned(),
        false => format!("${:.4}", cost.dollars()),
    }
}

fn spent(state: &RunState, scope: &Scope) -> Spending {
    match scope {
        Scope::Run => state.spending(),
        Scope::Agent(id) => state.inclusive(id),
        Scope::Task(name) => {
            let is_part = |task: &Name| {
                task == name
                    || task.of_instance() == Some(name.as_str())
                    || task.as_str().starts_with(&format!("{name}/"))
            };
            let agents = state.agents().values().filter(|agent| is_part(&agent.task));
            agents.map(|agent| agent.own).sum()
        }
    }
}
