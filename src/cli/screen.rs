//! The terminal of a verb that drives a run: log lines, the status area below them, and questions to
//! the person.
//!
//! Owns stderr while a run works, so that the three do not overwrite each other: lines go above the
//! area, and both above a question that is open. Where no area is drawn, or a question leaves no row, lines wait for its
//! end.

mod asking;
mod block;

use std::io;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use rustix::termios::LocalModes;

use self::asking::{draw, set_modes};
use self::block::Block;
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
    /// Where it stands, if lines can be printed above it.
    block: Option<Block>,
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

    /// Returns the width of the terminal, and its height without the rows of an open question; `None` if no status area
    /// is drawn.
    pub(super) fn size(&self) -> Option<(usize, usize)> {
        let (_, height) = self.area.as_ref().and_then(|_| Stream::Err.size())?;
        let left = self.state.lock().block.as_ref().map(Block::left);
        Some((self.width()?, left.unwrap_or(height)))
    }

    /// Prints a line above the status area and an open question.
    ///
    /// # Errors
    /// Returns an error if stderr cannot be written.
    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.is_asking {
            return self.print(text);
        }
        let has_held = !state.held.is_empty();
        let block = state.block.as_mut().filter(|block| block.fits(Stream::Err.size()));
        match block.filter(|block| block.takes_lines() && !has_held) {
            Some(block) => {
                folded(text, Stream::Err).split('\n').for_each(|row| draw(&block.print(row)));
            }
            None => state.held.push(text.to_owned()),
        }
        Ok(())
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
        let mut state = self.state.lock();
        match (&self.area, state.is_asking) {
            (Some(area), false) => {
                area.set_message(printable::block(&lines.join("\n")).into_owned());
            }
            (Some(_), true) => {
                let block = state.block.as_mut();
                if let Some(block) = block.filter(|block| block.fits(Stream::Err.size())) {
                    draw(&block.show(lines));
                }
            }
            (None, _) => {}
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

    /// Removes the status area.
    pub(super) fn clear(&self) {
        if let Some(area) = &self.area {
            area.finish_and_clear();
            // A question may still be open when the program ends at once.
            set_modes(LocalModes::ECHOCTL | LocalModes::ICANON | LocalModes::ECHO, true);
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
/// a terminal; one that refuses shows `^C`, which is no more than unsightly.
fn echo_controls(on: bool) {
    set_modes(LocalModes::ECHOCTL, on);
}
