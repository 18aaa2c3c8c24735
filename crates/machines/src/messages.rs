//! Messages to agents: from people, from other agents, and from the run.
//!
//! Pure. Owns the payloads of the `message.*` events. A message is durable before its sender reads that it is
//! queued. `message.delivered` is in the batch of the turn whose request holds the message, so each message is in
//! exactly one request, or is returned.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::AgentId;

/// The most bytes of one message: some pages, which a request can show whole.
pub const MESSAGE_BYTES: usize = 16 << 10;

/// The most messages that wait for one agent.
pub const MOST_WAITING: usize = 64;

/// The most bytes of the messages that wait for one agent: those of a turn are read in one piece, and every process
/// that resumes the run reads them again.
pub const MOST_WAITING_BYTES: usize = 256 << 10;

/// The id of a message, written `m17`. A run counts its messages from 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct MessageId(pub u64);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> Self {
        id.to_string()
    }
}

/// A text is no id of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a message, which is `m` and a number")]
pub struct NotAMessageId;

impl From<ParseIntError> for NotAMessageId {
    fn from(_: ParseIntError) -> Self {
        Self
    }
}

impl FromStr for MessageId {
    type Err = NotAMessageId;

    fn from_str(text: &str) -> Result<Self, NotAMessageId> {
        let number = text.strip_prefix('m').ok_or(NotAMessageId)?;
        // `+1` is a number for the parser.
        match number.bytes().all(|byte| byte.is_ascii_digit()) {
            true => Ok(Self(number.parse()?)),
            false => Err(NotAMessageId),
        }
    }
}

impl TryFrom<String> for MessageId {
    type Error = NotAMessageId;

    fn try_from(text: String) -> Result<Self, NotAMessageId> {
        text.parse()
    }
}

/// The sender of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Sender {
    /// A person.
    Person {
        /// The person's process, as `user@host/pid`.
        by: String,
    },
    /// An agent.
    Agent {
        /// The agent.
        agent: AgentId,
    },
    /// The run itself.
    Run,
}

impl Sender {
    /// Returns true if a person sent it. Only such a message is an instruction.
    #[must_use]
    pub fn is_person(&self) -> bool {
        matches!(self, Self::Person { .. })
    }

    /// Returns the agent that sent it, if one did.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Agent { agent } => Some(agent),
            Self::Person { .. } | Self::Run => None,
        }
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person { by } => f.write_str(by),
            Self::Agent { agent } => write!(f, "@{agent}"),
            Self::Run => f.write_str("the run"),
        }
    }
}

/// What a message of the run is about, if the agent goes on for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum About {
    /// A child that worked in the background has ended. The message holds its result.
    ChildEnded {
        /// The child.
        child: AgentId,
    },
    /// The agent has given its answer, and children still work for it.
    ChildrenAtWork,
}

/// `message.sent`: a message waits for the agent to which the record belongs. A message to an agent that the run
/// does not have belongs to the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageSent {
    /// Id of the message. An agent reads its messages in the order of their ids.
    pub id: MessageId,
    /// The recipient.
    pub to: AgentId,
    /// The sender.
    pub from: Sender,
    /// The text.
    pub text: String,
    /// The key of the request to send it: the same request, made again after a crash, sends nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// The message that it answers, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// True if a call of the recipient's model is cut for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
    /// What a message of the run is about, if the recipient goes on for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
}

/// `message.delivered`: messages stand in the request of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageDelivered {
    /// The messages, in the order in which the request holds them.
    pub ids: Vec<MessageId>,
    /// The turn, whose `turn.started` follows in the same batch.
    pub turn: u32,
}

/// `message.returned`: no request holds the message, and none will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageReturned {
    /// The message.
    pub id: MessageId,
    /// Its recipient.
    pub to: AgentId,
    /// The reason, in words.
    pub reason: String,
}

/// A message that is durable and waits, or was returned at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// The message.
    pub id: MessageId,
    /// Its recipient.
    pub to: AgentId,
    /// Number of messages that waited before it.
    pub before: usize,
    /// The reason why it was returned, if it was.
    pub returned: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written() {
        assert_eq!(MessageId(17).to_string(), "m17");
        assert_eq!("m17".parse(), Ok(MessageId(17)));
        for wrong in ["", "17", "m", "m+1", "m-1", "m 1", "M1", "m99999999999999999999"] {
            assert_eq!(wrong.parse::<MessageId>(), Err(NotAMessageId), "{wrong}");
        }
    }

    #[test]
    fn senders_are_written_with_their_kind() {
        let agent = Sender::Agent { agent: AgentId::from_text("a/b-1") };
        let person = Sender::Person { by: "u@h/1".to_owned() };
        for (sender, json, word) in [
            (&agent, r#"{"kind":"agent","agent":"a/b-1"}"#, "@a/b-1"),
            (&person, r#"{"kind":"person","by":"u@h/1"}"#, "u@h/1"),
            (&Sender::Run, r#"{"kind":"run"}"#, "the run"),
        ] {
            assert_eq!(serde_json::to_string(sender).expect("encoded"), json);
            assert_eq!(&serde_json::from_str::<Sender>(json).expect("decoded"), sender);
            assert_eq!(sender.to_string(), word);
        }
    }
}
