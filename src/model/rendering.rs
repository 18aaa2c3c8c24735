//! A conversation rendered for one wire: each message once, kept while it stands in the view.
//!
//! The only maker of what a request sends, and it takes nothing but a checked view.

use std::collections::HashMap;
use std::ops::Deref;

use crate::context::validity::Sendable;
use crate::model::{Model, Piece};

/// The rendered messages of a checked view, oldest first.
#[derive(Clone, Debug)]
pub struct Pieces(Vec<Piece>);

impl Pieces {
    /// The first so many. A checked view stays whole when it is cut between two exchanges.
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

/// What one agent's view was rendered as when it was last sent, by the serials of its slots.
#[derive(Debug, Default)]
pub struct Rendering(Vec<(u64, Piece)>);

impl Rendering {
    /// Renders what is new or changed since the last time, and gives the whole.
    pub fn render(&mut self, view: &Sendable<'_>, model: &dyn Model) -> Pieces {
        let mut pieces = Vec::with_capacity(self.0.len() + 2);
        let mut moved: Option<HashMap<u64, Piece>> = None;
        let mut slots = 0;
        for (at, message) in view.messages().enumerate() {
            let Some(serial) = message.serial else {
                pieces.push(model.piece(&message.json()));
                continue;
            };
            slots += 1;
            if let Some((_, piece)) = self.0.get(at).filter(|(known, _)| *known == serial) {
                pieces.push(piece.clone());
                continue;
            }
            // From the first change on, what is kept stands at another place.
            let moved = moved.get_or_insert_with(|| self.0.drain(at..).collect());
            let piece = moved.remove(&serial).unwrap_or_else(|| model.piece(&message.json()));
            self.0.push((serial, piece.clone()));
            pieces.push(piece);
        }
        self.0.truncate(slots);
        Pieces(pieces)
    }
}
