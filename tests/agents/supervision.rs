//! Crashes, cancellations and interruptions of one agent, which must not affect any other agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use callsheet::actor::mail::{AgentMsg, StepError, SupervisorMsg};
use callsheet::event::{Event, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::message::Message;
use callsheet::model::Request;
use callsheet::run::{CancelTarget, RunEnd};
use callsheet::tool::ToolOutput;
use callsheet::turn::{Effect, Outcome, ToolStatus};
use serde_json::json;

use crate::support::faults::{
    Act, Ended, Fake, FakeTool, Rig, Setup, defect, failure, follows_tools, gate, id, name, open,
    records, transcript, until, until_recorded,
};

/// The texts of the last message's results.
fn results(messages: &[Message]) -> Vec<String> {
    messages.last().expect("a message").tool_results().map(|result| result.text()).collect()
}

fn delegate(agent: &'static str, prompt: &str) -> (&'static str, serde_json::Value) {
    ("delegate", json!({"agent": agent, "prompt": prompt}))
}

const TWO: &str = r#"
[agents.one]
model = "first"
instructions = "Do it."
[agents.two]
model = "second"
instructions = "Do it."
[tasks.a]
agent = "one"
prompt = "Go."
[tasks.b]
agent = "two"
prompt = "Go."
"#;

/// A lead with helpers, both on the model `main`.
const TEAM: &str = r#"
[agents.lead]
model = "main"
instructions = "Lead."
tools = ["look", "dump"]
sub_agents = ["helper"]
[agents.helper]
model = "main"
description = "Helps."
instructions = "Help."
tools = ["look"]
sub_agents = ["helper"]
[tasks.work]
agent = "lead"
prompt = "Go."
"#;

fn team(main: &Arc<Fake>) -> Setup {
    Setup::new().model("main", main).tool(&look()).tool(&FakeTool::dump())
}

fn look() -> Arc<FakeTool> {
    FakeTool::new("look", Effect::Pure, |_, _| async { Ok(ToolOutput::ok("seen")) })
}

#[tokio::test]
async fn a_panic_takes_nobody_with_it_and_the_agent_finishes() {
    let crashed = AtomicBool::new(false);
    let fragile = Fake::new(move |request| match follows_tools(request) {
        false => Act::tool("look", json!({})),
        true if !crashed.swap(true, Ordering::SeqCst) => Act::Panic,
        true => Act::say("done after all"),
    });
    let sibling_gate = gate();
    let of_sibling = sibling_gate.clone();
    let sibling = Fake::new(move |_| Act::say("untouched").after(&of_sibling));
    let look = look();
    let setup = Setup::new().model("first", &fragile).model("second", &sibling).tool(&look);
    let text = TWO.replacen("\"Do it.\"", "\"Do it.\"\ntools = [\"look\"]", 1);
    let run = setup.start(&text).await;
    until_recorded(run.recorded().clone(), |r| matches!(r.event, Event::AgentRestarted(_))).await;
    open(&sibling_gate);
    let ended = Ended::of(run).await;
    assert_eq!(ended.completed().status, RunStatus::Completed);
    assert_eq!(ended.output("a"), "done after all");
    assert_eq!(ended.output("b"), "untouched");
    assert_eq!(ended.count("a", "agent.restarted"), 1);
    assert_eq!(ended.count("b", "agent.restarted"), 0);
    // It went on where its records ended: the tool was not run again.
    assert_eq!((look.calls(), fragile.count(), sibling.count()), (1, 3, 1));
    assert_eq!(fragile.sent_by("a")[1], fragile.sent_by("a")[2]);
    assert_eq!(defect(&transcript(&ended.dir.transcript(&id("a")))), None);
}

#[tokio::test]
async fn past_the_limit_the_task_fails_with_crashed() {
    for (restart, restarts) in [
        ("{ max_restarts = 2 }", 2),
        ("{ max_restarts = 0 }", 0),
        ("{ strategy = \"temporary\" }", 0),
        ("{ strategy = \"permanent\", max_restarts = 3, window = \"60s\" }", 3),
    ] {
        let (broken, sound) = (Fake::new(|_| Act::Panic), Fake::new(|_| Act::say("fine")));
        let setup = Setup::new().model("first", &broken).model("second", &sound);
        let with = format!("[agents.one]\nrestart = {restart}\n");
        let text =
            format!("[limits]\nfail_fast = false\n{}", TWO.replacen("[agents.one]\n", &with, 1));
        let ended = setup.run(&text).await;
        assert_eq!(broken.count(), restarts + 1, "{restart}");
        assert_eq!(ended.count("a", "agent.restarted"), restarts);
        let outcome = ended.outcome("a");
        assert_eq!(failure(&outcome).kind, FailureKind::Crashed);
        assert!(failure(&outcome).message.contains("panic: injected"), "{outcome:?}");
        assert_eq!(ended.task("a"), ("failed".to_owned(), None, Some(FailureKind::Crashed)));
        assert_eq!(ended.output("b"), "fine");
        assert_eq!(ended.completed().status, RunStatus::Partial);
    }
}

#[tokio::test]
async fn a_child_that_crashes_out_gives_its_parent_a_failed_result() {
    let main = Fake::new(|request| match request.agent.as_str() {
        "helper" => Act::Panic,
        _ if follows_tools(request) => Act::say("I know"),
        _ => Act::Call(vec![delegate("helper", "Break."), ("look", json!({}))]),
    });
    let text = TEAM.replace("[agents.helper]", "[agents.helper]\nrestart = { max_restarts = 1 }");
    let setup = team(&main);
    let ended = setup.run(&text).await;
    assert_eq!(ended.output("work"), "I know");
    assert_eq!(failure(&ended.outcome("work/helper-1")).kind, FailureKind::Crashed);
    let last = main.sent_by("work").pop().expect("a request");
    let all: Vec<_> = last.last().expect("a message").tool_results().collect();
    assert!(all[0].is_error && !all[1].is_error);
    let typed: serde_json::Value = serde_json::from_str(&all[0].text()).expect("typed");
    assert_eq!(typed["status"], "failed");
    assert!(typed["error"].as_str().expect("a text").starts_with("crashed: panic"), "{typed}");
    assert_eq!(typed["agent"], "work/helper-1");
}

/// The parent asks for two children that wait at the gate.
fn parent_of_two(held: &Arc<tokio::sync::Semaphore>) -> Arc<Fake> {
    let held = held.clone();
    Fake::new(move |request| match request.agent.as_str() {
        "helper" => Act::say(request.messages()[0].text()).after(&held),
        _ if follows_tools(request) => Act::say(results(&request.messages()).join("|")),
        _ => Act::Call(vec![delegate("helper", "first"), delegate("helper", "second")]),
    })
}

#[tokio::test]
async fn a_crashed_parent_rejoins_its_children() {
    // Also by a kill, and also when a child has ended before.
    for (is_killed, one_has_ended) in [(false, false), (true, false), (false, true)] {
        let held = gate();
        let main = parent_of_two(&held);
        let setup = team(&main);
        let rig = Rig::start(&setup, TEAM).await;
        until(|| main.under_way() == 2).await;
        if one_has_ended {
            held.add_permits(1);
            until_recorded(&rig.dir, |r| matches!(r.event, Event::ToolFinished(_))).await;
        }
        if is_killed {
            rig.services.addresses.agents.get(&id("work")).expect("at work").kill();
        } else {
            rig.crash("work");
        }
        until_recorded(&rig.dir, |r| matches!(r.event, Event::AgentRestarted(_))).await;
        open(&held);
        let ended = rig.ended().await;
        let output = ended.output("work");
        assert!(output.contains("\"first\"") && output.contains("\"second\""), "{output}");
        let agents: Vec<_> = ended.agents().iter().map(ToString::to_string).collect();
        assert_eq!(agents.len(), 3, "none is spawned twice: {agents:?}");
        assert_eq!(main.count(), 4, "two children, and the parent's two turns");
        for child in ["work/helper-1", "work/helper-2"] {
            assert_eq!(ended.count(child, "agent.restarted"), 0);
            assert!(matches!(ended.outcome(child), Outcome::Completed { .. }));
        }
        assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None);
    }
}

#[tokio::test]
async fn an_interrupted_call_is_run_again_only_if_it_may_be() {
    let cases = [(Effect::Once, 1), (Effect::Checked, 1), (Effect::Pure, 2), (Effect::Keyed, 2)];
    for (effect, runs) in cases {
        let held = gate();
        let at_tool = held.clone();
        let tool = FakeTool::new("look", effect, move |count, _| {
            let held = at_tool.clone();
            async move {
                if count == 1 {
                    held.acquire().await.expect("open").forget();
                }
                Ok(ToolOutput::ok(format!("run {count}")))
            }
        });
        let main = Fake::new(|request| match follows_tools(request) {
            false => Act::Call(vec![("dump", json!({})), ("look", json!({}))]),
            true => Act::say(results(&request.messages()).join("|")),
        });
        let setup = Setup::new().model("main", &main).tool(&tool).tool(&FakeTool::dump());
        let rig = Rig::start(&setup, TEAM).await;
        until(|| tool.calls() == 1).await;
        until_recorded(&rig.dir, |r| matches!(r.event, Event::ToolFinished(_))).await;
        rig.crash("work");
        let ended = rig.ended().await;
        assert_eq!(tool.calls(), runs, "{effect:?}");
        let finished = ended.of_agent("work").into_iter().filter_map(|event| match event {
            Event::ToolFinished(finished) if finished.name == "look" => Some(finished),
            _ => None,
        });
        let finished: Vec<_> = finished.collect();
        assert_eq!(finished.len(), 1);
        let output = ended.output("work");
        if runs == 1 {
            assert_eq!(finished[0].status, ToolStatus::Unknown);
            assert!(output.contains("outcome unknown"), "{output}");
        } else {
            assert_eq!(finished[0].status, ToolStatus::Ok);
            assert!(output.ends_with("|run 2"), "{output}");
        }
        assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None);
    }
}

#[tokio::test]
async fn a_tool_that_panics_is_an_error_result() {
    let tool = FakeTool::new("look", Effect::Once, |_, _| async { panic!("injected") });
    let main = Fake::new(|request| match follows_tools(request) {
        false => Act::Call(vec![("look", json!({})), ("dump", json!({"size": 3}))]),
        true => Act::say(results(&request.messages()).join("|")),
    });
    let setup = Setup::new().model("main", &main).tool(&tool).tool(&FakeTool::dump());
    let ended = setup.run(TEAM).await;
    assert_eq!(ended.output("work"), "Error: the tool crashed (panic: injected)|1:l");
    assert_eq!(ended.count("work", "agent.restarted"), 0);
    let status = |event: &Event| match event {
        Event::ToolFinished(finished) => Some(finished.status),
        _ => None,
    };
    let statuses: Vec<_> = ended.of_agent("work").iter().filter_map(status).collect();
    assert_eq!(statuses, [ToolStatus::Error, ToolStatus::Ok]);
}

#[tokio::test]
async fn stale_results_are_dropped() {
    let held = gate();
    let main = parent_of_two(&held);
    let setup = team(&main);
    let rig = Rig::start(&setup, TEAM).await;
    until(|| main.under_way() == 2).await;
    for step in [0, 1, 7] {
        let result = Err(StepError::Crashed("stale".to_owned()));
        rig.mail("work", AgentMsg::StepDone { step, result });
        rig.mail("work", AgentMsg::StepDone { step, result: Ok(Vec::new()) });
        rig.mail("work", AgentMsg::GraceOver { step });
    }
    open(&held);
    let ended = rig.ended().await;
    assert!(ended.output("work").contains("\"second\""));
    assert_eq!(ended.count("work", "agent.restarted"), 0);
    assert_eq!(ended.count("work", "tool.finished"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_delegations_is_bounded_and_cancelled_within_a_second() {
    let main = Fake::new(|request| match request.agent.as_str() {
        "helper" => Act::Hang,
        _ => Act::Call((0..400).map(|_| delegate("helper", "Wait.")).collect()),
    });
    let text = format!("[limits]\nmax_concurrency = 12\nmax_children = 10\n{TEAM}");
    let setup = team(&main);
    let run = setup.start(&text).await;
    until(|| main.under_way() == 10).await;
    // Children beyond the hundred are refused at once.
    until(|| {
        let refused = |r: &callsheet::event::SharedRecord| match &r.event {
            Event::ToolFinished(finished) => finished.block.as_str().contains("limit of 100"),
            _ => false,
        };
        records(run.recorded().clone()).iter().filter(|r| refused(r)).count() == 300
    })
    .await;
    let asked = Instant::now();
    assert!(run.remote().cancel(CancelTarget::Run, "enough").await);
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    let ended = Ended::of(run).await;
    assert_eq!(ended.completed().status, RunStatus::Cancelled);
    assert_eq!(ended.agents().len(), 11);
    for agent in ended.agents() {
        assert!(matches!(ended.outcome(agent.as_str()), Outcome::Cancelled { .. }), "{agent}");
    }
    assert_eq!(main.under_way(), 0, "nothing is left running");
}

#[tokio::test]
async fn a_cancelled_subtree_ends_alone_and_gives_its_slots_back() {
    let held = gate();
    let of_model = held.clone();
    let main = Fake::new(move |request| {
        let prompt = request.messages()[0].text();
        match (request.agent.as_str(), prompt.as_str()) {
            ("helper", "deep") if !follows_tools(request) => {
                Act::Call(vec![delegate("helper", "bottom")])
            }
            ("helper", "bottom") => Act::Hang,
            ("helper", "other") => Act::say("other").after(&of_model),
            _ if follows_tools(request) => Act::say(results(&request.messages()).join("|")),
            _ => Act::Call(vec![delegate("helper", "deep"), delegate("helper", "other")]),
        }
    });
    // Both slots are taken by `bottom` and `other`; `late` waits for one.
    let late = "[tasks.late]\nrun = \"true\"\n";
    let text = format!("[limits]\nmax_concurrency = 2\n{TEAM}{late}");
    let text = text.replace("[tasks.work]", "[tasks.zero]\nrun = \"true\"\n[tasks.work]");
    let text = text.replace("[tasks.late]", "[tasks.late]\ndepends_on = [\"zero\"]");
    let setup = team(&main);
    let run = setup.start(&text).await;
    until(|| main.under_way() == 2).await;
    let target = CancelTarget::Agent(id("work/helper-1"));
    assert!(run.remote().cancel(target, "not needed").await);
    // The child's slot is free: the task that waited runs while `other` is still at work.
    until_recorded(run.recorded().clone(), |record| {
        record.task == Some(name("late")) && matches!(record.event, Event::TaskCompleted(_))
    })
    .await;
    open(&held);
    let ended = Ended::of(run).await;
    let output = ended.output("work");
    assert!(output.contains("\"status\":\"cancelled\"") && output.contains("\"completed\""));
    for agent in ["work/helper-1", "work/helper-1/helper-1"] {
        assert!(matches!(ended.outcome(agent), Outcome::Cancelled { .. }), "{agent}");
    }
    assert!(matches!(ended.outcome("work/helper-2"), Outcome::Completed { .. }));
    assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_misses_nobody_whenever_it_comes() {
    for round in 0..30 {
        let main = Fake::new(|request| match (request.agent.as_str(), follows_tools(request)) {
            ("helper", _) => Act::Hang,
            _ => Act::Call((0..5).map(|_| delegate("helper", "Wait.")).collect()),
        });
        let more = "[tasks.more]\nagent = \"lead\"\nprompt = \"Go.\"\n";
        let setup = team(&main);
        let run = setup.start(&format!("{TEAM}{more}")).await;
        // From before the first task is ready to after the last child is at work.
        let seq = round;
        until_recorded(run.recorded().clone(), |record| record.seq >= seq).await;
        if round % 2 == 0 {
            assert!(run.remote().cancel(CancelTarget::Run, "enough").await);
        } else {
            for task in ["work", "more"] {
                assert!(run.remote().cancel(CancelTarget::Task(name(task)), "enough").await);
            }
        }
        let ended = Ended::of(run).await;
        assert_eq!(ended.task("work").0, "cancelled", "round {round}");
        assert_eq!(ended.task("more").0, "cancelled", "round {round}");
        for agent in ended.agents() {
            assert!(matches!(ended.outcome(agent.as_str()), Outcome::Cancelled { .. }));
        }
        assert_eq!(main.under_way(), 0);
    }
}

#[tokio::test]
async fn an_agent_that_crashes_while_it_is_told_to_end_does_not_come_back() {
    for crash_first in [true, false] {
        let main = Fake::new(|request| match request.agent.as_str() {
            "helper" => Act::Hang,
            _ => Act::Call(vec![delegate("helper", "Wait.")]),
        });
        let setup = team(&main);
        let rig = Rig::start(&setup, TEAM).await;
        until(|| main.under_way() == 1).await;
        if crash_first {
            rig.crash("work");
        }
        let found = rig.services.requests.expect(99);
        let (target, reason) = (CancelTarget::Run, "enough".to_owned());
        let cancel = SupervisorMsg::Cancel { request: 99, target, reason };
        rig.supervisor.send_message(cancel).expect("it lives");
        if !crash_first {
            rig.services.addresses.agents.get(&id("work")).expect("at work").kill();
        }
        assert_eq!(found.wait().await, Some(true));
        let ended = rig.ended().await;
        assert_eq!(ended.completed().status, RunStatus::Cancelled);
        assert_eq!(main.count(), 2, "no model call after the end");
        for agent in ["work", "work/helper-1"] {
            assert!(matches!(ended.outcome(agent), Outcome::Cancelled { .. }), "{agent}");
        }
    }
}

#[tokio::test]
async fn a_task_is_cancelled_in_the_pause_before_its_next_attempt() {
    for whole_run in [true, false] {
        let main = Fake::new(|_| {
            Act::Reply(Message::assistant(" "), callsheet::message::StopReason::EndTurn)
        });
        let retry = "retry = { max_attempts = 3, initial_interval = \"1h\", max_interval = \"1h\", jitter = false }\n";
        let setup = team(&main);
        let run = setup.start(&format!("{TEAM}{retry}")).await;
        until_recorded(run.recorded().clone(), |r| matches!(r.event, Event::TaskRetrying(_))).await;
        let target = if whole_run { CancelTarget::Run } else { CancelTarget::Task(name("work")) };
        assert!(run.remote().cancel(target, "enough").await);
        let ended = Ended::of(run).await;
        assert_eq!(ended.task("work").0, "cancelled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_leaves_nothing_running_and_the_delegations_open() {
    let main = Fake::new(|request: &Request| match request.agent.as_str() {
        "helper" => Act::Hang,
        _ => Act::Call((0..8).map(|_| delegate("helper", "Wait.")).collect()),
    });
    let text = format!("[limits]\nmax_children = 3\ngrace_period = '20ms'\n{TEAM}");
    let setup = team(&main);
    let run = setup.start(&text).await;
    until(|| main.under_way() == 3).await;
    run.remote().interrupt("Ctrl-C");
    let ended = Ended::of(run).await;
    assert!(
        matches!(&ended.end, RunEnd::Paused(paused) if paused.reason == "Ctrl-C"),
        "{:?}",
        ended.end
    );
    let last = ended.records.last().expect("a record");
    assert!(matches!(&last.event, Event::RunPaused(paused) if paused.reason == "Ctrl-C"));
    assert_eq!(main.under_way(), 0, "nothing is left running");
    // A resumed run must be able to rejoin the children: no call got a made-up result.
    assert_eq!(ended.count("work", "tool.finished"), 0, "{:#?}", ended.kinds());
    assert!(!ended.records.iter().any(|record| matches!(record.event, Event::AgentEnded(_))));
}

#[tokio::test]
async fn a_panic_in_the_compactor_is_contained() {
    let main = Fake::new(|request| match request.turn {
        1..=4 => Act::tool("dump", json!({"size": 4_000})),
        _ => Act::say("done"),
    });
    let summariser = Fake::new(|_| Act::Panic);
    let setup = team(&main).model("small", &summariser);
    let compaction =
        "[compaction]\npreset = \"three-layer\"\nmodel = \"small\"\nthreshold = 2_000\n";
    let ended = setup.run(&format!("{compaction}{TEAM}")).await;
    assert_eq!(ended.output("work"), "done");
    assert!(summariser.count() >= 1);
    let reasons = ended.of_agent("work").into_iter().filter_map(|event| match event {
        Event::CompactionFailed(failed) => Some(failed.reason),
        _ => None,
    });
    let reasons: Vec<_> = reasons.collect();
    assert!(reasons.iter().any(|reason| reason.contains("panic: injected")), "{reasons:?}");
    assert_eq!(ended.count("work", "agent.restarted"), 0);
    let messages = main.sent_by("work").pop().expect("a request");
    assert_eq!(defect(&messages), None);
}

#[tokio::test]
async fn a_crash_of_one_agent_leaves_a_wide_team_alone() {
    let crashes = Arc::new(AtomicUsize::new(0));
    let of_model = crashes.clone();
    let main = Fake::new(move |request| {
        let is_third = request.agent_id.as_str() == "work/helper-3";
        match request.agent.as_str() {
            "helper" if is_third && of_model.fetch_add(1, Ordering::SeqCst) < 3 => Act::Panic,
            "helper" => Act::say("helped"),
            _ if follows_tools(request) => Act::say(results(&request.messages()).len().to_string()),
            _ => Act::Call((0..20).map(|_| delegate("helper", "Help.")).collect()),
        }
    });
    let setup = team(&main);
    let ended = setup.run(TEAM).await;
    assert_eq!(ended.output("work"), "20");
    assert_eq!(ended.count("work/helper-3", "agent.restarted"), 3);
    for agent in ended.agents() {
        assert!(matches!(ended.outcome(agent.as_str()), Outcome::Completed { .. }), "{agent}");
    }
}
