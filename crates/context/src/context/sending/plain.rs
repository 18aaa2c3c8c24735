//! Plain text in place of calls that cannot be sent as calls.
//!
//! Pure. A request may name only tools that it offers. So a call of a tool that is no longer
//! offered, and its result, are rendered as text in the same place. A call that failed is still
//! sent as a call. This includes calls of tools that the model made up: their error results say so.

use crate::context::view::Entry;
use crate::id::Name;
use crate::message::{Block, Json, Message, ResultContent, ToolCall, ToolResult};

/// Returns the message of `entry`, which stands between `before` and `after`, with calls and
/// results of tools that are not in `tools` (sorted) rendered as text.
pub(super) fn offered_only(
    before: Option<&Entry>,
    entry: &Entry,
    after: Option<&Entry>,
    tools: &[Name],
) -> Json {
    let asked_here = gone(entry, after, tools);
    let asked_before = before.map(|before| gone(before, Some(entry), tools)).unwrap_or_default();
    if asked_here.is_empty() && asked_before.is_empty() {
        return entry.json.clone();
    }
    let Ok(message) = entry.json.decode::<Message>() else { return entry.json.clone() };
    let name_of = |id: &str| asked_before.iter().find(|(asked, _)| *asked == id);
    let (mut content, mut told) = (Vec::new(), Vec::new());
    for block in message.content {
        match block {
            Block::ToolUse(call) if asked_here.iter().any(|(id, _)| *id == call.id) => {
                content.push(call_as_text(&call));
            }
            Block::ToolResult(result) => match name_of(&result.tool_use_id) {
                Some((_, name)) => told.extend(result_as_text(name, result)),
                None => content.push(Block::ToolResult(result)),
            },
            other => content.push(other),
        }
    }
    // Results that stay results must come before any text.
    let results = content.iter().take_while(|block| matches!(block, Block::ToolResult(_))).count();
    content.splice(results..results, told);
    Json::encode(&Message { role: message.role, content })
}

/// Returns the calls of an entry, as id and tool, that cannot be sent as calls. `after` holds their
/// results.
fn gone<'a>(entry: &'a Entry, after: Option<&Entry>, tools: &[Name]) -> Vec<(&'a str, &'a str)> {
    let offered = |name: &str| tools.binary_search_by(|tool| tool.as_str().cmp(name)).is_ok();
    let calls = entry.calls.iter().map(|(id, name)| (id.as_str(), name.as_str()));
    let mut gone: Vec<_> = calls.filter(|(_, name)| !offered(name)).collect();
    if gone.is_empty() {
        return gone;
    }
    // No edit changes whether a result is an error, so a message is rendered the same way every
    // time.
    let results = after.and_then(|after| after.json.decode::<Message>().ok());
    let failed = |id: &str| {
        let mut results = results.iter().flat_map(Message::tool_results);
        results.any(|result| result.is_error && result.tool_use_id == id)
    };
    gone.retain(|(id, _)| !failed(id));
    gone
}

/// Renders a call as text.
fn call_as_text(call: &ToolCall) -> Block {
    let (name, input) = (&call.name, call.input.as_str());
    Block::Text(format!("[a call of `{name}`, which is not among the tools: {input}]"))
}

/// Renders a result as text; blocks that are not text stay as they are.
pub(super) fn result_as_text(tool: &str, result: ToolResult) -> Vec<Block> {
    let what = if result.is_error { "the error" } else { "the result" };
    let text = match result.content {
        ResultContent::Text(text) if text.trim().is_empty() => "(no output)".to_owned(),
        ResultContent::Text(text) => text,
        ResultContent::Blocks(json) => match json.decode::<Vec<Block>>() {
            Ok(blocks) => {
                let opening = Block::Text(format!("[{what} of a call of `{tool}` follows]"));
                let blocks = blocks.into_iter();
                let kept =
                    blocks.filter(|b| !matches!(b, Block::Text(text) if text.trim().is_empty()));
                return std::iter::once(opening).chain(kept).collect();
            }
            Err(_) => json.as_str().to_owned(),
        },
    };
    vec![Block::Text(format!("[{what} of a call of `{tool}`: {text}]"))]
}
