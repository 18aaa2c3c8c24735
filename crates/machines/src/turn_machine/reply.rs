//! Changes a model's reply so that it fits the conversation that it joins, before it is recorded.
//!
//! Pure. Servers repeat the ids of calls, leave them out, or send blocks that no request may have.
//! A block that a provider would refuse to receive back never becomes a record.

use std::collections::HashSet;

use crate::context::view::rules::Kind;
use crate::message::{Block, Message};

/// The most characters of a tool's name that providers take back.
const NAME_CHARS: usize = 64;
/// The most bytes of a call's id. Providers use less than 100; some proxies put a signature into it.
const ID_BYTES: usize = 16 * 1024;

/// Returns the reply with a unique id and a name that can be sent back for every call, and without
/// blocks that cannot: empty texts, half calls and results. `known` are the ids of the conversation's
/// earlier calls.
#[must_use]
pub fn fit(mut reply: Message, turn: u32, known: &HashSet<String>) -> Message {
    let mut fresh: HashSet<String> = HashSet::new();
    reply.content.retain_mut(|block| {
        if let Block::ToolUse(call) = block {
            call.name = sendable_name(&call.name);
            if call.id.len() > ID_BYTES || call.id.contains(|c: char| !(' '..='~').contains(&c)) {
                call.id.clear();
            }
            let is_taken = |id: &str| known.contains(id) || fresh.contains(id);
            if call.id.is_empty() || is_taken(&call.id) {
                let base = if call.id.is_empty() { "call" } else { &call.id };
                let mut places = 0..;
                let own = places.find_map(|place| {
                    let own = format!("{base}-{turn}-{place}");
                    (!is_taken(&own)).then_some(own)
                });
                call.id = own.unwrap_or_default();
            }
            fresh.insert(call.id.clone());
            return true;
        }
        match Kind::of(block) {
            Kind::Text | Kind::Call | Kind::Thinking | Kind::Compaction | Kind::Other => true,
            Kind::Blank | Kind::Result | Kind::HollowResult | Kind::Broken => false,
        }
    });
    reply
}

/// Returns a tool's name with other characters than letters, digits, `_` and `-` replaced, and not longer
/// than providers take it. Such a name is seldom that of a tool, and the model is told so.
fn sendable_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(NAME_CHARS).map(plain).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(content: &str, known: &[&str]) -> Message {
        let text = format!(r#"{{"role":"assistant","content":[{content}]}}"#);
        let known = known.iter().map(|id| (*id).to_owned()).collect();
        fit(Message::read(&text).expect("a message"), 7, &known)
    }

    fn call(id: &str) -> String {
        format!(r#"{{"type":"tool_use","id":"{id}","name":"t","input":{{}}}}"#)
    }

    fn ids(message: &Message) -> Vec<&str> {
        message.tool_calls().map(|call| call.id.as_str()).collect()
    }

    #[test]
    fn every_call_has_an_id_of_its_own() {
        let calls = [call("a"), call("call_0"), call("call_0"), call(""), call("")].join(",");
        let reply = fitted(&calls, &["call_0", "call_0-7-0"]);
        assert_eq!(ids(&reply), ["a", "call_0-7-1", "call_0-7-2", "call-7-0", "call-7-1"]);
        assert_eq!(ids(&fitted(&call("call_0"), &[])), ["call_0"]);
    }

    #[test]
    fn names_and_ids_that_cannot_be_sent_back_are_replaced() {
        let call = |id: &str, name: &str| {
            let (id, name) = (serde_json::json!(id), serde_json::json!(name));
            format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{{}}}}"#)
        };
        let name = |name: &str| {
            let reply = fitted(&call("a", name), &[]);
            reply.tool_calls().next().expect("a call").name.clone()
        };
        assert_eq!(name("read_file-2"), "read_file-2");
        assert_eq!(name(""), "_");
        assert_eq!(name("ba\0sh \u{202e}\u{1b}"), "ba_sh___");
        assert_eq!(name(&"n".repeat(1 << 20)), "n".repeat(64));
        assert_eq!(ids(&fitted(&call("a\n", "t"), &[])), ["call-7-0"]);
        assert_eq!(ids(&fitted(&call(&"i".repeat(1 << 20), "t"), &[])), ["call-7-0"]);
    }

    #[test]
    fn what_cannot_be_sent_back_is_left_out() {
        let thinking = r#"{"type":"thinking","thinking":"","signature":"s"}"#;
        let blank = r#"{"type":"text","text":"\n"}"#;
        let half = r#"{"type":"tool_use","id":"x"}"#;
        let result = r#"{"type":"tool_result","tool_use_id":"x","content":"y"}"#;
        let reply = fitted(&[thinking, blank, half, result].join(","), &[]);
        assert_eq!(reply.content.len(), 1);
        assert!(fitted(blank, &[]).content.is_empty());
    }
}
