//! What an agent's next request would hold, as its records make it: the fold that a live agent is.
//!
//! Layers that are due run right before a request, so what they will change is not in it yet.

use serde_json::{Value, json};

use crate::context::laboratory::explain::{History, RecordedEdit};
use crate::context::view::View;
use crate::event::{Event, SharedRecord};
use crate::journal::stamp;
use crate::turn::{AgentSpawned, Program, TurnStarted};
use crate::turn_machine::{IllegalEvent, Machine, Step};

/// The next request of an agent.
#[derive(Clone, Debug)]
pub struct NextRequest {
    /// What the agent was started for.
    pub spawned: AgentSpawned,
    /// The agent's latest turn, or the one that would begin with the request.
    pub turn: u32,
    /// What it would be sent.
    pub view: View,
    /// The edits that made the view.
    pub history: History,
    /// How many tool calls are open: their results join the view first.
    pub open_calls: usize,
    /// The latest request that the provider counted: its turn, and its tokens with system prompt
    /// and tools.
    pub counted: Option<(u32, u64)>,
}

/// Folds an agent's records; `None` for an agent that runs a command, and without records.
///
/// # Errors
/// When a record cannot follow those before it.
pub fn next_request(records: &[SharedRecord]) -> Result<Option<NextRequest>, IllegalEvent> {
    let first = records.first().map(|record| &record.event);
    let Some(Event::AgentSpawned(spawned)) = first else { return Ok(None) };
    let Program::Model { .. } = spawned.program else { return Ok(None) };
    // Whether the agent may go on is not the question, only with what it would.
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
        // A prompt to go on joins the conversation with the turn.
        Step::CallModel { turn, message } if turn > machine.turn() => {
            machine.apply(&TurnStarted { turn, message }.into())?;
        }
        Step::RunTools(calls) => open_calls = calls.len(),
        Step::CallModel { .. }
        | Step::RunCommand(_)
        | Step::Compact { .. }
        | Step::Finish(_)
        | Step::Rest => {}
    }
    Ok(Some(NextRequest {
        spawned: spawned.clone(),
        turn: machine.turn(),
        view: machine.view().clone(),
        history,
        open_calls,
        counted,
    }))
}

/// The edit that a record tells of, if it does.
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

/// An edit as `show --view --json` and `context explain --json` print it.
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
