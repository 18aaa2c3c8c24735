//! The view: what of a conversation is sent, kept up to date by messages and edits.
//!
//! A pure fold: the same messages and edits give the same view. Sizes are kept as things change,
//! so nothing here costs more as the conversation grows.

mod instead;
mod join;
pub mod range;
mod results;
pub mod rules;
mod shared;
mod turns;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

pub(super) use self::instead::{ASSISTANT_FILLER, instead, lost_request, without_results};
pub(super) use self::join::joined;
pub use self::results::Clearable;
use self::shared::Shared;
pub use self::turns::{Speaker, Turn};
use crate::context::measure::{self, Extent};
use crate::context::record::Record;
use crate::context::record::words::{Uses, strings_of};
use crate::context::view::rules::{Kind, Nature};
use crate::context::{ClearedResult, Edit};
use crate::message::{Block, Json, Message, ResultContent, Role};

/// One message of the view: encoded once, with what the layers need to know of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The message in Anthropic form.
    pub json: Json,
    /// Who speaks.
    pub role: Role,
    /// Its size: Unicode scalar values of `json`, an image counting as the tokens that it costs.
    pub chars: usize,
    /// Its size in tokens, by estimate.
    pub tokens: u64,
    /// The calls that it makes: id and tool.
    pub calls: Box<[(String, String)]>,
    /// The calls that it answers.
    pub answers: Box<[String]>,
    /// Whether it asks the agent for something: what an edit keeps word for word.
    pub is_request: bool,
    /// What it is like as far as the rules of what may be sent ask.
    pub nature: Nature,
}

impl Entry {
    pub(super) fn new(json: Json) -> Result<Self, serde_json::Error> {
        Message::read(json.as_str()).map(|message| Self::of(json, &message))
    }

    /// The entry of a message that is decoded already.
    fn of(json: Json, message: &Message) -> Self {
        let calls = message.tool_calls().map(|call| (call.id.clone(), call.name.clone()));
        let answers = message.tool_results().map(|result| result.tool_use_id.clone());
        Self {
            role: message.role,
            chars: measure::message_chars(&json),
            tokens: measure::message_tokens(message),
            calls: calls.collect(),
            answers: answers.collect(),
            is_request: message.role == Role::User
                && message.content.iter().any(|block| matches!(block, Block::Text(_))),
            nature: Nature::of(message),
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
    /// How it came to stand here: never read from what it says.
    pub standing: Standing,
    /// The record that the entry renders, if it is one.
    pub record: Option<Arc<Record>>,
    /// The places that were joined here, because user messages side by side are sent as one.
    pub parts: Option<Arc<[Self]>>,
    /// What is sent.
    pub entry: Arc<Entry>,
}

/// How an entry came to stand in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is a message of the conversation, word for word.
    Verbatim,
    /// It is a message of the conversation whose results or thinking were cleared.
    Cleared,
    /// An edit put it in the place of a range.
    Instead,
}

/// What stood in a range of the view at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The latest serial: whatever changes an entry gives it a later one.
    latest: u64,
    /// How many places there were: whatever takes one away changes this.
    slots: usize,
}

/// The view of one agent's conversation. A clone costs the same however long the conversation is;
/// the first change of a part of it copies that part.
#[derive(Clone, Debug, Default)]
pub struct View {
    slots: Shared<VecDeque<Slot>>,
    results: Shared<VecDeque<Clearable>>,
    chars: usize,
    extent: Extent,
    /// The newest message that asked for something, whatever became of it in the view.
    request: Option<Arc<Entry>>,
    turns: Shared<VecDeque<Turn>>,
    /// Whether the first message is the prompt of a task.
    has_task: bool,
    /// Characters and model replies of the whole conversation, whatever was edited since.
    appended_chars: u64,
    replies: u64,
    uses: Shared<Uses>,
    /// What an edit added to the system prompt.
    system: Option<Arc<str>>,
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

    /// Appends the prompt of the task that the agent was started for: it stays word for word, also
    /// when something else is asked later.
    ///
    /// # Errors
    /// When `json` is not a message.
    pub fn push_task(&mut self, json: Json) -> Result<(), serde_json::Error> {
        self.has_task = self.next_message == 0;
        self.push(json)
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
        self.note_uses(message, decoded);
        self.chars += entry.chars;
        self.extent.held += entry.tokens;
        self.appended_chars += entry.chars as u64;
        self.replies += u64::from(entry.role == Role::Assistant);
        let (serial, standing) = (self.serial(), Standing::Verbatim);
        let entry = Arc::new(entry);
        self.note_turn(&entry);
        if entry.is_request {
            self.request = Some(entry.clone());
        }
        let (from, to, record, parts) = (message, message + 1, None, None);
        self.slots.push_back(Slot { from, to, serial, standing, record, parts, entry });
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
            Edit::Replace { from, to, with } => {
                self.replace_turns(*from, *to, with.first());
                self.replace(*from, *to, with)
            }
            Edit::Record(record) => {
                if record.state.is_some() {
                    self.forget_state();
                }
                let (with, place) = instead::of_record(self, record);
                let with: Vec<Json> = with.iter().map(Json::encode).collect();
                let first = self.places(record.from, record.to).start;
                self.replace(record.from, record.to, &with)?;
                if let Some(slot) = self.slots.get_mut(first + place) {
                    slot.record = Some(Arc::new(record.clone()));
                    let plain = Entry { is_request: false, ..Entry::clone(&slot.entry) };
                    slot.entry = plain.into();
                }
                Ok(())
            }
            Edit::Window { to, system } => {
                self.system = Some(system.as_str().into());
                self.replace(0, *to, &[])
            }
            Edit::DropThinking { from, to } => self.drop_thinking(*from, *to),
        }
    }

    /// The places, oldest first.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = &Slot> + ExactSizeIterator {
        self.slots.iter()
    }

    /// The places, those that were joined each by itself, oldest first.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &Slot> {
        self.slots.iter().flat_map(Slot::apart)
    }

    /// The newest message that asked the agent for something, word for word.
    #[must_use]
    pub fn request(&self) -> Option<&Entry> {
        self.request.as_deref()
    }

    /// The task prompt, as long as it stands in the view word for word.
    #[must_use]
    pub fn task(&self) -> Option<&Slot> {
        let first = self.slots.front()?.apart().next()?;
        let is_whole = first.standing == Standing::Verbatim && first.to == 1;
        (self.has_task && is_whole && first.entry.is_request).then_some(first)
    }

    /// The same view with the joined places at the ends of a range taken apart.
    #[must_use]
    pub fn taken_apart(&self, from: u64, to: u64) -> Cow<'_, Self> {
        if !self.is_joined_at(from, to) {
            return Cow::Borrowed(self);
        }
        let mut apart = self.clone();
        apart.take_apart(from, to);
        Cow::Owned(apart)
    }

    /// The place of a message that stands in the view by itself.
    #[must_use]
    pub fn slot_of(&self, message: u64) -> Option<&Slot> {
        self.slots.get(self.place_of(message)?)
    }

    fn place_of(&self, message: u64) -> Option<usize> {
        let place = self.slots.partition_point(|slot| slot.to <= message);
        self.slots.get(place).filter(|slot| slot.from == message).map(|_| place)
    }

    /// The places that an edit of a range would take away, oldest first.
    pub fn covered(&self, from: u64, to: u64) -> impl DoubleEndedIterator<Item = &Slot> {
        self.slots.range(self.places(from, to))
    }

    /// The place before the range, if there is one.
    pub(super) fn before(&self, from: u64) -> Option<&Slot> {
        self.slots.get(self.places(from, from).start.checked_sub(1)?)
    }

    /// The slots that an edit of a range takes away: those of its messages, and what an edit that
    /// ended where the range begins left there beside its replacement and is of no use any more.
    fn places(&self, from: u64, to: u64) -> Range<usize> {
        let mut first = self.slots.partition_point(|slot| slot.to <= from);
        let last = self.slots.partition_point(|slot| slot.to <= to).max(first);
        let active = self.slots.iter().rfind(|slot| slot.entry.is_request);
        let is_left = |slot: &Slot| {
            let is_beside = slot.from == from && slot.to == from;
            let is_active = active.is_some_and(|active| active.serial == slot.serial);
            is_beside && slot.standing == Standing::Instead && slot.record.is_none() && !is_active
        };
        while first > 0 && is_left(&self.slots[first - 1]) {
            first -= 1;
        }
        first..last
    }

    /// What stands in a range now: equal to what was noted before as long as nothing in it changed.
    #[must_use]
    pub fn version_of(&self, from: u64, to: u64) -> Version {
        let (mut latest, mut slots) = (0, 0);
        for slot in self.covered(from, to) {
            latest = slot.serial.max(latest);
            slots += 1;
        }
        Version { latest, slots }
    }

    /// The block that joins the system prompt, if an edit added one.
    #[must_use]
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// The characters of all messages that ever joined the conversation.
    #[must_use]
    pub fn appended_chars(&self) -> u64 {
        self.appended_chars
    }

    /// What the agent used in its calls.
    #[must_use]
    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// How often the model replied.
    #[must_use]
    pub fn replies(&self) -> u64 {
        self.replies
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

    fn note_uses(&mut self, message: u64, decoded: &Message) {
        let uses = &mut *self.uses;
        for block in &decoded.content {
            match block {
                Block::ToolUse(call) => uses.note_call(message, &strings_of(&call.input)),
                Block::ToolResult(result) => uses.note_result(message, &result.text()),
                Block::Text(_) | Block::Other(_) => {}
            }
        }
    }

    fn clear(&mut self, cleared: &ClearedResult) -> Result<(), serde_json::Error> {
        self.note_cleared(cleared);
        self.take_apart_at(self.slots.partition_point(|slot| slot.to <= cleared.message));
        let Some(place) = self.place_of(cleared.message) else { return Ok(()) };
        let slot = &self.slots[place];
        let mut message: Message = slot.entry.json.decode()?;
        for block in &mut message.content {
            if let Block::ToolResult(result) = block
                && result.tool_use_id == cleared.tool_use_id
            {
                result.content = ResultContent::Text(cleared.text.clone());
            }
        }
        self.rewrite(place, &message);
        self.join_touching(cleared.message, cleared.message);
        Ok(())
    }

    /// Takes the state out of the records: a newer one shows it.
    fn forget_state(&mut self) {
        let shows = |slot: &Slot| slot.record.as_ref().is_some_and(|record| record.state.is_some());
        while let Some(place) = self.slots.iter().position(shows) {
            let Some(record) = self.slots[place].record.take() else { break };
            let record = Record { state: None, ..Record::clone(&record) };
            self.rewrite(place, &record.message());
            self.slots[place].record = Some(Arc::new(record));
        }
    }

    /// Puts a changed message in a slot.
    fn rewrite(&mut self, place: usize, message: &Message) {
        let serial = self.serial();
        let slot = &mut self.slots[place];
        let fresh = Entry::of(Json::encode(message), message);
        let entry = Entry { is_request: slot.entry.is_request, ..fresh };
        self.chars = self.chars - slot.entry.chars + entry.chars;
        self.extent.change(slot.entry.tokens, entry.tokens);
        slot.entry = entry.into();
        slot.serial = serial;
        if slot.standing == Standing::Verbatim {
            slot.standing = Standing::Cleared;
        }
    }

    fn drop_thinking(&mut self, from: u64, to: u64) -> Result<(), serde_json::Error> {
        let first = self.slots.partition_point(|slot| slot.from < from);
        let last = self.slots.partition_point(|slot| slot.to <= to).max(first);
        for place in first..last {
            let entry = &self.slots[place].entry;
            if !entry.nature.thinks {
                continue;
            }
            let mut message: Message = entry.json.decode()?;
            message.content.retain(|block| Kind::of(block) != Kind::Thinking);
            if message.content.is_empty() {
                message.content.push(Block::Text("(thinking only)".to_owned()));
            }
            self.rewrite(place, &message);
        }
        Ok(())
    }

    fn replace(&mut self, from: u64, to: u64, with: &[Json]) -> Result<(), serde_json::Error> {
        self.take_apart(from, to);
        let Range { start: first, end: last } = self.places(from, to);
        let mut fresh = Vec::with_capacity(with.len());
        for (at, json) in with.iter().enumerate() {
            let mut entry = Entry::new(json.clone())?;
            // The first replacement stands for the range and tells of it; the others stand for
            // nothing of their own.
            entry.is_request &= at > 0;
            let from = if at == 0 { from } else { to };
            let (serial, standing) = (self.serial(), Standing::Instead);
            let (record, parts, entry) = (None, None, entry.into());
            fresh.push(Slot { from, to, serial, standing, record, parts, entry });
        }
        self.keep_one_request(&mut fresh);
        let gone: usize = self.slots.range(first..last).map(|slot| slot.entry.chars).sum();
        let came: usize = fresh.iter().map(|slot| slot.entry.chars).sum();
        self.chars = self.chars - gone + came;
        self.extent.remove(self.slots.range(first..last).map(|slot| slot.entry.tokens).sum());
        self.extent.held += fresh.iter().map(|slot| slot.entry.tokens).sum::<u64>();
        let tail = self.slots.split_off(last);
        self.slots.truncate(first);
        self.slots.extend(fresh);
        self.slots.extend(tail);
        if with.is_empty() {
            // Nothing else tells what follows the gap that it has been changed before it.
            let serial = self.serial();
            if let Some(slot) = self.slots.get_mut(first.saturating_sub(1)) {
                slot.serial = serial;
            }
        }
        self.forget_results(from, to);
        self.join_touching(from, to);
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
                stored: None,
                kept_chars: 0,
            }],
        };
        view.apply(&clear).expect("applies");
        assert_eq!((view.chars(), view.results().len()), (counted(&view), 2));
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
        assert_eq!(view.results().len(), 1);
        assert_eq!(view.next_message(), 7);
    }

    #[test]
    fn results_know_their_tool() {
        let view = conversation();
        assert!(view.results().all(|result| result.tool == "read_file"));
    }
}
