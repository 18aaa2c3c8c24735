//! Notes: what the agent itself has written down takes the place of the older part of the view.
//!
//! Pure. An agent that keeps running notes rewrites a file of them whole, with `write_file`: what it
//! wrote last covers all that came before. So no model is asked and no file is read. What came into
//! the file in any other way does not stand in the conversation, and does not count.

use serde::{Deserialize, Serialize};

use super::limit::{Goal, Limit};
use super::summary::Quote;
use super::template::fill;
use super::{Proposal, Surroundings};
use crate::context::view::range;
use crate::context::view::{Slot, View};
use crate::message::{Message, ToolCall};

/// The layer name under which it is recorded that notes were used.
pub const NAME: &str = "notes";

/// The tool that writes a file whole.
const WRITE: &str = "write_file";

/// Uses the agent's notes as the summary when the view is over its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// They are used when the view is over it.
    pub limit: Limit,
    /// What the view has at most afterwards; where notes do not help as much, a model is asked.
    pub goal: Goal,
    /// The file, as the agent names it; empty: there is none.
    pub notes_file: String,
    /// The user message that stands in the place of what they cover; `{path}` is the transcript,
    /// `{notes}` the notes.
    pub notes_text: String,
}

impl Notes {
    /// The notes in the place of what they cover, if they help.
    #[must_use]
    pub fn propose(&self, view: &View, around: &Surroundings<'_>) -> Option<Proposal> {
        let excess = match self.notes_file.as_str() {
            "" => return None,
            _ => self.limit.excess(&self.goal, view, around)?,
        };
        let (from, read) = range::consumed(view)?;
        let slots: Vec<&Slot> = view.slots().take_while(|slot| slot.to <= read).collect();
        let (at, notes) =
            (0..slots.len()).rev().find_map(|at| Some((at, self.written(&slots, at)?)))?;
        let to = slots[range::batch_end(&slots, at + 1) - 1].to;
        let notes = Quote::Lines.of(&notes);
        let text = fill(&self.notes_text, &[("path", around.transcript), ("notes", &notes)]);
        let gain = range::chars(view, from, to).checked_sub(text.chars().count())?;
        let with = vec![Message::user(text)];
        (gain >= excess).then(|| range::joining(view, from, to, with).into())
    }

    /// What the message at this place wrote into the file, if it did and it was not refused.
    fn written(&self, slots: &[&Slot], at: usize) -> Option<String> {
        let makes_one = slots[at].entry.calls.iter().any(|(_, tool)| tool == WRITE);
        let message: Message = makes_one.then(|| slots[at].entry.json.decode().ok())??;
        let results = slots.get(at + 1)?.entry.json.decode::<Message>().ok()?;
        let is_done = |call: &&ToolCall| {
            let mut own = results.tool_results().filter(|r| r.tool_use_id == call.id);
            own.any(|result| !result.is_error)
        };
        let text = |call: &ToolCall| {
            let input = call.input.to_value();
            let path = input["path"].as_str()?.trim_start_matches("./").to_owned();
            let is_it = path == self.notes_file.trim_start_matches("./");
            input["content"].as_str().filter(|_| is_it).map(str::to_owned)
        };
        let calls = message.tool_calls().filter(|call| call.name == WRITE).filter(is_done);
        calls.filter_map(text).last()
    }
}
