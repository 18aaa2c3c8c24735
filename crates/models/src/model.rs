//! The port to language models: the trait of a model, its request and reply, and its errors.
//!
//! Implementations are in `model/`. Nothing here knows tasks, runs or retries: a model makes one
//! attempt, and `call_machine` decides about the next one.

pub mod anthropic;
pub mod http;
pub mod openai;
pub mod rendering;
pub mod responses;
pub mod script;
pub mod scripted;
pub mod sse;
pub mod webhook;

use bytes::Bytes;
pub use futures_util::future::BoxFuture;

pub use crate::admission::{Allowance, Remaining};
pub use crate::call_machine::error::{ErrorClass, ModelError};
use crate::context::provider::server::{ContextReport, ContextWork};
use crate::fingerprint::Fingerprint;
use crate::id::{AgentId, Name};
use crate::message::{Block, Json, Message, StopReason, Usage};
pub use crate::model::rendering::{Pieces, Rendering};
use crate::redaction::Secrets;
use crate::spec::ModelSpec;
use crate::spec::capability::ModelFacts;
use crate::tool_spec::ToolSpec;

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
    /// Number of content blocks, in a protocol that has cache breakpoints.
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
    #[doc(hidden)]
    pub head: Head,
    /// The rendered messages of a view that was checked.
    #[doc(hidden)]
    pub pieces: Pieces,
    /// The most tokens that the reply may have.
    pub max_output_tokens: u64,
    /// Work that the provider shall do on the context; left out if the protocol cannot express it.
    #[doc(hidden)]
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
    #[doc(hidden)]
    pub context: ContextReport,
    /// The error that broke the stream, if one did: the reply has the blocks that were complete.
    pub broken: Option<Box<ModelError>>,
    /// The text that the reply repeated over and over, if the call was cut because of it.
    #[doc(hidden)]
    pub repeats: Option<Fingerprint>,
}

impl Reply {
    /// Makes a reply with these tokens, in which the provider reports nothing of the context.
    #[must_use]
    pub fn new(message: Message, stop: StopReason, usage: Usage) -> Self {
        let (context, broken, repeats) = (ContextReport::default(), None, None);
        Self { message, stop, usage, context, broken, repeats }
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
    #[doc(hidden)]
    Taken(Allowance),
    /// The tokens that the call has cost so far, as the provider counted them or estimated from what came. A
    /// call that is cut costs the last of them.
    Spent(Usage),
    /// Any other data arrived, which shows that the stream is alive.
    Alive,
}

/// The callback that receives the parts of a reply.
pub type DeltaSink<'a> = &'a mut (dyn for<'d> FnMut(Delta<'d>) + Send);

/// A language model of a program: it answers requests, and callsheet does the rest.
///
/// ```
/// # mod callsheet { pub use callsheet_models::model::*; pub use callsheet_words::message::*; }
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
    /// Makes one attempt to answer. Dropping the future ends it. What the reply consists of may be given to
    /// `deltas` as it comes, for whoever watches.
    ///
    /// # Errors
    /// Returns an error if no block of the reply was complete; [`ErrorClass`] lists the classes.
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;
}

/// A client of models behind a protocol, which also decides how a request is written. Each [`Model`] is one, with
/// callsheet's own form of a request.
pub trait Client: Send + Sync {
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

impl<M: Model> Client for M {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Model::call(self, request, deltas)
    }
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
    // Without breakpoints nobody asks for the number of blocks.
    Piece { bytes: message.to_bytes(), mark_at: None, blocks: 1 }
}

impl Request {
    /// Returns the conversation, as callsheet shows it to a [`Model`].
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        let parse = |piece: &Piece| serde_json::from_slice(&piece.bytes).ok();
        self.pieces.iter().filter_map(parse).collect()
    }

    /// Returns the system prompt, as callsheet gives it to a [`Model`].
    #[must_use]
    pub fn system(&self) -> String {
        let head: Option<serde_json::Value> = serde_json::from_slice(&self.head.0).ok();
        let system = head.as_ref().and_then(|head| head["system"].as_str());
        system.unwrap_or_default().to_owned()
    }
}
