//! What an agent does next, and what it cannot take in.

use super::PendingCall;
use crate::context::CompactionTrigger;
use crate::message::Json;
use crate::turn::Outcome;

/// What an agent must do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Call the model: begin this turn, with this user message first if there is one; or make the
    /// announced call of the current turn again.
    CallModel {
        /// The turn's number.
        turn: u32,
        /// A message that joins the conversation first.
        message: Option<Json>,
    },
    /// Run these calls, which have no result yet.
    RunTools(Vec<PendingCall>),
    /// Run the agent's command: the call, if it was announced before.
    RunCommand(Option<PendingCall>),
    /// Replace the older part of the view by a summary.
    Compact {
        /// Why.
        trigger: CompactionTrigger,
        /// What to preserve.
        focus: Option<String>,
    },
    /// Record the end.
    Finish(Outcome),
    /// Nothing: the end is recorded, or a call is under way.
    Rest,
}

/// An event that cannot follow what was recorded before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} cannot follow here: {reason}")]
pub struct IllegalEvent {
    /// The event's type.
    pub event: &'static str,
    /// Why it cannot.
    pub reason: String,
}
