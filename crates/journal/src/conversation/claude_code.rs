//! Reads recordings of Claude Code: one entry a line, each of which names the entry before it.
//!
//! The format is internal to that program and changes, so unknown entries are skipped, and broken
//! lines are counted and skipped. The first pass builds an index: the parent and the position of
//! each entry. The second pass reads the entries of one conversation in its order, and then those of child
//! agents. An entry that does not say what comes before it follows the one before it in the file. The entries of
//! one API reply are joined to one message, and so are user entries that follow each other.

mod chain;
mod index;

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::scan::Scanner;
use super::{ConversationErrorKind as Kind, History, Position, Recorded, Result, check};
use crate::message::Json;
use chain::{Conversations, Joined};
pub use index::Attachments;
use index::Index;

/// A recording of Claude Code, of which the messages are read one after the other.
#[derive(Debug)]
pub(super) struct ClaudeCode {
    scanner: Scanner,
    skipped: u64,
    attachments: Attachments,
    relinked: u64,
    /// The conversations of child agents that have not been read yet.
    sides: VecDeque<VecDeque<Joined>>,
    /// The messages that have not been read yet.
    ahead: VecDeque<Joined>,
    /// The bytes of the current line, kept to use the allocation again.
    bytes: Vec<u8>,
}

/// The part of an entry that belongs to the conversation.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    message: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

/// The blocks of a message. Tool results come before all other blocks, as the API requires.
#[derive(Debug, Default)]
struct Blocks {
    results: Vec<String>,
    others: Vec<String>,
}

impl ClaudeCode {
    /// Reads the index of all entries.
    pub(super) fn open(mut scanner: Scanner, history: History) -> Result<Self> {
        let mut index = Index::read(&mut scanner)?;
        let Conversations { main: ahead, sides, relinked } =
            chain::conversations(&mut index, history);
        if ahead.is_empty() {
            return Err(Kind::NobodySpeaks.at(Position::START));
        }
        let Index { skipped, attachments, .. } = index;
        Ok(Self { scanner, skipped, attachments, relinked, sides, ahead, bytes: Vec::new() })
    }

    pub(super) fn attachments(&self) -> Attachments {
        self.attachments
    }

    pub(super) fn relinked(&self) -> u64 {
        self.relinked
    }

    /// Goes on to the conversation of the next child agent. Returns false if there is none.
    pub(super) fn next_side(&mut self) -> bool {
        let next = self.sides.pop_front();
        let is_one = next.is_some();
        self.ahead = next.unwrap_or_default();
        is_one
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    pub(super) fn next_message(&mut self) -> Result<Option<Recorded>> {
        let Some(joined) = self.ahead.pop_front() else { return Ok(None) };
        let content = match joined.entries.as_slice() {
            [one] => self.content(*one)?.to_owned(),
            several => {
                let mut blocks = Blocks::default();
                for place in several {
                    blocks.add(self.content(*place)?, *place)?;
                }
                blocks.list()
            }
        };
        let role = joined.role;
        let json = format!(r#"{{"role":"{}","content":{}}}"#, role.as_str(), content);
        let json = check::normal(&json);
        let place = joined.entries.first().copied().unwrap_or(Position::START);
        let json = Json::parse(json).map_err(|error| not_a_message(&error, place))?;
        check::role(&json, place)?;
        Ok(Some(Recorded { json, role, seq: None, billed: joined.billed }))
    }

    /// Returns the content of the entry at `place`.
    fn content(&mut self, place: Position) -> Result<&str> {
        self.scanner.go_to(place)?;
        self.scanner.line(&mut self.bytes)?;
        let entry: Entry<'_> =
            serde_json::from_slice(&self.bytes).map_err(|error| not_a_message(&error, place))?;
        Ok(entry.message.content.get())
    }
}

impl Blocks {
    /// Adds content, which is a list of blocks or a text.
    fn add(&mut self, content: &str, place: Position) -> Result<()> {
        if content.starts_with('"') {
            self.others.push(format!(r#"{{"type":"text","text":{content}}}"#));
            return Ok(());
        }
        let wrong = |error| not_a_message(&error, place);
        let list: &RawValue = serde_json::from_str(content).map_err(wrong)?;
        for block in check::blocks(list).map_err(wrong)? {
            let kind =
                if block.kind == "tool_result" { &mut self.results } else { &mut self.others };
            kind.push(block.text.to_owned());
        }
        Ok(())
    }

    fn list(self) -> String {
        let all: Vec<_> = self.results.into_iter().chain(self.others).collect();
        format!("[{}]", all.join(","))
    }
}

fn not_a_message(error: &serde_json::Error, place: Position) -> super::ConversationError {
    Kind::NotAMessage(check::reason(error)).at(place)
}
