//! The lines of a command that runs, passed on while it prints them: whole ones, in order, without secrets, cut and
//! counted where they are too long or too many.
//!
//! Nobody waits for whoever reads them: what comes too fast is missed, and counted. The result of the command holds
//! all of it.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::store::{LastLines, OpenLine, Store};

/// The pause between two parcels: a person takes it for at once, and a command that ends sooner costs its process one
/// write and no more.
const PAUSE: Duration = Duration::from_millis(50);

/// The most lines of a parcel: more than a screen shows. With [`PAUSE`], 2,000 lines a second.
const MOST_LINES: usize = 100;

/// The most characters of a line.
pub const LONGEST_LINE: usize = 400;

/// A line that a command printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedLine {
    /// The line without its end, cut to 400 characters.
    pub text: String,
    /// True if it came on stderr and that is kept apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// Lines that a command printed, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// Number of lines before these that came too fast.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// The lines.
    pub lines: VecDeque<PrintedLine>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Takes what a command prints while it runs.
pub trait Printing: Send + Sync + fmt::Debug {
    /// Returns true if somebody reads it.
    fn is_read(&self) -> bool;

    /// Takes the next lines. Must not block.
    fn take(&self, printed: Printed);
}

/// The lines of one command that nobody has been given yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    next: Mutex<Printed>,
    came: Notify,
}

impl Waiting {
    /// Adds a line without secrets. The oldest one gives way if there are too many.
    pub(super) fn add(&self, line: &str, is_error: bool) {
        let mut next = self.next.lock();
        if next.lines.len() == MOST_LINES {
            next.lines.pop_front();
            next.missed += 1;
        }
        if next.lines.is_empty() {
            self.came.notify_one();
        }
        next.lines.push_back(PrintedLine { text: shown(line), is_error });
    }

    /// Passes lines on until the command has `ended`.
    pub(super) async fn pass_on(&self, printing: &dyn Printing, ended: &CancellationToken) {
        let each = async {
            loop {
                self.came.notified().await;
                tokio::time::sleep(PAUSE).await;
                self.flush(printing);
            }
        };
        tokio::select! {
            biased;
            () = ended.cancelled() => {}
            () = each => {}
        }
    }

    /// Passes on what there is.
    pub(super) fn flush(&self, printing: &dyn Printing) {
        let printed = std::mem::take(&mut *self.next.lock());
        if !printed.lines.is_empty() {
            printing.take(printed);
        }
    }
}

/// The lines of both streams of a command, without secrets.
#[derive(Debug)]
pub(super) struct Lines {
    last: Mutex<LastLines>,
    /// Those that are passed on while the command runs.
    waiting: Option<Waiting>,
    came: Notify,
}

impl Lines {
    /// Begins without lines; they are passed on if somebody reads them.
    pub(super) fn new(store: &Store, are_read: bool) -> Self {
        let last = Mutex::new(LastLines::new(store));
        Self { last, waiting: are_read.then(Waiting::default), came: Notify::new() }
    }

    /// Returns those that nobody has been given yet, if they are passed on.
    pub(super) fn waiting(&self) -> Option<&Waiting> {
        self.waiting.as_ref()
    }

    /// Takes the next bytes of one stream; `open` is the line of it that has not ended.
    pub(super) fn take(&self, open: &mut OpenLine, bytes: &[u8], is_error: bool) {
        self.last.lock().take(open, bytes, |line| self.pass(line, is_error));
    }

    /// Takes a line that has ended, with or without a line break.
    pub(super) fn end(&self, open: OpenLine, is_error: bool) {
        self.last.lock().end(open, |line| self.pass(line, is_error));
    }

    fn pass(&self, line: &str, is_error: bool) {
        self.came.notify_one();
        if let Some(waiting) = &self.waiting {
            waiting.add(line, is_error);
        }
    }

    /// Waits until a line has come that [`Lines::so_far`] has not returned.
    pub(super) async fn came(&self) {
        self.came.notified().await;
    }

    /// Returns the last lines so far.
    pub(super) fn so_far(&self) -> String {
        self.last.lock().so_far()
    }

    /// Returns the last lines, at the end.
    pub(super) fn finish(&self) -> String {
        self.last.lock().finish()
    }
}

/// Returns what is shown of a line: of a line that a program overwrites, the last state.
fn shown(line: &str) -> String {
    let line = line.trim_end();
    let last = line.rsplit('\r').next().unwrap_or(line);
    match last.char_indices().nth(LONGEST_LINE) {
        Some((at, _)) => last[..at].to_owned(),
        None => last.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Keeps what is passed on.
    #[derive(Debug, Default)]
    pub(in crate::tool) struct Reader(pub(in crate::tool) Mutex<Vec<Printed>>);

    impl Printing for Reader {
        fn is_read(&self) -> bool {
            true
        }

        fn take(&self, printed: Printed) {
            self.0.lock().push(printed);
        }
    }

    #[test]
    fn what_comes_too_fast_is_counted_and_the_last_lines_are_kept() {
        let (waiting, reader) = (Waiting::default(), Reader::default());
        waiting.flush(&reader);
        assert!(reader.0.lock().is_empty(), "there was nothing");
        for number in 0..MOST_LINES + 5 {
            waiting.add(&number.to_string(), number % 2 == 1);
        }
        waiting.flush(&reader);
        let printed = reader.0.lock().pop().expect("lines");
        assert_eq!((printed.missed, printed.lines.len()), (5, MOST_LINES));
        assert_eq!((printed.lines[0].text.as_str(), printed.lines[0].is_error), ("5", true));
    }

    #[test]
    fn lines_are_cut_and_those_that_are_overwritten_show_their_last_state() {
        for (line, expected) in [
            ("10 %\r50 %\r100 %\r", "100 %".to_owned()),
            ("a \t", "a".to_owned()),
            ("", String::new()),
            (&"é".repeat(LONGEST_LINE + 1), "é".repeat(LONGEST_LINE)),
        ] {
            assert_eq!(shown(line), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_passed_on_in_parcels_while_the_command_runs() {
        let (waiting, reader) = (Waiting::default(), Reader::default());
        let ended = CancellationToken::new();
        let print = async {
            waiting.add("one", false);
            waiting.add("two", false);
            tokio::time::sleep(2 * PAUSE).await;
            assert_eq!(reader.0.lock().len(), 1, "both came at once");
            waiting.add("three", false);
            tokio::time::sleep(2 * PAUSE).await;
            waiting.add("four", false);
            ended.cancel();
        };
        tokio::join!(waiting.pass_on(&reader, &ended), print);
        let parcels = || reader.0.lock().iter().map(|p| p.lines.len()).collect::<Vec<_>>();
        assert_eq!(parcels(), [2, 1]);
        waiting.flush(&reader);
        assert_eq!(parcels(), [2, 1, 1]);
    }
}
