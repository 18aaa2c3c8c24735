//! Reads a window of a text file's lines, in bounded memory however large the file and its lines
//! are.

use std::io::{self, BufRead, BufReader, Read};

use crate::message::media::media_type;

/// Largest number of lines that a call returns unless it names a number: as many as Claude Code
/// reads at once.
pub(super) const MAX_LINES: u64 = 2_000;

/// Largest number of characters that a call returns, line ends included: the read limit of the
/// presets.
pub(super) const MAX_CHARS: usize = 50_000;

/// Bytes at the start of a file that are searched for a NUL, which marks a binary file; git's
/// number.
const BINARY_PROBE_BYTES: usize = 8 * 1024;

/// Largest image or PDF that is read, in bytes: in base64 it has the 5 MB that the Messages API takes for
/// an image. The other services take more.
pub(super) const MAX_MEDIA_BYTES: u64 = 3_750_000;

/// Range of lines that a call asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Number of the first line, from 1.
    pub(super) offset: u64,
    /// Largest number of lines.
    pub(super) limit: u64,
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// The lines.
    Shown(String),
    /// A file of this media type that models may read, and its bytes: one more than may be read if it is
    /// too large.
    Media(&'static str, Vec<u8>),
    /// Reason why there are no lines, worded to follow the file's name.
    Refused(String),
}

/// A reader that knows the hash of what it has read, once it has read to the end.
pub(super) struct Hashed<R> {
    reader: R,
    hash: blake3::Hasher,
    has_ended: bool,
}

impl<R> Hashed<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, hash: blake3::Hasher::new(), has_ended: false }
    }

    /// Returns the blake3 hash of the whole content in hexadecimal; `None` if some of it was not read.
    pub(super) fn hash(&self) -> Option<String> {
        self.has_ended.then(|| self.hash.finalize().to_hex().to_string())
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        self.has_ended |= read == 0 && !buffer.is_empty();
        Ok(read)
    }
}

/// Reads a window of a file of `size` bytes. Lines keep their ends. A line that does not fit is
/// left for the next call, except that a line too long for any call is cut.
pub(super) fn read(file: impl Read, size: u64, window: Window) -> io::Result<Text> {
    let mut file = file;
    let mut probe = Vec::with_capacity(BINARY_PROBE_BYTES);
    file.by_ref().take(BINARY_PROBE_BYTES as u64).read_to_end(&mut probe)?;
    if let Some(kind) = media_type(&probe) {
        let room = (MAX_MEDIA_BYTES + 1).saturating_sub(probe.len() as u64);
        file.take(room).read_to_end(&mut probe)?;
        return Ok(Text::Media(kind, probe));
    }
    if probe.contains(&0) {
        return Ok(Text::Refused(format!("is binary ({size} bytes)")));
    }
    if probe.is_empty() {
        return Ok(Text::Shown("(empty file)".to_owned()));
    }
    let probe = match whole(probe, window) {
        Ok(text) => return Ok(Text::Shown(text)),
        Err(probe) => probe,
    };
    // A file that ended within the probe needs neither another read nor a buffer.
    let capacity = if probe.len() < BINARY_PROBE_BYTES { 0 } else { 64 * 1024 };
    let rest = file.take(if capacity == 0 { 0 } else { u64::MAX });
    let mut file = io::Cursor::new(probe).chain(BufReader::with_capacity(capacity, rest));
    let mut line = BoundedLine::default();
    let mut number = 0;
    while number + 1 < window.offset {
        if !line.next(&mut file)? {
            let lines = if number == 1 { "1 line" } else { &format!("{number} lines") };
            return Ok(Text::Refused(format!("has only {lines}")));
        }
        number += 1;
    }
    let (mut shown, mut chars, mut more) = (String::new(), 0, 0_u64);
    for taken in 0.. {
        if !line.next(&mut file)? {
            if taken == 0 {
                return Ok(Text::Refused(format!("has only {number} lines")));
            }
            break;
        }
        if taken < window.limit && line.add_to(&mut shown, &mut chars) {
            continue;
        }
        more = 1 + count_lines(&mut file)?;
        break;
    }
    if more > 0 {
        let line_break = if shown.ends_with('\n') { "" } else { "\n" };
        shown.push_str(&format!("{line_break}... ({more} more lines)"));
    }
    Ok(Text::Shown(shown))
}

/// Returns the text of a short file whose window is all of it: most files that agents read are, and need no look at
/// each line. Gives the bytes back if it is none.
fn whole(bytes: Vec<u8>, window: Window) -> Result<String, Vec<u8>> {
    const { assert!(BINARY_PROBE_BYTES <= MAX_CHARS, "so each of them may be shown") };
    // A line more than there are ends.
    let fits = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    if window.offset > 1 || bytes.len() >= BINARY_PROBE_BYTES || fits(&bytes) > window.limit {
        return Err(bytes);
    }
    String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes)
}

/// One line, of which only as much is kept as could be shown.
#[derive(Debug, Default)]
struct BoundedLine {
    kept: Vec<u8>,
    dropped: u64,
}

impl BoundedLine {
    /// Bytes that are kept of a line: a character has at most four.
    const KEPT_BYTES: usize = 4 * MAX_CHARS;

    /// Reads the next line with its end; returns false at the end of the file.
    fn next(&mut self, file: &mut impl BufRead) -> io::Result<bool> {
        self.kept.clear();
        self.dropped = 0;
        let most = Self::KEPT_BYTES as u64;
        let read = file.by_ref().take(most).read_until(b'\n', &mut self.kept)?;
        if read == Self::KEPT_BYTES && !self.kept.ends_with(b"\n") {
            self.dropped = skip_line(file)?;
        }
        Ok(read > 0)
    }

    /// Adds the line if it fits, or cuts it if nothing was shown yet. Returns false if it has to
    /// wait.
    fn add_to(&self, shown: &mut String, chars: &mut usize) -> bool {
        let text = String::from_utf8_lossy(&self.kept);
        let length = text.chars().count();
        if self.dropped == 0 && *chars + length <= MAX_CHARS {
            shown.push_str(&text);
            *chars += length;
            return true;
        }
        if !shown.is_empty() {
            return false;
        }
        let end = text.char_indices().nth(MAX_CHARS).map_or(text.len(), |(at, _)| at);
        let cut = (text.len() - end) as u64 + self.dropped;
        shown.push_str(&text[..end]);
        shown.push_str(&format!("... ({cut} more bytes in this line)\n"));
        *chars = MAX_CHARS;
        true
    }
}

/// Skips the rest of a line and returns its number of bytes.
fn skip_line(file: &mut impl BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = file.fill_buf()?;
        let end = buffer.iter().position(|b| *b == b'\n').map(|at| at + 1);
        let used = end.unwrap_or(buffer.len());
        file.consume(used);
        skipped += used as u64;
        if end.is_some() || used == 0 {
            return Ok(skipped);
        }
    }
}

/// Returns the number of lines that are left; the last need not have a line end.
fn count_lines(file: &mut impl BufRead) -> io::Result<u64> {
    let (mut lines, mut open) = (0, false);
    loop {
        let buffer = file.fill_buf()?;
        let Some(last) = buffer.last() else { return Ok(lines + u64::from(open)) };
        open = *last != b'\n';
        lines += buffer.iter().filter(|b| **b == b'\n').count() as u64;
        let used = buffer.len();
        file.consume(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: impl AsRef<[u8]>, offset: u64, limit: u64) -> Text {
        let bytes = text.as_ref();
        read(bytes, bytes.len() as u64, Window { offset, limit }).unwrap()
    }

    fn shown(text: impl AsRef<[u8]>, offset: u64, limit: u64) -> String {
        match window(text, offset, limit) {
            Text::Shown(text) => text,
            other => panic!("not shown: {other:?}"),
        }
    }

    #[test]
    fn a_window_keeps_the_lines_as_they_are() {
        assert_eq!(shown("a\r\nb\n", 1, 9), "a\r\nb\n");
        assert_eq!(shown("a\nb", 1, 2), "a\nb");
        assert_eq!(shown("a\nb\nc\nd\n", 2, 2), "b\nc\n... (1 more lines)");
        assert_eq!(shown("a\nb\nc\nd", 1, 1), "a\n... (3 more lines)");
        assert_eq!(shown("a\n\n\n", 3, 1), "\n");
        assert_eq!(shown(b"a\xff\n", 1, 9), "a\u{fffd}\n");
        assert_eq!(shown("", 5, 9), "(empty file)");
    }

    #[test]
    fn an_offset_past_the_end_says_how_long_the_file_is() {
        assert_eq!(window("a\nb\n", 3, 1), Text::Refused("has only 2 lines".to_owned()));
        assert_eq!(window("a\nb\n", 9, 1), Text::Refused("has only 2 lines".to_owned()));
        assert_eq!(window("a", 9, 1), Text::Refused("has only 1 line".to_owned()));
    }

    #[test]
    fn the_rest_is_counted_in_a_large_file() {
        let text = "0123456789\n".repeat(100_000);
        let given = shown(&text, 1, MAX_LINES);
        assert_eq!(given.lines().count(), 2_001);
        assert!(given.ends_with("\n... (98000 more lines)"));
        let given = shown(&text, 1, u64::MAX);
        assert_eq!(given.lines().count(), MAX_CHARS / 11 + 1);
        assert!(given.ends_with(&format!("... ({} more lines)", 100_000 - MAX_CHARS / 11)));
    }

    #[test]
    fn a_line_that_never_fits_is_cut_and_others_wait() {
        let long = "é".repeat(300_000);
        let given = shown(format!("{long}\nnext\n"), 1, 10);
        assert!(given.starts_with(&"é".repeat(MAX_CHARS)));
        assert!(given.contains("... (500001 more bytes in this line)\n... (1 more lines)"));
        let given = shown(format!("first\n{long}\nnext\n"), 1, 10);
        assert_eq!(given, "first\n... (2 more lines)");
        assert_eq!(shown(format!("{long}\nnext\n"), 2, 10), "next\n");
    }

    #[test]
    fn binary_files_are_refused() {
        assert_eq!(window(b"a\0b", 1, 1), Text::Refused("is binary (3 bytes)".to_owned()));
    }
}
