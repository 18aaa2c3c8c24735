//! Micro: replaces old tool results by a short text.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Proposal;
use crate::context::view::{Clearable, View};
use crate::context::{ClearedResult, Edit};

/// Layer name under which cleared results are recorded.
pub const NAME: &str = "micro";

/// Unit in which kept results are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeepUnit {
    /// One tool result.
    #[default]
    Blocks,
    /// All tool results of one message.
    Turns,
}

/// Test for content that is long enough to be cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MicroTest {
    /// A text with more characters than the limit; a list of blocks is left alone.
    #[default]
    Text,
    /// As `Text`, and a list with more blocks than the limit.
    Length,
    /// Any content.
    None,
}

/// Clears old tool results before every model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Micro {
    /// Number of the newest units that are kept.
    pub keep_recent: usize,
    /// Unit in which kept results are counted.
    pub keep_unit: KeepUnit,
    /// Test for content that may be cleared.
    pub micro_test: MicroTest,
    /// Content of at most this many characters (or blocks) stays.
    pub micro_min_chars: usize,
    /// Replacement: `{tool}` is the tool's name.
    pub micro_text: String,
    /// Tools whose results are never cleared.
    pub preserve_tools: Vec<String>,
}

impl Micro {
    /// Proposes to clear the results that are old and long enough.
    #[must_use]
    pub fn propose(&self, view: &View) -> Option<Proposal> {
        let results: Vec<_> = view
            .results()
            .take(self.old(view))
            .filter(|result| self.is_worth_it(result))
            .map(|result| ClearedResult {
                message: result.message,
                tool_use_id: result.tool_use_id.clone(),
                text: self.micro_text.replace("{tool}", &result.tool),
                stored: result.stored.clone(),
                kept_chars: 0,
            })
            .collect();
        (!results.is_empty()).then(|| Edit::ClearResults { results }.into())
    }

    /// Returns the number of results that are older than those that are kept.
    fn old(&self, view: &View) -> usize {
        let all = view.results().len();
        match self.keep_unit {
            KeepUnit::Blocks => all.saturating_sub(self.keep_recent),
            KeepUnit::Turns => {
                let mut kept = BTreeSet::new();
                let newest = view.results().rev().take_while(|result| {
                    kept.insert(result.message);
                    kept.len() <= self.keep_recent
                });
                all - newest.count()
            }
        }
    }

    fn is_worth_it(&self, result: &Clearable) -> bool {
        let is_long = match (self.micro_test, result.chars) {
            (MicroTest::None, _) => true,
            (MicroTest::Text, None) => false,
            (MicroTest::Text | MicroTest::Length, Some(chars)) => chars > self.micro_min_chars,
            (MicroTest::Length, None) => result.blocks > self.micro_min_chars,
        };
        is_long && !self.preserve_tools.contains(&result.tool)
    }
}
