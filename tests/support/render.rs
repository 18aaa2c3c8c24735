//! The form of an answer on the wire: HTTP framing, and the event streams of both formats.
//!
//! The error texts are those of the wire reference, word for word.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use callsheet::message::Usage;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::answer::{Answer, Fault, FaultAt, Part};
use super::asked::{Asked, Wire};

/// One action of a connection; an answer is a list of them.
#[derive(Debug)]
pub(crate) enum Step {
    Write(Bytes),
    Pause(Duration),
    /// It waits until as many connections wait here as the barrier asks for.
    Gate(Arc<Barrier>),
    /// Nothing more comes, and the connection stays open.
    Stall,
    /// The connection is closed.
    Cut,
}

/// The steps of an answer.
pub(crate) fn render(asked: &Asked, answer: &Answer) -> Vec<Step> {
    match &answer.fault {
        Some(Fault::StallBeforeHead) => vec![Step::Stall],
        Some(Fault::StallBeforeFirstByte) => vec![Step::Write(stream_head()), Step::Stall],
        Some(Fault::Packed(base64)) => {
            let body = STANDARD.decode(base64).expect("base64");
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\
                 content-length: {}\r\n\r\n",
                body.len()
            );
            vec![Step::Write(Bytes::from([head.into_bytes(), body].concat()))]
        }
        Some(fault) => match http_error(asked.wire, fault) {
            Some((status, headers, body)) => {
                vec![Step::Write(whole(status, &headers, &body))]
            }
            None => stream(asked, answer),
        },
        None => stream(asked, answer),
    }
}

/// A whole response with a body of JSON.
pub(crate) fn whole(status: u16, headers: &[(String, String)], body: &str) -> Bytes {
    let mut text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name == "content-type") {
        text.push_str("content-type: application/json\r\n");
    }
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    Bytes::from(format!("{text}\r\n{body}"))
}

fn stream_head() -> Bytes {
    Bytes::from_static(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )
}

type HttpError = (u16, Vec<(String, String)>, String);

/// The answer to a fault that the status reports.
fn http_error(wire: Wire, fault: &Fault) -> Option<HttpError> {
    let mut headers = Vec::new();
    let (status, kind, code, message) = match (wire, fault) {
        (_, Fault::Http { status, headers, body }) => {
            return Some((*status, headers.clone(), body.clone()));
        }
        (_, Fault::RateLimited(wait)) => {
            headers.extend(wait.iter().map(|wait| ("retry-after".to_owned(), wait.clone())));
            let text = "Number of request tokens has exceeded your per-minute rate limit";
            (429, "rate_limit_error", "rate_limit_exceeded", text.to_owned())
        }
        (_, Fault::NoQuota) => {
            let text =
                "You exceeded your current quota, please check your plan and billing details.";
            (429, "insufficient_quota", "insufficient_quota", text.to_owned())
        }
        (Wire::Anthropic, Fault::Overloaded) => {
            (529, "overloaded_error", "", "Overloaded".to_owned())
        }
        (Wire::OpenAi, Fault::Overloaded) => {
            (503, "server_error", "", "The engine is currently overloaded.".to_owned())
        }
        (Wire::Anthropic, Fault::ServerError) => {
            (500, "api_error", "", "Internal server error".to_owned())
        }
        (Wire::OpenAi, Fault::ServerError) => {
            (500, "server_error", "", "The server had an error.".to_owned())
        }
        (Wire::Anthropic, Fault::TooLong { have, max }) => {
            let text = format!("prompt is too long: {have} tokens > {max} maximum");
            (400, "invalid_request_error", "", text)
        }
        (Wire::OpenAi, Fault::TooLong { have, max }) => {
            let text = format!(
                "This model's maximum context length is {max} tokens. However, your messages \
                 resulted in {have} tokens. Please reduce the length of the messages."
            );
            (400, "invalid_request_error", "context_length_exceeded", text)
        }
        (Wire::Anthropic, Fault::TooLongWithOutput { input, output, max }) => {
            let text = format!(
                "input length and `max_tokens` exceed context limit: {input} + {output} > {max}, \
                 decrease input length or `max_tokens` and try again"
            );
            (400, "invalid_request_error", "", text)
        }
        (Wire::OpenAi, Fault::TooLongWithOutput { input, output, max }) => {
            let text = format!(
                "This model's maximum context length is {max} tokens. However, you requested {} \
                 tokens ({input} in the messages, {output} in the completion). Please reduce the \
                 length of the messages or completion.",
                input + output
            );
            (400, "invalid_request_error", "context_length_exceeded", text)
        }
        (Wire::Anthropic, Fault::Pairing) => {
            let text = "messages.2: `tool_use` ids were found without `tool_result` blocks \
                        immediately after: toolu_1";
            (400, "invalid_request_error", "", text.to_owned())
        }
        (Wire::OpenAi, Fault::Pairing) => {
            let text = "An assistant message with 'tool_calls' must be followed by tool messages \
                        responding to each 'tool_call_id'.";
            (400, "invalid_request_error", "", text.to_owned())
        }
        (_, Fault::TooManyBytes) => {
            (413, "request_too_large", "", "Request exceeds the maximum size".to_owned())
        }
        (Wire::Anthropic, Fault::BadKey) => {
            (401, "authentication_error", "", "invalid x-api-key".to_owned())
        }
        (Wire::OpenAi, Fault::BadKey) => {
            let text = "Incorrect API key provided.".to_owned();
            (401, "invalid_request_error", "invalid_api_key", text)
        }
        _ => return None,
    };
    Some((status, headers, error_object(wire, kind, code, &message).to_string()))
}

fn error_object(wire: Wire, kind: &str, code: &str, message: &str) -> Value {
    match wire {
        Wire::Anthropic => json!({
            "type": "error",
            "error": {"type": kind, "message": message},
            "request_id": "req_1",
        }),
        Wire::OpenAi => {
            let code = if code.is_empty() { Value::Null } else { json!(code) };
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
    }
}

/// The events of a reply, and for each place of a fault the number of events before it.
#[derive(Default)]
struct Events {
    list: Vec<String>,
    in_first: usize,
    in_second: usize,
}

impl Events {
    fn place(&self, place: FaultAt) -> usize {
        match place {
            FaultAt::InFirstBlock => self.in_first,
            FaultAt::InSecondBlock => self.in_second,
        }
    }

    /// Notes the place amid part number `at`, whose first content has just been added.
    fn note(&mut self, at: usize) {
        match at {
            0 if self.in_first == 0 => self.in_first = self.list.len(),
            1 if self.in_second == 0 => self.in_second = self.list.len(),
            _ => {}
        }
    }
}

fn stream(asked: &Asked, answer: &Answer) -> Vec<Step> {
    let mut answer = answer.clone();
    if matches!(answer.fault, Some(Fault::Empty | Fault::Refusal(_))) {
        answer.parts.clear();
    }
    let usage = answer.usage.unwrap_or_else(|| {
        let output = answer.parts.len() as u64 * 10;
        Usage { input: asked.body.len() as u64 / 4, output, ..Usage::default() }
    });
    let mut events = match asked.wire {
        Wire::Anthropic => anthropic_events(asked, &answer, usage),
        Wire::OpenAi => openai_events(asked, &answer, usage),
    };
    let mut end = None;
    match &answer.fault {
        Some(Fault::Stall(place)) => {
            events.list.truncate(events.place(*place));
            end = Some(Step::Stall);
        }
        Some(Fault::Cut(place)) => {
            events.list.truncate(events.place(*place));
            end = Some(Step::Cut);
        }
        Some(Fault::Junk(place)) => {
            let at = events.place(*place);
            events.list.insert(at, "data: {\"type\":\"content_block_de\n\n".to_owned());
        }
        Some(Fault::ErrorEvent(place)) => {
            events.list.truncate(events.place(*place));
            let kind = "overloaded_error";
            let error = error_object(asked.wire, kind, kind, "Overloaded").to_string();
            let name = if asked.wire == Wire::Anthropic { "event: error\n" } else { "" };
            events.list.push(format!("{name}data: {error}\n\n"));
        }
        Some(Fault::NoEnd) => {
            events.list.pop();
        }
        Some(Fault::Noise) => add_noise(asked.wire, &mut events.list),
        Some(Fault::Crlf) => {
            for event in &mut events.list {
                *event = event.replace('\n', "\r\n");
            }
        }
        _ => {}
    }
    frame(&answer, events.list, end)
}

/// The steps that send the events: all in one write if there is no pace, else one write for each
/// event.
fn frame(answer: &Answer, events: Vec<String>, end: Option<Step>) -> Vec<Step> {
    let mut steps: Vec<Step> = answer.gate.iter().cloned().map(Step::Gate).collect();
    let mut bytes = stream_head().to_vec();
    if !answer.first_pause.is_zero() {
        steps.push(Step::Write(Bytes::from(std::mem::take(&mut bytes))));
        steps.push(Step::Pause(answer.first_pause));
    }
    if answer.pause.is_zero() {
        add_chunks(&mut bytes, events.concat().as_bytes(), answer.chunk_bytes);
    } else {
        for event in events {
            add_chunks(&mut bytes, event.as_bytes(), answer.chunk_bytes);
            steps.push(Step::Write(Bytes::from(std::mem::take(&mut bytes))));
            steps.push(Step::Pause(answer.pause));
        }
    }
    if end.is_none() {
        bytes.extend_from_slice(b"0\r\n\r\n");
    }
    steps.push(Step::Write(Bytes::from(bytes)));
    steps.extend(end);
    steps
}

fn add_chunks(bytes: &mut Vec<u8>, payload: &[u8], chunk_bytes: usize) {
    let size = if chunk_bytes == 0 { payload.len().max(1) } else { chunk_bytes };
    for chunk in payload.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
}

fn add_noise(wire: Wire, events: &mut Vec<String>) {
    let noise = match wire {
        Wire::Anthropic => {
            ": comment\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n\
             event: later\ndata: {\"type\":\"later\",\"index\":\"x\"}\n\n"
        }
        Wire::OpenAi => {
            ": comment\n\ndata: {\"object\":\"chat.completion.chunk\",\"choices\":null,\
             \"usage\":null,\"obfuscation\":\"abc\"}\n\n"
        }
    };
    let last = events.pop();
    *events = events.drain(..).flat_map(|event| [event, noise.to_owned()]).collect();
    events.insert(0, noise.to_owned());
    events.extend(last);
}

fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// The text in pieces of so many characters.
fn pieces(text: &str, chars: usize) -> Vec<String> {
    if chars == 0 {
        return vec![text.to_owned()];
    }
    let all: Vec<char> = text.chars().collect();
    all.chunks(chars).map(|chunk| chunk.iter().collect()).collect()
}

/// Returns the arguments in two halves, neither of which is JSON; arguments that the output limit
/// cut have no second half.
fn fragments(input: &Value, is_cut: bool) -> Vec<String> {
    let text = input.to_string();
    let (first, second) = text.split_at(text.len() / 2);
    if is_cut { vec![first.to_owned()] } else { vec![first.to_owned(), second.to_owned()] }
}

fn is_cut(answer: &Answer, at: usize) -> bool {
    matches!(answer.fault, Some(Fault::CutByLimit)) && at + 1 == answer.parts.len()
}

fn stop_reason(answer: &Answer) -> &str {
    match &answer.fault {
        Some(Fault::Refusal(_)) => return "refusal",
        Some(Fault::CutByLimit) => return "max_tokens",
        _ => {}
    }
    let calls = answer.parts.iter().any(|part| matches!(part, Part::Tool { .. }));
    answer.stop.as_deref().unwrap_or(if calls { "tool_use" } else { "end_turn" })
}

fn anthropic_events(asked: &Asked, answer: &Answer, usage: Usage) -> Events {
    let mut events = Events::default();
    let count = asked.count;
    let with_usage = !matches!(answer.fault, Some(Fault::NoUsage));
    let start_usage = if with_usage {
        format!(
            r#","usage":{{"input_tokens":{},"cache_read_input_tokens":{},"cache_creation_input_tokens":{},"output_tokens":1}}"#,
            usage.input, usage.cache_read, usage.cache_write
        )
    } else {
        String::new()
    };
    let push = |events: &mut Events, kind: &str, rest: &str| {
        events.list.push(format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n"));
    };
    push(
        &mut events,
        "message_start",
        &format!(
            r#","message":{{"id":"msg_{count}","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null{start_usage}}}"#
        ),
    );
    for (at, part) in answer.parts.iter().enumerate() {
        let index = if matches!(answer.fault, Some(Fault::DuplicateIndex)) { 0 } else { at };
        let delta_index = match answer.fault {
            Some(Fault::WrongIndex) => index + 7,
            _ => index,
        };
        let (block, deltas) = anthropic_part(asked, answer, at, part);
        push(
            &mut events,
            "content_block_start",
            &format!(r#","index":{index},"content_block":{block}"#),
        );
        for delta in deltas {
            let rest = format!(r#","index":{delta_index},"delta":{delta}"#);
            push(&mut events, "content_block_delta", &rest);
            events.note(at);
        }
        push(&mut events, "content_block_stop", &format!(r#","index":{index}"#));
    }
    let stop = stop_reason(answer);
    let details = match &answer.fault {
        Some(Fault::Refusal(text)) => format!(
            r#","stop_details":{{"type":"refusal","category":"c","explanation":{}}}"#,
            quote(text)
        ),
        _ => String::new(),
    };
    let iterations = match answer.iterations.as_slice() {
        [] => String::new(),
        all => format!(r#","iterations":{}"#, json!(all)),
    };
    let usage = match with_usage {
        true => format!(r#","usage":{{"output_tokens":{}{iterations}}}"#, usage.output),
        false => String::new(),
    };
    let context = match answer.applied.as_slice() {
        [] => String::new(),
        all => format!(r#","context_management":{{"applied_edits":{}}}"#, json!(all)),
    };
    let rest = format!(
        r#","delta":{{"stop_reason":"{stop}","stop_sequence":null{details}}}{context}{usage}"#
    );
    push(&mut events, "message_delta", &rest);
    push(&mut events, "message_stop", "");
    events
}

/// Returns the beginning of a block, and its deltas.
fn anthropic_part(asked: &Asked, answer: &Answer, at: usize, part: &Part) -> (String, Vec<String>) {
    match part {
        Part::Text(text) => {
            let deltas = pieces(text, answer.delta_chars).into_iter();
            let delta =
                |text: String| format!(r#"{{"type":"text_delta","text":{}}}"#, quote(&text));
            (r#"{"type":"text","text":""}"#.to_owned(), deltas.map(delta).collect())
        }
        Part::Tool { id, name, input } => {
            let id = id.clone().unwrap_or_else(|| format!("toolu_{}_{at}", asked.count));
            let delta = |text: String| {
                format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, quote(&text))
            };
            let deltas = fragments(input, is_cut(answer, at)).into_iter().map(delta);
            let (id, name) = (quote(&id), quote(name));
            let block = format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{{}}}}"#);
            (block, deltas.collect())
        }
        Part::Thinking { text, signature } => {
            let deltas = vec![
                format!(r#"{{"type":"thinking_delta","thinking":{}}}"#, quote(text)),
                format!(r#"{{"type":"signature_delta","signature":{}}}"#, quote(signature)),
            ];
            (r#"{"type":"thinking","thinking":"","signature":""}"#.to_owned(), deltas)
        }
        Part::Compaction { content } => {
            let content = content.as_deref().map_or("null".to_owned(), quote);
            let delta = format!(
                r#"{{"type":"compaction_delta","content":{content},"encrypted_content":""}}"#
            );
            let block = r#"{"type":"compaction","content":null,"encrypted_content":null}"#;
            (block.to_owned(), vec![delta])
        }
        Part::Whole(block) => (block.clone(), Vec::new()),
    }
}

fn openai_events(asked: &Asked, answer: &Answer, usage: Usage) -> Events {
    let mut events = Events::default();
    let count = asked.count;
    let push = |events: &mut Events, delta: &str, finish: &str| {
        events.list.push(format!(
            "data: {{\"id\":\"chatcmpl-{count}\",\"object\":\"chat.completion.chunk\",\"choices\":\
             [{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}],\"usage\":null}}\n\n"
        ));
    };
    push(&mut events, r#"{"role":"assistant","content":""}"#, "null");
    let mut calls = 0;
    for (at, part) in answer.parts.iter().enumerate() {
        match part {
            Part::Text(text) => {
                for text in pieces(text, answer.delta_chars) {
                    push(&mut events, &format!(r#"{{"content":{}}}"#, quote(&text)), "null");
                    events.note(at);
                }
            }
            Part::Compaction { .. } | Part::Whole(_) => {}
            Part::Thinking { text, .. } => {
                push(&mut events, &format!(r#"{{"reasoning_content":{}}}"#, quote(text)), "null");
                events.note(at);
            }
            Part::Tool { id, name, input } => {
                let index = match answer.fault {
                    Some(Fault::DuplicateIndex) => 0,
                    _ => calls,
                };
                calls += 1;
                let id = id.clone().unwrap_or_else(|| format!("call_{count}_{at}"));
                let (id, name) = (quote(&id), quote(name));
                let head = format!(
                    r#"{{"tool_calls":[{{"index":{index},"id":{id},"type":"function","function":{{"name":{name},"arguments":""}}}}]}}"#
                );
                if !matches!(answer.fault, Some(Fault::WrongIndex)) {
                    push(&mut events, &head, "null");
                    events.note(at);
                }
                for fragment in fragments(input, is_cut(answer, at)) {
                    let fragment = quote(&fragment);
                    let delta = format!(
                        r#"{{"tool_calls":[{{"index":{index},"function":{{"arguments":{fragment}}}}}]}}"#
                    );
                    push(&mut events, &delta, "null");
                }
            }
        }
    }
    openai_end(&mut events, answer, usage, push);
    events
}

/// The finish reason, the usage chunk and the end.
fn openai_end(
    events: &mut Events,
    answer: &Answer,
    usage: Usage,
    push: impl Fn(&mut Events, &str, &str),
) {
    if let Some(Fault::Refusal(text)) = &answer.fault {
        push(events, &format!(r#"{{"refusal":{}}}"#, quote(text)), "null");
    }
    let finish = match stop_reason(answer) {
        "end_turn" | "refusal" => "stop",
        "tool_use" => "tool_calls",
        "max_tokens" => "length",
        other => other,
    };
    push(events, "{}", &quote(finish));
    if !matches!(answer.fault, Some(Fault::NoUsage)) {
        let prompt = usage.input + usage.cache_read;
        events.list.push(format!(
            "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\
             \"completion_tokens\":{},\"total_tokens\":{},\
             \"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}}}\n\n",
            usage.output,
            prompt + usage.output,
            usage.cache_read
        ));
    }
    events.list.push("data: [DONE]\n\n".to_owned());
}
