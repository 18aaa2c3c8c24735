//! Reads a file byte by byte and finds the positions at which JSON values and lines begin and end.
//!
//! It finds only their extent: the code that keeps a value checks whether it is correct JSON.

use std::io::{BufRead, BufReader, ErrorKind};

use super::{
    ConversationError, ConversationErrorKind as Kind, Input, MOST_BYTES, Position, Result,
};

/// Number of bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A reader that knows its position.
pub(super) struct Scanner {
    input: BufReader<Box<dyn Input>>,
    at: Position,
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner").field("at", &self.at).finish_non_exhaustive()
    }
}

/// The destination of the bytes that are read.
#[derive(Debug)]
enum Sink<'a> {
    Keep(&'a mut Vec<u8>),
    PassOver,
}

/// A line of a file.
#[derive(Debug)]
pub(super) struct ScannedLine {
    /// The position at which the line begins.
    pub place: Position,
    /// Length of the line with its newline; more than the bytes that were kept if the line is too
    /// long.
    pub bytes: u64,
    /// True if the line ends with a newline; the last line of a file may have none.
    pub is_whole: bool,
}

impl ScannedLine {
    /// Returns true if the line was too long to be kept.
    pub(super) fn is_too_long(&self) -> bool {
        self.bytes > MOST_BYTES as u64
    }
}

impl Scanner {
    pub(super) fn new(input: Box<dyn Input>) -> Self {
        Self { input: BufReader::with_capacity(CHUNK_BYTES, input), at: Position::START }
    }

    /// Returns the position of the next byte.
    pub(super) fn at(&self) -> Position {
        self.at
    }

    /// Goes to a position that was read before.
    pub(super) fn go_to(&mut self, place: Position) -> Result<()> {
        // A relative seek keeps the buffer, so that its bytes are not read again.
        let way = i128::from(place.byte) - i128::from(self.at.byte);
        let way = i64::try_from(way).unwrap_or(i64::MAX);
        self.input.seek_relative(way).map_err(|error| Kind::Io(error).at(place))?;
        self.at = place;
        Ok(())
    }

    /// Returns the next byte that is not whitespace, without consuming it.
    pub(super) fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let spaces = chunk.iter().take_while(|byte| is_space(**byte)).count();
            let next = chunk.get(spaces).copied();
            self.advance(spaces, &mut Sink::PassOver)?;
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    /// Consumes `wanted` and the whitespace before it, if it is next; returns true if so.
    pub(super) fn take(&mut self, wanted: u8) -> Result<bool> {
        let is_next = self.peek()? == Some(wanted);
        if is_next {
            self.advance(1, &mut Sink::PassOver)?;
        }
        Ok(is_next)
    }

    /// Consumes the byte order mark with which some programs begin a UTF-8 file.
    pub(super) fn take_byte_order_mark(&mut self) -> Result<()> {
        if self.chunk()?.starts_with(b"\xef\xbb\xbf") {
            self.advance(3, &mut Sink::PassOver)?;
        }
        Ok(())
    }

    /// Reads the next value into `into`, and returns its position.
    pub(super) fn value(&mut self, into: &mut Vec<u8>) -> Result<Position> {
        into.clear();
        self.go_over_value(&mut Sink::Keep(into))
    }

    /// Skips the next value, and returns its position.
    pub(super) fn pass_over_value(&mut self) -> Result<Position> {
        self.go_over_value(&mut Sink::PassOver)
    }

    fn go_over_value(&mut self, sink: &mut Sink<'_>) -> Result<Position> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            None => return Err(Kind::CutOff.at(start)),
            Some(b',' | b':' | b']' | b'}') => {
                return Err(Kind::Syntax("a value is expected".to_owned()).at(start));
            }
            Some(_) => {}
        }
        let mut extent = Extent::default();
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                let ends = extent.depth == 0 && !extent.in_text;
                return if ends { Ok(start) } else { Err(Kind::CutOff.at(start)) };
            }
            let (bytes, is_end) = extent.follow(chunk);
            self.advance(bytes, sink).map_err(|error| error.kind.at(start))?;
            if is_end {
                return Ok(start);
            }
        }
    }

    /// Reads the next line into `into`; of a line that is too long only the beginning is kept.
    /// Returns `None` at the end of the file.
    pub(super) fn line(&mut self, into: &mut Vec<u8>) -> Result<Option<ScannedLine>> {
        into.clear();
        let place = self.at;
        loop {
            let chunk = self.chunk()?;
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            let bytes = newline.map_or(chunk.len(), |at| at + 1);
            let at_end = bytes == 0;
            let fits = into.len() + bytes <= MOST_BYTES;
            self.advance(bytes, &mut if fits { Sink::Keep(into) } else { Sink::PassOver })?;
            let read = self.at.byte - place.byte;
            if newline.is_some() || at_end {
                let line = ScannedLine { place, bytes: read, is_whole: newline.is_some() };
                return Ok((read > 0).then_some(line));
            }
        }
    }

    fn chunk(&mut self) -> Result<&[u8]> {
        loop {
            match self.input.fill_buf() {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Kind::Io(error).at(self.at)),
            }
        }
        Ok(self.input.buffer())
    }

    /// Consumes bytes of the current chunk.
    fn advance(&mut self, bytes: usize, sink: &mut Sink<'_>) -> Result<()> {
        let taken = &self.input.buffer()[..bytes];
        if let Sink::Keep(into) = sink {
            if into.len() + bytes > MOST_BYTES {
                return Err(Kind::TooLong.at(self.at));
            }
            into.extend_from_slice(taken);
        }
        self.at.line += taken.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.at.byte += bytes as u64;
        self.input.consume(bytes);
        Ok(())
    }
}

/// A reader of the members of an object, one after the other.
#[derive(Debug)]
pub(super) struct Members<'a> {
    scanner: &'a mut Scanner,
    start: Position,
    is_first: bool,
}

impl<'a> Members<'a> {
    /// Enters the object that is next.
    pub(super) fn enter(scanner: &'a mut Scanner) -> Result<Self> {
        scanner.peek()?;
        let start = scanner.at;
        if scanner.take(b'{')? {
            Ok(Self { scanner, start, is_first: true })
        } else {
            Err(Kind::Syntax("`{` is expected".to_owned()).at(start))
        }
    }

    /// Reads the next key and its colon; returns `None` at the end of the object. The caller reads
    /// the value from [`Self::scanner`].
    pub(super) fn next_key(&mut self) -> Result<Option<String>> {
        if self.scanner.take(b'}')? {
            return Ok(None);
        }
        let is_first = std::mem::replace(&mut self.is_first, false);
        if !is_first && !self.scanner.take(b',')? {
            return Err(self.expected("`,` or `}`"));
        }
        if self.scanner.peek()? != Some(b'"') {
            return Err(self.expected("a key in quotes"));
        }
        let mut key = Vec::new();
        let place = self.scanner.value(&mut key)?;
        let key = serde_json::from_slice(&key)
            .map_err(|_| Kind::Syntax("a key in quotes is expected".to_owned()).at(place))?;
        if !self.scanner.take(b':')? {
            return Err(self.expected("`:`"));
        }
        Ok(Some(key))
    }

    /// Returns the scanner that reads the object.
    pub(super) fn scanner(&mut self) -> &mut Scanner {
        self.scanner
    }

    fn expected(&mut self, what: &str) -> ConversationError {
        match self.scanner.peek() {
            Ok(Some(_)) => Kind::Syntax(format!("{what} is expected")).at(self.scanner.at),
            Ok(None) => Kind::CutOff.at(self.start),
            Err(error) => error,
        }
    }
}

/// The state of a walk over one value, which finds its end.
#[derive(Debug, Default)]
struct Extent {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

impl Extent {
    /// Returns the number of bytes of `chunk` that belong to the value, and true if the value ends
    /// there.
    fn follow(&mut self, chunk: &[u8]) -> (usize, bool) {
        for (at, byte) in chunk.iter().enumerate() {
            if self.in_text {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => {
                        self.in_text = false;
                        if self.depth == 0 {
                            return (at + 1, true);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth > 1 => self.depth -= 1,
                b'}' | b']' if self.depth == 1 => return (at + 1, true),
                // A number or a word ends before the byte that follows it.
                b'}' | b']' | b',' | b':' if self.depth == 0 => return (at, true),
                space if self.depth == 0 && is_space(*space) => return (at, true),
                _ => {}
            }
        }
        (chunk.len(), false)
    }
}

/// Returns true if JSON ignores this byte between values.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}
