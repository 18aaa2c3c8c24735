//! The step that an agent must take next, and the error of an event that cannot be applied.

use super::PendingCall;
use crate::context::CompactionTrigger;
use crate::event::Event;
use crate::message::Json;
use crate::turn::Outcome;

/// The step that an agent must take next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Call the model: begin this turn, with this user message first if there is one; or make the
    /// announced call of the current turn again.
    CallModel {
        /// Number of the turn.
        turn: u32,
        /// User message that joins the conversation first.
        message: Option<Json>,
    },
    /// Run these calls, which have no result yet.
    RunTools(Vec<PendingCall>),
    /// Run the agent's command: the call, if it was announced before.
    RunCommand(Option<PendingCall>),
    /// Replace the older part of the view by a summary.
    Compact {
        /// Reason for the summary.
        trigger: CompactionTrigger,
        /// Things to preserve in the summary, in the words of the request.
        focus: Option<String>,
    },
    /// Record the end.
    Finish(Outcome),
    /// Nothing: the end is recorded.
    Rest,
}

/// An event that cannot follow what was recorded before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} cannot follow here: {reason}")]
pub struct IllegalEvent {
    /// Type of the event.
    pub event: &'static str,
    /// Reason why the event cannot follow.
    pub reason: String,
}

/// Returns true if such a record may follow the end of an agent: the run makes it, and an end may come before it.
pub(super) fn may_follow_the_end(event: &Event) -> bool {
    matches!(
        event,
        Event::AgentEnded(_)
            | Event::AgentRestarted(_)
            | Event::MessageSent(_)
            | Event::MessageReturned(_)
    )
}
