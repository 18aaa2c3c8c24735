//! The terminal of a verb that drives a run: log lines, the status area below them, and questions to
//! the person.
//!
//! Owns stderr while a run works, so that the three do not overwrite each other: lines go above the
//! area, and wait while a question is open.

use std::io;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcgetpgrp, tcsetattr};

use super::rows::folded;
use super::stream::{self, Drawn, Stream};
use crate::id::AgentId;
use crate::printable;

/// The terminal of a run.
#[derive(Debug)]
pub(super) struct Screen {
    /// The status area; `None` without a terminal that can draw one.
    area: Option<ProgressBar>,
    /// True if somebody wants lines alone.
    is_plain: bool,
    state: Mutex<State>,
    /// Held while a question is open: those who ask at the same time wait for each other.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The agents whose questions are open, the oldest first.
    asking: Vec<AgentId>,
    /// The lines that wait for the end of a question.
    held: Vec<String>,
    /// True while a question is on the screen.
    is_asking: bool,
}

impl Screen {
    /// Takes over stderr. The status area is drawn if that is a terminal that is not dumb.
    pub(super) fn new() -> Arc<Self> {
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let area = (Stream::Err.is_terminal() && !is_dumb).then(|| {
            let area = ProgressBar::new_spinner();
            // The template is constant and valid.
            area.set_style(
                ProgressStyle::with_template("{msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            // A `^C` that the terminal echoes would move the cursor, and the area could not be
            // cleared where it stands.
            echo_controls(false);
            area
        });
        Self { area, ..Self::lines_alone(false) }.taken()
    }

    /// Takes over stderr for lines alone, wherever they go.
    pub(super) fn plain() -> Arc<Self> {
        Self::lines_alone(true).taken()
    }

    fn lines_alone(is_plain: bool) -> Self {
        let (state, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { area: None, is_plain, state, turn }
    }

    fn taken(self) -> Arc<Self> {
        let screen = Arc::new(self);
        stream::draws(&screen);
        screen
    }

    /// Returns true if the last line of each running command is printed now and then: nobody sees it in a status area.
    pub(super) fn takes_last_lines(&self) -> bool {
        !self.is_plain && self.width().is_none()
    }

    /// Returns the width of the status area; `None` if none is drawn.
    pub(super) fn width(&self) -> Option<usize> {
        self.area.as_ref().and_then(|_| Stream::Err.width())
    }

    /// Returns the width and the height of the terminal; `None` if no status area is drawn.
    pub(super) fn size(&self) -> Option<(usize, usize)> {
        let (_, height) = self.area.as_ref().and_then(|_| Stream::Err.size())?;
        Some((self.width()?, height))
    }

    /// Prints a line above the status area.
    ///
    /// # Errors
    /// Returns an error if stderr cannot be written.
    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.is_asking {
            state.held.push(text.to_owned());
            return Ok(());
        }
        self.print(text)
    }

    fn print(&self, text: &str) -> io::Result<()> {
        let print = || Stream::Err.print(&format!("{}\n", folded(text, Stream::Err)));
        match &self.area {
            Some(area) => area.suspend(print),
            None => print(),
        }
    }

    /// Shows these lines as the status area.
    pub(super) fn show(&self, lines: &[String]) {
        if let Some(area) = self.area.as_ref().filter(|_| !self.state.lock().is_asking) {
            area.set_message(printable::block(&lines.join("\n")).into_owned());
        }
    }

    /// Returns the agents that wait for the answer of a person.
    pub(super) fn asking(&self) -> Vec<AgentId> {
        self.state.lock().asking.clone()
    }

    /// Notes that an agent waits for the answer of a person.
    pub(super) fn wait_for_person(&self, agent: &AgentId) {
        self.state.lock().asking.push(agent.clone());
    }

    /// Notes that an agent has its answer, or no longer waits for it.
    pub(super) fn answered(&self, agent: &AgentId) {
        let mut state = self.state.lock();
        if let Some(at) = state.asking.iter().position(|asking| asking == agent) {
            state.asking.remove(at);
        }
    }

    /// Waits until no other question is open. The next one waits until the guard is dropped.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Clears the screen for a question: the area is hidden and lines wait.
    pub(super) fn begin_question(&self) {
        self.state.lock().is_asking = true;
        if let Some(area) = &self.area {
            area.set_message("");
            area.tick();
        }
    }

    /// Returns true while a question is on the screen.
    pub(super) fn is_asking(&self) -> bool {
        self.state.lock().is_asking
    }

    /// Prints the lines that have waited for the end of the question.
    pub(super) fn end_question(&self) {
        let held = {
            let mut state = self.state.lock();
            state.is_asking = false;
            std::mem::take(&mut state.held)
        };
        for line in held {
            // A stderr that is closed is no error: the run goes on.
            let _ = self.print(&line);
        }
    }

    /// Removes the status area.
    pub(super) fn clear(&self) {
        if let Some(area) = &self.area {
            area.finish_and_clear();
            echo_controls(true);
        }
        stream::draws_no_more();
    }
}

impl Drawn for Screen {
    fn above(&self, text: &str) {
        let _ = self.line(text);
    }
}

/// Makes the terminal echo control characters such as Ctrl-C as `^C`, or not. Does nothing without
/// a terminal.
fn echo_controls(on: bool) {
    let stdin = io::stdin();
    // A process in the background that changes the settings is stopped by the system.
    let is_in_front = tcgetpgrp(&stdin).is_ok_and(|front| front == rustix::process::getpgrp());
    if !is_in_front {
        return;
    }
    if let Ok(mut settings) = tcgetattr(&stdin) {
        settings.local_modes.set(LocalModes::ECHOCTL, on);
        // A terminal that refuses shows `^C`, which is no more than unsightly.
        let _ = tcsetattr(&stdin, OptionalActions::Now, &settings);
    }
}
