//! The client for OpenAI chat completions, as OpenAI and many compatible servers offer them.
//!
//! Owns the rendering of requests and the differences between servers; `assembly` owns the reading
//! of the stream. Knows nothing of retries.

mod assembly;
pub mod reasoning;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};

use self::assembly::ChatAssembly;
use self::reasoning::{Fields, Kept};
use crate::message::media::{Attachment, Media, attachments};
use crate::message::{Json, Message, Role, ToolResult};
use crate::model::http::{
    Endpoint, EndpointError, Optional, Transport, is_closed, judge_schema, sendable_input,
    with_extra,
};
use crate::model::{BoxFuture, Client, DeltaSink, Head, ModelError, Piece, Reply, Request};
use crate::spec::ModelSpec;
use crate::tool_spec::ToolSpec;

/// Prefix of a failed tool result: the protocol has no flag for it.
const ERROR_PREFIX: &str = "Error: ";

/// Name of a PDF, which the protocol asks for and nobody reads.
pub(super) const PDF_NAME: &str = "document.pdf";

/// The text before files that tools returned.
const ATTACHED: &str = "What the tools above returned, in their order:";

/// Digits of the hash in a `prompt_cache_key`: two prefixes of one account never meet in 64 bits.
const CACHE_KEY_DIGITS: usize = 16;

/// The name of the field that limits the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// The old name, the only one that most compatible servers know.
    #[default]
    MaxTokens,
    /// The new name, the only one that OpenAI's reasoning models accept.
    MaxCompletionTokens,
}

impl MaxTokensField {
    fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// The header that carries the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyHeader {
    /// `authorization`, as a bearer token.
    #[default]
    Authorization,
    /// `api-key`, as it is.
    ApiKey,
}

impl KeyHeader {
    fn of(self, key: &str) -> (&'static str, String) {
        match self {
            Self::Authorization => ("authorization", format!("Bearer {key}")),
            Self::ApiKey => ("api-key", key.to_owned()),
        }
    }
}

/// The differences between servers. The default suits most compatible servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenAiProfile {
    /// The field that limits the output.
    pub max_tokens_field: MaxTokensField,
    /// True if the request asks for token counts at the end of the stream. Without them output is
    /// estimated here and input by the caller.
    pub include_usage: bool,
    /// The header that carries the key.
    pub key_header: KeyHeader,
    /// True if reasoning is sent back to the server as it came. Some servers need it, most ignore it, and
    /// some refuse fields that they do not know.
    pub send_reasoning: bool,
    /// True if requests have a `prompt_cache_key`, which brings those of one prefix to one machine.
    pub sends_cache_key: bool,
}

impl Default for OpenAiProfile {
    fn default() -> Self {
        Self {
            max_tokens_field: MaxTokensField::default(),
            include_usage: true,
            key_header: KeyHeader::default(),
            send_reasoning: true,
            sends_cache_key: false,
        }
    }
}

impl OpenAiProfile {
    /// Returns the header with the key, if there is one.
    pub(super) fn key_of(&self, endpoint: &Endpoint) -> Option<(&'static str, String)> {
        endpoint.key.as_ref().map(|key| self.key_header.of(key.expose()))
    }

    /// Returns the profile of OpenAI's own service if the URL names it, else the default.
    #[must_use]
    pub fn for_url(url: &str) -> Self {
        let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
        match host.as_deref() {
            Some("api.openai.com") => Self {
                max_tokens_field: MaxTokensField::MaxCompletionTokens,
                sends_cache_key: true,
                ..Self::default()
            },
            _ => Self::default(),
        }
    }
}

/// A client for chat completions.
#[derive(Debug)]
pub struct OpenAi {
    transport: Transport,
    profile: OpenAiProfile,
}

impl OpenAi {
    /// Creates a client for the endpoint, whose URL includes `/v1`; `/chat/completions` is
    /// appended.
    ///
    /// # Errors
    /// Returns an error if the endpoint's URL or headers cannot be used.
    pub fn new(endpoint: Endpoint, profile: OpenAiProfile) -> Result<Self, EndpointError> {
        let own: Vec<_> = profile.key_of(&endpoint).into_iter().collect();
        let transport = Transport::new(endpoint, "/chat/completions", &own)?;
        Ok(Self { transport, profile })
    }
}

impl Client for OpenAi {
    fn head(&self, spec: &ModelSpec, system: &str, tools: &[ToolSpec]) -> Head {
        render_head(&self.profile, spec, &[system], tools)
    }

    fn head_with_context(
        &self,
        spec: &ModelSpec,
        system: &str,
        context: &str,
        tools: &[ToolSpec],
    ) -> Head {
        render_head(&self.profile, spec, &[system, context], tools)
    }

    fn piece(&self, message: &Json) -> Piece {
        render_piece(&self.profile, message)
    }

    fn call<'a>(
        &'a self,
        request: Request,
        deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let parts = joined(&request, &tail(&self.profile, &request));
        Box::pin(async move {
            let assembly = ChatAssembly::default();
            let reply = self.transport.exchange(parts, HeaderMap::new(), assembly, deltas).await;
            reply.map_err(|error| judge_schema(&request, error))
        })
    }
}

#[derive(Serialize)]
struct HeadOut<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolOut<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct ToolOut<'a> {
    r#type: &'a str,
    function: FunctionOut<'a>,
}

impl<'a> ToolOut<'a> {
    fn of(tool: &'a ToolSpec) -> Self {
        let function = FunctionOut {
            name: tool.name.as_str(),
            description: &tool.description,
            parameters: &tool.input_schema,
        };
        Self { r#type: "function", function }
    }
}

#[derive(Serialize)]
struct FunctionOut<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Json,
}

#[derive(Serialize)]
struct MessageOut<'a> {
    role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    content: Option<ContentOut<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallOut<'a>>,
    #[serde(flatten)]
    reasoning: Fields,
}

impl<'a> MessageOut<'a> {
    fn text(role: &'a str, content: &'a str) -> Self {
        Self {
            role,
            tool_call_id: None,
            content: Some(ContentOut::Text(content)),
            tool_calls: Vec::new(),
            reasoning: Fields::new(),
        }
    }
}

/// The content of a message: a text, or parts if there is more than text.
#[derive(Serialize)]
#[serde(untagged)]
enum ContentOut<'a> {
    Text(&'a str),
    Parts(Vec<PartOut<'a>>),
}

/// A part of a message's content.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PartOut<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: UrlOut },
    File { file: FileOut<'a> },
}

#[derive(Serialize)]
struct UrlOut {
    url: String,
}

#[derive(Serialize)]
struct FileOut<'a> {
    filename: &'a str,
    file_data: String,
}

impl PartOut<'_> {
    fn attached(attachment: &Attachment) -> Self {
        match attachment.medium() {
            Media::Image => Self::ImageUrl { image_url: UrlOut { url: attachment.data_url() } },
            Media::Pdf => Self::File {
                file: FileOut { filename: PDF_NAME, file_data: attachment.data_url() },
            },
        }
    }
}

#[derive(Serialize)]
struct CallOut<'a> {
    id: &'a str,
    r#type: &'a str,
    function: CalledOut<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Json>,
}

#[derive(Serialize)]
struct CalledOut<'a> {
    name: &'a str,
    /// The arguments as a text that contains JSON.
    arguments: String,
}

/// Renders everything before the messages, and the system messages. The head ends in `[` if there
/// are no system messages, so that `joined` knows whether a comma is needed.
fn render_head(
    profile: &OpenAiProfile,
    spec: &ModelSpec,
    system: &[&str],
    tools: &[ToolSpec],
) -> Head {
    let tools: Vec<ToolOut<'_>> = tools.iter().map(ToolOut::of).collect();
    // The first text only: the others change from time to time.
    let prefix = || Json::encode(&(&spec.model, system.first(), &tools));
    let head = HeadOut {
        model: &spec.model,
        stream: true,
        stream_options: profile.include_usage.then_some(StreamOptions { include_usage: true }),
        temperature: spec.temperature,
        top_p: spec.top_p,
        seed: spec.seed,
        reasoning_effort: spec.reasoning_effort.as_deref(),
        prompt_cache_key: profile.sends_cache_key.then(|| cache_key(&prefix())),
        tools,
    };
    let head = with_extra(&Json::encode(&head), spec.extra_body.as_ref());
    let open = head.strip_suffix('}').unwrap_or_default();
    let texts = system.iter().filter(|text| !text.trim().is_empty());
    let messages = texts.map(|text| Json::encode(&MessageOut::text("system", text)));
    let messages: Vec<Json> = messages.collect();
    let system = messages.iter().map(Json::as_str).collect::<Vec<_>>().join(",");
    Head(Bytes::from(format!(r#"{open},"messages":[{system}"#)))
}

/// Returns a key that requests of one prefix share. It says nothing about what the prefix holds.
pub(super) fn cache_key(prefix: &Json) -> String {
    let hash = blake3::hash(prefix.as_str().as_bytes()).to_hex();
    format!("callsheet-{}", &hash[..CACHE_KEY_DIGITS])
}

/// Renders one message in block form as one or several messages of this protocol, joined by commas.
/// Thinking and blocks of unknown type are left out: the protocol cannot express them. Reasoning that came
/// over this protocol is sent back where the profile says so.
fn render_piece(profile: &OpenAiProfile, message: &Json) -> Piece {
    let Ok(message) = message.decode::<Message>() else {
        return Piece { bytes: message.to_bytes(), mark_at: None, blocks: 1 };
    };
    let rendered = match message.role {
        Role::Assistant => {
            let kept = profile.send_reasoning.then(|| Kept::find(&message.content)).flatten();
            render_assistant(&message, kept.unwrap_or_default())
        }
        Role::User => render_user(&message),
    };
    Piece { bytes: Bytes::from(rendered), mark_at: None, blocks: message.content.len() }
}

fn render_assistant(message: &Message, kept: Kept) -> String {
    let text = message.text();
    // After an edit took calls away, what belonged to the others cannot be told.
    let is_same = kept.calls.len() == message.tool_calls().count();
    let mut extra = kept.calls.into_iter().filter(|_| is_same);
    let calls = message.tool_calls().map(|call| CallOut {
        id: &call.id,
        r#type: "function",
        function: CalledOut {
            name: &call.name,
            arguments: sendable_input(call).as_str().to_owned(),
        },
        extra_content: extra.next().flatten(),
    });
    let tool_calls: Vec<CallOut<'_>> = calls.collect();
    let is_left_out = text.is_empty() && !tool_calls.is_empty();
    let content = (!is_left_out).then_some(ContentOut::Text(&text));
    let reasoning = kept.message;
    let out = MessageOut { role: "assistant", tool_call_id: None, content, tool_calls, reasoning };
    Json::encode(&out).as_str().to_owned()
}

/// Returns the text of a result, which says if it is that of a failure.
pub(super) fn error_text(result: &ToolResult) -> String {
    let mut text = result.text();
    if result.is_error && !text.starts_with(ERROR_PREFIX) {
        text.insert_str(0, ERROR_PREFIX);
    }
    text
}

/// Renders the tool results before the text, because each must directly follow the assistant
/// message whose call it answers.
fn render_user(message: &Message) -> String {
    let mut rendered = Vec::new();
    for result in message.tool_results() {
        let text = error_text(result);
        let id = Some(result.tool_use_id.as_str());
        let out = MessageOut { tool_call_id: id, ..MessageOut::text("tool", &text) };
        rendered.push(Json::encode(&out));
    }
    let text = message.text();
    let attached = attachments(message);
    if !attached.is_empty() {
        // The message of a result takes only text, so what it shows follows it.
        let text = if text.is_empty() { ATTACHED } else { &text };
        let files = attached.iter().map(PartOut::attached);
        let parts = std::iter::once(PartOut::Text { text }).chain(files).collect();
        let content = Some(ContentOut::Parts(parts));
        rendered.push(Json::encode(&MessageOut { content, ..MessageOut::text("user", "") }));
    } else if !text.is_empty() || rendered.is_empty() {
        rendered.push(Json::encode(&MessageOut::text("user", &text)));
    }
    rendered.iter().map(Json::as_str).collect::<Vec<_>>().join(",")
}

/// Returns the fields after the messages.
fn tail(profile: &OpenAiProfile, request: &Request) -> String {
    let field = profile.max_tokens_field.as_str();
    let choice = if request.no_calls { r#","tool_choice":"none""# } else { "" };
    let format = request.answer_schema.as_ref().map(response_format).unwrap_or_default();
    let limit = request.max_output_tokens;
    format!(r#","{field}":{limit}{choice}{format}"#)
}

/// Returns the parts of the request body: head, messages joined by commas, and tail.
pub(super) fn joined(request: &Request, tail: &str) -> Vec<Bytes> {
    let mut parts = Vec::with_capacity(2 * request.pieces.len() + 2);
    parts.push(request.head.0.clone());
    let mut is_first = request.head.0.ends_with(b"[");
    for piece in request.pieces.iter() {
        if !std::mem::take(&mut is_first) {
            parts.push(Bytes::from_static(b","));
        }
        parts.push(piece.bytes.clone());
    }
    parts.push(Bytes::from(format!("]{tail}}}")));
    parts
}

/// Renders the field that holds the answer to a schema. The strict form, which no answer can break, takes
/// only schemas that leave nothing open.
fn response_format(schema: &Json) -> String {
    let strict = is_closed(&schema.to_value(), Optional::Refused);
    format!(
        r#","response_format":{{"type":"json_schema","json_schema":{{"name":"answer","strict":{strict},"schema":{}}}}}"#,
        schema.as_str()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(message: &str) -> String {
        rendered(&OpenAiProfile::default(), message)
    }

    fn rendered(profile: &OpenAiProfile, message: &str) -> String {
        let piece = render_piece(profile, &Json::parse(message.to_owned()).expect("JSON"));
        String::from_utf8(piece.bytes.to_vec()).expect("text")
    }

    #[test]
    fn calls_become_tool_calls_and_thinking_is_left_out() {
        let message = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"so"},{"type":"tool_use","id":"c1","name":"f","input":{"a": 1}},{"type":"tool_use","id":"c2","name":"g","input":"{\"b"}]}"#;
        let expected = r#"{"role":"assistant","content":"so","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{\"invalid_json\":\"{\\\"b\"}"}}]}"#;
        assert_eq!(piece(message), expected);
        let only_call = r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]}"#;
        assert!(piece(only_call).starts_with(r#"{"role":"assistant","content":null,"#));
        let only_thinking =
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t"}]}"#;
        assert_eq!(piece(only_thinking), r#"{"role":"assistant","content":""}"#);
    }

    #[test]
    fn reasoning_goes_back_as_it_came() {
        let call =
            |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#);
        let kept = r#"{"type":"chat_reasoning","message":{"reasoning_content":"hm\u0021"},"calls":[null,{"google": {"s":"A=="}}]}"#;
        let message = |calls: &[String]| {
            format!(r#"{{"role":"assistant","content":[{kept},{}]}}"#, calls.join(","))
        };
        let sent = |id: &str, extra: &str| {
            format!(
                r#"{{"id":"{id}","type":"function","function":{{"name":"f","arguments":"{{}}"}}{extra}}}"#
            )
        };
        let both = message(&[call("a"), call("b")]);
        let signed = sent("b", r#","extra_content":{"google": {"s":"A=="}}"#);
        let calls = [sent("a", ""), signed].join(",");
        let begin =
            |calls: &str| format!(r#"{{"role":"assistant","content":null,"tool_calls":[{calls}]"#);
        assert_eq!(piece(&both), format!(r#"{},"reasoning_content":"hm\u0021"}}"#, begin(&calls)));
        // A call was taken away, so the signature of the other is not guessed.
        let one = format!(r#"{},"reasoning_content":"hm\u0021"}}"#, begin(&sent("b", "")));
        assert_eq!(piece(&message(&[call("b")])), one);
        let strict = OpenAiProfile { send_reasoning: false, ..OpenAiProfile::default() };
        let none = format!("{}}}", begin(&[sent("a", ""), sent("b", "")].join(",")));
        assert_eq!(rendered(&strict, &both), none);
    }

    #[test]
    fn results_become_tool_messages_before_the_text() {
        let message = r#"{"role":"user","content":[{"type":"text","text":"go on"},{"type":"tool_result","tool_use_id":"c1","content":"x"},{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"no"}],"is_error":true}]}"#;
        let expected = r#"{"role":"tool","tool_call_id":"c1","content":"x"},{"role":"tool","tool_call_id":"c2","content":"Error: no"},{"role":"user","content":"go on"}"#;
        assert_eq!(piece(message), expected);
        let failed = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"Error: x","is_error":true}]}"#;
        assert_eq!(piece(failed), r#"{"role":"tool","tool_call_id":"c","content":"Error: x"}"#);
        assert_eq!(piece(r#"{"role":"user","content":"hi"}"#), r#"{"role":"user","content":"hi"}"#);
    }

    #[test]
    fn images_and_documents_follow_the_results() {
        let image = Attachment::of("image/png", b"png").block();
        let pdf = Attachment::of("application/pdf", b"pdf").block();
        let (image, pdf) = (image.as_str(), pdf.as_str());
        let result = format!(
            r#"{{"type":"tool_result","tool_use_id":"c1","content":[{{"type":"text","text":"x"}},{image}]}}"#
        );
        let message = format!(r#"{{"role":"user","content":[{result},{pdf}]}}"#);
        let expected = r#"{"role":"tool","tool_call_id":"c1","content":"x"},{"role":"user","content":[{"type":"text","text":"What the tools above returned, in their order:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}},{"type":"file","file":{"filename":"document.pdf","file_data":"data:application/pdf;base64,cGRm"}}]}"#;
        assert_eq!(piece(&message), expected);
    }

    #[test]
    fn the_profile_follows_the_url() {
        let field = |url| OpenAiProfile::for_url(url).max_tokens_field;
        assert_eq!(field("https://api.openai.com/v1"), MaxTokensField::MaxCompletionTokens);
        assert_eq!(field("http://localhost:11434/v1"), MaxTokensField::MaxTokens);
    }
}
