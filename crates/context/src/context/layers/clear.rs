//! Clear: when the view is too large, removes old results that the model has read, in one batch.
//!
//! Pure. Unlike `micro` it leaves the prefix unchanged until a batch is worth its cache, and stores
//! the results that it clears.

use serde::{Deserialize, Serialize};

use super::limit::{Goal, Limit};
use super::persist::{Candidate, candidates};
use super::template::fill;
use super::{Proposal, Spill, Surroundings};
use crate::context::view::range;
use crate::context::view::{Clearable, View};
use crate::context::{ClearedResult, Edit};
use crate::output::Stored;

/// Layer name under which cleared results are recorded: that of `micro`, because the edit is the
/// same and only rarer.
pub const NAME: &str = super::micro::NAME;

/// Selection of the results that may be cleared, and their replacement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clearing {
    /// Number of the newest read results that are kept.
    pub keep_recent: usize,
    /// Results of at most this many characters stay.
    pub micro_min_chars: usize,
    /// Replacement: `{path}` is the path of the stored result, `{tool}` the tool.
    pub micro_saved_text: String,
    /// Tools whose results are never cleared.
    pub preserve_tools: Vec<String>,
}

/// Clears old results when the view is over its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clear {
    /// Limit of the view above which results are cleared.
    pub limit: Limit,
    /// Size at which clearing stops.
    pub goal: Goal,
    /// Least gain of a batch, as a percentage of the view: a smaller one does not pay for its
    /// cache.
    pub clear_min_gain_percent: usize,
    /// Selection of the results that are cleared.
    pub clearing: Clearing,
}

impl Clear {
    /// Returns the batch that is due, if one is.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Option<Proposal> {
        let excess = self.limit.excess(&self.goal, view, around)?;
        let least = view.chars() * self.clear_min_gain_percent / 100;
        self.clearing.propose(view, around, excess, least)
    }
}

impl Clearing {
    /// Proposes to clear results that were read, oldest first, until `excess` characters are gone;
    /// `None` when fewer than `least` would go.
    #[must_use]
    pub fn propose(
        &self,
        view: &View,
        around: &Surroundings<'_>,
        excess: usize,
        least: usize,
    ) -> Option<Proposal> {
        let mut proposal = Proposal::from(Edit::ClearResults { results: Vec::new() });
        let mut freed = 0;
        for result in self.old(view) {
            if freed >= excess {
                break;
            }
            let Some((cleared, spill)) = self.cleared(view, result, around) else { continue };
            let before = result.chars.unwrap_or_default();
            let Some(gain) = before.checked_sub(cleared.text.chars().count()) else { continue };
            freed += gain;
            proposal.spills.extend(spill);
            if let Edit::ClearResults { results } = &mut proposal.edit {
                results.push(cleared);
            }
        }
        (freed > 0 && freed >= least).then_some(proposal)
    }

    /// Returns the results that may be cleared, oldest first.
    fn old<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Clearable> {
        let unread = range::consumed(view).map_or(0, |(_, to)| to);
        let read = view.results().take_while(|result| result.message < unread).count();
        let old = view.results().take(read.saturating_sub(self.keep_recent));
        old.filter(|result| {
            result.chars.is_some_and(|chars| chars > self.micro_min_chars)
                && !self.preserve_tools.contains(&result.tool)
        })
    }

    /// Returns the replacement of a result, and the text that must be stored for it.
    fn cleared(
        &self,
        view: &View,
        result: &Clearable,
        around: &Surroundings<'_>,
    ) -> Option<(ClearedResult, Option<Spill>)> {
        let (stored, spill): (Stored, Option<Spill>) = match &result.stored {
            Some(stored) => (stored.clone(), None),
            None => {
                let all = candidates(view, view.slot_of(result.message)?);
                let one = all.into_iter().find(|one| one.tool_use_id == result.tool_use_id);
                let spill = Spill::of(one.and_then(Candidate::into_whole)?);
                (spill.stored.clone(), Some(spill))
            }
        };
        let path = around.path_of(&stored);
        let text = fill(&self.micro_saved_text, &[("path", path.as_str()), ("tool", &result.tool)]);
        let cleared = ClearedResult {
            message: result.message,
            tool_use_id: result.tool_use_id.clone(),
            text,
            stored: Some(stored),
            kept_chars: 0,
        };
        Some((cleared, spill))
    }
}
