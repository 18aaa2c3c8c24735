//! What the pipeline can do beside its layers: stubs for repeated reads.

use callsheet::event::Event;
use callsheet::message::{Message, ToolResult};
use callsheet::turn::ResultSource;
use serde_json::json;

use crate::faults::{Act, Ended, Fake, Setup, follows_tools, id, transcript, unsendable};

fn graph(compaction: &str) -> String {
    format!(
        r#"
[compaction]
{compaction}
[agents.worker]
model = "main"
instructions = "Work."
tools = ["read_file", "write_file", "edit_file"]
[tasks.work]
agent = "worker"
prompt = "Work."
"#
    )
}

fn results(messages: &[Message]) -> Vec<String> {
    let texts = messages.iter().flat_map(|m| m.tool_results().map(ToolResult::text));
    texts.collect()
}

/// Runs these calls, one a turn, and gives what the model read of each.
async fn read_of(
    setup: Setup,
    compaction: &str,
    calls: &[(&'static str, serde_json::Value)],
) -> (Ended, Vec<String>) {
    let calls = calls.to_vec();
    let main = Fake::new(move |request| match calls.get(request.turn as usize - 1) {
        Some((tool, input)) => Act::tool(tool, input.clone()),
        None => Act::say("done"),
    });
    let ended = setup.model("main", &main).run(&graph(compaction)).await;
    assert_eq!(ended.output("work"), "done");
    for messages in main.sent_by("work") {
        assert_eq!(unsendable(&messages), None);
    }
    // Each as the request right after it showed it.
    let newest = main.sent_by("work").into_iter().filter_map(|sent| results(&sent).pop());
    let newest = newest.collect();
    (ended, newest)
}

fn content() -> String {
    (0..100).map(|n| format!("line {n}\n")).collect()
}

fn setup() -> Setup {
    let setup = Setup::new();
    std::fs::write(setup.root.path().join("a.txt"), content()).expect("writes");
    setup
}

fn is_stub(text: &str) -> bool {
    text.starts_with("File unchanged since it was last read")
}

#[tokio::test]
async fn a_repeated_read_gives_a_stub_until_something_changes() {
    let read = || ("read_file", json!({"path": "a.txt"}));
    let edit =
        |from, to| ("edit_file", json!({"path": "a.txt", "old_string": from, "new_string": to}));
    let calls = [
        read(),
        ("read_file", json!({"path": "./a.txt", "offset": 1})),
        read(),
        edit("line 7\n", "line seven\n"),
        read(),
        read(),
        edit("line seven\n", "line 7\n"),
        read(),
        ("read_file", json!({"path": "a.txt", "offset": 50})),
    ];
    let compaction = "preset = \"off\"\nunchanged_stub = true";
    let (ended, texts) = read_of(setup(), compaction, &calls).await;
    let stubs: Vec<_> = texts.iter().map(|text| is_stub(text)).collect();
    assert_eq!(stubs, [false, true, true, false, false, true, false, false, false], "{texts:#?}");
    assert_eq!(texts[0], content());
    // The first is the second message after the prompt; both stubs name it.
    assert!(texts[1].contains("call work.1.0 in message 2") && texts[2] == texts[1]);
    assert!(texts[4].contains("line seven") && texts[5].contains("call work.5.0"));
    assert_eq!(texts[7], content(), "what was read before it was edited is not referred to");
    let unchanged = ended.records.iter().filter(|record| {
        matches!(&record.event, Event::ToolFinished(f) if f.source == ResultSource::Unchanged)
    });
    assert_eq!(unchanged.count(), 3);
    // Every byte stands in the transcript.
    let whole = results(&transcript(&ended.dir.transcript(&id("work"))));
    assert_eq!(whole, texts);
}

#[tokio::test]
async fn a_change_from_elsewhere_is_always_seen() {
    let setup = setup();
    let (root, read) = (setup.root.clone(), json!({"path": "a.txt"}));
    let main = Fake::new(move |request| {
        let path = root.path().join("a.txt");
        match request.turn {
            1 | 2 | 4 => Act::tool("read_file", read.clone()),
            3 => {
                // The same length at the same moment: no clock would tell.
                let time = path.metadata().and_then(|m| m.modified()).expect("a time");
                std::fs::write(&path, content().replace('7', "8")).expect("writes");
                let file = std::fs::File::options().write(true).open(&path).expect("opens");
                file.set_modified(time).expect("sets");
                Act::tool("read_file", read.clone())
            }
            _ => Act::say("done"),
        }
    });
    let ended = setup.model("main", &main).run(&graph("unchanged_stub = true")).await;
    assert_eq!(ended.output("work"), "done");
    let texts = results(&main.sent_by("work").pop().expect("a request"));
    assert!(is_stub(&texts[1]) && !is_stub(&texts[2]) && is_stub(&texts[3]), "{texts:#?}");
    assert!(texts[2].contains("line 88") && texts[3].contains("work.3.0"));
}

#[tokio::test]
async fn what_was_cleared_is_read_in_full_again() {
    let setup = setup();
    for other in ["b", "c", "d", "e"] {
        std::fs::write(setup.root.path().join(other), other.repeat(200)).expect("writes");
    }
    let calls: Vec<_> = ["a.txt", "b", "a.txt", "c", "a.txt", "d", "e", "d", "a.txt"]
        .map(|path| ("read_file", json!({"path": path})))
        .into();
    let compaction = "preset = \"three-layer\"\nunchanged_stub = true";
    let (_, texts) = read_of(setup, compaction, &calls).await;
    let stubs: Vec<_> = texts.iter().map(|text| is_stub(text)).collect();
    // The third read renews the first, so the fifth still finds it; the last finds it cleared.
    let expected = [false, false, true, false, true, false, false, true, false];
    assert_eq!(stubs, expected, "{texts:#?}");
}

#[tokio::test]
async fn a_crash_does_not_forget_what_was_read() {
    let crashed = std::sync::atomic::AtomicBool::new(false);
    let main = Fake::new(move |request| match request.turn {
        1 => Act::tool("read_file", json!({"path": "a.txt"})),
        _ if !crashed.swap(true, std::sync::atomic::Ordering::SeqCst) => Act::Panic,
        2 | 3 if follows_tools(request) && results(&request.messages()).len() < 2 => {
            Act::tool("read_file", json!({"path": "a.txt"}))
        }
        _ => Act::say("done"),
    });
    let ended = setup().model("main", &main).run(&graph("unchanged_stub = true")).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(ended.count("work", "agent.restarted"), 1);
    let texts = results(&main.sent_by("work").pop().expect("a request"));
    assert!(texts.len() == 2 && is_stub(&texts[1]), "{texts:#?}");
}

#[tokio::test]
async fn without_the_capability_every_read_is_whole() {
    let calls = [("read_file", json!({"path": "a.txt"})), ("read_file", json!({"path": "a.txt"}))];
    let (_, texts) = read_of(setup(), "preset = \"three-layer\"", &calls).await;
    assert_eq!(texts, [content(), content()]);
}
