//! What `ps`, `show`, `report` and `pending` print agrees with the first link, on every prefix of random journals.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Story, agent, calls, name};
use crate::report::rows;
use crate::run_state::RunState;
use crate::why::{Relation, Subject, Why};

/// The data of a budget that is used up.
fn used_up(scope: &str) -> Value {
    let amount = |calls: u32| json!({"cost": 0, "tokens": 0, "calls": calls});
    json!({
        "scope": scope, "measure": "calls", "caps": {"max_calls": 2}, "settled": amount(2), "unsettled": amount(0),
        "needs": amount(1), "on_exceed": "pause",
    })
}

/// Makes random legal records: more than any machine would.
fn random_journal(seed: u64, mut each: impl FnMut(&RunState)) {
    let (mut rng, mut money) = (fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(!seed));
    let tasks: Vec<Value> = (0..rng.usize(2..7))
        .map(|n| {
            let before: Vec<String> = (0..n).filter(|_| rng.u32(..3) == 0).map(|n| format!("t{n}")).collect();
            let locks: &[&str] = if rng.bool() { &["repo"] } else { &[] };
            json!({"name": format!("t{n}"), "agent": "worker", "depends_on": before, "locks": locks})
        })
        .collect();
    let mut story = Story::of(&tasks);
    let failure = json!({"kind": "overloaded", "message": "busy"});
    let program = json!({"model": {"agent": "worker", "prompt": {"text": "x"}}});
    for at in 0..150_u32 {
        let task = format!("t{}", rng.usize(..tasks.len()));
        let main = format!("@{task}");
        let child = format!("{main}/h-{}", rng.u32(1..3));
        let agent = if rng.bool() { &main } else { &child };
        let (id, parent) = (format!("q{at}"), agent.contains('/').then(|| task.clone()));
        let before = story.0.last_seq();
        // Budgets are drawn apart, and change nothing of what else happens.
        let scopes = ["/".to_owned(), format!("/{task}"), format!("/{agent}")];
        let scope = &scopes[money.usize(..3)];
        match money.u32(..16) {
            0 | 1 => story.says("", "budget.exceeded", &used_up(scope)),
            2 => {
                let caps = json!({"max_calls": 9});
                story.says("", "budget.changed", &json!({"scope": scope, "caps": caps}));
            }
            _ => {}
        }
        match rng.u32(..14) {
            0 | 1 => story.tries(&task, "task.ready", &json!({})),
            2 | 3 => story.tries(&task, "task.started", &json!({"attempt": 1, "agent": task})),
            4 | 5 => story.tries(
                agent,
                "agent.spawned",
                &json!({"program": program, "depth": 0, "parent": parent}),
            ),
            6 => story.tries(
                agent,
                "model.requested",
                &json!({"turn": 1, "model": "m", "messages": 1, "bytes": 1}),
            ),
            7 => story.tries(
                agent,
                "model.failed",
                &json!({"turn": 1, "attempt": 1, "failure": failure, "retry_in_ms": 9_000}),
            ),
            8 => calls(&mut story, agent, if rng.bool() { "bash" } else { "delegate" }),
            9 => story.tries(
                agent,
                "approval.asked",
                &json!({"id": id, "kind": "question", "message": "Well?"}),
            ),
            10 => story.tries(
                &task,
                "approval.asked",
                &json!({"id": id, "kind": "approval", "message": "Go?"}),
            ),
            11 => story.tries(
                &task,
                "task.retrying",
                &json!({"attempt": 1, "failure": failure, "pause_ms": 9_000}),
            ),
            12 => story.tries(agent, "agent.ended", &json!({
                "outcome": {"status": "completed", "output": {"text": "x"}}, "turns": 1, "usage": {},
            })),
            _ => story.tries(&task, "task.completed", &json!({"attempt": 1, "output": {"text": "x"}})),
        };
        if story.0.last_seq() > before {
            each(&story.0);
        }
    }
}

/// `ps`, `show` and `report` print these rows, `pending` lists the open questions.
#[test]
fn rows_and_questions_agree_with_the_first_link_on_every_prefix() {
    let mut waits = BTreeSet::new();
    for seed in 0..100 {
        random_journal(seed, |state| {
            let now_ms = state.last_ms();
            let why = Why::of(state, true, now_ms);
            let mut asked = BTreeSet::new();
            for row in rows(state, true, now_ms).into_iter().skip(1) {
                let subject = match row.kind {
                    "task" => Subject::Task(name(&row.name)),
                    _ => Subject::Agent(agent(&row.name)),
                };
                let causes = why.causes(&subject);
                let first = causes.first().filter(|first| first.subject == subject);
                let named = row.waiting_for.unwrap_or_default();
                let fits = match first.map(|first| &first.relation) {
                    None
                    | Some(
                        Relation::BeingDecided
                        | Relation::AboutToAct
                        | Relation::FailedBecause { .. }
                        | Relation::CancelledBy { .. }
                        | Relation::PartialBecause { .. },
                    ) => named.is_empty(),
                    Some(Relation::WaitsForDependency { of }) => named.starts_with(of.as_str()),
                    Some(Relation::WaitsForLock { lock, holder, .. }) => {
                        named == format!("lock {lock}, held by {holder}")
                    }
                    Some(Relation::WaitsForSlot { .. }) => named == "a slot",
                    Some(Relation::WaitsForPerson { message, .. }) => {
                        named == format!("you: {message}")
                    }
                    Some(Relation::WaitsForRetry { .. }) => named.starts_with("retrying in "),
                    Some(Relation::WaitsForBudget { scope, .. }) => {
                        // This is what `pending` lists.
                        assert!(state.budgets().exceeded(scope).is_some(), "{seed}");
                        named == format!("the budget of {}", scope.words())
                    }
                    Some(Relation::WaitsForChild { .. }) => named.contains("child"),
                    Some(_) => !named.is_empty(),
                };
                assert!(fits, "{seed}: {subject:?} {first:?} {named:?}");
                waits.extend(first.map(|first| first.relation.as_str()));
                asked.extend(causes.iter().filter_map(|link| match &link.relation {
                    Relation::WaitsForPerson { id, .. } => Some(id.clone()),
                    _ => None,
                }));
            }
            let open: BTreeSet<_> =
                state.questions().by_id().map(|(id, _)| id.to_owned()).collect();
            assert_eq!(asked, open, "{seed}");
        });
    }
    for wanted in [
        "waits_for_lock",
        "waits_for_slot",
        "waits_for_person",
        "waits_for_child",
        "waits_for_budget",
    ] {
        assert!(waits.contains(wanted), "{waits:?}");
    }
}
