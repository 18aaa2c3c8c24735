//! The view: what of a conversation is sent, kept up to date by messages and edits.
//!
//! A pure fold: the same messages and edits give the same view. Sizes are kept as things change,
//! so nothing here costs more as the conversation grows.

use std::collections::VecDeque;
use std::sync::Arc;

use super::sent::Sent;
use super::{ClearedResult, Edit};
use crate::message::{Block, Json, Message, ResultContent, Role};
use crate::output::Stored;

/// One message of the view: encoded once, with what the layers need to know of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The message in Anthropic form.
    pub json: Json,
    /// Who speaks.
    pub role: Role,
    /// Its size: Unicode scalar values of `json`.
    pub chars: usize,
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
    /// How it came to stand here: never read from what it says.
    pub standing: Standing,
    /// What is sent.
    pub entry: Arc<Entry>,
}

/// How an entry came to stand in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is a message of the conversation, word for word.
    Verbatim,
    /// It is a message of the conversation, some of whose results were cleared.
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

/// A tool result that still stands in the view, in full or as a preview, and may be cleared.
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
    /// The stored whole, when what stands in the view is a preview of it.
    pub stored: Option<Stored>,
}

/// The view of one agent's conversation.
#[derive(Clone, Debug, Default)]
pub struct View {
    slots: VecDeque<Slot>,
    results: VecDeque<Clearable>,
    /// How many of the results are too short to be worth clearing, from the oldest.
    settled: usize,
    chars: usize,
    /// The newest message that asked for something, whatever became of it in the view.
    request: Option<Arc<Entry>>,
    /// Characters and model replies of the whole conversation, whatever was edited since.
    appended_chars: u64,
    replies: u64,
    /// What an edit added to the system prompt.
    system: Option<String>,
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
        self.appended_chars += entry.chars as u64;
        self.replies += u64::from(entry.role == Role::Assistant);
        let (serial, standing) = (self.serial(), Standing::Verbatim);
        let entry = Arc::new(entry);
        if entry.is_request {
            self.request = Some(entry.clone());
        }
        self.slots.push_back(Slot { from: message, to: message + 1, serial, standing, entry });
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
            Edit::Window { to, system } => {
                self.system = Some(system.clone());
                self.replace(0, *to, &[])
            }
        }
    }

    /// The places, oldest first.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = &Slot> + ExactSizeIterator {
        self.slots.iter()
    }

    /// The messages to send: the places, except that user messages side by side are one.
    pub fn sent(&self) -> impl Iterator<Item = Sent<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let begin = at;
            let is_user =
                |at| self.slots.get(at).is_some_and(|s: &Slot| s.entry.role == Role::User);
            let first = self.slots.get(begin)?;
            at += 1;
            while is_user(begin) && is_user(at) {
                at += 1;
            }
            Some(Sent::new(first, self.slots.range(begin + 1..at)))
        })
    }

    /// The newest message that asked the agent for something, word for word.
    #[must_use]
    pub fn request(&self) -> Option<&Entry> {
        self.request.as_deref()
    }

    /// The places whose messages all lie in a range, oldest first.
    pub fn covered(&self, from: u64, to: u64) -> impl DoubleEndedIterator<Item = &Slot> {
        self.slots.iter().filter(move |slot| slot.from >= from && slot.to <= to)
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

    /// How often the model replied.
    #[must_use]
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// The tool results that stand in the view, in full or as a preview, oldest first.
    pub fn results(&self) -> impl DoubleEndedIterator<Item = &Clearable> + ExactSizeIterator {
        self.results.iter()
    }

    /// Those of them that may still be cleared, oldest first.
    pub fn clearable(&self) -> impl DoubleEndedIterator<Item = &Clearable> + ExactSizeIterator {
        self.results.range(self.settled..)
    }

    /// Strikes the oldest `count` results from the list of those that may be cleared: they are
    /// too short to be worth it, and only get older.
    pub fn settle(&mut self, count: usize) {
        self.settled = self.results.len().min(self.settled + count);
    }

    /// The estimated size of the messages in tokens: characters / 4, as in the documented presets.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        (self.chars / 4) as u64
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
            self.results.push_back(Clearable {
                message,
                tool_use_id: result.tool_use_id.clone(),
                tool: tool.next_back().map_or("unknown", String::as_str).to_owned(),
                chars: match &result.content {
                    ResultContent::Text(text) => Some(text.chars().count()),
                    ResultContent::Blocks(_) => None,
                },
                stored: None,
            });
        }
    }

    /// Keeps the list of results in line with what is cleared: a preview is shorter, a result of
    /// which nothing is left is no longer one.
    fn note_cleared(&mut self, cleared: &ClearedResult) {
        let first = self.results.partition_point(|result| result.message < cleared.message);
        let batch = self.results.range(first..).take_while(|r| r.message == cleared.message);
        let found = batch.enumerate().find(|(_, r)| r.tool_use_id == cleared.tool_use_id);
        let Some(at) = found.map(|(at, _)| first + at) else { return };
        if cleared.kept_chars > 0 {
            self.results[at].chars = Some(cleared.text.chars().count());
            self.results[at].stored.clone_from(&cleared.stored);
        } else {
            self.results.remove(at);
            self.settled -= usize::from(at < self.settled);
        }
    }

    fn clear(&mut self, cleared: &ClearedResult) -> Result<(), serde_json::Error> {
        self.note_cleared(cleared);
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
        slot.entry = entry.into();
        (slot.serial, slot.standing) = (serial, Standing::Cleared);
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
            let (serial, standing) = (self.serial(), Standing::Instead);
            fresh.push(Slot { from, to, serial, standing, entry: entry.into() });
        }
        let gone: usize = self.slots.range(first..last).map(|slot| slot.entry.chars).sum();
        let came: usize = fresh.iter().map(|slot| slot.entry.chars).sum();
        self.chars = self.chars - gone + came;
        let tail = self.slots.split_off(last);
        self.slots.truncate(first);
        self.slots.extend(fresh);
        self.slots.extend(tail);
        let gone = self.results.partition_point(|result| result.message < from)
            ..self.results.partition_point(|result| result.message < to);
        self.settled = match self.settled {
            settled if settled >= gone.end => settled - gone.len(),
            settled => settled.min(gone.start),
        };
        self.results.drain(gone);
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
        assert_eq!((view.chars(), view.clearable().len()), (counted(&view), 2));
        let once = view.chars();
        view.apply(&clear).expect("applies again");
        assert_eq!(view.chars(), once);
        let with = vec![Json::encode(&Message::user("s")), Json::encode(&Message::assistant("ok"))];
        view.apply(&Edit::Replace { from: 0, to: 5, with }).expect("applies");
        assert_eq!(view.chars(), counted(&view));
        let covers: Vec<_> = view.slots().map(|slot| (slot.from, slot.to)).collect();
        assert_eq!(covers, [(0, 5), (5, 5), (5, 6), (6, 7)]);
        assert_eq!(view.clearable().len(), 1);
        assert_eq!(view.next_message(), 7);
    }

    #[test]
    fn a_range_has_another_version_once_anything_in_it_changed() {
        let clear = |message: u64| Edit::ClearResults {
            results: vec![ClearedResult {
                message,
                tool_use_id: (message / 2 - 1).to_string(),
                text: "cleared".to_owned(),
                stored: None,
                kept_chars: 0,
            }],
        };
        let with = |text: &str| vec![Json::encode(&Message::user(text))];
        let noted = conversation().version_of(0, 5);
        let changed = |edit: &Edit| {
            let mut view = conversation();
            view.apply(edit).expect("applies");
            view.version_of(0, 5) != noted
        };
        assert!(changed(&clear(2)) && changed(&clear(4)));
        assert!(changed(&Edit::Replace { from: 0, to: 3, with: with("summary") }));
        assert!(changed(&Edit::Replace { from: 1, to: 3, with: Vec::new() }));
        assert!(changed(&Edit::Replace { from: 3, to: 7, with: with("across its end") }));
        assert!(changed(&Edit::Window { to: 1, system: "s".to_owned() }));
        assert!(!changed(&clear(6)), "what stands behind it does not matter");
        let mut grown = conversation();
        grown.push(call("9")).expect("a message");
        assert_eq!(grown.version_of(0, 5), noted);
    }

    #[test]
    fn results_know_their_tool() {
        let view = conversation();
        assert!(view.clearable().all(|result| result.tool == "read_file"));
    }
}
