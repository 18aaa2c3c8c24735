//! A request that the loopback provider received, and access to its parts.
//!
//! Parses a part only when a test asks for it, so that a benchmark pays for nothing it does not
//! use.

use std::time::Instant;

use bytes::Bytes;
use callsheet::message::{Block, Json, Message, ResultContent, Role, ToolCall, ToolResult};
use serde_json::Value;

/// The two wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    OpenAi,
}

impl Wire {
    /// Both wires, for tests that run on each.
    pub(crate) const BOTH: [Self; 2] = [Self::Anthropic, Self::OpenAi];
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) wire: Wire,
    /// Number of the request at its provider, from 1.
    pub(crate) count: usize,
    /// Number of its connection, from 1.
    pub(crate) connection: usize,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// Time at which the whole request had been read.
    pub(crate) at: Instant,
}

impl Asked {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The whole body.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the request body is JSON")
    }

    /// The model asked for.
    pub(crate) fn model(&self) -> String {
        self.json()["model"].as_str().unwrap_or_default().to_owned()
    }

    /// The system prompt.
    pub(crate) fn system(&self) -> String {
        let body = self.json();
        let system = match self.wire {
            Wire::Anthropic => &body["system"][0]["text"],
            Wire::OpenAi if body["messages"][0]["role"] == "system" => {
                &body["messages"][0]["content"]
            }
            Wire::OpenAi => &Value::Null,
        };
        system.as_str().unwrap_or_default().to_owned()
    }

    /// The names of the tools.
    pub(crate) fn tools(&self) -> Vec<String> {
        let body = self.json();
        let name = |tool: &Value| match self.wire {
            Wire::Anthropic => tool["name"].as_str().unwrap_or_default().to_owned(),
            Wire::OpenAi => tool["function"]["name"].as_str().unwrap_or_default().to_owned(),
        };
        body["tools"].as_array().map(|tools| tools.iter().map(name).collect()).unwrap_or_default()
    }

    /// The conversation in block form, whichever wire it came over.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let body = self.json();
        let messages = body["messages"].as_array().expect("a list of messages");
        match self.wire {
            Wire::Anthropic => {
                let read = |message: &Value| serde_json::from_value(message.clone());
                messages.iter().map(|m| read(m).expect("a message")).collect()
            }
            Wire::OpenAi => {
                let mut read: Vec<Message> = Vec::new();
                for message in messages.iter().filter(|message| message["role"] != "system") {
                    add_chat_message(&mut read, message);
                }
                read
            }
        }
    }
}

/// Merges tool results and the text after them into one user message, as the block form has it.
fn add_chat_message(read: &mut Vec<Message>, message: &Value) {
    let text = message["content"].as_str().unwrap_or_default();
    let (role, mut blocks) = match message["role"].as_str() {
        Some("assistant") => (Role::Assistant, Vec::new()),
        Some("tool") => {
            let result = ToolResult {
                tool_use_id: message["tool_call_id"].as_str().unwrap_or_default().to_owned(),
                content: ResultContent::Text(text.trim_start_matches("Error: ").to_owned()),
                is_error: text.starts_with("Error: "),
            };
            (Role::User, vec![Block::ToolResult(result)])
        }
        _ => (Role::User, Vec::new()),
    };
    if blocks.is_empty() && !text.is_empty() {
        blocks.push(Block::Text(text.to_owned()));
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let input = Json::parse(part(&call["function"]["arguments"])).expect("JSON arguments");
        let name = part(&call["function"]["name"]);
        blocks.push(Block::ToolUse(ToolCall { id: part(&call["id"]), name, input }));
    }
    match read.last_mut() {
        Some(last) if last.role == Role::User && role == Role::User => last.content.extend(blocks),
        _ => read.push(Message { role, content: blocks }),
    }
}
