//! A disk that fills up while a run is at work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use callsheet::actor::mail::SupervisorMsg;
use callsheet::event::{Event, PauseCause, RunPaused, SharedRecord};
use callsheet::journal::disk_space::DiskSpace;
use callsheet::run::RunEnd;
use callsheet::run_state::RunPhase;
use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::faults::{
    Act, Fake, FakeTool, Rig, Setup, failure, fold, follows_tools, gate, open, records, until,
    until_recorded,
};

const CHAIN: &str = r#"
[agents.one]
model = "main"
instructions = "Do it."
tools = ["look"]
[tasks.first]
agent = "one"
prompt = "Go."
[tasks.aside]
run = "true"
depends_on = ["first"]
[tasks.last]
agent = "one"
prompt = "Go."
depends_on = ["first"]
"#;

fn is_pause(event: &Event, wanted: PauseCause) -> bool {
    matches!(event, Event::RunPaused(RunPaused { cause, .. }) if *cause == wanted)
}

/// Starts a run whose tool waits at the gate; gives also its folder and the requests to its model.
async fn at_the_tool() -> (Setup, Rig, Arc<Fake>, Arc<Semaphore>) {
    at_the_tool_of(CHAIN).await
}

async fn at_the_tool_of(text: &str) -> (Setup, Rig, Arc<Fake>, Arc<Semaphore>) {
    let main = Fake::new(|request| match follows_tools(request) {
        false => Act::tool("look", json!({})),
        true => Act::say("done"),
    });
    let held = gate();
    let of_tool = held.clone();
    let look = FakeTool::new("look", Effect::Once, move |_, _| {
        let held = of_tool.clone();
        async move {
            let _permit = held.acquire().await;
            Ok(ToolOutput::ok("seen"))
        }
    });
    let setup = Setup::new().model("main", &main).tool(&look);
    let rig = Rig::start(&setup, text).await;
    until(|| look.calls() == 1).await;
    (setup, rig, main, held)
}

#[tokio::test]
async fn a_full_disk_holds_the_run_until_there_is_room() {
    let (_setup, rig, main, held) = at_the_tool().await;
    rig.supervisor.send_message(SupervisorMsg::Disk(DiskSpace::Scarce)).expect("lives");
    until_recorded(&rig.dir, |r| is_pause(&r.event, PauseCause::DiskFull)).await;
    open(&held);
    // What is in flight is recorded.
    until_recorded(&rig.dir, |r| matches!(r.event, Event::ToolFinished(_))).await;
    let state = fold(&records(&rig.dir));
    assert_eq!(state.phase(), RunPhase::Paused);
    assert!(state.paused_reason().is_some_and(|reason| reason.starts_with("disk full")));
    assert_eq!(main.count(), 1);

    rig.supervisor.send_message(SupervisorMsg::Disk(DiskSpace::Enough)).expect("lives");
    let ended = rig.ended().await;
    assert_eq!((ended.output("last"), main.count()), ("done".to_owned(), 4));
    let seq = |is: &dyn Fn(&Event) -> bool| {
        ended.records.iter().find(|record| is(&record.event)).expect("recorded").seq
    };
    let paused = seq(&|event| is_pause(event, PauseCause::DiskFull));
    let opened = seq(&|event| matches!(event, Event::RunOpened(_)));
    let between: Vec<_> =
        ended.records.iter().filter(|record| (paused + 1..opened).contains(&record.seq)).collect();
    assert!(
        between.iter().all(|record| matches!(record.event, Event::ToolFinished(_))),
        "nothing new begins: {between:?}"
    );
    assert_eq!(ended.records[opened as usize - 1].epoch, 1, "it is the same process");
    assert_eq!(fold(&ended.records[..opened as usize]).phase(), RunPhase::Open);
}

#[tokio::test]
async fn a_run_that_waits_for_room_can_be_interrupted() {
    let (_setup, rig, main, held) = at_the_tool().await;
    rig.supervisor.send_message(SupervisorMsg::Disk(DiskSpace::Scarce)).expect("lives");
    until_recorded(&rig.dir, |r| is_pause(&r.event, PauseCause::DiskFull)).await;
    open(&held);
    until_recorded(&rig.dir, |r| matches!(r.event, Event::ToolFinished(_))).await;
    let reason = "Ctrl-C".to_owned();
    rig.supervisor.send_message(SupervisorMsg::Interrupt { reason }).expect("lives");
    let ended = rig.ended().await;
    assert!(
        matches!(&ended.end, RunEnd::Paused(paused) if paused.reason == "Ctrl-C"),
        "{:?}",
        ended.end
    );
    assert!(is_pause(&ended.records.last().expect("a record").event, PauseCause::Interrupted));
    assert_eq!(main.count(), 1);
}

#[tokio::test]
async fn the_wait_for_room_does_not_count_between_two_crashes() {
    let text = CHAIN.replace("tools =", "restart = { max_restarts = 1, window = \"1s\" }\ntools =");
    let look = FakeTool::new("look", Effect::Pure, |_, _| std::future::pending());
    let main = Fake::new(|_| Act::tool("look", json!({})));
    let setup = Setup::new().model("main", &main).tool(&look);
    let rig = Rig::start(&setup, &text).await;
    until(|| look.calls() == 1).await;
    rig.crash("first");
    until(|| look.calls() == 2).await;
    rig.supervisor.send_message(SupervisorMsg::Disk(DiskSpace::Scarce)).expect("lives");
    until_recorded(&rig.dir, |r| is_pause(&r.event, PauseCause::DiskFull)).await;
    let paused = Instant::now();
    until(|| paused.elapsed() > Duration::from_millis(1_100)).await;
    rig.supervisor.send_message(SupervisorMsg::Disk(DiskSpace::Enough)).expect("lives");
    let opened = |r: &SharedRecord| matches!(&r.event, Event::RunOpened(_));
    until_recorded(&rig.dir, opened).await;
    rig.crash("first");
    let ended = rig.ended().await;
    let outcome = ended.outcome("first");
    assert!(failure(&outcome).message.ends_with("(after 1 restarts)"), "{outcome:?}");
}

#[tokio::test]
async fn the_wait_for_room_counts_for_no_limit() {
    // Far longer than all but the wait takes.
    let text = format!("[limits]\ntimeout = \"6s\"\n{CHAIN}")
        .replace("prompt = \"Go.\"", "prompt = \"Go.\"\ntimeout = \"6s\"");
    let (_setup, rig, _main, held) = at_the_tool_of(&text).await;
    rig.supervisor.send_message(SupervisorMsg::Disk(DiskSpace::Scarce)).expect("lives");
    until_recorded(&rig.dir, |r| is_pause(&r.event, PauseCause::DiskFull)).await;
    let paused = Instant::now();
    until(|| paused.elapsed() > Duration::from_millis(6_100)).await;
    open(&held);
    rig.supervisor.send_message(SupervisorMsg::Disk(DiskSpace::Enough)).expect("lives");
    let ended = rig.ended().await;
    assert_eq!(ended.output("last"), "done");
}
