//! The mail of a run's actors.
//!
//! Mail between actors is plain data: it holds no reply port, permit or handle, and a local path
//! only within an error, for people. So a message can be answered from another task or, later, from
//! another machine. A question carries a key; its answer comes back as mail with the same key (see [`replies`](super::replies)).

use std::time::Duration;

use super::pulse::Subject;
use super::summary::{SummaryAnswer, SummaryJob};
use crate::admission::{Allowance, CallEnd};
use crate::event::SharedRecord;
use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::journal::disk_space::DiskSpace;
use crate::messages::MessageSent;
use crate::output::Output;
pub use crate::run_machine::evaluation::Evaluated;
use crate::run_machine::{CancelTarget, Haste, Kind, NotSent, Reply, Request};
use crate::spec::hooks::HookFinished;
use crate::template::Known;
use crate::turn::Outcome;
use crate::turn::question::PersonsAnswer;

/// The mail of the supervisor.
#[derive(Debug)]
pub enum SupervisorMsg {
    /// Records became durable; they wait in the supervisor's feed.
    News,
    /// An agent asks something of the run, or asks it again.
    Request(Box<Request>),
    /// A person answers a question.
    Answer {
        /// The number by which what became of the answer is known; `None` if nobody wants to know.
        request: Option<u64>,
        /// The answer.
        answer: PersonsAnswer,
    },
    /// A notification command has ended.
    Notified,
    /// The output of a task was checked, and written to the task's `output_file` if it has one.
    OutputChecked {
        /// The task.
        task: Name,
        /// The value of the output for templates with the output as it is recorded, or why the output
        /// is not what the task declares.
        checked: Result<(Known, Output), Failure>,
    },
    /// Templates of a task were evaluated.
    Evaluated {
        /// The task.
        task: Name,
        /// Number of the evaluation.
        number: u64,
        /// The result, or the failure of the task.
        result: Box<Result<Evaluated, Failure>>,
    },
    /// The answer of a child was compared with the schema that it must fit.
    AnswerCompared {
        /// The child.
        agent: AgentId,
        /// Why it does not fit, if it does not.
        fits: Result<(), Failure>,
    },
    /// An attempt to send a notice has ended.
    NoticeSent {
        /// The id of the notice.
        id: String,
        /// Why it was not taken, if it was not.
        sent: Result<(), NotSent>,
    },
    /// A hook of the run has ended.
    HookEnded(HookFinished),
    /// The fold of an agent's records is done or has failed: its result is in the supervisor's
    /// state.
    Folded(AgentId),
    /// All calls of an agent's step have waited for others for some time: it could do without its actor.
    WantsRest(AgentId),
    /// An agent that was told to rest does not: an answer came first.
    StaysUp(AgentId),
    /// The pause before the restart of a serving actor is over; the number is its place in the
    /// supervisor's list.
    StartService(usize),
    /// Cancel the run, a task, or an agent with its children.
    Cancel {
        /// The number by which the answer is known.
        request: u64,
        /// The part of the run to cancel.
        target: CancelTarget,
        /// The reason, for the records.
        reason: String,
    },
    /// Compact an agent's context at its next turn boundary.
    Compact {
        /// The number by which the answer is known.
        request: u64,
        /// The agent.
        agent: AgentId,
        /// Text that says what the summary should preserve.
        focus: Option<String>,
    },
    /// Interrupt the run now, so that it can be resumed.
    Interrupt {
        /// The reason, for the records.
        reason: String,
    },
    /// The disk became full, or has space for new work again.
    Disk(DiskSpace),
    /// A timer of the run is due.
    Wake,
    /// Work that the supervisor cannot do without has crashed.
    HelperCrashed(String),
    /// The journal cannot be written.
    JournalFailed(JournalError),
}

impl SupervisorMsg {
    /// Returns what the message is about, for people: a task, an agent, or words.
    pub(super) fn subject(&self) -> Subject {
        fn work(work: &impl ToString) -> Subject {
            Subject::Work(work.to_string())
        }
        match self {
            Self::Request(request) if request.wish.kind() == Kind::Person => {
                Subject::Other("a question")
            }
            Self::Request(request) => work(&request.from),
            Self::Folded(agent)
            | Self::WantsRest(agent)
            | Self::StaysUp(agent)
            | Self::Compact { agent, .. } => work(agent),
            Self::OutputChecked { task, .. } | Self::Evaluated { task, .. } => work(task),
            Self::AnswerCompared { agent, .. } => work(agent),
            Self::News => Subject::Other("what was recorded"),
            Self::Answer { .. } => Subject::Other("a question"),
            Self::Cancel { .. } => Subject::Other("a cancellation"),
            Self::Interrupt { .. } => Subject::Other("an interruption"),
            Self::Wake => Subject::Other("a time limit"),
            Self::HookEnded(_) => Subject::Other("a hook"),
            Self::Notified | Self::NoticeSent { .. } => Subject::Other("a notification"),
            Self::StartService(_) => Subject::Other("a service"),
            Self::Disk(_) | Self::HelperCrashed(_) | Self::JournalFailed(_) => {
                Subject::Other("the journal")
            }
        }
    }
}

/// The mail of an agent.
#[derive(Debug)]
pub enum AgentMsg {
    /// Begin, or resume where the records end.
    Go,
    /// A step of the agent has ended.
    StepDone {
        /// The number of the step; a step that is not the current one is ignored.
        step: u64,
        /// The records of the step, or why it has none.
        result: Result<Vec<SharedRecord>, StepError>,
    },
    /// End with this outcome as soon as the step in progress has ended or was given up.
    End(Outcome),
    /// Stop without an outcome, because the run is to be resumed later.
    Interrupt(Haste),
    /// The run replies to a request of the agent.
    Reply {
        /// The id of the request.
        id: String,
        /// The reply.
        reply: Box<Reply>,
    },
    /// Give up the actor if all calls of the step still wait for others. It is the last mail of the supervisor
    /// for this actor, unless the agent says that it stays up.
    Rest,
    /// A model call may start.
    Admitted(u64),
    /// The gateway of a provider was restarted and asks whether a call is still in progress.
    IsUnderWay(CallId, Name),
    /// The compactor has written a summary, or failed to write it.
    SummaryEnded {
        /// The number of the request for the summary.
        number: u64,
        /// The summary, or why there is none.
        answer: Box<SummaryAnswer>,
    },
    /// Compact at the next turn boundary.
    Compact {
        /// Text that says what the summary should preserve.
        focus: Option<String>,
    },
    /// A message for the agent is durable. It may have read it in its records.
    Message(Box<MessageSent>),
    /// The task that waits for a summary written ahead has ended.
    Summarised {
        /// The number of the summary; one that is not the current one is ignored.
        number: u64,
        /// The summary, or why there is none.
        answer: Box<SummaryAnswer>,
    },
    /// The grace period of the step in progress is over.
    GraceOver {
        /// The step.
        step: u64,
    },
}

/// The reason why a step of an agent did not complete.
#[derive(Clone, Debug)]
pub enum StepError {
    /// The agent must end.
    Cancelled,
    /// The step panicked; the text is the panic's message.
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
    /// A call of about this many tokens asks for a permit after this pause of its own.
    Ask(CallId, u64, Duration),
    /// The provider has taken a call; its headers tell this of its limits.
    Taken(CallId, Allowance),
    /// A call has ended, or was dropped before it had a permit.
    Done(CallId, CallEnd),
    /// A pause may be over.
    Wake,
}

/// A call to a provider.
///
/// Calls are admitted in the order of their ids: an attempt after a failure has the place of the first
/// one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// Number of the first attempt of the same call.
    pub since: u64,
    /// Number of the attempt; each is used once in a run of this process.
    pub number: u64,
    /// The actor that makes the call.
    pub caller: Caller,
}

/// An actor that makes calls to providers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Nobody waits any longer for the summary with this agent and number.
    Withdraw(AgentId, u64),
    /// An agent now waits for the summary that it asked for ahead of need.
    Hurry(AgentId),
    /// A worker has ended; its result is in the compactor's books.
    WorkerEnded,
    /// A model call may start.
    Admitted(u64),
    /// The gateway of a provider was restarted and asks whether a call is still in progress.
    IsUnderWay(CallId, Name),
}
