//! The mail of a run's actors.
//!
//! Plain data: no reply port, no permit, no handle and no local path, so that a message can be
//! answered from another task or, later, from another machine. A question carries a key; its answer
//! comes back as mail with the same key (see [`replies`](super::replies)).

use serde_json::Value;

use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::journal::room::Room;
use crate::run_machine::{CancelTarget, Delegation};

/// The mail of the supervisor.
#[derive(Debug)]
pub enum SupervisorMsg {
    /// Records became durable: they wait in the supervisor's feed.
    News,
    /// An agent gives a job to a child.
    Delegate(Delegation),
    /// An agent whose children have ended wants its slot back.
    SlotWanted(AgentId),
    /// The output of a task was checked and written where it is wanted.
    OutputChecked {
        /// The task.
        task: Name,
        /// The output's value for templates, or why it is not what the task asks for.
        checked: Result<Value, Failure>,
    },
    /// The records of an agent were folded, or could not be.
    Folded(AgentId),
    /// Stop the run, a task or an agent with its children.
    Cancel {
        /// The number by which the answer is known.
        request: u64,
        /// The part of the run that is meant.
        target: CancelTarget,
        /// Why, for the records.
        reason: String,
    },
    /// Compact an agent's context at its next turn boundary.
    Compact {
        /// The number by which the answer is known.
        request: u64,
        /// The agent.
        agent: AgentId,
        /// What the summary should preserve.
        focus: Option<String>,
    },
    /// Stop now so that the run can be resumed.
    Interrupt {
        /// Why, for the records.
        reason: String,
    },
    /// The disk has no more room for new work, or has it again.
    Disk(Room),
    /// A timer of the run is due.
    Wake,
    /// The journal cannot be written.
    JournalFailed(JournalError),
}
