//! The view: what of a conversation is sent, kept up to date by messages and edits.
//!
//! A pure fold: the same messages and edits give the same view. Sizes are kept as things change,
//! so nothing here costs more as the conversation grows.

use std::collections::VecDeque;
use std::sync::Arc;

use super::measure::{self, Extent};
use super::{ClearedResult, Edit};
use crate::message::{Block, Json, Message, ResultContent, Role};

/// One message of the view: encoded once, with what the layers need to know of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The message in Anthropic form.
    pub json: Json,
    /// Who speaks.
    pub role: Role,
    /// Its size: Unicode scalar values of `json`.
    pub chars: usize,
    /// Its size in tokens, by estimate.
    pub tokens: u64,
    /// The calls that it makes: id and tool.
    pub calls: Box<[(String, String)]>,
    /// The calls that it answers.
    pub answers: Box<[String]>,
    /// Whether it asks the agent for something: what an edit keeps word for word.
    pub is_request: bool,
}

impl Entry {
    fn new(json: Json) -> Result<Self, serde_json::Error> {
        Message::read(json.as_str()).map(|message| Self::of(json, &message))
    }

    /// The entry of a message that is decoded already.
    fn of(json: Json, message: &Message) -> Self {
        let calls = message.tool_calls().map(|call| (call.id.clone(), call.name.clone()));
        let answers = message.tool_results().map(|result| result.tool_use_id.clone());
        Self {
            role: message.role,
            chars: json.as_str().chars().count(),
            tokens: measure::message_tokens(message),
            calls: calls.collect(),
            answers: answers.collect(),
            is_request: message.role == Role::User
                && message.content.iter().any(|block| matches!(block, Block::Text(_))),
            json,
        }
    }
}

/// A place in the view: an entry and the conversation messages that it stands for.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The first message covered.
    pub from: u64,
    /// The first message after those covered; equal to `from` where an edit put more messages
    /// than the range it covers.
    pub to: u64,
    /// Changes whenever the entry does: a key for what is derived from it.
    pub serial: u64,
    /// What is sent.
    pub entry: Arc<Entry>,
}

/// A tool result that still stands in the view in full and may be cleared.
#[derive(Clone, Debug)]
pub struct Clearable {
    /// The message that holds it.
    pub message: u64,
    /// The call that it answers.
    pub tool_use_id: String,
    /// The tool of that call, or `unknown`.
    pub tool: String,
    /// The size of its content; `None` when the content is not a plain text.
    pub chars: Option<usize>,
}

/// The view of one agent's conversation.
#[derive(Clone, Debug, Default)]
pub struct View {
    slots: VecDeque<Slot>,
    clearable: VecDeque<Clearable>,
    chars: usize,
    extent: Extent,
    next_message: u64,
    next_serial: u64,
}

impl View {
    /// Appends a message of the conversation.
    ///
    /// # Errors
    /// When `json` is not a message.
    pub fn push(&mut self, json: Json) -> Result<(), serde_json::Error> {
        let message = Message::read(json.as_str())?;
        self.add(Entry::of(json, &message), &message);
        Ok(())
    }

    /// Appends a user message that only asks the model to go on: the request stays the one before.
    ///
    /// # Errors
    /// When `json` is not a message.
    pub fn push_prompt_to_go_on(&mut self, json: Json) -> Result<(), serde_json::Error> {
        let message = Message::read(json.as_str())?;
        self.add(Entry { is_request: false, ..Entry::of(json, &message) }, &message);
        Ok(())
    }

    fn add(&mut self, entry: Entry, decoded: &Message) {
        let message = self.next_message;
        self.note_results(message, decoded);
        self.chars += entry.chars;
        self.extent.held += entry.tokens;
        let serial = self.serial();
        self.slots.push_back(Slot { from: message, to: message + 1, serial, entry: entry.into() });
        self.next_message += 1;
    }

    /// Applies an edit. What it names and the view no longer has is passed over, so that an edit
    /// applied twice changes nothing the second time.
    ///
    /// # Errors
    /// When a replacement is not a message.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), serde_json::Error> {
        match edit {
            Edit::ClearResults { results } => {
                for cleared in results {
                    self.clear(cleared)?;
                }
                Ok(())
            }
            Edit::Replace { from, to, with } => self.replace(*from, *to, with),
        }
    }

    /// The places, oldest first.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = &Slot> + ExactSizeIterator {
        self.slots.iter()
    }

    /// The tool results that may still be cleared, oldest first.
    #[must_use]
    pub fn clearable(&self) -> &VecDeque<Clearable> {
        &self.clearable
    }

    /// Strikes the oldest `count` results from the list of those that may be cleared: they are
    /// too short to be worth it, and only get older.
    pub fn settle(&mut self, count: usize) {
        self.clearable.drain(..count.min(self.clearable.len()));
    }

    /// The estimated size of the messages in tokens: characters / 4, as in the documented presets.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        (self.chars / 4) as u64
    }

    /// How much the messages are by the estimate that knows scripts, and what edits took out.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The size of the messages in characters.
    #[must_use]
    pub fn chars(&self) -> usize {
        self.chars
    }

    /// The number that the conversation's next message gets.
    #[must_use]
    pub fn next_message(&self) -> u64 {
        self.next_message
    }

    fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    fn note_results(&mut self, message: u64, decoded: &Message) {
        let calls = self.slots.back().map(|slot| slot.entry.clone());
        for result in decoded.tool_results() {
            let call = calls.iter().flat_map(|e| e.calls.iter());
            let mut tool = call.filter(|(id, _)| *id == result.tool_use_id).map(|(_, tool)| tool);
            self.clearable.push_back(Clearable {
                message,
                tool_use_id: result.tool_use_id.clone(),
                tool: tool.next_back().map_or("unknown", String::as_str).to_owned(),
                chars: match &result.content {
                    ResultContent::Text(text) => Some(text.chars().count()),
                    ResultContent::Blocks(_) => None,
                },
            });
        }
    }

    fn clear(&mut self, cleared: &ClearedResult) -> Result<(), serde_json::Error> {
        self.clearable.retain(|result| {
            result.message != cleared.message || result.tool_use_id != cleared.tool_use_id
        });
        let place = self.slots.partition_point(|slot| slot.to <= cleared.message);
        let found = self.slots.get(place);
        let Some(slot) = found.filter(|slot| slot.from == cleared.message) else { return Ok(()) };
        let mut message: Message = slot.entry.json.decode()?;
        for block in &mut message.content {
            if let Block::ToolResult(result) = block
                && result.tool_use_id == cleared.tool_use_id
            {
                result.content = ResultContent::Text(cleared.text.clone());
            }
        }
        let entry =
            Entry { is_request: slot.entry.is_request, ..Entry::new(Json::encode(&message))? };
        let serial = self.serial();
        let slot = &mut self.slots[place];
        self.chars = self.chars - slot.entry.chars + entry.chars;
        self.extent.change(slot.entry.tokens, entry.tokens);
        slot.entry = entry.into();
        slot.serial = serial;
        Ok(())
    }

    fn replace(&mut self, from: u64, to: u64, with: &[Json]) -> Result<(), serde_json::Error> {
        let first = self.slots.partition_point(|slot| slot.to <= from);
        let last = self.slots.partition_point(|slot| slot.to <= to).max(first);
        let mut fresh = Vec::with_capacity(with.len());
        for (at, json) in with.iter().enumerate() {
            let mut entry = Entry::new(json.clone())?;
            // The first replacement stands for the range and tells of it; the others stand for
            // nothing of their own.
            entry.is_request &= at > 0;
            let from = if at == 0 { from } else { to };
            fresh.push(Slot { from, to, serial: self.serial(), entry: entry.into() });
        }
        let gone: usize = self.slots.range(first..last).map(|slot| slot.entry.chars).sum();
        let came: usize = fresh.iter().map(|slot| slot.entry.chars).sum();
        self.chars = self.chars - gone + came;
        self.extent.remove(self.slots.range(first..last).map(|slot| slot.entry.tokens).sum());
        self.extent.held += fresh.iter().map(|slot| slot.entry.tokens).sum::<u64>();
        let tail = self.slots.split_off(last);
        self.slots.truncate(first);
        self.slots.extend(fresh);
        self.slots.extend(tail);
        self.clearable.retain(|result| result.message < from || result.message >= to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToolCall, ToolResult};

    fn call(id: &str) -> Json {
        let call = ToolCall {
            id: id.to_owned(),
            name: "read_file".to_owned(),
            input: Json::encode(&serde_json::json!({})),
        };
        Json::encode(&Message { role: Role::Assistant, content: vec![Block::ToolUse(call)] })
    }

    fn answer(id: &str, text: &str) -> Json {
        let result = ToolResult {
            tool_use_id: id.to_owned(),
            content: ResultContent::Text(text.to_owned()),
            is_error: false,
        };
        Json::encode(&Message { role: Role::User, content: vec![Block::ToolResult(result)] })
    }

    fn conversation() -> View {
        let mut view = View::default();
        view.push(Json::encode(&Message::user("go"))).expect("a message");
        for n in 0..3 {
            view.push(call(&n.to_string())).expect("a message");
            view.push(answer(&n.to_string(), &"x".repeat(200))).expect("a message");
        }
        view
    }

    fn counted(view: &View) -> usize {
        view.slots().map(|slot| slot.entry.json.as_str().chars().count()).sum()
    }

    #[test]
    fn sizes_follow_every_change() {
        let mut view = conversation();
        assert_eq!(view.chars(), counted(&view));
        let clear = Edit::ClearResults {
            results: vec![ClearedResult {
                message: 2,
                tool_use_id: "0".to_owned(),
                text: "[Previous: used read_file]".to_owned(),
            }],
        };
        view.apply(&clear).expect("applies");
        assert_eq!((view.chars(), view.clearable().len()), (counted(&view), 2));
        let once = view.chars();
        view.apply(&clear).expect("applies again");
        assert_eq!(view.chars(), once);
        let with = vec![Json::encode(&Message::user("s")), Json::encode(&Message::assistant("ok"))];
        view.apply(&Edit::Replace { from: 0, to: 5, with }).expect("applies");
        assert_eq!(view.chars(), counted(&view));
        let entries = view.slots().map(|slot| slot.entry.tokens).sum::<u64>();
        assert_eq!(view.extent().held, entries);
        assert!(view.extent().removed > 0);
        let covers: Vec<_> = view.slots().map(|slot| (slot.from, slot.to)).collect();
        assert_eq!(covers, [(0, 5), (5, 5), (5, 6), (6, 7)]);
        assert_eq!(view.clearable().len(), 1);
        assert_eq!(view.next_message(), 7);
    }

    #[test]
    fn results_know_their_tool() {
        let view = conversation();
        assert!(view.clearable().iter().all(|result| result.tool == "read_file"));
    }
}
