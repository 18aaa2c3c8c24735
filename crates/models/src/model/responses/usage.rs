//! Reads the token counts of the Responses API.

use serde::Deserialize;

use crate::message::Usage;
use crate::model::http::{count, lenient};

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct UsageIn {
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    input_tokens_details: Option<DetailsIn>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct DetailsIn {
    #[serde(default, deserialize_with = "count")]
    cached_tokens: Option<u64>,
    /// GPT-5.6 and later.
    #[serde(default, deserialize_with = "count")]
    cache_write_tokens: Option<u64>,
}

/// Returns the token counts that were reported; the input includes the tokens that were read from a cache or
/// written to it, which are taken off.
pub(super) fn counted(reported: Option<UsageIn>) -> Usage {
    let Some(usage) = reported else { return Usage::default() };
    let details = usage.input_tokens_details;
    let cached = details.and_then(|details| details.cached_tokens).unwrap_or(0);
    let input = usage.input_tokens.unwrap_or(0).saturating_sub(cached);
    // More than there is cannot have been written.
    let written = details.and_then(|details| details.cache_write_tokens).unwrap_or(0).min(input);
    Usage {
        input: input - written,
        output: usage.output_tokens.unwrap_or(0),
        cache_read: cached,
        cache_write: written,
    }
}
