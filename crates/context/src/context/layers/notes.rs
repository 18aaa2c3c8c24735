//! Notes: replaces the older part of the view by the notes that the agent itself has written.
//!
//! Pure. An agent that keeps running notes rewrites a file of them as a whole, with `write_file`:
//! its last version covers everything before it. So no model is called and no file is read. Changes
//! of the file in any other way are not in the conversation, and do not count.

use serde::{Deserialize, Serialize};

use super::limit::{Goal, Limit};
use super::summary::Quote;
use super::template::fill;
use super::{Proposal, Surroundings};
use crate::context::view::range;
use crate::context::view::{Slot, View};
use crate::message::{Message, ToolCall};

/// Layer name under which the use of notes is recorded.
pub const NAME: &str = "notes";

/// Tool that writes a file as a whole.
const WRITE: &str = "write_file";

/// Uses the agent's notes as the summary when the view is over its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Limit of the view above which the notes are used.
    pub limit: Limit,
    /// Size that the view must reach with them; where they do not help as much, a model is asked.
    pub goal: Goal,
    /// Path of the notes, as the agent writes it; empty: there are none.
    pub notes_file: String,
    /// User message in the place of the covered range; `{path}` is the transcript, `{notes}` the
    /// notes.
    pub notes_text: String,
}

impl Notes {
    /// Proposes the notes in the place of the range that they cover, if that reaches the goal.
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

    /// Returns the text that the message at this position wrote into the file, if it did and the
    /// call succeeded.
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
