//! Builds a reply from the event stream of the Messages API.
//!
//! Owns the incomplete blocks. Unknown events, deltas and blocks are skipped. Events that
//! contradict each other break the stream, because a reply with a part missing is worse than none.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::events::{BlockIn, DeltaIn, EventIn, StartIn, StopIn, UsualDelta, WholeIn};
use super::unknown::{applied, merge, tolerate};
use super::usage::UsageIn;
use crate::context::provider::server::{AppliedEdit, ContextReport};
use crate::message::{Block, Json, Message, Role, StopReason, ToolCall, Usage};
use crate::model::http::{
    Arguments, Assembly, Bounds, Progress, Refusal, is_recordable, malformed, received_input,
    shorten, tree,
};
use crate::model::{Delta, DeltaSink, ModelError, Reply, sse};

const KNOWN_EVENTS: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];
const KNOWN_DELTAS: [&str; 4] =
    ["text_delta", "input_json_delta", "thinking_delta", "signature_delta"];

/// A reply of the Messages API of which the stream is being read.
#[derive(Debug, Default)]
pub(crate) struct MessageAssembly {
    /// The blocks in the order in which they began.
    slots: Vec<Slot>,
    usage: UsageIn,
    /// True if the server has told the count of the output that comes last.
    is_counted: bool,
    stop: Option<String>,
    explanation: Option<String>,
    edits: Vec<AppliedEdit>,
    whole: bool,
    /// The places in `slots` of the blocks that are open, by their indexes.
    open: HashMap<u64, usize>,
    bounds: Bounds,
}

/// A block and its place in the reply.
#[derive(Debug)]
struct Slot {
    index: u64,
    open: bool,
    part: PartialBlock,
}

/// A block that may be incomplete.
#[derive(Debug)]
enum PartialBlock {
    Text(String),
    Tool {
        id: String,
        name: String,
        input: Arguments,
    },
    Thinking {
        thinking: String,
        signature: String,
    },
    /// A block of another type: verbatim until a delta changes it.
    Other {
        raw: Json,
        changed: Option<Value>,
        input: String,
    },
}

impl Assembly for MessageAssembly {
    fn take(
        &mut self,
        event: sse::Event<'_>,
        deltas: DeltaSink<'_>,
    ) -> Result<Progress, ModelError> {
        if let Some(grown) = self.grow_as_usual(event.data, deltas) {
            return grown.map(|()| Progress::More);
        }
        let event_in: EventIn<'_> = match serde_json::from_slice(event.data) {
            Ok(event_in) => event_in,
            Err(error) => {
                tolerate(event.data, &KNOWN_EVENTS, &error)?;
                deltas(Delta::Alive);
                return Ok(Progress::More);
            }
        };
        match event_in.r#type.as_ref() {
            "content_block_delta" => self.grow(&event_in, deltas)?,
            "content_block_start" => self.begin(&event_in, deltas)?,
            "content_block_stop" => {
                let at = event_in.index.and_then(|index| self.open.remove(&index));
                if let Some(slot) = at.and_then(|at| self.slots.get_mut(at)) {
                    slot.open = false;
                }
                deltas(Delta::Alive);
            }
            "message_start" => {
                let start = event_in.message.and_then(|raw| serde_json::from_str(raw.get()).ok());
                if let Some(StartIn { usage: Some(usage) }) = start {
                    self.usage.replace(usage);
                }
                deltas(Delta::Alive);
            }
            "message_delta" => {
                self.note_stop(event_in);
                deltas(Delta::Alive);
            }
            "message_stop" => {
                self.whole = true;
                return Ok(Progress::Done);
            }
            "error" => return Err(Refusal::read(event.data).into_error(200)),
            // A ping, or an event of a later API version.
            _ => deltas(Delta::Alive),
        }
        Ok(Progress::More)
    }

    fn take_whole(
        &mut self,
        document: &[u8],
        deltas: DeltaSink<'_>,
    ) -> Option<Result<(), ModelError>> {
        let whole: WholeIn<'_> = serde_json::from_slice(document).ok()?;
        for (index, block) in (0..).zip(whole.content) {
            let (index, content_block) = (Some(index), Some(block));
            let event = EventIn { index, content_block, ..EventIn::default() };
            if let Err(error) = self.begin(&event, deltas) {
                return Some(Err(error));
            }
        }
        self.open.clear();
        self.slots.iter_mut().for_each(|slot| slot.open = false);
        // The document has the fields of the last events too.
        let (delta, usage) = (serde_json::from_slice(document).ok(), whole.usage);
        self.note_stop(EventIn { delta, usage, ..EventIn::default() });
        self.whole = true;
        Some(Ok(()))
    }

    fn is_whole(&self) -> bool {
        // Some servers leave out the last event; the stop reason follows all blocks.
        self.whole || (self.stop.is_some() && self.open.is_empty())
    }

    fn spent(&self) -> Usage {
        // The final count comes last, and the first report counts almost no output.
        let billed = self.usage.billed();
        Usage { output: billed.output.max(self.bounds.tokens()), ..billed }
    }

    fn written(&self) -> usize {
        self.bounds.written()
    }

    fn finish(self) -> Reply {
        let stop = self.stop_reason();
        let usage = if self.is_counted { self.usage.billed() } else { self.spent() };
        let context = self.report();
        // A call that the output limit cut must not run with half of its arguments.
        let cut = stop == StopReason::MaxTokens;
        let last = self.slots.len().saturating_sub(1);
        let slots = self.slots.into_iter().enumerate();
        let kept = slots.filter_map(|(at, mut slot)| {
            (!(cut && at == last && slot.part.is_cut_call())).then_some(slot)
        });
        Reply { context, ..Reply::new(message(kept), stop, usage) }
    }

    fn salvage(self, reason: &ModelError) -> Option<Reply> {
        // The block that is dropped was written, too.
        let (mut usage, context) = (self.spent(), self.report());
        let done = self.slots.into_iter().filter(|slot| !slot.open);
        let message = message(done);
        let said = |block: &Block| matches!(block, Block::Text(_) | Block::ToolUse(_));
        if !message.content.iter().any(said) {
            return None;
        }
        // The final count did not arrive, and the first report counts almost no output, so it is
        // estimated.
        usage.output = usage.output.max(estimate(&message));
        let stop = StopReason::Interrupted(reason.message.clone());
        let broken = Some(Box::new(reason.clone()));
        Some(Reply { message, stop, usage, context, broken, repeats: None })
    }
}

impl MessageAssembly {
    fn begin(&mut self, event: &EventIn<'_>, deltas: DeltaSink<'_>) -> Result<(), ModelError> {
        let (Some(index), Some(raw)) = (event.index, event.content_block) else {
            return Err(malformed("a block began without an index or a content"));
        };
        if self.open.contains_key(&index) {
            return Err(malformed(format!("block {index} began twice")));
        }
        self.bounds.block()?;
        self.bounds.content(raw.get().len())?;
        let part = PartialBlock::begin(raw)?;
        if let PartialBlock::Tool { .. } = part {
            self.bounds.call()?;
        }
        match &part {
            PartialBlock::Tool { name, .. } => deltas(Delta::Tool(name)),
            PartialBlock::Text(text) if !text.is_empty() => deltas(Delta::Text(text)),
            PartialBlock::Text(_) | PartialBlock::Thinking { .. } | PartialBlock::Other { .. } => {
                deltas(Delta::Alive);
            }
        }
        self.open.insert(index, self.slots.len());
        self.slots.push(Slot { index, open: true, part });
        Ok(())
    }

    /// Takes a piece of an open block in the usual form. Returns `None` for any other event.
    fn grow_as_usual(
        &mut self,
        data: &[u8],
        deltas: DeltaSink<'_>,
    ) -> Option<Result<(), ModelError>> {
        let (index, piece) = UsualDelta::read(data)?;
        let slot = self.slots.get_mut(*self.open.get(&index)?)?;
        Some(match (&mut slot.part, piece) {
            (PartialBlock::Text(text), UsualDelta::Text(piece)) => {
                self.bounds.content(piece.len()).map(|()| {
                    text.push_str(&piece);
                    deltas(Delta::Text(&piece));
                })
            }
            (PartialBlock::Tool { input, .. }, UsualDelta::Input(piece)) => {
                let taken = self.bounds.content(piece.len()).and_then(|()| input.push(&piece));
                taken.map(|()| deltas(Delta::Alive))
            }
            _ => return None,
        })
    }

    fn grow(&mut self, event: &EventIn<'_>, deltas: DeltaSink<'_>) -> Result<(), ModelError> {
        let raw = event.delta.map_or("", RawValue::get);
        let at = event.index.and_then(|index| self.open.get(&index));
        let Some(slot) = at.and_then(|at| self.slots.get_mut(*at)) else {
            let index = event.index.map_or("none".to_owned(), |index| index.to_string());
            return Err(malformed(format!("a delta for block {index}, which is not open")));
        };
        if let PartialBlock::Other { raw: block, changed, input } = &mut slot.part {
            deltas(Delta::Alive);
            self.bounds.content(raw.len())?;
            merge(changed.get_or_insert_with(|| block.to_value()), input, raw);
            return Ok(());
        }
        let delta: DeltaIn<'_> = match serde_json::from_str(raw) {
            Ok(delta) => delta,
            Err(error) => {
                tolerate(raw.as_bytes(), &KNOWN_DELTAS, &error)?;
                deltas(Delta::Alive);
                return Ok(());
            }
        };
        match (&mut slot.part, delta.r#type.as_ref()) {
            (PartialBlock::Text(text), "text_delta") => {
                self.bounds.content(delta.text.len())?;
                text.push_str(&delta.text);
                deltas(Delta::Text(&delta.text));
                return Ok(());
            }
            (PartialBlock::Tool { input, .. }, "input_json_delta") => {
                self.bounds.content(delta.partial_json.len())?;
                input.push(&delta.partial_json)?;
            }
            (PartialBlock::Thinking { thinking, .. }, "thinking_delta") => {
                self.bounds.content(delta.thinking.len())?;
                thinking.push_str(&delta.thinking);
            }
            (PartialBlock::Thinking { signature, .. }, "signature_delta") => {
                self.bounds.content(delta.signature.len())?;
                signature.push_str(&delta.signature);
            }
            (_, kind) if KNOWN_DELTAS.contains(&kind) => {
                return Err(malformed(format!("a {kind} for a block of another type")));
            }
            // A citation, or a delta of a later API version.
            _ => {}
        }
        deltas(Delta::Alive);
        Ok(())
    }

    fn note_stop(&mut self, event: EventIn<'_>) {
        if let Some(usage) = event.usage {
            self.is_counted |= usage.has_output();
            self.usage.replace(usage);
        }
        let stop: Option<StopIn> = event.delta.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let within = stop.as_ref().and_then(|stop| stop.context_management.as_ref());
        if let Some(management) = event.context_management.as_ref().or(within) {
            self.edits = applied(management);
        }
        let Some(StopIn { stop_reason, stop_details, .. }) = stop else { return };
        self.stop = stop_reason.or(self.stop.take());
        let details = stop_details.or(event.stop_details);
        let explanation = details.as_ref().and_then(|details| {
            let explanation = details["explanation"].as_str().filter(|text| !text.is_empty());
            explanation.or_else(|| details["category"].as_str())
        });
        self.explanation = explanation.map(shorten).or(self.explanation.take());
    }

    fn report(&self) -> ContextReport {
        ContextReport { tokens: self.usage.last_read(), edits: self.edits.clone() }
    }

    fn stop_reason(&self) -> StopReason {
        match self.stop.as_deref() {
            Some("end_turn") => StopReason::EndTurn,
            Some("tool_use") => StopReason::ToolUse,
            Some("max_tokens") => StopReason::MaxTokens,
            Some("stop_sequence") => StopReason::StopSequence,
            Some("pause_turn") => StopReason::PauseTurn,
            Some("refusal") => StopReason::Refusal(self.explanation.clone()),
            Some("model_context_window_exceeded") => StopReason::ContextWindowExceeded,
            Some("compaction") => StopReason::Compaction,
            Some(other) => StopReason::Other(shorten(other)),
            None if self
                .slots
                .iter()
                .any(|slot| matches!(slot.part, PartialBlock::Tool { .. })) =>
            {
                StopReason::ToolUse
            }
            None => StopReason::EndTurn,
        }
    }
}

impl PartialBlock {
    fn begin(raw: &RawValue) -> Result<Self, ModelError> {
        let other = || -> Result<Self, ModelError> {
            if !is_recordable(raw.get()) {
                return Err(malformed("a block that cannot be recorded"));
            }
            let raw = Json::parse(raw.get().to_owned());
            let raw = raw.map_err(|error| malformed(error.to_string()))?;
            Ok(Self::Other { raw, changed: None, input: String::new() })
        };
        let Ok(block) = serde_json::from_str::<BlockIn>(raw.get()) else { return other() };
        Ok(match block.r#type.as_str() {
            "text" => Self::Text(block.text),
            "tool_use" => {
                // The input at the start of a block is `{}`, unless a server deviates from the API
                // and sends it whole.
                let whole = block.input.as_ref().map_or("", Json::as_str);
                let is_empty = whole.bytes().all(|byte| b"{} \t\r\n".contains(&byte));
                let mut input = Arguments::default();
                input.push(if is_empty { "" } else { whole })?;
                Self::Tool { id: block.id, name: block.name, input }
            }
            "thinking" => {
                let signature = block.signature.unwrap_or_default();
                Self::Thinking { thinking: block.thinking, signature }
            }
            _ => return other(),
        })
    }

    /// Returns true if the output limit may have cut this call. A call without any input looks like
    /// one without arguments, and running it would be a guess.
    fn is_cut_call(&mut self) -> bool {
        let Self::Tool { input, .. } = self else { return false };
        !input.is_whole()
    }

    fn into_block(self) -> Option<Block> {
        Some(match self {
            // The API refuses a blank text block when the reply is sent back.
            Self::Text(text) if text.trim().is_empty() => return None,
            Self::Text(text) => Block::Text(text),
            Self::Tool { id, name, input } => {
                Block::ToolUse(ToolCall { id, name, input: received_input(input.into_text()) })
            }
            Self::Thinking { thinking, signature } => Block::Other(Json::encode(
                &serde_json::json!({"type": "thinking", "thinking": thinking, "signature": signature}),
            )),
            Self::Other { raw, changed: None, .. } => {
                return Some(Block::Other(raw)).filter(is_sendable);
            }
            Self::Other { changed: Some(mut block), input, .. } => {
                if let Some(input) = tree(input.as_bytes()) {
                    block["input"] = input;
                }
                return Some(Block::Other(Json::encode(&block))).filter(is_sendable);
            }
        })
    }
}

/// Returns true if the API accepts a block of another type when the reply is sent back: it refuses
/// a summary that is an empty text.
fn is_sendable(block: &Block) -> bool {
    let Block::Other(raw) = block else { return true };
    #[derive(Deserialize)]
    struct Peek<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }
    let peek = serde_json::from_str::<Peek<'_>>(raw.as_str());
    peek.map_or(true, |block| {
        block.r#type != "compaction" || block.content.is_none_or(|text| text.get() != r#""""#)
    })
}

/// Returns a message of the blocks in the order of their indexes; equal indexes keep the order in
/// which they began.
fn message(slots: impl Iterator<Item = Slot>) -> Message {
    let mut slots: Vec<Slot> = slots.collect();
    slots.sort_by_key(|slot| slot.index);
    let content = slots.into_iter().filter_map(|slot| slot.part.into_block()).collect();
    Message { role: Role::Assistant, content }
}

/// Estimates the tokens of a message as its characters divided by four.
fn estimate(message: &Message) -> u64 {
    Json::encode(message).as_str().chars().count() as u64 / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Usage;
    use crate::model::ErrorClass;
    use crate::model::http::Intake;

    fn replay<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Result<Reply, ModelError> {
        Intake::replay(MessageAssembly::default(), chunks)
    }

    fn stream(events: &[&str]) -> String {
        events.iter().map(|event| format!("data: {event}\n\n")).collect()
    }

    /// Interleaved blocks, thinking, blocks of a later version, and every kind of noise.
    fn fixture() -> String {
        stream(&[
            r#"{"type":"message_start","message":{"usage":{"input_tokens":7,"cache_read_input_tokens":5,"cache_creation_input_tokens":3,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm \u00e9"}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"bash","input":{}}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"cmd\": "}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi 😀"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"a":1}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"later_delta","text":{"a":1}}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"ls\"}"}}"#,
            r#"{"type":"content_block_stop","index":2}"#,
            r#"{"type":"later_event","index":"x","usage":[]}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"server_tool_use","id":"s","name":"search","input":{}}}"#,
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"q\":1}"}}"#,
            r#"{"type":"content_block_stop","index":3}"#,
            r#"{"type":"content_block_start","index":4,"content_block":{"type":"compaction","content":null}}"#,
            r#"{"type":"content_block_delta","index":4,"delta":{"type":"compaction_delta","content":"sum","encrypted_content":"x"}}"#,
            r#"{"type":"content_block_delta","index":4,"delta":{"type":"compaction_delta","content":"mary"}}"#,
            r#"{"type":"content_block_stop","index":4}"#,
            r#"{"type":"content_block_start","index":5,"content_block":{"type":"redacted_thinking","data":  "zz"}}"#,
            r#"{"type":"content_block_stop","index":5}"#,
            r#"{"type":"content_block_start","index":6,"content_block":{"type":"text","text":"\n"}}"#,
            r#"{"type":"content_block_stop","index":6}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":42}}"#,
            r#"{"type":"message_stop"}"#,
        ])
    }

    const BLOCKS: [&str; 6] = [
        r#"{"type":"thinking","thinking":"hm é","signature":"sig"}"#,
        r#"{"type":"text","text":"Hi 😀"}"#,
        r#"{"type":"tool_use","id":"t1","name":"bash","input":{"cmd": "ls"}}"#,
        r#"{"type":"server_tool_use","id":"s","name":"search","input":{"q":1}}"#,
        r#"{"type":"compaction","content":"summary","encrypted_content":"x"}"#,
        r#"{"type":"redacted_thinking","data":  "zz"}"#,
    ];

    fn rendered(reply: &Reply) -> Vec<String> {
        let blocks = reply.message.content.iter();
        blocks.map(|block| Json::encode(block).as_str().to_owned()).collect()
    }

    #[test]
    fn a_reply_is_the_same_wherever_the_stream_is_split() {
        let fixture = fixture();
        let whole = replay([fixture.as_bytes()]).expect("a reply");
        assert_eq!(rendered(&whole), BLOCKS);
        assert_eq!(whole.stop, StopReason::ToolUse);
        let usage = Usage { input: 7, output: 42, cache_read: 5, cache_write: 3 };
        assert_eq!(whole.usage, usage);
        for at in 0..fixture.len() {
            let (first, second) = fixture.as_bytes().split_at(at);
            assert_eq!(replay([first, second]).as_ref(), Ok(&whole), "split at {at}");
        }
        assert_eq!(replay(fixture.as_bytes().chunks(1)).as_ref(), Ok(&whole));
    }

    #[test]
    fn a_stream_cut_anywhere_keeps_exactly_what_completed() {
        let fixture = fixture();
        let after = |text: &str| fixture.find(text).expect("there") + text.len();
        let first_done = after(r#"_stop","index":1}"#);
        // An event counts once its line is whole, even without the line's end; the last one is not needed.
        let end = after(r#""usage":{"output_tokens":42}}"#);
        let mut kept = 0;
        for at in 0..end {
            match replay([&fixture.as_bytes()[..at]]) {
                Err(error) => {
                    assert!(at < first_done, "nothing kept at {at}");
                    assert_eq!(error.class, ErrorClass::Connection);
                }
                Ok(reply) => {
                    assert!(at >= first_done, "kept too early at {at}");
                    assert!(matches!(reply.stop, StopReason::Interrupted(_)), "at {at}");
                    let blocks = rendered(&reply);
                    assert_eq!(blocks, BLOCKS[..blocks.len()], "at {at}");
                    assert!(blocks.len() >= kept, "a block was lost at {at}");
                    kept = blocks.len();
                }
            }
        }
        assert_eq!(kept, BLOCKS.len());
        let whole = replay([&fixture.as_bytes()[..end]]).expect("a reply");
        assert_eq!(whole.stop, StopReason::ToolUse);
    }

    #[test]
    fn arguments_that_are_not_json_reach_the_tool_layer() {
        let text = |stop: &str| {
            stream(&[
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a"}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                &format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}"}}}}"#),
                r#"{"type":"message_stop"}"#,
            ])
        };
        let reply = replay([text("tool_use").as_bytes()]).expect("a reply");
        let call = reply.message.tool_calls().next().expect("a call");
        assert_eq!(call.input.as_str(), r#""{\"a""#);
        let reply = replay([text("max_tokens").as_bytes()]).expect("a reply");
        assert_eq!((reply.message.content.len(), reply.stop), (0, StopReason::MaxTokens));
    }

    #[test]
    fn every_stop_reason_is_told_apart() {
        let reply = |delta: &str| {
            let event = format!(r#"{{"type":"message_delta","delta":{delta}}}"#);
            let text = stream(&[&event, r#"{"type":"message_stop"}"#]);
            replay([text.as_bytes()]).expect("a reply").stop
        };
        let stop = |reason: &str| reply(&format!(r#"{{"stop_reason":"{reason}"}}"#));
        assert_eq!(stop("pause_turn"), StopReason::PauseTurn);
        assert_eq!(stop("model_context_window_exceeded"), StopReason::ContextWindowExceeded);
        assert_eq!(stop("stop_sequence"), StopReason::StopSequence);
        assert_eq!(stop("refusal"), StopReason::Refusal(None));
        assert_eq!(stop("later"), StopReason::Other("later".to_owned()));
        assert_eq!(reply("{}"), StopReason::EndTurn);
        let details = r#"{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"c","explanation":"no"}}"#;
        assert_eq!(reply(details), StopReason::Refusal(Some("no".to_owned())));
    }

    #[test]
    fn a_summary_amid_a_reply_is_kept_and_told() {
        let text = stream(&[
            r#"{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"compaction","content":"sum","signature":"s","tool_changes":[ ]}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"compaction"},"context_management":{"applied_edits":[{"type":"clear_tool_uses_20250919","cleared_tool_uses":8,"cleared_input_tokens":50000},{"type":"clear_thinking_20251015","cleared_thinking_turns":3,"cleared_input_tokens":1},7]},"usage":{"input_tokens":0,"output_tokens":0,"iterations":[{"type":"compaction","input_tokens":144,"output_tokens":276}]}}"#,
            r#"{"type":"message_stop"}"#,
        ]);
        let reply = replay([text.as_bytes()]).expect("a reply");
        let block = r#"{"type":"compaction","content":"sum","signature":"s","tool_changes":[ ]}"#;
        assert_eq!(
            (rendered(&reply), reply.stop),
            (vec![block.to_owned()], StopReason::Compaction)
        );
        assert_eq!((reply.usage.input, reply.usage.output), (144, 276));
        let edits = &reply.context.edits;
        assert_eq!((edits.len(), reply.context.cleared_tokens()), (2, 50_001));
        assert_eq!(edits[0].cleared_tool_uses, Some(8));
        assert_eq!(edits[1].cleared_thinking_turns, Some(3));
    }

    #[test]
    fn a_summary_that_failed_is_kept_and_an_empty_one_is_not() {
        let kept = |content: &str, delta: &str| {
            let start = format!(
                r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"compaction","content":{content}}}}}"#
            );
            let delta = format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"compaction_delta","content":{delta}}}}}"#
            );
            let stop = r#"{"type":"content_block_stop","index":0}"#;
            let text = stream(&[&start, &delta, stop, r#"{"type":"message_stop"}"#]);
            rendered(&replay([text.as_bytes()]).expect("a reply"))
        };
        assert_eq!(kept("null", "null"), [r#"{"type":"compaction","content":null}"#]);
        assert_eq!(kept("null", r#""s""#), [r#"{"type":"compaction","content":"s"}"#]);
        assert_eq!(kept("\"\"", "\"\""), [""; 0]);
    }

    #[test]
    fn what_does_not_fit_together_breaks_the_stream() {
        let start =
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
        for bad in [
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"x"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"x"}}"#,
            r#"{"type":"content_block_delta","index":"0","delta":{}}"#,
            r#"{"type":"content_block_delta"}"#,
            start,
            "{\"type\":",
            "[]",
        ] {
            let error = replay([stream(&[start, bad]).as_bytes()]).expect_err(bad);
            assert_eq!(error.class, ErrorClass::ServerError, "{bad}: {error}");
        }
        let proxied =
            r#"{"error":{"message":"prompt is too long: 9 tokens > 8 maximum","code":"400"}}"#;
        let error = replay([stream(&[start, proxied]).as_bytes()]).expect_err("an error object");
        assert_eq!(error.class, ErrorClass::ContextTokens { have: Some(9), max: Some(8) });
    }
}
