//! Summary: the older part of the view is replaced by a text that a model writes.
//!
//! Pure: says when one is due, what the summariser reads and what stands in the place of the range.

use serde::{Deserialize, Serialize};

use crate::context::view::{Slot, View};
use crate::context::{CompactionTrigger, Edit, range};
use crate::message::Message;

/// The layer name under which summaries are recorded.
pub const NAME: &str = "summary";

/// Replaces the view by a summary that a model writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The summary is due when the view has more estimated tokens than this.
    pub threshold: u64,
    /// How many characters of the serialised messages the summariser reads.
    pub summary_input_chars: usize,
    /// The most tokens of the summary.
    pub summary_max_tokens: u64,
    /// What the summariser is told.
    pub summary_prompt: String,
    /// What is added when somebody said what to preserve; `{focus}` is that.
    pub summary_focus: String,
    /// The user message that stands in the place of the range; `{path}` is the transcript and
    /// `{summary}` the summary.
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
    /// The size of what it replaces, in characters: a summary that is no shorter is none.
    pub covers_chars: usize,
    /// The one user message for the summariser.
    pub prompt: String,
    /// The most tokens of the summary.
    pub max_tokens: u64,
}

impl SummaryRequest {
    /// Adds instructions of somebody's own.
    pub fn instruct(&mut self, instructions: &str) {
        self.prompt.push_str(&format!("\n\nAdditional instructions:\n{instructions}"));
    }
}

impl Summary {
    /// The summary that is due, if one is: the view is over the threshold, or somebody asked.
    ///
    /// What the model has not read yet stays outside the range: the last user message, and the
    /// call that it answers.
    #[must_use]
    pub fn due(
        &self,
        view: &View,
        asked: Option<(CompactionTrigger, Option<String>)>,
    ) -> Option<SummaryRequest> {
        let (trigger, focus) = match asked {
            Some(asked) => asked,
            None if view.tokens() > self.threshold => (CompactionTrigger::Auto, None),
            None => return None,
        };
        let (from, to) = range::consumed(view)?;
        // A range that is nearly empty cannot pay: what is too large then is the unread tail, and
        // another summary before every call would only repeat this one.
        let covered: usize = view.covered(from, to).map(|slot| slot.entry.chars).sum();
        if trigger == CompactionTrigger::Auto && (covered as u64 / 4) < self.threshold / 10 {
            return None;
        }
        let mut prompt = self.summary_prompt.clone();
        if let Some(focus) = &focus {
            prompt.push_str(&self.summary_focus.replace("{focus}", focus));
        }
        prompt.push_str("\n\n");
        prompt.push_str(&serialised(view, from, to, self.summary_input_chars));
        Some(SummaryRequest {
            trigger,
            from,
            to,
            focus,
            covers_chars: covered,
            prompt,
            max_tokens: self.summary_max_tokens,
        })
    }

    /// The edit that puts a summary in the place of the range it covers. `path` is the transcript.
    #[must_use]
    pub fn edit(&self, view: &View, from: u64, to: u64, path: &str, summary: &str) -> Edit {
        // The summary is put in last: what it says is never taken for a place to fill in.
        let opening = self.summary_text.replace("{path}", path).replace("{summary}", summary);
        let mut with = vec![Message::user(opening)];
        if !self.summary_reply.is_empty() {
            with.push(Message::assistant(self.summary_reply.as_str()));
        }
        range::replacement(view, from, to, with)
    }
}

/// The messages of the range, one a line, cut at a message's end where the limit allows: the first
/// third of the room goes to the beginning, which holds the goal, the rest to the newest messages.
fn serialised(view: &View, from: u64, to: u64, limit: usize) -> String {
    let all: Vec<_> = view.covered(from, to).collect();
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
    let head = take(&mut all.iter(), limit / 3);
    let tail = take(&mut all[head..].iter().rev(), limit - limit / 3);
    let mut text: String = all[..head].iter().map(line).collect();
    let cut = all.len() - head - tail;
    if cut > 0 {
        text.push_str(&format!("... {cut} messages left out ...\n"));
    }
    let tail: String = all[all.len() - tail..].iter().map(line).collect();
    text + &tail
}
