//! The port to language models: what a call needs, what it gives, how it fails.
//!
//! Implementations live in `model/`. Nothing here knows of tasks, runs or retries: a model makes
//! one attempt, and the gateway decides about the next.

pub mod anthropic;
pub mod http;
pub mod openai;
pub mod rendering;
pub mod script;
pub mod scripted;
pub mod sse;

use std::time::Duration;

use bytes::Bytes;

use crate::context::provider::server::{ContextReport, ContextWork};
use crate::failure::FailureKind;
use crate::id::{AgentId, Name};
use crate::message::{Json, Message, StopReason, Usage};
pub use crate::model::rendering::{Pieces, Rendering};
use crate::spec::ModelSpec;
use crate::spec::capability::{Capability, ModelFacts};
pub use crate::tool::BoxFuture;
use crate::tool::ToolSpec;

/// The unchanging front of an agent's requests, rendered once: model, parameters, system prompt
/// and tools, up to the point where the messages begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head(pub Bytes);

/// One message rendered for the wire, once, when it joins the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The rendering: one element of the wire's message array, or several joined by commas.
    pub bytes: Bytes,
    /// Where a cache breakpoint can be spliced in, if the wire has them and the block allows one.
    pub mark_at: Option<usize>,
    /// How many content blocks it has.
    pub blocks: usize,
}

/// One attempt to get a reply.
#[derive(Clone, Debug)]
pub struct Request {
    /// The agent definition that asks; scripts match on it.
    pub agent: Name,
    /// The agent at work that asks.
    pub agent_id: AgentId,
    /// Which call of this agent this is, from 1.
    pub turn: u32,
    /// The rendered front.
    pub head: Head,
    /// The rendered messages of a checked view.
    pub pieces: Pieces,
    /// The most tokens that the reply may have.
    pub max_output_tokens: u64,
    /// What the provider is to do with the context; a wire that has no word for it leaves it out.
    pub context: ContextWork,
}

/// A reply. What it holds is complete blocks only.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The assistant message; it may have no blocks.
    pub message: Message,
    /// Why the model stopped; [`StopReason::Interrupted`] when the stream broke after something
    /// had completed.
    pub stop: StopReason,
    /// What it cost in tokens, summaries by the provider included; without input where the provider
    /// reported none.
    pub usage: Usage,
    /// What the provider tells of the context.
    pub context: ContextReport,
}

/// Something that streamed in, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// A piece of answer text.
    Text(&'a str),
    /// A tool call began.
    Tool(&'a str),
    /// Something else arrived: the stream is alive.
    Alive,
}

/// Where deltas go.
pub type DeltaSink<'a> = &'a mut (dyn for<'d> FnMut(Delta<'d>) + Send);

/// A language model behind some wire.
///
/// An implementation of one's own needs [`Model::call`] only; [`Request::messages`] gives it the
/// conversation.
pub trait Model: Send + Sync {
    /// Renders the unchanging front of an agent's requests.
    fn head(&self, spec: &ModelSpec, system: &str, tools: &[ToolSpec]) -> Head {
        canonical_head(spec, system, tools)
    }

    /// The same with a text that changes from time to time: it joins the system prompt as its last
    /// block, behind what is cached.
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

    /// What is known of a model before its first call; by default what the configuration says.
    ///
    /// # Errors
    /// When the provider is to be asked and does not answer.
    fn facts<'a>(&'a self, spec: &'a ModelSpec) -> BoxFuture<'a, Result<ModelFacts, ModelError>> {
        Box::pin(std::future::ready(Ok(ModelFacts::declared(&spec.capabilities))))
    }

    /// Makes one attempt. Dropping the future ends it.
    ///
    /// # Errors
    /// When no block of the reply completed; see [`ModelError`] for the classes.
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;
}

/// The head in callsheet's own form: `{"system":...,"tools":[...]}`.
#[must_use]
pub fn canonical_head(_spec: &ModelSpec, system: &str, tools: &[ToolSpec]) -> Head {
    let head = serde_json::json!({ "system": system, "tools": tools });
    Head(Json::encode(&head).to_bytes())
}

/// The message as it is: Anthropic block form.
#[must_use]
pub fn canonical_piece(message: &Json) -> Piece {
    let blocks = message.decode::<Message>().map_or(1, |m| m.content.len());
    Piece { bytes: message.to_bytes(), mark_at: None, blocks }
}

impl Request {
    /// The conversation, for models that keep the default renderings.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        let parse = |piece: &Piece| serde_json::from_slice(&piece.bytes).ok();
        self.pieces.iter().filter_map(parse).collect()
    }

    /// The system prompt, for models that keep the default head.
    #[must_use]
    pub fn system(&self) -> String {
        let head: Option<serde_json::Value> = serde_json::from_slice(&self.head.0).ok();
        let system = head.as_ref().and_then(|head| head["system"].as_str());
        system.unwrap_or_default().to_owned()
    }
}

/// The class of a failed call: decides what is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The conversation does not fit: `have` tokens where `max` are allowed, if the provider said.
    ContextTokens {
        /// Tokens sent.
        have: Option<u64>,
        /// Tokens allowed.
        max: Option<u64>,
    },
    /// Input and output limit together do not fit.
    ContextPlusOutput {
        /// Input tokens, if the provider said.
        input: Option<u64>,
        /// The window, if the provider said.
        limit: Option<u64>,
    },
    /// The body is larger than the provider takes.
    RequestBytes,
    /// A tool call without its result, or the reverse: a defect of ours.
    Pairing,
    /// A thinking block was changed: a defect of ours.
    ThinkingChanged,
    /// Too many requests or tokens a minute.
    RateLimited,
    /// No capacity at the provider.
    Overloaded,
    /// The provider failed in passing (408, 409, 5xx).
    ServerError,
    /// No connection, or it broke before anything completed.
    Connection,
    /// No first byte in time, or silence amid the stream.
    IdleTimeout,
    /// The key was refused, or the account may not do this.
    Auth,
    /// The provider cannot do what the request asked of it for the context.
    Unsupported(Capability),
    /// Anything else: the same request would fail again.
    Fatal,
}

impl ErrorClass {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        FailureKind::TRANSIENT.contains(&self.kind())
    }

    /// The tokens of the refused request and of the window, where the provider named them.
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
            | Self::Connection
            | Self::IdleTimeout
            | Self::Auth
            | Self::Unsupported(_)
            | Self::Fatal => (None, None),
        }
    }

    /// The kind of failure that this is once it is final.
    #[must_use]
    pub fn kind(self) -> FailureKind {
        match self {
            Self::ContextTokens { .. } | Self::ContextPlusOutput { .. } => {
                FailureKind::ContextOverflow
            }
            Self::RequestBytes => FailureKind::RequestTooLarge,
            Self::RateLimited => FailureKind::RateLimit,
            Self::Overloaded => FailureKind::Overloaded,
            Self::ServerError => FailureKind::ServerError,
            Self::Connection => FailureKind::Connection,
            Self::IdleTimeout => FailureKind::IdleTimeout,
            Self::Auth => FailureKind::Auth,
            Self::Pairing | Self::ThinkingChanged | Self::Unsupported(_) | Self::Fatal => {
                FailureKind::InvalidRequest
            }
        }
    }
}

/// A call that gave no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What is to be done about it.
    pub class: ErrorClass,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// The provider's words, or ours.
    pub message: String,
    /// How long the provider asked to wait.
    pub retry_after: Option<Duration>,
    /// What `x-should-retry` said, which overrides the class.
    pub should_retry: Option<bool>,
}

impl ModelError {
    /// An error of this class with this message and nothing else.
    #[must_use]
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, status: None, message: message.into(), retry_after: None, should_retry: None }
    }

    /// Whether another attempt may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.should_retry.unwrap_or_else(|| self.class.is_retryable())
    }
}
