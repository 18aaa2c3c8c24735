//! When a view is too large, and how small it is to become.
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
    /// The messages in estimated tokens: characters / 4.
    Tokens {
        /// The most that a view may have.
        threshold: u64,
    },
    /// The messages in characters.
    Chars {
        /// The most that a view may have.
        threshold_chars: u64,
    },
    /// The whole request in tokens, by the window of the model: what is left of it when the reply
    /// and a buffer are taken off.
    Window {
        /// No more than this is taken off for the reply.
        output_reserve: u64,
        /// The buffer.
        safety_buffer: u64,
        /// A lower limit in tokens; 0: none.
        threshold: u64,
        /// A lower limit as a percentage of the window.
        threshold_percent: u64,
    },
}

/// How small a view becomes when something is done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// In characters.
    Chars {
        /// What a view has at most afterwards.
        target_chars: u64,
    },
    /// As a part of the limit.
    Percent {
        /// What a view has at most afterwards.
        target_percent: u64,
    },
}

impl Limit {
    /// Whether the view is over it.
    #[must_use]
    pub fn is_over(&self, view: &View, around: &Surroundings<'_>) -> bool {
        match self {
            Self::Tokens { threshold } => view.tokens() > *threshold,
            Self::Chars { threshold_chars } => view.chars() as u64 > *threshold_chars,
            Self::Window { .. } => {
                around.tokens(view.chars()) + around.window.overhead > self.tokens(around)
            }
        }
    }

    /// The limit in tokens.
    #[must_use]
    pub fn tokens(&self, around: &Surroundings<'_>) -> u64 {
        match self {
            Self::Tokens { threshold } => *threshold,
            Self::Chars { threshold_chars } => threshold_chars / CHARS_PER_TOKEN,
            Self::Window { output_reserve, safety_buffer, threshold, threshold_percent } => {
                let window = around.window;
                let off = window.output.min(*output_reserve) + safety_buffer;
                // In a small window the buffer would leave nothing.
                let documented = window.tokens.saturating_sub(off).max(window.tokens / 2);
                let percent = window.tokens.saturating_mul(*threshold_percent) / 100;
                let lower = Some(*threshold).filter(|tokens| *tokens > 0);
                documented.min(percent).min(lower.unwrap_or(u64::MAX))
            }
        }
    }

    /// How many characters must leave a view that is over the limit, so that it meets the goal.
    #[must_use]
    pub fn excess(&self, goal: &Goal, view: &View, around: &Surroundings<'_>) -> Option<usize> {
        if !self.is_over(view, around) {
            return None;
        }
        let chars = view.chars();
        let most = match (goal, self) {
            (Goal::Chars { target_chars }, _) => whole(*target_chars),
            (Goal::Percent { target_percent }, Self::Window { .. }) => {
                let target = self.tokens(around).saturating_mul(*target_percent) / 100;
                around.chars(target.saturating_sub(around.window.overhead))
            }
            (Goal::Percent { target_percent }, Self::Tokens { .. } | Self::Chars { .. }) => {
                let target = self.tokens(around).saturating_mul(*target_percent) / 100;
                whole(target.saturating_mul(CHARS_PER_TOKEN))
            }
        };
        Some(chars.saturating_sub(most))
    }
}

fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
