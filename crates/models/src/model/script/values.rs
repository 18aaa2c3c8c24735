//! Builds the values that a script's templates see.
//!
//! Owns the names that `docs/scripts.md` documents; every value is computed from the scene.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::Scene;
use crate::message::{Message, Role};

/// The names of the values, for the check of a script.
pub(super) const NAMES: [&str; 10] = [
    "agent", "agent_id", "turn", "system", "prompt", "tools", "messages", "last", "results",
    "calls",
];

/// Returns the values of a scene.
pub(super) fn of(scene: &Scene<'_>) -> Value {
    let mut made: HashMap<&str, Value> = HashMap::new();
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let mut last = Value::Array(Vec::new());
    let mut messages = Vec::with_capacity(scene.messages.len());
    for message in scene.messages {
        let mut own_calls = Vec::new();
        for call in message.tool_calls() {
            let value = json!({ "tool": call.name, "input": call.input.to_value() });
            made.insert(&call.id, value.clone());
            own_calls.push(value);
        }
        let own_results = results_of(message, &made);
        calls.extend_from_slice(&own_calls);
        results.extend_from_slice(&own_results);
        if message.role == Role::User {
            last = Value::Array(own_results.clone());
        }
        messages.push(json!({
            "role": message.role.as_str(),
            "text": message.text(),
            "calls": own_calls,
            "results": own_results,
        }));
    }
    let prompt = scene.messages.iter().filter(|message| message.role == Role::User);
    let prompt = prompt.map(Message::text).find(|text| !text.is_empty());
    json!({
        "agent": scene.agent,
        "agent_id": scene.agent_id,
        "turn": scene.turn,
        "system": scene.system,
        "prompt": prompt.unwrap_or_default(),
        "tools": scene.tools,
        "messages": messages,
        "last": last,
        "results": results,
        "calls": calls,
    })
}

/// Returns the results in a message, each with the call that it answers. If the call is no longer
/// in the view, its tool is an empty text.
fn results_of(message: &Message, made: &HashMap<&str, Value>) -> Vec<Value> {
    let nobody = json!({ "tool": "", "input": {} });
    let result = |result: &crate::message::ToolResult| {
        let call = made.get(result.tool_use_id.as_str()).unwrap_or(&nobody);
        json!({
            "tool": call["tool"],
            "input": call["input"],
            "text": result.text(),
            "is_error": result.is_error,
        })
    };
    message.tool_results().map(result).collect()
}
