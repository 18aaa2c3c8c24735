//! The view: the part of a conversation that is sent, kept current by messages and edits.
//!
//! Pure: the same messages and edits, in the same order, give the same view. Sizes are updated with
//! each change, so reading one costs the same however long the conversation is.

mod instead;
mod join;
pub mod range;
mod results;
pub mod rules;
mod shared;
mod turns;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
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

/// One message of the view: encoded once, with the facts that the layers need about it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The message in Anthropic form.
    pub json: Json,
    /// Role of the speaker.
    pub role: Role,
    /// Size in characters (Unicode scalar values of `json`); an image counts four for each token
    /// that it costs.
    pub chars: usize,
    /// Estimated size in tokens.
    pub tokens: u64,
    /// Calls that the message makes: id and tool.
    pub calls: Box<[(String, String)]>,
    /// Ids of the calls that the message answers.
    pub answers: Box<[String]>,
    /// True if the message asks the agent for something. Edits keep the newest such message, the
    /// active request, word for word.
    pub is_request: bool,
    /// True if the message only steers the agent, as one does that asks it to continue.
    pub is_prompt: bool,
    /// Properties of the message that the rules of sending depend on.
    pub nature: Nature,
}

impl Entry {
    pub(super) fn new(json: Json) -> Result<Self, serde_json::Error> {
        Message::read(json.as_str()).map(|message| Self::of(json, &message))
    }

    /// Builds the entry of a message that is already decoded.
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
            is_prompt: false,
            nature: Nature::of(message),
            json,
        }
    }
}

/// A slot of the view: an entry and the conversation messages that it stands for.
#[derive(Clone, Debug)]
pub struct Slot {
    /// First message covered.
    pub from: u64,
    /// First message after those covered. Equal to `from` for the extra messages of an edit: its
    /// first message stands for the whole range, the others for no message.
    pub to: u64,
    /// Number that changes whenever the entry changes: a key for caches of what is derived from it.
    pub serial: u64,
    /// Origin of the entry; recorded by the view, never guessed from the text.
    pub standing: Standing,
    /// The record that the entry renders, if it renders one.
    pub record: Option<Arc<Record>>,
    /// The slots that were joined into this one, because adjacent user messages are sent as one.
    pub parts: Option<Arc<[Self]>>,
    /// The message that is sent.
    pub entry: Arc<Entry>,
}

/// Origin of an entry of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A message of the conversation, word for word.
    Verbatim,
    /// A message of the conversation whose results or thinking were cleared.
    Cleared,
    /// A message that an edit put in the place of a range.
    Instead,
}

/// Fingerprint of a range of the view: two equal ones mean that the range has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Highest serial in the range: every change of an entry gives it a higher one.
    latest: u64,
    /// Number of slots in the range: it changes when a slot is removed.
    slots: usize,
}

/// The view of one agent's conversation. A clone costs the same however long the conversation is;
/// the first change of a shared part copies that part.
#[derive(Clone, Debug, Default)]
pub struct View {
    slots: Shared<VecDeque<Slot>>,
    results: Shared<VecDeque<Clearable>>,
    chars: usize,
    extent: Extent,
    /// Newest message that asked for something; kept even when an edit removes it from the view.
    request: Option<Arc<Entry>>,
    turns: Shared<VecDeque<Turn>>,
    /// True if the first message is the prompt of a task.
    has_task: bool,
    /// Characters and model replies of the whole conversation; edits do not lower them.
    appended_chars: u64,
    replies: u64,
    uses: Shared<Uses>,
    /// Text that an edit added to the system prompt.
    system: Option<Arc<str>>,
    next_message: u64,
    next_serial: u64,
}

impl View {
    /// Appends a message of the conversation.
    ///
    /// # Errors
    /// Returns an error if `json` is not a message.
    pub fn push(&mut self, json: Json) -> Result<(), serde_json::Error> {
        Message::read(json.as_str()).map(|message| self.push_read(json, &message))
    }

    /// Appends a message of the conversation that the caller has read: `message` is what `json` says.
    pub fn push_read(&mut self, json: Json, message: &Message) {
        self.add(Entry::of(json, message), message);
    }

    /// Appends the prompt of the task that the agent was started for. [`View::task`] finds it as
    /// long as it stands word for word, also after a later request. `message` is what `json` says.
    pub fn push_task(&mut self, json: Json, message: &Message) {
        self.has_task = self.next_message == 0;
        self.push_read(json, message);
    }

    /// Appends a user message that only asks the model to continue: the active request stays the
    /// one before.
    ///
    /// # Errors
    /// Returns an error if `json` is not a message.
    pub fn push_continuation(&mut self, json: Json) -> Result<(), serde_json::Error> {
        let message = Message::read(json.as_str())?;
        let entry = Entry { is_request: false, is_prompt: true, ..Entry::of(json, &message) };
        self.add(entry, &message);
        Ok(())
    }

    /// Returns true if the last message is the user's, or if there is none: no other may follow it.
    #[must_use]
    pub fn ends_with_user(&self) -> bool {
        self.slots.back().is_none_or(|slot| slot.entry.role == Role::User)
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

    /// Applies an edit. Parts of the edit that name messages the view no longer has are skipped, so
    /// that an edit applied twice changes nothing the second time.
    ///
    /// # Errors
    /// Returns an error if a replacement is not a message.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), serde_json::Error> {
        match edit {
            Edit::ClearResults { results } => {
                // A message is read and written once, however many of its results are cleared.
                results.chunk_by(|a, b| a.message == b.message).try_for_each(|of| self.clear(of))
            }
            Edit::Replace { from, to, with } => {
                self.replace_turns(*from, *to, with.first());
                self.replace(*from, *to, with)
            }
            Edit::Record(record) => {
                // Only the newest record shows the state, so older records lose theirs first.
                if record.state.is_some() {
                    self.forget_state();
                }
                let (with, place) = instead::of_record(self, record);
                let with: Vec<Json> = with.iter().map(Json::encode).collect();
                let first = self.places(record.from, record.to).start;
                self.replace(record.from, record.to, &with)?;
                if let Some(slot) = self.slots.get_mut(first + place) {
                    slot.record = Some(Arc::new(record.clone()));
                    // The text of a record is data: it must never count as the active request.
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

    /// Returns the slots, oldest first.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = &Slot> + ExactSizeIterator {
        self.slots.iter()
    }

    /// Returns the slots with joined ones taken apart, oldest first.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &Slot> {
        self.slots.iter().flat_map(Slot::apart)
    }

    /// Returns the newest message that asked the agent for something, word for word: the active
    /// request.
    #[must_use]
    pub fn request(&self) -> Option<&Entry> {
        self.request.as_deref()
    }

    /// Returns the slot of the task prompt, as long as it stands in the view word for word.
    #[must_use]
    pub fn task(&self) -> Option<&Slot> {
        let first = self.slots.front()?.apart().next()?;
        let is_whole = first.standing == Standing::Verbatim && first.to == 1;
        (self.has_task && is_whole && first.entry.is_request).then_some(first)
    }

    /// Returns the same view with the joined slots that touch the range taken apart.
    #[must_use]
    pub fn taken_apart(&self, from: u64, to: u64) -> Cow<'_, Self> {
        if !self.is_joined_at(from, to) {
            return Cow::Borrowed(self);
        }
        let mut apart = self.clone();
        apart.take_apart(from, to);
        Cow::Owned(apart)
    }

    /// Returns the slot that stands for this message alone.
    #[must_use]
    pub fn slot_of(&self, message: u64) -> Option<&Slot> {
        self.slots.get(self.place_of(message)?)
    }

    fn place_of(&self, message: u64) -> Option<usize> {
        let place = self.slots.partition_point(|slot| slot.to <= message);
        self.slots.get(place).filter(|slot| slot.from == message).map(|_| place)
    }

    /// Returns the slots that an edit of the range would remove, oldest first.
    pub fn covered(&self, from: u64, to: u64) -> impl DoubleEndedIterator<Item = &Slot> {
        self.slots.range(self.places(from, to))
    }

    /// Returns the slot before the range, if there is one.
    pub(super) fn before(&self, from: u64) -> Option<&Slot> {
        self.slots.get(self.places(from, from).start.checked_sub(1)?)
    }

    /// Returns the positions of the slots that an edit of the range removes. Besides the slots of
    /// its messages, these are the leftovers of an earlier edit that ended at `from`: slots that
    /// stand for no message, unless they hold a record or the active request.
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

    /// Returns the fingerprint of a range: it stays equal as long as nothing in the range changes.
    #[must_use]
    pub fn version_of(&self, from: u64, to: u64) -> Version {
        let (mut latest, mut slots) = (0, 0);
        for slot in self.covered(from, to) {
            latest = slot.serial.max(latest);
            slots += 1;
        }
        Version { latest, slots }
    }

    /// Returns the block that an edit added to the system prompt, if one did.
    #[must_use]
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Returns the characters of all messages that ever joined the conversation.
    #[must_use]
    pub fn appended_chars(&self) -> u64 {
        self.appended_chars
    }

    /// Returns the lines and words that the agent used in its calls.
    #[must_use]
    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Returns the number of replies of the model.
    #[must_use]
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Returns the estimated size of the messages in tokens: characters / 4, as in the documented
    /// presets.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        (self.chars / 4) as u64
    }

    /// Returns the size of the messages by the estimate that knows scripts, and the tokens that
    /// edits removed.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the size of the messages in characters.
    #[must_use]
    pub fn chars(&self) -> usize {
        self.chars
    }

    /// Returns the number that the next message of the conversation gets.
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
                Block::ToolResult(result) => uses.note_result(message, &result.as_text()),
                Block::Text(text) if decoded.role == Role::Assistant => {
                    uses.note_said(message, text);
                }
                Block::Text(_) | Block::Other(_) => {}
            }
        }
    }

    /// Clears results of one message.
    fn clear(&mut self, cleared: &[ClearedResult]) -> Result<(), serde_json::Error> {
        let Some(ClearedResult { message: number, .. }) = cleared.first() else { return Ok(()) };
        self.note_cleared(*number, cleared);
        self.take_apart_at(self.slots.partition_point(|slot| slot.to <= *number));
        let Some(place) = self.place_of(*number) else { return Ok(()) };
        let slot = &self.slots[place];
        let mut message: Message = slot.entry.json.decode()?;
        let texts: HashMap<_, _> =
            cleared.iter().map(|result| (result.tool_use_id.as_str(), &result.text)).collect();
        for block in &mut message.content {
            if let Block::ToolResult(result) = block
                && let Some(text) = texts.get(result.tool_use_id.as_str())
            {
                result.content = ResultContent::Text((*text).clone());
            }
        }
        self.rewrite(place, &message);
        self.join_touching(*number, *number);
        Ok(())
    }

    /// Removes the state from the records in the view, because a newer record shows it.
    fn forget_state(&mut self) {
        let shows = |slot: &Slot| slot.record.as_ref().is_some_and(|record| record.state.is_some());
        while let Some(place) = self.slots.iter().position(shows) {
            let Some(record) = self.slots[place].record.take() else { break };
            let record = Record { state: None, ..Record::clone(&record) };
            self.rewrite(place, &record.message());
            self.slots[place].record = Some(Arc::new(record));
        }
    }

    /// Puts a changed message into a slot.
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
                // A message must not be empty.
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
            // The first replacement stands for the range and is never a request itself; the others
            // stand for no message of their own.
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
            // Removing slots leaves no new serial behind. The slot before the gap gets one, so that
            // thinking behind the gap is found stale.
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
    fn a_sentence_joins_the_results_and_asks_for_nothing() {
        let mut view = conversation();
        let asked = view.request().map(|entry| entry.json.clone());
        assert!(view.add_to_results("look elsewhere"));
        let last = view.slots().next_back().expect("a slot");
        assert_eq!((last.standing, last.entry.is_request), (Standing::Verbatim, false));
        assert_eq!(view.request().map(|e| e.json.as_str()), asked.as_ref().map(Json::as_str));
        assert!(last.entry.json.as_str().ends_with(r#"{"type":"text","text":"look elsewhere"}]}"#));
        assert_eq!((view.chars(), view.results().len()), (counted(&view), 3));
        assert_eq!(view.extent().removed, 0);
        view.push(call("x")).expect("a message");
        assert!(!view.add_to_results("nothing is there") && !View::default().add_to_results("x"));
    }

    #[test]
    fn results_know_their_tool() {
        let view = conversation();
        assert!(view.results().all(|result| result.tool == "read_file"));
    }
}
