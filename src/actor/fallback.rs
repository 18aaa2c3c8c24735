//! The models that stand in for one that cannot be called: which is called now, and how a request is
//! rendered for it.
//!
//! While a model is given up (`health.rs`), its fallbacks are called at once.

use std::sync::Arc;
use std::time::Duration;

use super::health::{Admitted, Falls};
use super::model_service::ModelService;
use super::services::Services;
use crate::context::provider::compaction_block::{is_sealed, summary_text};
use crate::context::provider::server::ContextWork;
use crate::context::view::rules::Kind;
use crate::message::media::readable;
use crate::message::{Block, Json, Message};
use crate::model::openai::reasoning;
use crate::model::rendering::Pieces;
use crate::model::responses::phase;
use crate::model::{ErrorClass, ModelError, Request};
use crate::tool::ToolSpec;

/// Attempts after which a model that has a fallback is given up: the official clients make three.
const ATTEMPTS: u32 = 3;

/// The longest time that such a call waits for a permit, before it goes to the fallback too.
const PROBE_WAIT: Duration = Duration::from_secs(5);

/// What stands for a message of which another model can read nothing: the roles must alternate.
const NO_WORDS: &str = "(no words)";

/// The use of a model for one call, which is settled by its end.
pub(super) struct Use<'a> {
    pub(super) service: &'a ModelService,
    admitted: Admitted,
    falls: Falls,
    is_over: bool,
}

impl<'a> Use<'a> {
    /// Takes the model, if it may be called now.
    fn take(service: &'a ModelService) -> Option<Self> {
        // Noted before the state is read, so that no fall after it is missed.
        let falls = service.health.falls();
        let admitted = service.health.admit();
        (admitted != Admitted::No).then_some(Self { service, admitted, falls, is_over: false })
    }

    /// Takes the model, whatever its state.
    pub(super) fn force(service: &'a ModelService) -> Self {
        let (admitted, falls) = (Admitted::Freely, service.health.falls());
        Self { service, admitted, falls, is_over: false }
    }

    /// Returns true if this is the model.
    pub(super) fn is_of(&self, service: &ModelService) -> bool {
        std::ptr::eq(self.service, service)
    }

    /// Returns true if the next model is to be called after this error. What a request is refused for
    /// would be refused by the others too. A call that tries a model again makes one attempt.
    pub(super) fn is_due(&self, error: &ModelError, attempt: u32) -> bool {
        let tries = if self.admitted == Admitted::AsProbe { ATTEMPTS } else { attempt };
        is_due(error, tries)
    }

    /// Notes that the provider answered, so that the model is well.
    pub(super) fn is_well(&mut self) {
        self.admitted = Admitted::Freely;
        self.service.health.is_well();
    }

    /// Gives the model up.
    pub(super) fn give_up(&mut self) {
        (self.admitted, self.is_over) = (Admitted::Freely, true);
        self.service.health.give_up();
    }

    /// Returns true if this call gave the model up.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits until the model is given up while the call waits for a permit.
    pub(super) async fn given_up(&mut self) {
        match self.admitted {
            Admitted::AsProbe => tokio::time::sleep(PROBE_WAIT).await,
            Admitted::Freely | Admitted::No => self.falls.next().await,
        }
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        if self.admitted == Admitted::AsProbe {
            self.service.health.abandon();
        }
    }
}

/// Returns the model that is called first: the agent's own, or the first of its fallbacks if it was given
/// up. If all were, it is the agent's own.
pub(super) fn first<'a>(
    services: &'a Services,
    own: &'a ModelService,
    expected_tokens: u64,
) -> Use<'a> {
    if own.spec.fallbacks.is_empty() {
        return Use::force(own);
    }
    let taken = Use::take(own).or_else(|| next(services, own, own, expected_tokens));
    taken.unwrap_or_else(|| Use::force(own))
}

/// Returns the next model after this one that can be called and holds the request, if there is any.
pub(super) fn next<'a>(
    services: &'a Services,
    own: &'a ModelService,
    after: &ModelService,
    expected_tokens: u64,
) -> Option<Use<'a>> {
    behind(services, own, after, expected_tokens).find_map(Use::take)
}

/// Returns true if [`next`] would find a model.
pub(super) fn has_next(
    services: &Services,
    own: &ModelService,
    after: &ModelService,
    expected_tokens: u64,
) -> bool {
    behind(services, own, after, expected_tokens).any(|service| service.health.is_ready())
}

fn behind<'a>(
    services: &'a Services,
    own: &'a ModelService,
    after: &ModelService,
    expected_tokens: u64,
) -> impl Iterator<Item = &'a ModelService> {
    let names = own.spec.fallbacks.iter();
    let all = names.filter_map(|name| services.models.get(name)).map(Arc::as_ref);
    let place = own.spec.fallbacks.iter().position(|name| *name == after.spec.name);
    let holds = move |service: &&ModelService| {
        let room = service.spec.context_window.saturating_sub(service.spec.max_output_tokens);
        expected_tokens <= room
    };
    all.skip(place.map_or(0, |place| place + 1)).filter(holds)
}

/// Returns true if a model is given up after this error of this attempt.
pub(super) fn is_due(error: &ModelError, attempt: u32) -> bool {
    match error.class {
        ErrorClass::QuotaExhausted | ErrorClass::Auth | ErrorClass::NotFound => true,
        ErrorClass::Connection if error.should_retry == Some(false) => true,
        ErrorClass::RateLimited
        | ErrorClass::Overloaded
        | ErrorClass::ServerError
        | ErrorClass::Connection
        | ErrorClass::IdleTimeout => {
            attempt >= ATTEMPTS || error.most_attempts.is_some_and(|most| attempt >= most)
        }
        ErrorClass::ContextTokens { .. }
        | ErrorClass::ContextPlusOutput { .. }
        | ErrorClass::RequestBytes
        | ErrorClass::Pairing
        | ErrorClass::ThinkingChanged
        | ErrorClass::ReplyTooLarge
        | ErrorClass::Unsupported(_)
        | ErrorClass::SchemaRefused
        | ErrorClass::Fatal => false,
    }
}

/// What a request was rendered from, to render it for another model.
#[derive(Debug)]
pub struct Source {
    /// The system prompt.
    system: String,
    /// The text after it that changes from time to time.
    context: String,
    /// The tools.
    tools: Arc<[ToolSpec]>,
    /// The messages of the checked view.
    messages: Vec<Json>,
}

impl Source {
    /// Takes what a request was rendered from; `None` if it begins with a summary that only the service can
    /// read which wrote it: another model would know nothing of what came before.
    pub(super) fn of(
        system: String,
        context: String,
        tools: Arc<[ToolSpec]>,
        messages: Vec<Json>,
    ) -> Option<Self> {
        let first = messages.first().filter(|first| first.as_str().contains("encrypted_content"));
        let first = first.and_then(|first| Message::read(first.as_str()).ok());
        let is_readable = first.is_none_or(|first| !first.content.iter().any(is_sealed));
        is_readable.then_some(Self { system, context, tools, messages })
    }

    /// Renders a request for another model. Thinking is left out: only the model that thought it can
    /// read it.
    pub(super) fn request(&self, service: &ModelService, request: &Request) -> Request {
        let (model, spec) = (&*service.model, &service.spec);
        let head = match self.context.is_empty() {
            true => model.head(spec, &self.system, &self.tools),
            false => model.head_with_context(spec, &self.system, &self.context, &self.tools),
        };
        let pieces = self
            .messages
            .iter()
            .map(|message| model.piece(&readable(&without_thinking(message), &spec.media)));
        Request {
            head,
            pieces: Pieces::of(pieces.collect()),
            max_output_tokens: request.max_output_tokens.min(spec.max_output_tokens),
            context: ContextWork::Nothing,
            answer_schema: request.answer_schema.clone().filter(|_| service.holds_to_schema()),
            ..request.clone()
        }
    }
}

fn without_thinking(message: &Json) -> Json {
    let Ok(mut read) = Message::read(message.as_str()) else { return message.clone() };
    let before = read.content.len();
    drop_thinking(&mut read);
    let mut is_same = read.content.len() == before;
    for block in &mut read.content {
        // A summary that the provider wrote is a block of its own protocol.
        if let Some(summary) = summary_text(block) {
            (*block, is_same) = (Block::Text(summary), false);
        }
    }
    if is_same {
        return message.clone();
    }
    if read.content.is_empty() {
        read.content.push(Block::Text(NO_WORDS.to_owned()));
    }
    Json::encode(&read)
}

/// Leaves out of a message what only the model reads that wrote it: thinking, and what it was for.
pub(super) fn drop_thinking(message: &mut Message) {
    message.content.retain(|block| !is_thinking(block));
}

fn is_thinking(block: &Block) -> bool {
    Kind::of(block) == Kind::Thinking || reasoning::is_of(block) || phase::is_of(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_model_may_do_better_goes_there() {
        let error = |class| ModelError::new(class, "no");
        for class in [ErrorClass::QuotaExhausted, ErrorClass::Auth, ErrorClass::NotFound] {
            assert!(is_due(&error(class), 1), "{class:?}");
        }
        for class in [
            ErrorClass::RateLimited,
            ErrorClass::Overloaded,
            ErrorClass::ServerError,
            ErrorClass::Connection,
            ErrorClass::IdleTimeout,
        ] {
            assert_eq!(
                [1, 2, 3].map(|attempt| is_due(&error(class), attempt)),
                [false, false, true]
            );
        }
        let refused = ModelError { should_retry: Some(false), ..error(ErrorClass::Connection) };
        assert!(is_due(&refused, 1), "a certificate is refused again");
        assert!(!is_due(&error(ErrorClass::Fatal), 9));
        for class in [ErrorClass::ContextTokens { have: None, max: None }, ErrorClass::RequestBytes]
        {
            assert!(!is_due(&error(class), 9), "the view is made smaller instead");
        }
    }

    #[test]
    fn another_model_reads_no_thinking() {
        let json = |text: &str| Json::parse(text.to_owned()).expect("JSON");
        let text = r#"{"type":"text","text":"so"}"#;
        let thinking = r#"{"type":"thinking","thinking":"hm","signature":"s"}"#;
        let kept = r#"{"type":"chat_reasoning","message":{"reasoning_content":"hm"}}"#;
        let message = |blocks: &[&str]| {
            json(&format!(r#"{{"role":"assistant","content":[{}]}}"#, blocks.join(",")))
        };
        let phase = r#"{"type":"message_phase","phase":"commentary"}"#;
        assert_eq!(without_thinking(&message(&[thinking, kept, phase, text])), message(&[text]));
        let words = r#"{"type":"text","text":"(no words)"}"#;
        assert_eq!(without_thinking(&message(&[thinking])), message(&[words]));
        let same = message(&[text]);
        assert!(without_thinking(&same).is_same(&same));
    }
}
