//! A conversation rendered for one protocol: each message is rendered once and kept while it is in
//! the view.
//!
//! This is the only code that makes the messages of a request, and it accepts only a checked view.

use std::collections::HashMap;
use std::ops::Deref;

use crate::context::sending::validity::{Sendable, Sent};
use crate::message::Json;
use crate::message::media::{Media, readable};
use crate::model::{Client, Piece};

/// The rendered messages of a checked view, the oldest first.
#[derive(Clone, Debug)]
pub struct Pieces(Vec<Piece>);

impl Pieces {
    /// Takes the messages of a checked view, rendered for another model.
    pub fn of(pieces: Vec<Piece>) -> Self {
        Self(pieces)
    }

    /// Returns the first `count` pieces. A checked view stays valid if it is cut between two
    /// exchanges.
    #[must_use]
    pub fn first(mut self, count: usize) -> Self {
        self.0.truncate(count);
        self
    }
}

impl Deref for Pieces {
    type Target = [Piece];

    fn deref(&self) -> &[Piece] {
        &self.0
    }
}

/// The rendered messages of one agent's view as it was last sent, by their places in the view.
#[derive(Debug, Default)]
pub struct Rendering(Vec<Rendered>);

/// The rendering of one place in a view.
#[derive(Debug)]
struct Rendered {
    serial: u64,
    /// The message is compared as well, because two copies of a view may give one serial to
    /// different messages.
    message: Json,
    piece: Piece,
}

impl Rendered {
    fn is_of(&self, sent: &Sent<'_>) -> bool {
        sent.serial == Some(self.serial) && self.message.is_same(sent.stored())
    }
}

impl Rendering {
    /// Renders the messages that are new or changed since the last call, for a model that reads these
    /// media besides text, and returns all pieces.
    pub fn render(&mut self, view: &Sendable<'_>, model: &dyn Client, media: &[Media]) -> Pieces {
        let render = |message: Json| model.piece(&readable(&message, media));
        let mut pieces = Vec::with_capacity(self.0.len() + 2);
        let mut moved: Option<HashMap<u64, Rendered>> = None;
        let mut slots = 0;
        for (at, message) in view.messages().enumerate() {
            let Some(serial) = message.serial else {
                pieces.push(render(message.json()));
                continue;
            };
            slots += 1;
            if let Some(known) = self.0.get(at).filter(|known| known.is_of(&message)) {
                pieces.push(known.piece.clone());
                continue;
            }
            // From the first change on, the kept renderings are at other places, so they are found
            // by their serial.
            let moved = moved.get_or_insert_with(|| {
                self.0.drain(at..).map(|rendered| (rendered.serial, rendered)).collect()
            });
            let known = moved.remove(&serial).filter(|known| known.is_of(&message));
            let rendered = known.unwrap_or_else(|| Rendered {
                serial,
                message: message.stored().clone(),
                piece: render(message.json()),
            });
            pieces.push(rendered.piece.clone());
            if self.0.is_empty() {
                // A list that grows by itself takes room for four, and many agents never need it.
                self.0.reserve_exact(1);
            }
            self.0.push(rendered);
        }
        self.0.truncate(slots);
        Pieces(pieces)
    }
}
