//! Colours the output, if it goes to a terminal and the environment does not forbid colours.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns true if output to this stream is coloured: it is a terminal that is not dumb, or
/// CLICOLOR_FORCE is set. NO_COLOR overrides both.
pub(super) fn is_on(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if set("NO_COLOR") {
        return false;
    }
    let forced =
        std::env::var("CLICOLOR_FORCE").is_ok_and(|value| value != "0" && !value.is_empty());
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    forced || (stream.is_terminal() && !dumb)
}

/// The time after which long work says what it does: shorter work needs no word.
const SILENCE: Duration = Duration::from_secs(1);

/// The pause between two movements of the mark beside that.
const MOVE: Duration = Duration::from_millis(100);

/// Does work that may be long. At a terminal it says after a second what it does, and for how long.
pub(super) fn working<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if !io::stderr().is_terminal() || dumb {
        return work();
    }
    let (done, is_done) = mpsc::channel::<()>();
    let what = what.to_owned();
    let shown = thread::spawn(move || {
        if is_done.recv_timeout(SILENCE) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let bar = ProgressBar::new_spinner().with_message(what).with_elapsed(SILENCE);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        while is_done.recv_timeout(MOVE) == Err(RecvTimeoutError::Timeout) {
            bar.tick();
        }
        bar.finish_and_clear();
    });
    let result = work();
    drop(done);
    // The thread ends at once; its panic would only concern the mark.
    let _ = shown.join();
    result
}

/// Returns the width of the terminal in characters; `None` if the stream is no terminal.
pub(super) fn width(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(stream).filter(|_| stream.is_terminal())?;
    Some(usize::from(width.0).max(LEAST_WIDTH))
}

/// Returns the width and the height of the terminal in characters; `None` if the stream is none.
pub(super) fn size(stream: &impl AsFd) -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(stream)?;
    Some((usize::from(width.0).max(1), usize::from(height.0).max(1)))
}

/// The least width for which lines are cut: a narrower terminal wraps them.
const LEAST_WIDTH: usize = 40;

/// Returns the number of characters of a text that a terminal shows: colours take no space.
pub(super) fn visible(text: &str) -> usize {
    let (mut count, mut is_code) = (0, false);
    for c in text.chars() {
        match (c, is_code) {
            ('\x1b', _) => is_code = true,
            ('m', true) => is_code = false,
            (_, true) => {}
            (_, false) => count += 1,
        }
    }
    count
}

/// Returns at most `width` characters of a text without colours, with `…` if it is longer.
pub(super) fn cut(text: &str, width: usize) -> String {
    match text.chars().nth(width) {
        None => text.to_owned(),
        Some(_) if width == 0 => String::new(),
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// ANSI codes of the colours that tell agents apart: the six basic colours that are neither black
/// nor white.
const PALETTE: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// Colours text if colours are on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    on: bool,
}

impl Paint {
    pub(super) fn new(on: bool) -> Self {
        Self { on }
    }

    fn wrap(self, code: u8, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Colours a name. The same name gets the same colour each time.
    pub(super) fn name(self, name: &str) -> String {
        let sum = name.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        self.wrap(PALETTE[sum % PALETTE.len()], name)
    }

    /// Colours `shown`, the padded form of the state `word`, by the kind of the state.
    pub(super) fn state(self, word: &str, shown: &str) -> String {
        match word {
            "completed" | "reused" => self.wrap(32, shown),
            "failed" | "cancelled" => self.wrap(31, shown),
            "running" | "waiting" | "partial" => self.wrap(33, shown),
            _ => self.wrap(90, shown),
        }
    }

    /// Colours text grey, for what is less important.
    pub(super) fn faint(self, text: &str) -> String {
        self.wrap(90, text)
    }
}
