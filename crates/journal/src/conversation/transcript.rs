//! Reads transcripts of a run: `{"seq", "ts", "message"}`, one message a line.

use serde::Deserialize;

use super::scan::Scanner;
use super::{ConversationErrorKind as Kind, Recorded, Result, check};
use crate::message::Json;

/// A transcript that is read line by line.
#[derive(Debug)]
pub(super) struct Transcript {
    scanner: Scanner,
    skipped: u64,
    /// The bytes of the current line, kept to use the allocation again.
    bytes: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(expecting = "a line of a transcript, which is an object")]
struct TranscriptLine {
    seq: u64,
    message: Json,
}

impl Transcript {
    pub(super) fn open(scanner: Scanner) -> Self {
        Self { scanner, skipped: 0, bytes: Vec::new() }
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    pub(super) fn next_message(&mut self) -> Result<Option<Recorded>> {
        self.scanner.take_byte_order_mark()?;
        // Skips blank lines.
        self.scanner.peek()?;
        let Some(line) = self.scanner.line(&mut self.bytes)? else { return Ok(None) };
        if line.is_too_long() {
            return Err(Kind::TooLong.at(line.place));
        }
        let read = check::json(&self.bytes, line.place);
        if read.is_err() && !line.is_whole {
            // This is the last line of a transcript whose writer was stopped, or is still writing.
            self.skipped += 1;
            return Ok(None);
        }
        let read: TranscriptLine = read?
            .decode()
            .map_err(|error| Kind::NotAMessage(check::reason(&error)).at(line.place))?;
        let role = check::role(&read.message, line.place)?;
        Ok(Some(Recorded { json: read.message, role, seq: Some(read.seq), billed: None }))
    }
}
