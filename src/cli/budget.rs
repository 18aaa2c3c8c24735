//! `budget`: shows the budgets of a run, or sets the limits of one, with or without a process that drives the run.

use super::locate::{Project, Selector};
use super::{args, complain, refusal, runtime, say};
use crate::client::{Client, ClientError, Given};
use crate::exit::Exit;
use crate::id::{AgentId, Name};
use crate::journal::source::RecordedRun;
use crate::run::control;
use crate::run_machine::purse;
use crate::run_state::RunState;
use crate::show::question::safe;
use crate::spec::budget::{Amount, Caps, Scope};
use crate::spending::{Spending, Usd};

pub(super) fn run(project: &Project, verb: &args::Budget) -> Exit {
    let (run, part) = match project.part(Some(&verb.what)) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let caps = verb.limits.caps();
    let state = match project.state(&run) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let scope = match scope_of(&part) {
        Some(scope) => scope,
        None => {
            complain("error: a budget belongs to a run, RUN/TASK or RUN/@AGENT");
            return Exit::Usage;
        }
    };
    match caps.is_empty() {
        true => say(&text(&state, &scope)),
        false => set(project, &run, &scope, &caps),
    }
}

fn scope_of(part: &Selector) -> Option<Scope> {
    match part {
        Selector::Run => Some(Scope::Run),
        Selector::Task(task) => Name::of_record(task).ok().map(Scope::Task),
        Selector::Agent(agent) => Some(Scope::Agent(AgentId::from_text(agent))),
    }
}

/// Sets the limits of a scope, for a process that begins to drive the run at once.
pub(super) fn left(project: &Project, run: &RecordedRun, scope: &Scope, caps: &Caps) -> Exit {
    let answer = purse::change(scope, caps, control::this_process());
    match runtime().map(|runtime| runtime.block_on(Client::of(run.clone()).answer(answer))) {
        Ok(Ok(Given::Counted | Given::Left)) => Exit::Done,
        Ok(Ok(_)) => {
            complain("error: the run has ended");
            Exit::Failed
        }
        Ok(Err(ClientError::Journal(error))) => {
            refusal::refused(&project.flags(), Some(run), &error)
        }
        Ok(Err(error)) => {
            complain(&format!("error: {error}"));
            Exit::Failed
        }
        Err(exit) => exit,
    }
}

/// Sets the limits of a scope.
fn set(project: &Project, run: &RecordedRun, scope: &Scope, caps: &Caps) -> Exit {
    let answer = purse::change(scope, caps, control::this_process());
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(Client::of(run.clone()).answer(answer)) {
        Ok(Given::Counted) => {
            complain(&format!("budget of {} set: {caps}", safe(&scope.words())));
            Exit::Done
        }
        Ok(Given::Left) => {
            complain(&format!(
                "budget of {} set: {caps}; no process drives the run, which takes it up when it is resumed:",
                safe(&scope.words())
            ));
            complain(&format!("  {}", project.resume_command(&project.short(run))));
            Exit::Done
        }
        Ok(Given::Closed | Given::Queued(_) | Given::NotSent(_)) => {
            complain(&format!("error: the run has ended, or it has no {}", safe(&scope.words())));
            Exit::Failed
        }
        Ok(Given::Late { .. } | Given::Over { .. }) => {
            complain("error: the process that drives the run is ending: set it again");
            Exit::Failed
        }
        Err(ClientError::Journal(error)) => refusal::refused(&project.flags(), Some(run), &error),
        Err(error) => {
            complain(&format!("error: {error}"));
            Exit::Failed
        }
    }
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
