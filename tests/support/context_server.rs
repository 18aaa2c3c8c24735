//! A provider that edits and compacts contexts as the Messages API documents it, and refuses what
//! the API refuses.

use std::sync::atomic::{AtomicUsize, Ordering};

use callsheet::message::{Block, Message, Role};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::faults::unsendable;
use crate::support::answer::{Answer, Fault, Part};
use crate::support::asked::Asked;
use crate::support::provider::Responder;

/// Text of every summary, followed by its number.
pub(crate) const SUMMARY: &str = "what was done so far";

/// The provider. It gives its answers in turn, and then repeats the last one.
pub(crate) struct ContextServer {
    answers: Vec<Answer>,
    given: AtomicUsize,
    /// Fields that it does not support.
    lacks: &'static [&'static str],
    /// The signed summaries that it wrote.
    signed: Mutex<Vec<Value>>,
}

impl ContextServer {
    pub(crate) fn new(answers: Vec<Answer>) -> Self {
        let (given, signed) = (AtomicUsize::new(0), Mutex::default());
        Self { answers, given, lacks: &[], signed }
    }

    /// Makes the provider refuse these fields of a request's body.
    pub(crate) fn lacking(mut self, fields: &'static [&'static str]) -> Self {
        self.lacks = fields;
        self
    }

    fn next(&self) -> Answer {
        let at = self.given.fetch_add(1, Ordering::SeqCst);
        self.answers[at.min(self.answers.len() - 1)].clone()
    }

    fn summarise(&self, read: u64) -> Answer {
        let mut signed = self.signed.lock();
        let number = signed.len() + 1;
        let content = format!("{SUMMARY}, {number}");
        let block = json!({
            "type": "compaction", "content": content, "signature": format!("sig-{number}=="),
            "tool_changes": [],
        });
        let whole = block.to_string();
        signed.push(block);
        let usage = Default::default();
        let answer = Answer { parts: vec![Part::Whole(whole)], ..Answer::default() };
        let answer = answer.costing(usage).stopping("compaction");
        Answer { iterations: vec![iteration("compaction", read, 40)], ..answer }
    }

    /// Returns the reason for which the API would refuse the request, if it would.
    fn refusal(&self, body: &Value, betas: &[&str], messages: &[Message]) -> Option<String> {
        if let Some(field) = self.lacks.iter().find(|field| body.get(**field).is_some()) {
            return Some(format!("{field}: Extra inputs are not permitted"));
        }
        let asks = |field: &str| body.get(field).is_some();
        if asks("compaction") && asks("context_management") {
            return Some("compaction: cannot be combined with context_management".to_owned());
        }
        let edits = body["context_management"]["edits"].as_array().cloned().unwrap_or_default();
        let mut needed: Vec<&str> = edits.iter().map(beta).collect();
        needed.extend(asks("compaction").then_some("compact-2026-09-04"));
        let blocks: Vec<Value> = messages.iter().flat_map(compactions).collect();
        for block in &blocks {
            if block.get("signature").is_none() {
                needed.push("compact-2026-01-12");
                continue;
            }
            needed.push("compact-2026-09-04");
            if !self.signed.lock().contains(block) {
                return Some("compaction_content_mismatch".to_owned());
            }
            if blocks.len() > 1 || compactions(&messages[0]).next().as_ref() != Some(block) {
                return Some("compaction_block_misplaced".to_owned());
            }
            if edits.iter().any(|edit| edit["type"] == "compact_20260112") {
                return Some("compact_20260112: a signed block".to_owned());
            }
        }
        if let Some(beta) = needed.iter().find(|beta| !betas.contains(beta)) {
            return Some(format!("requires anthropic-beta: {beta}"));
        }
        self.structure(messages, asks("compaction"))
    }

    fn structure(&self, messages: &[Message], summarises: bool) -> Option<String> {
        let seen = as_read(messages);
        // A request for a summary may end with either speaker.
        let ends = summarises && seen.last().is_some_and(|last| last.role == Role::Assistant);
        if ends && seen.last().is_some_and(|last| last.tool_calls().next().is_none()) {
            return None;
        }
        unsendable(&seen)
    }
}

impl Responder for ContextServer {
    fn answer(&self, asked: &Asked) -> Answer {
        let body = asked.json();
        let betas = asked.header("anthropic-beta").unwrap_or_default();
        let betas: Vec<&str> = betas.split(',').map(str::trim).collect();
        let messages = asked.messages();
        if let Some(message) = self.refusal(&body, &betas, &messages) {
            let error = json!({"type": "invalid_request_error", "message": message});
            let body = json!({"type": "error", "error": error}).to_string();
            return Answer::fault(Fault::Http { status: 400, headers: Vec::new(), body });
        }
        let read = tokens(&after_summary(&messages));
        if body.get("compaction").is_some() {
            return self.summarise(read);
        }
        // A summary by a prompt of the client's.
        if messages[0].text().starts_with("Summarize this conversation") {
            return Answer::text("short");
        }
        let edits = body["context_management"]["edits"].as_array().cloned().unwrap_or_default();
        let compact = edits.iter().find(|edit| edit["type"] == "compact_20260112");
        let clear = edits.iter().find(|edit| edit["type"] == "clear_tool_uses_20250919");
        if let Some(edit) = compact.filter(|edit| read > number(&edit["trigger"])) {
            let pauses = edit["pause_after_compaction"] == true;
            return self.compacted(read, if pauses { Answer::default() } else { self.next() });
        }
        let mut answer = self.next();
        if let Some(edit) = clear.filter(|edit| read > number(&edit["trigger"])) {
            answer.applied.extend(cleared(edit, &messages));
        }
        answer
    }
}

impl ContextServer {
    /// A reply that begins with a summary, and nothing more if there is no other part.
    fn compacted(&self, read: u64, mut answer: Answer) -> Answer {
        let content = Some(format!("{SUMMARY} in {read} tokens"));
        let pauses = answer.parts.is_empty();
        answer.parts.insert(0, Part::Compaction { content });
        answer.iterations = vec![iteration("compaction", read, 40)];
        if pauses {
            return answer.costing(Default::default()).stopping("compaction");
        }
        answer.iterations.push(iteration("message", 50, 10));
        let usage = callsheet::message::Usage { input: 50, output: 10, ..Default::default() };
        answer.costing(usage)
    }
}

fn iteration(kind: &str, input: u64, output: u64) -> Value {
    json!({"type": kind, "input_tokens": input, "output_tokens": output})
}

fn beta(edit: &Value) -> &'static str {
    match edit["type"].as_str() {
        Some("compact_20260112") => "compact-2026-01-12",
        _ => "context-management-2025-06-27",
    }
}

fn number(counted: &Value) -> u64 {
    counted["value"].as_u64().expect("a number")
}

/// The summaries in a message, without cache marks.
fn compactions(message: &Message) -> impl Iterator<Item = Value> {
    let blocks = message.content.iter().filter_map(|block| match block {
        Block::Other(raw) => Some(raw.to_value()),
        _ => None,
    });
    let blocks: Vec<Value> = blocks.filter(|block| block["type"] == "compaction").collect();
    blocks.into_iter().map(|mut block| {
        block.as_object_mut().expect("a block").shift_remove("cache_control");
        block
    })
}

fn is_effective(block: &Block) -> bool {
    callsheet::context::provider::compaction_block::summary_text(block).is_some()
}

/// Returns the messages that the model reads: from the last summary on.
fn after_summary(messages: &[Message]) -> Vec<Message> {
    let at = messages.iter().rposition(|message| message.content.iter().any(is_effective));
    messages[at.unwrap_or(0)..].to_vec()
}

/// Returns the conversation as plain messages, with the summary in front as a user message.
fn as_read(messages: &[Message]) -> Vec<Message> {
    let Some((first, rest)) = messages.split_first() else { return Vec::new() };
    if !first.content.first().is_some_and(is_effective) || first.role != Role::Assistant {
        return messages.to_vec();
    }
    let mut seen = vec![Message::user(SUMMARY)];
    if first.content.len() > 1 {
        let content = first.content[1..].to_vec();
        seen.push(Message { role: Role::Assistant, content });
    } else if rest.first().is_some_and(|next| next.role == Role::User) {
        seen.clear();
    }
    seen.extend_from_slice(rest);
    seen
}

fn tokens(messages: &[Message]) -> u64 {
    serde_json::to_string(messages).expect("JSON").len() as u64 / 4
}

/// Returns the report on the clearing of old results, if that frees enough.
fn cleared(edit: &Value, messages: &[Message]) -> Option<Value> {
    let results: Vec<usize> =
        messages.iter().flat_map(|m| m.tool_results().map(|r| r.text().len())).collect();
    let keep = usize::try_from(number(&edit["keep"])).expect("a count");
    let old = results.len().saturating_sub(keep);
    let freed = results[..old].iter().sum::<usize>() as u64 / 4;
    let least = edit["clear_at_least"]["value"].as_u64().unwrap_or(1);
    (freed >= least).then(|| {
        json!({
            "type": "clear_tool_uses_20250919", "cleared_tool_uses": old,
            "cleared_input_tokens": freed,
        })
    })
}
