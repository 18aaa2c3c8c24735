//! How a request is rendered for a model that stands in for the agent's own. The call machine decides which does.

use std::sync::Arc;

use super::model_service::ModelService;
use crate::context::provider::compaction_block::{is_sealed, summary_text};
use crate::context::view::rules::Kind;
use crate::message::media::readable;
use crate::message::{Block, Json, Message};
use crate::model::Request;
use crate::model::openai::reasoning;
use crate::model::rendering::Pieces;
use crate::model::responses::phase;
use crate::tool::ToolSpec;

/// What stands for a message of which another model can read nothing: the roles must alternate.
const NO_WORDS: &str = "(no words)";

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
        Request { head, pieces: Pieces::of(pieces.collect()), ..request.clone() }
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
