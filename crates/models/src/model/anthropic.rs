//! The client for the Anthropic Messages API.
//!
//! Owns the rendering of requests, cache breakpoints included. `context` owns the fields for
//! context editing and compaction, `assembly` the reading of the stream, `usage` the token counts,
//! `unknown` what has a form that this version does not know. Knows nothing of retries.

mod assembly;
mod context;
mod events;
mod unknown;
mod usage;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::assembly::MessageAssembly;
use crate::message::{Block, Json, Message, scan};
use crate::model::http::{
    Endpoint, EndpointError, Optional, Transport, is_closed, judge_schema, sendable_input,
    with_extra,
};
use crate::model::openai::reasoning;
use crate::model::responses::phase;
use crate::model::{
    BoxFuture, Client, DeltaSink, ErrorClass, Head, ModelError, Piece, Reply, Request,
};
use crate::spec::capability::{Declared, ModelFacts};
use crate::spec::{ModelSpec, ThinkingMode};
use crate::tool_spec::ToolSpec;

/// The version of the API, sent in the header `anthropic-version`.
const VERSION: &str = "2023-06-01";
/// Text that makes a block the end of a cached prefix; it is inserted before the block's closing
/// brace.
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;
/// The same for an entry of the cache that is kept for an hour after each use.
const HOUR_MARK: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;
/// The most cache marks in messages. The API accepts four marks in a request, and the head has one.
const MESSAGE_MARKS: usize = 3;
/// The most blocks between two marks. The API searches an earlier cache entry at most 20 blocks
/// before a mark; its documentation advises a mark every 15.
const MARK_DISTANCE: usize = 15;

/// The beginning of the field that has the effort and the format of the answer.
const OUTPUT_CONFIG: &str = r#""output_config":{"#;
/// Types of blocks that other protocols gave, and this one refuses.
const FOREIGN: [&str; 3] = [reasoning::TYPE, phase::TYPE, "reasoning"];
/// What stands for a message of which nothing can be sent: the roles must alternate.
const NO_WORDS: &str = "(no words)";

/// The header that lists the betas of a request.
const BETA: HeaderName = HeaderName::from_static("anthropic-beta");

/// A client for the Anthropic Messages API.
#[derive(Debug)]
pub struct Anthropic {
    transport: Transport,
    /// The betas in the endpoint's own headers.
    betas: Vec<String>,
    cache_for: CacheFor,
}

/// The time for which the API keeps an entry of its cache after each use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheFor {
    /// Five minutes: a write costs a quarter more than input.
    #[default]
    FiveMinutes,
    /// An hour: a write costs twice the input.
    Hour,
}

impl CacheFor {
    fn mark(self) -> &'static str {
        match self {
            Self::FiveMinutes => MARK,
            Self::Hour => HOUR_MARK,
        }
    }

    fn control(self) -> CacheControl {
        CacheControl { r#type: "ephemeral", ttl: (self == Self::Hour).then_some("1h") }
    }
}

impl Anthropic {
    /// Creates a client for the endpoint; `/v1/messages` is appended to its URL.
    ///
    /// # Errors
    /// Returns an error if the endpoint's URL or headers cannot be used.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let mut own = vec![("anthropic-version", VERSION.to_owned())];
        if let Some(key) = &endpoint.key {
            own.push(("x-api-key", key.expose().to_owned()));
        }
        let headers = endpoint.all_headers();
        let named = headers.filter(|(name, _)| name.eq_ignore_ascii_case(BETA.as_str()));
        let betas = named.map(|(_, value)| value.to_owned()).collect();
        let transport = Transport::new(endpoint, "/v1/messages", &own)?;
        Ok(Self { transport, betas, cache_for: CacheFor::default() })
    }

    /// Returns the client with this time for the entries of the cache.
    #[must_use]
    pub fn caching_for(self, cache_for: CacheFor) -> Self {
        Self { cache_for, ..self }
    }

    /// Returns the header of a request that needs these betas. A header of a request replaces the
    /// endpoint's, so it repeats the betas of the endpoint.
    fn headers(&self, needed: &[&str]) -> HeaderMap {
        let own = self.betas.iter().map(String::as_str);
        let all: Vec<&str> = own.chain(needed.iter().copied()).collect();
        let value = HeaderValue::from_str(&all.join(",")).ok().filter(|_| !needed.is_empty());
        value.into_iter().map(|value| (BETA, value)).collect()
    }

    async fn exchange(&self, request: Request, deltas: DeltaSink<'_>) -> Result<Reply, ModelError> {
        let fields = context::fields(&request.context, &request.pieces);
        let parts = body_parts(&request, self.cache_for, &fields.body);
        let headers = self.headers(&fields.betas);
        let assembly = MessageAssembly::default();
        let reply = self.transport.exchange(parts, headers, assembly, deltas).await;
        let reply = reply.map_err(|error| judge_schema(&request, error));
        reply.map_err(|error| match context::needed(&request.context) {
            Some(capability)
                if error.status == Some(400)
                    && error.class == ErrorClass::Fatal
                    && context::is_about_fields(&error.message) =>
            {
                ModelError { class: ErrorClass::Unsupported(capability), ..error }
            }
            Some(_) | None => error,
        })
    }

    async fn probe(&self, spec: &ModelSpec) -> Result<ModelFacts, ModelError> {
        // Without this beta the API does not report the capability to summarise on demand.
        let headers = self.headers(&[context::ON_DEMAND_BETA]);
        let model = self.transport.document(["models", &spec.model], headers).await?;
        Ok(context::facts(&model))
    }
}

impl Client for Anthropic {
    fn head(&self, spec: &ModelSpec, system: &str, tools: &[ToolSpec]) -> Head {
        render_head(spec, self.cache_for, system, "", tools)
    }

    fn head_with_context(
        &self,
        spec: &ModelSpec,
        system: &str,
        context: &str,
        tools: &[ToolSpec],
    ) -> Head {
        render_head(spec, self.cache_for, system, context, tools)
    }

    fn piece(&self, message: &Json) -> Piece {
        render_piece(message)
    }

    fn call<'a>(
        &'a self,
        request: Request,
        deltas: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(self.exchange(request, deltas))
    }

    fn facts<'a>(&'a self, spec: &'a ModelSpec) -> BoxFuture<'a, Result<ModelFacts, ModelError>> {
        Box::pin(async move {
            match &spec.capabilities {
                listed @ Declared::Listed(_) => Ok(ModelFacts::declared(listed)),
                Declared::Probe => self.probe(spec).await,
            }
        })
    }
}

#[derive(Serialize)]
struct HeadOut<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<Vec<TextOut<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolOut<'a>>,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct TextOut<'a> {
    r#type: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct ToolOut<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct CacheControl {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

/// Renders everything before the messages. The API puts tools before the system prompt in the
/// cached prefix, so one mark at the end of the prompt covers both; `context`, which changes, comes
/// after the mark. The seed is left out, because the API has none.
fn render_head(
    spec: &ModelSpec,
    cache_for: CacheFor,
    system: &str,
    context: &str,
    tools: &[ToolSpec],
) -> Head {
    let mark = || cache_for.control();
    let mut tools: Vec<ToolOut<'_>> = tools
        .iter()
        .map(|tool| ToolOut {
            name: tool.name.as_str(),
            description: &tool.description,
            input_schema: &tool.input_schema,
            cache_control: None,
        })
        .collect();
    // The API refuses an empty text block, so without a system prompt the last tool gets the mark.
    let block = |text, cache_control| TextOut { r#type: "text", text, cache_control };
    let mut blocks = Vec::new();
    if !system.trim().is_empty() {
        blocks.push(block(system, Some(mark())));
    } else if let Some(last) = tools.last_mut() {
        last.cache_control = Some(mark());
    }
    if !context.trim().is_empty() {
        blocks.push(block(context, None));
    }
    let system = (!blocks.is_empty()).then_some(blocks);
    let head = HeadOut {
        model: &spec.model,
        stream: true,
        temperature: spec.temperature,
        top_p: spec.top_p,
        thinking: spec.thinking_mode,
        output_config: spec.reasoning_effort.as_deref().map(|effort| OutputConfig { effort }),
        system,
        tools,
    };
    let head = with_extra(&Json::encode(&head), spec.extra_body.as_ref());
    let open = head.strip_suffix('}').unwrap_or_default();
    Head(Bytes::from(format!(r#"{open},"messages":["#)))
}

fn render_piece(message: &Json) -> Piece {
    let Some(ends) = block_ends(message.as_str()) else {
        // Content that is a plain text has no block that could have a mark.
        return Piece { bytes: message.to_bytes(), mark_at: None, blocks: 1 };
    };
    if ends.iter().all(|end| end.sendable) {
        let mark_at = ends.last().and_then(|end| end.mark_at);
        return Piece { bytes: message.to_bytes(), mark_at, blocks: ends.len() };
    }
    let Ok(mut repaired) = message.decode::<Message>() else {
        return Piece { bytes: message.to_bytes(), mark_at: None, blocks: ends.len() };
    };
    for block in &mut repaired.content {
        if let Block::ToolUse(call) = block {
            call.input = sendable_input(call);
        }
    }
    repaired.content.retain(|block| !is_foreign(block));
    if repaired.content.is_empty() {
        repaired.content.push(Block::Text(NO_WORDS.to_owned()));
    }
    render_piece(&Json::encode(&repaired))
}

fn is_foreign(block: &Block) -> bool {
    #[derive(Deserialize)]
    struct Word {
        r#type: String,
    }
    let Block::Other(json) = block else { return false };
    json.decode::<Word>().is_ok_and(|word| FOREIGN.contains(&word.r#type.as_str()))
}

/// The end of a block in a message.
struct BlockEnd {
    /// Offset at which a mark can be inserted, if the block may have one.
    mark_at: Option<usize>,
    /// True if the API accepts the block as it is: the input of a call must be an object.
    sendable: bool,
}

/// Returns the ends of a message's blocks, or `None` if its content is not a list.
fn block_ends(message: &str) -> Option<Vec<BlockEnd>> {
    #[derive(Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        content: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Inner<'a> {
        r#type: String,
        text: Option<String>,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
        #[serde(borrow)]
        input: Option<&'a RawValue>,
        #[serde(borrow)]
        cache_control: Option<&'a RawValue>,
    }
    let blocks = scan::blocks(message).or_else(|| {
        let outer: Outer<'_> = serde_json::from_str(message).ok()?;
        Some(outer.content.into_iter().map(RawValue::get).collect())
    })?;
    let end = |raw: &str| {
        // The block is a slice of the message, so the difference of the addresses is its offset.
        let offset = (raw.as_ptr() as usize).checked_sub(message.as_ptr() as usize);
        let at = offset.map(|offset| offset + raw.len() - 1);
        // Tool results are the longest blocks, so one that is recognised by its beginning is not
        // parsed.
        if raw.starts_with(r#"{"type":"tool_result","#) && !raw.contains("\"cache_control\"") {
            return BlockEnd { mark_at: at, sendable: true };
        }
        let Ok(block) = serde_json::from_str::<Inner<'_>>(raw) else {
            return BlockEnd { mark_at: None, sendable: true };
        };
        let markable = match block.r#type.as_str() {
            "text" => block.text.is_some_and(|text| !text.is_empty()),
            "tool_use" | "tool_result" | "image" | "document" => true,
            // A compaction block without content is a summary that failed, which takes no mark.
            "compaction" => block.content.is_some(),
            _ => false,
        };
        let is_object = block.input.is_some_and(|input| input.get().starts_with('{'));
        BlockEnd {
            mark_at: at.filter(|_| markable && block.cache_control.is_none()),
            sendable: match block.r#type.as_str() {
                "tool_use" => is_object,
                kind => !FOREIGN.contains(&kind),
            },
        }
    };
    Some(blocks.into_iter().map(end).collect())
}

/// Returns the parts of the request body: the head, the messages joined by commas with the marks
/// inserted, and the tail. The tail has the output limit and the fields of the context; it is not
/// part of the cached prefix.
fn body_parts(request: &Request, cache_for: CacheFor, tail: &str) -> Vec<Bytes> {
    let mut marks = breakpoints(&request.pieces);
    let mut parts = Vec::with_capacity(2 * request.pieces.len() + 2 * marks.len() + 2);
    // The API takes only schemas whose objects are closed.
    let schema = request.answer_schema.as_ref();
    let schema = schema.filter(|schema| is_closed(&schema.to_value(), Optional::Allowed));
    let format = schema
        .map(|schema| format!(r#""format":{{"type":"json_schema","schema":{}}}"#, schema.as_str()));
    // The head may have the object already, with the effort. In a text its quotes would be escaped.
    let own = format.as_ref().and_then(|_| after(&request.head.0, OUTPUT_CONFIG));
    match (&format, own) {
        (Some(format), Some(at)) => {
            parts.push(request.head.0.slice(..at));
            parts.push(Bytes::from(format!("{format},")));
            parts.push(request.head.0.slice(at..));
        }
        _ => parts.push(request.head.0.clone()),
    }
    let format = format.filter(|_| own.is_none());
    let format = format.map(|format| format!(",{OUTPUT_CONFIG}{format}}}")).unwrap_or_default();
    for (index, piece) in request.pieces.iter().enumerate() {
        if index > 0 {
            parts.push(Bytes::from_static(b","));
        }
        let mut sent = 0;
        while let Some((_, at)) = marks.pop_if(|(marked, _)| *marked == index) {
            parts.push(piece.bytes.slice(sent..at));
            parts.push(Bytes::from_static(cache_for.mark().as_bytes()));
            sent = at;
        }
        parts.push(piece.bytes.slice(sent..));
    }
    let limit = request.max_output_tokens;
    // The tools stay in the head: the cached prefix has them, and so have the earlier calls.
    let choice = if request.no_calls { r#","tool_choice":{"type":"none"}"# } else { "" };
    parts.push(Bytes::from(format!(r#"],"max_tokens":{limit}{choice}{format}{tail}}}"#)));
    parts
}

/// Returns the offset after the first occurrence of a text.
fn after(bytes: &[u8], text: &str) -> Option<usize> {
    let found = bytes.windows(text.len()).position(|window| window == text.as_bytes());
    found.map(|at| at + text.len())
}

/// Returns the places of the marks in the messages, the newest first, as piece and offset: one at
/// the end, and older ones so that at most [`MARK_DISTANCE`] blocks are between two. Marks move as
/// the conversation grows; the cache compares the prefix without them.
fn breakpoints(pieces: &[Piece]) -> Vec<(usize, usize)> {
    let mut chosen: Vec<(usize, usize)> = Vec::with_capacity(MESSAGE_MARKS);
    // The number of blocks newer than the last chosen mark, and the oldest candidate that is still
    // near enough to it.
    let mut chosen_after = 0;
    let mut reach: Option<(usize, (usize, usize))> = None;
    let mut after = 0;
    for (index, piece) in pieces.iter().enumerate().rev() {
        for (newer, at) in candidates(piece) {
            let (candidate, place) = (after + newer, (index, at));
            if chosen.is_empty() {
                chosen.push(place);
                chosen_after = candidate;
                continue;
            }
            if candidate - chosen_after > MARK_DISTANCE {
                let (taken_after, taken) = reach.take().unwrap_or((candidate, place));
                chosen.push(taken);
                chosen_after = taken_after;
                if chosen.len() == MESSAGE_MARKS {
                    return chosen;
                }
            }
            if chosen.last() != Some(&place) {
                reach = Some((candidate, place));
            }
        }
        after += piece.blocks;
    }
    // The next older mark is that of the system prompt, which must be near enough, too.
    if after.saturating_sub(chosen_after) > MARK_DISTANCE {
        chosen.extend(reach.map(|(_, place)| place));
    }
    chosen
}

/// Returns the offsets at which a piece can have marks, the newest first, each with the number of
/// its newer blocks. A piece of few blocks can have one at its end; a longer piece is parsed for
/// more.
fn candidates(piece: &Piece) -> Vec<(usize, usize)> {
    if piece.blocks <= MARK_DISTANCE {
        return piece.mark_at.map(|at| (0, at)).into_iter().collect();
    }
    let ends = std::str::from_utf8(&piece.bytes).ok().and_then(block_ends).unwrap_or_default();
    let newest_first = ends.into_iter().rev().enumerate();
    newest_first.filter_map(|(newer, end)| Some((newer, end.mark_at?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::http::received_input;

    fn message(role: &str, blocks: &[&str]) -> Json {
        let text = format!(r#"{{"role":"{role}","content":[{}]}}"#, blocks.join(","));
        Json::parse(text).expect("a message")
    }

    fn marked(piece: &Piece) -> String {
        let at = piece.mark_at.expect("a mark");
        let text = std::str::from_utf8(&piece.bytes).expect("text");
        format!("{}{MARK}{}", &text[..at], &text[at..])
    }

    #[test]
    fn blocks_of_other_protocols_are_left_out() {
        let foreign = r#"{"type":"chat_reasoning","message":{"reasoning_content":"hm"}}"#;
        let item = r#"{"type":"reasoning","id":"rs_1","encrypted_content":"x"}"#;
        let text = r#"{"type":"text","text":"so"}"#;
        let sent = |blocks: &[&str]| {
            let piece = render_piece(&message("assistant", blocks));
            String::from_utf8(piece.bytes.to_vec()).expect("text")
        };
        assert_eq!(sent(&[foreign, text, item]), sent(&[text]));
        assert_eq!(sent(&[foreign]), sent(&[r#"{"type":"text","text":"(no words)"}"#]));
        let thinking = r#"{"type":"thinking","thinking":"chat_reasoning",  "signature":"s"}"#;
        assert!(sent(&[thinking, text]).contains(thinking), "its own stay as they came");
    }

    #[test]
    fn a_mark_goes_into_the_last_block_only_where_it_may() {
        let piece = render_piece(&message("user", &[r#"{"type":"text","text":"a}]}"}"#]));
        let expected = r#"{"role":"user","content":[{"type":"text","text":"a}]}","cache_control":{"type":"ephemeral"}}]}"#;
        assert_eq!(marked(&piece), expected);
        let reordered = r#"{"content": [ {"type":"text","text":"x"} ] , "role":"user"}"#;
        let piece = render_piece(&Json::parse(reordered.to_owned()).expect("JSON"));
        assert!(serde_json::from_str::<serde_json::Value>(&marked(&piece)).is_ok());
        for unmarked in [
            r#"{"type":"thinking","thinking":"t","signature":"s"}"#,
            r#"{"type":"text","text":""}"#,
            r#"{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}"#,
            r#"{"type":"later","text":7}"#,
            r#"{"type":"compaction","content":null}"#,
        ] {
            let piece = render_piece(&message("assistant", &[unmarked]));
            assert_eq!((piece.mark_at, piece.blocks), (None, 1), "{unmarked}");
        }
        let text = Json::encode(&serde_json::json!({"role": "user", "content": "hi"}));
        assert_eq!(render_piece(&text).mark_at, None);
        assert_eq!(render_piece(&message("assistant", &[])).blocks, 0);
    }

    #[test]
    fn a_message_is_sent_as_it_is_unless_a_call_has_no_object() {
        let good =
            message("assistant", &[r#"{"type":"tool_use","id":"1","name":"t","input":{ }}"#]);
        assert_eq!(render_piece(&good).bytes.as_ptr(), good.as_str().as_ptr());
        let input = received_input("{\"a".to_owned());
        let block =
            format!(r#"{{"type":"tool_use","id":"1","name":"t","input":{}}}"#, input.as_str());
        let piece = render_piece(&message("assistant", &[&block]));
        let expected = r#"{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"t","input":{"invalid_json":"{\"a"}}]}"#;
        assert_eq!(std::str::from_utf8(&piece.bytes), Ok(expected));
        assert!(piece.mark_at.is_some());
    }

    fn pieces(blocks: &[usize]) -> Vec<Piece> {
        let text = r#"{"type":"text","text":"x"}"#;
        blocks.iter().map(|count| render_piece(&message("user", &vec![text; *count]))).collect()
    }

    /// Returns the number of blocks before the end of each mark, the oldest first.
    fn ordinals(blocks: &[usize]) -> Vec<usize> {
        let pieces = pieces(blocks);
        let ordinal = |(index, at): &(usize, usize)| {
            let text = std::str::from_utf8(&pieces[*index].bytes).expect("text");
            let ends = block_ends(text).expect("blocks");
            let within = ends.iter().position(|end| end.mark_at == Some(*at)).expect("an end");
            blocks[..*index].iter().sum::<usize>() + within + 1
        };
        let mut ordinals: Vec<usize> = breakpoints(&pieces).iter().map(ordinal).collect();
        ordinals.reverse();
        ordinals
    }

    #[test]
    fn marks_are_never_further_apart_than_they_may() {
        assert_eq!(ordinals(&[]), [0; 0]);
        assert_eq!(ordinals(&[1]), [1]);
        assert_eq!(ordinals(&[1, 2, 1]), [4]);
        assert_eq!(ordinals(&[1; 15]), [15]);
        assert_eq!(ordinals(&[1; 16]), [1, 16]);
        assert_eq!(ordinals(&[1; 100]), [70, 85, 100]);
        assert_eq!(ordinals(&[10, 10, 10, 10]), [20, 30, 40]);
        assert_eq!(ordinals(&[1, 40, 40]), [51, 66, 81]);
        assert_eq!(ordinals(&[1, 1, 20]), [7, 22]);
    }

    #[test]
    fn unmarkable_messages_do_not_stop_the_marks() {
        let mut pieces = pieces(&[1; 40]);
        for piece in &mut pieces[5..39] {
            piece.mark_at = None;
        }
        let chosen: Vec<usize> = breakpoints(&pieces).iter().map(|(index, _)| *index).collect();
        assert_eq!(chosen, [39, 4]);
    }
}
