//! Writes to stdout and stderr, for the whole command line: nothing is printed that could steer a
//! terminal, except the colours that this program makes itself.
//!
//! The only code that writes to the two streams, so that no verb can forget it. What a person reads
//! passes [`printable::block`]; JSON passes [`printable::json`], which keeps its values.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::hash::BuildHasher;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak, mpsc};
use std::time::Duration;

use parking_lot::Mutex;

use crate::exit::Exit;
use crate::printable;

/// One of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// What was asked for.
    Out,
    /// Notes, errors and the progress of a run.
    Err,
}

/// The least width for which lines are cut: a narrower terminal wraps them.
const LEAST_WIDTH: usize = 40;

impl Stream {
    /// Returns true if the stream is a terminal.
    pub(super) fn is_terminal(self) -> bool {
        match self {
            Self::Out => io::stdout().is_terminal(),
            Self::Err => io::stderr().is_terminal(),
        }
    }

    /// Returns true if output to the stream is coloured: it is a terminal that is not dumb, or
    /// CLICOLOR_FORCE is set. NO_COLOR overrides both.
    pub(super) fn is_coloured(self) -> bool {
        let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_forced = value("CLICOLOR_FORCE").is_some_and(|value| value != "0");
        let is_dumb = value("TERM").is_some_and(|term| term == "dumb");
        value("NO_COLOR").is_none() && (is_forced || (self.is_terminal() && !is_dumb))
    }

    /// Returns the width for which lines are cut, in characters; `None` if the stream is no
    /// terminal.
    pub(super) fn width(self) -> Option<usize> {
        self.size().map(|(width, _)| width.max(LEAST_WIDTH))
    }

    /// Returns the width and the height of the terminal; `None` if the stream is none.
    pub(super) fn size(self) -> Option<(usize, usize)> {
        let size = match self {
            Self::Out => rustix::termios::tcgetwinsize(io::stdout()),
            Self::Err => rustix::termios::tcgetwinsize(io::stderr()),
        };
        let size = size.ok().filter(|size| size.ws_col > 0 && size.ws_row > 0)?;
        Some((usize::from(size.ws_col), usize::from(size.ws_row)))
    }

    /// Prints a text for people, without a newline at its end.
    ///
    /// # Errors
    /// Returns an error if the stream cannot be written.
    pub(super) fn print(self, text: &str) -> io::Result<()> {
        self.write(shown(text).as_bytes())
    }

    /// Prints documents of JSON.
    ///
    /// # Errors
    /// Returns an error if the stream cannot be written.
    pub(super) fn print_json(self, text: &str) -> io::Result<()> {
        self.write(printable::json(text).as_bytes())
    }

    fn write(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Out => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Self::Err => io::stderr().lock().write_all(bytes),
        }
    }
}

/// Prints a text for people to stdout. A closed pipe counts as success: its reader has read enough.
pub(super) fn say(text: &str) -> Exit {
    said(Stream::Out.print(text))
}

/// Prints documents of JSON to stdout, as [`say`] does.
pub(super) fn say_json(text: &str) -> Exit {
    said(Stream::Out.print_json(text))
}

/// Returns the exit code of printing.
pub(super) fn said(written: io::Result<()>) -> Exit {
    match written {
        Ok(()) => Exit::Done,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(_) => Exit::Disk,
    }
}

/// Prints an error or a note to stderr. Its lines after the first are indented: a text in it could
/// otherwise pass for a message of its own. A stderr that is closed is no error.
pub(super) fn complain(text: &str) {
    complain_in_lines(&indented(text));
}

/// Prints a message to stderr whose lines were put together by this program.
pub(super) fn complain_in_lines(text: &str) {
    above(text);
}

/// Whoever has drawn on stderr, and prints lines above that.
pub(super) trait Drawn: Send + Sync {
    /// Prints lines without the newline at their end. A stderr that is closed is no error.
    fn above(&self, text: &str);
}

/// Whoever has drawn on stderr now.
static DRAWN: Mutex<Option<Weak<dyn Drawn>>> = Mutex::new(None);

/// Takes that notes and the program's log go above what is drawn there, as long as that lives.
pub(super) fn draws(drawn: &Arc<impl Drawn + 'static>) {
    let drawn: Arc<dyn Drawn> = drawn.clone();
    *DRAWN.lock() = Some(Arc::downgrade(&drawn));
}

/// Takes that nothing is drawn any more.
pub(super) fn draws_no_more() {
    *DRAWN.lock() = None;
}

/// Prints lines to stderr, above what is drawn there.
fn above(text: &str) {
    let drawn = DRAWN.lock().as_ref().and_then(Weak::upgrade);
    match drawn {
        Some(drawn) => drawn.above(text),
        // A stderr that is closed is no error.
        None => drop(Stream::Err.print(&format!("{text}\n"))),
    }
}

/// The longest time that a panic waits to be printed above what is drawn.
const PANIC_WAITS: Duration = Duration::from_secs(1);

/// Prints a panic of this program, above what is drawn.
pub(super) fn panicked(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let mut text = format!("error: a bug: thread `{}` {panic}", thread.name().unwrap_or("?"));
    if backtrace.status() == BacktraceStatus::Captured {
        text.push_str(&format!("\n{backtrace}"));
    }
    print_from_anywhere(indented(&text));
}

/// Prints lines from a thread that may hold the locks of what is drawn: another thread takes them, and if that waits for
/// too long, the lines are printed where they come. So they are if the other thread panics too.
fn print_from_anywhere(text: String) {
    static IS_PRINTING: AtomicBool = AtomicBool::new(false);
    let (printed, is_printed) = mpsc::channel();
    let is_second = IS_PRINTING.swap(true, Ordering::Relaxed);
    let lines = text.clone();
    let print = move || {
        above(&lines);
        // Nobody listens any more if it took too long.
        let _ = printed.send(());
    };
    let is_begun = !is_second && std::thread::Builder::new().spawn(print).is_ok();
    if !is_begun || is_printed.recv_timeout(PANIC_WAITS).is_err() {
        // A stderr that is closed is no error.
        let _ = Stream::Err.print(&format!("{text}\n"));
    }
    if !is_second {
        IS_PRINTING.store(false, Ordering::Relaxed);
    }
}

fn indented(text: &str) -> String {
    text.trim_end_matches('\n').replace('\n', "\n    ")
}

/// The beginning of the colour codes that this program has made. Text of others cannot hold it,
/// because it is a number that is drawn anew in each process.
static OWN: LazyLock<String> = LazyLock::new(|| {
    let number = std::collections::hash_map::RandomState::new().hash_one("colour");
    format!("\x1b[{number};")
});

/// Returns the code of a colour in a text that is printed here, and only here.
pub(super) fn colour(codes: &str) -> String {
    format!("{}{codes}m", *OWN)
}

/// Returns a text that a library has coloured with its colours as codes of this program. The
/// texts in it must be [`printable`] already.
pub(super) fn with_colours(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, part) in text.split("\x1b[").enumerate() {
        match code(part).filter(|_| at > 0) {
            Some((codes, rest)) => out.push_str(&(colour(codes) + rest)),
            None if at > 0 => out.push_str(&format!("\x1b[{part}")),
            None => out.push_str(part),
        }
    }
    out
}

/// Splits a text behind the numbers of a colour and the `m` that ends them.
fn code(text: &str) -> Option<(&str, &str)> {
    let (codes, rest) = text.split_once('m')?;
    codes.bytes().all(|byte| byte.is_ascii_digit() || byte == b';').then_some((codes, rest))
}

/// Returns a text that is safe to show, with the codes of its own colours as they are until it is printed.
pub(super) fn harmless(text: &str) -> String {
    with_codes(text, colour)
}

/// Returns a text as it is printed.
fn shown(text: &str) -> String {
    with_codes(text, |codes| format!("\x1b[{codes}m"))
}

fn with_codes(text: &str, code_of: impl Fn(&str) -> String) -> String {
    let mut parts = text.split(OWN.as_str());
    let mut out = printable::block(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        match code(part) {
            Some((codes, rest)) => {
                out.push_str(&code_of(codes));
                out.push_str(&printable::block(rest));
            }
            None => out.push_str(&printable::block(part)),
        }
    }
    out
}

/// Writes pieces of JSON to stdout, buffered.
#[derive(Debug)]
pub(super) struct JsonWriter(BufWriter<StdoutLock<'static>>);

impl JsonWriter {
    pub(super) fn new() -> Self {
        Self(BufWriter::with_capacity(1 << 16, io::stdout().lock()))
    }

    /// Writes a piece.
    ///
    /// # Errors
    /// Returns an error if stdout cannot be written.
    pub(super) fn write(&mut self, piece: &str) -> io::Result<()> {
        self.0.write_all(printable::json(piece).as_bytes())
    }

    /// Writes what is left in the buffer.
    ///
    /// # Errors
    /// Returns an error if stdout cannot be written.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Copies an output that may be anything to stdout: byte for byte, but safe to show if stdout is a
/// terminal.
///
/// # Errors
/// Returns an error if the output cannot be read or stdout cannot be written.
pub(super) fn copy(from: &mut impl io::Read) -> io::Result<()> {
    if !Stream::Out.is_terminal() {
        return io::copy(from, &mut io::stdout().lock()).map(|_| ());
    }
    let mut lines = Lines::new(Stream::Out);
    io::copy(from, &mut lines).and_then(|_| lines.flush_all())
}

/// The most bytes of a line that are kept until its end comes: longer ones are printed in parts.
const LONGEST: usize = 1 << 16;

/// Prints bytes line by line, as people may see them.
#[derive(Debug)]
pub(super) struct Lines {
    stream: Stream,
    rest: Vec<u8>,
}

impl Lines {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, rest: Vec::new() }
    }

    /// Prints what has no newline at its end.
    fn flush_all(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.rest);
        self.stream.print(&String::from_utf8_lossy(&rest))
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let whole = match self.rest.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None if self.rest.len() > LONGEST => characters(&self.rest),
            None => return Ok(bytes.len()),
        };
        let rest = self.rest.split_off(whole);
        let lines = std::mem::replace(&mut self.rest, rest);
        self.stream.print(&String::from_utf8_lossy(&lines)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the length of a text without the character at its end that is not whole yet.
fn characters(bytes: &[u8]) -> usize {
    let begins = |byte: &u8| *byte < 0x80 || *byte >= 0xc0;
    let last = bytes.iter().rev().take(4).position(begins).unwrap_or(0);
    match std::str::from_utf8(&bytes[bytes.len() - last - 1..]) {
        Ok(_) => bytes.len(),
        Err(_) => bytes.len() - last - 1,
    }
}

/// Prints the lines of the program's log to stderr. Each write is one event.
#[derive(Debug)]
pub(super) struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let event = String::from_utf8_lossy(bytes);
        // The formatter escapes what texts hold of colours, and makes them itself.
        // A stderr that nobody reads any more is no error: the subscriber would report it there, and panic.
        above(&with_colours(&indented(&event)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_colours_survive_and_no_others() {
        let green = colour("32");
        let end = colour("0");
        let text = format!("{green}ok{end} \x1b[32mforged\x1b[0m \x1b[2J");
        let expected = "\x1b[32mok\x1b[0m \\u{1b}[32mforged\\u{1b}[0m \\u{1b}[2J";
        assert_eq!(shown(&text), expected);
        // Codes that are no colour, and a beginning without an end.
        let clear = OWN.to_owned() + "2J" + &OWN;
        assert_eq!(shown(&clear), "2J");
        assert_eq!(shown(&with_colours("\x1b[1;4mx\x1b[0m\x1b[2J")), "\x1b[1;4mx\x1b[0m\\u{1b}[2J");
        assert_eq!(shown("plain"), "plain");
    }

    #[test]
    fn messages_cannot_be_forged_by_newlines() {
        assert_eq!(indented("error: x\nrun completed\n"), "error: x\n    run completed");
    }

    #[test]
    fn characters_are_not_torn() {
        for (bytes, whole) in [
            ("abc".as_bytes(), 3),
            ("a€".as_bytes(), 4),
            (&"a€".as_bytes()[..3], 1),
            (&"a🎉".as_bytes()[..4], 1),
            (b"\xff\xff", 1),
            (b"\x80\x80\x80\x80\x80", 4),
        ] {
            assert_eq!(characters(bytes), whole, "{bytes:?}");
        }
    }
}
