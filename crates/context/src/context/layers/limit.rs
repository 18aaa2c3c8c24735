//! Limits and goals: the size at which a view is too large, and the size that an edit must reach.
//!
//! Pure. The documented designs measure in different units. A view is over a limit when it is
//! larger, not when it is equal.

use serde::{Deserialize, Serialize};

use super::Surroundings;
use crate::context::measure::CHARS_PER_TOKEN;
use crate::context::view::View;

/// Size above which a view is made smaller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Size of the messages in estimated tokens: characters / 4.
    Tokens {
        /// Most tokens of a view.
        threshold: u64,
    },
    /// Size of the messages in characters.
    Chars {
        /// Most characters of a view.
        threshold_chars: u64,
    },
    /// Size of the whole request in tokens, by the window of the model: the window less the reply
    /// and a buffer.
    Window {
        /// Most tokens that are subtracted for the reply.
        output_reserve: u64,
        /// Tokens subtracted as a buffer.
        safety_buffer: u64,
        /// A lower limit in tokens; 0: none.
        threshold: u64,
        /// A lower limit, as a percentage of the window.
        threshold_percent: u64,
    },
}

/// Size that a view must reach when it is made smaller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// A size in characters.
    Chars {
        /// Most characters of the view afterwards.
        target_chars: u64,
    },
    /// A part of the limit.
    Percent {
        /// Most size of the view afterwards, as a percentage of the limit.
        target_percent: u64,
    },
}

impl Limit {
    /// Returns true if the view is over the limit.
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

    /// Returns the limit in tokens.
    #[must_use]
    pub fn tokens(&self, around: &Surroundings<'_>) -> u64 {
        match self {
            Self::Tokens { threshold } => *threshold,
            Self::Chars { threshold_chars } => threshold_chars / CHARS_PER_TOKEN,
            Self::Window { output_reserve, safety_buffer, threshold, threshold_percent } => {
                let window = around.window;
                let off = window.output.min(*output_reserve) + safety_buffer;
                // In a small window the buffer would leave nothing, so at least half of the window
                // counts.
                let documented = window.tokens.saturating_sub(off).max(window.tokens / 2);
                let percent = window.tokens.saturating_mul(*threshold_percent) / 100;
                let lower = Some(*threshold).filter(|tokens| *tokens > 0);
                documented.min(percent).min(lower.unwrap_or(u64::MAX))
            }
        }
    }

    /// Returns the characters that must leave the view to meet the goal; `None` when the view is
    /// not over the limit.
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
