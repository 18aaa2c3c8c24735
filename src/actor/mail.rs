//! What the supervisor is told, and what it answers.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::event::{RunCompleted, SharedRecord};
use crate::failure::Failure;
use crate::id::{AgentId, CallKey, Name};
use crate::journal::JournalError;
use crate::journal::agent_records::AgentRecords;
use crate::journal::room::Room;
use crate::message::Usage;
use crate::output::Output;
use crate::turn::Outcome;

/// What the supervisor is told.
#[derive(Debug)]
pub enum SupervisorMsg {
    /// Records are durable: those of one commit batch, in order.
    Committed(Vec<SharedRecord>, OwnedSemaphorePermit),
    /// An agent gives a job to a child.
    Delegate(Delegation),
    /// An agent whose children have ended wants to go on.
    TakeSlot {
        /// The agent.
        agent: AgentId,
        /// Answered when it may.
        reply: oneshot::Sender<()>,
    },
    /// A task's answer was checked and written where it is wanted.
    Settled {
        /// The task.
        task: Name,
        /// The output and its value for templates, or why it is not what the task asks for.
        result: Result<(Output, serde_json::Value), Failure>,
    },
    /// The pause before a task's next attempt is over.
    RetryNow(Name),
    /// A task's attempt has used up its time.
    TaskDeadline {
        /// The task.
        task: Name,
        /// The attempt.
        attempt: u32,
    },
    /// The run has used up its time.
    RunDeadline,
    /// The records of a crashed agent were read.
    Rebuilt {
        /// The agent.
        agent: AgentId,
        /// Its records.
        records: Result<AgentRecords, JournalError>,
    },
    /// Stop the run, a task or an agent with its children.
    Cancel {
        /// What; nothing named means the run.
        target: CancelTarget,
        /// Why, for the records.
        reason: String,
        /// Answered with whether the target exists.
        reply: oneshot::Sender<bool>,
    },
    /// Compact an agent now.
    Compact {
        /// The agent.
        agent: AgentId,
        /// What to preserve.
        focus: Option<String>,
        /// Answered with whether the agent is at work.
        reply: oneshot::Sender<bool>,
    },
    /// Stop now so that the run can be resumed.
    Interrupt {
        /// Why, for the records.
        reason: String,
    },
    /// The disk has no more room for new work, or has it again.
    Room(Room),
    /// The record of a pause has had its time.
    PauseOverdue,
    /// The journal cannot be written.
    JournalFailed(JournalError),
}

/// What is to be cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelTarget {
    /// Everything.
    Run,
    /// A task.
    Task(Name),
    /// An agent and its children.
    Agent(AgentId),
}

/// A job for a child.
#[derive(Debug)]
pub struct Delegation {
    /// Who asks.
    pub parent: AgentId,
    /// The task that both work for.
    pub task: Name,
    /// The child's depth.
    pub depth: u32,
    /// The call that asks; the same call asks for the same child.
    pub key: CallKey,
    /// The child's definition.
    pub agent: Name,
    /// What it is to do.
    pub prompt: String,
    /// Answered when the child has ended.
    pub reply: ChildReply,
}

/// Where a parent waits for its child.
pub type ChildReply = oneshot::Sender<Result<ChildResult, Refused>>;

/// How a child ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildResult {
    /// The child.
    pub agent: AgentId,
    /// How it ended.
    pub outcome: Outcome,
    /// Its model calls.
    pub turns: u32,
    /// Its tokens, those of its own children included.
    pub usage: Usage,
}

/// A delegation that was not accepted, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// How a run ended for the process that drove it.
#[derive(Clone, Debug)]
pub enum RunEnd {
    /// `run.completed` is recorded.
    Completed(RunCompleted),
    /// `run.paused` is recorded; the run can be resumed.
    Paused(String),
    /// The journal cannot be written; nothing after its last batch counts.
    JournalFailed(JournalError),
    /// A bug: the state refused a record.
    Broken(String),
}

impl RunEnd {
    /// The output of a task, if the run came to its end and the task completed.
    #[must_use]
    pub fn output(&self, task: &str) -> Option<&str> {
        match self {
            Self::Completed(completed) => completed.tasks.get(task)?.get("output")?.as_str(),
            Self::Paused(_) | Self::JournalFailed(_) | Self::Broken(_) => None,
        }
    }
}
