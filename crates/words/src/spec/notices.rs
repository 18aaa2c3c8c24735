//! Notices: what a person is told of a run outside of it, by which channel and when, and their records.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, Name};

/// The most bytes of a notice's text: the beginning of a message, which says what to do.
pub const TEXT_BYTES: usize = 2_000;

/// The most bytes of the reason why a notice was not delivered.
pub const ERROR_BYTES: usize = 500;

/// The longest pause between two attempts, whatever the number of attempts.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The kind of state that a notice tells of. This is the whole list.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// An agent asks a person something in words.
    Question,
    /// A call of a tool waits for a permission.
    Permission,
    /// The plan, or a part that an agent proposes, waits for an approval.
    Approval,
    /// The run is paused.
    Paused,
    /// A task has failed and is not tried again.
    Failed,
    /// The run has ended.
    Finished,
    /// For some time nothing of the run has come further.
    Stalled,
    /// The process that drove the run has died, and another one goes on with nobody at its terminal.
    Died,
}

impl NoticeKind {
    /// All kinds, in the order in which they are listed.
    pub const ALL: [Self; 8] = [
        Self::Question,
        Self::Permission,
        Self::Approval,
        Self::Paused,
        Self::Failed,
        Self::Finished,
        Self::Stalled,
        Self::Died,
    ];

    /// Returns the kind as it is written in configurations and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Permission => "permission",
            Self::Approval => "approval",
            Self::Paused => "paused",
            Self::Failed => "failed",
            Self::Finished => "finished",
            Self::Stalled => "stalled",
            Self::Died => "died",
        }
    }
}

impl fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A way in which notices are sent.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// A program of the user.
    Command,
    /// A request to a server.
    Webhook,
    /// The notifications of the desktop.
    Desktop,
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Command => "command",
            Self::Webhook => "webhook",
            Self::Desktop => "desktop",
        })
    }
}

/// When which notices are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticePolicy {
    /// The kinds of states that are told of.
    pub on: BTreeSet<NoticeKind>,
    /// The channels, each of which gets every notice; nothing is told without one.
    pub channels: BTreeSet<Channel>,
    /// The time for which a state must last before it is told of.
    pub after: Duration,
    /// The time without progress after which a run counts as stalled.
    pub stalled_after: Duration,
    /// The longest time for which the end of a process waits for its last notices.
    pub wait: Duration,
    /// The most attempts to deliver a notice.
    pub attempts: u32,
    /// The pause after the first attempt; each further one is twice as long, up to [`LONGEST_PAUSE`].
    pub pause: Duration,
}

impl Default for NoticePolicy {
    /// Every kind of state, and no channel: nothing is sent until one is named.
    ///
    /// A minute, because a person at the terminal has answered by then. Half an hour without progress, because a
    /// build or a slow model seldom takes longer. Half a minute at the end, because a script may wait for it. Twelve
    /// attempts, which are spread over 27 minutes: a server restarts in that time.
    fn default() -> Self {
        Self {
            on: NoticeKind::ALL.into_iter().collect(),
            channels: BTreeSet::new(),
            after: Duration::from_secs(60),
            stalled_after: Duration::from_secs(30 * 60),
            wait: Duration::from_secs(30),
            attempts: 12,
            pause: Duration::from_secs(1),
        }
    }
}

impl NoticePolicy {
    /// Returns true if states of this kind are told of.
    #[must_use]
    pub fn tells_of(&self, kind: NoticeKind) -> bool {
        !self.channels.is_empty() && self.on.contains(&kind)
    }

    /// Returns the pause after attempt number `attempt`, from 1, has failed.
    #[must_use]
    pub fn pause_after(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.pause.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
    }
}

/// Payload of `notice.intended`: all that is sent of a state, but for the run itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoticeIntended {
    /// Id of the notice within the run. It stays the same over attempts and resumes.
    pub id: String,
    /// The kind of state.
    pub kind: NoticeKind,
    /// The channel.
    pub channel: Channel,
    /// What is told of the state, in a word: the cause of a pause, the result of a run, the kind of a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// What is told of the state, for people.
    pub text: String,
    /// The task that asks or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Name>,
    /// The agent that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The id of the question, by which it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Time at which the state began, in milliseconds since the Unix epoch.
    pub since_ms: i64,
}

/// Payload of `notice.delivered`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoticeDelivered {
    /// Id of the notice.
    pub id: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

/// Payload of `notice.failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoticeFailed {
    /// Id of the notice.
    pub id: String,
    /// Number of the attempt, from 1; 0 if there was none.
    pub attempt: u32,
    /// The reason.
    pub error: String,
    /// True if no attempt follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gives_up: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_ten_minutes() {
        let policy = NoticePolicy::default();
        let pauses = |attempt| policy.pause_after(attempt).as_secs();
        assert_eq!([1, 2, 3, 10, 11, 12].map(pauses), [1, 2, 4, 512, 600, 600]);
        assert_eq!(pauses(u32::MAX), 600);
        let all: u64 = (1..policy.attempts).map(pauses).sum();
        assert_eq!(all / 60, 27, "as its documentation says");
    }
}
