//! Reading of messages and blocks from JSON: decodes the known blocks and keeps others verbatim.
//!
//! Tool results are long and a conversation is read often, so the code parses a text as few times
//! as possible and copies only the parts that it keeps.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Block, Json, Message, ResultContent, Role, ToolCall, ToolResult};

/// The keys of the known blocks; `C` is the type into which `content` is read.
#[derive(Deserialize)]
#[serde(bound(deserialize = "C: Deserialize<'de>"))]
struct BlockIn<'a, C> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    tool_use_id: Option<String>,
    content: Option<C>,
    is_error: Option<bool>,
}

impl Block {
    pub(super) fn read(raw: &RawValue) -> Self {
        // An unknown block may use our keys with other types, so a mismatch keeps it verbatim.
        let Ok(block) = serde_json::from_str::<BlockIn<'_, TextOr<IgnoredAny>>>(raw.get()) else {
            return Self::read_result_of_blocks(raw);
        };
        let kind = block.r#type.clone();
        match (kind.as_ref(), block) {
            ("text", BlockIn { text: Some(text), .. }) => Self::Text(text),
            ("tool_use", BlockIn { id: Some(id), name: Some(name), input, .. }) => {
                let input = match input {
                    Some(input) => Json::of(input),
                    None => Json::encode(&serde_json::Map::new()),
                };
                Self::ToolUse(ToolCall { id, name, input })
            }
            ("tool_result", BlockIn { tool_use_id: Some(tool_use_id), content, is_error, .. }) => {
                let content = match content {
                    None => ResultContent::Text(String::new()),
                    Some(TextOr::Text(text)) => ResultContent::Text(text),
                    Some(TextOr::List(_) | TextOr::Neither) => {
                        return Self::read_result_of_blocks(raw);
                    }
                };
                let is_error = is_error.unwrap_or(false);
                Self::ToolResult(ToolResult { tool_use_id, content, is_error })
            }
            _ => Self::Other(Json::of(raw)),
        }
    }

    /// Reads a tool result whose content is not a text, or is a text with half of a surrogate pair,
    /// which a Rust string cannot hold.
    fn read_result_of_blocks(raw: &RawValue) -> Self {
        match serde_json::from_str::<BlockIn<'_, &RawValue>>(raw.get()) {
            Ok(BlockIn {
                r#type,
                tool_use_id: Some(tool_use_id),
                content: Some(content),
                is_error,
                ..
            }) if r#type == "tool_result" => {
                let content = ResultContent::Blocks(Json::of(content));
                let is_error = is_error.unwrap_or(false);
                Self::ToolResult(ToolResult { tool_use_id, content, is_error })
            }
            Ok(_) | Err(_) => Self::Other(Json::of(raw)),
        }
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self::read(&raw))
    }
}

impl Message {
    /// Reads a message from a text that can be borrowed: it avoids the copy that [`Deserialize`]
    /// has to make.
    ///
    /// # Errors
    /// Returns an error if `json` is not a message.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct In<'a> {
            role: Role,
            #[serde(borrow)]
            content: TextOr<&'a RawValue>,
        }
        let In { role, content } = serde_json::from_str(json)?;
        let content = match content {
            TextOr::Text(text) => vec![Block::Text(text)],
            TextOr::List(blocks) => blocks.into_iter().map(Block::read).collect(),
            TextOr::Neither => {
                let expected = "a message's content is a text or a list of blocks";
                return Err(serde_json::Error::custom(expected));
            }
        };
        Ok(Self { role, content })
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(raw.get()).map_err(D::Error::custom)
    }
}

/// A text or a list; any other value is accepted but not kept.
enum TextOr<T> {
    Text(String),
    List(Vec<T>),
    Neither,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

struct TextOrVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrVisitor<T> {
    type Value = TextOr<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOr::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(TextOr::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_map(map).map(|_| TextOr::Neither)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(TextOr::Neither)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(TextOr::Neither)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(TextOr::Neither)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(TextOr::Neither)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(TextOr::Neither)
    }
}
