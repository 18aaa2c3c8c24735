//! Writes an output in parts: to memory at first, to a file once it is large, under its hash at the
//! end.

use std::io;

use super::preview::preview;
use super::scratch::Scratch;
use super::{MAX_STORED_BYTES, MEMORY_BYTES, PREVIEW_CHARS, Store};
use crate::output::{Output, Stored};
use crate::redaction::Redactor;

/// Writer of one output. Dropping it discards the output.
#[derive(Debug)]
pub struct StoreWriter {
    store: Store,
    /// The first [`MEMORY_BYTES`] of the output; all of it while there is no file.
    head: Vec<u8>,
    /// The end of the output: at least its last [`MEMORY_BYTES`], at most twice that.
    tail: Vec<u8>,
    file: Option<Scratch>,
    /// Hash of the bytes that are kept. In a box: it is large, and futures hold the writer many times over.
    hash: Box<blake3::Hasher>,
    kept: u64,
    seen: u64,
    most: u64,
    redactor: Redactor,
}

impl StoreWriter {
    pub(super) fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            head: Vec::new(),
            tail: Vec::new(),
            file: None,
            hash: Box::default(),
            kept: 0,
            seen: 0,
            most: MAX_STORED_BYTES,
            redactor: store.secrets.redactor(),
        }
    }

    /// Returns true if `more` bytes would go to memory only, so that writing them cannot block.
    #[must_use]
    pub fn stays_in_memory(&self, more: usize) -> bool {
        self.file.is_none() && self.head.len() + self.redactor.most_of(more) <= MEMORY_BYTES
    }

    /// Adds bytes. An error consumes the writer, so that no damaged output can be finished.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn write(mut self, bytes: &[u8]) -> io::Result<Self> {
        let redacted = self.redactor.push(bytes);
        self.add(&redacted)
    }

    fn add(mut self, bytes: &[u8]) -> io::Result<Self> {
        self.seen += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.remember_tail(bytes);
        let room = usize::try_from(self.most - self.kept).unwrap_or(usize::MAX);
        let kept = &bytes[..bytes.len().min(room)];
        self.hash.update(kept);
        self.kept += u64::try_from(kept.len()).unwrap_or(u64::MAX);
        if self.file.is_none() && self.head.len() + kept.len() > MEMORY_BYTES {
            let mut scratch = Scratch::create(&self.store)?;
            self.store.write_whole(&mut scratch.file, &self.head)?;
            self.file = Some(scratch);
        }
        let head_room = MEMORY_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(&kept[..kept.len().min(head_room)]);
        if let Some(scratch) = &mut self.file {
            self.store.write_whole(&mut scratch.file, kept)?;
        }
        Ok(self)
    }

    fn remember_tail(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(MEMORY_BYTES)..];
        if self.tail.len() + last.len() > 2 * MEMORY_BYTES {
            self.tail.drain(..self.tail.len().saturating_sub(MEMORY_BYTES));
        }
        self.tail.extend_from_slice(last);
    }

    /// Ends the output: gives it whole up to `inline_chars` characters, else stores it durably and
    /// gives a preview. An output over [`MEMORY_BYTES`] is stored whatever its number of
    /// characters.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn finish(mut self, inline_chars: usize) -> io::Result<Output> {
        let rest = self.redactor.finish();
        self.add(&rest)?.finished(inline_chars)
    }

    fn finished(self, inline_chars: usize) -> io::Result<Output> {
        if self.file.is_none() && self.seen == self.kept {
            let text = String::from_utf8_lossy(&self.head);
            if text.chars().count() <= inline_chars {
                // Text is recorded; other bytes would be lost in the record.
                let is_text = std::str::from_utf8(&self.head).is_ok();
                let stored = if is_text { None } else { Some(self.store.store(&self.head)?) };
                return Ok(Output { text: text.into_owned(), stored });
            }
        }
        let dropped = self.seen - self.kept;
        let stored = match self.file {
            None => Stored { dropped, ..self.store.store(&self.head)? },
            Some(scratch) => {
                let hash = self.hash.finalize().to_hex().to_string();
                scratch.keep_as(&self.store, &self.store.results, &hash)?;
                Stored { hash, bytes: self.kept, dropped }
            }
        };
        let path = self.store.path_of(&stored).display().to_string();
        let place = if dropped == 0 {
            format!("the full output is in {path}")
        } else {
            format!("the first {} are in {path}, the rest was dropped", self.kept)
        };
        let chars = PREVIEW_CHARS.min(inline_chars) / 2;
        let text = preview(&self.head, &self.tail, self.seen, chars, &place);
        Ok(Output { text, stored: Some(stored) })
    }

    /// Limits the stored bytes to this number.
    #[cfg(test)]
    pub(super) fn limit(&mut self, bytes: u64) {
        self.most = bytes;
    }

    /// Returns the number of bytes held in memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.head.len() + self.tail.len()
    }
}
