//! What a run leaves on disk: the journal, and a transcript and a log of every agent.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::sync::Arc;

use callsheet::event::{Event, SharedRecord};
use callsheet::id::AgentId;
use callsheet::journal::line::Position;
use callsheet::journal::reader::{Tail, judge};
use callsheet::message::{Message, StopReason, ToolResult};
use callsheet::report;
use callsheet::run::CancelTarget;
use callsheet::run::Run;
use parking_lot::Mutex;
use serde_json::json;

use crate::support::faults::{
    Act, Ended, Fake, FakeTool, Setup, defect, fold, follows_tools, id, name, records, transcript,
    until,
};
use crate::support::test_run::RunFolder;

const FIFTY: &str = r#"
[limits]
max_concurrency = 16
[agents.lead]
model = "main"
instructions = "Lead."
tools = ["dump"]
sub_agents = ["helper"]
[agents.helper]
model = "main"
description = "Helps."
instructions = "Help."
tools = ["dump"]
"#;

/// Five leads with nine helpers each; every one of the fifty uses a tool.
fn team() -> Arc<Fake> {
    Fake::new(|request| match (request.agent.as_str(), request.turn) {
        ("helper", 1..=3) => Act::Call(vec![
            ("dump", json!({"size": 200 * request.turn})),
            ("dump", json!({"size": 9})),
        ]),
        ("helper", _) => Act::say(format!("helped {}", request.agent_id)),
        (_, 1) => {
            let job = |n| {
                ("delegate", json!({"agent": "helper", "prompt": format!("Job {n}: \"é\"\n.")}))
            };
            Act::Call((1..=9).map(job).chain([("dump", json!({"size": 1}))]).collect())
        }
        (_, 2) => Act::Reply(Message::assistant("All "), StopReason::MaxTokens),
        _ => Act::say("done."),
    })
}

fn fifty() -> String {
    let task = |n| format!("[tasks.t{n}]\nagent = \"lead\"\nprompt = \"Go.\"\n");
    (1..=5).map(task).fold(FIFTY.to_owned(), |text, task| text + &task)
}

/// Follows a run to its end while it works.
fn followed(run: &Run) -> tokio::task::JoinHandle<Vec<SharedRecord>> {
    let mut follower = run.follow().expect("a journal");
    tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(record) = follower.next().await.expect("a sound journal") {
            seen.push(record);
        }
        seen
    })
}

/// Checks that every record has its number and that the chain of checksums holds to the last byte.
fn check_journal(dir: &RunFolder, records: &[SharedRecord]) {
    let numbers: Vec<_> = records.iter().map(|record| record.seq).collect();
    assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>());
    let file = std::fs::File::open(dir.journal()).expect("a journal");
    let length = file.metadata().expect("a length").len();
    let (end, tail) = judge(BufReader::new(file), Position::START).expect("readable");
    assert_eq!((tail, end.offset), (Tail::Clean, length));
    assert_eq!(end.seq, records.len() as u64 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_agents_leave_whole_records() {
    let main = team();
    let setup = Setup::new().model("main", &main).tool(&FakeTool::dump());
    let run = setup.start(&fifty()).await;
    let follower = followed(&run);
    let ended = Ended::of(run).await;
    assert_eq!(ended.agents().len(), 50);
    check_journal(&ended.dir, &ended.records);
    let seen = follower.await.expect("it ends");
    assert_eq!(seen, ended.records, "a follower misses nothing");

    for agent in ended.agents() {
        let messages = transcript(&ended.dir.transcript(&agent));
        assert_eq!(defect(&messages), None, "{agent}");
        // It is what the model was sent, and the reply to it.
        let is_helper = agent.as_str().contains('/');
        assert_eq!(messages.len(), if is_helper { 8 } else { 6 }, "{agent}");
        let sizes = |m: &Message| m.tool_results().map(|r| r.text().len()).collect::<Vec<_>>();
        if is_helper {
            let all: Vec<_> =
                messages.iter().map(sizes).filter(|sizes| !sizes.is_empty()).collect();
            assert_eq!(all, [[200, 9], [400, 9], [600, 9]], "never compacted");
        } else {
            assert_eq!(messages[2].tool_results().count(), 10);
            assert_eq!(
                messages[4].text(),
                "Continue from the previous response. Do not repeat completed work."
            );
        }
        let log = std::fs::read_to_string(ended.dir.log(&agent)).expect("a log");
        let events = ended.of_agent(agent.as_str()).len();
        assert!(log.lines().count() >= 1 && log.lines().count() <= events, "{log}");
    }
    assert_eq!(ended.output("t1"), "All done.");

    // The same rows from what was seen live and from what is read afterwards.
    let (live, read) = (fold(&seen), fold(&records(&ended.dir)));
    let now = read.last_ms();
    assert_eq!(report::rows(&live, false, now), report::rows(&read, false, now));
    assert_eq!(report::rows(&read, false, now).len(), 1 + 5 + 50);
    let completed = ended.completed();
    let (input, output) = (main.counted(), 5 * main.count() as u64);
    assert_eq!((completed.usage.input, completed.usage.output), (input, output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_has_its_files_when_it_first_speaks() {
    let missing: Arc<Mutex<Vec<AgentId>>> = Arc::default();
    let dir: Arc<Mutex<Option<RunFolder>>> = Arc::default();
    let (of_missing, of_dir) = (missing.clone(), dir.clone());
    let inner = team();
    let main = Fake::new(move |request| {
        let dir = of_dir.lock().clone();
        let dir = dir.expect("known before the first call");
        let agent = &request.agent_id;
        if !dir.transcript(agent).is_file() || !dir.log(agent).is_file() {
            of_missing.lock().push(agent.clone());
        }
        inner.act(request)
    });
    let setup = Setup::new().model("main", &main).tool(&FakeTool::dump());
    let run_id = callsheet::id::RunId::from(uuid::Uuid::now_v7());
    let config = setup.config(&fifty());
    *dir.lock() = Some(RunFolder::at(config.state_dir.join(run_id.to_string())));
    let run = setup.start_as(&fifty(), run_id).await;
    let ended = Ended::of(run).await;
    assert_eq!(ended.agents().len(), 50);
    assert_eq!(*missing.lock(), []);
}

#[tokio::test]
async fn what_ends_badly_has_a_whole_transcript_too() {
    let main = Fake::new(|request| match request.messages()[0].text().as_str() {
        "crash" if follows_tools(request) => Act::Panic,
        "hang" if follows_tools(request) => Act::Hang,
        "refuse" if follows_tools(request) => {
            Act::Reply(Message::assistant("I must not."), StopReason::Refusal(None))
        }
        "silence" if follows_tools(request) => {
            let content = Vec::new();
            let silent = Message { role: callsheet::message::Role::Assistant, content };
            Act::Reply(silent, StopReason::EndTurn)
        }
        _ => Act::Call(vec![("dump", json!({"size": 3})), ("dump", json!({"size": 4}))]),
    });
    let setup = Setup::new().model("main", &main).tool(&FakeTool::dump());
    let mut text = String::from(
        "[limits]\nfail_fast = false\n[agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\n\
         max_turns = 4\ntools = [\"dump\"]\n",
    );
    let tasks = ["crash", "hang", "refuse", "silence", "endless"];
    for task in tasks {
        text.push_str(&format!("[tasks.{task}]\nagent = \"worker\"\nprompt = \"{task}\"\n"));
    }
    let run = setup.start(&text).await;
    until(|| main.under_way() == 1 && main.sent_by("hang").len() == 2).await;
    assert!(run.remote().cancel(CancelTarget::Task(name("hang")), "enough").await);
    let ended = Ended::of(run).await;
    check_journal(&ended.dir, &ended.records);
    let mut lengths = BTreeMap::new();
    for task in tasks {
        let messages = transcript(&ended.dir.transcript(&id(task)));
        assert_eq!(defect(&messages), None, "{task}");
        lengths.insert(task, messages.len());
        let (state, output, _) = ended.task(task);
        assert_ne!(state, "completed", "{task}");
        assert_eq!(output, None);
    }
    let expected = [("crash", 3), ("endless", 9), ("hang", 3), ("refuse", 4), ("silence", 3)];
    assert_eq!(lengths, BTreeMap::from(expected));
}

#[tokio::test]
async fn the_result_of_a_tool_stands_in_full_where_its_preview_says() {
    let main = Fake::new(|request| match follows_tools(request) {
        false => Act::tool("bash", json!({"command": "seq 1 20000"})),
        true => {
            let last = request.messages().pop().expect("a message");
            Act::say(last.tool_results().map(ToolResult::text).collect::<String>())
        }
    });
    let setup = Setup::new().model("main", &main);
    let text = "[agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"bash\"]\n\
                [tasks.work]\nagent = \"worker\"\nprompt = \"Go.\"\n";
    let ended = setup.run(text).await;
    let preview = ended.output("work");
    assert!(preview.chars().count() < 10_000, "{}", preview.len());
    let stored = ended.of_agent("work").into_iter().find_map(|event| match event {
        Event::ToolFinished(finished) => finished.stored,
        _ => None,
    });
    let stored = stored.expect("stored");
    let path = ended.dir.results().join(&stored.hash);
    assert!(preview.contains(&stored.hash), "{preview}");
    let whole: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(std::fs::read_to_string(path).expect("the whole"), whole);
}
