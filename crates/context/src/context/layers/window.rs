//! Turn window: shows the last turns in the system prompt, so that the messages hold only those
//! that belong to the user's last words.
//!
//! Pure. Made for clients that run their own tool loop: it acts when a user speaks, never between
//! calls. Each task prompt, follow-up, mail and answer counts as the words of a user.

use serde::{Deserialize, Serialize};

use super::summary::{Covered, Material, Summary, SummaryRequest, Urgency};
use super::template::fill;
use super::{Proposal, Surroundings};
use crate::context::measure::CHARS_PER_TOKEN;
use crate::context::view::{Speaker, Turn, View};
use crate::context::{CompactionTrigger, Edit};

/// Layer name under which windows are recorded.
pub const NAME: &str = "window";

/// Shows the last turns in the system prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnWindow {
    /// Number of the user's turns, each with its reply, that are shown.
    pub keep_recent: usize,
    /// Most characters of a turn that are shown; a summary is shown whole.
    pub turn_chars: usize,
    /// Template of a turn: `{role}` and `{text}`.
    pub turn_text: String,
    /// Template of the window: `{turns}`.
    pub window_text: String,
    /// Settings of the summary of the turns; its limit counts the texts of the turns.
    pub summary: Summary,
}

impl TurnWindow {
    /// Proposes the window that is due: when a user has spoken, and messages stand before that.
    #[must_use]
    pub fn propose(&self, view: &View) -> Option<Proposal> {
        let to = begun_by_user(view)?;
        let is_first = view.parts().next().is_none_or(|first| first.from >= to);
        (!is_first).then(|| Edit::Window { to, system: self.block(view) }.into())
    }

    /// Returns the last turns, oldest first, behind the summary of the earlier ones, if there is
    /// one.
    fn block(&self, view: &View) -> String {
        let is_summary = |turn: &&Turn| turn.speaker == Speaker::System;
        let others = view.history().filter(|turn| !is_summary(turn)).count();
        let old = others.saturating_sub(self.keep_recent.saturating_mul(2));
        let recent = view.history().filter(|turn| !is_summary(turn)).skip(old);
        let turns: String =
            view.history().filter(is_summary).chain(recent).map(|t| self.line(t)).collect();
        if turns.is_empty() { turns } else { fill(&self.window_text, &[("turns", &turns)]) }
    }

    fn line(&self, turn: &Turn) -> String {
        let text = turn.text();
        let most = if turn.speaker == Speaker::System { usize::MAX } else { self.turn_chars };
        let text: String = text.chars().take(most).collect();
        fill(&self.turn_text, &[("role", turn.speaker.as_str()), ("text", &text)])
    }

    /// Returns the urgency of a summary: it is due when a user has spoken and the earlier turns are
    /// too long.
    #[must_use]
    pub fn pressure(&self, view: &View, around: &Surroundings<'_>) -> Option<Urgency> {
        begun_by_user(view)?;
        let is_over = self.summary.summary_auto
            && said(view) / CHARS_PER_TOKEN > self.summary.limit.tokens(around);
        is_over.then_some(Urgency::Now)
    }

    /// Returns the summary of all turns that is due, if one is, or that somebody asks for.
    #[must_use]
    pub fn due(
        &self,
        view: &View,
        around: &Surroundings<'_>,
        asked: Option<(CompactionTrigger, Option<String>)>,
    ) -> Option<SummaryRequest> {
        let (trigger, focus) = match asked {
            Some(asked) => asked,
            None => {
                self.pressure(view, around)?;
                (CompactionTrigger::Auto, None)
            }
        };
        let (from, to) = (0, begun_by_user(view)?);
        let covered = Covered { from, to, reads_to: to };
        let request = self.summary.request(view, around, trigger, focus, covered);
        let material = Material::of_turns(view.history());
        let covers_chars = usize::try_from(said(view)).unwrap_or(usize::MAX);
        (covers_chars > 0).then_some(SummaryRequest { material, covers_chars, ..request })
    }
}

/// Returns the characters of the turns before the last.
fn said(view: &View) -> u64 {
    view.history().map(|turn| turn.text().chars().count() as u64).sum()
}

/// Returns the number of the user's last message, if the model has not answered it yet.
#[must_use]
pub fn begun_by_user(view: &View) -> Option<u64> {
    let last = view.parts().next_back()?;
    (last.entry.is_request && last.entry.answers.is_empty()).then_some(last.from)
}
