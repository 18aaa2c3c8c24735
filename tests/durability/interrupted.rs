//! Lost calls: calls that were under way when their agent's process or actor ended, and the results
//! that they get.

use std::sync::Arc;
use std::time::Duration;

use callsheet::actor::mail::SupervisorMsg;
use callsheet::event::Event;
use callsheet::failure::FailureKind;
use callsheet::id::CallKey;
use callsheet::run::CancelTarget;
use callsheet::tool::spool::Spool;
use callsheet::turn::{Outcome, ResultSource, ToolFinished, ToolStarted, ToolStatus};
use serde_json::json;

use crate::support::faults::{
    Act, Ended, Fake, Rig, Setup, defect, failure, follows_tools, id, records, transcript, until,
    until_recorded,
};
use crate::support::test_run::RunFolder;

const BASH: &str = r#"
[agents.lead]
model = "main"
instructions = "Lead."
tools = ["bash"]
[tasks.work]
agent = "lead"
prompt = "Go."
"#;

/// A task whose command notes its beginning and sleeps. Its retries are for failures.
const COMMAND: &str = r#"
[tasks.work]
retry = { max_attempts = 3 }
run = "echo $CALLSHEET_IDEMPOTENCY_KEY >> ledger; sleep 300"
"#;

/// An agent that calls `bash` twice: the first command notes itself and sleeps, the second notes
/// itself.
fn two_calls() -> Arc<Fake> {
    let note = "echo $CALLSHEET_IDEMPOTENCY_KEY >> ledger";
    Fake::new(move |request| match follows_tools(request) {
        false => Act::Call(vec![
            ("bash", json!({"command": format!("{note}; sleep 300")})),
            ("bash", json!({"command": note})),
        ]),
        true => {
            let messages = request.messages();
            let last = messages.last().expect("a message");
            Act::say(last.tool_results().map(|r| r.text()).collect::<Vec<_>>().join("|"))
        }
    })
}

fn ledger(setup: &Setup) -> Vec<String> {
    let text = std::fs::read_to_string(setup.root.path().join("ledger")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until the first call is at work, and returns the record of its beginning.
async fn begun(setup: &Setup, rig: &Rig) -> ToolStarted {
    until(|| ledger(setup).len() == 1).await;
    let starts = records(&rig.dir).into_iter().filter_map(|record| match &record.event {
        Event::ToolStarted(started) => Some(started.clone()),
        _ => None,
    });
    starts.last().expect("its beginning is recorded before it has an effect")
}

fn is_at_work(group: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{group}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

fn finished(ended: &Ended) -> Vec<ToolFinished> {
    let results = ended.of_agent("work").into_iter().filter_map(|event| match event {
        Event::ToolFinished(finished) => Some(finished),
        _ => None,
    });
    results.collect()
}

/// Keeps a result as the wrapper of the call would have.
fn keep(rig: &Rig, key: &CallKey, text: &str) {
    keep_report(rig, key, &json!({"done": {"text": text, "is_error": false, "exit_code": 0}}));
}

fn keep_report(rig: &Rig, key: &CallKey, report: &serde_json::Value) {
    let kept = json!({"v": 1, "key": key, "report": report, "took_ms": 7});
    let bytes = serde_json::to_vec(&kept).expect("JSON");
    Spool::of(&rig.services.store).keep_result(key, &bytes, None).expect("kept");
}

#[tokio::test]
async fn a_command_under_way_is_ended_and_not_repeated() {
    let main = two_calls();
    let setup = Setup::new().model("main", &main);
    let rig = Rig::start(&setup, BASH).await;
    let started = begun(&setup, &rig).await;
    let group = started.pgid.expect("a group");
    assert!(is_at_work(group));
    rig.crash("work");
    let ended = rig.ended().await;
    assert!(!is_at_work(group));
    let results = finished(&ended);
    let sources: Vec<_> = results.iter().map(|result| (result.status, result.source)).collect();
    let expected = [
        (ToolStatus::Unknown, ResultSource::Recovered),
        // It had not begun, so it is run.
        (ToolStatus::Ok, ResultSource::Live),
    ];
    assert_eq!(sources, expected);
    let output = ended.output("work");
    assert!(output.starts_with("outcome unknown: the call was interrupted"), "{output}");
    assert!(output.contains("It began at 20") && output.contains("at work any more"), "{output}");
    let keys: Vec<_> = results.iter().map(|result| result.key.to_string()).collect();
    assert_eq!(ledger(&setup), keys, "each once");
    assert_eq!(main.count(), 2);
    assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None);
}

#[tokio::test]
async fn a_result_that_was_kept_is_adopted() {
    let main = two_calls();
    let setup = Setup::new().model("main", &main);
    let rig = Rig::start(&setup, BASH).await;
    let started = begun(&setup, &rig).await;
    keep(&rig, &started.key, "it was done");
    rig.crash("work");
    let ended = rig.ended().await;
    assert_eq!(ended.output("work"), "it was done|(no output)");
    let first = &finished(&ended)[0];
    assert_eq!((first.status, first.source), (ToolStatus::Ok, ResultSource::Spool));
    assert_eq!((first.took_ms, first.exit_code), (7, Some(0)));
    assert!(!is_at_work(started.pgid.expect("a group")));
    assert_eq!(ledger(&setup).len(), 2);
    // What is recorded need not be kept.
    let spool = ended.dir.spool();
    until(|| std::fs::read_dir(&spool).is_ok_and(|mut kept| kept.next().is_none())).await;
}

#[tokio::test]
async fn what_was_kept_of_a_command_that_was_told_to_end_is_told() {
    let by_itself = json!({"done": {
        "text": "tidy\nexit code 0", "is_error": true, "exit_code": 0, "told_to_end": true,
    }});
    let killed = json!({"killed": {"text": "half"}});
    for (report, status, source, says) in [
        (by_itself, ToolStatus::Error, ResultSource::Spool, "tidy\nexit code 0|"),
        (killed, ToolStatus::Unknown, ResultSource::Recovered, "printed by then:\nhalf|"),
    ] {
        let main = two_calls();
        let setup = Setup::new().model("main", &main);
        let rig = Rig::start(&setup, BASH).await;
        let started = begun(&setup, &rig).await;
        keep_report(&rig, &started.key, &report);
        rig.crash("work");
        let ended = rig.ended().await;
        let output = ended.output("work");
        assert!(output.contains(says), "{output}");
        assert_eq!(output.contains("outcome unknown"), status == ToolStatus::Unknown, "{output}");
        let first = &finished(&ended)[0];
        assert_eq!((first.status, first.source), (status, source));
        assert_eq!(ledger(&setup).len(), 2, "each once");
    }
}

#[tokio::test]
async fn an_interrupted_command_of_a_task_fails_its_attempt() {
    let setup = Setup::new();
    let rig = Rig::start(&setup, COMMAND).await;
    begun(&setup, &rig).await;
    rig.crash("work");
    let ended = rig.ended().await;
    let outcome = ended.outcome("work");
    let failure = failure(&outcome);
    assert_eq!(failure.kind, FailureKind::Interrupted);
    assert!(failure.message.contains("may have taken effect"), "{}", failure.message);
    assert_eq!(ledger(&setup).len(), 1);
}

#[tokio::test]
async fn the_kept_result_of_a_task_s_command_is_its_output() {
    let setup = Setup::new();
    let rig = Rig::start(&setup, COMMAND).await;
    let started = begun(&setup, &rig).await;
    keep(&rig, &started.key, "it was done\n");
    rig.crash("work");
    let ended = rig.ended().await;
    let outcome = ended.outcome("work");
    let Outcome::Completed { output } = outcome else { panic!("{outcome:?}") };
    assert_eq!(output.text, "it was done\n");
    assert_eq!(ledger(&setup).len(), 1);
}

#[tokio::test]
async fn an_agent_that_is_not_restarted_leaves_no_call_open() {
    let text = BASH.replace("tools =", "restart = { strategy = \"temporary\" }\ntools =");
    for is_kept in [false, true] {
        let main = two_calls();
        let setup = Setup::new().model("main", &main);
        let rig = Rig::start(&setup, &text).await;
        let started = begun(&setup, &rig).await;
        if is_kept {
            keep(&rig, &started.key, "it was done");
        }
        rig.crash("work");
        let ended = rig.ended().await;
        assert!(!is_at_work(started.pgid.expect("a group")));
        let results = finished(&ended);
        let sources: Vec<_> = results.iter().map(|result| (result.status, result.source)).collect();
        let first = match is_kept {
            true => (ToolStatus::Ok, ResultSource::Spool),
            false => (ToolStatus::Unknown, ResultSource::Recovered),
        };
        assert_eq!(sources, [first, (ToolStatus::Unknown, ResultSource::Recovered)]);
        let outcome = ended.outcome("work");
        assert_eq!(failure(&outcome).kind, FailureKind::Crashed);
        let usage = ended.of_agent("work").into_iter().find_map(|event| match event {
            Event::AgentEnded(ended) => Some(ended.usage),
            _ => None,
        });
        assert_eq!(usage, Some(ended.completed().usage));
        assert_eq!(ledger(&setup).len(), 1, "the second call is not made");
        assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None);
    }
}

#[tokio::test]
async fn a_run_does_not_end_before_an_agent_that_is_about_to_come_back() {
    let text = BASH.replace(
        "tools = [\"bash\"]\n",
        "sub_agents = [\"helper\"]\n[agents.helper]\nmodel = \"main\"\ninstructions = \"Help.\"\n\
         tools = [\"bash\"]\n",
    );
    let main = Fake::new(|request| match request.agent.as_str() {
        "lead" => Act::tool("delegate", json!({"agent": "helper", "prompt": "x"})),
        _ => Act::tool("bash", json!({"command": "echo x >> ledger; sleep 300"})),
    });
    let setup = Setup::new().model("main", &main);
    let rig = Rig::start(&setup, &text).await;
    begun(&setup, &rig).await;
    rig.crash("work/helper-1");
    until_recorded(&rig.dir, |record| matches!(record.event, Event::AgentRestarted(_))).await;
    let (request, target, reason) = (99, CancelTarget::Run, "enough".to_owned());
    let cancel = SupervisorMsg::Cancel { request, target, reason };
    rig.supervisor.send_message(cancel).expect("lives");
    let ended = rig.ended().await;
    assert!(matches!(ended.outcome("work/helper-1"), Outcome::Cancelled { .. }));
    assert_eq!(ended.count("work/helper-1", "tool.finished"), 1);
    assert_eq!(ledger(&setup).len(), 1);
}

#[tokio::test]
async fn a_run_that_ended_keeps_nothing() {
    let setup = Setup::new();
    let run = setup.start("[tasks.work]\nrun = 'echo done'\n").await;
    let spool = RunFolder::of(&run).spool();
    std::fs::write(spool.join("left.tmp"), "x").expect("a file");
    let ended = tokio::time::timeout(Duration::from_secs(120), Ended::of(run)).await;
    assert_eq!(ended.expect("it ends").output("work"), "done\n");
    assert_eq!(std::fs::read_dir(spool).expect("a folder").count(), 0);
}
