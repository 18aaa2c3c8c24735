//! The client for OpenAI's Responses API.
//!
//! Owns the rendering of requests; `assembly` owns the reading of the stream. The server keeps nothing
//! (`store` is false): reasoning comes back encrypted, is recorded, and is sent again as it came.

mod assembly;
mod incoming;
pub mod phase;
mod usage;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde::Serialize;

use self::assembly::ResponseAssembly;
use crate::context::provider::compaction_block::is_sealed;
use crate::context::provider::server::{ContextWork, ServerEdit};
use crate::message::media::{Attachment, Media};
use crate::message::{Block, Json, Message};
use crate::model::http::{
    Endpoint, EndpointError, Optional, Transport, is_closed, judge_schema, sendable_input,
    with_extra,
};
use crate::model::openai::{OpenAiProfile, PDF_NAME, cache_key, error_text, joined};
use crate::model::{
    BoxFuture, Client, DeltaSink, ErrorClass, Head, ModelError, Piece, Reply, Request,
};
use crate::spec::ModelSpec;
use crate::spec::capability::Capability;
use crate::tool_spec::ToolSpec;

/// The type of the item that has the model's reasoning.
const REASONING: &str = "reasoning";

/// The type of the item that stands for everything before it.
const COMPACTION: &str = "compaction";

/// What stands for a message of which nothing can be sent: every message needs an item.
const NO_WORDS: &str = "(no words)";

/// A client for the Responses API.
#[derive(Debug)]
pub struct Responses {
    transport: Transport,
    profile: OpenAiProfile,
}

impl Responses {
    /// Creates a client for the endpoint, whose URL includes `/v1`; `/responses` is appended.
    ///
    /// # Errors
    /// Returns an error if the endpoint's URL or headers cannot be used.
    pub fn new(endpoint: Endpoint, profile: OpenAiProfile) -> Result<Self, EndpointError> {
        let own: Vec<_> = profile.key_of(&endpoint).into_iter().collect();
        Ok(Self { transport: Transport::new(endpoint, "/responses", &own)?, profile })
    }
}

impl Client for Responses {
    fn head(&self, spec: &ModelSpec, system: &str, tools: &[ToolSpec]) -> Head {
        render_head(&self.profile, spec, system, "", tools)
    }

    fn head_with_context(
        &self,
        spec: &ModelSpec,
        system: &str,
        context: &str,
        tools: &[ToolSpec],
    ) -> Head {
        render_head(&self.profile, spec, system, context, tools)
    }

    fn piece(&self, message: &Json) -> Piece {
        render_piece(message)
    }

    fn call<'a>(
        &'a self,
        request: Request,
        deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let parts = joined(&request, &tail(&request));
        Box::pin(async move {
            let assembly = ResponseAssembly::default();
            let reply = self.transport.exchange(parts, HeaderMap::new(), assembly, deltas).await;
            reply.map_err(|error| judge_context(&request, judge_schema(&request, error)))
        })
    }
}

#[derive(Serialize)]
struct HeadOut<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    include: [&'a str; 1],
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolOut<'a>>,
}

#[derive(Serialize)]
struct ReasoningOut<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct ToolOut<'a> {
    r#type: &'a str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Json,
    strict: bool,
}

impl<'a> ToolOut<'a> {
    fn of(tool: &'a ToolSpec) -> Self {
        let ToolSpec { name, description, input_schema: parameters, .. } = tool;
        Self { r#type: "function", name: name.as_str(), description, parameters, strict: false }
    }
}

/// An item of the input.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ItemOut<'a> {
    Message {
        role: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
        content: Vec<PartOut<'a>>,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: OutputOut<'a>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PartOut<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
    InputImage { image_url: String },
    InputFile { filename: &'a str, file_data: String },
}

/// The output of a call: a text, or parts if there is more than text.
#[derive(Serialize)]
#[serde(untagged)]
enum OutputOut<'a> {
    Text(&'a str),
    Parts(Vec<PartOut<'a>>),
}

impl PartOut<'_> {
    fn attached(attachment: &Attachment) -> Self {
        match attachment.medium() {
            Media::Image => Self::InputImage { image_url: attachment.data_url() },
            Media::Pdf => Self::InputFile { filename: PDF_NAME, file_data: attachment.data_url() },
        }
    }
}

impl<'a> ItemOut<'a> {
    fn said(role: &'a str, text: &'a str) -> Self {
        let part = match role {
            "assistant" => PartOut::OutputText { text },
            _ => PartOut::InputText { text },
        };
        Self::Message { role, phase: None, content: vec![part] }
    }

    /// A message with the phase that it came with.
    fn said_in(phase: Option<String>, role: &'a str, text: &'a str) -> Self {
        match Self::said(role, text) {
            Self::Message { role, content, .. } => Self::Message { role, phase, content },
            other => other,
        }
    }
}

/// Renders everything before the messages. The text that changes comes after the instructions and the
/// tools, as an item of the developer's.
fn render_head(
    profile: &OpenAiProfile,
    spec: &ModelSpec,
    system: &str,
    context: &str,
    tools: &[ToolSpec],
) -> Head {
    let tools: Vec<ToolOut<'_>> = tools.iter().map(ToolOut::of).collect();
    let prefix = || Json::encode(&(&spec.model, system, &tools));
    let head = HeadOut {
        model: &spec.model,
        stream: true,
        store: false,
        include: ["reasoning.encrypted_content"],
        instructions: system.trim(),
        temperature: spec.temperature,
        top_p: spec.top_p,
        reasoning: spec.reasoning_effort.as_deref().map(|effort| ReasoningOut { effort }),
        prompt_cache_key: profile.sends_cache_key.then(|| cache_key(&prefix())),
        tools,
    };
    let head = with_extra(&Json::encode(&head), spec.extra_body.as_ref());
    let open = head.strip_suffix('}').unwrap_or_default();
    let context = match context.trim().is_empty() {
        true => String::new(),
        false => Json::encode(&ItemOut::said("developer", context)).as_str().to_owned(),
    };
    Head(Bytes::from(format!(r#"{open},"input":[{context}"#)))
}

/// Returns the fields after the messages.
fn tail(request: &Request) -> String {
    let limit = request.max_output_tokens;
    let management = threshold(&request.context).map(|tokens| {
        format!(r#","context_management":[{{"type":"{COMPACTION}","compact_threshold":{tokens}}}]"#)
    });
    let choice = if request.no_calls { r#","tool_choice":"none""# } else { "" };
    let format = request.answer_schema.as_ref().map(|schema| {
        let strict = is_closed(&schema.to_value(), Optional::Refused);
        let schema = schema.as_str();
        format!(
            r#","text":{{"format":{{"type":"json_schema","name":"answer","strict":{strict},"schema":{schema}}}}}"#
        )
    });
    format!(
        r#","max_output_tokens":{limit}{choice}{}{}"#,
        format.unwrap_or_default(),
        management.unwrap_or_default()
    )
}

/// Returns the size in tokens above which the server is asked to summarise what is before.
fn threshold(work: &ContextWork) -> Option<u64> {
    let ContextWork::Edit(edits) = work else { return None };
    edits.iter().find_map(|edit| match edit {
        ServerEdit::Compact(compact) => Some(compact.trigger_tokens),
        ServerEdit::ClearThinking(_) | ServerEdit::ClearToolUses(_) => None,
    })
}

/// Names the capability if a refusal is about it, so that the client shrinks the conversation itself.
fn judge_context(request: &Request, error: ModelError) -> ModelError {
    let is_about = error.status == Some(400)
        && error.class == ErrorClass::Fatal
        && ["context_management", "compact_threshold"]
            .iter()
            .any(|field| error.message.contains(field));
    match threshold(&request.context).filter(|_| is_about) {
        Some(_) => {
            ModelError { class: ErrorClass::Unsupported(Capability::CompactThreshold), ..error }
        }
        None => error,
    }
}

/// Renders one message in block form as one or several items, joined by commas. Reasoning of this protocol
/// is sent as it came; that of others, and blocks of unknown type, are left out.
fn render_piece(message: &Json) -> Piece {
    let Ok(message) = message.decode::<Message>() else {
        return Piece { bytes: message.to_bytes(), mark_at: None, blocks: 1 };
    };
    let mut items: Vec<String> = Vec::new();
    // Results come first, because each must follow its call.
    for result in message.tool_results() {
        let (call_id, text) = (&result.tool_use_id, &error_text(result));
        let attached = result.attachments();
        let output = match attached.is_empty() {
            true => OutputOut::Text(text),
            false => {
                let parts = std::iter::once(PartOut::InputText { text });
                OutputOut::Parts(parts.chain(attached.iter().map(PartOut::attached)).collect())
            }
        };
        items.push(rendered(&ItemOut::FunctionCallOutput { call_id, output }));
    }
    let mut phase = None;
    for block in &message.content {
        match block {
            Block::Text(text) => {
                items.push(rendered(&ItemOut::said_in(phase.take(), message.role.as_str(), text)));
            }
            Block::ToolUse(call) => {
                let (call_id, name) = (&call.id, &call.name);
                let arguments = sendable_input(call);
                let arguments = arguments.as_str();
                items.push(rendered(&ItemOut::FunctionCall { call_id, name, arguments }));
            }
            Block::Other(item) if is_sendable(item) => {
                items.push(item.as_str().to_owned());
            }
            Block::Other(item) if phase::read(item).is_some() => phase = phase::read(item),
            Block::Other(item) => items.extend(Attachment::read(item).map(|attachment| {
                let (role, phase) = (message.role.as_str(), None);
                let content = vec![PartOut::attached(&attachment)];
                rendered(&ItemOut::Message { role, phase, content })
            })),
            Block::ToolResult(_) => {}
        }
    }
    // Reasoning alone is refused: an item of the reply must follow it.
    let is_said = |block: &Block| match block {
        Block::Other(item) => is_sealed(block) || Attachment::read(item).is_some(),
        Block::Text(_) | Block::ToolUse(_) | Block::ToolResult(_) => true,
    };
    if !message.content.iter().any(is_said) {
        items.push(rendered(&ItemOut::said(message.role.as_str(), NO_WORDS)));
    }
    let blocks = message.content.len();
    Piece { bytes: Bytes::from(items.join(",")), mark_at: None, blocks }
}

fn rendered(item: &ItemOut<'_>) -> String {
    Json::encode(item).as_str().to_owned()
}

/// Returns true if a block is an item that this API gave and can read again: without its encrypted content
/// the server would have to know it.
fn is_sendable(item: &Json) -> bool {
    let item = item.to_value();
    (item["type"] == REASONING || item["type"] == COMPACTION)
        && item["encrypted_content"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(message: &str) -> String {
        let piece = render_piece(&Json::parse(message.to_owned()).expect("JSON"));
        String::from_utf8(piece.bytes.to_vec()).expect("text")
    }

    #[test]
    fn a_message_becomes_items_and_reasoning_goes_back_as_it_came() {
        let reasoning =
            r#"{"type":"reasoning","id":"rs_1",  "summary":[],"encrypted_content":"A\/=="}"#;
        let known = r#"{"type":"reasoning","id":"rs_2","summary":[]}"#;
        let other = r#"{"type":"thinking","thinking":"t","signature":"s"}"#;
        let call = r#"{"type":"tool_use","id":"c1","name":"f","input":{"a": 1}}"#;
        let message = format!(
            r#"{{"role":"assistant","content":[{reasoning},{known},{other},{{"type":"text","text":"so"}},{call}]}}"#
        );
        let text = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"so"}]}"#;
        let call = r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\": 1}"}"#;
        assert_eq!(piece(&message), [reasoning, text, call].join(","));
        let words = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"(no words)"}]}"#;
        let alone = format!(r#"{{"role":"assistant","content":[{reasoning}]}}"#);
        assert_eq!(piece(&alone), [reasoning, words].join(","));
    }

    #[test]
    fn images_stand_in_the_result_and_documents_in_messages() {
        let image = Attachment::of("image/png", b"png").block();
        let pdf = Attachment::of("application/pdf", b"pdf").block();
        let (image, pdf) = (image.as_str(), pdf.as_str());
        let result = format!(
            r#"{{"type":"tool_result","tool_use_id":"c1","content":[{{"type":"text","text":"x"}},{image}]}}"#
        );
        let message = format!(r#"{{"role":"user","content":[{result},{pdf}]}}"#);
        let output = r#"{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:image/png;base64,cG5n"}]}"#;
        let file = r#"{"type":"message","role":"user","content":[{"type":"input_file","filename":"document.pdf","file_data":"data:application/pdf;base64,cGRm"}]}"#;
        assert_eq!(piece(&message), [output, file].join(","));
    }

    #[test]
    fn results_come_before_the_text() {
        let message = r#"{"role":"user","content":[{"type":"text","text":"go on"},{"type":"tool_result","tool_use_id":"c1","content":"no","is_error":true}]}"#;
        let expected = r#"{"type":"function_call_output","call_id":"c1","output":"Error: no"},{"type":"message","role":"user","content":[{"type":"input_text","text":"go on"}]}"#;
        assert_eq!(piece(message), expected);
    }

    #[test]
    fn the_phase_of_a_message_goes_back_with_it() {
        let text = r#"{"type":"text","text":"so"}"#;
        let phase = r#"{"type":"message_phase","phase":"commentary"}"#;
        let sent = piece(&format!(r#"{{"role":"assistant","content":[{phase},{text},{text}]}}"#));
        let part = r#""content":[{"type":"output_text","text":"so"}]"#;
        assert_eq!(
            sent,
            format!(
                r#"{{"type":"message","role":"assistant","phase":"commentary",{part}}},{{"type":"message","role":"assistant",{part}}}"#
            )
        );
        // A phase whose text an edit took away is no message.
        let sent = piece(&format!(r#"{{"role":"assistant","content":[{phase}]}}"#));
        assert!(sent.contains(NO_WORDS) && !sent.contains("phase"), "{sent}");
    }
}
