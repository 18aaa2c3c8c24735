//! Agents that wait for others without an actor: whatever happens to such an agent is what happens to one that
//! has an actor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callsheet::actor::mail::{AgentMsg, SupervisorMsg};
use callsheet::event::{Event, Record, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::model::Request;
use callsheet::run::{CancelTarget, RunEnd};

use callsheet::tool::ToolOutput;
use callsheet::turn::question::{AnswerOutcome, PersonsAnswer};
use callsheet::turn::{Effect, Outcome};
use callsheet_machines::run_machine::{Refused, Reply};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::faults::{
    Act, Ended, Fake, FakeTool, Rig, SOON, Setup, defect, failure, follows_tools, gate, id, name,
    open, records, transcript, until, until_recorded,
};
use crate::support::test_run::{Live, TestRun};

/// A lead that rests while its helpers work, and a task that needs nobody.
const TEAM: &str = r#"
[agents.lead]
model = "main"
instructions = "Lead."
tools = ["look"]
sub_agents = ["helper"]
[agents.helper]
model = "main"
description = "Helps."
instructions = "Help."
sub_agents = ["helper"]
[tasks.work]
agent = "lead"
prompt = "Go."
"#;

fn team(main: &Arc<Fake>) -> Setup {
    let look = FakeTool::new("look", Effect::Once, |_, _| async { Ok(ToolOutput::ok("seen")) });
    Setup::new().model("main", main).tool(&look)
}

fn delegate(prompt: &str) -> (&'static str, Value) {
    ("delegate", json!({"agent": "helper", "prompt": prompt}))
}

fn results(request: &Request) -> String {
    let messages = request.messages();
    let last = messages.last().expect("a message");
    last.tool_results().map(|result| result.text()).collect::<Vec<_>>().join("|")
}

/// The lead has a look and asks for two children, which wait at the gate.
fn lead_of_two(held: &Arc<Semaphore>) -> Arc<Fake> {
    let held = held.clone();
    Fake::new(move |request| match request.agent.as_str() {
        "helper" => Act::say(request.messages()[0].text()).after(&held),
        _ if follows_tools(request) => Act::say(results(request)),
        _ => Act::Call(vec![("look", json!({})), delegate("first"), delegate("second")]),
    })
}

/// Waits until both children of the lead are at work and the lead has no actor.
async fn rests(rig: &Rig, main: &Fake) {
    until(|| main.under_way() == 2 && !rig.is_up("work")).await;
}

fn has_result(record: &Record, agent: &str, tool: &str) -> bool {
    let is_it = matches!(&record.event, Event::ToolFinished(finished) if finished.name == tool);
    is_it && record.agent == Some(id(agent))
}

/// Checks that the lead read both answers, once and in the order of its calls.
fn check(ended: &Ended, main: &Fake) {
    let output = ended.output("work");
    let at = |text: &str| output.find(text).unwrap_or_else(|| panic!("{text}: {output}"));
    assert!(at("seen") < at("\"first\"") && at("\"first\"") < at("\"second\""), "{output}");
    assert_eq!(ended.agents().len(), 3, "none is spawned twice");
    assert_eq!(ended.count("work", "tool.finished"), 3);
    assert_eq!(main.sent_by("work").len(), 2, "no turn is made twice");
    assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None);
}

#[tokio::test]
async fn each_answer_finds_a_parent_that_rests() {
    let held = gate();
    let main = lead_of_two(&held);
    let setup = team(&main);
    let rig = Rig::start(&setup, TEAM).await;
    rests(&rig, &main).await;
    held.add_permits(1);
    // The result is recorded as it comes, and the lead rests again.
    until_recorded(&rig.dir, |record| has_result(record, "work", "delegate")).await;
    until(|| main.under_way() == 1 && !rig.is_up("work")).await;
    open(&held);
    let ended = rig.ended().await;
    check(&ended, &main);
    assert_eq!(ended.count("work", "agent.restarted"), 0);
    // A call took as long as it was waited for, whoever waited.
    let took = ended.of_agent("work").into_iter().filter_map(|event| match event {
        Event::ToolFinished(finished) if finished.name == "delegate" => Some(finished.took_ms),
        _ => None,
    });
    let took: Vec<_> = took.collect();
    assert!(took[0] >= 1_000 && took[1] >= 2_000, "{took:?}");
}

#[tokio::test]
async fn parents_rest_at_each_depth() {
    let held = gate();
    let of_model = held.clone();
    let main = Fake::new(move |request| match request.messages()[0].text().as_str() {
        "bottom" => Act::say("found").after(&of_model),
        _ if follows_tools(request) => Act::say(results(request)),
        "deep" => Act::Call(vec![delegate("bottom")]),
        _ => Act::Call(vec![delegate("deep")]),
    });
    let setup = team(&main);
    let rig = Rig::start(&setup, TEAM).await;
    until(|| main.under_way() == 1 && !rig.is_up("work") && !rig.is_up("work/helper-1")).await;
    open(&held);
    let ended = rig.ended().await;
    assert!(ended.output("work").contains("found"));
    assert_eq!((ended.agents().len(), main.count()), (3, 5));
}

#[tokio::test]
async fn what_must_end_ends_while_it_rests() {
    for target in [
        CancelTarget::Run,
        CancelTarget::Task(name("work")),
        CancelTarget::Agent(id("work")),
        CancelTarget::Agent(id("work/helper-1")),
    ] {
        let held = gate();
        let main = lead_of_two(&held);
        let text = format!("[hooks]\non_exit = ['true']\n{TEAM}");
        let setup = team(&main);
        let rig = Rig::start(&setup, &text).await;
        rests(&rig, &main).await;
        let is_lead = target != CancelTarget::Agent(id("work/helper-1"));
        assert!(rig.remote().cancel(target.clone(), "enough").await, "{target:?}");
        if !is_lead {
            until_recorded(&rig.dir, |record| has_result(record, "work", "delegate")).await;
            open(&held);
        }
        let ended = rig.ended().await;
        assert_eq!(main.under_way(), 0, "nothing is left running");
        assert!(matches!(ended.outcome("work/helper-1"), Outcome::Cancelled { .. }));
        assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None, "{target:?}");
        if is_lead {
            assert!(matches!(ended.outcome("work"), Outcome::Cancelled { .. }), "{target:?}");
            assert!(matches!(ended.outcome("work/helper-2"), Outcome::Cancelled { .. }));
            assert_eq!(ended.count("work", "tool.finished"), 3, "each call is closed");
        } else {
            let output = ended.output("work");
            assert!(output.contains("enough") && output.contains("\"second\""), "{output}");
        }
        assert!(ended.records.iter().any(|r| matches!(r.event, Event::HookFinished(_))));
    }
}

#[tokio::test]
async fn time_is_up_for_the_task_and_for_the_child_of_an_agent_that_rests() {
    let held = gate();
    let main = lead_of_two(&held);
    let setup = team(&main);
    let rig = Rig::start(&setup, &format!("{TEAM}timeout = '2s'\n")).await;
    rests(&rig, &main).await;
    let ended = rig.ended().await;
    assert_eq!(failure(&ended.outcome("work")).kind, FailureKind::Timeout);
    assert_eq!(ended.task("work").2, Some(FailureKind::Timeout));
    assert_eq!(main.under_way(), 0);

    let main = Fake::new(|request| match request.agent.as_str() {
        "helper" => Act::Hang,
        _ if follows_tools(request) => Act::say(results(request)),
        _ => {
            let limited = json!({"agent": "helper", "prompt": "Wait.", "timeout": "2s"});
            Act::Call(vec![("delegate", limited)])
        }
    });
    let setup = team(&main);
    let rig = Rig::start(&setup, TEAM).await;
    until(|| main.under_way() == 1 && !rig.is_up("work")).await;
    let output = rig.ended().await.output("work");
    assert!(output.contains("\"status\":\"failed\"") && output.contains("timeout"), "{output}");
}

#[tokio::test]
async fn a_failure_that_stops_the_run_ends_an_agent_that_rests() {
    let (held, failing) = (gate(), gate());
    let main = lead_of_two(&held);
    let of_model = failing.clone();
    let broken = Fake::new(move |_| Act::Panic.after(&of_model));
    let bad = "[agents.bad]\nmodel = \"bad\"\ninstructions = \"x\"\nrestart = { max_restarts = 0 }\n\
               [tasks.bad]\nagent = \"bad\"\nprompt = \"Go.\"\n";
    let text = format!("[limits]\ncancel_running = true\n{TEAM}{bad}");
    let setup = team(&main).model("bad", &broken);
    let rig = Rig::start(&setup, &text).await;
    rests(&rig, &main).await;
    open(&failing);
    let ended = rig.ended().await;
    assert_eq!(ended.completed().status, RunStatus::Failed);
    assert!(matches!(ended.outcome("work"), Outcome::Cancelled { .. }));
    assert_eq!(main.under_way(), 0);
}

#[tokio::test]
async fn a_run_that_is_interrupted_goes_on_with_an_agent_that_rested() {
    let held = gate();
    let main = lead_of_two(&held);
    let setup = team(&main);
    let rig = Rig::start(&setup, &format!("[limits]\ngrace_period = '20ms'\n{TEAM}")).await;
    rests(&rig, &main).await;
    held.add_permits(1);
    until_recorded(&rig.dir, |record| has_result(record, "work", "delegate")).await;
    until(|| !rig.is_up("work")).await;
    rig.remote().interrupt("Ctrl-C");
    let ended = rig.ended().await;
    assert!(matches!(&ended.end, RunEnd::Paused(paused) if paused.reason == "Ctrl-C"));
    assert_eq!(ended.count("work", "tool.finished"), 2, "no call got a made-up result");
    assert_eq!(main.under_way(), 0);
    open(&held);
    let run = setup.resume(&ended.dir).await;
    check(&Ended::of(run).await, &main);
}

#[tokio::test]
async fn an_agent_that_crashes_after_it_rested_is_restarted() {
    // Both in the step that it was started for, and in the turn that follows.
    for in_step in [true, false] {
        let (held, crashed) = (gate(), AtomicBool::new(in_step));
        let of_model = held.clone();
        let main = Fake::new(move |request| match request.agent.as_str() {
            "helper" => Act::say(request.messages()[0].text()).after(&of_model),
            _ if follows_tools(request) => match crashed.swap(true, Ordering::SeqCst) {
                true => Act::say(results(request)),
                false => Act::Panic,
            },
            _ => Act::Call(vec![("look", json!({})), delegate("first"), delegate("second")]),
        });
        let setup = team(&main);
        let rig = Rig::start(&setup, TEAM).await;
        rests(&rig, &main).await;
        let is_restarted = || {
            let restarted = |r: &_| matches!(Record::clone(r).event, Event::AgentRestarted(_));
            records(&rig.dir).iter().any(|record| restarted(record))
        };
        if in_step {
            held.add_permits(1);
            until(|| {
                if rig.is_up("work") && !is_restarted() {
                    rig.crash_if_up("work");
                }
                is_restarted()
            })
            .await;
            until(|| !rig.is_up("work")).await;
        }
        open(&held);
        let ended = rig.ended().await;
        assert!(ended.output("work").contains("\"second\""));
        assert!(ended.count("work", "agent.restarted") >= 1);
        assert_eq!(ended.count("work", "tool.finished"), 3);
        assert_eq!(ended.agents().len(), 3);
        assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None);
    }
}

#[tokio::test]
async fn an_agent_that_rests_is_told_to_compact() {
    let held = gate();
    let main = lead_of_two(&held);
    let text = format!("[compaction]\npreset = \"three-layer\"\n{TEAM}");
    let setup = team(&main);
    let rig = Rig::start(&setup, &text).await;
    rests(&rig, &main).await;
    assert!(rig.remote().compact(id("work"), Some("the plan".to_owned())).await);
    assert!(!rig.is_up("work"), "it needs no actor for that");
    open(&held);
    let ended = rig.ended().await;
    let focus = ended.of_agent("work").into_iter().find_map(|event| match event {
        Event::CompactionRequested(requested) => requested.focus,
        _ => None,
    });
    assert_eq!(focus.as_deref(), Some("the plan"), "{:#?}", ended.kinds());
    assert_eq!(ended.count("work", "tool.finished"), 3);
}

#[tokio::test]
async fn mail_that_comes_while_an_agent_lies_down_is_not_lost() {
    // It rests, or it stays up because it calls its model.
    for calls_model in [false, true] {
        let (held, of_lead) = (gate(), gate());
        let (of_helper, at_lead) = (held.clone(), of_lead.clone());
        let main = Fake::new(move |request| match request.agent.as_str() {
            "helper" => Act::say(request.messages()[0].text()).after(&of_helper),
            _ if follows_tools(request) => Act::say(results(request)),
            _ => Act::Call(vec![("look", json!({})), delegate("first"), delegate("second")])
                .after(&at_lead),
        });
        if !calls_model {
            open(&of_lead);
        }
        let setup = team(&main);
        let text = format!("[compaction]\npreset = \"three-layer\"\n{TEAM}");
        let rig = Rig::start(&setup, &text).await;
        until(|| main.under_way() == if calls_model { 1 } else { 2 }).await;
        // The supervisor reads both before the agent has read that it may rest.
        let focus = Some("the plan".to_owned());
        let compact = SupervisorMsg::Compact { request: 99, agent: id("work"), focus };
        for message in [SupervisorMsg::WantsRest(id("work")), compact] {
            rig.supervisor.send_message(message).expect("it lives");
        }
        open(&held);
        open(&of_lead);
        let ended = rig.ended().await;
        let is_asked = |event: &Event| match event {
            Event::CompactionRequested(asked) => asked.focus.as_deref() == Some("the plan"),
            _ => false,
        };
        assert!(ended.of_agent("work").iter().any(is_asked), "{calls_model} {:#?}", ended.kinds());
        assert_eq!(ended.count("work", "tool.finished"), 3);
    }
}

#[tokio::test]
async fn an_agent_with_an_answer_that_its_call_has_not_read_stays_up() {
    let held = gate();
    let main = lead_of_two(&held);
    let setup = team(&main);
    let rig = Rig::start(&setup, TEAM).await;
    until(|| main.under_way() == 2).await;
    let first = records(&rig.dir).iter().find_map(|record| match &record.event {
        Event::ToolIntended(intended) if intended.index == 1 => Some(intended.key.to_string()),
        _ => None,
    });
    let refused = Reply::Child(Err(Refused("not this one".to_owned())));
    let id = first.expect("the first delegation");
    rig.mail("work", AgentMsg::Reply { id, reply: Box::new(refused) });
    rig.mail("work", AgentMsg::Rest);
    until_recorded(&rig.dir, |record| has_result(record, "work", "delegate")).await;
    open(&held);
    let output = rig.ended().await.output("work");
    assert!(output.contains("not this one") && output.contains("\"second\""), "{output}");
}

#[tokio::test]
async fn a_person_s_answer_finds_an_agent_that_rests_and_it_waits_for_its_slot() {
    let rules =
        "[permissions]\ndefault = 'allow'\nask = ['write_file']\nnon_interactive = 'pause'\n";
    let held = gate();
    let of_model = held.clone();
    // The other one begins when the worker asks, and has the slot.
    let holder = Fake::new(move |_| Act::say("held").after(&of_model));
    let agents = format!(
        "{rules}[limits]\nmax_concurrency = 1\n[agents.worker]\ntools = ['ask_person', 'write_file']\n\
         [agents.holder]\n[tasks.job]\nagent = 'worker'\nprompt = 'go'\n\
         [tasks.other]\nagent = 'holder'\nprompt = 'go'\n"
    );
    for (call, text, wanted) in [
        ("ask_person", Some("blue"), "blue"),
        ("write_file", None, "wrote"),
        ("write_file", Some("not today"), "not today"),
    ] {
        let input = match call {
            "ask_person" => "{ question = \"Which colour?\" }",
            _ => "{ path = \"a.txt\", content = \"x\" }",
        };
        let script = format!(
            "[[rules]]\nturn = 1\ncalls = [{{ tool = \"{call}\", input = {input} }}]\n\
             [[rules]]\nsay = \"{{{{ last[0].text }}}}\"\n"
        );
        let run = TestRun::new(&agents).script(&script).model("holder", holder.clone());
        let mut live = run.start().await;
        let asked = live.until("a question", |r| matches!(r.event, Event::ApprovalAsked(_))).await;
        let Event::ApprovalAsked(asked) = &asked.event else { panic!("{asked:?}") };
        until(|| holder.under_way() == 1 && !live.is_up("job")).await;
        let allowed = call == "ask_person" || text.is_none();
        let (by, text) = ("a test".to_owned(), text.map(str::to_owned));
        let answer = PersonsAnswer { id: asked.id.clone(), allowed, text, by };
        assert_eq!(live.remote().answer(answer).await, Some(AnswerOutcome::Counted));
        until(|| live.is_up("job")).await;
        held.add_permits(1);
        let ended = live.end().await;
        assert!(ended.output("job").contains(wanted), "{call}: {}", ended.output("job"));
        let result = ended.seq("a result", |record| has_result(record, "job", call));
        assert!(ended.ended("other") < result, "{call}: it had no slot");
    }
}

#[tokio::test]
async fn a_hook_looks_once_at_a_call_whose_agent_rests() {
    let agents = "[permissions]\ndefault = 'allow'\nask = ['write_file']\nnon_interactive = 'pause'\n\
                  [hooks]\npre_tool_use = ['sh', '-c', 'echo x >> looked']\n[agents.worker]\ntools = ['write_file']\n\
                  [agents.holder]\n[tasks.job]\nagent = 'worker'\nprompt = 'go'\n\
                  [tasks.other]\nagent = 'holder'\nprompt = 'go'\n";
    let script = "[[rules]]\nturn = 1\ncalls = [{ tool = \"write_file\", input = { path = \"a\", content = \"x\" } }]\n\
                  [[rules]]\nsay = \"done\"\n";
    let held = gate();
    let of_model = held.clone();
    let holder = Fake::new(move |_| Act::say("held").after(&of_model));
    let run = TestRun::new(agents).script(script).model("holder", holder);
    let mut live = run.start().await;
    let asked = live.until("a question", |r| matches!(r.event, Event::ApprovalAsked(_))).await;
    let Event::ApprovalAsked(asked) = &asked.event else { panic!("{asked:?}") };
    until(|| !live.is_up("job")).await;
    let (id, by) = (asked.id.clone(), "a test".to_owned());
    let answer = PersonsAnswer { id, allowed: true, text: None, by };
    assert_eq!(live.remote().answer(answer).await, Some(AnswerOutcome::Counted));
    open(&held);
    let looked = live.workspace.join("looked");
    let ended = live.end().await;
    assert_eq!(ended.output("job"), "done");
    assert_eq!(std::fs::read_to_string(&looked).expect("it looked"), "x\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_children_answer_whenever_their_parent_lies_down() {
    // Their answers come around the times at which the lead goes to rest and gets up.
    let main = Fake::new(|request| match request.agent.as_str() {
        "helper" => {
            let ms: u64 = request.messages()[0].text().parse().expect("a number");
            let held = gate();
            let opens = held.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                open(&opens);
            });
            Act::say(format!("<{ms}>")).after(&held)
        }
        _ if follows_tools(request) => Act::say(results(request)),
        _ => Act::Call((0..60).map(|child| delegate(&(980 + child * 40).to_string())).collect()),
    });
    let limits = "[limits]\nmax_concurrency = 70\nmax_children = 60\n";
    let setup = team(&main);
    let run = setup.start(&format!("{limits}{TEAM}")).await;
    let ended = tokio::time::timeout(SOON, Ended::of(run)).await.expect("it ends");
    let output = ended.output("work");
    for child in 0..60 {
        assert!(output.contains(&format!("<{}>", 980 + child * 40)), "{child}: {output}");
    }
    assert_eq!((ended.agents().len(), main.count()), (61, 62));
    assert_eq!(ended.count("work", "tool.finished"), 60);
}

/// A worker writes a file in `docs`, and tells what came of it.
const WRITES: &str = "[[rules]]\nturn = 1\n\
    calls = [{ tool = \"write_file\", input = { path = \"docs/new\", content = \"x\" } }]\n\
    [[rules]]\nsay = \"{{ last[0].text }}\"\n";

/// Makes the link `docs` lead elsewhere.
fn turn_docs(live: &Live, to: &str) {
    let docs = live.workspace.join("docs");
    std::fs::remove_file(&docs).expect("a link");
    std::os::unix::fs::symlink(to, &docs).expect("a link");
}

async fn answer(live: &Live, asked: &Record, allowed: bool) {
    let Event::ApprovalAsked(asked) = &asked.event else { panic!("{asked:?}") };
    let (id, by) = (asked.id.clone(), "a test".to_owned());
    let answer = PersonsAnswer { id, allowed, text: None, by };
    assert_eq!(live.remote().answer(answer).await, Some(AnswerOutcome::Counted));
}

/// A worker that is asked about a file in `docs`, whose folder is exchanged for a link to `to` while it rests, and a
/// task that has the only slot meanwhile. Returns the end of the run, and the workspace in it.
async fn answered_after_a_move(
    rules: &str,
    (from, to): (&str, &str),
    allowed: bool,
) -> crate::support::test_run::Ended {
    let held = gate();
    let of_model = held.clone();
    let holder = Fake::new(move |_| Act::say("held").after(&of_model));
    let agents = format!(
        "[permissions]\nnon_interactive = 'pause'\n{rules}[limits]\nmax_concurrency = 1\n\
         [agents.worker]\ntools = ['write_file']\n[agents.holder]\n\
         [tasks.prep]\nrun = 'mkdir guarded free && ln -s {from} docs'\n\
         [tasks.job]\nagent = 'worker'\nprompt = 'go'\ndepends_on = ['prep']\n\
         [tasks.other]\nagent = 'holder'\nprompt = 'go'\ndepends_on = ['prep']\n"
    );
    let run = TestRun::new(&agents).script(WRITES).model("holder", holder.clone());
    let mut live = run.start().await;
    let asked = live.until("a question", |r| matches!(r.event, Event::ApprovalAsked(_))).await;
    until(|| holder.under_way() == 1 && !live.is_up("job")).await;
    turn_docs(&live, to);
    answer(&live, &asked, allowed).await;
    // The worker has no slot: nothing of it goes on before the other one has ended.
    tokio::time::sleep(Duration::from_millis(500)).await;
    open(&held);
    live.end().await
}

#[tokio::test]
async fn an_agent_that_rested_waits_for_its_slot_also_if_its_call_is_denied_by_now() {
    let rules = "default = 'ask'\ndeny = ['write_file(guarded/*)']\n";
    let ended = answered_after_a_move(rules, ("free", "guarded"), true).await;
    let text = ended.output("job");
    assert!(text.contains("the rule `write_file(guarded/*)` says so"), "{text}");
    let said = ended.seq("its answer", |record| {
        matches!(&record.event, Event::TurnStarted(turn) if turn.turn == 2)
            && record.agent == Some(id("job"))
    });
    assert!(ended.ended("other") < said, "it called its model without a slot");
}

#[tokio::test]
async fn a_no_counts_although_the_rules_would_not_ask_by_now() {
    let rules = "default = 'allow'\nask = ['write_file(guarded/*)']\n";
    let ended = answered_after_a_move(rules, ("guarded", "free"), false).await;
    let text = ended.output("job");
    assert!(text.contains("said no"), "{text}");
}

#[tokio::test]
async fn a_no_to_the_second_question_counts_although_things_are_again_as_at_the_first() {
    let held = gate();
    let of_model = held.clone();
    let holder = Fake::new(move |_| Act::say("held").after(&of_model));
    let agents = "[permissions]\nnon_interactive = 'pause'\ndefault = 'ask'\n\
         [agents.worker]\ntools = ['write_file']\n[agents.holder]\n\
         [tasks.prep]\nrun = 'mkdir guarded free && ln -s guarded docs'\n\
         [tasks.job]\nagent = 'worker'\nprompt = 'go'\ndepends_on = ['prep']\n\
         [tasks.other]\nagent = 'holder'\nprompt = 'go'\ndepends_on = ['prep']\n";
    let run = TestRun::new(agents).script(WRITES).model("holder", holder.clone());
    let mut live = run.start().await;
    for (to, allowed) in [("free", true), ("guarded", false)] {
        let asked = live.until("a question", |r| matches!(r.event, Event::ApprovalAsked(_))).await;
        until(|| holder.under_way() == 1 && !live.is_up("job")).await;
        turn_docs(&live, to);
        answer(&live, &asked, allowed).await;
    }
    open(&held);
    let new = live.workspace.join("guarded/new");
    let ended = live.end().await;
    let text = ended.output("job");
    assert!(text.contains("said no") && !new.exists(), "{text}");
}

#[tokio::test]
async fn an_agent_that_rested_waits_for_its_slot_also_if_its_plan_fits_no_longer() {
    let held = gate();
    let of_model = held.clone();
    let holder = Fake::new(move |_| Act::say("held").after(&of_model));
    // Both propose a task of one name: what comes second is wrong by the time at which it is allowed.
    let agents = "[permissions]\ndefault = 'allow'\nnon_interactive = 'pause'\n[limits]\nmax_concurrency = 1\n\
         [agents.planner]\ntools = ['propose_tasks']\n[agents.holder]\n\
         [tasks.one]\nagent = 'planner'\nprompt = 'go'\n[tasks.two]\nagent = 'planner'\nprompt = 'go'\n\
         [tasks.other]\nagent = 'holder'\nprompt = 'go'\n";
    let script = "[[rules]]\nagent = 'planner'\nturn = 1\n[[rules.calls]]\ntool = 'propose_tasks'\n\
         input = { tasks = '''[tasks.x]\nagent = \"holder\"\nprompt = \"x\"\n''' }\n\
         [[rules]]\nsay = \"{{ last[0].text }}\"\n";
    let run = TestRun::new(agents).script(script).model("holder", holder.clone());
    let mut live = run.start().await;
    let mut ids = std::collections::HashMap::new();
    for _ in 0..2 {
        let asked = live.until("a question", |r| matches!(r.event, Event::ApprovalAsked(_))).await;
        let Event::ApprovalAsked(question) = &asked.event else { panic!("{asked:?}") };
        let task = asked.task.as_ref().expect("a task").to_string();
        ids.insert(task, question.id.clone());
    }
    until(|| holder.under_way() == 1 && !live.is_up("one") && !live.is_up("two")).await;
    let yes = |task: &str| {
        let (id, by) = (ids[task].clone(), "a test".to_owned());
        PersonsAnswer { id, allowed: true, text: None, by }
    };
    assert_eq!(live.remote().answer(yes("one")).await, Some(AnswerOutcome::Counted));
    held.add_permits(1);
    live.until_task("x", callsheet::plan::TaskState::Running).await;
    assert_eq!(live.remote().answer(yes("two")).await, Some(AnswerOutcome::Counted));
    // The planner has no slot: nothing of it goes on before the new task has ended.
    tokio::time::sleep(Duration::from_millis(500)).await;
    open(&held);
    let ended = live.end().await;
    assert!(ended.output("two").contains("Nothing was added"), "{}", ended.output("two"));
    let said = ended.seq("its answer", |record| {
        matches!(&record.event, Event::TurnStarted(turn) if turn.turn == 2)
            && record.agent == Some(id("two"))
    });
    assert!(ended.ended("x") < said, "it called its model without a slot");
}

#[tokio::test]
async fn a_cancel_does_not_make_the_call_that_waited_for_a_person() {
    // Whether the new actor reads its mail or begins its step first is a matter of chance.
    let mut written = 0;
    for _ in 0..6 {
        let held = gate();
        let of_model = held.clone();
        let holder = Fake::new(move |_| Act::say("held").after(&of_model));
        let agents = "[permissions]\nnon_interactive = 'pause'\ndefault = 'allow'\nask = ['write_file(guarded/*)']\n\
             [limits]\nmax_concurrency = 1\n[agents.worker]\ntools = ['write_file']\n[agents.holder]\n\
             [tasks.prep]\nrun = 'mkdir guarded free && ln -s guarded docs'\n\
             [tasks.job]\nagent = 'worker'\nprompt = 'go'\ndepends_on = ['prep']\n\
             [tasks.other]\nagent = 'holder'\nprompt = 'go'\ndepends_on = ['prep']\n";
        let run = TestRun::new(agents).script(WRITES).model("holder", holder.clone());
        let mut live = run.start().await;
        live.until("a question", |r| matches!(r.event, Event::ApprovalAsked(_))).await;
        until(|| holder.under_way() == 1 && !live.is_up("job")).await;
        turn_docs(&live, "free");
        assert!(live.cancel(CancelTarget::Task(name("job"))).await);
        live.until("its end", |r| {
            matches!(r.event, Event::AgentEnded(_)) && r.agent == Some(id("job"))
        })
        .await;
        let is_there = live.workspace.join("free/new").exists();
        written += u32::from(is_there);
        open(&held);
        live.end().await;
    }
    assert_eq!(written, 0);
}
