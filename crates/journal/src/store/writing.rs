//! Writes an output in parts: to memory at first, to a file once it is large, under its hash at the
//! end. What was written so far can be laid open in that file before.

use std::io;
use std::os::unix::fs::FileExt;

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
    /// Number of bytes of `head` that are in the file.
    in_file: usize,
    /// Name of the file in the scratch directory, if others may read what was written so far.
    name: Option<String>,
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
            in_file: 0,
            name: None,
            hash: Box::default(),
            kept: 0,
            seen: 0,
            most: MAX_STORED_BYTES,
            redactor: store.secrets.redactor(),
        }
    }

    /// Gives the unfinished output a name in the scratch directory, for [`StoreWriter::lay_open`].
    #[must_use]
    pub fn named(self, name: String) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Returns true if `more` bytes would go to memory only, so that writing them cannot block.
    #[must_use]
    pub fn stays_in_memory(&self, more: usize) -> bool {
        !self.is_large() && self.head.len() + self.redactor.most_of(more) <= MEMORY_BYTES
    }

    /// Returns true if the output goes to a file, because it has no room in memory.
    fn is_large(&self) -> bool {
        self.kept > MEMORY_BYTES as u64
    }

    /// Writes what came so far to the file with the name of this output, for those who look while it is written and
    /// for those who come when its process is gone: nothing is synced. Where secrets are removed, an end that is no
    /// whole line may be missing. Does not wait on a full disk: then nobody can look any more. Blocks.
    #[must_use]
    pub fn lay_open(mut self) -> Self {
        if self.name.is_none() {
            return self;
        }
        let at_once = self.store.without_patience();
        let patient = std::mem::replace(&mut self.store, at_once);
        if self.write_so_far().is_err() {
            self.name = None;
            if !self.is_large() {
                (self.file, self.in_file) = (None, 0);
            }
        }
        self.store = patient;
        self
    }

    fn write_so_far(&mut self) -> io::Result<()> {
        self.write_head()?;
        let lines = self.redactor.held_lines();
        if let Some(scratch) = &self.file {
            // The place of the file stays where it is, so that the next bytes overwrite these.
            scratch.file.write_all_at(&lines, self.kept)?;
            scratch.file.set_len(self.kept + lines.len() as u64)?;
        }
        Ok(())
    }

    /// Writes the rest of the head to the file, which is made if there is none.
    fn write_head(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(match &self.name {
                Some(name) => Scratch::named(&self.store, name)?,
                None => Scratch::create(&self.store)?,
            });
        }
        if let Some(scratch) = &mut self.file {
            self.store.write_whole(&mut scratch.file, &self.head[self.in_file..])?;
            self.in_file = self.head.len();
        }
        Ok(())
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
        let head_room = MEMORY_BYTES.saturating_sub(self.head.len());
        let (head, rest) = kept.split_at(kept.len().min(head_room));
        self.head.extend_from_slice(head);
        if self.is_large() {
            self.write_head()?;
            if let Some(scratch) = &mut self.file {
                self.store.write_whole(&mut scratch.file, rest)?;
            }
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
        let is_large = self.is_large();
        if !is_large && self.seen == self.kept {
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
            Some(scratch) if is_large => {
                // What was laid open may be longer, because of secrets that are removed now.
                scratch.file.set_len(self.kept)?;
                let hash = self.hash.finalize().to_hex().to_string();
                scratch.keep_as(&self.store, &self.store.results, &hash)?;
                Stored { hash, bytes: self.kept, dropped }
            }
            Some(_) | None => Stored { dropped, ..self.store.store(&self.head)? },
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
