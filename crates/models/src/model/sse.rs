//! A parser of server-sent events: bytes go in, events come out.
//!
//! Owns the framing of the event stream and its size limit. Pure: reads no socket, knows no
//! provider, decodes no JSON.

/// The most bytes of one line, and of the data of one event: as many as all contents of a reply may
/// have, which some servers send in one event.
pub const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;

/// An event that has arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The field `event:`; empty if the stream gave none.
    pub name: &'a [u8],
    /// The `data:` lines, joined by newlines.
    pub data: &'a [u8],
}

/// The error for an event that is larger than the parser's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {0} bytes")]
pub struct TooLong(pub usize);

/// An incremental parser: the input may be divided into chunks anywhere.
#[derive(Debug)]
pub struct Parser {
    /// The beginning of a line of which the end has not arrived.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// True if the last byte was a carriage return: a line feed after it belongs to the same line
    /// end.
    after_cr: bool,
    at_start: bool,
    limit: usize,
}

impl Default for Parser {
    fn default() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }
}

impl Parser {
    /// Creates a parser that accepts events of up to `limit` bytes.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            at_start: true,
            limit,
        }
    }

    /// Takes the next bytes and passes every event that they complete to `on_event`.
    ///
    /// # Errors
    /// Returns [`TooLong`] if a line or an event is longer than the limit, and any error of
    /// `on_event`. The parser must not be used after an error.
    pub fn feed<E: From<TooLong>>(
        &mut self,
        mut chunk: &[u8],
        mut on_event: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(first) = chunk.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let Some(end) = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.check(self.line.len() + chunk.len())?;
                self.line.extend_from_slice(chunk);
                return Ok(());
            };
            self.after_cr = chunk[end] == b'\r';
            if self.line.is_empty() {
                self.take_line(&chunk[..end], &mut on_event)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&chunk[..end]);
                self.take_line(&line, &mut on_event)?;
                line.clear();
                self.line = line;
            }
            chunk = &chunk[end + 1..];
        }
        Ok(())
    }

    /// Returns true if the end of a line has not arrived.
    #[must_use]
    pub fn is_amid_line(&self) -> bool {
        !self.line.is_empty()
    }

    /// Takes the end of the stream, and passes the event to `on_event` of which the end is missing. Its
    /// last line may be cut, see [`Self::is_amid_line`]; some servers just leave out the last newline.
    ///
    /// # Errors
    /// Returns any error of `on_event`.
    pub fn finish<E: From<TooLong>>(
        mut self,
        mut on_event: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take_line(&line, &mut on_event)?;
        }
        self.take_line(b"", &mut on_event)
    }

    fn check(&self, length: usize) -> Result<(), TooLong> {
        if length > self.limit { Err(TooLong(self.limit)) } else { Ok(()) }
    }

    fn take_line<E: From<TooLong>>(
        &mut self,
        line: &[u8],
        on_event: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(self.data.len() + line.len())?;
        let line = match std::mem::take(&mut self.at_start) {
            true => line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line),
            false => line,
        };
        if line.is_empty() {
            let result = match self.has_data {
                true => on_event(Event { name: &self.name, data: &self.data }),
                false => Ok(()),
            };
            self.name.clear();
            self.data.clear();
            self.has_data = false;
            return result;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // A comment (with an empty field name), `id`, `retry` or a field of a later version.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut events = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut keep = |event: Event<'_>| -> Result<(), TooLong> {
            events.push((text(event.name), text(event.data)));
            Ok(())
        };
        let mut parser = Parser::default();
        for chunk in chunks {
            parser.feed(chunk, &mut keep).unwrap();
        }
        parser.finish(&mut keep).unwrap();
        events
    }

    const STREAM: &str = "\u{feff}: hello\n\nevent: a\ndata: {\"x\":1}\n\nretry: 3\r\ndata:é\r\n\
        data:  two\r\n\r\nevent: gone\n\ndata\r\rnonsense\ndata: last\n";

    fn expected() -> Vec<(String, String)> {
        let pair = |name: &str, data: &str| (name.to_owned(), data.to_owned());
        vec![pair("a", "{\"x\":1}"), pair("", "é\n two"), pair("", ""), pair("", "last")]
    }

    #[test]
    fn every_split_gives_the_same_events() {
        let bytes = STREAM.as_bytes();
        assert_eq!(parse(&[bytes]), expected());
        for at in 0..=bytes.len() {
            assert_eq!(parse(&[&bytes[..at], &bytes[at..]]), expected(), "split at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(parse(&single), expected());
    }

    #[test]
    fn an_unfinished_line_at_the_end_is_told() {
        let event = |data: &str| vec![(String::new(), data.to_owned())];
        assert_eq!(parse(&[b"data: {\"cut"]), event("{\"cut"));
        assert_eq!(parse(&[b"data: a\ndata: b"]), event("a\nb"));
        assert_eq!(parse(&[b"data: a\nda"]), event("a"));
        assert_eq!(parse(&[b"da"]), []);
        let mut parser = Parser::default();
        let ignore = |_: Event<'_>| -> Result<(), TooLong> { Ok(()) };
        for (chunk, expected) in [(&b"data: a"[..], true), (b"\n", false), (b"\nd", true)] {
            parser.feed(chunk, ignore).expect("a short line");
            assert_eq!(parser.is_amid_line(), expected);
        }
    }

    #[test]
    fn long_lines_and_long_events_are_refused() {
        let ignore = |_: Event<'_>| -> Result<(), TooLong> { Ok(()) };
        let mut parser = Parser::with_limit(16);
        assert_eq!(parser.feed(b"data: 0123456789", ignore), Ok(()));
        assert_eq!(parser.feed(b"x", ignore), Err(TooLong(16)));
        let mut parser = Parser::with_limit(16);
        assert_eq!(parser.feed(b"data: 01234\ndata: 01234\ndata: 1\n", ignore), Err(TooLong(16)));
    }
}
