//! Messages, their blocks and the parts of a model's reply, in the form of the Anthropic API.
//!
//! Owns the text form of a conversation: transcripts, journal records and requests are all made
//! from it. Knows nothing of providers, turns or context windows.

pub mod media;
mod read;
pub mod scan;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON document kept as the exact text it was read or written as; cloning shares the text.
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

impl Json {
    /// Checks that `text` is one JSON document and keeps it.
    ///
    /// # Errors
    /// Returns an error if `text` is not valid JSON.
    pub fn parse(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(|raw| Self(raw.into()))
    }

    /// Encodes a value whose serialisation cannot fail: our own plain data with string keys.
    #[must_use]
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Self {
        let raw = serde_json::value::to_raw_value(value);
        Self(raw.expect("plain data with string keys always encodes").into())
    }

    /// Returns true if both are the same document in memory. The comparison takes constant time;
    /// `false` does not mean that the texts differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Keeps the text of a raw value.
    #[must_use]
    pub fn of(raw: &RawValue) -> Self {
        Self(raw.to_owned().into())
    }

    /// Returns the document as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Decodes the document into a type.
    ///
    /// # Errors
    /// Returns an error if the document does not have the form of `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }

    /// Reads the document as a block of a message; what is no known block is kept verbatim.
    #[must_use]
    pub fn block(&self) -> Block {
        Block::read(&self.0)
    }

    /// Returns the document as a tree of values.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.decode().unwrap_or(Value::Null)
    }

    /// Returns the document as bytes that share this allocation.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl AsRef<[u8]> for Json {
    fn as_ref(&self) -> &[u8] {
        self.as_str().as_bytes()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        // Compares the texts: two spellings of one value are different documents.
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl JsonSchema for Json {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self(raw.into()))
    }
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user: the author of the task, of tool results and of mail.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Returns the word that is sent to the provider.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// A model's request to run a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// The id that joins the result to the call.
    pub id: String,
    /// The tool's name as the model wrote it; the tool need not exist.
    pub name: String,
    /// The arguments: a JSON object, as the model wrote it.
    pub input: Json,
}

/// The answer to a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the call that this answers.
    pub tool_use_id: String,
    /// The content that the model reads.
    pub content: ResultContent,
    /// True if the call failed; the model sees this.
    pub is_error: bool,
}

/// The content of a tool result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultContent {
    /// Plain text; the built-in tools return nothing else.
    Text(String),
    /// A list of blocks (text, images, ...), kept verbatim.
    Blocks(Json),
}

impl Serialize for ResultContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Blocks(blocks) => blocks.serialize(serializer),
        }
    }
}

/// One block of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Text.
    Text(String),
    /// A request to run a tool.
    ToolUse(ToolCall),
    /// The answer to a tool call.
    ToolResult(ToolResult),
    /// Any other block (thinking, images, blocks of a later API version), kept verbatim.
    Other(Json),
}

/// The keys of the known blocks, in the order in which they are written.
#[derive(Serialize)]
struct BlockOut<'a> {
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a ResultContent>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
}

impl<'a> BlockOut<'a> {
    fn of(kind: &'a str) -> Self {
        Self {
            r#type: kind,
            text: None,
            id: None,
            name: None,
            input: None,
            tool_use_id: None,
            content: None,
            is_error: false,
        }
    }
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => BlockOut { text: Some(text), ..BlockOut::of("text") },
            Self::ToolUse(call) => BlockOut {
                id: Some(&call.id),
                name: Some(&call.name),
                input: Some(&call.input),
                ..BlockOut::of("tool_use")
            },
            Self::ToolResult(result) => BlockOut {
                tool_use_id: Some(&result.tool_use_id),
                content: Some(&result.content),
                is_error: result.is_error,
                ..BlockOut::of("tool_result")
            },
            Self::Other(raw) => return raw.serialize(serializer),
        }
        .serialize(serializer)
    }
}

/// One message of a conversation: a role and its blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The author of the message.
    pub role: Role,
    /// The blocks, in order.
    pub content: Vec<Block>,
}

impl Message {
    /// Creates a user message of one text block.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, content: vec![Block::Text(text.into())] }
    }

    /// Creates an assistant message of one text block.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, content: vec![Block::Text(text.into())] }
    }

    /// Returns the text blocks, joined by a newline.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Returns the tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolUse(call) => Some(call),
            _ => None,
        })
    }

    /// Returns the tool results, in order.
    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolResult(result) => Some(result),
            _ => None,
        })
    }
}

impl ToolResult {
    /// Returns the content as text: of a list of blocks, the text blocks.
    #[must_use]
    pub fn text(&self) -> String {
        self.as_text().into_owned()
    }

    /// Does the same as [`text`](Self::text), and copies nothing if the content is a text.
    #[must_use]
    pub fn as_text(&self) -> Cow<'_, str> {
        match &self.content {
            ResultContent::Text(text) => Cow::Borrowed(text),
            ResultContent::Blocks(json) => match json.decode::<Vec<Block>>() {
                Ok(content) => Cow::Owned(Message { role: Role::User, content }.text()),
                Err(_) => Cow::Borrowed(""),
            },
        }
    }
}

/// Tokens of one or more model calls. `input` is the uncached remainder only. Sums stop at 2^64-1:
/// records may hold any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Usage {
    /// Input tokens read at the full price.
    pub input: u64,
    /// Tokens generated.
    pub output: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write: u64,
}

impl Usage {
    /// Returns the number of input tokens, cached and uncached: the measured size of the request.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Returns the usage with `input` as its input if the provider reported none. Some servers
    /// report no usage, and their tokens must still count against a limit.
    #[must_use]
    pub fn or_expected(self, input: u64) -> (Self, UsageSource) {
        match self.context() {
            0 => (Self { input, ..self }, UsageSource::Expected),
            _ => (self, UsageSource::Reported),
        }
    }

    /// Returns all tokens, input and output.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.context().saturating_add(self.output)
    }
}

/// The source of a call's token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageSource {
    /// The provider counted them.
    #[default]
    Reported,
    /// The provider reported no input, so an estimate is used.
    Expected,
}

impl UsageSource {
    /// Returns true if the provider counted the tokens.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        *self == Self::Reported
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |mut sum, part| {
            sum += part;
            sum
        })
    }
}

/// The reason why the model stopped writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model had finished.
    EndTurn,
    /// The model wants tools to be run.
    ToolUse,
    /// The reply reached its output limit.
    MaxTokens,
    /// The model wrote a stop sequence.
    StopSequence,
    /// A tool that runs at the provider needs more time; it continues when the message is sent back
    /// unchanged.
    PauseTurn,
    /// The model refused, with the provider's explanation if there is one.
    Refusal(Option<String>),
    /// The context window was full.
    ContextWindowExceeded,
    /// The provider wrote a summary and no reply after it.
    Compaction,
    /// The stream broke after some blocks were complete; only these blocks are kept.
    Interrupted(String),
    /// A reason that this version does not know.
    Other(String),
}

impl StopReason {
    /// Returns true if the model has said what it wanted to say, or as much as it may in one reply.
    #[must_use]
    pub fn ends_reply(&self) -> bool {
        match self {
            Self::EndTurn
            | Self::ToolUse
            | Self::MaxTokens
            | Self::StopSequence
            | Self::Other(_) => true,
            Self::PauseTurn
            | Self::Refusal(_)
            | Self::ContextWindowExceeded
            | Self::Compaction
            | Self::Interrupted(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) {
        let message: Message = serde_json::from_str(text).expect("a message");
        assert_eq!(serde_json::to_string(&message).expect("encodes"), text);
    }

    #[test]
    fn known_and_unknown_blocks_survive_unchanged() {
        round_trip(r#"{"role":"user","content":[{"type":"text","text":"é \n"}]}"#);
        round_trip(
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"1","name":"bash","input":{"b":1,  "a":[]}}]}"#,
        );
        round_trip(
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x","is_error":true},{"type":"later","text":7}]}"#,
        );
        round_trip(
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"image"}]}]}"#,
        );
    }

    #[test]
    fn half_a_character_is_kept_verbatim() {
        round_trip(r#"{"role":"assistant","content":[{"type":"text","text":"\ud83d"}]}"#);
        let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"\ud83d"}]}"#;
        round_trip(result);
        let message = Message::read(result).expect("a message");
        assert_eq!(message.tool_results().count(), 1, "the call stays answered");
    }

    #[test]
    fn a_string_content_is_one_text_block() {
        let message: Message =
            serde_json::from_str(r#"{"role":"user","content":"hi"}"#).expect("a message");
        assert_eq!(message, Message::user("hi"));
    }

    #[test]
    fn what_is_not_a_message_is_refused() {
        for content in ["3", "-3", "0.5", "true", "null", "{\"a\":[{}]}", "[1,"] {
            let bad = format!(r#"{{"role":"user","content":{content}}}"#);
            assert!(Message::read(&bad).is_err(), "{bad}");
        }
        for bad in [r#"{"role":"system","content":"x"}"#, r#"{"role":"user","content":3}"#, "[]"] {
            assert!(serde_json::from_str::<Message>(bad).is_err(), "{bad}");
        }
    }
}
