//! The next request of an agent, computed from its records by the same fold as in a live agent.
//!
//! Layers that are due run only just before a request, so the view does not yet include their
//! edits.

use serde_json::{Value, json};

use crate::context::laboratory::explain::{History, RecordedEdit};
use crate::context::view::View;
use crate::event::{Event, SharedRecord};
use crate::journal::stamp;
use crate::turn::{Program, TurnStarted};
use crate::turn_machine::{IllegalEvent, Machine, Step};

/// The next request of an agent.
#[derive(Clone, Debug)]
pub struct NextRequest {
    /// The agent's latest turn, or the turn that would begin with the request.
    pub turn: u32,
    /// The view that would be sent.
    pub view: View,
    /// The edits that made the view.
    pub history: History,
    /// Number of open tool calls: their results join the view first.
    pub open_calls: usize,
    /// The latest request whose tokens the provider counted: its turn, and its tokens, system
    /// prompt and tools included.
    pub counted: Option<(u32, u64)>,
}

/// Folds an agent's records. Returns `None` if there are no records, or if the agent runs a
/// command.
///
/// # Errors
/// Returns an error if a record cannot follow the earlier ones.
pub fn next_request(records: &[SharedRecord]) -> Result<Option<NextRequest>, IllegalEvent> {
    let first = records.first().map(|record| &record.event);
    let Some(Event::AgentSpawned(spawned)) = first else { return Ok(None) };
    let Program::Model { .. } = spawned.program else { return Ok(None) };
    // No limit of turns: the question is which request would follow, not if the agent may make it.
    let mut machine = Machine::new(spawned.clone(), u32::MAX);
    let (mut history, mut counted) = (History::default(), None);
    for record in &records[1..] {
        machine.apply(&record.event)?;
        if let Some(edit) = recorded_edit(record) {
            history.note(edit);
        } else if let Event::ModelResponded(reply) = &record.event {
            counted = Some((reply.turn, reply.usage.context()));
        }
    }
    let mut open_calls = 0;
    match machine.next() {
        // A message that begins the next turn joins the conversation together with that turn.
        Step::CallModel { turn, message } if turn > machine.turn() => {
            machine.apply(&TurnStarted::new(turn, message).into())?;
        }
        Step::RunTools(calls) => open_calls = calls.len(),
        Step::CallModel { .. }
        | Step::RunCommand(_)
        | Step::Compact { .. }
        | Step::Finish(_)
        | Step::Rest => {}
    }
    Ok(Some(NextRequest {
        turn: machine.turn(),
        view: machine.view().clone(),
        history,
        open_calls,
        counted,
    }))
}

/// Returns the edit that a record holds, if it holds one.
fn recorded_edit(record: &SharedRecord) -> Option<RecordedEdit> {
    let (layer, edit, before_tokens, after_tokens) = match &record.event {
        Event::ContextEdited(e) => (&e.layer, &e.edit, e.before_tokens, e.after_tokens),
        Event::CompactionFinished(e) => (&e.layer, &e.edit, e.before_tokens, e.after_tokens),
        _ => return None,
    };
    let (layer, edit) = (layer.clone(), edit.clone());
    let (seq, ts_ms) = (record.seq, record.ts_ms);
    Some(RecordedEdit { seq, ts_ms, layer, edit, before_tokens, after_tokens })
}

/// Formats an edit as `show --view --json` and `context explain --json` print it.
#[must_use]
pub fn edit_json(edit: &RecordedEdit) -> Value {
    json!({
        "seq": edit.seq,
        "ts": stamp::text(edit.ts_ms),
        "layer": edit.layer,
        "covers": edit.covers(),
        "before_tokens": edit.before_tokens,
        "after_tokens": edit.after_tokens,
    })
}
