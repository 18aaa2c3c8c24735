//! The mail of a run's actors.
//!
//! Between actors it is plain data: no reply port, no permit, no handle and no local path, so that a
//! message can be answered from another task or, later, from another machine. A question carries a
//! key; its answer comes back as mail with the same key (see [`replies`](super::replies)).

use serde_json::Value;

use super::summary::{SummaryAnswer, SummaryJob};
use crate::admission::CallEnd;
use crate::event::SharedRecord;
use crate::failure::Failure;
use crate::id::{AgentId, CallKey, Name};
use crate::journal::JournalError;
use crate::journal::disk_space::DiskSpace;
use crate::run_machine::{CancelTarget, ChildResult, Delegation, Refused};
use crate::turn::Outcome;

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
    /// The pause before the restart of a serving actor is over.
    StartService(usize),
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
    Disk(DiskSpace),
    /// A timer of the run is due.
    Wake,
    /// The journal cannot be written.
    JournalFailed(JournalError),
}

/// The mail of an agent.
#[derive(Debug)]
pub enum AgentMsg {
    /// Begin, or go on where the records end.
    Go,
    /// A step of its own has ended.
    StepDone {
        /// The step; an older one is ignored.
        step: u64,
        /// The records that it made, or why it could not.
        result: Result<Vec<SharedRecord>, StepError>,
    },
    /// End with this outcome as soon as the step under way has let go.
    End(Outcome),
    /// Stop without an outcome: the run is to be resumed later.
    Interrupt,
    /// A child has ended, or was refused.
    ChildEnded {
        /// The call that asked for it.
        call: CallKey,
        /// How it ended, or why there is none.
        answer: Result<ChildResult, Refused>,
    },
    /// The agent has its slot back.
    SlotGranted,
    /// A model call may start.
    Admitted(u64),
    /// The gateway of a provider was restarted and asks whether a call is still under way.
    IsUnderWay(CallId, Name),
    /// A summary was written, or was not.
    SummaryEnded {
        /// The number under which it was asked for.
        number: u64,
        /// The summary, or why there is none.
        answer: Box<SummaryAnswer>,
    },
    /// Compact at the next turn boundary.
    Compact {
        /// What the summary should preserve.
        focus: Option<String>,
    },
    /// The summary that the agent has written ahead has ended.
    Summarised {
        /// Which one; another is ignored.
        number: u64,
        /// The summary, or why there is none.
        answer: Box<SummaryAnswer>,
    },
    /// The step under way had its grace.
    GraceOver {
        /// The step.
        step: u64,
    },
}

/// A step of an agent that did not come to its end.
#[derive(Clone, Debug)]
pub enum StepError {
    /// The agent was told to end.
    Cancelled,
    /// The step panicked: the text says how.
    Crashed(String),
    /// The journal failed.
    Journal(JournalError),
}

impl From<JournalError> for StepError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// The mail of a gateway.
#[derive(Debug)]
pub enum GatewayMsg {
    /// A call wants to start.
    Ask(CallId),
    /// A call has ended, or wants to start no more.
    Done(CallId, CallEnd),
    /// A pause may be over.
    Wake,
}

/// A call to a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    /// Who makes it.
    pub caller: Caller,
    /// Its number, which the caller gives once.
    pub number: u64,
}

/// An actor that makes calls to providers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// An agent.
    Agent(AgentId),
    /// The compactor.
    Compactor,
}

/// The mail of the compactor.
#[derive(Debug)]
pub enum CompactorMsg {
    /// Write a summary.
    Summarise(Box<SummaryJob>),
    /// Nobody waits for the summary of this number any more.
    Withdraw(AgentId, u64),
    /// An agent waits by now for what it asked for ahead of need.
    Hurry(AgentId),
    /// A worker has ended: its result is in the compactor's books.
    WorkerEnded,
    /// A model call may start.
    Admitted(u64),
    /// The gateway of a provider was restarted and asks whether a call is still under way.
    IsUnderWay(CallId, Name),
}
