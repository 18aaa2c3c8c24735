//! The first pass over a recording: the parent, the author and the position of each entry.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::conversation::scan::{Scanner, is_space};
use crate::conversation::{Billed, Position, Result, check};
use crate::message::{Role, Usage};

/// The number of an entry; the entries of one recording count from 0.
pub(super) type Number = u32;

/// The properties of an entry that the index keeps.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The position of its line.
    pub place: Position,
    /// The author; absent for entries that are only links of the chain.
    pub speaker: Option<Role>,
    /// The entry before it in the chain.
    pub parent: Option<Number>,
    /// True if the entry says which entry comes before it, or that none does.
    pub is_linked: bool,
    /// The last entry before a compaction; only in the entry that marks the compaction.
    pub logical_parent: Option<Number>,
    /// The entry before it in the file, if only broken lines are between the two.
    pub before_broken: Option<Number>,
    /// True if the entry belongs to the conversation with the person, and not to a child agent, a
    /// team, or notes of the program.
    pub is_main: bool,
    /// True if the entry belongs to a child agent.
    pub is_sidechain: bool,
    /// The child agent that the entry belongs to, if it is named: an index into the agents of the recording.
    pub agent: Option<usize>,
    /// True if the entry has results, and the calls of all of them are in none of the entries before it.
    pub is_stray_result: bool,
    /// True if a conversation can begin with the entry: a person's words.
    pub can_begin: bool,
    /// True if the entry is a summary by which a compaction replaced earlier entries.
    pub is_summary: bool,
    /// The API reply that the entry is a part of, as an index into [`Index::replies`].
    pub reply: Option<usize>,
}

/// An API reply, which is recorded as one entry for each of its blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    /// Numbers of the entries, in the order of the file.
    pub entries: Vec<Number>,
    /// The billed tokens, if they are recorded.
    pub billed: Option<Billed>,
}

/// The messages that a compaction left word for word.
#[derive(Clone, Debug)]
pub(super) enum Preserved {
    /// These messages, placed after `anchor`.
    Messages { anchor: Number, kept: Vec<Number> },
    /// The chain from `head` to `tail`, placed after `anchor`.
    Segment { anchor: Number, head: Number, tail: Number },
}

/// The index of all entries of a recording.
#[derive(Debug, Default)]
pub(super) struct Index {
    numbers: HashMap<Box<str>, Number>,
    /// Entries by number; empty for an entry that is only named by others.
    pub entries: Vec<Option<Entry>>,
    replies_by_id: HashMap<Box<str>, usize>,
    /// The API replies.
    pub replies: Vec<Reply>,
    /// The user entries with tool results, in the order of the file.
    pub results: Vec<Number>,
    /// The messages that compactions preserved, in the order of the file.
    pub preserved: Vec<Preserved>,
    /// Number of broken lines.
    pub skipped: u64,
    /// The attachments: texts that the program sent beside the messages.
    pub attachments: Attachments,
    agents: HashMap<Box<str>, usize>,
    /// The ids of the calls so far.
    calls: HashSet<Box<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEntry<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    uuid: Option<Cow<'a, str>>,
    /// Absent if the entry does not say which entry comes before it; `None` if it says that none does.
    #[serde(default, deserialize_with = "written")]
    parent_uuid: Option<Option<String>>,
    #[serde(borrow)]
    logical_parent_uuid: Option<Cow<'a, str>>,
    is_sidechain: Option<bool>,
    is_meta: Option<bool>,
    is_compact_summary: Option<bool>,
    is_api_error_message: Option<bool>,
    #[serde(borrow)]
    team_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    agent_id: Option<Cow<'a, str>>,
    /// The call that started the child agent, in a session that was printed to a pipe.
    #[serde(borrow, rename = "parent_tool_use_id")]
    parent_call: Option<Cow<'a, str>>,
    #[serde(borrow)]
    attachment: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow, alias = "compact_metadata")]
    compact_metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: &'a RawValue,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

/// Texts that the program sent beside the messages: files that a person names, CLAUDE.md, reminders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attachments {
    /// Their number.
    pub count: u64,
    /// Their size in the recording, in bytes of JSON.
    pub bytes: u64,
}

/// The error for a line or a message that cannot be read.
#[derive(Debug)]
struct Broken;

impl Index {
    pub(super) fn read(scanner: &mut Scanner) -> Result<Self> {
        scanner.take_byte_order_mark()?;
        let (mut index, mut bytes) = (Self::default(), Vec::new());
        let (mut last, mut is_after_broken) = (None, false);
        while let Some(line) = scanner.line(&mut bytes)? {
            if bytes.iter().all(|byte| is_space(*byte)) {
                continue;
            }
            let read = if line.is_too_long() { Err(Broken) } else { read_line(&bytes) };
            let Ok(read) = read else {
                index.skipped += 1;
                is_after_broken = true;
                continue;
            };
            let is_after_broken = std::mem::take(&mut is_after_broken);
            let before_broken = last.filter(|_| is_after_broken);
            if let Some(number) = index.add(&read, line.place, before_broken) {
                last = Some(number);
            }
        }
        Ok(index)
    }

    /// Returns the entry with this number, if it is in the file.
    pub(super) fn entry(&self, number: Number) -> Option<&Entry> {
        self.entries.get(number as usize)?.as_ref()
    }

    /// Returns all entries with their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (Number, &Entry)> {
        (0..).zip(&self.entries).filter_map(|(number, entry)| Some((number, entry.as_ref()?)))
    }

    fn number(&mut self, uuid: &str) -> Number {
        if let Some(number) = self.numbers.get(uuid) {
            return *number;
        }
        let number = self.next_number();
        self.numbers.insert(uuid.into(), number);
        number
    }

    fn next_number(&mut self) -> Number {
        // A file with 4 billion entries would be larger than any disk at hand.
        let number = Number::try_from(self.entries.len()).unwrap_or(Number::MAX);
        self.entries.push(None);
        number
    }

    fn agent(&mut self, name: &str) -> usize {
        let next = self.agents.len();
        *self.agents.entry(name.into()).or_insert(next)
    }

    /// Adds an entry. Returns its number, or `None` if it has no `uuid` or was in the file before.
    fn add(
        &mut self,
        line: &RawEntry<'_>,
        place: Position,
        before_broken: Option<Number>,
    ) -> Option<Number> {
        if line.r#type.as_deref() == Some("attachment") {
            self.attachments.count += 1;
            self.attachments.bytes += line.attachment.map_or(0, |raw| raw.get().len() as u64);
        }
        let number = match (line.uuid.as_deref(), line.r#type.as_deref()) {
            (Some(uuid), _) => self.number(uuid),
            (None, Some("user" | "assistant")) => self.next_number(),
            (None, _) => return None,
        };
        if self.entry(number).is_some() {
            return None;
        }
        let agent = line.agent_id.as_deref().or(line.parent_call.as_deref());
        let is_sidechain = line.is_sidechain == Some(true) || line.parent_call.is_some();
        let mut entry = Entry {
            place,
            speaker: None,
            parent: line.parent_uuid.iter().flatten().map(|uuid| self.number(uuid)).next(),
            is_linked: line.parent_uuid.is_some(),
            logical_parent: line.logical_parent_uuid.as_deref().map(|uuid| self.number(uuid)),
            before_broken,
            is_main: !is_sidechain && line.is_meta != Some(true) && line.team_name.is_none(),
            is_sidechain,
            agent: agent.map(|agent| self.agent(agent)),
            is_stray_result: false,
            can_begin: false,
            is_summary: line.is_compact_summary == Some(true),
            reply: None,
        };
        if self.note_message(line, number, &mut entry).is_err() {
            self.skipped += 1;
        }
        self.note_preserved(line.compact_metadata);
        self.entries[number as usize] = Some(entry);
        Some(number)
    }

    /// Records the author of an entry and the reply that it belongs to.
    fn note_message(
        &mut self,
        line: &RawEntry<'_>,
        number: Number,
        entry: &mut Entry,
    ) -> std::result::Result<(), Broken> {
        let speaker = match line.r#type.as_deref() {
            Some("user") => Role::User,
            // An error message of the program itself was never sent to a model.
            Some("assistant") if line.is_api_error_message != Some(true) => Role::Assistant,
            _ => return Ok(()),
        };
        let message = line.message.ok_or(Broken)?;
        let message: Message<'_> = serde_json::from_str(message.get()).map_err(|_| Broken)?;
        let blocks = match message.content.get().as_bytes().first() {
            Some(b'"') => Vec::new(),
            Some(b'[') => {
                let blocks = check::blocks(message.content).map_err(|_| Broken)?;
                if blocks.is_empty() {
                    return Ok(());
                }
                blocks
            }
            _ => return Err(Broken),
        };
        entry.speaker = Some(speaker);
        let of = |kind: &'static str| blocks.iter().filter(move |block| block.kind == kind);
        match speaker {
            Role::User if of("tool_result").next().is_some() => {
                let known = |id: Cow<'_, str>| self.calls.contains(id.as_ref());
                entry.is_stray_result = !of("tool_result").filter_map(id_of).any(known);
                self.results.push(number);
            }
            Role::User => entry.can_begin = true,
            Role::Assistant => {
                self.calls.extend(of("tool_use").filter_map(id_of).map(|id| id.as_ref().into()));
                entry.reply = Some(self.note_reply(&message, number));
            }
        }
        Ok(())
    }

    fn note_reply(&mut self, message: &Message<'_>, number: Number) -> usize {
        let next = self.replies.len();
        let place = match &message.id {
            Some(id) => *self.replies_by_id.entry(id.as_ref().into()).or_insert(next),
            None => next,
        };
        if place == next {
            self.replies.push(Reply::default());
        }
        let reply = &mut self.replies[place];
        reply.entries.push(number);
        // Each entry repeats the usage as it was when its block arrived, so the largest one is
        // complete.
        let is_real = message.model.as_deref() != Some("<synthetic>");
        if let Some(billed) = message.usage.filter(|_| is_real).and_then(read_usage) {
            let before = reply.billed.map_or(0, |billed| billed.usage.output);
            if billed.usage.output >= before {
                reply.billed = Some(billed);
            }
        }
        place
    }

    fn note_preserved(&mut self, metadata: Option<&RawValue>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            #[serde(alias = "preserved_messages")]
            preserved_messages: Option<Messages>,
            #[serde(alias = "preserved_segment")]
            preserved_segment: Option<Segment>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Messages {
            #[serde(alias = "anchor_uuid")]
            anchor_uuid: String,
            uuids: Vec<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Segment {
            #[serde(alias = "head_uuid")]
            head_uuid: String,
            #[serde(alias = "anchor_uuid")]
            anchor_uuid: String,
            #[serde(alias = "tail_uuid")]
            tail_uuid: String,
        }
        let read = metadata.and_then(|raw| serde_json::from_str::<Metadata>(raw.get()).ok());
        let Some(metadata) = read else { return };
        if let Some(messages) = metadata.preserved_messages {
            let anchor = self.number(&messages.anchor_uuid);
            let kept = messages.uuids.iter().map(|uuid| self.number(uuid)).collect();
            self.preserved.push(Preserved::Messages { anchor, kept });
        } else if let Some(segment) = metadata.preserved_segment {
            let anchor = self.number(&segment.anchor_uuid);
            let (head, tail) = (self.number(&segment.head_uuid), self.number(&segment.tail_uuid));
            self.preserved.push(Preserved::Segment { anchor, head, tail });
        }
    }
}

fn read_line(bytes: &[u8]) -> std::result::Result<RawEntry<'_>, Broken> {
    serde_json::from_slice(bytes).map_err(|_| Broken)
}

/// Reads a value that may be `null` of a key that may be absent.
fn written<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

/// Returns the id of the call that a block makes or answers.
fn id_of<'a>(block: &check::RawBlock<'a>) -> Option<Cow<'a, str>> {
    #[derive(Deserialize)]
    struct Id<'a> {
        #[serde(borrow, alias = "tool_use_id")]
        id: Option<Cow<'a, str>>,
    }
    serde_json::from_str::<Id<'_>>(block.text).ok()?.id
}

fn read_usage(raw: &RawValue) -> Option<Billed> {
    #[derive(Deserialize)]
    struct Tokens {
        input_tokens: Option<u64>,
        output_tokens: Option<u64>,
        cache_read_input_tokens: Option<u64>,
        cache_creation_input_tokens: Option<u64>,
        cache_creation: Option<Creation>,
    }
    #[derive(Deserialize)]
    struct Creation {
        ephemeral_1h_input_tokens: Option<u64>,
    }
    let tokens: Tokens = serde_json::from_str(raw.get()).ok()?;
    let usage = Usage {
        input: tokens.input_tokens.unwrap_or(0),
        output: tokens.output_tokens.unwrap_or(0),
        cache_read: tokens.cache_read_input_tokens.unwrap_or(0),
        cache_write: tokens.cache_creation_input_tokens.unwrap_or(0),
    };
    let hour = tokens.cache_creation.and_then(|creation| creation.ephemeral_1h_input_tokens);
    Some(Billed { usage, cache_write_1h: hour.unwrap_or(0).min(usage.cache_write) })
}
