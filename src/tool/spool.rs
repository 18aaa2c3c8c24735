//! Where a tool's full output goes: written to disk as it comes, then named by its content.
//!
//! Owns the limits of what a model is given inline and the form of a preview. What it writes is
//! exact; only previews are made readable. Everything here blocks: call it off the runtime. While
//! the disk is full it waits, so that no result is lost.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::id::CallKey;
use crate::journal::{disk_space, results};
use crate::output::{Output, Stored};

/// The longest output given whole after a success, in characters: what Claude Code gives of a
/// shell command.
pub const INLINE_CHARS: usize = 30_000;

/// The longest output given whole after a failure, in characters: the same source.
pub const INLINE_CHARS_FAILED: usize = 10_000;

/// The longest preview in characters, half of it the beginning and half the end: enough for the
/// command that failed and the summary at the end, a quarter of what would be given whole.
pub const PREVIEW_CHARS: usize = 8_000;

/// How much of an output stays in memory before a file is made, in bytes: the size of a Linux
/// pipe. The memory that a writer takes is at most three times this.
pub const MEMORY_BYTES: usize = 64 * 1024;

/// The most bytes of one output that are stored; what follows is dropped and the text says so. A
/// command in an endless loop would otherwise fill the disk within its time limit.
pub const MAX_STORED_BYTES: u64 = 1 << 30;

/// The room that is taken for the result of a call before the call begins, in bytes: the longest
/// text that is given whole, each character as JSON at its worst, and what stands around it.
const RESULT_ROOM: u64 = (INLINE_CHARS * 6 + 4096) as u64;

/// The two directories of a run that outputs pass through.
#[derive(Clone, Debug)]
pub struct Spool {
    scratch: PathBuf,
    results: PathBuf,
    patience: Patience,
}

/// The time for which a full disk is waited for.
#[derive(Clone)]
enum Patience {
    /// None.
    None,
    /// While this says so, which is told of the full disk by being asked.
    While(Arc<dyn Fn() -> bool + Send + Sync>),
    /// As long as this process lives.
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
    /// Whether to try again.
    fn lasts(&self) -> bool {
        match self {
            Self::None => false,
            Self::While(report_full) => report_full(),
            Self::Endless => true,
        }
    }
}

impl Spool {
    /// Unfinished outputs go to `scratch_dir`, finished ones to `results_dir`. Both are made when
    /// they are first needed and must be on the same file system. Previews name results by
    /// `results_dir` as it is given here.
    #[must_use]
    pub fn new(scratch_dir: PathBuf, results_dir: PathBuf) -> Self {
        Self { scratch: scratch_dir, results: results_dir, patience: Patience::None }
    }

    /// Waits for room on a full disk while `report_full`, which is called before each new try,
    /// returns true.
    #[must_use]
    pub fn waiting_while(mut self, report_full: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.patience = Patience::While(Arc::new(report_full));
        self
    }

    /// Waits for room on a full disk for as long as this process lives.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.patience = Patience::Endless;
        self
    }

    /// Where finished outputs are.
    #[must_use]
    pub fn results_dir(&self) -> &Path {
        &self.results
    }

    /// The file that holds a stored output.
    #[must_use]
    pub fn path_of(&self, stored: &Stored) -> PathBuf {
        self.results.join(&stored.hash)
    }

    /// Where unfinished outputs and results that are not recorded yet are.
    #[must_use]
    pub fn scratch_dir(&self) -> &Path {
        &self.scratch
    }

    /// Takes room for the result of a call that is about to begin, so that it can be kept also when
    /// the disk is full by then.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn take_room(&self, key: &CallKey) -> io::Result<ResultRoom> {
        make_dir(&self.scratch)?;
        let path = self.scratch.join(Self::room_name(key));
        let file = disk_space::file_of(&path, RESULT_ROOM)?;
        Ok(ResultRoom(Scratch { file, path }))
    }

    /// Keeps the result of a call durably until it is recorded, in the room that was taken for it if
    /// any was. Does not wait for more: whoever asked for the call may live, and then has the result
    /// all the same.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_result(
        &self,
        key: &CallKey,
        bytes: &[u8],
        room: Option<ResultRoom>,
    ) -> io::Result<()> {
        let at_once = Self { patience: Patience::None, ..self.clone() };
        let mut scratch = match room {
            Some(ResultRoom(scratch)) => scratch,
            None => Scratch::create(&at_once)?,
        };
        scratch.file.write_all(bytes)?;
        // What was taken and is not needed.
        scratch.file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        scratch.keep_as(&at_once, &self.scratch, &Self::result_name(key))
    }

    /// The result of a call, if one was kept.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn kept_result(&self, key: &CallKey) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.scratch.join(Self::result_name(key))) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the result of a call, if one was kept, and the room of one that was not: it is
    /// recorded.
    pub fn forget_result(&self, key: &CallKey) {
        for name in [Self::result_name(key), Self::room_name(key)] {
            // What stays is removed with the rest when the run ends.
            let _gone = std::fs::remove_file(self.scratch.join(name));
        }
    }

    /// Removes what is kept and what was never finished: the run has ended.
    pub fn clear(&self) {
        for entry in std::fs::read_dir(&self.scratch).into_iter().flatten().filter_map(Result::ok) {
            // Nobody reads it any more; what cannot be removed only takes room.
            let _gone = std::fs::remove_file(entry.path());
        }
    }

    fn result_name(key: &CallKey) -> String {
        format!("{key}.json")
    }

    fn room_name(key: &CallKey) -> String {
        format!("{key}.room")
    }

    /// Begins an output.
    #[must_use]
    pub fn writer(&self) -> SpoolWriter {
        SpoolWriter {
            spool: self.clone(),
            head: Vec::new(),
            tail: Vec::new(),
            file: None,
            hash: blake3::Hasher::new(),
            kept: 0,
            seen: 0,
            most: MAX_STORED_BYTES,
        }
    }

    /// Stores bytes durably under their hash. Bytes that are there already are left alone; a file
    /// that does not hold them any more is replaced.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn store(&self, bytes: impl AsRef<[u8]>) -> io::Result<Stored> {
        let bytes = bytes.as_ref();
        let stored = Stored {
            hash: blake3::hash(bytes).to_hex().to_string(),
            bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        };
        if results::read(&self.results, &stored).is_ok() {
            // Whoever wrote it may not have synced the directory yet.
            File::open(&self.results)?.sync_all()?;
            return Ok(stored);
        }
        let mut scratch = Scratch::create(self)?;
        self.write_whole(&mut scratch.file, bytes)?;
        scratch.keep_as(self, &self.results, &stored.hash)?;
        Ok(stored)
    }

    /// Tries until the disk takes it, or nobody waits for room any more.
    fn patiently<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut pauses = disk_space::pauses();
        loop {
            let result = attempt();
            if !result.as_ref().is_err_and(disk_space::is_full) || !self.patience.lasts() {
                return result;
            }
            pauses.next().into_iter().for_each(std::thread::sleep);
        }
    }

    fn write_whole(&self, file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.patiently(|| file.write(bytes)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives an output that is complete: whole up to `inline_chars` characters, else stored and
    /// previewed.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn present(&self, bytes: &[u8], inline_chars: usize) -> io::Result<Output> {
        self.writer().write(bytes)?.finish(inline_chars)
    }
}

/// An output that is being written. Dropping it forgets the output.
#[derive(Debug)]
pub struct SpoolWriter {
    spool: Spool,
    /// The first [`MEMORY_BYTES`]; everything, while there is no file.
    head: Vec<u8>,
    /// At least the last [`MEMORY_BYTES`], at most twice that.
    tail: Vec<u8>,
    file: Option<Scratch>,
    /// Of the bytes that are kept.
    hash: blake3::Hasher,
    kept: u64,
    seen: u64,
    most: u64,
}

impl SpoolWriter {
    /// Whether `more` bytes would still go to memory only, so that writing them cannot block.
    #[must_use]
    pub fn stays_in_memory(&self, more: usize) -> bool {
        self.file.is_none() && self.head.len() + more <= MEMORY_BYTES
    }

    /// Adds bytes. A writer that failed is gone, so that no damaged output can be finished.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(mut self, bytes: &[u8]) -> io::Result<Self> {
        self.seen += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.remember_tail(bytes);
        let room = usize::try_from(self.most - self.kept).unwrap_or(usize::MAX);
        let kept = &bytes[..bytes.len().min(room)];
        self.hash.update(kept);
        self.kept += u64::try_from(kept.len()).unwrap_or(u64::MAX);
        if self.file.is_none() && !self.stays_in_memory(kept.len()) {
            let mut scratch = Scratch::create(&self.spool)?;
            self.spool.write_whole(&mut scratch.file, &self.head)?;
            self.file = Some(scratch);
        }
        let head_room = MEMORY_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(&kept[..kept.len().min(head_room)]);
        if let Some(scratch) = &mut self.file {
            self.spool.write_whole(&mut scratch.file, kept)?;
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

    /// Ends the output: whole up to `inline_chars` characters, else stored durably and previewed.
    /// What is too large for memory is stored whatever its number of characters.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(self, inline_chars: usize) -> io::Result<Output> {
        if self.file.is_none() && self.seen == self.kept {
            let text = String::from_utf8_lossy(&self.head);
            if text.chars().count() <= inline_chars {
                return Ok(Output::whole(text));
            }
        }
        let stored = match self.file {
            None => self.spool.store(&self.head)?,
            Some(scratch) => {
                let hash = self.hash.finalize().to_hex().to_string();
                scratch.keep_as(&self.spool, &self.spool.results, &hash)?;
                Stored { hash, bytes: self.kept }
            }
        };
        let path = self.spool.path_of(&stored).display().to_string();
        let place = if self.seen == self.kept {
            format!("the full output is in {path}")
        } else {
            format!("the first {} are in {path}, the rest was dropped", self.kept)
        };
        let chars = PREVIEW_CHARS.min(inline_chars) / 2;
        let text = preview(&self.head, &self.tail, self.seen, chars, &place);
        Ok(Output { text, stored: Some(stored) })
    }
}

/// The first and the last `chars` characters of an output of `total` bytes, with a line between
/// them that says what is missing and the `place` of the whole. Cuts fall on line ends where one
/// is near.
fn preview(head: &[u8], tail: &[u8], total: u64, chars: usize, place: &str) -> String {
    let starts = char_starts(head);
    let end = starts.get(chars).copied().unwrap_or(head.len());
    let line_end = head[..end].iter().rposition(|b| *b == b'\n').map(|at| at + 1);
    let head = &head[..line_end.filter(|at| *at > end / 2).unwrap_or(end)];

    // The tail's memory may begin amid a character.
    let torn = tail.iter().take(3).take_while(|b| **b & 0xc0 == 0x80).count();
    let tail = &tail[torn..];
    let starts = char_starts(tail);
    let from = starts.len().checked_sub(chars).and_then(|at| starts.get(at)).copied();
    let tail = &tail[from.unwrap_or(if chars == 0 { tail.len() } else { 0 })..];
    let line_start = tail.iter().position(|b| *b == b'\n').map(|at| at + 1);
    let tail = &tail[line_start.filter(|at| *at < tail.len() / 2).unwrap_or(0)..];

    let shown = u64::try_from(head.len() + tail.len()).unwrap_or(u64::MAX);
    let omitted = total.saturating_sub(shown);
    let line_break = if head.is_empty() || head.ends_with(b"\n") { "" } else { "\n" };
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    format!("{head}{line_break}[... {omitted} of {total} bytes omitted; {place} ...]\n{tail}")
}

/// Where the characters of the readable form begin.
fn char_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::with_capacity(bytes.len());
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        starts.extend(chunk.valid().char_indices().map(|(index, _)| at + index));
        at += chunk.valid().len();
        if !chunk.invalid().is_empty() {
            starts.push(at);
            at += chunk.invalid().len();
        }
    }
    starts
}

/// DiskSpace on the disk for the result of one call. Dropping it gives it up.
#[derive(Debug)]
pub struct ResultRoom(Scratch);

/// A file under a temporary name; it is removed unless it is kept.
#[derive(Debug)]
struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    fn create(spool: &Spool) -> io::Result<Self> {
        let path = spool.scratch.join(format!("{}.tmp", uuid::Uuid::now_v7().simple()));
        let file = spool.patiently(|| {
            make_dir(&spool.scratch)?;
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)
        })?;
        Ok(Self { file, path })
    }

    /// Gives the file its lasting name. A file of that name has the same content, so replacing
    /// it changes nothing.
    fn keep_as(self, spool: &Spool, dir: &Path, name: &str) -> io::Result<()> {
        // A sync that failed is not tried again, whatever the reason.
        self.file.sync_all()?;
        spool.patiently(|| {
            make_dir(dir)?;
            std::fs::rename(&self.path, dir.join(name))
        })?;
        File::open(dir)?.sync_all()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After the rename nothing has this name, and of a file that cannot be removed there is
        // nobody to tell: the next start of the run clears the directory.
        let _gone = std::fs::remove_file(&self.path);
    }
}

fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::id::{AgentId, RunId};

    fn spool() -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().join("spool"), dir.path().join("results"));
        (dir, spool)
    }

    fn names(dir: &Path) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_small_output_is_given_whole_and_leaves_no_file() {
        let (_dir, spool) = spool();
        assert_eq!(spool.present(b"", 10).unwrap(), Output::whole(""));
        assert_eq!(spool.present("äöü".as_bytes(), 3).unwrap(), Output::whole("äöü"));
        assert_eq!(spool.present(b"a\xffb", 10).unwrap(), Output::whole("a\u{fffd}b"));
        assert!(names(&spool.scratch).is_empty() && names(&spool.results).is_empty());
    }

    #[test]
    fn a_long_output_is_stored_exactly_and_previewed() {
        let (_dir, spool) = spool();
        let lines: Vec<String> = (0..5_000).map(|n| format!("line {n}\n")).collect();
        let mut bytes = lines.concat().into_bytes();
        bytes.splice(10_000..10_000, [0xff, 0xfe]);
        let mut writer = spool.writer();
        for chunk in bytes.chunks(777) {
            writer = writer.write(chunk).unwrap();
        }
        let output = writer.finish(INLINE_CHARS).unwrap();
        let stored = output.stored.unwrap();
        let path = spool.path_of(&stored);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(stored.hash, blake3::hash(&bytes).to_hex().to_string());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(output.text.starts_with("line 0\n") && output.text.ends_with("line 4999\n"));
        assert!(output.text.contains(&format!("of {} bytes omitted", bytes.len())));
        assert!(output.text.contains(&path.display().to_string()));
        assert!(output.text.chars().count() < PREVIEW_CHARS + 300);
        assert!(names(&spool.scratch).is_empty());
    }

    #[test]
    fn shown_and_omitted_bytes_add_up() {
        let (_dir, spool) = spool();
        for text in ["ä".repeat(300), "a\n".repeat(300), "\u{1F600}x".repeat(40_000)] {
            let output = spool.present(text.as_bytes(), 100).unwrap();
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
        let (_dir, spool) = spool();
        let mut writer = spool.writer();
        writer.most = 100_000;
        for _ in 0..20 {
            writer = writer.write(&[b'x'; 9_999]).unwrap();
            assert!(writer.tail.len() <= 2 * MEMORY_BYTES && writer.head.len() <= MEMORY_BYTES);
        }
        let output = writer.write(b"the end").unwrap().finish(INLINE_CHARS).unwrap();
        let stored = output.stored.unwrap();
        assert_eq!(stored.bytes, 100_000);
        assert_eq!(spool.path_of(&stored).metadata().unwrap().len(), 100_000);
        assert!(output.text.contains("the first 100000 are in"), "{}", output.text);
        assert!(output.text.ends_with("the end"));
    }

    #[test]
    fn the_same_content_is_stored_once() {
        let (_dir, spool) = spool();
        let first = spool.store("content").unwrap();
        assert_eq!(spool.store(b"content").unwrap(), first);
        for damage in ["torn", "c0ntent"] {
            std::fs::write(spool.path_of(&first), damage).unwrap();
            assert_eq!(spool.store("content").unwrap(), first);
            assert_eq!(std::fs::read(spool.path_of(&first)).unwrap(), b"content");
        }
        assert_eq!(names(&spool.results), [first.hash]);
    }

    #[test]
    fn a_full_disk_is_reported_and_waited_for_while_somebody_says_so() {
        let (_dir, spool) = spool();
        let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let refused = spool.write_whole(&mut full, b"x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull, "nobody waits");

        let reports = Arc::new(AtomicUsize::new(0));
        let counted = reports.clone();
        let spool = spool.waiting_while(move || counted.fetch_add(1, Ordering::Relaxed) < 3);
        let refused = spool.write_whole(&mut full, b"x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert_eq!(reports.load(Ordering::Relaxed), 4, "each try tells of the full disk");
    }

    #[test]
    fn a_result_is_kept_in_the_room_that_was_taken_for_it() {
        let (_dir, spool) = spool();
        let key = CallKey::derive(
            RunId::from(uuid::Uuid::now_v7()),
            &AgentId::from_text("a"),
            1,
            0,
            "bash",
            "{}",
        );
        let room = spool.take_room(&key).unwrap();
        let taken = spool.scratch.join(Spool::room_name(&key)).metadata().unwrap();
        assert!(taken.blocks() * 512 >= RESULT_ROOM);
        // The worst that there is: every character is escaped.
        let text = serde_json::to_vec(&"\u{1}".repeat(INLINE_CHARS)).unwrap();
        assert!(text.len() as u64 <= RESULT_ROOM);
        spool.keep_result(&key, &text, Some(room)).unwrap();
        assert_eq!(spool.kept_result(&key).unwrap().unwrap(), text);
        assert_eq!(names(&spool.scratch), [Spool::result_name(&key)]);
        drop(spool.take_room(&key).unwrap());
        assert_eq!(names(&spool.scratch), [Spool::result_name(&key)]);
        std::mem::forget(spool.take_room(&key).unwrap());
        spool.forget_result(&key);
        assert!(names(&spool.scratch).is_empty());
    }

    #[test]
    fn an_abandoned_output_leaves_nothing() {
        let (_dir, spool) = spool();
        let writer = spool.writer().write(&vec![b'x'; MEMORY_BYTES + 1]).unwrap();
        assert_eq!(names(&spool.scratch).len(), 1);
        drop(writer);
        assert!(names(&spool.scratch).is_empty());
    }
}
