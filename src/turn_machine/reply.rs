//! Changes a model's reply so that it fits the conversation that it joins, before it is recorded.
//!
//! Pure. Servers repeat the ids of calls, leave them out, or send blocks that no request may have.
//! A block that a provider would refuse to receive back never becomes a record.

use std::collections::HashSet;

use crate::context::view::rules::Kind;
use crate::message::{Block, Message};

/// Returns the reply with a unique id for every call, and without blocks that cannot be sent back:
/// empty texts, half calls and results. `known` are the ids of the conversation's earlier calls.
#[must_use]
pub fn fit(mut reply: Message, turn: u32, known: &HashSet<String>) -> Message {
    let mut fresh: HashSet<String> = HashSet::new();
    reply.content.retain_mut(|block| {
        if let Block::ToolUse(call) = block {
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
