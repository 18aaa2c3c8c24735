//! Sizes of records: what of a window they may take, from the window, the prices, and the economy.

use serde::{Deserialize, Serialize};

use super::{Digest, float, whole};
use crate::context::layers::Surroundings;
use crate::context::view::View;

/// Window up to which sizes grow with it; beyond, they grow with its square root. Measured on made
/// conversations: at 200,000 tokens hardly a question is left that more text would answer.
const LARGE_WINDOW: f64 = 200_000.0;
/// Price of a cached read for which the shares were chosen, as a part of the input price.
const USUAL_READ: f64 = 0.1;
/// Bounds of the factor by which another price changes the sizes.
const FACTOR: std::ops::RangeInclusive<f64> = 0.5..=1.5;
/// The part of what closed records leave unused by which the bound of open records grows.
const LENT_TO_OPEN: u64 = 2;

/// The point between the bill and what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Economy {
    /// The lowest bill at which an agent can still work from its records.
    Cheap,
    /// Between both.
    #[default]
    Balanced,
    /// Keeps more than the bill would advise.
    Keep,
}

impl Economy {
    /// Returns the factor for the sizes.
    fn factor(self) -> f64 {
        match self {
            Self::Cheap => 0.7,
            Self::Balanced => 1.0,
            Self::Keep => 1.7,
        }
    }
}

/// The sizes of a view, in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sizes {
    /// Most tokens of a conversation of which nothing is folded.
    pub(super) whole: u64,
    /// Most tokens of the closed records.
    pub(super) closed: u64,
    /// Most tokens of the open records.
    pub(super) open: u64,
    /// Least tokens of the newest messages that stay word for word.
    pub(super) keep: u64,
    /// Tokens that closed records could still take.
    pub(super) unused: u64,
}

impl Sizes {
    /// Returns the sizes for a view whose closed records have so many tokens. What these do not use
    /// is lent to the open request.
    pub(super) fn of(digest: &Digest, around: &Surroundings<'_>, closed_now: u64) -> Self {
        let window = effective(digest, around);
        let of = |share: f64| whole(window * share);
        let room = around.window.free_tokens();
        let closed = of(digest.closed_share);
        let unused = closed.saturating_sub(closed_now);
        Self {
            whole: digest.whole.unwrap_or(of(digest.whole_share) + unused),
            closed,
            open: of(digest.open_share) + unused / LENT_TO_OPEN,
            keep: digest.keep_tokens.min(room / 8),
            unused,
        }
    }

    /// Returns the sizes as a part of themselves.
    pub(super) fn scaled(self, factor: f64) -> Self {
        let of = |tokens: u64| whole(float(tokens) * factor);
        Self {
            closed: of(self.closed),
            open: of(self.open),
            unused: if factor < 1.0 { 0 } else { self.unused },
            ..self
        }
    }
}

/// Returns the window in tokens that the shares are taken of.
fn effective(digest: &Digest, around: &Surroundings<'_>) -> f64 {
    let room = float(around.window.tokens.saturating_sub(around.window.overhead));
    let window = if room > LARGE_WINDOW { (room * LARGE_WINDOW).sqrt() } else { room };
    let rent = around.price.read.max(f64::EPSILON) / USUAL_READ;
    let price = (1.0 / rent).sqrt().clamp(*FACTOR.start(), *FACTOR.end());
    window * price * digest.economy.factor()
}

/// Returns the tokens by which the newest messages may grow between two edits.
///
/// With growth `g` a turn, the rent of a batch of `x` tokens is `read * x^2 / 2g` until it is
/// removed, and each edit writes the `keep` tokens behind it anew instead of reading them. The cost
/// for each token is least at `x = sqrt(2 * (write - read) * keep * g / read)`.
pub(super) fn batch(view: &View, keep: u64, around: &Surroundings<'_>) -> u64 {
    let price = around.price;
    if price.read <= 0.0 {
        return u64::MAX / 2;
    }
    let chars = usize::try_from(view.appended_chars()).unwrap_or(usize::MAX);
    let growth = around.tokens(chars) / view.replies().max(1);
    let rewrite = (price.write.max(1.0) - price.read).max(0.0);
    let squared = 2.0 * rewrite * float(keep) * float(growth) / price.read;
    whole(squared.sqrt())
}
