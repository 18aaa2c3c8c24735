//! Records of an agent that goes in circles: the fingerprints of its calls, and the steps that are taken.
//!
//! Plain data. Owns the payloads of the `loop.*` events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fingerprint::{self, Fingerprint};
use crate::message::ToolCall;
use crate::own_tool::OwnTool;

/// The fingerprints of a call that has ended, by which later ones are known to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prints {
    /// The tool with its arguments.
    pub fp: Fingerprint,
    /// The result.
    pub rp: Fingerprint,
    /// The error without what it says of the arguments, if the result is an error that says anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ep: Option<Fingerprint>,
    /// True if the result says that there is nothing: it is no news that it says so of other arguments too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
    /// True if the result is an error that may pass with time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passing: bool,
}

impl Prints {
    /// Makes the fingerprints of a call and the text of its result. Only the arguments in `keys` count, if there are
    /// any.
    #[must_use]
    pub fn of(call: &ToolCall, keys: &[String], text: &str, is_error: bool) -> Self {
        let (tool, input) = (call.name.as_str(), &call.input);
        if tool == OwnTool::Delegate.name() {
            return Self::of_delegation(call, text, is_error);
        }
        Self {
            fp: Fingerprint::of_call(tool, input, keys),
            rp: Fingerprint::of_result(text),
            ep: if is_error { Fingerprint::of_error(tool, text, input) } else { None },
            bare: is_error || fingerprint::says_nothing(text),
            passing: is_error && fingerprint::may_pass(text),
        }
    }

    /// A job is the same if agent and prompt are, and its outcome if the words of the child are. How the child came
    /// to them differs each time.
    fn of_delegation(call: &ToolCall, text: &str, is_error: bool) -> Self {
        #[derive(Default, Deserialize)]
        struct Child {
            #[serde(default)]
            status: String,
            #[serde(default)]
            text: String,
            #[serde(default)]
            error: Option<String>,
        }
        let child = serde_json::from_str(text);
        let Child { status, text, error } =
            child.unwrap_or_else(|_| Child { text: text.to_owned(), ..Child::default() });
        let kind = error.as_deref().and_then(|error| error.split(':').next());
        let said = match kind {
            Some(kind) => format!("{status} {kind}"),
            None => format!("{status} {text}"),
        };
        let keys = ["agent".to_owned(), "prompt".to_owned()];
        Self {
            fp: Fingerprint::of_call(&call.name, &call.input, &keys),
            rp: Fingerprint::of_result(&said),
            ep: None,
            bare: is_error,
            passing: false,
        }
    }
}

/// The rule by which a loop was noticed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LoopRule {
    /// The same call gave the same result.
    Repeat,
    /// The same few calls gave the same results in turn.
    Cycle,
    /// A file was changed back to an earlier content.
    Edits,
    /// The same job was delegated with the same outcome.
    Spawn,
    /// Different calls failed with the same error.
    Error,
    /// Nothing new was learned and nothing changed.
    Stall,
    /// The context was compacted, and nothing new was learned before it was compacted again.
    Compaction,
    /// An answer failed its check in the same way.
    Rounds,
    /// An answer repeated one text over and over.
    Text,
}

impl LoopRule {
    /// Returns the rule as it is written in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Repeat => "repeat",
            Self::Cycle => "cycle",
            Self::Edits => "edits",
            Self::Spawn => "spawn",
            Self::Error => "error",
            Self::Stall => "stall",
            Self::Compaction => "compaction",
            Self::Rounds => "rounds",
            Self::Text => "text",
        }
    }
}

/// A loop that was noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Circle {
    /// The rule.
    pub rule: LoopRule,
    /// What is repeated: equal for equal loops of an agent.
    pub key: Fingerprint,
    /// The tools that are called, in the order of the calls; empty where no call matters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// How often, in the measure of the rule: calls, rounds, turns.
    pub times: u32,
    /// The turns in which it was seen, the newest last; at most eight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<u32>,
}

impl Circle {
    /// Returns the loop in words: a fragment without a full stop.
    #[must_use]
    pub fn words(&self) -> String {
        let times = self.times;
        let tools = self.tools.iter().map(|tool| format!("`{tool}`")).collect::<Vec<_>>();
        let said = match self.rule {
            LoopRule::Repeat => {
                format!("the same call of {} gave the same result {times} times", tools.join(", "))
            }
            LoopRule::Cycle => {
                let calls = tools.join(", ");
                format!("the same calls ({calls}) gave the same results {times} times in a row")
            }
            LoopRule::Edits => {
                format!("a file was changed back to an earlier content {times} times")
            }
            LoopRule::Spawn => {
                format!("the same job was delegated with the same outcome {times} times")
            }
            LoopRule::Error => {
                let calls = tools.join(", ");
                format!("calls of {calls} failed with the same error {times} times")
            }
            LoopRule::Stall => format!("{times} turns brought nothing new and changed nothing"),
            LoopRule::Compaction => {
                format!("the context was compacted {times} times with nothing new in between")
            }
            LoopRule::Rounds => format!("the answer failed in the same way {times} times"),
            LoopRule::Text if times == 1 => {
                "an answer repeated one text until it was cut".to_owned()
            }
            LoopRule::Text => format!("{times} answers repeated one text until they were cut"),
        };
        let (first, rest) = match self.turns.split_first() {
            Some(split) => split,
            None => return said,
        };
        if rest.is_empty() {
            return format!("{said} (turn {first})");
        }
        let turns: Vec<_> = self.turns.iter().map(ToString::to_string).collect();
        format!("{said} (turns {})", turns.join(", "))
    }
}

/// `loop.noticed`: the agent is told that it goes in circles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoopNoticed {
    /// The loop.
    pub circle: Circle,
}

/// `loop.held`: the agent's next turn has no tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoopHeld {
    /// The loop.
    pub circle: Circle,
}

/// `loop.broken`: the agent hands over in its next turn, and ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoopBroken {
    /// The loop.
    pub circle: Circle,
}
