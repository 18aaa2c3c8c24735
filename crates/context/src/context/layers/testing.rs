//! Hand-made conversations for tests of layers and presets.

use super::{Spill, Surroundings, Window};
use crate::context::layers::pipeline::{self, AppliedEdit};
use crate::context::layers::preset::Preset;
use crate::context::testing::{assert_sendable, sent};
use crate::context::view::View;
use crate::message::{Block, Json, Message, ResultContent, Role, ToolCall, ToolResult};

pub(in crate::context) fn around() -> Surroundings<'static> {
    let window = Window { tokens: 200_000, output: 8_000, overhead: 0 };
    Surroundings::new("t.jsonl", "results/", window)
}

pub(in crate::context) fn push(view: &mut View, message: &Message) {
    view.push(Json::encode(message)).expect("a message");
}

pub(in crate::context) fn begun(request: &str) -> View {
    let mut view = View::default();
    push(&mut view, &Message::user(request));
    view
}

pub(in crate::context) fn calls(turn: usize, count: usize) -> Message {
    let call = |n| {
        let input = Json::encode(&serde_json::json!({}));
        Block::ToolUse(ToolCall { id: format!("{turn}.{n}"), name: "bash".to_owned(), input })
    };
    Message { role: Role::Assistant, content: (0..count).map(call).collect() }
}

pub(in crate::context) fn results(turn: usize, texts: &[String]) -> Message {
    let result = |(n, text): (usize, &String)| {
        let content = ResultContent::Text(text.clone());
        let tool_use_id = format!("{turn}.{n}");
        Block::ToolResult(ToolResult { tool_use_id, content, is_error: false })
    };
    Message { role: Role::User, content: texts.iter().enumerate().map(result).collect() }
}

/// A batch whose results have these sizes.
pub(in crate::context) fn exchange(view: &mut View, turn: usize, sizes: &[usize]) {
    push(view, &calls(turn, sizes.len()));
    // Each size has a text of its own, so that hashes differ.
    let texts: Vec<_> = sizes.iter().map(|size| letter(*size).repeat(*size)).collect();
    push(view, &results(turn, &texts));
}

pub(in crate::context) fn letter(size: usize) -> String {
    char::from(b'a' + u8::try_from(size % 26).expect("a letter")).to_string()
}

pub(in crate::context) fn messages(view: &View) -> Vec<Message> {
    sent(view).iter().map(|json| json.decode().expect("a message")).collect()
}

/// The texts of the results of the last message.
pub(in crate::context) fn last_results(view: &View) -> Vec<String> {
    let messages = messages(view);
    messages.last().expect("one").tool_results().map(ToolResult::text).collect()
}

pub(in crate::context) fn run(view: &mut View, preset: &Preset) -> Vec<AppliedEdit> {
    let changes = pipeline::run_cheap_layers(view, preset, &around());
    assert_sendable(view);
    assert!(pipeline::run_cheap_layers(view, preset, &around()).is_empty(), "idempotent");
    changes
}

pub(in crate::context) fn layers(changes: &[AppliedEdit]) -> Vec<&str> {
    changes.iter().map(|change| change.edited.layer.as_str()).collect()
}

pub(in crate::context) fn persisted(text: &str, preview_chars: usize) -> String {
    let path = around().path_of(&Spill::of(text.to_owned()).stored);
    let preview: String = text.chars().take(preview_chars).collect();
    format!("<persisted-output>\nFull output: {path}\nPreview:\n{preview}\n</persisted-output>")
}
