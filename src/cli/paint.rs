//! Colours texts where that is wanted, cuts them to a width, and shows the progress of long work.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::stream::{Stream, colour};
use crate::printable;

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
    if !Stream::Err.is_terminal() || dumb {
        return work(&progress);
    }
    let (done, is_done) = mpsc::channel::<()>();
    let (what, shared) = (printable::line(what).into_owned(), progress.clone());
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

    /// Returns the colours of a stream.
    pub(super) fn of(stream: Stream) -> Self {
        Self::new(stream.is_coloured())
    }

    fn wrap(self, code: u8, text: &str) -> String {
        match self.on {
            true => format!("{}{text}{}", colour(&code.to_string()), colour("0")),
            false => text.to_owned(),
        }
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
