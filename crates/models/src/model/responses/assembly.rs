//! Builds a reply from the events of a response.
//!
//! Owns the items that are being written. The item that an event brings whole replaces what its deltas
//! brought; a call is complete only then.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use uuid::Uuid;

use super::incoming::{EventIn, ItemIn, ResponseIn};
use super::usage::{UsageIn, counted};
use super::{COMPACTION, REASONING, phase};
use crate::context::provider::server::ContextReport;
use crate::message::{Block, Json, Message, Role, StopReason, ToolCall, Usage};
use crate::model::http::{
    Arguments, Assembly, Bounds, Progress, Refusal, is_recordable, malformed, received_input,
    shorten, tree,
};
use crate::model::{Delta, DeltaSink, ModelError, Reply, sse};

/// A response of which the stream is being read.
#[derive(Debug, Default)]
pub(super) struct ResponseAssembly {
    items: BTreeMap<u64, Item>,
    /// The index of each item that began without one, by its id; some servers give no index.
    unplaced: BTreeMap<String, u64>,
    usage: Option<UsageIn>,
    /// The estimate of the tokens that had come when the server counted them.
    counted_at: u64,
    /// The bytes of contents that are not kept, as of summaries of reasoning: they come whole later.
    passed: usize,
    end: Option<End>,
    bounds: Bounds,
}

/// The end of a response.
#[derive(Debug)]
enum End {
    Completed,
    /// It was cut, for this reason.
    Incomplete(String),
}

/// An item of the output.
#[derive(Debug)]
struct Item {
    part: Part,
    is_done: bool,
}

#[derive(Debug)]
enum Part {
    Message {
        text: String,
        refusal: String,
        /// What the message is for, as `commentary` or `final_answer`: it goes back as it came.
        phase: Option<String>,
    },
    Call {
        id: String,
        name: String,
        arguments: Arguments,
    },
    /// Reasoning, or a summary of what came before, which goes back as it came.
    Kept(&'static str, Option<Json>),
    /// An item of a tool of the provider, or of a later version: it has no place in a request.
    Other,
}

impl Assembly for ResponseAssembly {
    fn take(
        &mut self,
        event: sse::Event<'_>,
        deltas: DeltaSink<'_>,
    ) -> Result<Progress, ModelError> {
        if event.data.trim_ascii() == b"[DONE]" {
            return Ok(Progress::Done);
        }
        let event_in: EventIn<'_> = serde_json::from_slice(event.data).map_err(|error| {
            Refusal::find_in(event.data).map_or_else(
                || malformed(format!("the stream cannot be read: {error}")),
                |refusal| refusal.into_error(200),
            )
        })?;
        match event_in.r#type.as_ref() {
            "response.output_item.added" => self.begin(&event_in, deltas)?,
            "response.output_item.done" => self.complete(&event_in, deltas)?,
            "response.output_text.delta" => self.grow_text(&event_in, deltas)?,
            "response.refusal.delta" => {
                let index = self.place(&event_in)?;
                let delta = event_in.delta.unwrap_or_default();
                self.bounds.content(delta.len())?;
                if let Part::Message { refusal, .. } = self.message(index)? {
                    refusal.push_str(&delta);
                }
                deltas(Delta::Alive);
            }
            "response.function_call_arguments.delta" => {
                let index = self.place(&event_in)?;
                let delta = event_in.delta.unwrap_or_default();
                self.bounds.content(delta.len())?;
                let item = self.items.get_mut(&index);
                let Some(Item { part: Part::Call { arguments, .. }, is_done: false }) = item else {
                    return Err(malformed("a fragment of a call that is not open"));
                };
                arguments.push(&delta)?;
                deltas(Delta::Alive);
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                let response = event_in.response.map_or("null", RawValue::get);
                self.note_end(response, deltas)?;
                return Ok(Progress::Done);
            }
            "error" => return Err(refusal(event.data)),
            // Reasoning is taken whole; the others are signs of life, or of a later version: the reply does not
            // become longer by them.
            kind => {
                let of_reply = kind.starts_with("response.reasoning");
                let bytes = event_in.delta.as_ref().filter(|_| of_reply).map_or(0, String::len);
                self.passed = self.passed.saturating_add(bytes);
                deltas(Delta::Alive);
            }
        }
        Ok(Progress::More)
    }

    fn take_whole(
        &mut self,
        document: &[u8],
        deltas: DeltaSink<'_>,
    ) -> Option<Result<(), ModelError>> {
        let text = std::str::from_utf8(document).ok()?;
        let response: ResponseIn<'_> = serde_json::from_str(text).ok()?;
        response.output.is_some().then(|| self.note_end(text, deltas))
    }

    fn is_whole(&self) -> bool {
        self.end.is_some()
    }

    fn spent(&self) -> Usage {
        self.bounds.spent(counted(self.usage), self.counted_at)
    }

    fn written(&self) -> usize {
        self.bounds.written() + self.passed
    }

    fn finish(self) -> Reply {
        let has_count = self.usage.is_some_and(|usage| usage.output_tokens.is_some());
        let usage = if has_count { counted(self.usage) } else { self.spent() };
        let stop = self.stop_reason();
        Reply::new(self.into_message(), stop, usage)
    }

    fn salvage(self, reason: &ModelError) -> Option<Reply> {
        let (usage, context) = (self.spent(), ContextReport::default());
        let message = self.into_message();
        let said = |block: &Block| matches!(block, Block::Text(_) | Block::ToolUse(_));
        if !message.content.iter().any(said) {
            return None;
        }
        let stop = StopReason::Interrupted(reason.message.clone());
        let broken = Some(Box::new(reason.clone()));
        Some(Reply { message, stop, usage, context, broken, repeats: None })
    }
}

impl ResponseAssembly {
    fn begin(&mut self, event: &EventIn<'_>, deltas: DeltaSink<'_>) -> Result<(), ModelError> {
        let raw = event.item.ok_or_else(|| malformed("an item began without a content"))?;
        let index = self.place(event)?;
        if self.items.contains_key(&index) {
            // Which of the two the deltas belong to, nobody can tell: one call would be lost, or made twice.
            return Err(malformed("an item began in the place of another"));
        }
        let part = self.open(raw)?;
        match &part {
            Part::Call { name, .. } => deltas(Delta::Tool(name)),
            Part::Message { .. } | Part::Kept(..) | Part::Other => deltas(Delta::Alive),
        }
        self.items.insert(index, Item { part, is_done: false });
        Ok(())
    }

    /// Returns an item of this kind without its content.
    fn open(&mut self, raw: &RawValue) -> Result<Part, ModelError> {
        self.bounds.block()?;
        let item = read_item(raw)?;
        Ok(match item.r#type.as_ref() {
            "message" => Part::of_message(item.phase),
            "function_call" => {
                self.bounds.call()?;
                let (id, name) = (item.call_id.unwrap_or_default(), item.name.unwrap_or_default());
                self.bounds.content(id.len() + name.len())?;
                Part::Call { id, name, arguments: Arguments::default() }
            }
            REASONING => Part::Kept(REASONING, None),
            COMPACTION => Part::Kept(COMPACTION, None),
            _ => Part::Other,
        })
    }

    /// Takes an item that is whole, in the place of what its deltas brought.
    fn complete(&mut self, event: &EventIn<'_>, deltas: DeltaSink<'_>) -> Result<(), ModelError> {
        let raw = event.item.ok_or_else(|| malformed("an item ended without a content"))?;
        let index = self.place(event)?;
        if !self.items.contains_key(&index) {
            self.begin(event, deltas)?;
        }
        let item = read_item(raw)?;
        let Some(Item { part, is_done }) = self.items.get_mut(&index) else { return Ok(()) };
        if !part.is_of(&item.r#type) || part.is_another(&item) {
            return Err(malformed("an item ended as another"));
        }
        if std::mem::replace(is_done, true) {
            return Err(malformed("an item ended twice"));
        }
        match part {
            Part::Message { text, refusal, phase } => {
                *phase = item.phase.or(phase.take());
                let parts = item.content.unwrap_or_default();
                let whole: String = parts.iter().filter_map(|part| part.text.as_deref()).collect();
                let refused: String =
                    parts.iter().filter_map(|part| part.refusal.as_deref()).collect();
                self.bounds.content(
                    whole.len().saturating_sub(text.len())
                        + refused.len().saturating_sub(refusal.len()),
                )?;
                if text.is_empty() && !whole.is_empty() {
                    deltas(Delta::Text(&whole));
                }
                *text = if whole.is_empty() { std::mem::take(text) } else { whole };
                *refusal = if refused.is_empty() { std::mem::take(refusal) } else { refused };
            }
            Part::Call { id, name, arguments } => {
                let whole = item.arguments.unwrap_or_default();
                let before = std::mem::take(arguments).into_text();
                self.bounds.content(whole.len().saturating_sub(before.len()))?;
                arguments.push(if whole.is_empty() { &before } else { &whole })?;
                *id = item.call_id.filter(|id| !id.is_empty()).unwrap_or(std::mem::take(id));
                *name = item.name.filter(|name| !name.is_empty()).unwrap_or(std::mem::take(name));
            }
            Part::Kept(_, kept) => {
                self.bounds.content(raw.get().len())?;
                *kept = is_recordable(raw.get()).then(|| Json::of(raw));
            }
            Part::Other => {}
        }
        deltas(Delta::Alive);
        Ok(())
    }

    fn grow_text(&mut self, event: &EventIn<'_>, deltas: DeltaSink<'_>) -> Result<(), ModelError> {
        let delta = event.delta.as_deref().unwrap_or_default();
        self.bounds.content(delta.len())?;
        let index = self.place(event)?;
        if let Part::Message { text, .. } = self.message(index)? {
            text.push_str(delta);
            deltas(Delta::Text(delta));
        }
        Ok(())
    }

    /// Returns the item of a delta. Some servers do not say that a message begins.
    fn message(&mut self, index: u64) -> Result<&mut Part, ModelError> {
        if !self.items.contains_key(&index) {
            self.bounds.block()?;
        }
        let item = self
            .items
            .entry(index)
            .or_insert_with(|| Item { part: Part::of_message(None), is_done: false });
        Ok(&mut item.part)
    }

    /// Returns the index of an event's item. Without one, the item has the index that it got when an event
    /// first named its id; an event that names nothing belongs to the item that is open.
    fn place(&mut self, event: &EventIn<'_>) -> Result<u64, ModelError> {
        if let Some(index) = event.output_index {
            return Ok(index);
        }
        let item = event.item.map(read_item).transpose()?;
        let id = item.and_then(|item| item.id.or(item.call_id)).or_else(|| event.item_id.clone());
        let newest = self.items.last_key_value();
        let next = newest.map_or(0, |(newest, _)| newest.saturating_add(1));
        let Some(id) = id else {
            let begins = event.r#type == "response.output_item.added";
            let open = newest.filter(|(_, item)| !item.is_done && !begins);
            return Ok(open.map_or(next, |(index, _)| *index));
        };
        if let Some(index) = self.unplaced.get(&id) {
            return Ok(*index);
        }
        self.bounds.content(id.len())?;
        self.unplaced.insert(id, next);
        Ok(next)
    }

    /// Takes the response as it is at its end.
    fn note_end(&mut self, response: &str, deltas: DeltaSink<'_>) -> Result<(), ModelError> {
        let unreadable = |error| malformed(format!("the response cannot be read: {error}"));
        let response: ResponseIn<'_> = serde_json::from_str(response).map_err(unreadable)?;
        if let Some(usage) = response.usage {
            (self.usage, self.counted_at) = (Some(usage), self.bounds.tokens());
        }
        if let Some(error) = response.error.filter(|error| error.get() != "null") {
            return Err(refusal(error.get().as_bytes()));
        }
        let status = response.status.unwrap_or_default();
        if status == "failed" {
            return Err(malformed("the response failed without a reason"));
        }
        self.complete_all(response.output.into_iter().flatten(), deltas)?;
        let reason = response.incomplete_details.and_then(|details| details.reason);
        self.end = Some(match (status.as_str(), reason) {
            ("incomplete", reason) | (_, reason @ Some(_)) => {
                End::Incomplete(reason.unwrap_or_default())
            }
            _ => End::Completed,
        });
        Ok(())
    }

    /// Takes the items of the whole output that did not come whole before. A call is known by its id, as indexes
    /// of some servers do not fit the places here; other items come in the same order.
    fn complete_all<'a>(
        &mut self,
        output: impl Iterator<Item = &'a RawValue>,
        deltas: DeltaSink<'_>,
    ) -> Result<(), ModelError> {
        let known: Vec<u64> = self.items.keys().copied().collect();
        for (number, raw) in output.enumerate() {
            let item = read_item(raw)?;
            let is_same = |at: &u64| {
                let known = self.items.get(at);
                known.is_some_and(|known| {
                    known.part.is_of(&item.r#type) && !known.part.is_another(&item)
                })
            };
            let call = self.items.iter().find(|(_, known)| known.part.is_call_of(&item));
            let named = item.id.as_ref().and_then(|id| self.unplaced.get(id));
            let place =
                call.map(|(at, _)| at).or(named).or(known.get(number)).filter(|at| is_same(at));
            let next =
                self.items.last_key_value().map_or(0, |(newest, _)| newest.saturating_add(1));
            let index = place.copied().unwrap_or(next);
            if self.items.get(&index).is_none_or(|item| !item.is_done) {
                let (r#type, item_id) = (Cow::Borrowed(""), None);
                let (item, output_index, delta, response) = (Some(raw), Some(index), None, None);
                let event = EventIn { r#type, output_index, item_id, item, delta, response };
                self.complete(&event, deltas)?;
            }
        }
        Ok(())
    }

    fn stop_reason(&self) -> StopReason {
        let parts = || self.items.values().map(|item| &item.part);
        let refusal = parts().find_map(|part| match part {
            Part::Message { refusal, .. } if !refusal.is_empty() => Some(shorten(refusal)),
            _ => None,
        });
        match (&self.end, refusal) {
            (_, Some(refusal)) => StopReason::Refusal(Some(refusal)),
            (Some(End::Incomplete(reason)), _) => match reason.as_str() {
                "max_output_tokens" => StopReason::MaxTokens,
                "content_filter" => StopReason::Refusal(None),
                other => StopReason::Other(shorten(other)),
            },
            _ if parts().any(|part| matches!(part, Part::Call { .. })) => StopReason::ToolUse,
            _ => StopReason::EndTurn,
        }
    }

    /// Returns the message of what is complete. A text that the output limit cut counts; a call that was
    /// cut must not run with half of its arguments.
    fn into_message(self) -> Message {
        let is_whole = self.end.is_some();
        let items = self
            .items
            .into_values()
            .filter(|item| item.is_done || (is_whole && matches!(item.part, Part::Message { .. })));
        let content = items.flat_map(|item| item.part.into_blocks()).collect();
        Message { role: Role::Assistant, content }
    }
}

impl Part {
    /// Returns true if an item of this type is such a part.
    fn is_of(&self, kind: &str) -> bool {
        match self {
            Self::Message { .. } => kind == "message",
            Self::Call { .. } => kind == "function_call",
            Self::Kept(of, _) => kind == *of,
            Self::Other => !["message", "function_call", REASONING, COMPACTION].contains(&kind),
        }
    }

    /// Returns true if it is the call that the item names.
    fn is_call_of(&self, item: &ItemIn<'_>) -> bool {
        let Self::Call { id, .. } = self else { return false };
        !id.is_empty() && item.call_id.as_ref() == Some(id)
    }

    /// Returns true if it is a call and the item names another.
    fn is_another(&self, item: &ItemIn<'_>) -> bool {
        let Self::Call { id, .. } = self else { return false };
        let named = item.call_id.as_ref().filter(|named| !named.is_empty());
        !id.is_empty() && named.is_some_and(|named| named != id)
    }

    fn of_message(phase: Option<String>) -> Self {
        Self::Message { text: String::new(), refusal: String::new(), phase }
    }

    fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Message { text, .. } if text.trim().is_empty() => Vec::new(),
            Self::Message { text, phase, .. } => {
                let phase = phase.as_deref().and_then(phase::block);
                phase.into_iter().chain([Block::Text(text)]).collect()
            }
            Self::Call { id, name, arguments } => {
                // Results are joined to calls by the id, so a call without an id gets one here.
                let id = match id.is_empty() {
                    true => format!("call_{}", Uuid::now_v7().simple()),
                    false => id,
                };
                let input = received_input(arguments.into_text());
                vec![Block::ToolUse(ToolCall { id, name, input })]
            }
            Self::Kept(_, kept) => kept.map(Block::Other).into_iter().collect(),
            Self::Other => Vec::new(),
        }
    }
}

fn read_item(raw: &RawValue) -> Result<ItemIn<'_>, ModelError> {
    serde_json::from_str(raw.get())
        .map_err(|error| malformed(format!("an item cannot be read: {error}")))
}

/// Returns the error for an error object: in a field of its own, or as the event itself, whose type is only
/// the word `error`.
fn refusal(data: &[u8]) -> ModelError {
    let value: serde_json::Value = tree(data).unwrap_or_default();
    let error = if value["error"].is_object() { &value["error"] } else { &value };
    let kind = [&error["code"], &error["type"]].into_iter().find_map(|word| word.as_str());
    let message = error["message"].as_str().unwrap_or_default();
    let told = serde_json::json!({ "error": { "type": kind, "code": kind, "message": message } });
    Refusal::read(told.to_string().as_bytes()).into_error(200)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::ErrorClass;
    use crate::model::http::Intake;

    fn replay<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Result<Reply, ModelError> {
        Intake::replay(ResponseAssembly::default(), chunks)
    }

    fn event(data: &str) -> String {
        let kind = data.split('"').nth(3).unwrap_or_default();
        format!("event: {kind}\ndata: {data}\n\n")
    }

    const REASONING_ITEM: &str =
        r#"{"id":"rs_1","type":"reasoning",  "summary":[],"encrypted_content":"gA\/="}"#;

    /// Reasoning, a text and two calls.
    fn events() -> Vec<String> {
        let call = |index: u64, id: &str, arguments: &str| {
            let item = |arguments: &str, status: &str| {
                let arguments = serde_json::json!(arguments);
                format!(
                    r#"{{"id":"fc_{index}","type":"function_call","status":"{status}","call_id":"{id}","name":"bash","arguments":{arguments}}}"#
                )
            };
            let (first, second) = arguments.split_at(arguments.len() / 2);
            let delta = |part: &str| {
                let part = serde_json::json!(part);
                format!(
                    r#"{{"type":"response.function_call_arguments.delta","output_index":{index},"delta":{part}}}"#
                )
            };
            let added = item("", "in_progress");
            let done = item(arguments, "completed");
            vec![
                format!(
                    r#"{{"type":"response.output_item.added","output_index":{index},"item":{added}}}"#
                ),
                delta(first),
                delta(second),
                format!(
                    r#"{{"type":"response.output_item.done","output_index":{index},"item":{done}}}"#
                ),
            ]
        };
        let mut all = vec![
            r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress"}}"#.to_owned(),
            r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#.to_owned(),
            r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"hm"}"#.to_owned(),
            format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{REASONING_ITEM}}}"#),
            r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}"#.to_owned(),
            r#"{"type":"response.content_part.added","output_index":1,"content_index":0,"part":{"type":"output_text","text":""}}"#.to_owned(),
            r#"{"type":"response.output_text.delta","output_index":1,"delta":"Look"}"#.to_owned(),
            r#"{"type":"response.output_text.delta","output_index":1,"delta":"ing 😀"}"#.to_owned(),
            r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"Looking 😀","annotations":[]}]}}"#.to_owned(),
        ];
        all.extend(call(2, "call_a", r#"{"command": "ls"}"#));
        all.extend(call(3, "call_b", "{}"));
        all.push(
            r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","error":null,"incomplete_details":null,"output":[],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":30,"output_tokens_details":{"reasoning_tokens":12},"total_tokens":130}}}"#.to_owned(),
        );
        all.iter().map(|data| event(data)).collect()
    }

    fn blocks(reply: &Reply) -> String {
        serde_json::to_string(&reply.message.content).expect("blocks")
    }

    fn expected() -> String {
        format!(
            r#"[{REASONING_ITEM},{{"type":"text","text":"Looking 😀"}},{{"type":"tool_use","id":"call_a","name":"bash","input":{{"command": "ls"}}}},{{"type":"tool_use","id":"call_b","name":"bash","input":{{}}}}]"#
        )
    }

    #[test]
    fn a_response_is_read_at_any_split() {
        let stream = events().concat();
        let usage = Usage { input: 40, output: 30, cache_read: 60, cache_write: 0 };
        for at in 0..stream.len() {
            let (first, second) = stream.as_bytes().split_at(at);
            let reply = replay([first, second]).expect("a reply");
            assert_eq!(blocks(&reply), expected(), "split at {at}");
            assert_eq!((reply.stop, reply.usage), (StopReason::ToolUse, usage));
        }
    }

    #[test]
    fn a_response_whose_items_have_no_index_is_the_same() {
        let index = regex::Regex::new(r#""output_index":\d,"#).expect("a pattern");
        let id = regex::Regex::new(r#""(id|call_id)":"(fc|msg|rs)_[^"]*","#).expect("a pattern");
        let stream = events().concat();
        let placed_by_id = index.replace_all(&stream, "");
        let bare = id.replace_all(&placed_by_id, "");
        for stream in [&placed_by_id, &bare] {
            let reply = replay([stream.as_bytes()]).expect("a reply");
            let expected = expected().replace("\"id\":\"rs_1\",", "");
            assert_eq!(blocks(&reply).replace("\"id\":\"rs_1\",", ""), expected);
        }
        // The whole response at the end brings nothing twice.
        let end = placed_by_id.replace(
            r#""output":[]"#,
            r#""output":[{"id":"msg_1","type":"message","content":[{"text":"Looking 😀"}]}]"#,
        );
        assert_eq!(blocks(&replay([end.as_bytes()]).expect("a reply")), expected());
    }

    #[test]
    fn a_stream_cut_anywhere_keeps_the_items_that_were_whole() {
        let events = events();
        let stream = events.concat();
        let whole = stream.len() - "\n\n".len();
        let text_done: usize = events[..9].iter().map(String::len).sum::<usize>() - "\n\n".len();
        for at in 0..stream.len() {
            match replay([&stream.as_bytes()[..at]]) {
                Err(error) => {
                    assert!(at < text_done, "nothing kept at {at}");
                    assert_eq!(error.class, ErrorClass::Connection);
                }
                Ok(reply) if matches!(reply.stop, StopReason::Interrupted(_)) => {
                    assert!((text_done..whole).contains(&at), "interrupted at {at}");
                    let kept = blocks(&reply);
                    let (kept, all) = (&kept[..kept.len() - 1], expected());
                    assert!(all.starts_with(kept), "{kept}");
                    assert!(reply.usage.output > 0);
                }
                Ok(reply) => {
                    assert!(at >= whole, "whole too early at {at}");
                    assert_eq!(blocks(&reply), expected());
                }
            }
        }
    }

    #[test]
    fn a_response_in_one_document_or_in_its_last_event_is_the_same() {
        let output = format!(
            r#"[{REASONING_ITEM},{{"type":"message","content":[{{"type":"output_text","text":"Looking 😀"}}]}},{{"type":"web_search_call","id":"ws"}},{{"type":"function_call","call_id":"call_a","name":"bash","arguments":"{{\"command\": \"ls\"}}"}},{{"type":"function_call","call_id":"call_b","name":"bash","arguments":""}}]"#
        );
        let response = format!(
            r#"{{"object":"response","status":"completed","output":{output},"usage":{{"input_tokens":9,"output_tokens":2}}}}"#
        );
        let event = event(&format!(r#"{{"type":"response.completed","response":{response}}}"#));
        for form in [response, event] {
            let reply = replay([form.as_bytes()]).expect("a reply");
            assert_eq!(blocks(&reply), expected());
            assert_eq!((reply.usage.input, reply.usage.output), (9, 2));
        }
    }

    #[test]
    fn the_ends_are_told_apart() {
        let ended = |response: &str| {
            let text = r#"{"type":"response.output_text.delta","output_index":0,"delta":"so"}"#;
            let end = format!(r#"{{"type":"response.incomplete","response":{response}}}"#);
            replay([format!("{}{}", event(text), event(&end)).as_bytes()])
        };
        let stop = |response: &str| ended(response).expect("a reply").stop;
        let cut = r#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#;
        assert_eq!(stop(cut), StopReason::MaxTokens);
        assert_eq!(ended(cut).expect("a reply").message, Message::assistant("so"));
        let filtered =
            r#"{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}"#;
        assert_eq!(stop(filtered), StopReason::Refusal(None));
        assert_eq!(stop(r#"{"status":"completed"}"#), StopReason::EndTurn);
        let refused = [
            r#"{"type":"response.refusal.delta","output_index":0,"delta":"I can"}"#,
            r#"{"type":"response.refusal.delta","output_index":0,"delta":"not."}"#,
            r#"{"type":"response.completed","response":{"status":"completed"}}"#,
        ];
        let refused: String = refused.iter().map(|data| event(data)).collect();
        let reply = replay([refused.as_bytes()]).expect("a reply");
        assert_eq!(reply.stop, StopReason::Refusal(Some("I cannot.".to_owned())));
    }

    #[test]
    fn errors_have_the_kinds_of_the_other_protocols() {
        let failed = |code: &str, message: &str| {
            let data = format!(
                r#"{{"type":"response.failed","response":{{"status":"failed","error":{{"code":"{code}","message":"{message}"}}}}}}"#
            );
            let top =
                format!(r#"{{"type":"error","code":"{code}","message":"{message}","param":null}}"#);
            let error = replay([event(&data).as_bytes()]).expect_err("an error");
            let same = replay([event(&top).as_bytes()]).expect_err("an error");
            assert_eq!(error.class, same.class, "{code}");
            assert!(error.message.contains(message), "{error}");
            error.class
        };
        assert_eq!(failed("rate_limit_exceeded", "slow down"), ErrorClass::RateLimited);
        assert_eq!(failed("server_error", "The server had an error"), ErrorClass::ServerError);
        assert_eq!(failed("insufficient_quota", "You exceeded"), ErrorClass::QuotaExhausted);
        let long = failed(
            "context_length_exceeded",
            "Your input exceeds the context window of this model.",
        );
        assert!(matches!(long, ErrorClass::ContextTokens { .. }), "{long:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Events in any order, cut and doubled, never make a panic or a call with half of its arguments.
        #[test]
        fn nonsense_is_refused_or_read(
            picks in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..3), 0..30),
        ) {
            let events = events();
            let mut stream = String::new();
            for (pick, how) in picks {
                let event = pick.get(&events);
                match how {
                    0 => stream.push_str(event),
                    1 => stream.push_str(&event.replace("output_index\":1", "output_index\":3")),
                    _ => stream.push_str(&event.replace("\"type\":\"function_call\"", "\"type\":7")),
                }
            }
            if let Ok(reply) = replay([stream.as_bytes()]) {
                for call in reply.message.tool_calls() {
                    prop_assert!(["{\"command\": \"ls\"}", "{}"].contains(&call.input.as_str()), "{call:?}");
                }
            }
        }
    }

    #[test]
    fn the_phase_of_a_message_stands_before_its_text() {
        let item = |phase: &str| {
            event(&format!(
                r#"{{"type":"response.output_item.done","output_index":0,"item":{{"type":"message","role":"assistant"{phase},"content":[{{"type":"output_text","text":"so"}}]}}}}"#
            ))
        };
        let end =
            event(r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#);
        let blocks = |phase: &str| {
            let stream = [item(phase), end.clone()];
            replay(stream.iter().map(String::as_bytes)).expect("a reply").message.content
        };
        let kept = Json::parse(r#"{"type":"message_phase","phase":"commentary"}"#.to_owned());
        let kept = Block::Other(kept.expect("JSON"));
        assert_eq!(blocks(r#","phase":"commentary""#), [kept, Block::Text("so".to_owned())]);
        for none in ["", r#","phase":null"#, r#","phase":7"#, r#","phase":"no word""#] {
            assert_eq!(blocks(none), [Block::Text("so".to_owned())], "{none}");
        }
    }

    #[test]
    fn tokens_that_were_written_to_a_cache_are_counted() {
        let end = event(
            r#"{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":4120,"output_tokens":5,"input_tokens_details":{"cached_tokens":100,"cache_write_tokens":4012}}}}"#,
        );
        let reply = replay([end.as_bytes()]).expect("a reply");
        let usage = Usage { input: 8, output: 5, cache_read: 100, cache_write: 4_012 };
        assert_eq!(reply.usage, usage);
        let failed = event(
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"no"},"usage":{"input_tokens":43,"output_tokens":10}}}"#,
        );
        let text = event(
            r#"{"type":"response.output_text.delta","output_index":0,"delta":"a text of some words"}"#,
        );
        let error = replay([text.as_bytes(), failed.as_bytes()]).expect_err("it failed");
        let usage = Usage { input: 43, output: 10, ..Usage::default() };
        assert_eq!(error.usage.as_deref(), Some(&usage));
    }

    #[test]
    fn a_call_is_made_once_whatever_the_indexes_say() {
        let item = |id: &str| {
            format!(
                r#"{{"type":"function_call","id":"fc_{id}","call_id":"{id}","name":"bash","arguments":"{{\"{id}\":1}}"}}"#
            )
        };
        // The indexes of the two calls, the ids that their items have, and whether the whole output follows.
        type Row = ([Option<u64>; 2], [&'static str; 2], bool, Option<[&'static str; 2]>);
        let table: [Row; 9] = [
            ([Some(0), Some(1)], ["a", "b"], true, Some(["a", "b"])),
            ([Some(1), Some(2)], ["a", "b"], true, Some(["a", "b"])),
            ([Some(1), Some(2)], ["a", "b"], false, Some(["a", "b"])),
            ([Some(10), Some(9)], ["a", "b"], true, Some(["b", "a"])),
            ([None, None], ["a", "b"], true, Some(["a", "b"])),
            ([Some(0), Some(0)], ["a", "b"], true, None),
            ([Some(0), Some(0)], ["a", "b"], false, None),
            ([Some(0), Some(0)], ["a", "a"], false, None),
            ([None, None], ["a", "a"], false, None),
        ];
        for (indexes, ids, is_told, expected) in table {
            let mut stream = String::new();
            for (index, id) in indexes.iter().zip(ids) {
                let index =
                    index.map_or(String::new(), |index| format!("\"output_index\":{index},"));
                for kind in ["added", "done"] {
                    let item = item(id);
                    stream += &event(&format!(
                        r#"{{"type":"response.output_item.{kind}",{index}"item":{item}}}"#
                    ));
                }
            }
            let output = if is_told { ids.map(item).join(",") } else { String::new() };
            stream += &event(&format!(
                r#"{{"type":"response.completed","response":{{"status":"completed","output":[{output}]}}}}"#
            ));
            let reply = replay([stream.as_bytes()]);
            let calls = reply.ok().filter(|reply| reply.broken.is_none()).map(|reply| {
                let calls: Vec<_> =
                    reply.message.tool_calls().map(|call| call.id.clone()).collect();
                calls
            });
            let expected = expected.map(|ids| ids.map(str::to_owned).to_vec());
            assert_eq!(calls, expected, "{indexes:?} {ids:?} {is_told}");
        }
    }
}
