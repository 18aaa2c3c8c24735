//! Reads documents: `{"system", "messages"}`, or a bare array of messages.
//!
//! The first pass reads the whole document to find the system prompt, which may stand after the
//! messages, and the beginning of the messages. A document that is cut off is therefore reported
//! before any of its messages is used. The second pass reads the messages.

use serde_json::value::RawValue;

use super::scan::{Members, Scanner};
use super::{ConversationErrorKind as Kind, Position, Recorded, Result, check};
use crate::message::Json;

/// A document, of which the messages are read one after the other.
#[derive(Debug)]
pub(super) struct Document {
    scanner: Scanner,
    system: Option<Json>,
    /// The position at which the list of messages begins.
    list: Position,
    is_first: bool,
    /// The bytes of the current message, kept to use the allocation again.
    bytes: Vec<u8>,
}

impl Document {
    /// Reads the whole document once, without keeping its messages.
    pub(super) fn open(mut scanner: Scanner) -> Result<Self> {
        scanner.take_byte_order_mark()?;
        let (system, list) = match scanner.peek()? {
            Some(b'[') => (None, scanner.pass_over_value()?),
            _ => find(&mut scanner)?,
        };
        if scanner.peek()?.is_some() {
            return Err(Kind::Trailing.at(scanner.at()));
        }
        scanner.go_to(list)?;
        scanner.take(b'[')?;
        Ok(Self { scanner, system, list, is_first: true, bytes: Vec::new() })
    }

    pub(super) fn system(&self) -> Option<&Json> {
        self.system.as_ref()
    }

    pub(super) fn next_message(&mut self) -> Result<Option<Recorded>> {
        if self.scanner.take(b']')? {
            return Ok(None);
        }
        let is_first = std::mem::replace(&mut self.is_first, false);
        if !is_first && !self.scanner.take(b',')? {
            let at = self.scanner.at();
            return Err(match self.scanner.peek()? {
                Some(_) => Kind::Syntax("`,` or `]` is expected".to_owned()).at(at),
                None => Kind::CutOff.at(self.list),
            });
        }
        let place = self.scanner.value(&mut self.bytes)?;
        let json = check::json(&self.bytes, place)?;
        let role = check::role(&json, place)?;
        Ok(Some(Recorded { json, role, seq: None, billed: None }))
    }
}

/// Returns the system prompt, and the position at which the list of messages begins.
fn find(scanner: &mut Scanner) -> Result<(Option<Json>, Position)> {
    let (mut system, mut list) = (None, None);
    let mut members = Members::enter(scanner)?;
    while let Some(key) = members.next_key()? {
        let scanner = members.scanner();
        match key.as_str() {
            "messages" => {
                let opens = scanner.peek()?;
                let place = scanner.pass_over_value()?;
                if list.replace(place).is_some() {
                    return Err(Kind::Twice("messages").at(place));
                }
                if opens != Some(b'[') {
                    return Err(Kind::NotAList.at(place));
                }
            }
            "system" => {
                let mut bytes = Vec::new();
                let place = scanner.value(&mut bytes)?;
                let prompt = read_system(check::json(&bytes, place)?, place)?;
                if system.replace(prompt).is_some() {
                    return Err(Kind::Twice("system").at(place));
                }
            }
            _ => {
                scanner.pass_over_value()?;
            }
        }
    }
    let end = scanner.at();
    list.map(|list| (system.flatten(), list)).ok_or_else(|| Kind::NoMessages.at(end))
}

/// Reads a system prompt: a text or a list of text blocks. `null` counts as absent.
fn read_system(json: Json, place: Position) -> Result<Option<Json>> {
    let is_right = match json.as_str().as_bytes().first() {
        Some(b'"') => json.decode::<String>().is_ok(),
        Some(b'[') => serde_json::from_str::<&RawValue>(json.as_str())
            .and_then(check::blocks)
            .is_ok_and(|blocks| blocks.iter().all(|block| block.kind == "text")),
        Some(b'n') => return Ok(None),
        _ => false,
    };
    if is_right { Ok(Some(json)) } else { Err(Kind::System.at(place)) }
}
