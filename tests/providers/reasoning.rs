//! Reasoning that a server of chat completions sends beside its replies, and wants back.

use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use serde_json::{Value, json};

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::faults::{FakeTool, Setup};
use crate::support::provider::Provider;

/// A stream of chat completions of these deltas.
fn stream(deltas: &[Value], finish: &str) -> Answer {
    let chunk = |delta: &Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let mut body: String = deltas.iter().map(|delta| chunk(delta, Value::Null)).collect();
    body.push_str(&chunk(&json!({}), finish.into()));
    body.push_str("data: [DONE]\n\n");
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    Answer::fault(Fault::Http { status: 200, headers, body })
}

/// The fields that three servers send: two texts, parts with a signature, and the signature of a call.
fn kinds() -> [(Vec<Value>, Value, Value); 3] {
    let call = |extra: Value| {
        let mut call =
            json!({"index": 0, "id": "c1", "function": {"name": "note", "arguments": "{}"}});
        if !extra.is_null() {
            call["extra_content"] = extra;
        }
        json!({"tool_calls": [call]})
    };
    let part = |text: &str| json!({"type": "reasoning.text", "text": text, "index": 0});
    let signed = json!({"type": "reasoning.text", "text": "", "index": 0, "signature": "s+/="});
    let signature = json!({"google": {"thought_signature": "A+/="}});
    [
        (
            vec![
                json!({"reasoning_content": "first "}),
                json!({"reasoning_content": "look"}),
                call(Value::Null),
            ],
            json!({"reasoning_content": "first look"}),
            Value::Null,
        ),
        (
            vec![
                json!({"reasoning": "lo", "reasoning_details": [part("lo")]}),
                json!({"reasoning": "ok", "reasoning_details": [part("ok")]}),
                json!({"reasoning_details": [signed]}),
                call(Value::Null),
            ],
            json!({"reasoning_details": [
                {"type": "reasoning.text", "text": "look", "index": 0, "signature": "s+/="}
            ]}),
            Value::Null,
        ),
        (vec![call(signature.clone())], json!({}), signature),
    ]
}

fn graph(provider: &Provider, more: &str) -> String {
    format!(
        "[providers.main]\nkind = \"openai\"\nbase_url = \"{}\"\n{more}\n\
         [models.main]\nprovider = \"main\"\nmodel = \"m\"\n\
         [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"note\"]\n\
         [tasks.t1]\nagent = \"worker\"\nprompt = \"Go.\"\n",
        provider.url_for(Wire::OpenAi)
    )
}

/// The assistant's message in the second request.
async fn sent_back(deltas: &[Value], more: &str) -> Value {
    let answers = vec![stream(deltas, "tool_calls"), stream(&[json!({"content": "done"})], "stop")];
    let provider = Provider::script(answers).await;
    let note = FakeTool::new("note", Effect::Pure, |_, _| async { Ok(ToolOutput::ok("noted")) });
    let ended = Setup::new().tool(&note).run(&graph(&provider, more)).await;
    assert_eq!(ended.output("t1"), "done");
    let requests: Vec<Asked> = provider.requests();
    requests[1].json()["messages"][2].clone()
}

#[tokio::test]
async fn what_a_server_thought_goes_back_with_the_calls() {
    for (deltas, of_message, of_call) in kinds() {
        let message = sent_back(&deltas, "").await;
        for (name, value) in of_message.as_object().expect("fields") {
            assert_eq!(&message[name], value, "{message}");
        }
        assert_eq!(message["tool_calls"][0]["extra_content"], of_call, "{message}");
        assert_eq!(message.get("reasoning"), None, "the parts have it: {message}");
        let strict = sent_back(&deltas, "send_reasoning = false").await;
        let fields: Vec<_> = strict.as_object().expect("a message").keys().cloned().collect();
        assert_eq!(fields, ["role", "content", "tool_calls"]);
        assert_eq!(strict["tool_calls"][0].get("extra_content"), None);
    }
}

#[tokio::test]
async fn a_reply_of_reasoning_alone_is_asked_to_say_something() {
    let thought = stream(&[json!({"reasoning_content": "hm"})], "stop");
    let provider =
        Provider::script(vec![thought, stream(&[json!({"content": "done"})], "stop")]).await;
    let note = FakeTool::new("note", Effect::Pure, |_, _| async { Ok(ToolOutput::ok("noted")) });
    let ended = Setup::new().tool(&note).run(&graph(&provider, "")).await;
    assert_eq!(ended.output("t1"), "done");
    let second = provider.requests()[1].json();
    let roles = second["messages"].as_array().expect("messages").iter().map(|m| m["role"].clone());
    assert_eq!(roles.collect::<Vec<_>>(), ["system", "user", "assistant", "user"]);
    assert_eq!(second["messages"][2]["reasoning_content"], "hm");
}
