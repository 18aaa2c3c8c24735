//! The result store of a run: large outputs, each in a file that is named by the hash of its bytes.
//!
//! Owns the limits of the text that a model receives inline, the form of a preview, and the
//! redaction of the outputs of commands and tools: no key or secret in them reaches the disk.
//! Everything here blocks: call it off the runtime. A store that was told to wait does so while the disk is full, so that no result is
//! lost.

mod last_lines;
mod preview;
mod reading;
mod scratch;
mod writing;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::last_lines::{LastLines, MOST as LAST_LINES_BYTES, OpenLine};
pub use self::reading::{Checked, StoredResults, check, is_hash, read, whole_program, whole_text};
pub use self::scratch::{Scratch, make_dir};
pub use self::writing::StoreWriter;
use crate::disk;
use crate::output::{Output, Stored, Text};
use crate::redaction::Secrets;

/// Error for a stored result that cannot be read or is not what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored result {}: {reason}", .path.display())]
pub struct StoreError {
    /// Path of the file that should hold the result.
    pub path: PathBuf,
    /// Reason why the result cannot be returned, as a sentence without a full stop.
    pub reason: String,
}

/// Longest output that is given whole after a success, in characters: the limit of Claude Code for
/// the output of a shell command.
pub const INLINE_CHARS: usize = 30_000;

/// Longest output that is given whole after a failure, in characters: the same source.
pub const INLINE_CHARS_FAILED: usize = 10_000;

/// Longest preview in characters, half of it the beginning and half the end: enough for the command
/// that failed and the summary at the end. It is about a quarter of [`INLINE_CHARS`].
pub const PREVIEW_CHARS: usize = 8_000;

/// Most bytes of a text in a record: 64 KiB, the limit of the journal's format. A longer text is stored
/// beside the journal and named by its hash.
pub const INLINE_BYTES: usize = 64 * 1024;

/// Bytes of a long text that stay in its record, for people: far more than a log shows.
const BEGINNING_BYTES: usize = 1024;

/// Bytes of an output that stay in memory before a file is made: the size of a Linux pipe. A writer
/// takes at most three times this.
pub const MEMORY_BYTES: usize = 64 * 1024;

/// Largest number of bytes of one output that are stored; the rest is dropped, and the text says
/// so. A command in an endless loop would otherwise fill the disk within its time limit.
pub const MAX_STORED_BYTES: u64 = 1 << 30;

/// The result store of one run: the directory of its results, and a directory for unfinished files.
#[derive(Clone, Debug)]
pub struct Store {
    scratch: PathBuf,
    results: PathBuf,
    patience: Patience,
    secrets: Secrets,
}

/// The time for which the store waits on a full disk.
#[derive(Clone)]
enum Patience {
    /// It does not wait.
    None,
    /// It waits while this returns true. Each call also reports that the disk is full.
    While(Arc<dyn Fn() -> bool + Send + Sync>),
    /// It waits as long as this process lives.
    Endless,
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::While(_) => "While",
            Self::Endless => "Endless",
        })
    }
}

impl Patience {
    /// Returns true if the store should try again.
    fn lasts(&self) -> bool {
        match self {
            Self::None => false,
            Self::While(report_full) => report_full(),
            Self::Endless => true,
        }
    }
}

impl Store {
    /// Makes a store that writes unfinished outputs to `scratch_dir` and finished ones to
    /// `results_dir`. Both are made when they are first needed and must be on the same file system.
    /// Previews name a result by `results_dir` as it is given here.
    #[must_use]
    pub fn new(scratch_dir: PathBuf, results_dir: PathBuf) -> Self {
        Self {
            scratch: scratch_dir,
            results: results_dir,
            patience: Patience::None,
            secrets: Secrets::default(),
        }
    }

    /// Makes the store wait for space on a full disk while `report_full` returns true. The store
    /// calls it before each new try.
    #[must_use]
    pub fn waiting_while(mut self, report_full: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.patience = Patience::While(Arc::new(report_full));
        self
    }

    /// Makes the store wait for space on a full disk for as long as this process lives.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.patience = Patience::Endless;
        self
    }

    /// Makes the store remove these secrets from every output that goes through a writer or
    /// [`Store::present`]. [`Store::store`] stores bytes as they are.
    #[must_use]
    pub fn redacting(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Returns the same store, which reports a full disk in place of waiting for space.
    #[must_use]
    pub fn without_patience(&self) -> Self {
        Self { patience: Patience::None, ..self.clone() }
    }

    /// Returns the directory of the finished outputs.
    #[must_use]
    pub fn results_dir(&self) -> &Path {
        &self.results
    }

    /// Returns the path of the file that holds a stored output.
    #[must_use]
    pub fn path_of(&self, stored: &Stored) -> PathBuf {
        self.results.join(&stored.hash)
    }

    /// Returns the directory of unfinished outputs and of results that are not recorded yet.
    #[must_use]
    pub fn scratch_dir(&self) -> &Path {
        &self.scratch
    }

    /// Begins an output.
    #[must_use]
    pub fn writer(&self) -> StoreWriter {
        StoreWriter::new(self)
    }

    /// Stores bytes durably under their hash. Leaves a correct file of that name alone, and
    /// replaces a damaged one.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn store(&self, bytes: impl AsRef<[u8]>) -> io::Result<Stored> {
        let bytes = bytes.as_ref();
        let stored = Stored {
            hash: blake3::hash(bytes).to_hex().to_string(),
            bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            dropped: 0,
        };
        if read(&self.results, &stored).is_ok() {
            // An earlier writer of the file may not have synced the directory yet.
            disk::sync(&File::open(&self.results)?)?;
            return Ok(stored);
        }
        let mut scratch = Scratch::create(self)?;
        self.write_whole(&mut scratch.file, bytes)?;
        scratch.keep_as(self, &self.results, &stored.hash)?;
        Ok(stored)
    }

    /// Stores a text that is too long for a record, and keeps its beginning.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn keep_long(&self, text: &mut Text) -> io::Result<()> {
        if let Text::Whole(whole) = text
            && whole.len() > INLINE_BYTES
        {
            let stored = Some(self.store(whole.as_bytes())?);
            let text_end = whole.floor_char_boundary(BEGINNING_BYTES);
            *text = Text::Stored(Output { text: whole[..text_end].to_owned(), stored });
        }
        Ok(())
    }

    /// Repeats an attempt until it succeeds, fails for a reason other than a full disk, or the
    /// patience of the store ends.
    fn patiently<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut pauses = disk::pauses();
        loop {
            let result = attempt();
            if !result.as_ref().is_err_and(disk::is_full) || !self.patience.lasts() {
                return result;
            }
            pauses.next().into_iter().for_each(std::thread::sleep);
        }
    }

    fn write_whole(&self, file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.patiently(|| disk::retried(|| file.write(bytes)))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    /// Returns a complete output: whole up to `inline_chars` characters, else stored and previewed.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn present(&self, bytes: &[u8], inline_chars: usize) -> io::Result<Output> {
        self.writer().write(bytes)?.finish(inline_chars)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("spool"), dir.path().join("results"));
        (dir, store)
    }

    fn names(dir: &Path) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_small_output_is_given_whole_and_leaves_no_file() {
        let (_dir, store) = store();
        assert_eq!(store.present(b"", 10).unwrap(), Output::whole(""));
        assert_eq!(store.present("äöü".as_bytes(), 3).unwrap(), Output::whole("äöü"));
        assert!(names(&store.scratch).is_empty() && names(&store.results).is_empty());
    }

    #[test]
    fn a_long_output_is_stored_exactly_and_previewed() {
        let (_dir, store) = store();
        let lines: Vec<String> = (0..5_000).map(|n| format!("line {n}\n")).collect();
        let mut bytes = lines.concat().into_bytes();
        bytes.splice(10_000..10_000, [0xff, 0xfe]);
        let mut writer = store.writer();
        for chunk in bytes.chunks(777) {
            writer = writer.write(chunk).unwrap();
        }
        let output = writer.finish(INLINE_CHARS).unwrap();
        let stored = output.stored.unwrap();
        let path = store.path_of(&stored);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(stored.hash, blake3::hash(&bytes).to_hex().to_string());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(output.text.starts_with("line 0\n") && output.text.ends_with("line 4999\n"));
        assert!(output.text.contains(&format!("of {} bytes omitted", bytes.len())));
        assert!(output.text.contains(&path.display().to_string()));
        assert!(output.text.chars().count() < PREVIEW_CHARS + 300);
        assert!(names(&store.scratch).is_empty());
    }

    #[test]
    fn shown_and_omitted_bytes_add_up() {
        let (_dir, store) = store();
        for text in ["ä".repeat(300), "a\n".repeat(300), "\u{1F600}x".repeat(40_000)] {
            let output = store.present(text.as_bytes(), 100).unwrap();
            let (before, rest) = output.text.split_once("[... ").unwrap();
            let (marker, after) = rest.split_once(" ...]\n").unwrap();
            let omitted: usize = marker.split(' ').next().unwrap().parse().unwrap();
            let before = if text.starts_with(before) { before } else { before.trim_end() };
            assert!(text.starts_with(before) && text.ends_with(after));
            assert!(before.chars().count() <= 50 && after.chars().count() <= 50);
            assert_eq!(before.len() + omitted + after.len(), text.len());
        }
    }

    #[test]
    fn what_is_over_the_limit_is_dropped_and_said() {
        let (_dir, store) = store();
        let mut writer = store.writer();
        writer.limit(100_000);
        for _ in 0..20 {
            writer = writer.write(&[b'x'; 9_999]).unwrap();
            assert!(writer.memory() <= 3 * MEMORY_BYTES);
        }
        let output = writer.write(b"the end").unwrap().finish(INLINE_CHARS).unwrap();
        let stored = output.stored.unwrap();
        assert_eq!((stored.bytes, stored.dropped), (100_000, 20 * 9_999 + 7 - 100_000));
        assert_eq!(store.path_of(&stored).metadata().unwrap().len(), 100_000);
        assert!(output.text.contains("the first 100000 are in"), "{}", output.text);
        assert!(output.text.ends_with("the end"));
    }

    #[test]
    fn bytes_that_are_no_text_are_stored_however_few() {
        let (_dir, store) = store();
        let output = store.present(b"caf\xe9", INLINE_CHARS).unwrap();
        assert_eq!(output.text, "caf\u{fffd}");
        let stored = output.stored.unwrap();
        assert_eq!(std::fs::read(store.path_of(&stored)).unwrap(), b"caf\xe9");
    }

    #[test]
    fn the_same_content_is_stored_once() {
        let (_dir, store) = store();
        let first = store.store("content").unwrap();
        assert_eq!(store.store(b"content").unwrap(), first);
        for damage in ["torn", "c0ntent"] {
            std::fs::write(store.path_of(&first), damage).unwrap();
            assert_eq!(store.store("content").unwrap(), first);
            assert_eq!(std::fs::read(store.path_of(&first)).unwrap(), b"content");
        }
        assert_eq!(names(&store.results), [first.hash]);
    }

    #[test]
    fn a_full_disk_is_reported_and_waited_for_while_somebody_says_so() {
        let (_dir, store) = store();
        let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let refused = store.write_whole(&mut full, b"x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull, "nobody waits");

        let reports = Arc::new(AtomicUsize::new(0));
        let counted = reports.clone();
        let store = store.waiting_while(move || counted.fetch_add(1, Ordering::Relaxed) < 3);
        let refused = store.write_whole(&mut full, b"x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert_eq!(reports.load(Ordering::Relaxed), 4, "each try tells of the full disk");
    }

    #[test]
    fn no_secret_reaches_the_disk() {
        let (_dir, store) = store();
        let secret = "sk-0123456789abcdef";
        let store = store.redacting(Secrets::new([secret.to_owned()]));
        let line = format!("key {secret} in use\n");
        let bytes = line.repeat(6_000).into_bytes();
        // Cuts at every place of the secret.
        for size in [1_000, 1_001, 1_007, 4_099, bytes.len()] {
            let mut writer = store.writer();
            for chunk in bytes.chunks(size) {
                writer = writer.write(chunk).unwrap();
            }
            let output = writer.finish(INLINE_CHARS).unwrap();
            let stored = output.stored.clone().unwrap();
            let whole = std::fs::read(store.path_of(&stored)).unwrap();
            assert_eq!(String::from_utf8(whole).unwrap(), "key [redacted] in use\n".repeat(6_000));
            assert!(!output.text.contains(secret), "{size}");
        }
        assert_eq!(names(&store.results).len(), 1);
    }

    #[test]
    fn what_was_written_so_far_can_be_read_under_a_name() {
        let (_dir, store) = store();
        let secret = "sk-0123456789abcdef";
        let store = store.redacting(Secrets::new([secret.to_owned()]));
        let laid_open = || std::fs::read_to_string(store.scratch.join("call.stdout")).unwrap();
        // A process that died has left one.
        make_dir(&store.scratch).unwrap();
        std::fs::write(store.scratch.join("call.stdout"), "old").unwrap();
        let mut writer = store.writer().named("call.stdout".to_owned());
        let mut whole = String::new();
        for number in 0..40_000 {
            let text = format!("{number} {secret}\n");
            writer = writer.write(text.as_bytes()).unwrap();
            whole.push_str(&text.replace(secret, "[redacted]"));
            if number % 4_000 == 0 {
                writer = writer.lay_open();
                assert_eq!(laid_open(), whole);
            }
        }
        let output = writer.lay_open().finish(INLINE_CHARS).unwrap();
        let path = store.path_of(&output.stored.unwrap());
        assert_eq!(std::fs::read_to_string(path).unwrap(), whole);
        // A small one is given whole, and leaves no file.
        let writer = store.writer().named("call.stdout".to_owned()).write(b"one\ntw").unwrap();
        let writer = writer.lay_open();
        assert_eq!(laid_open(), "one\n", "the rest could be the beginning of a secret");
        let output = writer.write(b"o\n").unwrap().finish(INLINE_CHARS).unwrap();
        assert_eq!(output, Output::whole("one\ntwo\n"));
        assert!(names(&store.scratch).is_empty());
    }

    #[test]
    fn an_abandoned_output_leaves_nothing() {
        let (_dir, store) = store();
        let writer = store.writer().write(&vec![b'x'; MEMORY_BYTES + 1]).unwrap();
        assert_eq!(names(&store.scratch).len(), 1);
        drop(writer);
        assert!(names(&store.scratch).is_empty());
    }
}
