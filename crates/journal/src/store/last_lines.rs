//! The last lines that a command printed on two streams, in the order in which they came.
//!
//! A line is taken when it is whole, so that the streams mix between lines only, and a secret that one of them prints
//! is found as in the stream itself.

use std::collections::VecDeque;

use super::Store;
use crate::redaction::Secrets;

/// The most bytes that are kept: twice what a failure shows.
pub const MOST: usize = 8 * 1024;

/// The most bytes of a line that is looked at; of a longer one only a note is kept, because what is cut before secrets
/// are removed could be the half of one.
const LONGEST_LINE: usize = 64 * 1024;

/// Stands in the place of a line whose beginning is not kept.
const UNSHOWN: &[u8] = b"[a line that is too long]";

/// The line of a stream that has not ended.
#[derive(Debug, Default)]
pub struct OpenLine {
    bytes: Vec<u8>,
    /// True if its beginning is not kept.
    is_too_long: bool,
}

/// Collects the last lines of two streams.
#[derive(Debug)]
pub struct LastLines {
    secrets: Secrets,
    lines: VecDeque<String>,
    bytes: usize,
}

impl LastLines {
    /// Begins without lines; the secrets of the store are removed from each.
    #[must_use]
    pub fn new(store: &Store) -> Self {
        Self { secrets: store.secrets.clone(), lines: VecDeque::new(), bytes: 0 }
    }

    /// Takes the next bytes of one stream; `open` is the line of it that has not ended. Gives `each` line that has.
    pub fn take(&mut self, open: &mut OpenLine, mut bytes: &[u8], mut each: impl FnMut(&str)) {
        if bytes.len() > 2 * MOST {
            // What cannot be among the last lines is not looked at.
            let rest = &bytes[bytes.len() - 2 * MOST..];
            *open = OpenLine { bytes: Vec::new(), is_too_long: true };
            bytes = rest;
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if open.bytes.len() + part.len() > LONGEST_LINE {
                *open = OpenLine { bytes: Vec::new(), is_too_long: true };
            }
            if !open.is_too_long {
                open.bytes.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end(std::mem::take(open), &mut each);
            }
        }
    }

    /// Takes a line that has ended, with or without a line break, and gives it to `each`.
    pub fn end(&mut self, open: OpenLine, each: impl FnMut(&str)) {
        match open {
            OpenLine { is_too_long: true, .. } => self.add(UNSHOWN, each),
            OpenLine { bytes, .. } if !bytes.is_empty() => self.add(&bytes, each),
            OpenLine { .. } => {}
        }
    }

    fn add(&mut self, line: &[u8], mut each: impl FnMut(&str)) {
        let mut line = String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']).to_owned();
        self.secrets.redact(&mut line);
        each(&line);
        // Only now: what is left out may be a part of a secret no more.
        line.drain(..line.ceil_char_boundary(line.len().saturating_sub(MOST - 1)));
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > MOST {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len() + 1);
        }
    }

    /// Returns the last lines so far, each with its line break.
    #[must_use]
    pub fn so_far(&self) -> String {
        self.lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// Returns the last lines, each with its line break.
    #[must_use]
    pub fn finish(&mut self) -> String {
        self.lines.drain(..).map(|line| line + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> LastLines {
        let secrets = Secrets::new(["secret-word".to_owned()]);
        LastLines { secrets, lines: VecDeque::new(), bytes: 0 }
    }

    #[test]
    fn lines_of_two_streams_come_in_their_order_and_whole() {
        let (mut last, mut one, mut other) = (lines(), OpenLine::default(), OpenLine::default());
        last.take(&mut one, b"a1\na2 secret-", |_| ());
        last.take(&mut other, b"b1\nb2", |_| ());
        last.take(&mut one, b"word\n", |_| ());
        last.take(&mut other, b"\r\n\n", |_| ());
        last.end(one, |_| ());
        last.take(&mut other, b"b3", |_| ());
        last.end(other, |_| ());
        let so_far = last.so_far();
        let text = last.finish();
        assert_eq!(so_far, text);
        assert!(!text.contains("secret-word"), "{text}");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            (lines[0], lines[1], lines[3], lines[4], lines[5]),
            ("a1", "b1", "b2", "", "b3")
        );
        assert!(lines[2].starts_with("a2 ") && lines.len() == 6, "{text}");
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let (mut last, mut open) = (lines(), OpenLine::default());
        for _ in 0..100 {
            last.take(&mut open, &[b'x'; 12 * 1024], |_| ());
            last.take(&mut open, format!("{}\n", "line\n".repeat(5_000)).as_bytes(), |_| ());
            last.take(&mut open, b"secret-", |_| ());
            assert!(last.bytes <= MOST && open.bytes.len() <= LONGEST_LINE);
        }
        let text = last.finish();
        assert!(text.ends_with("line\nline\n\n") && text.len() <= MOST, "{}", text.len());
        // A line that is looked at from its middle on is not shown: a part of a secret would not be known as one.
        let (mut last, mut open) = (lines(), OpenLine::default());
        last.take(&mut open, &[&[b'x'; 20 * 1024][..], b"ret-word\nnext\n"].concat(), |_| ());
        last.end(open, |_| ());
        assert_eq!(last.finish(), "[a line that is too long]\nnext\n");
        let (mut last, mut open) = (lines(), OpenLine::default());
        for _ in 0..20 {
            last.take(&mut open, "é".repeat(3 * 1024).as_bytes(), |_| ());
        }
        last.take(&mut open, b"\n", |_| ());
        assert_eq!(last.finish(), "[a line that is too long]\n");
        // Of one that is looked at, its end is kept, without secrets.
        let (mut last, mut open) = (lines(), OpenLine::default());
        for _ in 0..3 {
            last.take(&mut open, format!("{}secret-word", "é".repeat(3 * 1024)).as_bytes(), |_| ());
        }
        last.take(&mut open, b"end\n", |_| ());
        let text = last.finish();
        assert!(
            text.ends_with("end\n") && text.len() <= MOST && !text.contains("secret"),
            "{text}"
        );
    }
}
