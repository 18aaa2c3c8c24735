//! `pause` and `unpause`: parts of a run rest and go on, with or without a process that drives the run.

use serde_json::{Value, json};

use super::locate::Project;
use super::scope::{self, Change};
use super::{args, complain};
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::run::{answers, control};
use crate::run_machine::scope_pauses::{PauseChange, REASON_CHARS};
use crate::run_state::RunState;
use crate::run_state::scope_pauses::ScopePause;
use crate::show::question::safe;
use crate::spec::budget::Scope;
use crate::trust::Store;

pub(super) fn pause(project: &Project, verb: &args::Pause) -> Exit {
    let reason = verb.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
    if reason.is_some_and(|reason| reason.chars().nth(REASON_CHARS).is_some()) {
        complain(&format!("error: the reason has more than {REASON_CHARS} characters"));
        return Exit::Usage;
    }
    let (run, scope, state) = match scope::found(project, &verb.what) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    if let Err(problem) = is_open(&state, &scope) {
        complain(&format!("error: {}", safe(&problem)));
        return Exit::Failed;
    }
    // What was left for a run that nobody drives may say otherwise: it is replaced.
    if let Some(pause) = state.scope_pauses().get(&scope).filter(|_| run.is_live()) {
        complain(&format!("{} is paused already, by {}", safe(&scope.words()), safe(&pause.by)));
        return Exit::Done;
    }
    let reason = reason.map(str::to_owned);
    change(project, &run, &PauseChange { scope, paused: true, reason })
}

pub(super) fn unpause(project: &Project, verb: &args::Unpause) -> Exit {
    let (run, scope, state) = match scope::found(project, &verb.what) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let is_paused = state.scope_pauses().get(&scope).is_some();
    let is_left = || left(&run, &scope).is_some_and(|change| change.paused);
    if let Err(problem) = is_there(&state, &scope)
        && !is_paused
    {
        complain(&format!("error: {}", safe(&problem)));
        return Exit::Failed;
    }
    if !is_paused && (run.is_live() || !is_left()) {
        complain(&format!("{} is not paused itself", safe(&scope.words())));
        return still_paused(project, &run, &state, &scope);
    }
    let done =
        change(project, &run, &PauseChange { scope: scope.clone(), paused: false, reason: None });
    match done {
        Exit::Done => still_paused(project, &run, &state, &scope),
        other => other,
    }
}

/// Says by which other pauses a scope, or a part of it, still rests.
fn still_paused(project: &Project, run: &RecordedRun, state: &RunState, scope: &Scope) -> Exit {
    let others = state.scope_pauses().iter().filter(|(other, _)| *other != scope);
    let holds = |other: &Scope| match (scope, other) {
        (Scope::Run, _) | (_, Scope::Run) => true,
        (Scope::Task(name), Scope::Task(other)) => name.is_part_of(other) || other.is_part_of(name),
        (Scope::Agent(id), other @ Scope::Task(_)) => state.is_agent_in(other, id),
        (Scope::Task(_), Scope::Agent(other)) => state.is_agent_in(scope, other),
        (Scope::Agent(id), Scope::Agent(other)) => {
            state.is_agent_in(&Scope::Agent(other.clone()), id) || state.is_agent_in(scope, other)
        }
    };
    for (other, pause) in others.filter(|(other, _)| holds(other)) {
        complain(&format!("{} is paused too, by {}:", safe(&other.words()), safe(&pause.by)));
        complain(&format!("  {}", command(project, run, other)));
    }
    Exit::Done
}

/// Refuses what has ended, or does not exist.
fn is_open(state: &RunState, scope: &Scope) -> Result<(), String> {
    is_there(state, scope)?;
    match state.is_scope_open(scope) {
        true => Ok(()),
        false => Err(format!("{} has ended", scope.words())),
    }
}

/// Refuses what does not exist, and all of a run that has ended.
fn is_there(state: &RunState, scope: &Scope) -> Result<(), String> {
    let is_there = match scope {
        _ if state.completed().is_some() => return Err("the run has ended".to_owned()),
        Scope::Run => true,
        Scope::Task(name) => state.task(name).is_some(),
        Scope::Agent(id) => state.agents().contains_key(id),
    };
    match is_there {
        true => Ok(()),
        false => Err(format!("the run has no {}", scope.words())),
    }
}

/// Returns what was left for the next process.
fn left(run: &RecordedRun, scope: &Scope) -> Option<PauseChange> {
    let left = answers::left_for(&**run, &PauseChange::id_of(scope), &Store::of_user())?;
    PauseChange::read(&left.answer)
}

/// Gives the change to the process that drives the run, or leaves it for the next one, and says so.
fn change(project: &Project, run: &RecordedRun, change: &PauseChange) -> Exit {
    let answer = change.answer(control::this_process());
    let changed = match scope::change(project, run, &change.scope, answer) {
        Ok(changed) => changed,
        Err(exit) => return exit,
    };
    let words = change.scope.words();
    let scope = safe(&words);
    match (changed, change.paused) {
        (Change::Counted, true) => {
            complain(&format!("{scope} is paused: what is under way ends, and nothing new begins"));
            complain(&format!("  {}", command(project, run, &change.scope)));
        }
        (Change::Counted, false) => complain(&format!("{scope} is unpaused: it goes on")),
        (Change::Left, is_paused) => {
            let becomes = if is_paused { "paused" } else { "unpaused" };
            complain(&format!(
                "{scope} is {becomes} from the next resume on: no process drives the run"
            ));
            complain(&format!("  {}", project.resume_command(&project.short(run))));
        }
    }
    Exit::Done
}

/// Returns the pauses of what has not ended.
pub(super) fn all(state: &RunState) -> impl Iterator<Item = (&Scope, &ScopePause)> {
    state.scope_pauses().iter().filter(|(scope, _)| state.is_scope_open(scope))
}

/// Returns a pause as `pending --json` prints it.
pub(super) fn row(run: &RecordedRun, scope: &Scope, pause: &ScopePause) -> Value {
    let (task, agent) = scope::task_and_agent(scope);
    json!({
        "id": PauseChange::id_of(scope),
        "run": run.name(),
        "task": task,
        "agent": agent,
        "kind": "pause",
        "message": words(pause),
        "by": pause.by,
        "reason": pause.reason,
        "since": stamp::text(pause.ts_ms),
        "until": null,
    })
}

/// Returns a pause in words, with the command that ends it.
pub(super) fn text(
    project: &Project,
    run: &RecordedRun,
    scope: &Scope,
    pause: &ScopePause,
) -> String {
    format!(
        "pause  of {} in run {}\n    {}\n  > {}\n",
        safe(&scope.words()),
        project.short(run),
        safe(&words(pause)),
        command(project, run, scope)
    )
}

fn words(pause: &ScopePause) -> String {
    let reason = pause.reason.as_ref().map(|reason| format!(": {reason}"));
    format!("paused by {}{}", pause.by, reason.unwrap_or_default())
}

/// Returns the command that lets a scope go on.
fn command(project: &Project, run: &RecordedRun, scope: &Scope) -> String {
    format!("callsheet unpause{} {}", project.flags(), scope::address(project, run, scope))
}
