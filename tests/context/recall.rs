//! Messages and results that have left an agent's view come back through `recall`, byte for byte.

use std::sync::{Arc, OnceLock};

use callsheet::context::view::View;
use callsheet::event::Event;
use callsheet::id::RunId;
use callsheet::message::{Message, ToolResult};
use callsheet::report::next_request::next_request;
use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use callsheet::turn_machine::Machine;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::answer::Answer;
use crate::support::asked::Asked;
use crate::support::faults::{Act, Ended, Fake, FakeTool, Setup, id, transcript, unsendable};
use crate::support::provider::Provider;
use crate::support::test_run::RunFolder;

const GRAPH: &str = r#"
[compaction]
preset = "three-layer"
keep_unit = "turns"
[agents.worker]
model = "main"
instructions = "Work."
tools = ["note", "compact", "recall", "lose"]
[tasks.work]
agent = "worker"
prompt = "Find \"every\" error."
"#;

/// The text of the note of this number; that of number 3 needs two pages.
fn note(number: usize) -> String {
    let lines = if number == 3 { 4_000 } else { 12 };
    let line = |at| format!("note {number}, line {at}: \"é\"\t\\n\n");
    (1..=lines).map(line).collect()
}

fn notes() -> Arc<FakeTool> {
    FakeTool::new("note", Effect::Pure, |count, _| async move { Ok(ToolOutput::ok(note(count))) })
}

fn results(messages: &[Message]) -> Vec<ToolResult> {
    messages.iter().flat_map(|m| m.tool_results().cloned().collect::<Vec<_>>()).collect()
}

fn last_results(asked: &Asked) -> Vec<ToolResult> {
    results(asked.messages().last().map_or(&[], std::slice::from_ref))
}

#[tokio::test]
async fn what_was_cleared_is_recalled_by_id_by_range_and_by_search() {
    let provider = Provider::start(|asked: &Asked| {
        let ids: Vec<_> = results(&asked.messages()).into_iter().map(|r| r.tool_use_id).collect();
        match asked.count {
            1..=6 => Answer::tool("note", json!({})),
            7 => Answer::tool("recall", json!({"id": ids[0]}))
                .and_tool("recall", json!({"from": 1, "to": 5}))
                .and_tool("recall", json!({"text": "note 2, line 4:"}))
                .and_tool("recall", json!({"regex": "line (11|12): .é", "from": 3, "to": 6}))
                .and_tool("recall", json!({"id": ids[2]}))
                .and_tool("recall", json!({"id": ids[2], "offset": 29_000}))
                .and_tool("recall", json!({"id": "nobody"}))
                .and_tool("recall", json!({"id": "a".repeat(64)}))
                .and_tool("recall", json!({"id": "../../journal.jsonl"}))
                .and_tool("recall", json!({"from": 13}))
                .and_tool("recall", json!({"where": 1})),
            _ => Answer::text("done"),
        }
    })
    .await;
    let text = format!(
        "[providers.main]\nkind = \"anthropic\"\nbase_url = \"{}\"\napi_key = {{ env = \"TEST_KEY\" }}\n\
         [models.main]\nprovider = \"main\"\nmodel = \"m\"\n{GRAPH}",
        provider.base_url(),
    );
    let setup = Setup::new().tool(&notes()).tool(&lose(&Arc::default()));
    let ended = Ended::of(setup.start(&text).await).await;
    assert_eq!(ended.output("work"), "done");
    let requests = provider.requests();
    assert_eq!(requests.len(), 8);
    same_as_sent(&ended, &requests);
    let view = requests[6].messages();
    assert_eq!(results(&view)[0].text(), "[Previous: used note]");
    assert_eq!(unsendable(&requests[7].messages()), None);
    let given = last_results(&requests[7]);

    assert_eq!(given[0].text(), note(1));
    let whole = std::fs::read_to_string(ended.dir.transcript(&id("work"))).expect("a transcript");
    let message = |number: usize| {
        let line = whole.lines().nth(number).expect("a message");
        let from = line.find("\"message\":").expect("its place");
        format!("{{\"n\":{number},{}\n", &line[from..])
    };
    assert_eq!(given[1].text(), (1..5).map(message).collect::<String>());
    let found = given[2].text();
    assert!(found.starts_with("message 4, result "), "{found}");
    let lines: Vec<_> = found.lines().skip(1).collect();
    assert_eq!(lines[2], "4:note 2, line 4: \"é\"\t\\n");
    assert_eq!(lines.len(), 5, "{found}");
    let found = given[3].text();
    assert!(found.starts_with("message 4, result ") && !found.contains("note 1"), "{found}");

    let [first, second] = [given[4].text(), given[5].text()];
    let first =
        first.strip_suffix("\n[characters 0 to 29000; next: offset 29000]").expect("a page");
    let (rest, _) = second.rsplit_once("\n[characters 29000 to 58000; next: ").expect("a page");
    assert!(note(3).starts_with(&format!("{first}{rest}")));

    assert!(given[..6].iter().all(|result| !result.is_error));
    let wrong = [
        "Error: messages 0 to 13 hold no result of a call `nobody`",
        &format!(
            "Error: stored result {}: it is missing; messages 0 to 13 hold no result of a call `{}`",
            ended.dir.results().join("a".repeat(64)).display(),
            "a".repeat(64)
        ),
        "Error: messages 0 to 13 hold no result of a call `../../journal.jsonl`",
        "Error: there is no message 13: the conversation has 13 before this one, the first is 0",
    ];
    for (result, expected) in given[6..].iter().zip(wrong) {
        assert_eq!((result.text().as_str(), result.is_error), (expected, true));
    }
    assert!(given[10].is_error && given[10].text().contains("unknown field `where`"));
}

/// Checks that the view that the records give before each request is the one that was sent.
fn same_as_sent(ended: &Ended, requests: &[Asked]) {
    let work = id("work");
    let records: Vec<_> =
        ended.records.iter().filter(|r| r.agent.as_ref() == Some(&work)).cloned().collect();
    let is_request = |at: &usize| matches!(records[*at].event, Event::ModelRequested(_));
    let places: Vec<_> = (0..records.len()).filter(is_request).collect();
    assert_eq!(places.len(), requests.len());
    for (place, asked) in places.into_iter().zip(requests) {
        let next = next_request(&records[..place]).expect("legal").expect("it talks");
        let sent = next.view.slots().map(|slot| slot.entry.json.decode().expect("a message"));
        assert_eq!(sent.collect::<Vec<Message>>(), asked.messages());
    }
}

/// A tool that empties the transcript of the agent `work`.
fn lose(dir: &Arc<OnceLock<RunFolder>>) -> Arc<FakeTool> {
    let dir = dir.clone();
    FakeTool::new("lose", Effect::Pure, move |_, _| {
        let path = dir.get().expect("known").transcript(&id("work"));
        async move {
            std::fs::write(path, "").expect("written");
            Ok(ToolOutput::ok("lost"))
        }
    })
}

#[tokio::test]
async fn what_was_summarised_is_recalled_and_a_lost_transcript_is_no_loss() {
    let first_id = Arc::new(Mutex::new(String::new()));
    let known = first_id.clone();
    let main = Fake::new(move |request| {
        let messages = request.messages();
        let is_summary = messages[0].text().starts_with("Summarize this conversation");
        match request.turn {
            _ if is_summary => Act::say("short"),
            1 => Act::tool("note", json!({})),
            2 => {
                *known.lock() = results(&messages)[0].tool_use_id.clone();
                Act::tool("compact", json!({}))
            }
            3 | 5 => Act::Call(vec![
                ("recall", json!({"id": known.lock().clone()})),
                ("recall", json!({"from": 0, "to": 5})),
                ("recall", json!({"text": "note 1, line 7"})),
            ]),
            4 => Act::tool("lose", json!({})),
            _ => Act::say("done"),
        }
    });
    let dir: Arc<OnceLock<RunFolder>> = Arc::default();
    let setup = Setup::new().model("main", &main).tool(&notes()).tool(&lose(&dir));
    let run = RunId::from(uuid::Uuid::now_v7());
    dir.set(RunFolder::at(setup.config(GRAPH).state_dir.join(run.to_string()))).expect("once");
    let ended = Ended::of(setup.start_as(GRAPH, run).await).await;
    assert_eq!(ended.output("work"), "done");
    let sent = main.sent_by("work");
    let answers = |turn: usize| {
        let messages = &sent[turn];
        results(&messages[messages.len() - 1..])
    };
    // The summary is a request of its own: the fourth turn is the fifth request.
    let (with_file, without) = (answers(4), answers(6));
    assert_eq!(with_file[0].text(), note(1));
    assert_eq!(with_file[1].text().lines().count(), 5);
    assert_eq!(with_file[2].text().lines().count(), 6);
    let texts = |results: &[ToolResult]| results.iter().map(ToolResult::text).collect::<Vec<_>>();
    assert_eq!(texts(&with_file), texts(&without));
}

#[tokio::test]
async fn a_stored_result_is_recalled_by_its_hash() {
    let main = Fake::new(|request| {
        let last = results(&request.messages()).pop().map(|result| result.text());
        match request.turn {
            1 => Act::tool("bash", json!({"command": "seq 1 20000"})),
            2 => {
                let preview = last.expect("a preview");
                let (_, rest) = preview.split_once("/results/").expect("where the whole is");
                Act::tool("recall", json!({"id": &rest[..64], "offset": 58_000}))
            }
            _ => Act::say("done"),
        }
    });
    let setup = Setup::new().model("main", &main).tool(&notes()).tool(&lose(&Arc::default()));
    let graph = GRAPH.replace("\"note\"", "\"note\", \"bash\"");
    let ended = setup.run(&graph).await;
    assert_eq!(ended.output("work"), "done");
    let sent = main.sent_by("work").pop().expect("a request");
    let page = results(&sent).pop().expect("a result").text();
    let (text, _) = page.rsplit_once("\n[characters 58000 to 87000; next: ").expect("a page");
    let whole: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(text, &whole[58_000..87_000]);
}

#[tokio::test]
async fn a_stored_result_that_is_damaged_or_gone_is_no_page() {
    let main = Fake::new(|request| {
        let last = results(&request.messages()).pop().map(|result| result.text());
        match request.turn {
            1 => Act::tool("bash", json!({"command": "seq 1 20000"})),
            2 | 3 => {
                let (all, turn) = (results(&request.messages()), request.turn);
                let preview = all.first().expect("a preview").text();
                let (_, rest) = preview.split_once("the full output is in ").expect("a path");
                let path = rest.split(' ').next().expect("a path");
                if turn == 2 {
                    std::fs::write(path, "x").expect("written");
                } else {
                    std::fs::remove_file(path).expect("removed");
                }
                let hash = path.rsplit('/').next().expect("a name");
                Act::tool("recall", json!({"id": hash, "offset": 58_000}))
            }
            _ => Act::say(last.expect("an answer")),
        }
    });
    let setup = Setup::new().model("main", &main).tool(&notes()).tool(&lose(&Arc::default()));
    let ended = setup.run(&GRAPH.replace("\"note\"", "\"note\", \"bash\"")).await;
    let answer = ended.output("work");
    assert!(answer.starts_with("Error: stored result "), "{answer}");
    assert!(answer.contains(": it is missing; "), "{answer}");
    let all = results(&main.sent_by("work").pop().expect("a request"));
    assert!(all[1].text().contains("it is damaged: its content has the hash"), "{all:?}");
    assert!(all[1].is_error && all[2].is_error);
}

/// The conversation of an agent as its events make it, without any edit.
fn conversation(ended: &Ended, agent: &str) -> Vec<Message> {
    let events = ended.of_agent(agent);
    let Some(Event::AgentSpawned(spawned)) = events.first() else { panic!("{events:#?}") };
    let mut machine = Machine::new(spawned.clone(), 100);
    for event in &events[1..] {
        if !matches!(event, Event::ContextEdited(_) | Event::CompactionFinished(_)) {
            machine.apply(event).expect("legal");
        }
    }
    let view: &View = machine.view();
    view.slots().map(|slot| slot.entry.json.decode().expect("a message")).collect()
}

#[tokio::test]
async fn the_numbers_of_edits_are_the_lines_of_the_transcript() {
    let main = Fake::new(|request| match request.turn {
        1 | 3..=5 => Act::Call(vec![("note", json!({})), ("note", Value::Null)]),
        2 => Act::Reply(Message::assistant("Well, "), callsheet::message::StopReason::MaxTokens),
        6 => {
            let content = Vec::new();
            let nothing = Message { role: callsheet::message::Role::Assistant, content };
            Act::Reply(nothing, callsheet::message::StopReason::MaxTokens)
        }
        _ => Act::say("done"),
    });
    let setup = Setup::new().model("main", &main).tool(&notes()).tool(&lose(&Arc::default()));
    let ended = setup.run(GRAPH).await;
    assert_eq!(ended.output("work"), "done");
    let whole = transcript(&ended.dir.transcript(&id("work")));
    assert_eq!(whole.len(), 12);
    assert_eq!(conversation(&ended, "work"), whole);
}
