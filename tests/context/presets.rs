//! The presets other than `three-layer`, each in a run: the requests that a model reads, and the
//! records before them.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callsheet::context::Edit;
use callsheet::event::Event;
use callsheet::failure::FailureKind;
use callsheet::message::{Block, Message, ToolResult};
use callsheet::model::ErrorClass;
use serde_json::{Value, json};

use crate::support::faults::{Act, Ended, Fake, FakeTool, Setup, unsendable};

const PROMPT: &str = "Find every error.";

/// First line of the instruction to the summariser of `four-layer`.
const ASKED: &str = "Summarize this conversation so that work can continue.";

fn graph(compaction: &str) -> String {
    format!(
        r#"
[compaction]
{compaction}
[agents.worker]
model = "main"
instructions = "Work."
tools = ["dump", "compact", "snip"]
[tasks.work]
agent = "worker"
prompt = {PROMPT:?}
"#
    )
}

fn setup(main: &Arc<Fake>) -> Setup {
    Setup::new().model("main", main).tool(&FakeTool::dump())
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages
        .iter()
        .flat_map(|m| m.tool_results().map(ToolResult::text).collect::<Vec<_>>())
        .collect()
}

fn layers(ended: &Ended) -> Vec<String> {
    let edits = ended.records.iter().filter_map(|record| match &record.event {
        Event::ContextEdited(edited) => Some(edited.layer.clone()),
        _ => None,
    });
    edits.collect()
}

#[tokio::test]
async fn a_large_batch_is_stored_before_the_model_reads_of_it() {
    let main = Fake::new(|request| match request.turn {
        1 => Act::Call(vec![("dump", json!({"size": 40_000})), ("dump", json!({"size": 5_000}))]),
        _ => Act::say("done"),
    });
    let text = graph("preset = \"four-layer\"\nbatch_budget_chars = 20_000");
    let ended = setup(&main).run(&text).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(layers(&ended), ["budget"]);
    let sent = main.sent_by("work");
    let large = &texts(&sent[1])[0];
    let mut lines = large.lines();
    assert_eq!(lines.next(), Some("<persisted-output>"));
    let path = lines.next().and_then(|line| line.strip_prefix("Full output: ")).expect("a path");
    assert_eq!(lines.next(), Some("Preview:"));
    let whole = fs::read_to_string(path).expect("stored");
    assert_eq!(whole.len(), 40_000);
    assert_eq!(lines.next(), Some(&whole[..2_000]));
    assert_eq!(lines.next(), Some("</persisted-output>"));
    assert_eq!(texts(&sent[1])[1].len(), 5_000);
}

#[tokio::test]
async fn the_compact_tool_speaks_the_words_of_its_preset() {
    let main = Fake::new(|request| match (request.messages()[0].text(), request.turn) {
        (text, _) if text.starts_with(ASKED) => Act::say("short"),
        (_, 1) => Act::tool("dump", json!({"size": 3_000})),
        (_, 2) => Act::Call(vec![("compact", json!({})), ("dump", json!({"size": 50}))]),
        (_, 3) => Act::tool("dump", json!({"size": 10})),
        _ => Act::say("done"),
    });
    let ended = setup(&main).run(&graph("preset = \"four-layer\"")).await;
    assert_eq!(ended.output("work"), "done");
    let sent = main.sent_by("work");
    let after = &sent[3];
    assert_eq!(unsendable(after), None, "{after:#?}");
    assert_eq!(after.len(), 3);
    let goes_on = "[Compacted. Continue with summarized context.]";
    let said = ["[Compacted]\n\nshort", PROMPT, goes_on];
    assert_eq!(after[0].content, said.map(|text| Block::Text(text.to_owned())));
    assert_eq!(texts(after)[0], "[Compacted. History summarized.]");
    assert_eq!(texts(after)[1].len(), 50, "its siblings keep their results");
    assert_eq!(sent[4][..3], after[..], "what was sent once is sent again");
}

#[tokio::test]
async fn a_refused_request_is_made_once_more_without_its_older_part() {
    let refusals = AtomicUsize::new(0);
    let main = Fake::new(move |request| match (request.messages()[0].text(), request.turn) {
        (text, _) if text.starts_with(ASKED) => Act::say("short"),
        (_, 1..=6) => Act::tool("dump", json!({"size": 50})),
        _ if refusals.fetch_add(1, Ordering::SeqCst) == 0 => {
            Act::Fail(ErrorClass::ContextTokens { have: None, max: None })
        }
        _ => Act::say("done"),
    });
    let ended = setup(&main).run(&graph("preset = \"four-layer\"")).await;
    assert_eq!(ended.output("work"), "done");
    let last = main.sent_by("work").pop().expect("a request");
    assert_eq!(unsendable(&last), None, "{last:#?}");
    assert_eq!(last[0].text(), format!("[Reactive compact]\n\nshort\n{PROMPT}"));
    assert_eq!(last.len(), 7, "the last five messages, and the call of the first of them");
    assert_eq!(layers(&ended), [""; 0]);
}

#[tokio::test]
async fn where_no_summary_can_be_had_the_older_part_leaves_all_the_same() {
    let main = Fake::new(|request| match (request.messages()[0].text(), request.turn) {
        (text, _) if text.starts_with(ASKED) => Act::Fail(ErrorClass::Fatal),
        (_, 1..=6) => Act::tool("dump", json!({"size": 50})),
        (_, 7) => Act::Fail(ErrorClass::ContextTokens { have: None, max: None }),
        (_, 8) => Act::tool("dump", json!({"size": 50})),
        _ => Act::say("done"),
    });
    let ended = setup(&main).run(&graph("preset = \"four-layer\"")).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(layers(&ended), ["reactive"]);
    let last = main.sent_by("work").pop().expect("a request");
    assert_eq!(unsendable(&last), None, "{last:#?}");
    let note = "[Reactive compact]\n\nEarlier conversation was trimmed after a prompt-too-long \
                error.";
    assert_eq!(last[0].text(), format!("{note}\n{PROMPT}"));
}

#[tokio::test]
async fn a_second_refusal_ends_it() {
    let main = Fake::new(|request| match (request.messages()[0].text(), request.turn) {
        (text, _) if text.starts_with(ASKED) => Act::say("short"),
        (_, 1) => Act::tool("dump", json!({"size": 50_000})),
        _ => Act::Fail(ErrorClass::ContextTokens { have: None, max: None }),
    });
    let ended = setup(&main).run(&graph("preset = \"four-layer\"")).await;
    let (_, _, kind) = ended.task("work");
    assert_eq!(kind, Some(FailureKind::ContextOverflow));
    let sent = main.sent_by("work");
    let last = sent.last().expect("a request");
    assert!(texts(last)[0].starts_with("<persisted-output>"), "the largest result was stored");
    let edits = ended.records.iter().filter(|record| match &record.event {
        Event::ContextEdited(edited) => matches!(edited.edit, Edit::ClearResults { .. }),
        _ => false,
    });
    assert_eq!(edits.count(), 1);
}

#[tokio::test]
async fn the_model_may_drop_the_middle_of_its_view() {
    let main = Fake::new(|request| match request.turn {
        1..=6 => Act::tool("dump", json!({"size": 1_000})),
        7 => Act::Call(vec![("snip", json!({"keep": 3})), ("dump", json!({"size": 50}))]),
        8 => Act::tool("snip", json!({"keep": 1_000})),
        _ => Act::say("done"),
    });
    let ended = setup(&main).run(&graph("preset = \"production\"")).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(layers(&ended), ["snip"]);
    let sent = main.sent_by("work");
    let after = &sent[7];
    assert_eq!(unsendable(after), None, "{after:#?}");
    // The beginning, the newest three and the call that the first of them answers.
    assert_eq!(after.len(), 3 + 4);
    let marker = after[2].text();
    assert!(
        marker.starts_with("[8 messages of this conversation are left out here; they stand in ")
    );
    let said: Value = serde_json::from_str(&texts(after)[2]).expect("an object");
    assert_eq!((&said["messages"], &said["boundaryMessage"]), (&json!(7), &json!(marker)));
    assert!(said["tokensFreed"].as_u64().is_some_and(|freed| freed > 100), "{said}");
    assert_eq!(texts(after)[3].len(), 50, "its siblings keep their results");
    let nothing: Value = serde_json::from_str(texts(&sent[8]).last().expect("one")).expect("one");
    assert_eq!((&nothing["messages"], &nothing["tokensFreed"]), (&json!(9), &json!(0)));
    assert_eq!(nothing.get("boundaryMessage"), None);
}

#[tokio::test]
async fn no_other_preset_offers_it() {
    let main = Fake::new(|request| match request.turn {
        1 => Act::tool("snip", json!({"keep": 3})),
        _ => Act::say("done"),
    });
    let ended = setup(&main).run(&graph("preset = \"four-layer\"")).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(texts(&main.sent_by("work")[1]), ["Unknown tool: snip"]);
}

#[tokio::test]
async fn under_turn_window_a_compaction_waits_for_the_next_turn() {
    let main = Fake::new(|request| match request.turn {
        1 => Act::Call(vec![("compact", json!({})), ("dump", json!({"size": 50}))]),
        2 => Act::tool("dump", json!({"size": 300_000})),
        _ => Act::say("done"),
    });
    let ended = setup(&main).run(&graph("preset = \"turn-window\"")).await;
    assert_eq!(ended.output("work"), "done");
    let sent = main.sent_by("work");
    assert_eq!(sent.len(), 3, "no summary amid the tool loop");
    assert_eq!(texts(&sent[1])[0], "Compression triggered. Context will be summarized.");
    assert_eq!(texts(&sent[2])[1].len(), 50);
    assert_eq!(ended.count("work", "compaction.requested"), 0);
}
