//! When a view is too large.
//!
//! Pure. The documented designs measure in different units; what is over a limit is always more
//! than it, never equal.

use serde::{Deserialize, Serialize};

use super::Surroundings;
use crate::context::view::View;

/// The documented estimate of the characters of a token.
const CHARS_PER_TOKEN: u64 = 4;

/// The size from which on something is done about a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// In estimated tokens: characters / 4.
    Tokens {
        /// The most that a view may have.
        threshold: u64,
    },
    /// In characters.
    Chars {
        /// The most that a view may have.
        threshold_chars: u64,
    },
}

impl Limit {
    /// Whether the view is over it.
    #[must_use]
    pub fn is_over(&self, view: &View, around: &Surroundings<'_>) -> bool {
        let _ = around;
        match self {
            Self::Tokens { threshold } => view.tokens() > *threshold,
            Self::Chars { threshold_chars } => view.chars() as u64 > *threshold_chars,
        }
    }

    /// The limit in tokens.
    #[must_use]
    pub fn tokens(&self, around: &Surroundings<'_>) -> u64 {
        let _ = around;
        match self {
            Self::Tokens { threshold } => *threshold,
            Self::Chars { threshold_chars } => threshold_chars / CHARS_PER_TOKEN,
        }
    }
}
