//! Turn window: the last turns stand in the system prompt, and the messages hold only what belongs
//! to what the user said last.
//!
//! Pure. Made for clients that run their own tool loop: it acts when a user speaks, never between
//! calls. Each task prompt, follow-up, mail and answer is something that a user says.

use serde::{Deserialize, Serialize};

use super::summary::{Covered, Material, Summary, SummaryRequest, Urgency};
use super::template::fill;
use super::{Proposal, Surroundings};
use crate::context::view::{Speaker, Turn, View};
use crate::context::{CompactionTrigger, Edit};

/// The layer name under which windows are recorded.
pub const NAME: &str = "window";

/// Shows the last turns in the system prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnWindow {
    /// How many turns of the user, each with its reply, are shown.
    pub keep_recent: usize,
    /// How many characters of a turn are shown; a summary is shown whole.
    pub turn_chars: usize,
    /// A turn in the window: `{role}` and `{text}`.
    pub turn_text: String,
    /// The window: `{turns}`.
    pub window_text: String,
    /// The summary of the turns; its limit counts what they say.
    pub summary: Summary,
}

impl TurnWindow {
    /// The window that is due: a user has spoken, and there is something before that.
    #[must_use]
    pub fn propose(&self, view: &View) -> Option<Proposal> {
        let to = begun_by_user(view)?;
        let is_first = view.parts().next().is_none_or(|first| first.from >= to);
        (!is_first).then(|| Edit::Window { to, system: self.block(view) }.into())
    }

    /// The last turns, oldest first, behind the summary of those before, if there is one.
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

    /// How soon a summary is wanted: when a user has spoken and the turns before say too much.
    #[must_use]
    pub fn pressure(&self, view: &View, around: &Surroundings<'_>) -> Option<Urgency> {
        begun_by_user(view)?;
        let is_over = self.summary.summary_auto
            && said(view) / CHARS_PER_TOKEN > self.summary.limit.tokens(around);
        is_over.then_some(Urgency::Now)
    }

    /// The summary of all turns that is due, if one is, or that somebody asks for.
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

/// The documented estimate of the characters of a token.
const CHARS_PER_TOKEN: u64 = 4;

/// The characters that the turns before the last have.
fn said(view: &View) -> u64 {
    view.history().map(|turn| turn.text().chars().count() as u64).sum()
}

/// What a user has just said, if nothing was done about it yet.
#[must_use]
pub fn begun_by_user(view: &View) -> Option<u64> {
    let last = view.parts().next_back()?;
    (last.entry.is_request && last.entry.answers.is_empty()).then_some(last.from)
}
