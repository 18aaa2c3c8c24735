//! Questions to a person: the calls that need a permission, the approvals of the plan, and what
//! agents ask in words.
//!
//! Pure. Owns the payloads of the `approval.*` events. One mechanism serves all three: a question is
//! recorded when it opens and answered once, whoever answers it and wherever.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::messages::Queued;
use crate::output::Output;

/// The most bytes of a question's message: some pages, which a person still reads.
pub const MESSAGE_BYTES: usize = 16 * 1024;

/// The most answers that a question offers, and the most bytes of one.
pub const CHOICES: (usize, usize) = (20, 1024);

/// The most bytes of one value that an approval shows.
pub const SHOWN_BYTES: usize = 16 * 1024;

/// The most bytes of all values that an approval shows: its record stays small.
pub const ALL_SHOWN_BYTES: usize = 64 * 1024;

/// The most bytes of an answer or of a reason: a request to the owner of a run holds it with room
/// to spare.
pub const ANSWER_BYTES: usize = 16 * 1024;

/// The one who answers when the time of a question is over.
pub const BY_TIMEOUT: &str = "timeout";

/// The kind of a question to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalKind {
    /// May a call of a tool run?
    Permission,
    /// May the plan go on? Asked by a task.
    Approval,
    /// A question in words, asked by an agent.
    Question,
}

impl ApprovalKind {
    /// Returns the kind as it is written in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Approval => "approval",
            Self::Question => "question",
        }
    }
}

/// A value that an approval shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// The expression.
    pub expression: String,
    /// Its value: a text as it is, anything else as JSON.
    pub text: String,
    /// Number of bytes at the end that were left out.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(bytes: &usize) -> bool {
    *bytes == 0
}

/// `approval.asked`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalAsked {
    /// Id of the question: 26 characters, for a permission the key of the call.
    pub id: String,
    /// Kind of the question.
    pub kind: ApprovalKind,
    /// The tool of the call; empty for an approval.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// The question in words; for a permission the tool and its argument.
    pub message: String,
    /// The values that an approval shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<Shown>,
    /// The answers that a question offers. Any other answer is possible too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// The permission rule that wants a person to be asked; absent if there is none, and for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// All that the call would do, as JSON; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Output>,
    /// Wall time in milliseconds since the Unix epoch at which the question answers itself; absent
    /// if it waits for as long as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// Hash of everything that an approval asks about; a later opening keeps the answer if its hash
    /// is equal. Absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl ApprovalAsked {
    /// Creates a question without choices, values or a time limit.
    #[must_use]
    pub fn new(id: impl Into<String>, kind: ApprovalKind, message: &str) -> Self {
        Self {
            id: id.into(),
            kind,
            tool: String::new(),
            message: match bounded(message, MESSAGE_BYTES) {
                (whole, 0) => whole,
                (text, left_out) => format!("{text} [{left_out} bytes more]"),
            },
            shown: Vec::new(),
            choices: Vec::new(),
            rule: None,
            effect: None,
            until_ms: None,
            content: None,
        }
    }
}

/// `approval.answered`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalAnswered {
    /// Id of the question.
    pub id: String,
    /// True if the call may run, the plan may go on, or the question has an answer.
    pub allowed: bool,
    /// The answer in words, or the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The one who answered: `user@host/pid`, or `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl ApprovalAnswered {
    /// Returns true if nobody answered in time.
    #[must_use]
    pub fn is_by_timeout(&self) -> bool {
        self.by.as_deref() == Some(BY_TIMEOUT)
    }
}

/// A person's answer on its way to the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonsAnswer {
    /// Id of the question.
    pub id: String,
    /// True to allow or to answer, false to reject.
    pub allowed: bool,
    /// The answer in words, or the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The one who answers: `user@host/pid`.
    pub by: String,
}

/// The outcome of a person's answer for the one who gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerOutcome {
    /// It is the answer of the question, and durable.
    Counted,
    /// It is a message, and durable.
    Queued(Queued),
    /// It is a message that cannot be sent, for this reason.
    NotSent(String),
    /// Another one came first.
    Late {
        /// The one who gave it.
        by: String,
        /// When, in milliseconds since the Unix epoch.
        at_ms: i64,
        /// True if it allowed or answered.
        allowed: bool,
    },
    /// The run has no such question, or it is no longer open.
    Unknown,
    /// The run is being closed: the answer must be left for the next process.
    Closing,
}

/// Returns the beginning of a text of at most `most` bytes, and the number of bytes left out.
#[must_use]
pub fn bounded(text: &str, most: usize) -> (String, usize) {
    let end = text.floor_char_boundary(most);
    (text[..end].to_owned(), text.len() - end)
}
