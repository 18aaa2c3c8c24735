//! The data that goes out of the run machine: its actions.
//!
//! Plain data without handles, ports or paths, so that the performer of an action, and the agent
//! that answers it, may be in another task, in a test, or on another machine.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::evaluation::Evaluation;
use super::request::Reply;
use crate::event::{Draft, RunCompleted, RunPaused, SharedRecord};
use crate::id::{AgentId, Name};
use crate::message::Json;
use crate::messages::MessageSent;
use crate::output::Output;
use crate::run_state::questions::Question;
use crate::spec::AgentSpec;
use crate::spec::hooks::Hook;
use crate::spec::notices::NoticeIntended;
use crate::template::Known;
use crate::turn::Outcome;
use crate::turn::question::AnswerOutcome;

/// An action that the performer of a [`RunMachine`](super::RunMachine) carries out next.
///
/// Actions are performed in the order in which they are given. None of them returns a result: its
/// outcome is reported to the machine as a separate input.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Appends events to the journal, in this order and within one batch. The records come back
    /// through [`committed`](super::RunMachine::committed).
    Record(Vec<Draft>),
    /// Starts the actor of a new agent.
    Spawn {
        /// The agent.
        agent: AgentId,
        /// The agent's first record, `agent.spawned`.
        born: SharedRecord,
    },
    /// Folds the records of an agent that has no actor, outside the mailbox. Answered by
    /// [`agent_folded`](super::RunMachine::agent_folded).
    Fold(AgentId),
    /// Starts the actor of an agent whose records were folded.
    Start(AgentId),
    /// Asks an agent's actor to end with this outcome. The agent records its end.
    End {
        /// The agent.
        agent: AgentId,
        /// The outcome that the agent records.
        outcome: Outcome,
    },
    /// Kills an agent's actor at once, whatever it is doing.
    Kill(AgentId),
    /// Records the ends of agents that have no actor and get none. The results of the calls that
    /// they left open are recorded first.
    EndIdle(Vec<(AgentId, Outcome)>),
    /// Asks an agent's actor to stop without an outcome, because the run is to be resumed later.
    Interrupt(AgentId, Haste),
    /// Replies to a request of an agent.
    Reply {
        /// The agent.
        to: AgentId,
        /// The id of the request.
        id: String,
        /// The reply.
        reply: Reply,
    },
    /// Gives a message to the actor of an agent, or to what is left of it while it rests. One that is in neither
    /// state reads the message in its records.
    Deliver(Box<MessageSent>),
    /// Compares the answer of a child with the schema that it must fit. Answered by
    /// [`answer_compared`](super::RunMachine::answer_compared).
    CompareAnswer {
        /// The child, which has ended.
        agent: AgentId,
        /// Its answer.
        output: Output,
        /// The schema.
        schema: Json,
    },
    /// Adds agent definitions, before anything of their tasks starts.
    Define(Vec<Arc<AgentSpec>>),
    /// Checks the form of an output and writes it to the task's output file, outside the mailbox.
    /// Answered by [`output_checked`](super::RunMachine::output_checked).
    CheckOutput {
        /// The task.
        task: Name,
        /// The output.
        output: Made,
        /// The evaluation of its `output_file`, if it is written to one.
        path: Option<Box<Evaluation>>,
        /// True if the output is accepted when its form is right. Only then it is written to a file.
        is_last: bool,
    },
    /// Evaluates templates of a task, outside the mailbox. Answered by
    /// [`evaluated`](super::RunMachine::evaluated).
    Evaluate(Box<Evaluation>),
    /// Runs a hook of the run, outside the mailbox. Answered by
    /// [`hook_ended`](super::RunMachine::hook_ended).
    RunHook {
        /// The hook.
        hook: Hook,
        /// What it reads of the run.
        input: Value,
    },
    /// Asks the hook that is at work to end. Its end is reported as that of any other.
    EndHook,
    /// Says what became of an answer to the one who gave it.
    TellAnswerer {
        /// The number of the request.
        request: u64,
        /// What became of the answer.
        outcome: AnswerOutcome,
    },
    /// Runs the notification command of an approval. Its end is reported by
    /// [`notified`](super::RunMachine::notified).
    Notify {
        /// The program with its arguments.
        command: Vec<String>,
        /// The question.
        question: Box<Question>,
    },
    /// Sends a notice, outside the mailbox. Answered by [`notice_sent`](super::RunMachine::notice_sent).
    SendNotice(Box<NoticeIntended>),
    /// Makes agents ask for a reservation before each call of a model: spending is limited.
    LimitSpending,
    /// Stops agents from beginning a step, because the disk is full.
    HoldSteps,
    /// Allows agents to begin steps again.
    AllowSteps,
    /// Ends the run for this process.
    Finish(Finish),
}

/// The output of a task that is to be checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// As the agent of the task gave it.
    Whole(Output),
    /// The outputs of the instances of a fan-out, or of the tasks of a sub-graph, which were checked one by
    /// one.
    Parts(Known),
}

impl Made {
    /// Returns the output with its text, in time proportional to its size.
    #[must_use]
    pub fn output(&self) -> Output {
        match self {
            Self::Whole(output) => output.clone(),
            Self::Parts(value) => Output::whole(value.to_json().to_string()),
        }
    }
}

/// The way in which a run ends for the process that drives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Finish {
    /// The run has ended: `run.completed` is recorded.
    Completed(Box<RunCompleted>),
    /// The run can be resumed: `run.paused` is recorded, with this reason.
    Paused(RunPaused),
    /// The disk stayed full, so not even a pause could be recorded.
    DiskFull,
    /// The records contradict each other, which is a bug.
    Broken(String),
}

/// The part of a run that is to be cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelTarget {
    /// The whole run.
    Run,
    /// One task.
    Task(Name),
    /// An agent with all agents that work for it.
    Agent(AgentId),
}

/// When an agent stops that is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// Within the grace period. A reply that is on its way may come: it is paid for.
    WithinGrace,
    /// Once the reply that is on its way has come, however long it takes.
    AfterReply,
}
