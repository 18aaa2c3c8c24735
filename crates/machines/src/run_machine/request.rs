//! What an agent may ask of its run, and what the run replies.
//!
//! Plain data. A request has an id; a request that is repeated, by a successor of the agent too, has
//! the same one and gets the same reply. Each kind is a line of the table below: the data of the
//! wish, and the type of the reply.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::{AgentId, CallKey, Name};
use crate::message::{Json, Usage};
use crate::messages::{MessageId, Queued};
use crate::run_state::Doing;
use crate::run_state::questions::Answered;
use crate::spec::budget::{Amount, Caps};
use crate::spec::{AgentSpec, Price, TaskSpec};
use crate::spending::Usd;
use crate::turn::Outcome;
use crate::turn::question::ApprovalAsked;

macro_rules! requests {
    ($($(#[doc = $doc:literal])* $kind:ident($wish:ty) -> $reply:ty;)*) => {
        /// What an agent wishes of its run.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Wish { $($(#[doc = $doc])* $kind($wish),)* }

        /// What the run replies to a wish of the same name.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Reply { $($(#[doc = $doc])* $kind($reply),)* }

        /// The kind of a wish and of its reply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[doc = $doc])* $kind,)* }

        impl Wish {
            /// Returns its kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }
        }

        impl Reply {
            /// Returns the kind of the wish to which it replies.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }
        }

        $(impl Asks for $wish {
            type Reply = $reply;
            const KIND: Kind = Kind::$kind;

            fn wish(self) -> Wish {
                Wish::$kind(self)
            }

            fn taken_from(reply: Reply) -> Option<$reply> {
                match reply { Reply::$kind(reply) => Some(reply), _ => None }
            }
        })*
    };
}

requests! {
    /// A child that does a job.
    Child(Delegation) -> Result<ChildReply, Refused>;
    /// The answer of a person.
    Person(Ask) -> Answered;
    /// Further tasks in the plan.
    Tasks(Proposal) -> Result<(), Refused>;
    /// The agent's slot, which it gave back to wait.
    Slot(SlotBack) -> ();
    /// A reservation for a call of a model.
    Money(Reservation) -> Allowance;
    /// A message to another agent.
    Message(Letter) -> Result<Queued, Refused>;
    /// The agents to which it may send messages.
    Agents(ListAgents) -> Vec<Listed>;
    /// The end of children in the background, or a message.
    Wait(ChildWait) -> Result<Waited, Refused>;
    /// How far a child is.
    Look(ChildLook) -> Result<Seen, Refused>;
    /// The end of a child.
    Stop(ChildStop) -> Result<AgentId, Refused>;
    /// The end of its own work, now that it has answered.
    Leave(Leave) -> ();
}

/// The data of a wish, which knows the type of the reply.
pub trait Asks {
    /// The reply.
    type Reply;
    /// The kind of the wish.
    const KIND: Kind;

    /// Makes the wish.
    fn wish(self) -> Wish;

    /// Returns the reply to such a wish.
    fn taken_from(reply: Reply) -> Option<Self::Reply>;
}

/// A request of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The agent.
    pub from: AgentId,
    /// Its task.
    pub task: Name,
    /// The id, which no other request of the agent and of this kind has.
    pub id: String,
    /// The wish.
    pub wish: Wish,
}

/// A job for a child agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    /// The child's delegation depth; a task's own agent is at 0.
    pub depth: u32,
    /// The `delegate` call. The same call always gets the same child.
    pub call: CallKey,
    /// The child's agent definition.
    pub agent: Name,
    /// The child's first user message.
    pub prompt: String,
    /// The longest time that the child may take, with all that works for it.
    pub timeout: Option<Duration>,
    /// JSON Schema that its answer must fit.
    pub output_schema: Option<Json>,
    /// The most that the child may spend, with all that works for it.
    #[serde(default)]
    pub budget: Option<Caps>,
    /// True if the parent does not wait for its result.
    #[serde(default)]
    pub background: bool,
    /// The name by which the parent calls it.
    #[serde(default)]
    pub name: Option<Name>,
    /// The child that has ended and goes on with this prompt, as the parent wrote it.
    #[serde(default)]
    pub continues: Option<String>,
}

/// A question for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask(pub ApprovalAsked);

/// The tasks that an agent proposes for the run, and that may be added.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The `propose_tasks` call. Its tasks are added once.
    pub call: CallKey,
    /// The tasks as the agent wrote them.
    pub text: String,
    /// The tasks.
    pub tasks: Vec<TaskSpec>,
    /// The agent definitions that are theirs alone.
    pub agents: Vec<Arc<AgentSpec>>,
    /// The texts of the files that they name and that were not recorded before, by path.
    pub files: BTreeMap<String, String>,
    /// True if no person was asked about them.
    pub unasked: bool,
}

/// An agent whose wait is over asks for its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotBack;

/// What a call of a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A turn of an agent.
    Turn,
    /// The last reply of an agent, which hands over what there is.
    HandOver,
    /// A summary.
    Summary,
}

impl Purpose {
    /// Returns true if the call is for a summary. An agent has at most one such call under way, and one other.
    #[must_use]
    pub fn is_summary(self) -> bool {
        self == Self::Summary
    }
}

/// Tokens that the results of one turn may add to a last reply's request, if they are not known yet: the results of
/// some calls, whose longer ones are cut. Where they have more, the agent may end without a last reply.
const RESULT_TOKENS: u64 = 4_096;

/// The most output tokens of a last reply: some 700 words.
pub const LAST_OUTPUT_TOKENS: u64 = 1_024;

/// An agent asks whether a call of a model may be made, and with how long a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// What the call is for.
    pub purpose: Purpose,
    /// The model.
    pub model: Name,
    /// The most tokens of the request.
    pub input_tokens: u64,
    /// The most tokens of the reply.
    pub max_output_tokens: u64,
    /// The prices of the model; `None` if nobody knows them.
    pub price: Option<Price>,
    /// The most requests that it makes without asking again.
    pub requests: u64,
}

impl Reservation {
    /// Returns the most that the call can take with so much output. `factor` multiplies the input, in hundredths.
    /// With `last`, it is the most that it can take together with a last reply after it.
    #[must_use]
    pub fn takes(&self, output: u64, factor: u32, last: bool) -> Amount {
        let scaled = u128::from(self.input_tokens) * u128::from(factor) / 100;
        let input = u64::try_from(scaled).unwrap_or(u64::MAX);
        let one = self.of_request(input, output);
        let mut all = Amount::default();
        for _ in 0..self.requests {
            all += one;
        }
        if last {
            let after = input.saturating_add(output).saturating_add(RESULT_TOKENS);
            all += self.of_request(after, LAST_OUTPUT_TOKENS);
        }
        all
    }

    fn of_request(&self, input: u64, output: u64) -> Amount {
        let cost = self.price.map(|price| Usd::at_most_dollars(price.most(input, output)));
        let tokens = input.saturating_add(output);
        Amount { cost: cost.unwrap_or(Usd::MOST), tokens, calls: 1 }
    }
}

/// Whether a call may be made.
#[derive(Clone, Debug, PartialEq)]
pub enum Allowance {
    /// It may.
    Granted {
        /// The most tokens of the reply.
        max_output_tokens: u64,
        /// True if the agent gave up its slot while it waited.
        without_slot: bool,
    },
    /// It may not: a budget is used up.
    Refused {
        /// The failure with which an agent ends for it.
        failure: Failure,
        /// True if the agent gave up its slot while it waited.
        without_slot: bool,
    },
}

/// A message that an agent sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The recipient, as the agent wrote it: an id, `parent`, or the last part of the id of a child.
    pub to: String,
    /// The text.
    pub text: String,
    /// The message that it answers, if it says so.
    pub reply_to: Option<MessageId>,
}

/// An agent asks to which agents it may send messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListAgents;

/// An agent that reads messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The agent.
    pub agent: AgentId,
    /// Its definition.
    pub definition: Name,
    /// Number of its replies so far.
    pub turn: u32,
    /// Number of messages that wait for it.
    pub waiting: usize,
}

/// An agent waits for children in the background, and for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildWait {
    /// The children, as the agent wrote them; empty: all that work in the background.
    pub names: Vec<String>,
    /// True to wait until all of them have ended.
    pub all: bool,
    /// The longest wait.
    pub timeout: Duration,
}

/// The end of such a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// The children of those waited for that have ended. The messages with their results came before this.
    pub ended: Vec<AgentId>,
    /// Those that still work.
    pub working: Vec<AgentId>,
    /// True if a message of somebody else waits.
    pub mail: bool,
    /// True if the time is over.
    pub late: bool,
}

/// An agent asks how far a child is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildLook {
    /// The child, as the agent wrote it.
    pub name: String,
}

/// How far a child is.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// It has ended.
    Ended(ChildResult),
    /// It works.
    Working {
        /// The child.
        agent: AgentId,
        /// Its turn.
        turn: u32,
        /// What it does.
        doing: Doing,
        /// Tokens that it and its children have used.
        usage: Usage,
    },
}

/// An agent stops a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildStop {
    /// The child, as the agent wrote it.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// An agent that has answered asks whether it may end. If children still work for it, a message that says so comes
/// before the reply, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave;

/// The reply to a `delegate` call.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildReply {
    /// The child has begun and works in the background.
    Begun(AgentId),
    /// It has ended.
    Ended(ChildResult),
}

/// The result of a child that has ended, after all agents that worked for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildResult {
    /// The child.
    pub agent: AgentId,
    /// Its outcome.
    pub outcome: Outcome,
    /// Number of its model calls that gave a reply.
    pub turns: u32,
    /// Tokens that it used, those of its own children included.
    pub usage: Usage,
}

/// The reason why a request was refused, for the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused(pub String);
