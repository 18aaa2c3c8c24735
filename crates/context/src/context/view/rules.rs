//! The rules of a request that may be sent: their numbers, and the breaches in a single message.
//!
//! Pure. A message is checked by itself once, when it joins a view.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;

use crate::message::{Block, Json, Message, ResultContent, Role};

/// A rule that every request keeps. A provider refuses, or a model misreads, a request that breaks
/// one.
///
/// The numbers are those of the documented list. Rules that are missing here are kept in other
/// ways: rule 10 (calls of tools that are gone are rendered as text) and rule 11 (thinking is kept
/// as it came) by how a view is rendered and folded, the others after an edit or at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The first message is the user's, or begins with a summary that the provider wrote.
    BeginsWithUser = 1,
    /// User and assistant take turns.
    RolesAlternate = 2,
    /// The last message is the user's, unless the provider asked to have its own message back.
    EndsWithUser = 3,
    /// Every call is answered in the very next message, once.
    CallsAnswered = 4,
    /// Every result answers a call of the message before it.
    ResultsAsked = 5,
    /// Results stand first in their message.
    ResultsFirst = 6,
    /// No two calls of a request have the same id.
    IdsUnique = 7,
    /// No empty text and no empty list of blocks.
    NoEmptyContent = 8,
    /// Every call and every result has all its parts.
    WholeBlocks = 9,
    /// No thinking stands behind a message that was changed after the thinking came.
    ThinkingBound = 12,
    /// Input and output fit the window; messages and bytes fit the provider's limits.
    Fits = 14,
    /// The active request is in the view.
    RequestKept = 17,
    /// Every slot of the view stands for messages that exist, in their order.
    RangesExist = 19,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", *self as u8)
    }
}

/// Properties of one message that the rules depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nature {
    /// Rule that the message breaks by itself, with the reason.
    pub flaw: Option<(Rule, &'static str)>,
    /// True if the message holds thinking.
    pub thinks: bool,
    /// True if the message begins with a summary that the provider wrote.
    pub begins_compacted: bool,
}

impl Nature {
    /// Inspects a message.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        let others = message.content.iter().map(Kind::of);
        Self {
            flaw: flaw(message),
            thinks: others.clone().any(|kind| kind == Kind::Thinking),
            begins_compacted: others.clone().next() == Some(Kind::Compaction),
        }
    }
}

/// Kind of a content block, as the rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text that is not blank.
    Text,
    /// A text of nothing but white space.
    Blank,
    /// A complete call.
    Call,
    /// A complete result.
    Result,
    /// A result whose list of blocks is empty, or holds a blank text.
    HollowResult,
    /// A call or a result that lacks a part.
    Broken,
    /// The model's thinking, which may not be changed.
    Thinking,
    /// A summary that the provider wrote.
    Compaction,
    /// Images, and block types that a later version of the protocol adds.
    Other,
}

impl Kind {
    /// Returns the kind of a block.
    #[must_use]
    pub fn of(block: &Block) -> Self {
        match block {
            Block::Text(text) if text.trim().is_empty() => Self::Blank,
            Block::Text(_) => Self::Text,
            Block::ToolUse(call) if call.id.is_empty() => Self::Broken,
            Block::ToolUse(_) => Self::Call,
            Block::ToolResult(result) => match &result.content {
                ResultContent::Blocks(blocks) if is_hollow(blocks) => Self::HollowResult,
                ResultContent::Blocks(_) | ResultContent::Text(_) => Self::Result,
            },
            Block::Other(json) => match kind_word(json).as_ref() {
                "tool_use" | "tool_result" => Self::Broken,
                "thinking" | "redacted_thinking" | "reasoning" => Self::Thinking,
                "compaction" => Self::Compaction,
                _ => Self::Other,
            },
        }
    }

    fn is_result(self) -> bool {
        matches!(self, Self::Result | Self::HollowResult)
    }
}

fn kind_word(json: &Json) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Word<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    serde_json::from_str::<Word<'_>>(json.as_str()).map_or_else(|_| "".into(), |word| word.r#type)
}

fn is_hollow(blocks: &Json) -> bool {
    // Content that is no list is a string that no `String` can hold (half a surrogate pair), and
    // that is not empty.
    let Ok(blocks) = blocks.decode::<Vec<Block>>() else { return false };
    blocks.is_empty() || blocks.iter().any(|block| Kind::of(block) == Kind::Blank)
}

fn flaw(message: &Message) -> Option<(Rule, &'static str)> {
    if message.content.is_empty() {
        return Some((Rule::NoEmptyContent, "it has no content"));
    }
    let mut after_results = false;
    for kind in message.content.iter().map(Kind::of) {
        let flaw = match (kind, message.role) {
            (Kind::Blank, _) => (Rule::NoEmptyContent, "it has an empty text"),
            (Kind::HollowResult, _) => (Rule::NoEmptyContent, "it has a result of empty blocks"),
            (Kind::Broken, _) => (Rule::WholeBlocks, "it has a call or a result without its id"),
            (Kind::Call, Role::User) => (Rule::CallsAnswered, "a user message has a call"),
            (Kind::Result, Role::Assistant) => {
                (Rule::ResultsAsked, "an assistant message has a result")
            }
            (Kind::Result, Role::User) if after_results => {
                (Rule::ResultsFirst, "a result stands after something else")
            }
            _ => {
                after_results |= !kind.is_result();
                continue;
            }
        };
        return Some(flaw);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(role: &str, content: &str) -> Option<u8> {
        let text = format!(r#"{{"role":"{role}","content":{content}}}"#);
        let message = Message::read(&text).expect("a message");
        Nature::of(&message).flaw.map(|(rule, _)| rule as u8)
    }

    #[test]
    fn a_message_that_breaks_a_rule_by_itself_is_known() {
        let call = r#"{"type":"tool_use","id":"1","name":"t","input":{}}"#;
        let result = r#"{"type":"tool_result","tool_use_id":"1","content":""}"#;
        let text = r#"{"type":"text","text":"x"}"#;
        assert_eq!(broken("user", r#""hi""#), None);
        assert_eq!(broken("user", r#"" \n""#), Some(8));
        assert_eq!(broken("assistant", "[]"), Some(8));
        assert_eq!(broken("user", &format!("[{result},{text}]")), None);
        assert_eq!(broken("user", &format!("[{text},{result}]")), Some(6));
        assert_eq!(broken("user", &format!("[{call}]")), Some(4));
        assert_eq!(broken("assistant", &format!("[{text},{call}]")), None);
        assert_eq!(broken("assistant", &format!("[{result}]")), Some(5));
        assert_eq!(broken("assistant", r#"[{"type":"tool_use","name":"t","input":{}}]"#), Some(9));
        assert_eq!(broken("assistant", r#"[{"type":"tool_use","id":"","name":"t"}]"#), Some(9));
        assert_eq!(broken("user", r#"[{"type":"tool_result","content":"x"}]"#), Some(9));
        for hollow in ["[]", r#"[{"type":"text","text":""}]"#] {
            let result = r#"{"type":"tool_result","tool_use_id":"1","content":"#;
            assert_eq!(broken("user", &format!("[{result}{hollow}}}]")), Some(8));
        }
        let half = r#"[{"type":"tool_result","tool_use_id":"1","content":"\ud83d"}]"#;
        assert_eq!(broken("user", half), None);
    }

    #[test]
    fn thinking_and_summaries_of_the_provider_are_known() {
        let nature = |content: &str| {
            let text = format!(r#"{{"role":"assistant","content":{content}}}"#);
            Nature::of(&Message::read(&text).expect("a message"))
        };
        assert!(nature(r#"[{"type":"redacted_thinking","data":"x"}]"#).thinks);
        assert!(nature(r#"[{"type":"thinking","thinking":"","signature":"s"}]"#).thinks);
        assert!(!nature(r#"[{"type":"text","text":"thinking"}]"#).thinks);
        assert!(nature(r#"[{"type":"compaction","content":"s"}]"#).begins_compacted);
    }
}
