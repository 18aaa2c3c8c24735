//! Colours the output, if it goes to a terminal and the environment does not forbid colours.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// The pause between two movements of the mark and the bar beside that.
const MOVE: Duration = Duration::from_millis(100);

/// The part of long work that is done, in bytes of the file that is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<Amounts>);

#[derive(Debug, Default)]
struct Amounts {
    done: AtomicU64,
    /// 0 while it is unknown.
    total: AtomicU64,
}

impl Progress {
    /// Takes the size of the work. What is done counts from its beginning again.
    pub(super) fn set_total(&self, total: u64) {
        self.0.done.store(0, Ordering::Relaxed);
        self.0.total.store(total, Ordering::Relaxed);
    }

    /// Takes how far the work has come.
    pub(super) fn set_done(&self, done: u64) {
        self.0.done.store(done, Ordering::Relaxed);
    }

    fn show(&self, bar: &ProgressBar) {
        let total = self.0.total.load(Ordering::Relaxed);
        if total > 0 && bar.length() != Some(total) {
            let style =
                ProgressStyle::with_template("{spinner} {msg} {bar:24} {percent} % ({elapsed})");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_length(total);
        }
        if total > 0 {
            bar.set_position(self.0.done.load(Ordering::Relaxed).min(total));
        }
        bar.tick();
    }
}

/// Does work that may be long. At a terminal it says after a second what it does, for how long, and
/// how much of it is done if the work tells.
pub(super) fn working<T>(what: &str, work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if !io::stderr().is_terminal() || dumb {
        return work(&progress);
    }
    let (done, is_done) = mpsc::channel::<()>();
    let (what, shared) = (what.to_owned(), progress.clone());
    let shown = thread::spawn(move || {
        if is_done.recv_timeout(SILENCE) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let bar = ProgressBar::new_spinner().with_message(what).with_elapsed(SILENCE);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        while is_done.recv_timeout(MOVE) == Err(RecvTimeoutError::Timeout) {
            shared.show(&bar);
        }
        bar.finish_and_clear();
    });
    let result = work(&progress);
    drop(done);
    // The thread ends at once; its panic would only concern the bar.
    let _ = shown.join();
    result
}

/// A file whose reading is shown as progress.
#[derive(Debug)]
pub(super) struct Watched {
    file: File,
    at: u64,
    progress: Progress,
}

impl Watched {
    pub(super) fn new(file: File, progress: &Progress) -> io::Result<Self> {
        progress.set_total(file.metadata()?.len());
        Ok(Self { file, at: 0, progress: progress.clone() })
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.at += read as u64;
        self.progress.set_done(self.at);
        Ok(read)
    }
}

impl Seek for Watched {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.file.seek(to)?;
        Ok(self.at)
    }
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
