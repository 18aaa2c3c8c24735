//! What an agent may ask of its run, and what the run replies.
//!
//! Plain data. A request has an id; a request that is repeated, by a successor of the agent too, has
//! the same one and gets the same reply. Each kind is a line of the table below: the data of the
//! wish, and the type of the reply.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, CallKey, Name};
use crate::message::{Json, Usage};
use crate::run_state::questions::Answered;
use crate::spec::{AgentSpec, TaskSpec};
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
    Child(Delegation) -> Result<ChildResult, Refused>;
    /// The answer of a person.
    Person(Ask) -> Answered;
    /// Further tasks in the plan.
    Tasks(Proposal) -> Result<(), Refused>;
    /// The agent's slot, which it gave back to wait.
    Slot(SlotBack) -> ();
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
