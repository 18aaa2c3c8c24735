//! The model clients against a provider on real sockets: the requests that they send, and every
//! fault of an answer, on both wires.

use std::sync::Arc;
use std::time::Duration;

use callsheet::context::provider::server::ContextWork;
use callsheet::context::sending::validity::{self, Last, Rules};
use callsheet::context::view::View;
use callsheet::id::{AgentId, Name};
use callsheet::message::{Block, Json, Message, Role, StopReason, ToolCall, Usage};
use callsheet::model::anthropic::{Anthropic, CacheFor};
use callsheet::model::http::Endpoint;
use callsheet::model::openai::{KeyHeader, MaxTokensField, OpenAi, OpenAiProfile};
use callsheet::model::{Client, Delta, ErrorClass, ModelError, Rendering, Reply, Request};
use callsheet::spec::capability::Declared;
use callsheet::spec::{ModelSpec, Thinking, ThinkingMode, fallback_cooldown};
use callsheet::tool::ToolSpec;
use callsheet::turn::Effect;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Barrier;

use crate::support::answer::{Answer, Fault, FaultAt};
use crate::support::asked::{Asked, Wire};
use crate::support::provider::Provider;

/// Time to wait for an event that must not happen: longer than any answer on the loopback interface
/// takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Deadline for an event that must happen.
const SHORT: Duration = Duration::from_millis(60);

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn spec() -> ModelSpec {
    ModelSpec {
        name: name("default"),
        provider: name("main"),
        model: "big-1".to_owned(),
        context_window: 200_000,
        max_output_tokens: 512,
        temperature: None,
        top_p: None,
        reasoning_effort: None,
        seed: None,
        price: None,
        thinking: Thinking::Bound,
        thinking_mode: None,
        media: Vec::new(),
        fallbacks: Vec::new(),
        fallback_cooldown: fallback_cooldown(),
        capabilities: Declared::default(),
        extra_body: None,
    }
}

fn tool() -> ToolSpec {
    ToolSpec {
        name: name("bash"),
        description: "Runs a \"command\".".to_owned(),
        input_schema: Json::encode(&json!({"type": "object", "properties": {}})),
        effect: Effect::Once,
        reads_only: false,
    }
}

pub(crate) fn endpoint(url: String) -> Endpoint {
    let mut endpoint = Endpoint::new(url).with_key("sk-test");
    endpoint.first_byte_timeout = LONG;
    endpoint.idle_timeout = LONG;
    endpoint
}

pub(crate) fn client(wire: Wire, endpoint: Endpoint) -> Box<dyn Client> {
    match wire {
        Wire::Anthropic => Box::new(Anthropic::new(endpoint).expect("a client")),
        Wire::OpenAi => {
            Box::new(OpenAi::new(endpoint, OpenAiProfile::default()).expect("a client"))
        }
    }
}

fn request(model: &dyn Client, spec: &ModelSpec, system: &str, messages: &[Message]) -> Request {
    let mut view = View::default();
    for message in messages {
        view.push(Json::encode(message)).expect("a message");
    }
    let rules = Rules { last: Last::Either, tools: &[name("bash")], ..Rules::default() };
    let sendable = validity::check(&view, None, &rules).expect("a view that can be sent");
    Request {
        agent: name("reader"),
        agent_id: AgentId::from_text("survey"),
        turn: 1,
        head: model.head(spec, system, &[tool()]),
        pieces: Rendering::default().render(&sendable, model, &[]),
        max_output_tokens: spec.max_output_tokens,
        context: ContextWork::Nothing,
        no_calls: false,
        answer_schema: None,
    }
}

pub(crate) async fn call(model: &dyn Client) -> Result<Reply, ModelError> {
    let request = request(model, &spec(), "Be brief.", &[Message::user("Hello")]);
    model.call(request, &mut |_| {}).await
}

/// Returns the reply to one call that the provider answers with this.
pub(crate) async fn ask(wire: Wire, answer: Answer) -> Result<Reply, ModelError> {
    let provider = Provider::script(vec![answer]).await;
    let result = call(&*client(wire, endpoint(provider.url_for(wire)))).await;
    assert_eq!(provider.count(), 1, "one attempt a call");
    result
}

fn text_and_tool() -> Answer {
    Answer::text("Looking at it.").and_tool("bash", json!({"command": "ls -l"}))
}

fn call_block(id: &str) -> Block {
    let input = Json::encode(&json!({"command": "ls -l"}));
    Block::ToolUse(ToolCall { id: id.to_owned(), name: "bash".to_owned(), input })
}

/// The message of [`text_and_tool`] as the first answer of a provider.
pub(crate) fn expected(wire: Wire) -> Message {
    let id = if wire == Wire::Anthropic { "toolu_1_1" } else { "call_1_1" };
    let content = vec![Block::Text("Looking at it.".to_owned()), call_block(id)];
    Message { role: Role::Assistant, content }
}

#[tokio::test]
async fn a_reply_arrives_whole_and_is_told_as_it_comes() {
    for wire in Wire::BOTH {
        let cached = Usage { input: 40, output: 9, cache_read: 60, cache_write: 0 };
        let answer = text_and_tool().costing(cached).paced(5, Duration::from_millis(1));
        let provider = Provider::script(vec![answer]).await;
        let model = client(wire, endpoint(provider.url_for(wire)));
        let request = request(&*model, &spec(), "", &[Message::user("Hello")]);
        let mut told = Vec::new();
        let mut sink = |delta: Delta<'_>| match delta {
            Delta::Text(text) => told.push(text.to_owned()),
            Delta::Tool(tool) => told.push(format!("<{tool}>")),
            Delta::Taken(_) | Delta::Spent(_) | Delta::Alive => {}
        };
        let reply = model.call(request, &mut sink).await.expect("a reply");
        assert_eq!(reply, Reply::new(expected(wire), StopReason::ToolUse, cached));
        assert_eq!(told, ["Looki", "ng at", " it.", "<bash>"], "{wire:?}");
    }
}

#[tokio::test]
async fn thinking_is_kept_where_the_wire_has_it() {
    let answer = Answer::default().and_thinking("hm", "sig").and_text("So.");
    let reply = ask(Wire::Anthropic, answer.clone()).await.expect("a reply");
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "sig"});
    let blocks = [Block::Other(Json::encode(&thinking)), Block::Text("So.".to_owned())];
    assert_eq!(reply.message.content, blocks);
    let reply = ask(Wire::OpenAi, answer).await.expect("a reply");
    let kept = json!({"type": "chat_reasoning", "message": {"reasoning_content": "hm"}});
    let blocks = [Block::Other(Json::encode(&kept)), Block::Text("So.".to_owned())];
    assert_eq!(reply.message.content, blocks);
}

#[tokio::test]
async fn framing_and_noise_do_not_change_a_reply() {
    for wire in Wire::BOTH {
        let variants = [
            text_and_tool().chunked(1),
            text_and_tool().chunked(7).with(Fault::Crlf),
            text_and_tool().with(Fault::Noise),
            text_and_tool().with(Fault::Noise).chunked(1),
            text_and_tool().with(Fault::DuplicateIndex),
            text_and_tool().after(Duration::from_millis(5)),
        ];
        for answer in variants {
            let shown = format!("{wire:?} {answer:?}");
            let reply = ask(wire, answer).await.expect(&shown);
            assert_eq!(
                (reply.message, reply.stop),
                (expected(wire), StopReason::ToolUse),
                "{shown}"
            );
        }
    }
}

#[tokio::test]
async fn refusals_by_status_are_classified() {
    let too_long = ErrorClass::ContextTokens { have: Some(214_291), max: Some(200_000) };
    let with_output = ErrorClass::ContextPlusOutput { input: Some(186_433), limit: Some(200_000) };
    let web_page = Fault::Http {
        status: 502,
        headers: vec![("content-type".to_owned(), "text/html".to_owned())],
        body: "<p>429 prompt is too long</p>".repeat(10_000),
    };
    let cases = [
        (Fault::RateLimited(None), [429, 429], ErrorClass::RateLimited),
        (Fault::NoQuota, [429, 429], ErrorClass::QuotaExhausted),
        (Fault::ServerError, [500, 500], ErrorClass::ServerError),
        (Fault::TooLong { have: 214_291, max: 200_000 }, [400, 400], too_long),
        (
            Fault::TooLongWithOutput { input: 186_433, output: 20_000, max: 200_000 },
            [400, 400],
            with_output,
        ),
        (Fault::Pairing, [400, 400], ErrorClass::Pairing),
        (Fault::TooManyBytes, [413, 413], ErrorClass::RequestBytes),
        (Fault::BadKey, [401, 401], ErrorClass::Auth),
        (web_page, [502, 502], ErrorClass::ServerError),
    ];
    for (fault, statuses, class) in cases {
        for (wire, status) in Wire::BOTH.into_iter().zip(statuses) {
            let error = ask(wire, Answer::fault(fault.clone())).await.expect_err("a refusal");
            let shown = format!("{wire:?} {class:?} {}", error.message);
            assert_eq!((error.class, error.status), (class, Some(status)), "{shown}");
            assert_eq!(error.is_retryable(), class.is_retryable(), "{shown}");
            assert!(!error.message.is_empty() && error.message.len() < 2000, "{shown}");
        }
    }
    let error = ask(Wire::Anthropic, Answer::fault(Fault::Overloaded)).await.expect_err("529");
    assert_eq!((error.class, error.status), (ErrorClass::Overloaded, Some(529)));
    let error = ask(Wire::OpenAi, Answer::fault(Fault::Overloaded)).await.expect_err("503");
    assert_eq!((error.class, error.status), (ErrorClass::ServerError, Some(503)));
}

#[tokio::test]
async fn the_headers_say_when_to_try_again() {
    for wire in Wire::BOTH {
        let wait = Some("1.5".to_owned());
        let error = ask(wire, Answer::fault(Fault::RateLimited(wait))).await.expect_err("429");
        assert_eq!(error.retry_after, Some(Duration::from_millis(1500)));
        let headers = [("retry-after-ms", "20"), ("retry-after", "9"), ("x-should-retry", "false")];
        let headers = headers.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let fault = Fault::Http { status: 503, headers, body: "busy".to_owned() };
        let error = ask(wire, Answer::fault(fault)).await.expect_err("503");
        assert_eq!(error.retry_after, Some(Duration::from_millis(20)));
        assert_eq!((error.should_retry, error.is_retryable()), (Some(false), false));
    }
}

#[tokio::test]
async fn an_answer_without_a_stream_is_no_reply() {
    for wire in Wire::BOTH {
        let http = |status, body: &str| {
            Answer::fault(Fault::Http { status, headers: Vec::new(), body: body.to_owned() })
        };
        let error = ask(wire, http(200, r#"{"id":"x"}"#)).await.expect_err("no stream");
        assert_eq!((error.class, error.status), (ErrorClass::Fatal, Some(200)), "{error}");
        let body = r#"{"error":{"type":"overloaded_error","message":"busy"}}"#;
        let error = ask(wire, http(200, body)).await.expect_err("an error object");
        assert_eq!(error.class, ErrorClass::Overloaded);
        let error = ask(wire, http(404, "")).await.expect_err("not found");
        assert_eq!((error.class, error.status), (ErrorClass::NotFound, Some(404)));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for wire in Wire::BOTH {
        let elsewhere = Provider::script(vec![Answer::text("stolen")]).await;
        let location = format!("{}/v1/messages", elsewhere.base_url());
        let headers = vec![("location".to_owned(), location)];
        let fault = Fault::Http { status: 307, headers, body: String::new() };
        let error = ask(wire, Answer::fault(fault)).await.expect_err("a redirect");
        assert_eq!((error.class, error.status), (ErrorClass::Fatal, Some(307)));
        assert_eq!(elsewhere.count(), 0, "the key went to another host");
    }
}

#[tokio::test]
async fn nobody_there_is_a_connection_error() {
    for wire in Wire::BOTH {
        let provider = Provider::script(vec![Answer::text("x")]).await;
        let model = client(wire, endpoint(provider.url_for(wire)));
        call(&*model).await.expect("a reply");
        let origin = provider.base_url();
        drop(provider);
        // Dropping only asks the provider to stop, so the first tries may still be answered.
        let gone = async {
            loop {
                match call(&*model).await {
                    Err(error) if error.message.contains("no connection") => break error,
                    Err(_) | Ok(_) => tokio::task::yield_now().await,
                }
            }
        };
        let error = tokio::time::timeout(LONG, gone).await.expect("the provider stops");
        assert_eq!((error.class, error.status), (ErrorClass::Connection, None));
        assert!(error.message.contains(&origin) && error.is_retryable(), "{error}");
    }
}

#[tokio::test]
async fn silence_ends_a_call() {
    for wire in Wire::BOTH {
        for fault in [Fault::StallBeforeHead, Fault::StallBeforeFirstByte] {
            let provider = Provider::script(vec![Answer::fault(fault)]).await;
            let mut endpoint = endpoint(provider.url_for(wire));
            endpoint.first_byte_timeout = SHORT;
            let error = call(&*client(wire, endpoint)).await.expect_err("silence");
            assert_eq!(error.class, ErrorClass::IdleTimeout, "{error}");
        }
        let stall = text_and_tool().with(Fault::Stall(FaultAt::InFirstBlock));
        let provider = Provider::script(vec![stall]).await;
        let mut endpoint = endpoint(provider.url_for(wire));
        endpoint.idle_timeout = SHORT;
        let error = call(&*client(wire, endpoint)).await.expect_err("silence");
        assert_eq!(error.class, ErrorClass::IdleTimeout, "{error}");
    }
}

#[tokio::test]
async fn a_reply_that_becomes_longer_is_not_cut_by_a_clock() {
    for wire in Wire::BOTH {
        // Each piece comes in time, and all of them in twice the limit.
        let long = Answer::text("x".repeat(20)).paced(1, Duration::from_millis(100));
        let provider = Provider::script(vec![long]).await;
        let mut endpoint = endpoint(provider.url_for(wire));
        endpoint.request_timeout = Some(Duration::from_secs(1));
        let began = std::time::Instant::now();
        let reply = call(&*client(wire, endpoint)).await.expect("a reply");
        assert_eq!(reply.message.text(), "x".repeat(20), "{wire:?}");
        assert!(began.elapsed() > Duration::from_secs(1));
    }
}

#[tokio::test]
async fn signs_of_life_alone_come_to_an_end() {
    for (wire, sign) in [
        (Wire::Anthropic, "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
        (Wire::OpenAi, "data: {\"choices\":[{\"index\":0,\"delta\":{}}]}\n\n"),
        (Wire::OpenAi, ": processing\n\n"),
    ] {
        let mut provider = raw(sign).await;
        provider.request_timeout = Some(5 * SHORT);
        let error = call(&*client(wire, provider)).await.expect_err("nothing is written");
        assert_eq!(error.class, ErrorClass::IdleTimeout, "{error}");
        assert!(error.message.contains("nothing was added to the reply"), "{error}");
    }
}

/// A server that repeats this sign of life until the client leaves.
async fn raw(sign: &'static str) -> Endpoint {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut asked = vec![0; 64 * 1024];
        let _ = stream.read(&mut asked).await;
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let mut sent = stream.write_all(head.as_bytes()).await;
        while sent.is_ok() {
            sent = stream.write_all(sign.as_bytes()).await;
            tokio::time::sleep(SHORT / 20).await;
        }
    });
    endpoint(format!("http://{address}"))
}

fn amid(place: FaultAt) -> [(Fault, ErrorClass); 4] {
    [
        (Fault::Stall(place), ErrorClass::IdleTimeout),
        (Fault::Cut(place), ErrorClass::Connection),
        (Fault::Junk(place), ErrorClass::ServerError),
        (Fault::ErrorEvent(place), ErrorClass::Overloaded),
    ]
}

#[tokio::test]
async fn a_stream_that_breaks_before_anything_completed_is_an_error() {
    for wire in Wire::BOTH {
        for (fault, class) in amid(FaultAt::InFirstBlock) {
            let provider = Provider::script(vec![text_and_tool().with(fault.clone())]).await;
            let mut endpoint = endpoint(provider.url_for(wire));
            if matches!(fault, Fault::Stall(_)) {
                endpoint.idle_timeout = SHORT;
            }
            let error = call(&*client(wire, endpoint)).await.expect_err("broken");
            assert_eq!(error.class, class, "{wire:?} {fault:?} {error}");
            assert!(error.is_retryable());
        }
    }
}

#[tokio::test]
async fn what_completed_before_a_stream_broke_is_kept() {
    for wire in Wire::BOTH {
        for (fault, _) in amid(FaultAt::InSecondBlock) {
            let provider = Provider::script(vec![text_and_tool().with(fault.clone())]).await;
            let mut endpoint = endpoint(provider.url_for(wire));
            if matches!(fault, Fault::Stall(_)) {
                endpoint.idle_timeout = SHORT;
            }
            let reply = call(&*client(wire, endpoint)).await.expect("what completed");
            assert_eq!(reply.message, Message::assistant("Looking at it."), "{wire:?} {fault:?}");
            let StopReason::Interrupted(reason) = reply.stop else {
                panic!("{wire:?} {fault:?}: {:?}", reply.stop);
            };
            assert!(!reason.is_empty());
            assert!(reply.usage.output > 0, "{:?}", reply.usage);
            // Anthropic counts the input at the start, OpenAI's wire at the end.
            assert_eq!(reply.usage.input > 0, wire == Wire::Anthropic, "{:?}", reply.usage);
        }
    }
}

#[tokio::test]
async fn a_fragment_for_nothing_breaks_the_stream() {
    let call_only = Answer::tool("bash", json!({"command": "ls"})).with(Fault::WrongIndex);
    for wire in Wire::BOTH {
        let error = ask(wire, call_only.clone()).await.expect_err("broken");
        assert_eq!(error.class, ErrorClass::ServerError, "{error}");
    }
}

#[tokio::test]
async fn unusual_ends_are_told_apart() {
    for wire in Wire::BOTH {
        let reply = ask(wire, Answer::fault(Fault::Empty)).await.expect("an empty reply");
        assert_eq!((reply.message.content.len(), reply.stop), (0, StopReason::EndTurn));

        let refusal = Answer::fault(Fault::Refusal("I must not.".to_owned()));
        let reply = ask(wire, refusal).await.expect("a refusal");
        assert_eq!(reply.stop, StopReason::Refusal(Some("I must not.".to_owned())));

        let reply = ask(wire, text_and_tool().with(Fault::CutByLimit)).await.expect("a cut reply");
        assert_eq!(reply.message, Message::assistant("Looking at it."));
        assert_eq!(reply.stop, StopReason::MaxTokens);

        let reply = ask(wire, Answer::text("x").stopping("max_tokens")).await.expect("a reply");
        assert_eq!((reply.message, reply.stop), (Message::assistant("x"), StopReason::MaxTokens));

        let reply = ask(wire, text_and_tool().with(Fault::NoUsage)).await.expect("a reply");
        assert_eq!(reply.stop, StopReason::ToolUse);
        assert_eq!(reply.usage.context(), 0, "what was not counted is for the caller to say");

        let reply = ask(wire, text_and_tool().with(Fault::NoEnd)).await.expect("a reply");
        assert_eq!(reply.message, expected(wire));
        assert_eq!(reply.stop, StopReason::ToolUse);
    }
}

/// The first request that a call with this model makes.
async fn sent(wire: Wire, spec: &ModelSpec, system: &str, messages: &[Message]) -> Asked {
    let provider = Provider::script(vec![Answer::text("ok")]).await;
    let mut endpoint = endpoint(provider.url_for(wire) + "/");
    endpoint.headers.push(("X-Team".to_owned(), "platform".to_owned()));
    let model = client(wire, endpoint);
    let request = request(&*model, spec, system, messages);
    model.call(request, &mut |_| {}).await.expect("a reply");
    provider.requests().remove(0)
}

fn tuned() -> ModelSpec {
    ModelSpec {
        temperature: Some(0.5),
        top_p: Some(0.9),
        reasoning_effort: Some("high".to_owned()),
        seed: Some(7),
        ..spec()
    }
}

#[tokio::test]
async fn an_anthropic_request_is_what_the_api_asks_for() {
    let asked = sent(Wire::Anthropic, &tuned(), "Be \"brief\".", &[Message::user("Hi")]).await;
    assert_eq!(asked.path, "/v1/messages");
    assert_eq!(asked.header("x-api-key"), Some("sk-test"));
    assert_eq!(asked.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!(asked.header("x-team"), Some("platform"));
    assert_eq!(asked.header("transfer-encoding"), None);
    assert_eq!(asked.header("content-length"), Some(&*asked.body.len().to_string()));
    let mark = json!({"type": "ephemeral"});
    let expected = json!({
        "model": "big-1", "stream": true, "temperature": 0.5, "top_p": 0.9,
        "output_config": {"effort": "high"},
        "system": [{"type": "text", "text": "Be \"brief\".", "cache_control": mark}],
        "tools": [{
            "name": "bash", "description": "Runs a \"command\".",
            "input_schema": {"type": "object", "properties": {}},
        }],
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "Hi", "cache_control": mark},
        ]}],
        "max_tokens": 512,
    });
    assert_eq!(asked.json(), expected);
    let asked = sent(Wire::Anthropic, &spec(), "", &[Message::user("Hi")]).await;
    let body = asked.json();
    assert_eq!(body.get("system"), None, "an empty text block is refused");
    assert_eq!(body["tools"][0]["cache_control"], mark);
}

#[tokio::test]
async fn an_openai_request_is_what_the_api_asks_for() {
    let asked = sent(Wire::OpenAi, &tuned(), "Be brief.", &[Message::user("Hi")]).await;
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.header("authorization"), Some("Bearer sk-test"));
    assert_eq!(asked.header("x-team"), Some("platform"));
    assert_eq!(asked.header("content-length"), Some(&*asked.body.len().to_string()));
    let expected = json!({
        "model": "big-1", "stream": true, "stream_options": {"include_usage": true},
        "temperature": 0.5, "top_p": 0.9, "seed": 7, "reasoning_effort": "high",
        "tools": [{"type": "function", "function": {
            "name": "bash", "description": "Runs a \"command\".",
            "parameters": {"type": "object", "properties": {}},
        }}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        "max_tokens": 512,
    });
    assert_eq!(asked.json(), expected);
    let body = sent(Wire::OpenAi, &spec(), "", &[Message::user("Hi")]).await.json();
    assert_eq!(body["messages"], json!([{"role": "user", "content": "Hi"}]));
}

#[tokio::test]
async fn fields_that_only_the_server_knows_are_sent_as_they_are() {
    let extra = json!({"thinking": {"type": "enabled", "budget_tokens": 256}, "top_k": 20});
    let spec = ModelSpec { extra_body: Some(Json::encode(&extra)), ..spec() };
    for wire in Wire::BOTH {
        let plain = ModelSpec { extra_body: None, ..spec.clone() };
        let mut expected = sent(wire, &plain, "Be brief.", &[Message::user("Hi")]).await.json();
        let body = sent(wire, &spec, "Be brief.", &[Message::user("Hi")]).await.json();
        expected["thinking"] = extra["thinking"].clone();
        expected["top_k"] = extra["top_k"].clone();
        assert_eq!(body, expected, "{wire:?}");
    }
}

#[tokio::test]
async fn a_profile_changes_what_its_server_needs() {
    let provider = Provider::script(vec![Answer::text("ok")]).await;
    let profile = OpenAiProfile {
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        include_usage: false,
        key_header: KeyHeader::ApiKey,
        sends_cache_key: true,
        ..OpenAiProfile::default()
    };
    let url = format!("{}/?api-version=v1", provider.url_for(Wire::OpenAi));
    let model = OpenAi::new(endpoint(url), profile).expect("a client");
    call(&model).await.expect("a reply");
    let asked = provider.requests().remove(0);
    let body = asked.json();
    assert_eq!(asked.path, "/v1/chat/completions?api-version=v1");
    assert_eq!((asked.header("authorization"), asked.header("api-key")), (None, Some("sk-test")));
    assert_eq!((body.get("max_tokens"), body.get("stream_options")), (None, None));
    assert_eq!(body["max_completion_tokens"], 512);
    let key = body["prompt_cache_key"].as_str().expect("a key");
    assert!(key.starts_with("callsheet-") && key.len() == 26, "{key}");
    let other = model.head(&spec(), "Another prompt.", &[]);
    assert!(!String::from_utf8_lossy(&other.0).contains(key), "another prefix has another key");
    let changed = model.head_with_context(&spec(), "Another prompt.", "The time is 9.", &[]);
    let key_of = |head: &callsheet::model::Head| {
        let text = String::from_utf8(head.0.to_vec()).expect("text");
        text.split("prompt_cache_key\":\"").nth(1).map(|rest| rest[..26].to_owned())
    };
    assert_eq!(key_of(&changed), key_of(&other), "what changes is no part of the prefix");
}

#[tokio::test]
async fn thinking_and_an_hour_of_cache_are_asked_for() {
    let modes = [
        (ThinkingMode::Adaptive, json!({"type": "adaptive"})),
        (
            ThinkingMode::Enabled { budget_tokens: 2_000 },
            json!({"type": "enabled", "budget_tokens": 2_000}),
        ),
        (ThinkingMode::Disabled, json!({"type": "disabled"})),
    ];
    for (mode, expected) in modes {
        let spec = ModelSpec { thinking_mode: Some(mode), ..spec() };
        let body = sent(Wire::Anthropic, &spec, "Be brief.", &[Message::user("Hi")]).await.json();
        assert_eq!(body["thinking"], expected);
    }
    let provider = Provider::script(vec![Answer::text("ok")]).await;
    let endpoint = endpoint(provider.url_for(Wire::Anthropic));
    let model = Anthropic::new(endpoint).expect("a client").caching_for(CacheFor::Hour);
    let request = request(&model, &spec(), "Be brief.", &[Message::user("Hi")]);
    model.call(request, &mut |_| {}).await.expect("a reply");
    let body = provider.requests().remove(0).json();
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    assert_eq!(body["system"][0]["cache_control"], mark);
    assert_eq!(body["messages"][0]["content"][0]["cache_control"], mark);
}

/// A conversation of many turns: calls and results, some failed, and some large.
fn conversation(turns: usize) -> Vec<Message> {
    let mut messages = vec![Message::user("Read everything.")];
    for turn in 0..turns {
        let calls = 1 + turn % 4;
        let id = |call: usize| format!("t{turn}_{call}");
        let text = Block::Text(format!("Turn {turn}."));
        let content = std::iter::once(text).chain((0..calls).map(|call| call_block(&id(call))));
        messages.push(Message { role: Role::Assistant, content: content.collect() });
        let size = if turn % 10 == 9 { 100_000 } else { 50 };
        let result = |call: usize| {
            let is_error = call == 2;
            let content = "é\n".repeat(size / 2);
            let mut result =
                json!({"type": "tool_result", "tool_use_id": id(call), "content": content});
            if is_error {
                result["is_error"] = json!(true);
            }
            serde_json::from_value(result).expect("a block")
        };
        messages.push(Message { role: Role::User, content: (0..calls).map(result).collect() });
    }
    messages
}

/// Takes the cache marks out of a value and counts them.
fn take_marks(value: &mut Value) -> usize {
    match value {
        Value::Object(fields) => {
            let own = usize::from(fields.shift_remove("cache_control").is_some());
            own + fields.values_mut().map(take_marks).sum::<usize>()
        }
        Value::Array(items) => items.iter_mut().map(take_marks).sum(),
        _ => 0,
    }
}

#[tokio::test]
async fn a_long_conversation_is_sent_whole_on_both_wires() {
    let messages = conversation(40);
    for wire in Wire::BOTH {
        let asked = sent(wire, &spec(), "Be brief.", &messages).await;
        assert_eq!(asked.header("content-length"), Some(&*asked.body.len().to_string()));
        assert_eq!(asked.messages(), messages, "{wire:?}");
        assert_eq!((asked.model(), asked.system()), ("big-1".to_owned(), "Be brief.".to_owned()));
        assert_eq!(asked.tools(), ["bash"]);
        let mut body = asked.json();
        let marks = if wire == Wire::Anthropic { 4 } else { 0 };
        assert_eq!(take_marks(&mut body), marks, "{wire:?}");
        if wire == Wire::Anthropic {
            let expected = serde_json::to_value(&messages).expect("JSON");
            assert_eq!(body["messages"], expected);
        }
    }
}

#[tokio::test]
async fn a_longer_request_begins_with_the_bytes_of_the_one_before() {
    let messages = conversation(12);
    for wire in Wire::BOTH {
        let mut before = String::new();
        for upto in (1..messages.len()).step_by(2) {
            let body = sent(wire, &spec(), "Be brief.", &messages[..upto]).await.body;
            let text = std::str::from_utf8(&body).expect("text");
            let mark = r#","cache_control":{"type":"ephemeral"}"#;
            assert!(text.matches(mark).count() <= 4);
            // The marks are no part of the prefix that a provider compares.
            let text = text.replace(mark, "");
            assert!(text.starts_with(&before), "{wire:?} {upto}");
            let (shared, _) = text.rsplit_once(r#"],"max_tokens""#).expect("the tail");
            assert!(shared.len() > before.len());
            before = shared.to_owned();
        }
    }
}

#[tokio::test]
async fn calls_in_turn_share_a_connection() {
    for wire in Wire::BOTH {
        let provider = Provider::script(vec![Answer::text("ok")]).await;
        let model = client(wire, endpoint(provider.url_for(wire)));
        for _ in 0..10 {
            call(&*model).await.expect("a reply");
        }
        let asked = provider.requests();
        assert!(asked.iter().all(|asked| asked.connection == 1), "{wire:?}");
        assert!(asked.is_sorted_by_key(|asked| (asked.count, asked.at)));
        assert_eq!(asked.len(), 10);
    }
}

#[tokio::test]
async fn hundreds_of_calls_at_once_do_not_wait_for_each_other() {
    for wire in Wire::BOTH {
        // None is answered before all have been asked.
        let barrier = Arc::new(Barrier::new(300));
        let provider =
            Provider::start(move |_: &Asked| Answer::text("ok").together(&barrier)).await;
        provider.forget_requests();
        let model = client(wire, endpoint(provider.url_for(wire)));
        let calls = futures_util::future::join_all((0..300).map(|_| call(&*model)));
        let replies = tokio::time::timeout(LONG, calls).await.expect("no call waits for another");
        assert!(replies.iter().all(Result::is_ok), "{wire:?}");
        assert_eq!((provider.count(), provider.requests().len()), (300, 0));
    }
}

#[tokio::test]
async fn an_error_that_repeats_the_key_does_not_show_it() {
    for wire in Wire::BOTH {
        let body = r#"{"error":{"type":"authentication_error","message":"bad key sk-test"}}"#;
        let fault = Fault::Http { status: 401, headers: Vec::new(), body: body.to_owned() };
        let error = ask(wire, Answer::fault(fault)).await.expect_err("a refusal");
        assert!(!error.message.contains("sk-test"), "{error}");
    }
}

#[tokio::test]
async fn what_changes_in_the_system_prompt_stands_behind_what_is_cached() {
    for wire in Wire::BOTH {
        let provider = Provider::script(vec![Answer::text("yes")]).await;
        let model = client(wire, endpoint(provider.url_for(wire)));
        let mut request = request(&*model, &spec(), "Be brief.", &[Message::user("Hello")]);
        let tools = [tool()];
        request.head = model.head_with_context(&spec(), "Be brief.", "[user]: Hi", &tools);
        model.call(request, &mut |_| {}).await.expect("a reply");
        let body: Value = serde_json::from_slice(&provider.requests()[0].body).expect("JSON");
        match wire {
            Wire::Anthropic => {
                let mark = json!({"type": "ephemeral"});
                let stable = json!({"type": "text", "text": "Be brief.", "cache_control": mark});
                let block = json!({"type": "text", "text": "[user]: Hi"});
                assert_eq!(body["system"], json!([stable, block]));
            }
            Wire::OpenAi => {
                let system = |text: &str| json!({"role": "system", "content": text});
                let messages = body["messages"].as_array().expect("messages");
                assert_eq!(messages[..2], [system("Be brief."), system("[user]: Hi")]);
            }
        }
    }
}

#[tokio::test]
async fn a_request_that_may_call_nothing_keeps_its_tools() {
    for (wire, choice) in
        [(Wire::Anthropic, json!({"type": "none"})), (Wire::OpenAi, json!("none"))]
    {
        let provider = Provider::script(vec![Answer::text("a"), Answer::text("b")]).await;
        let model = client(wire, endpoint(provider.url_for(wire)));
        for no_calls in [false, true] {
            let request = request(&*model, &spec(), "", &[Message::user("Hello")]);
            model.call(Request { no_calls, ..request }, &mut |_| {}).await.expect("a reply");
        }
        let bodies: Vec<Value> = provider.requests().iter().map(Asked::json).collect();
        assert_eq!((&bodies[0]["tool_choice"], &bodies[1]["tool_choice"]), (&Value::Null, &choice));
        assert_eq!(bodies[0]["tools"], bodies[1]["tools"], "{wire:?}");
    }
}
