//! Reads the token counts of a Messages API reply: the billed tokens, and the tokens that the model
//! read.
//!
//! The two differ when the provider wrote a summary during the reply.

use serde::Deserialize;
use serde_json::Value;

use crate::message::Usage;
use crate::model::http::{count, lenient};

/// Token counts. Each later report replaces the earlier one where it has a number.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct UsageIn {
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    /// One entry for each time that a model read the context. Kept as values, because an entry
    /// that cannot be read must not break the stream.
    #[serde(default, deserialize_with = "lenient")]
    iterations: Option<Value>,
}

impl UsageIn {
    pub(super) fn replace(&mut self, newer: Self) {
        self.input_tokens = newer.input_tokens.or(self.input_tokens);
        self.output_tokens = newer.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens =
            newer.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            newer.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.iterations = newer.iterations.or(self.iterations.take());
    }

    /// Returns true if the report has the tokens of the output.
    pub(super) fn has_output(&self) -> bool {
        self.output_tokens.is_some()
    }

    /// Returns the billed tokens. The counts of the reply itself leave out the summaries that were
    /// written during it, so these are added.
    pub(super) fn billed(&self) -> Usage {
        let mut billed = self.counts();
        self.entries("compaction").for_each(|entry| billed += entry.counts());
        billed
    }

    /// Returns the size of the context that the model read last, if it differs from the counts of
    /// the reply: those add up all readings.
    pub(super) fn last_read(&self) -> Option<u64> {
        let last = self.entries("message").last()?.counts().context();
        (last > 0 && last != self.billed().context()).then_some(last)
    }

    fn counts(&self) -> Usage {
        Usage {
            input: self.input_tokens.unwrap_or(0),
            output: self.output_tokens.unwrap_or(0),
            cache_read: self.cache_read_input_tokens.unwrap_or(0),
            cache_write: self.cache_creation_input_tokens.unwrap_or(0),
        }
    }

    fn entries(&self, kind: &str) -> impl Iterator<Item = Self> {
        let all = self.iterations.as_ref().and_then(Value::as_array).into_iter().flatten();
        all.filter(move |entry| entry["type"] == kind)
            .filter_map(|entry| serde_json::from_value(entry.clone()).ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usage(value: Value) -> UsageIn {
        serde_json::from_value(value).expect("usage")
    }

    #[test]
    fn a_summary_is_billed_and_is_no_context() {
        let mut seen = usage(json!({"input_tokens": 3, "output_tokens": 1}));
        seen.replace(usage(json!({
            "input_tokens": 23_000, "output_tokens": 1_000,
            "iterations": [
                {"type": "compaction", "input_tokens": 170_000, "cache_read_input_tokens": 10_000, "output_tokens": 3_500},
                {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
                {"type": "advisor_message", "input_tokens": 7, "output_tokens": 7},
            ],
        })));
        let billed = Usage { input: 193_000, output: 4_500, cache_read: 10_000, cache_write: 0 };
        assert_eq!((seen.billed(), seen.last_read()), (billed, Some(23_000)));
        seen.replace(usage(json!({"output_tokens": 1_001})));
        assert_eq!(seen.billed().output, 4_501);
    }

    #[test]
    fn several_readings_are_billed_once_and_the_last_is_the_context() {
        let seen = usage(json!({
            "input_tokens": 300, "output_tokens": 20,
            "iterations": [
                {"type": "message", "input_tokens": 100, "output_tokens": 10},
                {"type": "message", "input_tokens": 50, "cache_read_input_tokens": 150, "output_tokens": 10},
            ],
        }));
        assert_eq!((seen.billed().input, seen.last_read()), (300, Some(200)));
    }

    #[test]
    fn a_summary_alone_and_what_cannot_be_read() {
        let alone = usage(json!({
            "input_tokens": 0, "output_tokens": 0,
            "iterations": [{"type": "compaction", "input_tokens": 144, "output_tokens": 276}],
        }));
        assert_eq!((alone.billed().total(), alone.last_read()), (420, None));
        for odd in [json!(null), json!(7), json!([7, {"type": "message", "input_tokens": "x"}])] {
            let seen = usage(json!({"input_tokens": 5, "output_tokens": 1, "iterations": odd}));
            assert_eq!((seen.billed().total(), seen.last_read()), (6, None));
        }
        let same = json!([{"type": "message", "input_tokens": 5, "output_tokens": 1}]);
        let seen = usage(json!({"input_tokens": 5, "output_tokens": 1, "iterations": same}));
        assert_eq!(seen.last_read(), None);
    }
}
