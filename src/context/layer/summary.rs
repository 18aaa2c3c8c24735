//! Summary: the older part of the view is replaced by a text that a model writes.
//!
//! Pure: says when one is due, what the summariser reads and what stands in the place of the range.

use serde::{Deserialize, Serialize};

use super::Surroundings;
use super::limit::Limit;
use super::template::fill;
use crate::context::view::{Slot, View};
use crate::context::{CompactionTrigger, Edit, range};
use crate::message::{Block, Json, Message, Role};

/// The layer name under which summaries are recorded.
pub const NAME: &str = "summary";

/// Where the text of a summary holds the active request, word for word.
const REQUEST_PLACE: &str = "{request}";

/// Replaces the view by a summary that a model writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The summary is due when the view is over it.
    pub limit: Limit,
    /// How many characters of the serialised messages the summariser reads.
    pub summary_input_chars: usize,
    /// How many of these go to the beginning, which holds the goal, when not all fit, but at most a
    /// third; the rest goes to the newest messages.
    pub summary_head_chars: usize,
    /// What stands between the two; `{n}` is the number of messages that were left out.
    pub summary_cut: String,
    /// The most tokens of the summary.
    pub summary_max_tokens: u64,
    /// The summariser's system prompt.
    pub summary_system: String,
    /// What the summariser is told.
    pub summary_prompt: String,
    /// What is added when somebody said what to preserve; `{focus}` is that.
    pub summary_focus: String,
    /// The user message that stands in the place of the range: `{path}` is the transcript,
    /// `{summary}` the summary, `{summary_json}` the same as a JSON string, `{request}` the active
    /// request. A text without a summary has it at its end.
    pub summary_text: String,
    /// What the assistant says to it; empty: nothing.
    pub summary_reply: String,
}

/// A summary that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRequest {
    /// Why.
    pub trigger: CompactionTrigger,
    /// The first message covered.
    pub from: u64,
    /// The first message not covered.
    pub to: u64,
    /// What to preserve, if somebody said.
    pub focus: Option<String>,
    /// The size of what it replaces, in characters, without what is kept of it: a summary that is no
    /// shorter is none.
    pub covers_chars: usize,
    /// The summariser's system prompt.
    pub system: String,
    /// The one user message for the summariser.
    pub prompt: String,
    /// The most tokens of the summary.
    pub max_tokens: u64,
}

impl Summary {
    /// The summary that is due, if one is: the view is over the limit, or somebody asked.
    ///
    /// What the model has not read yet stays outside the range: the last user message, and the
    /// call that it answers.
    #[must_use]
    pub fn due(
        &self,
        view: &View,
        around: &Surroundings<'_>,
        asked: Option<(CompactionTrigger, Option<String>)>,
    ) -> Option<SummaryRequest> {
        let (trigger, focus) = match asked {
            Some(asked) => asked,
            None if self.limit.is_over(view, around) => (CompactionTrigger::Auto, None),
            None => return None,
        };
        let (from, to) = range::consumed(view)?;
        let request = self.request(view, trigger, focus, (from, to), to);
        // A range that is nearly empty cannot pay: what is too large then is the unread tail, and
        // another summary before every call would only repeat this one.
        let least = self.limit.chars(around) / 10;
        let pays = trigger != CompactionTrigger::Auto || request.covers_chars as u64 >= least;
        pays.then_some(request)
    }

    /// The request for a summary of a range; the summariser reads the messages up to `reads_to`.
    #[must_use]
    pub fn request(
        &self,
        view: &View,
        trigger: CompactionTrigger,
        focus: Option<String>,
        (from, to): (u64, u64),
        reads_to: u64,
    ) -> SummaryRequest {
        let mut prompt = self.summary_prompt.clone();
        if let Some(focus) = &focus {
            prompt.push_str(&fill(&self.summary_focus, &[("focus", focus)]));
        }
        prompt.push_str("\n\n");
        prompt.push_str(&self.serialised(&view.covered(from, reads_to).collect::<Vec<_>>()));
        SummaryRequest {
            trigger,
            from,
            to,
            focus,
            covers_chars: range::chars(view, from, to),
            system: self.summary_system.clone(),
            prompt,
            max_tokens: self.summary_max_tokens,
        }
    }

    /// The edit that puts a summary in the place of the range it covers. `path` is the transcript.
    #[must_use]
    pub fn edit(&self, view: &View, from: u64, to: u64, path: &str, summary: &str) -> Edit {
        let quoted = Json::encode(summary);
        let values = [("path", path), ("summary", summary), ("summary_json", quoted.as_str())];
        let mut template = self.summary_text.clone();
        if !template.contains("{summary}") && !template.contains("{summary_json}") {
            template.push_str("\n\n{summary}");
        }
        let Some((before, after)) = template.split_once(REQUEST_PLACE) else {
            let mut with = vec![Message::user(fill(&template, &values))];
            if !self.summary_reply.is_empty() {
                with.push(Message::assistant(self.summary_reply.as_str()));
            }
            return range::replacement(view, from, to, with);
        };
        // The request stands in a block of its own, so that its bytes are what they were.
        let text = |part: &str| Block::Text(fill(part.trim(), &values));
        let request = range::request(view).map(|request| request.content);
        let parts = [vec![text(before)], request.unwrap_or_default(), vec![text(after)]];
        let is_blank = |block: &Block| matches!(block, Block::Text(text) if text.is_empty());
        let content = parts.into_iter().flatten().filter(|block| !is_blank(block)).collect();
        let with = vec![Json::encode(&Message { role: Role::User, content })];
        Edit::Replace { from, to, with }
    }

    /// The messages, one a line, whole or cut at a message's end: the room that the limit gives
    /// goes to the beginning and to the newest messages.
    fn serialised(&self, all: &[&Slot]) -> String {
        let limit = self.summary_input_chars;
        let total: usize = all.iter().map(|slot| slot.entry.chars + 1).sum();
        let line = |slot: &&Slot| format!("{}\n", slot.entry.json.as_str());
        if total <= limit {
            return all.iter().map(line).collect();
        }
        let take = |slots: &mut dyn Iterator<Item = &&Slot>, room: usize| {
            let mut left = room;
            let fitting = slots.take_while(|slot| {
                let fits = slot.entry.chars < left;
                left = left.saturating_sub(slot.entry.chars + 1);
                fits
            });
            fitting.count()
        };
        let for_head = self.summary_head_chars.min(limit / 3);
        let head = take(&mut all.iter(), for_head);
        let tail = take(&mut all[head..].iter().rev(), limit - for_head);
        let mut text: String = all[..head].iter().map(line).collect();
        let cut = all.len() - head - tail;
        if cut > 0 {
            text.push_str(&fill(&self.summary_cut, &[("n", &cut.to_string())]));
        }
        let tail: String = all[all.len() - tail..].iter().map(line).collect();
        text + &tail
    }
}
