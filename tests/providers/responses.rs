//! The Responses API over real sockets: what is asked for, and reasoning that is kept over turns.

use callsheet::failure::FailureKind;
use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use serde_json::{Value, json};

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::faults::{FakeTool, Setup};
use crate::support::provider::Provider;

/// The reasoning as the server writes it, with spaces and escapes of its own.
const REASONING: &str =
    r#"{"id":"rs_1","type":"reasoning",  "summary":[],"encrypted_content":"gA\/+="}"#;

/// A stream of these items.
fn stream(items: &[&str]) -> Answer {
    let mut body = String::new();
    for (index, item) in items.iter().enumerate() {
        for kind in ["added", "done"] {
            body.push_str(&format!(
                "data: {{\"type\":\"response.output_item.{kind}\",\"output_index\":{index},\"item\":{item}}}\n\n"
            ));
        }
    }
    let usage = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 7});
    let response = json!({"status": "completed", "usage": usage});
    body.push_str(&format!(
        "data: {}\n\n",
        json!({"type": "response.completed", "response": response})
    ));
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    Answer::fault(Fault::Http { status: 200, headers, body })
}

fn call() -> String {
    json!({"type": "function_call", "call_id": "c1", "name": "note", "arguments": "{\"n\": 1}"})
        .to_string()
}

fn said(text: &str) -> String {
    json!({"type": "message", "content": [{"type": "output_text", "text": text}]}).to_string()
}

fn graph(provider: &Provider) -> String {
    format!(
        "[providers.main]\nkind = \"openai-responses\"\nbase_url = \"{}\"\n\
         api_key = {{ env = \"TEST_KEY\" }}\nstructured_output = true\n\
         [models.main]\nprovider = \"main\"\nmodel = \"m\"\nreasoning_effort = \"low\"\n\
         [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"note\"]\n\
         [tasks.t1]\nagent = \"worker\"\nprompt = \"Go.\"\n\
         output_schema = {{ type = \"object\", required = [\"n\"], additionalProperties = false, properties = {{ n = {{ type = \"integer\" }} }} }}\n",
        provider.url_for(Wire::OpenAi)
    )
}

#[tokio::test]
async fn reasoning_is_kept_over_turns_byte_for_byte() {
    let answers = vec![stream(&[REASONING, &call()]), stream(&[&said("{\"n\": 2}")])];
    let provider = Provider::script(answers).await;
    let note = FakeTool::new("note", Effect::Once, |_, _| async { Ok(ToolOutput::ok("noted")) });
    let ended = Setup::new().tool(&note).run(&graph(&provider)).await;
    assert_eq!((ended.output("t1").as_str(), note.calls()), ("{\"n\": 2}", 1));
    let requests: Vec<Asked> = provider.requests();
    assert_eq!(requests[0].path, "/v1/responses");
    assert_eq!(requests[0].header("authorization"), Some("Bearer k"));
    let body = requests[0].json();
    assert_eq!((&body["stream"], &body["store"]), (&json!(true), &json!(false)));
    assert_eq!(body["instructions"], "Work.");
    assert_eq!(body["reasoning"], json!({"effort": "low"}));
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(body["tools"][0]["name"], "note");
    assert_eq!(body["text"]["format"]["strict"], true);
    assert_eq!(body["max_output_tokens"], 8192);
    let sent = String::from_utf8(requests[1].body.to_vec()).expect("text");
    assert!(sent.contains(REASONING), "{sent}");
    let input = requests[1].json()["input"].clone();
    let kinds: Vec<&Value> = input.as_array().expect("items").iter().map(|i| &i["type"]).collect();
    assert_eq!(kinds, ["message", "reasoning", "function_call", "function_call_output"]);
    assert_eq!(
        input[3],
        json!({"type": "function_call_output", "call_id": "c1", "output": "noted"})
    );
    let usage = ended.completed().usage;
    assert_eq!((usage.input, usage.cache_read, usage.output), (120, 80, 14));
}

#[tokio::test]
async fn failures_have_their_kinds() {
    for (code, kind) in [
        ("server_error", FailureKind::ServerError),
        ("rate_limit_exceeded", FailureKind::RateLimit),
        ("invalid_api_key", FailureKind::Auth),
    ] {
        let error = json!({"code": code, "message": "no"});
        let event =
            json!({"type": "response.failed", "response": {"status": "failed", "error": error}});
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        let fault = Fault::Http { status: 200, headers, body: format!("data: {event}\n\n") };
        let provider = Provider::script(vec![Answer::fault(fault)]).await;
        let text = format!("[defaults.retry]\nmax_attempts = 1\n{}", graph(&provider));
        let ended = Setup::new()
            .tool(&FakeTool::new("note", Effect::Pure, |_, _| async { Ok(ToolOutput::ok("")) }));
        let ended = ended.run(&text).await;
        assert_eq!(ended.task("t1").2, Some(kind), "{code}");
    }
}

/// A summary as the server writes it: sealed, with spaces and escapes of its own.
const SUMMARY: &str = r#"{"id":"cmp_1","type":"compaction",  "encrypted_content":"zA\/+="}"#;

fn summarising(provider: &Provider) -> String {
    graph(provider).replace(
        "[models.main]",
        "[models.main]\ncapabilities = [\"compact_threshold\"]\ncontext_window = 200_000",
    ) + "[compaction]\nstrategy = \"server_threshold\"\n[compaction.server]\ntrigger = 60_000\n"
}

#[tokio::test]
async fn a_summary_by_the_server_stands_for_all_before_it_byte_for_byte() {
    let answers = vec![
        stream(&[REASONING, &call()]),
        stream(&[SUMMARY, REASONING, &call()]),
        stream(&[&said("{\"n\": 2}")]),
    ];
    let provider = Provider::script(answers).await;
    let note = FakeTool::new("note", Effect::Once, |count, _| async move {
        Ok(ToolOutput::ok(format!("noted {count}")))
    });
    let ended = Setup::new().tool(&note).run(&summarising(&provider)).await;
    assert_eq!((ended.output("t1").as_str(), note.calls()), ("{\"n\": 2}", 2));
    let requests: Vec<Asked> = provider.requests();
    let management = json!([{"type": "compaction", "compact_threshold": 60_000}]);
    for request in &requests {
        assert_eq!(request.json()["context_management"], management);
    }
    let sent = String::from_utf8(requests[2].body.to_vec()).expect("text");
    assert!(sent.contains(SUMMARY), "{sent}");
    assert!(!sent.contains("noted 1") && sent.contains("noted 2"), "{sent}");
    let input = requests[2].json()["input"].clone();
    let kinds: Vec<&Value> = input.as_array().expect("items").iter().map(|i| &i["type"]).collect();
    // The request stands behind the summary in its own words.
    let expected = ["compaction", "message", "reasoning", "function_call", "function_call_output"];
    assert_eq!(kinds, expected);
    assert!(input[1].to_string().contains("Go."), "{input}");
}

#[tokio::test]
async fn a_server_without_summaries_is_asked_for_one_once() {
    let error = json!({"error": {"message": "Unknown parameter: 'context_management'.", "type": "invalid_request_error"}});
    let refused = Fault::Http { status: 400, headers: Vec::new(), body: error.to_string() };
    let answers = vec![Answer::fault(refused), stream(&[&said("{\"n\": 2}")])];
    let provider = Provider::script(answers).await;
    let note = FakeTool::new("note", Effect::Once, |_, _| async { Ok(ToolOutput::ok("noted")) });
    let ended = Setup::new().tool(&note).run(&summarising(&provider)).await;
    assert_eq!(ended.output("t1"), "{\"n\": 2}");
    let asked = provider.requests();
    let asks = |asked: &Asked| asked.json().get("context_management").is_some();
    assert_eq!(asked.iter().map(asks).collect::<Vec<_>>(), [true, false]);
}
