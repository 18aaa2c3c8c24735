//! The port to language models: the trait of a model, its request and reply, and its errors.
//!
//! Implementations are in `model/`. Nothing here knows tasks, runs or retries: a model makes one
//! attempt, and `actor/model_call.rs` decides about the next one.

pub mod anthropic;
pub mod http;
pub mod openai;
pub mod rendering;
pub mod responses;
pub mod script;
pub mod scripted;
pub mod sse;

use std::time::Duration;

use bytes::Bytes;

pub use crate::admission::{Allowance, Remaining};
use crate::context::provider::server::{ContextReport, ContextWork};
use crate::failure::FailureKind;
use crate::id::{AgentId, Name};
use crate::message::{Block, Json, Message, StopReason, Usage};
pub use crate::model::rendering::{Pieces, Rendering};
use crate::redaction::Secrets;
use crate::spec::ModelSpec;
use crate::spec::capability::{Capability, ModelFacts};
pub use crate::tool::BoxFuture;
use crate::tool::ToolSpec;

/// The part of an agent's requests that does not change, rendered once: model, parameters, system
/// prompt and tools, up to the place where the messages begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head(pub Bytes);

/// One message as it is sent, rendered once when it joins the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The rendering: one element of the array of messages in the request, or several joined by
    /// commas.
    pub bytes: Bytes,
    /// Offset at which a cache breakpoint can be inserted; absent if the protocol has none or the
    /// last block may not have one.
    pub mark_at: Option<usize>,
    /// Number of content blocks.
    pub blocks: usize,
}

/// The request of one attempt to get a reply.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the agent definition; scripts match on it.
    pub agent: Name,
    /// Id of the agent that makes the call.
    pub agent_id: AgentId,
    /// Number of this call of the agent, from 1.
    pub turn: u32,
    /// The rendered head of the request.
    pub head: Head,
    /// The rendered messages of a view that was checked.
    pub pieces: Pieces,
    /// The most tokens that the reply may have.
    pub max_output_tokens: u64,
    /// Work that the provider shall do on the context; left out if the protocol cannot express it.
    pub context: ContextWork,
    /// True if the model may read the tools but call none of them.
    pub no_calls: bool,
    /// JSON Schema to which the provider shall hold the answer; left out if the protocol cannot.
    pub answer_schema: Option<Json>,
}

/// A reply. It contains only complete blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The assistant message; it may have no blocks.
    pub message: Message,
    /// The reason why the model stopped; [`StopReason::Interrupted`] if the stream broke after some
    /// blocks were complete.
    pub stop: StopReason,
    /// Billed tokens, including those of summaries by the provider; without input if the provider
    /// reported none.
    pub usage: Usage,
    /// Facts that the provider reports about the context.
    pub context: ContextReport,
    /// The error that broke the stream, if one did: the reply has the blocks that were complete.
    pub broken: Option<Box<ModelError>>,
}

impl Reply {
    /// Makes a reply with these tokens, in which the provider reports nothing of the context.
    #[must_use]
    pub fn new(message: Message, stop: StopReason, usage: Usage) -> Self {
        Self { message, stop, usage, context: ContextReport::default(), broken: None }
    }

    /// Replaces every secret in the reply.
    pub fn redact(&mut self, secrets: &Secrets) {
        for block in &mut self.message.content {
            match block {
                Block::Text(text) => secrets.redact(text),
                Block::ToolUse(call) => {
                    secrets.redact(&mut call.id);
                    secrets.redact(&mut call.name);
                    redact_json(&mut call.input, secrets);
                }
                Block::ToolResult(_) => {}
                Block::Other(json) => redact_json(json, secrets),
            }
        }
        match &mut self.stop {
            StopReason::Refusal(Some(text))
            | StopReason::Interrupted(text)
            | StopReason::Other(text) => secrets.redact(text),
            StopReason::EndTurn
            | StopReason::ToolUse
            | StopReason::MaxTokens
            | StopReason::StopSequence
            | StopReason::PauseTurn
            | StopReason::Refusal(None)
            | StopReason::ContextWindowExceeded
            | StopReason::Compaction => {}
        }
        self.context.edits.iter_mut().for_each(|edit| secrets.redact(&mut edit.r#type));
        if let Some(broken) = &mut self.broken {
            secrets.redact(&mut broken.message);
        }
    }
}

/// Replaces every secret in a document. A document without any stays as it was written.
fn redact_json(json: &mut Json, secrets: &Secrets) {
    // Other escapes than the usual ones could hide a secret from a search in the text.
    if secrets.are_in(json.as_str()) || json.as_str().contains('\\') {
        let mut value = json.to_value();
        if secrets.redact_value(&mut value) {
            *json = Json::encode(&value);
        }
    }
}

/// A part of a reply that arrived in the stream, for code that watches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// A piece of answer text.
    Text(&'a str),
    /// A tool call began.
    Tool(&'a str),
    /// The provider has taken the request; its headers tell this of its limits.
    Taken(Allowance),
    /// The tokens that the call has cost so far, as the provider counted them or estimated from what came. A
    /// call that is cut costs the last of them.
    Spent(Usage),
    /// Any other data arrived, which shows that the stream is alive.
    Alive,
}

/// The callback that receives the parts of a reply.
pub type DeltaSink<'a> = &'a mut (dyn for<'d> FnMut(Delta<'d>) + Send);

/// A language model behind a protocol.
///
/// An implementation outside this crate needs only [`Model::call`]; [`Request::messages`] gives it
/// the conversation.
///
/// ```
/// use callsheet::{
///     BoxFuture, DeltaSink, Message, Model, ModelError, Reply, Request, StopReason, Usage,
/// };
///
/// /// Counts the messages that it is sent.
/// struct Counter;
///
/// impl Model for Counter {
///     fn call<'a>(
///         &'a self,
///         request: Request,
///         _deltas: DeltaSink<'a>,
///     ) -> BoxFuture<'a, Result<Reply, ModelError>> {
///         Box::pin(async move {
///             let said = Message::assistant(format!("{} messages", request.messages().len()));
///             Ok(Reply::new(said, StopReason::EndTurn, Usage::default()))
///         })
///     }
/// }
/// ```
pub trait Model: Send + Sync {
    /// Renders the part of an agent's requests that does not change.
    fn head(&self, spec: &ModelSpec, system: &str, tools: &[ToolSpec]) -> Head {
        canonical_head(spec, system, tools)
    }

    /// Renders the head with an additional text that changes from time to time. The text becomes
    /// the last block of the system prompt, after the cached part.
    fn head_with_context(
        &self,
        spec: &ModelSpec,
        system: &str,
        context: &str,
        tools: &[ToolSpec],
    ) -> Head {
        self.head(spec, &format!("{system}{context}"), tools)
    }

    /// Renders one message, given as JSON in the Anthropic block form.
    fn piece(&self, message: &Json) -> Piece {
        canonical_piece(message)
    }

    /// Returns the facts about a model before its first call; by default those in the
    /// configuration.
    ///
    /// # Errors
    /// Returns an error if the provider has to be asked and does not answer.
    fn facts<'a>(&'a self, spec: &'a ModelSpec) -> BoxFuture<'a, Result<ModelFacts, ModelError>> {
        Box::pin(std::future::ready(Ok(ModelFacts::declared(&spec.capabilities))))
    }

    /// Makes one attempt. Dropping the future ends it.
    ///
    /// # Errors
    /// Returns an error if no block of the reply was complete; [`ErrorClass`] lists the classes.
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;
}

/// Renders a head in callsheet's own form: `{"system":...,"tools":[...]}`.
#[must_use]
pub fn canonical_head(_spec: &ModelSpec, system: &str, tools: &[ToolSpec]) -> Head {
    let head = serde_json::json!({ "system": system, "tools": tools });
    Head(Json::encode(&head).to_bytes())
}

/// Renders a message unchanged, in the Anthropic block form.
#[must_use]
pub fn canonical_piece(message: &Json) -> Piece {
    let blocks = message.decode::<Message>().map_or(1, |m| m.content.len());
    Piece { bytes: message.to_bytes(), mark_at: None, blocks }
}

impl Request {
    /// Returns the conversation, for models that keep the default renderings.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        let parse = |piece: &Piece| serde_json::from_slice(&piece.bytes).ok();
        self.pieces.iter().filter_map(parse).collect()
    }

    /// Returns the system prompt, for models that keep the default head.
    #[must_use]
    pub fn system(&self) -> String {
        let head: Option<serde_json::Value> = serde_json::from_slice(&self.head.0).ok();
        let system = head.as_ref().and_then(|head| head["system"].as_str());
        system.unwrap_or_default().to_owned()
    }
}

/// The class of a failed call, which decides what the caller does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The conversation does not fit: it has `have` tokens and may have `max`.
    ContextTokens {
        /// Tokens in the request, if the provider named them.
        have: Option<u64>,
        /// Tokens that are allowed, if the provider named them.
        max: Option<u64>,
    },
    /// Input and output limit together do not fit the window.
    ContextPlusOutput {
        /// Input tokens, if the provider named them.
        input: Option<u64>,
        /// Size of the window in tokens, if the provider named it.
        limit: Option<u64>,
    },
    /// The body of the request has more bytes than the provider accepts.
    RequestBytes,
    /// A tool call has no result, or the reverse: an error in callsheet.
    Pairing,
    /// A thinking block was changed: an error in callsheet.
    ThinkingChanged,
    /// Too many requests or tokens in a minute.
    RateLimited,
    /// The provider has no capacity.
    Overloaded,
    /// The provider has a temporary failure (408, 409, 5xx).
    ServerError,
    /// The reply passed a bound on what a server may send. Another try would cost as much.
    ReplyTooLarge,
    /// There was no connection, or it broke before a block was complete.
    Connection,
    /// The first byte did not arrive in time, or the stream was silent for too long.
    IdleTimeout,
    /// The key was refused, or the account may not make this call.
    Auth,
    /// The quota or the credit of the account is used up.
    QuotaExhausted,
    /// The provider does not know the model, or has nothing at the address.
    NotFound,
    /// The provider does not support the work on the context that the request asked for.
    Unsupported(Capability),
    /// The provider does not hold an answer to the schema that the request has.
    SchemaRefused,
    /// Any other error: the same request would fail again.
    Fatal,
}

impl ErrorClass {
    /// Returns true if the same request may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        self != Self::ReplyTooLarge && self.kind().is_transient()
    }

    /// Returns the tokens of the refused request and of the window, if the provider named them.
    #[must_use]
    pub fn context(self) -> (Option<u64>, Option<u64>) {
        match self {
            Self::ContextTokens { have, max } => (have, max),
            Self::ContextPlusOutput { input, limit } => (input, limit),
            Self::RequestBytes
            | Self::Pairing
            | Self::ThinkingChanged
            | Self::RateLimited
            | Self::Overloaded
            | Self::ServerError
            | Self::ReplyTooLarge
            | Self::Connection
            | Self::IdleTimeout
            | Self::Auth
            | Self::QuotaExhausted
            | Self::NotFound
            | Self::Unsupported(_)
            | Self::SchemaRefused
            | Self::Fatal => (None, None),
        }
    }

    /// Returns the kind of failure that is recorded when no attempt is left.
    #[must_use]
    pub fn kind(self) -> FailureKind {
        match self {
            Self::ContextTokens { .. } | Self::ContextPlusOutput { .. } => {
                FailureKind::ContextOverflow
            }
            Self::RequestBytes => FailureKind::RequestTooLarge,
            Self::RateLimited => FailureKind::RateLimit,
            Self::Overloaded => FailureKind::Overloaded,
            Self::ServerError | Self::ReplyTooLarge => FailureKind::ServerError,
            Self::Connection => FailureKind::Connection,
            Self::IdleTimeout => FailureKind::IdleTimeout,
            Self::Auth => FailureKind::Auth,
            Self::QuotaExhausted => FailureKind::Quota,
            Self::Pairing
            | Self::ThinkingChanged
            | Self::NotFound
            | Self::Unsupported(_)
            | Self::SchemaRefused
            | Self::Fatal => FailureKind::InvalidRequest,
        }
    }
}

/// The error of a call that returned no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The class of the error.
    pub class: ErrorClass,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// The message of the provider, or of callsheet.
    pub message: String,
    /// The time that the provider asked to wait.
    pub retry_after: Option<Duration>,
    /// What the headers say is left of the limit that has the least left, if they say it.
    pub limit_left: Option<u64>,
    /// The value of the header `x-should-retry`, which overrides the class.
    pub should_retry: Option<bool>,
    /// The most attempts that make sense, if they are fewer than the policy allows.
    pub most_attempts: Option<u32>,
    /// The tokens of the part of the reply that had arrived, if any had: as the provider counted
    /// them, or estimated.
    pub usage: Option<Box<Usage>>,
}

impl ModelError {
    /// Creates an error with a class and a message only.
    #[must_use]
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            status: None,
            message: message.into(),
            retry_after: None,
            limit_left: None,
            should_retry: None,
            most_attempts: None,
            usage: None,
        }
    }

    /// Returns true if another attempt may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.should_retry.unwrap_or_else(|| self.class.is_retryable())
    }
}
