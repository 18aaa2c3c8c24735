//! The vocabulary of the run machine: what it asks for, and what it is told.
//!
//! Plain data without handles, ports or paths, so that whoever performs an action or answers for
//! an agent may be in another task, in a test, or on another machine.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Draft, RunCompleted, SharedRecord};
use crate::id::{AgentId, CallKey, Name};
use crate::message::Usage;
use crate::output::Output;
use crate::turn::Outcome;

/// Something that the performer of a [`RunMachine`](super::RunMachine) does next.
///
/// Actions are performed in the order in which they are given. None of them is answered at once:
/// what comes of an action is told to the machine as an input of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Appends events to the journal, in this order and within one commit batch. They come back by
    /// [`committed`](super::RunMachine::committed).
    Record(Vec<Draft>),
    /// Starts the actor of an agent whose first record this is.
    Spawn {
        /// The agent.
        agent: AgentId,
        /// Its `agent.spawned`.
        born: SharedRecord,
    },
    /// Folds the records of an agent that has no actor, beside the mailbox. Answered by
    /// [`agent_folded`](super::RunMachine::agent_folded).
    Fold(AgentId),
    /// Starts the actor of an agent whose records were folded.
    Start(AgentId),
    /// Tells an agent's actor to end with this outcome. The agent records its end.
    End {
        /// The agent.
        agent: AgentId,
        /// The outcome that it records.
        outcome: Outcome,
    },
    /// Ends an agent's actor at once, whatever it is doing.
    Kill(AgentId),
    /// Records the ends of agents that have no actor and get none, after the results of the calls
    /// that they left open.
    EndIdle(Vec<(AgentId, Outcome)>),
    /// Tells an agent's actor to stop without an outcome: the run is to be resumed later.
    Interrupt(AgentId),
    /// Tells an agent that it has its slot back.
    GrantSlot(AgentId),
    /// Answers an agent's call that gave a job to a child.
    AnswerDelegation {
        /// The agent that made the call.
        parent: AgentId,
        /// The call.
        call: CallKey,
        /// How the child ended, or why there is none.
        answer: Result<ChildResult, Refused>,
    },
    /// Checks the form of an output and writes it where the task wants it, beside the mailbox.
    /// Answered by [`output_checked`](super::RunMachine::output_checked).
    CheckOutput {
        /// The task.
        task: Name,
        /// The output.
        output: Output,
        /// The values that the template of `output_file` may name.
        values: Value,
    },
    /// Lets no agent begin a step: the disk is full.
    HoldSteps,
    /// Lets agents begin steps again.
    AllowSteps,
    /// Ends the run for this process.
    Finish(Finish),
}

/// How a run ends for the process that drives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Finish {
    /// `run.completed` is recorded.
    Completed(RunCompleted),
    /// `run.paused` is recorded, for this reason; the run can be resumed.
    Paused(String),
    /// The disk is full and stayed so: not even a pause could be recorded.
    DiskFull,
    /// The records contradict each other: a bug.
    Broken(String),
}

/// A job that an agent gives to a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    /// The agent that asks.
    pub parent: AgentId,
    /// The task that both work for.
    pub task: Name,
    /// The child's delegation depth; a task's own agent is at 0.
    pub depth: u32,
    /// The call that asks. The same call always asks for the same child.
    pub call: CallKey,
    /// The child's definition.
    pub agent: Name,
    /// The child's first user message.
    pub prompt: String,
}

/// How a child ended, with all that worked for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildResult {
    /// The child.
    pub agent: AgentId,
    /// Its outcome.
    pub outcome: Outcome,
    /// The number of its model calls that gave a reply.
    pub turns: u32,
    /// Its tokens, those of its own children included.
    pub usage: Usage,
}

/// The reason why a delegation was refused, for the model that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused(pub String);

/// The part of a run that is to be cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelTarget {
    /// All of it.
    Run,
    /// A task.
    Task(Name),
    /// An agent with all agents that work for it.
    Agent(AgentId),
}
