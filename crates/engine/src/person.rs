//! The people beside a run, as a program sees them: who answers its questions, and who watches its replies.
//!
//! The actors call them; a terminal and an embedding program are them. Nothing here decides.

use serde::{Deserialize, Serialize};

use crate::id::AgentId;
use crate::message::Json;
use crate::model::{BoxFuture, Delta};
use crate::permission::Subject;
use crate::tool::Change;
use crate::tool::basis::Script;
use crate::tool::printing::Printed;
use crate::turn::question::ApprovalAnswered;

/// The answer of a person to a question about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// True if the call may run.
    pub allowed: bool,
    /// The reason of a no, which the agent reads.
    pub reason: Option<String>,
}

impl From<bool> for Consent {
    fn from(allowed: bool) -> Self {
        Self { allowed, reason: None }
    }
}

/// Asks a person whether a tool call may run.
pub trait Asker: Send + Sync + std::fmt::Debug {
    /// Asks, and waits for the answer: true if the call may run. The future may be dropped: then
    /// nobody waits for the answer any more.
    fn ask(&self, question: Question) -> BoxFuture<'_, bool>;

    /// Does the same, with the reason of a no. This is what a run calls; by default the answer of [`ask`](Self::ask)
    /// has no reason.
    fn consent(&self, question: Question) -> BoxFuture<'_, Consent> {
        Box::pin(async move { self.ask(question).await.into() })
    }

    /// Returns the name of the person, for the records.
    fn who(&self) -> String {
        "terminal".to_owned()
    }

    /// Takes that somebody else answered a question of this agent first.
    fn answered_elsewhere(&self, agent: &AgentId, answer: &ApprovalAnswered) {
        let _ = (agent, answer);
    }
}

/// Watches the replies of models while they arrive, and commands while they print. What it sees is not recorded: a
/// reply that breaks off may come again.
pub trait Watcher: Send + Sync + std::fmt::Debug {
    /// Takes a part of a reply. Called within the model call, so it must not block.
    fn arrived(&self, agent: &AgentId, delta: Delta<'_>);

    /// Handles the end of the reply: no more parts of it come.
    fn ended(&self, agent: &AgentId);

    /// Returns true if it wants to see what commands print while they run.
    fn watches_commands(&self) -> bool {
        false
    }

    /// Takes the next lines that a command of the agent printed. Called while the output is read, so it must not
    /// block.
    fn printed(&self, agent: &AgentId, printed: &Printed) {
        let _ = (agent, printed);
    }
}

/// A question to a person: may this call run? Everything in it may be hostile text of a model.
#[derive(Clone, Debug)]
pub struct Question {
    /// The agent that wants to make the call.
    pub agent: AgentId,
    /// The tool.
    pub tool: String,
    /// The arguments, as the model wrote them.
    pub input: Json,
    /// The texts that the rules judge, such as a command and its parts, or a path.
    pub texts: Vec<String>,
    /// What the call does, as the rules see it; [`Question::command`] is the whole of it for a command.
    #[doc(hidden)]
    pub subject: Subject,
    /// The rule that asks; `None` if no rule allows the call.
    pub rule: Option<String>,
    /// The change that the call would make to a file, if its tool can tell.
    pub change: Option<Change>,
    /// The files of the workspace that the call would run.
    pub scripts: Vec<Script>,
    /// What else decides what the call would run, and may change before it does, in words for a person.
    pub unbound: Vec<String>,
}

impl Question {
    /// Returns the whole command that the call would run, if it would run one.
    #[must_use]
    pub fn command(&self) -> Option<&str> {
        self.subject.whole.as_deref()
    }
}

/// All that a call would do, as a question records it for whoever answers from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedCall {
    /// The tool.
    pub tool: String,
    /// The arguments, as the model wrote them.
    pub input: Json,
    /// The texts that the rules judge.
    pub texts: Vec<String>,
    /// The whole command that the call runs, if it runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The rule that asks.
    pub rule: Option<String>,
    /// The change that the call would make to a file.
    pub change: Option<Change>,
    /// The files of the workspace that the call would run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<Script>,
    /// What else decides what the call would run, and may change before it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unbound: Vec<String>,
}

impl AskedCall {
    /// Returns the effect of the call that a question is about.
    #[must_use]
    pub fn of(question: &Question) -> Self {
        let question = question.clone();
        let Question { tool, input, texts, subject, rule, change, scripts, unbound, .. } = question;
        Self { tool, input, texts, command: subject.whole, rule, change, scripts, unbound }
    }

    /// Returns the question of an agent about a call with this effect, to show it.
    #[must_use]
    pub fn asked_by(self, agent: AgentId) -> Question {
        let Self { tool, input, texts, command, rule, change, scripts, unbound } = self;
        let subject = Subject { whole: command, ..Subject::default() };
        Question { agent, tool, input, texts, subject, rule, change, scripts, unbound }
    }
}
