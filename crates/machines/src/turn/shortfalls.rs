//! What the agents of a run left undone, although nothing need have failed because of it.
//!
//! Plain data with its sums.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ToolFinished, ToolStatus};

/// The work that was asked for and not done, although nothing need have failed because of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shortfalls {
    /// Number of calls that were denied, by tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub denied: BTreeMap<String, u32>,
    /// Number of calls whose outcome nobody knows, by tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<String, u32>,
    /// Number of calls whose result was too long to be kept whole, by tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cut: BTreeMap<String, u32>,
    /// Number of calls that a limit of the run refused, by tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u32>,
    /// Number of child agents that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_children: u32,
    /// Number of child agents that ended; 0 if none of them failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children: u32,
    /// Number of items that fan-outs which completed did not do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_items: u32,
    /// Number of all items of these fan-outs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Shortfalls {
    /// Returns true if all that was asked for was done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { denied, unknown, cut, refused, failed_children, failed_items, .. } = self;
        let calls = [denied, unknown, cut, refused];
        calls.into_iter().all(BTreeMap::is_empty) && *failed_children == 0 && *failed_items == 0
    }

    /// Counts the end of a call.
    pub fn count(&mut self, finished: &ToolFinished) {
        let is_cut = finished.stored.as_ref().is_some_and(|stored| stored.dropped > 0);
        let counts = match (finished.denied, finished.status) {
            (true, _) => &mut self.denied,
            (false, _) if finished.refused => &mut self.refused,
            (false, ToolStatus::Unknown) => &mut self.unknown,
            (false, ToolStatus::Ok | ToolStatus::Error) if is_cut => &mut self.cut,
            (false, ToolStatus::Ok | ToolStatus::Error) => return,
        };
        *counts.entry(finished.name.clone()).or_default() += 1;
    }

    /// Adds what another agent, or all of its agents, left undone.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.denied, &other.denied),
            (&mut self.unknown, &other.unknown),
            (&mut self.cut, &other.cut),
            (&mut self.refused, &other.refused),
        ] {
            for (tool, count) in theirs {
                *mine.entry(tool.clone()).or_default() += count;
            }
        }
        self.failed_children += other.failed_children;
        self.children += other.children;
        self.failed_items += other.failed_items;
        self.items += other.items;
    }
}
