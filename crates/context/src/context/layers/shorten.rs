//! Shortening of messages: cuts long texts and keeps the message and its blocks.
//!
//! Pure. Calls and results keep their ids, so that pairs stay together.

use serde_json::Value;

use crate::message::{Block, Json, Message, ResultContent, Role, ToolResult};

/// Least characters to which a text is cut: the beginning and the end of a command or an answer
/// still say what it was.
pub(super) const LEAST_CHARS: usize = 200;

/// Returns the text in the place of content that is not text.
fn left_out(place: &str) -> String {
    format!("[content left out{place}]")
}

/// Returns true if blocks hold nothing but text.
fn is_text_only(blocks: &Json) -> bool {
    let blocks = blocks.decode::<Vec<Block>>().unwrap_or_default();
    blocks.iter().all(|block| matches!(block, Block::Text(_)))
}

/// Cuts the long texts of a message, so that it has about `most` characters. `place` says where the
/// full content is, as the end of a sentence.
pub(super) fn message(message: &mut Message, most: usize, place: &str) {
    // A block of another kind cannot be cut: it stays or goes as a whole.
    let before = message.content.len();
    message.content.retain(|block| match block {
        Block::Other(json) => json.as_str().len() <= most || is_of_call(json),
        Block::Text(_) | Block::ToolUse(_) | Block::ToolResult(_) => true,
    });
    // No words are put into an assistant message, unless it would be empty.
    let is_less = message.content.len() < before && message.role == Role::User;
    if is_less || message.content.is_empty() {
        message.content.push(Block::Text(left_out(place)));
    }
    let each = (most / message.content.len()).max(LEAST_CHARS);
    for block in &mut message.content {
        match block {
            Block::Text(content) => *content = text(content, each, place),
            Block::ToolUse(call) => {
                let mut input = call.input.to_value();
                value(&mut input, each, place);
                call.input = Json::encode(&input);
            }
            Block::ToolResult(content) => result(content, each, place),
            Block::Other(_) => {}
        }
    }
}

/// Returns true if a block is a call or a result in another form: without it, its other half would
/// be left alone.
fn is_of_call(block: &Json) -> bool {
    let block = block.to_value();
    block.get("id").is_some() || block.get("tool_use_id").is_some()
}

fn result(result: &mut ToolResult, most: usize, place: &str) {
    let content = match &result.content {
        ResultContent::Text(content) => text(content, most, place),
        ResultContent::Blocks(blocks) if blocks.as_str().len() <= most => return,
        ResultContent::Blocks(blocks) => match result.text() {
            content if content.is_empty() => left_out(place),
            content => {
                let content = text(&content, most, place);
                if is_text_only(blocks) {
                    content
                } else {
                    format!("{content}\n{}", left_out(place))
                }
            }
        },
    };
    result.content = ResultContent::Text(content);
}

fn value(value: &mut Value, most: usize, place: &str) {
    match value {
        Value::String(content) => *content = text(content, most, place),
        Value::Array(items) => items.iter_mut().for_each(|item| self::value(item, most, place)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| self::value(field, most, place));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the first two thirds of the allowed characters and the last third, if the text is too
/// long.
fn text(text: &str, most: usize, place: &str) -> String {
    let total = text.chars().count();
    if total <= most {
        return text.to_owned();
    }
    let (head, tail) = (most - most / 3, most / 3);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(total - tail).collect();
    format!("{start}\n[... {} characters left out{place} ...]\n{end}", total - head - tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_loses_its_result() {
        // A result in a form that only its provider knows.
        let bare = r#"{"type":"web_search_tool_result","tool_use_id":"a","content":[]}"#;
        let image = r#"{"type":"image","source":{"type":"base64","data":"iVBORw0KGgo="}}"#;
        let read = |text: &str| Json::parse(text.to_owned()).expect("JSON");
        let message = format!(r#"{{"role":"user","content":[{bare},{image}]}}"#);
        let mut message: Message = read(&message).decode().expect("a message");
        super::message(&mut message, 0, "");
        assert_eq!(
            Json::encode(&message).as_str(),
            format!(
                r#"{{"role":"user","content":[{bare},{{"type":"text","text":"[content left out]"}}]}}"#
            )
        );
    }
}
