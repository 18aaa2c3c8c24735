//! An open question on the screen of a run: what is printed of it, and the keys of the person.
//!
//! Where a status area is drawn, the terminal gives each key at once while a question is open: only so is it known what
//! was typed, and lines can go above it. Elsewhere lines wait, and the terminal edits the line by itself.

use std::io;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcgetpgrp, tcsetattr};

use super::Screen;
use super::block::Block;
use crate::cli::stream::{Sketch, Stream};
use crate::cli::typed::Key;

impl Screen {
    /// Begins a question: the area is hidden until it can be drawn above it.
    pub(in crate::cli) fn begin_question(&self) {
        let mut state = self.state.lock();
        state.is_asking = true;
        let Some(area) = &self.area else { return };
        area.set_message("");
        area.tick();
        let size =
            Stream::Err.size().filter(|_| set_modes(LocalModes::ICANON | LocalModes::ECHO, false));
        state.block = size.map(Block::new);
    }

    /// Prints rows of the question, each of them fitting the terminal.
    pub(in crate::cli) fn tell(&self, rows: &[String]) {
        for row in rows {
            self.ask(|block| block.tell(row), || Sketch::default().text(row).text("\n"));
        }
    }

    /// Prints what may be typed, before the line.
    pub(in crate::cli) fn prompt(&self, words: &str) {
        self.ask(|block| block.prompt(words), || Sketch::default().text(words));
    }

    /// Shows a key that was typed, where the terminal does not by itself.
    pub(in crate::cli) fn echo(&self, key: &Key) {
        let nothing = Sketch::default;
        match key {
            Key::Nothing | Key::End => {}
            Key::Added(typed) => self.ask(|block| block.add(*typed), nothing),
            Key::Erased(erased) => self.ask(|block| block.erase(erased), nothing),
            Key::Enter => self.ask(Block::enter, nothing),
        }
    }

    /// Ends the line of a question that goes away.
    pub(in crate::cli) fn leave_line(&self) {
        self.ask(Block::enter, || Sketch::default().text("\n"));
    }

    fn ask(&self, made: impl FnOnce(&mut Block) -> Sketch, plain: impl FnOnce() -> Sketch) {
        let mut state = self.state.lock();
        let sketch = state.block.as_mut().map_or_else(plain, made);
        draw(&sketch);
    }

    /// Ends the question, and prints the lines that have waited.
    pub(in crate::cli) fn end_question(&self) {
        let held = {
            let mut state = self.state.lock();
            state.is_asking = false;
            if let Some(mut block) = state.block.take() {
                if block.fits(Stream::Err.size()) {
                    draw(&block.clear());
                }
                set_modes(LocalModes::ICANON | LocalModes::ECHO, true);
            }
            std::mem::take(&mut state.held)
        };
        for line in held {
            // A stderr that is closed is no error: the run goes on.
            let _ = self.print(&line);
        }
    }
}

/// Draws on stderr. One that is closed is no error: a question then ends with the input.
pub(super) fn draw(sketch: &Sketch) {
    let _ = Stream::Err.sketch(sketch);
}

/// Turns modes of the terminal on or off. Returns false without a terminal, or with one that another process uses.
pub(super) fn set_modes(modes: LocalModes, on: bool) -> bool {
    let stdin = io::stdin();
    // A process in the background that changes the settings is stopped by the system.
    let is_in_front = tcgetpgrp(&stdin).is_ok_and(|front| front == rustix::process::getpgrp());
    let settings = tcgetattr(&stdin).ok().filter(|_| is_in_front);
    settings.is_some_and(|mut settings| {
        settings.local_modes.set(modes, on);
        tcsetattr(&stdin, OptionalActions::Now, &settings).is_ok()
    })
}
