//! Context editing and compaction by the provider, over real sockets: the requests, the reaction to
//! the answers, and the behaviour if a provider cannot do it.

use std::sync::atomic::{AtomicUsize, Ordering};

use callsheet::context::provider::compaction_block::SERVER_LAYER;
use callsheet::event::Event;
use callsheet::message::{Json, Message, Usage};
use callsheet::turn::ModelResponded;
use callsheet::turn_machine::Machine;
use serde_json::{Value, json};

use crate::support::answer::{Answer, Part};
use crate::support::asked::Asked;
use crate::support::context_server::{ContextServer, SUMMARY};
use crate::support::faults::{Ended, FakeTool, Setup, defect, id, transcript};
use crate::support::provider::{Provider, Responder};

const PROMPT: &str = "Find \"every\" error\nand list it.";
const ALL: &str = r#"["context_editing", "compact_threshold", "compact_on_demand"]"#;

/// A graph of one agent whose model has these capabilities.
fn graph(provider: &Provider, capabilities: &str, compaction: &str) -> String {
    format!(
        r#"
[providers.main]
kind = "anthropic"
base_url = "{}"
api_key = {{ env = "TEST_KEY" }}
headers = {{ Anthropic-Beta = "mine-2026-01-01" }}
[models.main]
provider = "main"
model = "m-1"
capabilities = {capabilities}
cost_per_mtok = {{ input = 1.0, output = 1.0 }}
[agents.worker]
model = "main"
instructions = "Work."
tools = ["dump", "compact"]
[tasks.work]
agent = "worker"
prompt = {PROMPT:?}
[compaction]
{compaction}
"#,
        provider.base_url()
    )
}

/// Runs a graph under `three-layer`; gives the run and its requests.
async fn run(server: impl Responder, capabilities: &str, compaction: &str) -> (Ended, Vec<Asked>) {
    run_under("three-layer", server, capabilities, compaction).await
}

async fn run_under(
    preset: &str,
    server: impl Responder,
    capabilities: &str,
    compaction: &str,
) -> (Ended, Vec<Asked>) {
    let provider = Provider::start(server).await;
    let setup = Setup::new().tool(&FakeTool::dump());
    let compaction = format!("preset = \"{preset}\"\n{compaction}");
    let ended = setup.run(&graph(&provider, capabilities, &compaction)).await;
    (ended, provider.requests())
}

fn dump(size: usize) -> Answer {
    Answer::tool("dump", json!({ "size": size }))
}

/// A script with this many calls, each with a result of this size, and then an answer.
fn dumps(count: usize, size: usize) -> Vec<Answer> {
    let mut answers = vec![dump(size); count];
    answers.push(Answer::text("done"));
    answers
}

fn betas(asked: &Asked) -> Vec<&str> {
    asked.header("anthropic-beta").unwrap_or_default().split(',').collect()
}

fn asks(asked: &Asked, field: &str) -> bool {
    asked.json().get(field).is_some()
}

fn replies(ended: &Ended) -> Vec<ModelResponded> {
    let replies = ended.of_agent("work").into_iter().filter_map(|event| match event {
        Event::ModelResponded(reply) => Some(reply),
        _ => None,
    });
    replies.collect()
}

/// The layers of the edits that were recorded.
fn layers(ended: &Ended) -> Vec<String> {
    let layer = |event| match event {
        Event::ContextEdited(edited) => Some(edited.layer),
        Event::CompactionFinished(finished) => Some(finished.layer),
        _ => None,
    };
    ended.of_agent("work").into_iter().filter_map(layer).collect()
}

/// The messages of a request without cache marks, as JSON.
fn sent(asked: &Asked) -> Vec<Value> {
    fn strip(value: &mut Value) {
        if let Value::Object(fields) = value {
            fields.shift_remove("cache_control");
            fields.values_mut().for_each(strip);
        } else if let Value::Array(items) = value {
            items.iter_mut().for_each(strip);
        }
    }
    let mut messages = asked.json()["messages"].take();
    strip(&mut messages);
    messages.as_array().expect("messages").clone()
}

/// The view that the records of the agent give, up to its last request.
fn rebuilt(ended: &Ended) -> Vec<Value> {
    let events = ended.of_agent("work");
    let Some(Event::AgentSpawned(spawned)) = events.first() else { panic!("{events:?}") };
    let mut machine = Machine::new(spawned.clone(), 100);
    let last = events.iter().rposition(|event| matches!(event, Event::ModelResponded(_)));
    for event in &events[1..last.expect("a reply")] {
        machine.apply(event).expect("legal");
    }
    machine.view().slots().map(|slot| slot.entry.json.to_value()).collect()
}

fn texts(asked: &Asked) -> Vec<String> {
    let texts = asked.messages().into_iter();
    texts.flat_map(|m| m.tool_results().map(|result| result.text()).collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn context_editing_clears_on_the_server_and_nowhere_else() {
    let compaction = "strategy = \"context_editing\"\n[compaction.context_editing]\n\
                      trigger = 2_000\nkeep = 2\nclear_at_least = 1_000\nexclude_tools = [\"web\"]\n\
                      keep_thinking = 1\n";
    let server = ContextServer::new(dumps(6, 4_000));
    let (ended, requests) = run(server, ALL, compaction).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(requests.len(), 7);
    for (before, asked) in requests.iter().enumerate() {
        assert_eq!(betas(asked), ["mine-2026-01-01", "context-management-2025-06-27"]);
        let edits = &asked.json()["context_management"]["edits"];
        assert_eq!(edits[0]["type"], "clear_thinking_20251015");
        assert_eq!(edits[1]["keep"], json!({"type": "tool_uses", "value": 2}));
        // The client keeps the full history.
        assert_eq!(texts(asked).len(), before);
        assert!(texts(asked).iter().all(|text| text.len() == 4_000));
    }
    assert!(layers(&ended).is_empty(), "{:?}", layers(&ended));
    let freed: Vec<u64> = replies(&ended).iter().map(|r| r.context.cleared_tokens()).collect();
    assert_eq!(freed, [0, 0, 0, 1_000, 2_000, 3_000, 4_000]);
    let log = std::fs::read_to_string(ended.dir.log(&id("work"))).expect("a log");
    assert!(log.contains("cleared by the provider"), "{log}");
}

#[tokio::test]
async fn a_pause_after_a_summary_keeps_the_request_and_what_is_unread() {
    let compaction = "strategy = \"server_threshold\"\n[compaction.server]\ntrigger = 50_000\n\
                      instructions = \"Names.\"\n";
    let server = ContextServer::new(dumps(8, 60_000));
    let (ended, requests) = run(server, ALL, compaction).await;
    assert_eq!(ended.output("work"), "done");
    let edit = &requests[0].json()["context_management"]["edits"][0];
    assert_eq!(edit["trigger"], json!({"type": "input_tokens", "value": 50_000}));
    assert_eq!(
        (&edit["instructions"], &edit["pause_after_compaction"]),
        (&json!("Names."), &json!(true))
    );
    let summaries = layers(&ended);
    assert!(summaries.len() >= 4 && summaries.iter().all(|layer| layer == SERVER_LAYER));
    let mut seen = 0;
    for asked in &requests {
        assert!(betas(asked).contains(&"compact-2026-01-12"));
        let messages = asked.messages();
        assert!(messages.iter().any(|m| m.text() == PROMPT), "the request stands word for word");
        if let Some(unread) = texts(asked).last() {
            assert_eq!(unread.len(), 60_000, "what is unread is whole");
        }
        if sent(asked)[0]["role"] == "assistant" {
            seen += 1;
            let text = sent(asked)[0]["content"][0]["content"].as_str().map(str::to_owned);
            assert!(text.expect("a summary").starts_with(SUMMARY));
            assert_eq!(messages[1].text(), PROMPT);
        }
    }
    assert!(seen >= 4, "{seen}");
    let last = requests.last().expect("a request");
    assert_eq!(rebuilt(&ended), sent(last), "the records give the view that was sent");
    // Summaries are paid for, although the counts of a reply leave them out.
    let paused: Vec<_> = replies(&ended).into_iter().filter(|r| r.usage.output == 40).collect();
    assert_eq!(paused.len() * 2, summaries.len(), "two edits a pause");
    assert!(paused.iter().all(|r| r.usage.input > 50_000 && r.cost_usd > Some(0.05)));
    let whole = transcript(&ended.dir.transcript(&id("work")));
    assert_eq!(whole.iter().flat_map(Message::tool_results).count(), 8, "nothing is lost");
}

#[tokio::test]
async fn a_reply_may_go_on_from_its_summary() {
    let compaction = "strategy = \"server_threshold\"\n[compaction.server]\ntrigger = 50_000\n\
                      pause = false\n";
    let server = ContextServer::new(dumps(8, 60_000));
    let (ended, requests) = run(server, ALL, compaction).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(requests.len(), 9, "no request but those for replies");
    assert!(!layers(&ended).is_empty());
    let compacted: Vec<_> =
        replies(&ended).into_iter().filter(|r| r.context.tokens.is_some()).collect();
    assert!(!compacted.is_empty());
    for reply in &compacted {
        assert_eq!(reply.context.tokens, Some(50), "what the model read last");
        assert!(reply.usage.input > 50_000, "what is billed");
    }
    for asked in &requests {
        // The summary stands first, then the request word for word, then the rest of the reply.
        assert!(asked.messages().iter().any(|message| message.text() == PROMPT));
    }
    assert_eq!(rebuilt(&ended), sent(requests.last().expect("a request")));
}

#[tokio::test]
async fn a_summary_on_demand_reads_the_warm_prefix_and_stands_first() {
    let compaction = "strategy = \"server_on_demand\"\nthreshold = 5_000\n";
    let server = ContextServer::new(dumps(12, 8_000));
    let (ended, requests) = run(server, ALL, compaction).await;
    assert_eq!(ended.output("work"), "done");
    let by_server = layers(&ended).iter().filter(|layer| *layer == SERVER_LAYER).count();
    assert!(by_server >= 3, "{:?}", layers(&ended));
    let mut before: Option<&Asked> = None;
    let mut signed = 0;
    for asked in &requests {
        assert!(!asks(asked, "context_management"));
        if asks(asked, "compaction") {
            assert_eq!(asked.json()["compaction"], json!({"type": "summarize"}));
            let before = before.expect("a request before it");
            let (known, now) = (sent(before), sent(asked));
            assert_eq!(now, known[..now.len()], "what was sent before, word for word");
            for field in ["system", "tools", "model"] {
                assert_eq!(asked.json()[field], before.json()[field]);
            }
        } else {
            assert!(asked.messages().iter().any(|m| m.text() == PROMPT));
            signed += usize::from(sent(asked)[0]["content"][0]["signature"].is_string());
        }
        before = Some(asked);
    }
    assert!(signed >= 3);
    assert_eq!(rebuilt(&ended), sent(requests.last().expect("a request")));
    let spent: Usage = ended
        .of_agent("work")
        .into_iter()
        .filter_map(|event| match event {
            Event::CompactionFinished(finished) => Some(finished.usage),
            _ => None,
        })
        .sum();
    assert_eq!(spent.output, 40 * by_server as u64);
    assert!(spent.input > 1_000);
}

#[tokio::test]
async fn a_preset_without_summaries_leaves_them_to_the_provider() {
    let compaction = "strategy = \"server_on_demand\"\n[compaction.server]\ntrigger = 50_000\n";
    let server = ContextServer::new(dumps(12, 40_000));
    let (ended, requests) = run_under("adaptive", server, ALL, compaction).await;
    assert_eq!(ended.output("work"), "done");
    let layers = layers(&ended);
    assert!(layers.len() >= 2 && layers.iter().all(|layer| layer == SERVER_LAYER), "{layers:?}");
    assert_eq!(rebuilt(&ended), sent(requests.last().expect("a request")));
}

#[tokio::test]
async fn what_to_preserve_is_said_to_the_provider() {
    let compact = Answer::tool("compact", json!({"focus": "the names"}));
    let answers = vec![dump(5_000), dump(100), compact, Answer::text("done")];
    let compaction =
        "strategy = \"server_on_demand\"\n[compaction.server]\ninstructions = \"Be brief.\"\n";
    let (ended, requests) = run(ContextServer::new(answers), ALL, compaction).await;
    assert_eq!(ended.output("work"), "done");
    let asked = requests.iter().find(|asked| asks(asked, "compaction")).expect("a summary");
    assert_eq!(
        asked.json()["compaction"]["instructions"],
        "Be brief. Pay special attention to preserving details about: the names."
    );
}

#[tokio::test]
async fn a_provider_that_refuses_a_strategy_is_asked_once() {
    let cases: [(&str, &[&str], &str); 3] = [
        ("context_editing", &["context_management"], "context_management"),
        ("server_threshold", &["context_management"], "context_management"),
        ("server_on_demand", &["compaction"], "compaction"),
    ];
    for (strategy, lacks, field) in cases {
        let compaction = format!("strategy = \"{strategy}\"\nthreshold = 5_000\n");
        let server = ContextServer::new(dumps(10, 8_000)).lacking(lacks);
        let (ended, requests) = run(server, ALL, &compaction).await;
        assert_eq!(ended.output("work"), "done", "{strategy}");
        assert_eq!(requests.iter().filter(|asked| asks(asked, field)).count(), 1, "{strategy}");
        let failed: Vec<_> = ended
            .of_agent("work")
            .into_iter()
            .filter_map(|event| match event {
                Event::ModelFailed(failed) => Some(failed),
                _ => None,
            })
            .collect();
        let of_replies = usize::from(field == "context_management");
        assert_eq!(failed.len(), of_replies, "{strategy}: {failed:?}");
        assert!(failed.iter().all(|failed| failed.retry_in_ms == Some(0)));
        // The client does what it always did.
        let layers = layers(&ended);
        assert!(layers.contains(&"summary".to_owned()), "{strategy}: {layers:?}");
        assert!(!layers.contains(&SERVER_LAYER.to_owned()), "{strategy}: {layers:?}");
    }
}

#[tokio::test]
async fn without_the_capability_nothing_is_asked() {
    for (capabilities, wanted) in [
        ("[]", "server_threshold"),
        (r#"["compact_threshold"]"#, "server_on_demand"),
        (ALL, "auto"),
    ] {
        let compaction = format!("strategy = \"{wanted}\"\nthreshold = 5_000\n");
        let server = ContextServer::new(dumps(6, 8_000));
        let (ended, requests) = run(server, capabilities, &compaction).await;
        assert_eq!(ended.output("work"), "done");
        for asked in &requests {
            assert!(!asks(asked, "context_management") && !asks(asked, "compaction"));
            assert_eq!(betas(asked), ["mine-2026-01-01"]);
        }
    }
}

#[tokio::test]
async fn the_provider_is_asked_what_it_can_do() {
    let model = json!({"id": "m-1", "max_input_tokens": 60_000, "capabilities": {
        "compaction": {"summarize": {"supported": true}},
    }});
    for known in [true, false] {
        let provider = Provider::start(ContextServer::new(dumps(6, 8_000))).await;
        if known {
            provider.describe(model.clone());
        }
        let compaction =
            "preset = \"three-layer\"\nstrategy = \"server_on_demand\"\nthreshold = 5_000\n";
        let setup = Setup::new().tool(&FakeTool::dump());
        let ended = setup.run(&graph(&provider, "\"probe\"", compaction)).await;
        assert_eq!(ended.output("work"), "done");
        let asked = provider.requests().iter().filter(|asked| asks(asked, "compaction")).count();
        assert_eq!(asked > 0, known, "without an answer there are no capabilities");
    }
}

#[tokio::test]
async fn a_summary_that_fails_again_and_again_does_not_hold_the_agent_up() {
    let asked_plainly = std::sync::Arc::new(AtomicUsize::new(0));
    let plainly = asked_plainly.clone();
    let server = move |asked: &Asked| {
        if asks(asked, "context_management") {
            let failed = Part::Compaction { content: None };
            return Answer { parts: vec![failed], ..Answer::default() }.stopping("compaction");
        }
        plainly.fetch_add(1, Ordering::SeqCst);
        Answer::text("done")
    };
    let (ended, requests) = run(server, ALL, "strategy = \"server_threshold\"\n").await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!((requests.len(), asked_plainly.load(Ordering::SeqCst)), (3, 1));
    assert!(requests.iter().all(|asked| asked.messages() == [Message::user(PROMPT)]));
}

#[tokio::test]
async fn no_summary_leaves_the_conversation_as_it_is() {
    for stop in ["max_tokens", "refusal", "tool_use", "end_turn", "compaction"] {
        let server = ContextServer::new(dumps(4, 8_000));
        let responder = move |asked: &Asked| match asks(asked, "compaction") {
            true => Answer::default().stopping(stop),
            false => server.answer(asked),
        };
        let compaction = "strategy = \"server_on_demand\"\nthreshold = 2_000\nkeep_recent = 9\n";
        let (ended, requests) = run(responder, ALL, compaction).await;
        assert_eq!(ended.output("work"), "done", "{stop}");
        assert!(ended.count("work", "compaction.failed") >= 1, "{stop}");
        assert_eq!(texts(requests.last().expect("a request")).len(), 4, "{stop}");
    }
}

#[tokio::test]
async fn thinking_survives_byte_for_byte() {
    let redacted = r#"{"type":"redacted_thinking","data":  "zz==","later":[1, 2]}"#;
    let signature = "c2ln/+==\\u0041";
    let answers = vec![
        Answer::default()
            .and_thinking("hm é \"so\"\n\u{1f600}", signature)
            .and_whole(redacted)
            .and_text("Looking.")
            .and_tool("dump", json!({"size": 10})),
        Answer::text("done"),
    ];
    let (ended, requests) = run(ContextServer::new(answers), ALL, "").await;
    assert_eq!(ended.output("work"), "done");
    let quoted = |text: &str| serde_json::to_string(text).expect("JSON");
    let thinking = format!(
        r#"{{"type":"thinking","thinking":{},"signature":{}}}"#,
        quoted("hm é \"so\"\n\u{1f600}"),
        quoted(signature)
    );
    let both = format!("[{thinking},{redacted},");
    let again = std::str::from_utf8(&requests[1].body).expect("text");
    assert!(again.contains(&both), "{again}");
    let file = std::fs::read_to_string(ended.dir.transcript(&id("work"))).expect("a transcript");
    assert!(file.contains(&both), "{file}");
    let journal = std::fs::read_to_string(ended.dir.journal()).expect("a journal");
    assert!(journal.contains(&both));
    assert_eq!(defect(&transcript(&ended.dir.transcript(&id("work")))), None);
    let replayed: Vec<Json> = replies(&ended).into_iter().map(|reply| reply.message).collect();
    assert!(replayed[0].as_str().contains(&both));
}
