//! The prices of a model, and what calls of it cost.

use serde::{Deserialize, Serialize};

use crate::message::Usage;

/// Prices of a model's tokens, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Price of uncached input.
    pub input: f64,
    /// Price of output.
    pub output: f64,
    /// Price of input that is read from the provider's cache.
    pub cache_read: f64,
    /// Price of input that is written to the provider's cache.
    pub cache_write: f64,
}

impl Price {
    /// Returns the prices in units of the input price, or `None` if the input costs nothing.
    #[must_use]
    pub fn relative(&self) -> Option<RelativePrice> {
        (self.input > 0.0).then(|| RelativePrice {
            write: self.cache_write / self.input,
            read: self.cache_read / self.input,
            output: self.output / self.input,
        })
    }

    /// Returns the cost of `usage` in US dollars.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn cost(&self, usage: &Usage) -> f64 {
        (usage.input as f64 * self.input
            + usage.output as f64 * self.output
            + usage.cache_read as f64 * self.cache_read
            + usage.cache_write as f64 * self.cache_write)
            / 1e6
    }

    /// Returns the cost in US dollars of a request with so many tokens at their dearest: all of them read
    /// anew or written to the cache, and a reply as long as it may be.
    #[must_use]
    pub fn most(&self, tokens: u64, max_output_tokens: u64) -> f64 {
        let dearest = self.input.max(self.cache_write).max(self.cache_read);
        let price = Self { input: dearest, ..*self };
        price.cost(&Usage { input: tokens, output: max_output_tokens, ..Usage::default() })
    }
}

/// Prices relative to one uncached input token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelativePrice {
    /// Price of an input token that is written to the cache.
    pub write: f64,
    /// Price of an input token that is read from the cache.
    pub read: f64,
    /// Price of an output token.
    pub output: f64,
}

impl Default for RelativePrice {
    /// Returns the ratios that Anthropic publishes for a cache of five minutes.
    fn default() -> Self {
        Self { write: 1.25, read: 0.1, output: 5.0 }
    }
}
