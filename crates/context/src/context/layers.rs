//! The layers: each layer makes a view smaller in its own way.
//!
//! Pure. A layer is a table of constants and a function over the view that proposes edits; it never
//! applies one. Everything that it may know besides the view is in [`Surroundings`].

pub mod attachments;
pub mod budget;
pub mod clear;
pub mod collapse;
pub mod digest;
pub mod fit;
pub mod gather;
pub mod guard;
pub mod idle;
pub mod inventory;
pub mod limit;
pub mod micro;
pub mod notes;
pub mod persist;
pub mod pipeline;
pub mod preset;
pub mod reactive;
pub mod read_state;
mod shorten;
pub mod snip;
pub mod summary;
pub mod template;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
pub mod window;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::budget::Budget;
pub use self::clear::Clear;
pub use self::collapse::Collapse;
pub use self::digest::Digest;
pub use self::fit::Fit;
pub use self::idle::Idle;
pub use self::micro::Micro;
pub use self::notes::Notes;
pub use self::snip::Snip;
pub use self::summary::Summary;
pub use self::window::TurnWindow;
use crate::context::Edit;
use crate::context::view::View;
use crate::output::Stored;
use crate::spec::RelativePrice;

/// A layer with its constants. The order of a preset's layers is the order in which they run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "layer", rename_all = "snake_case")]
pub enum Layer {
    /// Stores the largest results of a batch.
    Budget(Budget),
    /// Drops the middle of a view.
    Snip(Snip),
    /// Clears old tool results.
    Micro(Micro),
    /// Clears old tool results in batches, when the view is too large.
    Clear(Clear),
    /// Clears old tool results after a long pause.
    Idle(Idle),
    /// Shortens results to previews, when the view is still too large.
    Fit(Fit),
    /// Folds closed spans into short entries.
    Collapse(Collapse),
    /// Uses the agent's own notes as a summary.
    Notes(Notes),
    /// Keeps a chain of records, without a model.
    Digest(Digest),
    /// Replaces the older part by a summary that a model writes.
    Summary(Summary),
    /// Shows the last turns in the system prompt.
    Window(TurnWindow),
}

impl Layer {
    /// Returns the name under which the layer's edits are recorded.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Budget(_) => budget::NAME,
            Self::Snip(_) => snip::NAME,
            Self::Micro(_) => micro::NAME,
            Self::Clear(_) => clear::NAME,
            Self::Idle(_) => idle::NAME,
            Self::Fit(_) => fit::NAME,
            Self::Collapse(_) => collapse::NAME,
            Self::Notes(_) => notes::NAME,
            Self::Digest(_) => digest::NAME,
            Self::Summary(_) => summary::NAME,
            Self::Window(_) => window::NAME,
        }
    }

    /// Returns the edits that the layer would make now. Summaries are not proposed here: a model
    /// has to write one first (see [`crate::context::layers::pipeline::summary_due`]).
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Vec<Proposal> {
        let proposal = match self {
            Self::Collapse(collapse) => return collapse.propose(view, around),
            Self::Digest(digest) => {
                return digest.propose(view, around).into_iter().map(Proposal::from).collect();
            }
            Self::Budget(budget) => budget.propose(view, around),
            Self::Snip(snip) => snip.propose(view, around),
            Self::Micro(micro) => micro.propose(view),
            Self::Clear(clear) => clear.propose(view, around),
            Self::Idle(idle) => idle.propose(view, around),
            Self::Fit(fit) => fit.propose(view, around),
            Self::Notes(notes) => notes.propose(view, around),
            Self::Window(window) => window.propose(view),
            Self::Summary(_) => None,
        };
        proposal.into_iter().collect()
    }

    /// Returns the settings of the layer, if it shows turns in the system prompt.
    #[must_use]
    pub fn window(&self) -> Option<&TurnWindow> {
        if let Self::Window(window) = self { Some(window) } else { None }
    }

    /// Returns the settings of the summaries that the layer may ask for, if any.
    #[must_use]
    pub fn summary(&self) -> Option<&Summary> {
        match self {
            Self::Summary(summary) => Some(summary),
            Self::Window(window) => Some(&window.summary),
            Self::Budget(_)
            | Self::Snip(_)
            | Self::Micro(_)
            | Self::Clear(_)
            | Self::Idle(_)
            | Self::Fit(_)
            | Self::Collapse(_)
            | Self::Notes(_)
            | Self::Digest(_) => None,
        }
    }
}

/// Facts that a layer may know besides the view: values, no handles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surroundings<'a> {
    /// Name of the agent's transcript in markers.
    pub transcript: &'a str,
    /// Name of the folder of the stored results in markers.
    pub results: &'a str,
    /// Window that a request must fit.
    pub window: Window,
    /// Tokens for each character of the view: 1/4 in the documented estimate; in a run, as many as
    /// the agent's measure expects.
    pub tokens_per_char: f64,
    /// Most estimated tokens of the messages with which their request fits for certain; set in a
    /// run. Without a measure the room of the window counts, in characters.
    pub measured_room: Option<u64>,
    /// Prices of tokens.
    pub price: RelativePrice,
    /// Time since the last request.
    pub idle: Duration,
    /// State that stands beside a record, whatever the record covers: the todo list and the agents
    /// that were started, from the agent's own records.
    pub state: Option<&'a str>,
}

/// The window of a model, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Input and output together.
    pub tokens: u64,
    /// Tokens kept free for the reply.
    pub output: u64,
    /// Tokens of every request besides the messages: system prompt and tools.
    pub overhead: u64,
}

impl Window {
    /// Returns the tokens that are left for the messages.
    #[must_use]
    pub fn free_tokens(&self) -> u64 {
        self.tokens.saturating_sub(self.output).saturating_sub(self.overhead)
    }
}

impl<'a> Surroundings<'a> {
    /// Returns the path of a stored result.
    #[must_use]
    pub fn path_of(&self, stored: &Stored) -> String {
        format!("{}/{}", self.results.trim_end_matches('/'), stored.hash)
    }

    /// Creates surroundings with the documented estimate of four characters a token and the default
    /// prices.
    #[must_use]
    pub fn new(transcript: &'a str, results: &'a str, window: Window) -> Self {
        let price = RelativePrice::default();
        let (tokens_per_char, measured_room, idle, state) = (0.25, None, Duration::ZERO, None);
        Self { transcript, results, window, tokens_per_char, measured_room, price, idle, state }
    }

    /// Returns the number of characters of the view that this many tokens have.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "token counts are far below 2^52, and none of the factors is negative"
    )]
    pub fn chars(&self, tokens: u64) -> usize {
        (tokens as f64 / self.tokens_per_char) as usize
    }

    /// Returns the number of tokens that this many characters of the view have.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a view has far fewer than 2^52 characters, and none of the factors is negative"
    )]
    pub fn tokens(&self, chars: usize) -> u64 {
        (chars as f64 * self.tokens_per_char) as u64
    }
}

/// An edit that a layer would make.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The edit.
    pub edit: Edit,
    /// Texts that must be stored before the edit is recorded.
    pub spills: Vec<Spill>,
}

impl From<Edit> for Proposal {
    fn from(edit: Edit) -> Self {
        Self { edit, spills: Vec::new() }
    }
}

/// A text that leaves the view and is stored under its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spill {
    /// Name and size of the stored text.
    pub stored: Stored,
    /// The text.
    pub text: String,
}

impl Spill {
    /// Creates the spill of a text.
    #[must_use]
    pub fn of(text: String) -> Self {
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        Self { stored: Stored { hash, bytes: text.len() as u64, dropped: 0 }, text }
    }
}
