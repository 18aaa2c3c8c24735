//! The choice of the model for a summary: the agent's own on its warm prefix, or another that reads
//! it cold.
//!
//! Pure: both costs are estimated from the price table.

use crate::spec::Price;

/// The sizes of a summary call, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSize {
    /// Tokens of the system prompt, tools and messages that the agent's last request has put into
    /// the cache.
    pub prefix: u64,
    /// Tokens of the instruction at the end.
    pub instruction: u64,
    /// Tokens of the summary.
    pub output: u64,
}

impl CallSize {
    /// Returns the cost where the prefix is read from the cache, in millionths of a dollar.
    #[must_use]
    pub fn warm(&self, price: &Price) -> f64 {
        sum(&[
            (self.prefix, price.cache_read),
            (self.instruction, price.cache_write),
            (self.output, price.output),
        ])
    }

    /// Returns the cost where everything is read for the first time, in millionths of a dollar.
    #[must_use]
    pub fn cold(&self, price: &Price) -> f64 {
        sum(&[(self.prefix + self.instruction, price.input), (self.output, price.output)])
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn sum(parts: &[(u64, f64)]) -> f64 {
    parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum()
}

/// Returns true if the agent's own model is to write the summary although another is configured for
/// it. When a price is not known, the configuration decides.
#[must_use]
pub fn own_is_cheaper(own: Option<&Price>, other: Option<&Price>, size: &CallSize) -> bool {
    own.zip(other).is_some_and(|(own, other)| size.warm(own) <= size.cold(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn price(input: f64, output: f64) -> Price {
        Price { input, output, cache_read: input / 10.0, cache_write: input * 1.25 }
    }

    #[test]
    fn the_price_table_decides() {
        let large = price(5.0, 25.0);
        let cases = [
            // A small model at a fifth: its cold prefix costs twice what the warm one does.
            (price(1.0, 5.0), 100_000, 1_000, true),
            // The same model, but a short conversation and a long summary: the output decides.
            (price(1.0, 5.0), 5_000, 2_000, false),
            // A model at a fiftieth reads cold for less.
            (price(0.1, 0.4), 100_000, 1_000, false),
            // A model that costs as much is never worth a cold read.
            (large, 1_000, 8_000, true),
            // A model that costs nothing is always worth a cold read.
            (price(0.0, 0.0), 100_000, 1_000, false),
        ];
        for (other, prefix, output, own_wins) in cases {
            let size = CallSize { prefix, instruction: 500, output };
            let is = own_is_cheaper(Some(&large), Some(&other), &size);
            assert_eq!(is, own_wins, "{other:?} {size:?}");
        }
        let size = CallSize { prefix: 100_000, instruction: 500, output: 1_000 };
        assert!(!own_is_cheaper(None, Some(&large), &size));
        assert!(!own_is_cheaper(Some(&large), None, &size));
        let warm = 0.5 * 100_000.0 + 6.25 * 500.0 + 25.0 * 1_000.0;
        assert!((size.warm(&large) - warm).abs() < 1e-6);
    }
}
