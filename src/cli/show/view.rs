//! `show --view`: prints what the next request of an agent would contain.

use serde::Serialize;
use serde_json::Value;

use super::{Block, Message, message_text};
use crate::cli::rows::folded;
use crate::cli::stream::Stream;
use crate::cli::{locate, say, say_json};
use crate::context::laboratory::explain::RecordedEdit;
use crate::context::view::{Slot, Standing};
use crate::exit::Exit;
use crate::id::AgentId;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::message::Json;
use crate::printable;
use crate::report::next_request::{NextRequest, edit_json};

pub(super) fn show(
    project: &locate::Project,
    run: &RecordedRun,
    (id, shown): (&AgentId, &str),
    as_json: bool,
) -> Exit {
    match project.view(run, id) {
        Ok(next) if as_json => say_json(&json(id, &next)),
        Ok(next) => say(&folded(&text(shown, &next), Stream::Out)),
        Err(exit) => exit,
    }
}

fn json(id: &AgentId, next: &NextRequest) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        agent: &'a AgentId,
        turn: u32,
        open_calls: usize,
        /// Text that an edit added to the system prompt.
        system_added: Option<&'a str>,
        messages: Vec<&'a Json>,
        /// Origin of each message, in the same order.
        slots: Vec<SlotShown>,
    }
    #[derive(Serialize)]
    struct SlotShown {
        from: u64,
        to: u64,
        standing: &'static str,
        edits: Vec<Value>,
    }
    let slots = next.view.slots().map(|slot| SlotShown {
        from: slot.from,
        to: slot.to,
        standing: match slot.standing {
            Standing::Verbatim => "verbatim",
            Standing::Cleared => "cleared",
            Standing::Instead => "instead",
        },
        edits: next.history.of_slot(slot).into_iter().map(edit_json).collect(),
    });
    let document = Document {
        agent: id,
        turn: next.turn,
        open_calls: next.open_calls,
        system_added: next.view.system(),
        messages: next.view.slots().map(|slot| &slot.entry.json).collect(),
        slots: slots.collect(),
    };
    format!("{}\n", Json::encode(&document).as_str())
}

fn text(shown: &str, next: &NextRequest) -> String {
    let mut text = format!(
        "agent {shown}, turn {}: {} messages in the view, {} in the conversation\n",
        next.turn,
        next.view.slots().len(),
        next.view.next_message(),
    );
    if next.open_calls > 0 {
        text.push_str(&format!(
            "{} calls have no result yet: their results will be added\n",
            next.open_calls
        ));
    }
    if let Some(added) = next.view.system() {
        let note = next.history.of_system().map(note).unwrap_or_default();
        let message = Message::user(added);
        text.push_str(&message_text("system", &message, |_| note.clone()));
    }
    for slot in next.view.slots() {
        let Ok(message) = slot.entry.json.decode::<Message>() else { continue };
        text.push_str(&message_text(&range_of(slot), &message, |block| note_of(next, slot, block)));
    }
    text
}

/// Formats the range of messages that a slot stands for.
fn range_of(slot: &Slot) -> String {
    match slot.to - slot.from {
        0 => "added".to_owned(),
        1 => slot.from.to_string(),
        _ => format!("{}-{}", slot.from, slot.to - 1),
    }
}

/// Formats the edit that changed a block, or returns an empty text.
fn note_of(next: &NextRequest, slot: &Slot, block: &Block) -> String {
    let edit = match (slot.standing, block) {
        (Standing::Cleared, Block::ToolResult(result)) => {
            next.history.cleared_by(slot, &result.tool_use_id)
        }
        (Standing::Instead, _) => next.history.of_slot(slot).pop(),
        (Standing::Verbatim | Standing::Cleared, _) => None,
    };
    edit.map(note).unwrap_or_default()
}

fn note(edit: &RecordedEdit) -> String {
    format!("  [{} #{} {}]", printable::line(&edit.layer), edit.seq, stamp::text(edit.ts_ms))
}
