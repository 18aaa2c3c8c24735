//! The relation of each kind of wait and of each end, from records.

use serde_json::{Value, json};

use super::testing::{Story, subject};
use super::{Bill, Purpose, Why};
use crate::event::{Event, Record};
use crate::id::AgentId;
use crate::spending::Spending;

/// Makes a task of an agent with these dependencies.
fn task(name: &str, depends_on: &[&str]) -> Value {
    json!({"name": name, "agent": "worker", "depends_on": depends_on})
}

/// Adds keys to a task.
fn with(mut task: Value, more: &Value) -> Value {
    let more = more.as_object().expect("an object").clone();
    task.as_object_mut().expect("an object").extend(more);
    task
}

/// A task `a` at work from record 5 on.
fn at_work() -> Story {
    let mut story = Story::of(&[task("a", &[])]);
    story.ready(&["a"]);
    story.starts("a");
    story
}

fn failed(kind: &str) -> Value {
    json!({"kind": kind, "message": "so"})
}

fn asks(story: &mut Story, who: &str, kind: &str) {
    story.says(who, "approval.asked", &json!({"id": "q1", "kind": kind, "message": "Go?"}));
}

#[test]
fn a_task_waits_for_what_its_join_needs() {
    let story = Story::of(&[task("a", &[]), task("b", &["a"]), task("c", &["a", "b"])]);
    // The longest path binds, not the first name.
    assert_eq!(
        story.why("c", true, 0),
        "c waits_for_dependency(b) +1 @1 > b waits_for_dependency(a) @1 > a being_decided @1"
    );
    let any = with(task("c", &["a", "b"]), &json!({"join": "any_success"}));
    let story = Story::of(&[task("a", &[]), task("b", &["a"]), any.clone()]);
    // Any of them is enough, so the nearest to its end counts.
    assert_eq!(story.why("c", true, 0), "c waits_for_join(0 1 2 a) +1 @1 > a being_decided @1");
    let mut story = Story::of(&[
        task("a", &[]),
        with(task("c", &["a", "a"]), &json!({"join": {"at_least": 2}})),
    ]);
    story.ready(&["a"]);
    assert_eq!(
        story.why("c", true, 0),
        "c waits_for_join(0 2 2 a) +1 @1 > a waits_for_slot(0 1 [] 0) @3"
    );
}

#[test]
fn a_lock_has_a_holder_and_a_line() {
    let locked = |name: &str| with(task(name, &[]), &json!({"locks": ["repo"]}));
    let last = task("report", &["review"]);
    let mut story = Story::of(&[locked("fix"), locked("review"), locked("late"), last]);
    story.ready(&["fix", "review", "late"]);
    story.starts("fix");
    story.calls("@fix", "bash", 0);
    assert_eq!(
        story.why("report", true, 0),
        "report waits_for_dependency(review) @1 > review waits_for_lock(repo fix 0) @4 > \
         @fix in_tool([bash]) @8"
    );
    assert!(story.why("late", true, 0).starts_with("late waits_for_lock(repo fix 1) @5 > @fix"));
    // Whoever is next has the lock while it waits for a slot.
    story.completes("@fix");
    story.completes("fix");
    assert_eq!(
        story.why("late", true, 0),
        "late waits_for_lock(repo review 0) @5 > review waits_for_slot(0 1 [] 0) @4"
    );
}

#[test]
fn a_slot_has_those_who_work_and_a_line() {
    let mut story = Story::of(&[task("a", &[]), task("b", &[]), task("c", &[]), task("d", &["c"])]);
    story.ready(&["a", "b", "c"]);
    story.starts("a");
    // The longer path goes first.
    assert_eq!(story.why("b", true, 0), "b waits_for_slot(1 2 [a] 1) @4 > @a about_to_act @7");
    assert!(story.why("c", true, 0).starts_with("c waits_for_slot(0 2 [a] 1) @5"));
}

#[test]
fn a_parent_waits_for_its_children() {
    let mut story = at_work();
    story.calls("@a", "delegate", 0);
    story.calls("@a", "delegate", 1);
    assert_eq!(story.why("a", true, 0), "@a waits_for_start(2) @6");
    story.spawns("@a/h-1", Some("a"));
    assert_eq!(
        story.why("a", true, 0),
        "@a waits_for_child(a/h-1 2) +1 @6 > @a/h-1 about_to_act @8"
    );
    story.spawns("@a/h-2", Some("a"));
    asks(&mut story, "@a/h-2", "question");
    // A child that needs a person ends last.
    assert_eq!(
        story.why("a", true, 0),
        "@a waits_for_child(a/h-2 2) +1 @6 > @a/h-2 waits_for_person(q1 question Go?) @10"
    );
}

#[test]
fn a_fan_out_waits_for_instances_and_they_for_their_turn() {
    let wide = with(task("f", &[]), &json!({"fans_out": true, "at_once": 1}));
    let mut story = Story::of(&[wide]);
    story.ready(&["f"]);
    assert_eq!(story.why("f", true, 0), "f being_decided @3");
    let instances = json!({"keys": ["x", "y", "z"], "hash": "h"});
    story.says("f", "task.started", &json!({"attempt": 1, "instances": instances}));
    story.ready(&["f[0]", "f[1]", "f[2]"]);
    story.starts("f[0]");
    assert_eq!(
        story.why("f", true, 0),
        "f waits_for_instances(3 3 f[1]) +2 @4 > f[1] waits_for_turn(f f[0] 0) @6 > \
         @f[0] about_to_act @9"
    );
    assert!(story.why("f[2]", true, 0).starts_with("f[2] waits_for_turn(f f[0] 1) @7"));
}

#[test]
fn a_person_comes_first() {
    let gate = json!({"name": "gate", "approval": true});
    let mut story = Story::of(&[gate, task("b", &["gate"])]);
    story.ready(&["gate"]);
    asks(&mut story, "gate", "approval");
    let chain = "b waits_for_dependency(gate) @1 > gate waits_for_person(q1 approval Go?) @4";
    assert_eq!(story.why("b", true, 0), chain);
    story.says("", "run.paused", &json!({"reason": "for you", "cause": "person"}));
    assert_eq!(
        story.why("b", false, 0),
        "b waits_for_dependency(gate) +1 @1 > gate waits_for_person(q1 approval Go?) +1 @4"
    );
    let mut story = at_work();
    story.calls("@a", "bash", 0);
    asks(&mut story, "@a", "permission");
    assert_eq!(story.why("a", true, 0), "@a waits_for_person(q1 permission Go?) @7");
}

#[test]
fn a_question_is_over_once_its_task_does_something_else() {
    // No machine asks for a task that has an agent, or starts one that asks. A journal may say so all the same.
    let mut story = at_work();
    story.completes("@a");
    asks(&mut story, "a", "approval");
    assert_eq!(story.why("a", true, 0), "a waits_for_person(q1 approval Go?) @7");
    story.says("a", "task.started", &json!({"attempt": 2, "agent": "a~2"}));
    assert!(story.state.questions().is_empty());
    let retrying = json!({"attempt": 2, "failure": failed("overloaded"), "pause_ms": 40_000});
    story.says("a", "task.retrying", &retrying);
    assert_eq!(story.why("a", true, 10), "a waits_for_retry(overloaded 3 49000) @9");
}

#[test]
fn pauses_of_attempts_and_of_providers_have_an_end() {
    let mut story = at_work();
    story.fails("@a", "overloaded");
    let retrying = json!({"attempt": 1, "failure": failed("overloaded"), "pause_ms": 40_000});
    story.says("a", "task.retrying", &retrying);
    assert_eq!(story.why("a", true, 10), "a waits_for_retry(overloaded 2 47000) @7");
    // Then it stands in line as any other.
    assert_eq!(story.why("a", true, 40), "a waits_for_slot(0 1 [] 0) @7");
    let mut on_resume = at_work();
    on_resume.fails("@a", "auth");
    let retrying =
        json!({"attempt": 1, "failure": failed("auth"), "pause_ms": 0, "on_resume": true});
    on_resume.says("a", "task.retrying", &retrying);
    assert_eq!(on_resume.why("a", true, 0), "a waits_for_resume(auth) @7");
    let mut story = at_work();
    let request = json!({"turn": 1, "model": "m", "messages": 1, "bytes": 1});
    story.says("@a", "model.requested", &request);
    assert_eq!(story.why("a", true, 0), "@a in_model_call(m 0) @6");
    let refused =
        json!({"turn": 1, "attempt": 1, "failure": failed("rate_limit"), "retry_in_ms": 5_000});
    story.says("@a", "model.failed", &refused);
    assert_eq!(story.why("a", true, 0), "@a waits_for_rate_limit(2 12000) @7");
    assert_eq!(story.why("a", true, 5), "@a in_model_call(null 0) @7");
    let refused =
        json!({"turn": 1, "attempt": 2, "failure": failed("overloaded"), "retry_in_ms": 5_000});
    story.says("@a", "model.failed", &refused);
    assert_eq!(story.why("a", true, 0), "@a waits_for_retry(overloaded 3 13000) @7");
    story.says("@a", "compaction.requested", &json!({"trigger": "auto", "from": 0, "to": 1}));
    assert_eq!(story.why("a", true, 0), "@a in_compaction @9");
}

/// Says that the budget of a scope is used up: it may make two calls.
fn used_up(story: &mut Story, scope: &str, on_exceed: &str) {
    let amount = |calls: u32| json!({"cost": 0, "tokens": 0, "calls": calls});
    let exceeded = json!({
        "scope": scope, "measure": "calls", "caps": {"max_calls": 2}, "settled": amount(2), "unsettled": amount(0),
        "needs": amount(1), "on_exceed": on_exceed,
    });
    story.says("", "budget.exceeded", &exceeded);
}

#[test]
fn a_budget_that_is_used_up_holds_the_next_call_of_its_scope() {
    let mut story = Story::of(&[task("a", &[]), task("b", &[]), task("c", &["a", "b"])]);
    story.ready(&["a", "b"]);
    ["a", "b"].into_iter().for_each(|task| story.starts(task));
    story.calls("@b", "bash", 0);
    let request = json!({"turn": 1, "model": "m", "messages": 1, "bytes": 1});
    let replied = json!({
        "turn": 1, "model": "m", "message": {}, "stop": "end_turn", "usage": {"input": 5}, "cost_usd": 1.0,
    });
    story.says("@a", "model.requested", &request);
    used_up(&mut story, "/a", "pause");
    // A call that was announced goes on, and so does a tool.
    assert_eq!(story.why("a", true, 0), "@a in_model_call(m 0) @10");
    story.says("@a", "model.responded", &replied);
    let words = "/a calls task `a` may make 2 calls: 2 are made [a]";
    // Nobody knows when a person raises it, so it binds.
    assert_eq!(
        story.why("c", true, 0),
        format!("c waits_for_dependency(a) +1 @1 > @a waits_for_budget({words}) @12")
    );
    assert_eq!(story.why("b", true, 0), "@b in_tool([bash]) @9");
    assert_eq!(
        story.why("a", false, 0),
        format!("a waits_for_budget({words}) +1 @12").replace("a waits", "@a waits")
    );
    // Another scope is of no use to it; its own is.
    let raised = |scope: &str| json!({"scope": scope, "caps": {"max_calls": 9}});
    story.says("", "budget.changed", &raised("/"));
    assert_eq!(story.why("a", true, 0), format!("@a waits_for_budget({words}) @12"));
    used_up(&mut story, "/", "pause");
    assert_eq!(story.why("a", true, 0), format!("@a waits_for_budget({words}) +1 @12"));
    story.says("", "budget.changed", &raised("/a"));
    let words = "/ calls the run may make 2 calls: 2 are made [a]";
    assert_eq!(story.why("a", true, 0), format!("@a waits_for_budget({words}) @14"));
    story.says("", "budget.changed", &raised("/"));
    assert_eq!(story.why("a", true, 0), "@a about_to_act @12");
    // One that only warns holds nothing.
    used_up(&mut story, "/@a", "warn");
    assert_eq!(story.why("a", true, 0), "@a about_to_act @12");
}

#[test]
fn a_pause_binds_what_is_about_to_call_and_what_could_start() {
    let mut story = Story::of(&[task("a", &[]), task("b", &[])]);
    story.ready(&["a"]);
    story.starts("a");
    let paused = |scope: &str| json!({"scope": scope, "by": "me", "reason": "I look"});
    story.says("", "scope.paused", &paused("/a"));
    let words = "/a me I look";
    assert_eq!(story.why("a", true, 0), format!("@a paused_by_person({words}) @6"));
    // The wider one is named: it ends last.
    story.says("", "scope.paused", &paused("/"));
    assert_eq!(story.why("a", true, 0), "@a paused_by_person(/ me I look) @7");
    story.says("", "scope.unpaused", &json!({"scope": "/a", "by": "me"}));
    assert_eq!(story.why("a", true, 0), "@a paused_by_person(/ me I look) @7");
    story.says("", "scope.unpaused", &json!({"scope": "/", "by": "me"}));
    assert_eq!(story.why("a", true, 0), "@a about_to_act @5");
    story.says("", "scope.paused", &paused("/b"));
    story.ready(&["b"]);
    assert_eq!(story.why("b", true, 0), "b paused_by_person(/b me I look) @11");
    story.says("", "scope.unpaused", &json!({"scope": "/b", "by": "me"}));
    assert!(!story.why("b", true, 0).contains("paused"));
}

#[test]
fn a_budget_that_ends_agents_is_named_by_what_failed() {
    let mut story = at_work();
    used_up(&mut story, "/", "stop");
    assert_eq!(story.why("a", true, 0), "@a about_to_act @5");
    story.fails("@a", "budget");
    story.fails("a", "budget");
    assert_eq!(
        story.why("a", true, 0),
        "a limited_by(budget so {kind:agent,name:a} /) @8 > @a limited_by(budget so null /) @7"
    );
}

#[test]
fn a_quota_and_a_full_disk_hold_what_would_begin() {
    let tasks = [task("a", &[]), task("b", &[]), task("c", &["a"])];
    let mut story = Story::of(&tasks);
    story.ready(&["a", "b"]);
    story.starts("a");
    story.calls("@a", "bash", 0);
    let (mut quota, mut disk) = (story.clone(), story);
    let parked =
        json!({"provider": "p", "for_ms": 60_000, "reason": "used up", "quota": "in_process"});
    quota.says("", "gateway.parked", &parked);
    quota.says("", "run.paused", &json!({"reason": "quota of p", "cause": "quota"}));
    assert_eq!(quota.why("b", true, 0), "b waits_for_quota(p 68000 quota of p) +1 @9");
    assert_eq!(quota.why("", true, 0), "run waits_for_quota(p 68000 quota of p) +3 @9");
    // A tool that runs is not held.
    assert_eq!(quota.why("c", true, 0), "c waits_for_dependency(a) @1 > @a in_tool([bash]) @7");
    disk.says("", "run.paused", &json!({"reason": "disk full", "cause": "disk_full"}));
    assert_eq!(disk.why("b", true, 0), "b waits_for_disk(disk full) +1 @8");
    assert_eq!(disk.why("a", true, 0), "@a in_tool([bash]) @7");
    // No process waits for the disk any more.
    assert_eq!(disk.why("b", false, 0), "b paused_by(disk_full disk full) +1 @8");
}

#[test]
fn a_run_without_a_process_says_since_when_and_how_it_ended() {
    let mut story = at_work();
    assert_eq!(story.why("a", false, 600), "a no_process_drives(812 null) +1 @5");
    assert_eq!(story.why("@a", false, 600), "@a no_process_drives(812 null) +1 @5");
    assert_eq!(story.why("", false, 600), "run no_process_drives(812 null) +1 @5");
    story.says("", "run.paused", &json!({"reason": "Ctrl-C", "cause": "interrupted"}));
    assert_eq!(story.why("a", false, 600), "a paused_by(interrupted Ctrl-C) +1 @6");
    story.opens_again();
    assert_eq!(story.why("a", true, 0), "@a about_to_act @5");
    assert_eq!(story.why("a", false, 0), "a no_process_drives(900 null) +1 @7");
}

#[test]
fn an_answer_is_judged() {
    let mut story = at_work();
    story.completes("@a");
    assert_eq!(story.why("a", true, 0), "a waits_for_judgement @4");
    let program = json!({"command": {"run": "make test", "env": {}}});
    let check = json!({"round": 1, "index": 0});
    let spawned = json!({"program": program, "depth": 1, "parent": "a", "check": check});
    story.says("@a/check-1", "agent.spawned", &spawned);
    assert_eq!(
        story.why("a", true, 0),
        "a waits_for_check(a/check-1) @4 > @a/check-1 about_to_act @7"
    );
    story.fails("@a/check-1", "command_failed");
    story.fails("a", "check_failed");
    assert_eq!(
        story.why("a", true, 0),
        "a failed_because(check_failed so {kind:agent,name:a/check-1}) @9 > \
         @a/check-1 failed_because(command_failed so null) @8"
    );
}

#[test]
fn an_attempt_that_is_held_waits_for_what_it_is_made_from() {
    let mut story = Story::of(&[task("a", &[]), task("b", &["a"])]);
    story.ready(&["a"]);
    story.starts("a");
    story.completes("@a");
    story.completes("a");
    story.ready(&["b"]);
    story.starts("b");
    story.opens_again();
    let opened = json!({"epoch": 2, "pid": 1, "retried": ["a"], "reopened": ["b"]});
    story.says("", "run.opened", &opened);
    assert_eq!(
        story.why("@b", true, 0),
        "@b waits_for_content(b) @10 > b waits_for_dependency(a) @12 > a being_decided @12"
    );
}

#[test]
fn a_hook_holds_the_run() {
    let mut story = Story::of(&[task("a", &[])]);
    story.says("", "hook.started", &json!({"hook": "on_start"}));
    assert_eq!(story.why("", true, 0), "run in_hook(on_start) +1 @3");
}

#[test]
fn ends_lead_to_the_first_record_that_made_them_inevitable() {
    let skip = |because: Option<&str>, reason: &str| json!({"reason": reason, "because": because});
    let names = ["a", "b", "c", "d", "e"];
    let mut story = Story::of(&names.map(|name| task(name, &[])));
    story.ready(&["a"]);
    story.starts("a");
    story.fails("@a", "max_turns");
    story.fails("a", "max_turns");
    story.says("b", "task.skipped", &skip(Some("a"), "task `a` did not succeed"));
    story.says("c", "task.skipped", &skip(Some("b"), "task `b` was skipped"));
    story.says("d", "task.skipped", &skip(None, "`when` is false: 1 > 2"));
    story.says("e", "task.cancelled", &json!({"reason": "by request"}));
    let root = "a limited_by(max_turns so {kind:agent,name:a}) @7 > \
                @a limited_by(max_turns so null) @6";
    assert_eq!(
        story.why("c", true, 0),
        format!("c blocked_by_failure(b) @9 > b blocked_by_failure(a) @8 > {root}")
    );
    assert_eq!(story.why("d", true, 0), "d skipped_because(`when` is false: 1 > 2) @10");
    assert_eq!(story.why("e", true, 0), "e cancelled_by(by request null) @11");
    let ended = json!({"status": "failed", "tasks": {}, "usage": {}});
    story.says("", "run.completed", &ended);
    // What ended needs no process, and the first failure binds.
    assert_eq!(story.why("", false, 0), format!("run blocked_by_failure(a) +1 @12 > {root}"));
}

#[test]
fn work_left_undone_is_told_of_what_completed() {
    let mut story = at_work();
    story.calls("@a", "bash", 0);
    let denied = json!({
        "key": "k", "turn": 1, "index": 0, "name": "bash", "status": "error", "source": "live", "block": {},
        "denied": true, "took_ms": 1,
    });
    story.says("@a", "tool.finished", &denied);
    story.completes("@a");
    story.completes("a");
    assert_eq!(story.why("a", true, 0), "a partial_because({denied:{bash:1}}) @9");
    let mut story = at_work();
    story.completes("@a");
    story.completes("a");
    assert_eq!(story.why("a", true, 0), "");
    assert_eq!(story.why("nobody", true, 0), "");
}

#[test]
fn a_cycle_is_told_as_one() {
    let story = Story::of(&[task("a", &["b"]), task("b", &["a"]), task("c", &["a"])]);
    assert_eq!(
        story.why("c", true, 0),
        "c waits_for_dependency(a) @1 > a waits_for_dependency(b) @1 > \
         b waits_for_dependency(a) @1 > cycle 1"
    );
}

#[test]
fn a_bill_is_that_of_the_subtree() {
    let mut story = at_work();
    let mut bill = Bill::default();
    let mut says = |story: &mut Story, who: &str, kind: &str, data: Value| {
        story.says(who, kind, &data);
        let event = Event::decode(kind, &data.to_string()).expect("data").expect("a type");
        let agent = Some(AgentId::from_text(who.trim_start_matches('@')));
        bill.note(&Record { seq: 0, epoch: 1, ts_ms: 0, task: None, agent, event });
    };
    story.spawns("@a/h-1", Some("a"));
    let replied = |cost: f64| {
        json!({
            "turn": 1, "model": "m", "message": {}, "stop": "end_turn", "usage": {"input": 5}, "cost_usd": cost,
        })
    };
    says(&mut story, "@a", "model.responded", replied(0.25));
    says(&mut story, "@a/h-1", "model.responded", replied(1.0));
    says(&mut story, "@a/h-1", "model.responded", replied(1.0));
    let spent = json!({"model": "m", "usage": {"input": 5}, "cost_usd": 0.5});
    let cut = json!({"turn": 2, "attempt": 1, "failure": failed("connection"), "spent": spent});
    says(&mut story, "@a", "model.failed", cut);
    let request =
        json!({"turn": 2, "attempt": 2, "model": "m", "messages": 1, "bytes": 1, "most_usd": 0.75});
    says(&mut story, "@a", "model.requested", request);
    story.state.lose_requests_unless(false);
    // A bound is rounded up.
    let most = |spent: &Spending| spent.unsettled.most_usd().map(|most| (most * 1e6).round() / 1e6);
    let items = |about: &str| {
        let items = bill.of(&story.state, &subject(about));
        let sum: Spending = items.iter().map(|item| item.spending).sum();
        let items =
            items.into_iter().map(|item| (item.agent.to_string(), item.purpose, item.calls));
        (items.collect::<Vec<_>>(), sum.cost_usd(), most(&sum))
    };
    let all = vec![
        ("a/h-1".to_owned(), Purpose::Replies, 2),
        ("a".to_owned(), Purpose::Unsettled, 1),
        ("a".to_owned(), Purpose::FailedCalls, 1),
        ("a".to_owned(), Purpose::Replies, 1),
    ];
    assert_eq!(items(""), (all.clone(), Some(2.75), Some(0.75)));
    assert_eq!(items("a"), (all.clone(), Some(2.75), Some(0.75)));
    assert_eq!(items("@a/h-1"), (all[..1].to_vec(), Some(2.0), Some(0.0)));
    let inclusive = story.state.inclusive(&AgentId::from_text("a"));
    assert_eq!((inclusive.cost_usd(), most(&inclusive)), (Some(2.75), Some(0.75)));
}

/// Makes a run of many tasks with one lock, in chains of 200, the first of each ready.
fn many_tasks() -> Story {
    let name = |n: usize| format!("t{n}");
    let tasks = (0..10_000).map(|n| {
        let before: Vec<_> = (n % 200 > 0).then(|| name(n - 1)).into_iter().collect();
        json!({"name": name(n), "agent": "worker", "depends_on": before, "locks": ["repo"]})
    });
    let mut story = Story::of(&tasks.collect::<Vec<_>>());
    (0..10_000).step_by(200).for_each(|n| story.ready(&[&name(n)]));
    story
}

#[test]
fn a_chain_of_two_hundred_has_every_link() {
    let story = many_tasks();
    let chain = Why::of(&story.state, true, 0).chain(&subject("t9999"));
    let root = chain.root().expect("a root");
    assert_eq!((chain.steps.len(), root.relation.as_str()), (201, "waits_for_slot"));
}

#[test]
#[ignore = "measures time: cargo test --release -p callsheet-machines -- --ignored fifty"]
fn ten_thousand_tasks_take_less_than_fifty_milliseconds() {
    let story = many_tasks();
    let begun = std::time::Instant::now();
    let chain = Why::of(&story.state, true, 0).chain(&subject("t9999"));
    let took = begun.elapsed();
    assert_eq!(chain.steps.len(), 201);
    assert!(took.as_millis() < 50, "{took:?}");
}
