//! A conversation under construction: messages in Anthropic form, and what they said so far.

use callsheet::message::Json;
use fastrand::Rng;
use serde_json::{Value, json};

/// A conversation and the system prompt under which it was held.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// A short name for tables.
    pub(crate) name: String,
    /// The system prompt.
    pub(crate) system: String,
    /// Its messages, in Anthropic form, from a request to the last report.
    pub(crate) messages: Vec<Json>,
}

impl Conversation {
    /// Returns its size in tokens, four characters each.
    pub(crate) fn tokens(&self) -> usize {
        self.messages.iter().map(|json| json.as_str().chars().count()).sum::<usize>() / 4
    }
}

/// A tool call and its result.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) tool: &'static str,
    pub(crate) input: Value,
    pub(crate) result: String,
    pub(crate) is_error: bool,
}

impl Call {
    pub(crate) fn new(tool: &'static str, input: Value, result: impl Into<String>) -> Self {
        Self { tool, input, result: result.into(), is_error: false }
    }
}

/// Messages that were said, and their size.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) messages: Vec<Json>,
    chars: usize,
    calls: u64,
    prefix: String,
}

impl Talk {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let letters: String = (0..6).map(|_| rng.alphanumeric()).collect();
        Self { messages: Vec::new(), chars: 0, calls: 0, prefix: format!("toolu_{letters}") }
    }

    /// Returns the size in tokens, four characters each.
    pub(crate) fn tokens(&self) -> usize {
        self.chars / 4
    }

    /// Adds what a person says.
    pub(crate) fn ask(&mut self, text: &str) {
        self.push("user", json!([{"type": "text", "text": text}]));
    }

    /// Adds a reply without calls, which ends a request.
    pub(crate) fn answer(&mut self, text: &str) {
        self.push("assistant", json!([{"type": "text", "text": text}]));
    }

    /// Adds a reply with these calls, and their results.
    pub(crate) fn turn(&mut self, said: &str, calls: Vec<Call>) {
        let (mut reply, mut results) = (Vec::new(), Vec::new());
        if !said.is_empty() {
            reply.push(json!({"type": "text", "text": said}));
        }
        for Call { tool, input, result, is_error } in calls {
            self.calls += 1;
            let id = format!("{}{:05}", self.prefix, self.calls);
            reply.push(json!({"type": "tool_use", "id": id, "name": tool, "input": input}));
            let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": result});
            if is_error {
                block["is_error"] = json!(true);
            }
            results.push(block);
        }
        self.push("assistant", json!(reply));
        self.push("user", json!(results));
    }

    fn push(&mut self, role: &str, content: Value) {
        let json = Json::encode(&json!({"role": role, "content": content}));
        self.chars += json.as_str().chars().count();
        self.messages.push(json);
    }
}
