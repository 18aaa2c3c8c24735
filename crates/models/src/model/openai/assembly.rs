//! Builds a reply from a stream of chat completion chunks.
//!
//! Owns the incomplete text and calls, and accepts the differences between servers. A call is
//! complete only when the finish reason or the end of the stream has arrived.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::reasoning::{Reasoning, ReasoningIn, given};

use crate::context::provider::server::ContextReport;
use crate::message::{Block, Json, Message, Role, StopReason, ToolCall, Usage};
use crate::model::http::{
    Arguments, Assembly, Bounds, Progress, Refusal, TOKENS, count, lenient, malformed,
    received_input, shorten, tree,
};
use crate::model::{Delta, DeltaSink, ModelError, Reply, sse};

/// A chat completion of which the stream is being read.
#[derive(Debug, Default)]
pub(crate) struct ChatAssembly {
    text: String,
    reasoning: Reasoning,
    refusal: String,
    calls: Vec<PartialCall>,
    finish: Option<String>,
    done: bool,
    usage: Option<UsageIn>,
    /// The estimate of the tokens that had come when the server counted them last.
    counted_at: u64,
    bounds: Bounds,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Arguments,
    extra: Option<Json>,
}

#[derive(Deserialize)]
struct ChunkIn<'a> {
    #[serde(default, borrow)]
    choices: Option<Vec<ChoiceIn<'a>>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<UsageIn>,
    #[serde(default)]
    error: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    object: Option<String>,
}

#[derive(Deserialize)]
struct ChoiceIn<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default, borrow)]
    delta: Option<DeltaIn<'a>>,
    #[serde(default)]
    finish_reason: Option<String>,
}

/// A completion that came as one document.
#[derive(Deserialize)]
struct WholeIn<'a> {
    #[serde(borrow)]
    choices: Vec<WholeChoiceIn<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<UsageIn>,
}

#[derive(Deserialize)]
struct WholeChoiceIn<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow)]
    message: DeltaIn<'a>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct DeltaIn<'a> {
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default, borrow)]
    tool_calls: Option<Vec<CallIn<'a>>>,
    #[serde(default, borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(default, borrow)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(default, borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CallIn<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default, borrow)]
    function: Option<FunctionIn<'a>>,
    #[serde(default, borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct FunctionIn<'a> {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct UsageIn {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    total_tokens: Option<u64>,
    /// LiteLLM passes on the field of Anthropic.
    #[serde(default, deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    prompt_tokens_details: Option<DetailsIn>,
    #[serde(default, deserialize_with = "lenient")]
    completion_tokens_details: Option<DetailsIn>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct DetailsIn {
    #[serde(default, deserialize_with = "count")]
    cached_tokens: Option<u64>,
    /// OpenAI from GPT-5.6 on, and OpenRouter.
    #[serde(default, deserialize_with = "count")]
    cache_write_tokens: Option<u64>,
    /// LiteLLM.
    #[serde(default, deserialize_with = "count")]
    cache_creation_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    reasoning_tokens: Option<u64>,
}

impl UsageIn {
    /// Returns the tokens that were written, reasoning included. It is part of `completion_tokens` at most
    /// servers; at some it stands beside them, which the total shows.
    fn written(&self) -> Option<u64> {
        let completion = self.completion_tokens?;
        let reasoning = self.completion_tokens_details.and_then(|details| details.reasoning_tokens);
        let beside = match (self.total_tokens, self.prompt_tokens) {
            (Some(total), Some(prompt)) => {
                let rest = total.saturating_sub(prompt).saturating_sub(completion);
                rest.min(reasoning.unwrap_or(rest))
            }
            // What is part of a number is not larger than it.
            _ => reasoning.filter(|reasoning| *reasoning > completion).unwrap_or(0),
        };
        Some((completion + beside).min(TOKENS))
    }
}

impl Assembly for ChatAssembly {
    fn take(
        &mut self,
        event: sse::Event<'_>,
        deltas: DeltaSink<'_>,
    ) -> Result<Progress, ModelError> {
        if event.data.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Ok(Progress::Done);
        }
        let chunk: ChunkIn<'_> = serde_json::from_slice(event.data).map_err(|error| {
            Refusal::find_in(event.data).map_or_else(
                || malformed(format!("the stream cannot be read: {error}")),
                |refusal| refusal.into_error(200),
            )
        })?;
        if let Some(usage) = chunk.usage {
            (self.usage, self.counted_at) = (Some(usage), self.bounds.tokens());
        }
        if chunk.error.is_some() || chunk.object.as_deref() == Some("error") {
            return Err(Refusal::read(event.data).into_error(200));
        }
        let mut spoke = false;
        for choice in chunk.choices.into_iter().flatten() {
            // The request asks for one choice only.
            if choice.index.unwrap_or(0) == 0 {
                spoke |= self.grow(choice, deltas)?;
            }
        }
        if !spoke {
            deltas(Delta::Alive);
        }
        Ok(Progress::More)
    }

    fn take_whole(
        &mut self,
        document: &[u8],
        deltas: DeltaSink<'_>,
    ) -> Option<Result<(), ModelError>> {
        let whole: WholeIn<'_> = serde_json::from_slice(document).ok()?;
        let mut choices = whole.choices.into_iter();
        // The request asks for one choice only.
        let choice = choices.find(|choice| choice.index.unwrap_or(0) == 0)?;
        let mut message = choice.message;
        // Each call is whole, so equal ids, which some servers give, join none to another.
        let mut ids = HashSet::new();
        for (index, call) in (0..).zip(message.tool_calls.iter_mut().flatten()) {
            call.index = Some(index);
            call.id.take_if(|id| !ids.insert(id.clone()));
        }
        let (index, finish_reason) = (choice.index, choice.finish_reason);
        self.usage = whole.usage;
        let grown = self.grow(ChoiceIn { index, delta: Some(message), finish_reason }, deltas);
        self.done = true;
        Some(grown.map(|_| ()))
    }

    fn is_whole(&self) -> bool {
        self.done || self.finish.is_some()
    }

    fn spent(&self) -> Usage {
        self.bounds.spent(counted(self.usage), self.counted_at)
    }

    fn written(&self) -> usize {
        self.bounds.written()
    }

    fn finish(mut self) -> Reply {
        // A call that the output limit cut must not run with half of its arguments.
        let cut = self.finish.as_deref() == Some("length");
        if cut && self.calls.last_mut().is_some_and(|call| !call.arguments.is_whole()) {
            self.calls.pop();
        }
        let stop = self.stop_reason();
        let reported = self.usage;
        let message = self.into_message();
        let usage = usage(reported, &message);
        Reply::new(message, stop, usage)
    }

    /// Keeps the text if a call has begun after it, because the text is complete then. A call is
    /// never complete before the end, so calls are dropped.
    fn salvage(mut self, reason: &ModelError) -> Option<Reply> {
        if self.text.trim().is_empty() || self.calls.is_empty() {
            return None;
        }
        self.calls.clear();
        // The calls that are dropped were written, too.
        let (usage, context) = (self.spent(), ContextReport::default());
        let message = self.into_message();
        let stop = StopReason::Interrupted(reason.message.clone());
        let broken = Some(Box::new(reason.clone()));
        Some(Reply { message, stop, usage, context, broken, repeats: None })
    }
}

impl ChatAssembly {
    /// Takes a choice; returns true if it was passed on to `deltas`.
    fn grow(&mut self, choice: ChoiceIn<'_>, deltas: DeltaSink<'_>) -> Result<bool, ModelError> {
        let mut spoke = false;
        if let Some(delta) = choice.delta {
            let reasoning = ReasoningIn {
                content: delta.reasoning_content,
                text: delta.reasoning,
                details: delta.reasoning_details,
                extra: delta.extra_content,
            };
            self.reasoning.grow(&reasoning, &mut self.bounds)?;
            let text = delta.content.map(plain_text).unwrap_or_default();
            if !text.is_empty() {
                self.bounds.content(text.len())?;
                self.text.push_str(&text);
                deltas(Delta::Text(&text));
                spoke = true;
            }
            let refusal = delta.refusal.unwrap_or_default();
            self.bounds.content(refusal.len())?;
            self.refusal.push_str(&refusal);
            for call in delta.tool_calls.into_iter().flatten() {
                spoke |= self.grow_call(call, deltas)?;
            }
        }
        let finish = choice.finish_reason.filter(|reason| !reason.is_empty());
        self.finish = finish.or(self.finish.take());
        Ok(spoke)
    }

    fn grow_call(&mut self, call: CallIn<'_>, deltas: DeltaSink<'_>) -> Result<bool, ModelError> {
        let CallIn { index, id, function, extra_content } = call;
        let id = id.unwrap_or_default();
        let FunctionIn { name, arguments } = function.unwrap_or_default();
        let name = name.unwrap_or_default();
        let at = match self.find_call(index, &id, &name) {
            Some(at) => at,
            None if name.is_empty() && id.is_empty() => {
                return Err(malformed("a fragment of a call that has not begun"));
            }
            None => {
                self.bounds.call()?;
                self.calls.push(PartialCall { index, ..PartialCall::default() });
                self.calls.len() - 1
            }
        };
        let part = &mut self.calls[at];
        if part.id.is_empty() {
            self.bounds.content(id.len())?;
            part.id = id;
        }
        let begins = part.name.is_empty() && !name.is_empty();
        if begins {
            deltas(Delta::Tool(&name));
            self.bounds.content(name.len())?;
            part.name = name;
        }
        if let Some(extra) = extra_content.and_then(given) {
            self.bounds.content(extra.as_str().len())?;
            part.extra = Some(extra);
        }
        let raw = arguments.map_or("null", RawValue::get);
        let fragment = match serde_json::from_str::<Option<String>>(raw) {
            Ok(text) => Cow::from(text.unwrap_or_default()),
            // Some servers send the arguments as JSON and not as text.
            Err(_) => Cow::from(raw),
        };
        self.bounds.content(fragment.len())?;
        part.arguments.push(&fragment)?;
        Ok(begins)
    }

    /// Returns the call that a fragment belongs to. The id decides, then the index. A fragment with
    /// a name and the index of a call that has all its arguments begins another call, because some
    /// servers number every call 0. One with a name and an index of its own begins another call too: some
    /// servers give all calls one id.
    fn find_call(&mut self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let is_it = |call: &PartialCall| !id.is_empty() && call.id == id;
        let both = |call: &PartialCall| is_it(call) && call.index == index;
        let is_another = !name.is_empty() && index.is_some();
        let at = self.calls.iter().rposition(both);
        let of_id = || self.calls.iter().rposition(is_it);
        if let Some(at) =
            at.or_else(|| of_id().filter(|at| !is_another || self.calls[*at].index.is_none()))
        {
            return Some(at);
        }
        let same = |call: &PartialCall| index.is_none() || call.index == index;
        let at = self.calls.iter().rposition(same)?;
        let call = &mut self.calls[at];
        let other_id = !id.is_empty() && !call.id.is_empty();
        let other_call = !name.is_empty() && !call.name.is_empty() && call.arguments.is_whole();
        (!other_id && !other_call).then_some(at)
    }

    fn stop_reason(&self) -> StopReason {
        if !self.refusal.is_empty() {
            return StopReason::Refusal(Some(shorten(&self.refusal)));
        }
        match self.finish.as_deref() {
            Some("content_filter") => StopReason::Refusal(None),
            Some("length") => StopReason::MaxTokens,
            // Several servers report `stop` although there are calls.
            Some("stop" | "tool_calls" | "function_call") | None => match self.calls.is_empty() {
                true => StopReason::EndTurn,
                false => StopReason::ToolUse,
            },
            Some(other) => StopReason::Other(shorten(other)),
        }
    }

    fn into_message(mut self) -> Message {
        let extra = self.calls.iter_mut().map(|call| call.extra.take()).collect();
        let reasoning = self.reasoning.into_block(extra);
        let text = (!self.text.trim().is_empty()).then_some(Block::Text(self.text));
        let calls = self.calls.into_iter().map(PartialCall::into_block);
        let content = reasoning.into_iter().chain(text).chain(calls).collect();
        Message { role: Role::Assistant, content }
    }
}

impl PartialCall {
    fn into_block(self) -> Block {
        // Results are joined to calls by the id, so a call without an id gets one here.
        let id = match self.id.is_empty() {
            true => format!("call_{}", Uuid::now_v7().simple()),
            false => self.id,
        };
        Block::ToolUse(ToolCall {
            id,
            name: self.name,
            input: received_input(self.arguments.into_text()),
        })
    }
}

/// Returns the content of a delta as text: a text, or the texts in a list of parts. Any other content
/// has none.
fn plain_text(content: &RawValue) -> String {
    #[derive(Deserialize)]
    struct PartIn {
        #[serde(default, deserialize_with = "lenient")]
        text: Option<String>,
    }
    if let Ok(text) = serde_json::from_str(content.get()) {
        return text;
    }
    let parts: Option<Vec<PartIn>> = tree(content.get().as_bytes());
    parts.into_iter().flatten().filter_map(|part| part.text).collect()
}

/// Returns the token counts that were reported; `prompt_tokens` includes the tokens that were read from a
/// cache or written to it, which are taken off.
fn counted(reported: Option<UsageIn>) -> Usage {
    let Some(usage) = reported else { return Usage::default() };
    let prompt = usage.prompt_tokens.unwrap_or(0);
    let details = usage.prompt_tokens_details;
    let of = |field: fn(&DetailsIn) -> Option<u64>| details.as_ref().and_then(field);
    let cached = of(|details| details.cached_tokens).unwrap_or(0);
    let written = of(|details| details.cache_write_tokens)
        .or_else(|| of(|details| details.cache_creation_tokens))
        .or(usage.cache_creation_input_tokens)
        .unwrap_or(0);
    // More than there is cannot have been written.
    let written = written.min(prompt.saturating_sub(cached));
    Usage {
        input: prompt.saturating_sub(cached).saturating_sub(written),
        output: usage.written().unwrap_or(0),
        cache_read: cached,
        cache_write: written,
    }
}

/// Returns the token counts of a reply. Missing output is estimated as characters divided by four.
/// Missing input stays zero, because the caller has a better estimate.
fn usage(reported: Option<UsageIn>, message: &Message) -> Usage {
    let counted = counted(reported);
    match reported.and_then(|usage| usage.completion_tokens) {
        Some(_) => counted,
        None => {
            let written = Json::encode(message).as_str().chars().count() as u64 / 4;
            Usage { output: written, ..counted }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::ErrorClass;
    use crate::model::http::Intake;

    fn replay<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Result<Reply, ModelError> {
        Intake::replay(ChatAssembly::default(), chunks)
    }

    fn choice(delta: &str, finish: &str) -> String {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}],\
             \"usage\":null}}\n\n"
        )
    }

    fn call(fields: &str) -> String {
        choice(&format!(r#"{{"tool_calls":[{fields}]}}"#), "null")
    }

    const DONE: &str = "data: [DONE]\n\n";
    const USAGE: &str = "data: {\"choices\":null,\"usage\":{\"prompt_tokens\":100,\
        \"completion_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":60}}}\n\n";

    fn fixture() -> String {
        [
            ": processing\r\n\r\n".to_owned(),
            choice(r#"{"role":"assistant","content":"","reasoning":"hm","obfuscation":"x"}"#, "null"),
            choice(r#"{"content":"Hi 😀"}"#, "null"),
            call(r#"{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}"#),
            call(r#"{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{"}}"#),
            call(r#"{"index":0,"function":{"arguments":"{\"a\": 1}"}}"#),
            call(r#"{"index":1,"function":{"arguments":"}"}}"#),
            choice("{}", r#""tool_calls""#),
            USAGE.to_owned(),
            DONE.to_owned(),
        ]
        .concat()
    }

    fn calls(reply: &Reply) -> Vec<(&str, &str, &str)> {
        let calls = reply.message.tool_calls();
        calls.map(|call| (&*call.id, &*call.name, call.input.as_str())).collect()
    }

    #[test]
    fn a_reply_is_the_same_wherever_the_stream_is_split() {
        let fixture = fixture();
        let whole = replay([fixture.as_bytes()]).expect("a reply");
        assert_eq!(whole.message.text(), "Hi 😀");
        assert_eq!(calls(&whole), [("c1", "f", r#"{"a": 1}"#), ("c2", "g", "{}")]);
        assert_eq!(whole.stop, StopReason::ToolUse);
        assert_eq!(whole.usage, Usage { input: 40, output: 9, cache_read: 60, cache_write: 0 });
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
        // An event counts once its line is whole, even without the line's end.
        let text_done = after(r#""arguments":""}}]},"finish_reason":null}],"usage":null}"#);
        let all_done = after(r#""finish_reason":"tool_calls"}],"usage":null}"#);
        for at in 0..fixture.len() {
            match replay([&fixture.as_bytes()[..at]]) {
                Err(error) => {
                    assert!(at < text_done, "nothing kept at {at}");
                    assert_eq!(error.class, ErrorClass::Connection);
                }
                Ok(reply) if matches!(reply.stop, StopReason::Interrupted(_)) => {
                    assert!((text_done..all_done).contains(&at), "interrupted at {at}");
                    let kept = serde_json::to_string(&reply.message.content).expect("blocks");
                    let reasoning = r#"{"type":"chat_reasoning","message":{"reasoning":"hm"}}"#;
                    assert_eq!(kept, format!(r#"[{reasoning},{{"type":"text","text":"Hi 😀"}}]"#));
                    assert_eq!(reply.usage.input, 0, "nothing was reported");
                }
                Ok(reply) => {
                    assert!(at >= all_done, "whole too early at {at}");
                    assert_eq!(calls(&reply).len(), 2);
                }
            }
        }
    }

    #[test]
    fn reasoning_beside_the_completion_is_counted_and_no_count_is_trusted_blindly() {
        let output = |usage: &str| {
            let text = [
                choice(r#"{"content":"x"}"#, r#""stop""#),
                format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n"),
            ];
            let usage = replay([text.concat().as_bytes()]).expect("a reply").usage;
            (usage.input, usage.output)
        };
        let cases = [
            // Reasoning within the completion, beside it, and beside it without a word.
            (
                r#"{"prompt_tokens":10,"completion_tokens":9,"total_tokens":19,"completion_tokens_details":{"reasoning_tokens":7}}"#,
                (10, 9),
            ),
            (
                r#"{"prompt_tokens":10,"completion_tokens":9,"total_tokens":26,"completion_tokens_details":{"reasoning_tokens":7}}"#,
                (10, 16),
            ),
            (r#"{"prompt_tokens":10,"completion_tokens":9,"total_tokens":26}"#, (10, 16)),
            (
                r#"{"prompt_tokens":10,"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":7}}"#,
                (10, 9),
            ),
            (
                r#"{"prompt_tokens":10,"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":7}}"#,
                (10, 9),
            ),
            // Totals that do not fit, fractions, negative and absurd counts.
            (r#"{"prompt_tokens":10,"completion_tokens":9,"total_tokens":1}"#, (10, 9)),
            (r#"{"prompt_tokens":10.9,"completion_tokens":9.5,"total_tokens":-19}"#, (10, 9)),
            (r#"{"prompt_tokens":-10,"completion_tokens":-9,"total_tokens":-19}"#, (0, 0)),
            (
                r#"{"prompt_tokens":1e300,"completion_tokens":1e300,"total_tokens":1e300}"#,
                (TOKENS, TOKENS),
            ),
            (
                r#"{"prompt_tokens":10,"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":18446744073709551615}}"#,
                (10, TOKENS),
            ),
            (
                r#"{"prompt_tokens":10,"completion_tokens":9,"completion_tokens_details":7,"prompt_tokens_details":{"cached_tokens":99}}"#,
                (0, 9),
            ),
        ];
        for (usage, expected) in cases {
            assert_eq!(output(usage), expected, "{usage}");
        }
    }

    #[test]
    fn calls_that_all_have_index_0_are_told_apart_by_their_id() {
        let whole = |id: &str, name: &str| {
            call(&format!(r#"{{"index":0{id},"function":{{"name":"{name}","arguments":"{{}}"}}}}"#))
        };
        let by_id =
            [whole(r#","id":"a""#, "f"), whole(r#","id":"b""#, "g"), choice("{}", r#""stop""#)];
        let text = by_id.concat();
        let reply = replay([text.as_bytes()]).expect("a reply");
        assert_eq!(calls(&reply), [("a", "f", "{}"), ("b", "g", "{}")]);
        assert_eq!(reply.stop, StopReason::ToolUse, "`stop` with calls");
        let no_id = [whole("", "f"), whole("", "g"), DONE.to_owned()].concat();
        let reply = replay([no_id.as_bytes()]).expect("a reply");
        let [(first, "f", "{}"), (second, "g", "{}")] = calls(&reply)[..] else {
            panic!("{reply:?}");
        };
        assert!(first.starts_with("call_") && first != second);
    }

    #[test]
    fn other_shapes_of_the_same_are_understood() {
        let text = [
            choice(r#"{"content":[{"type":"text","text":"a"}]}"#, "null"),
            "data: {\"choices\":[{\"delta\":null}],\"error\":null}\n\n".to_owned(),
            call(r#"{"id":"c","function":{"name":"f","arguments":{"x":1}}}"#),
            choice(r#"{"content":"b"}"#, r#""stop""#),
            "data: {\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":2}}\n\n".to_owned(),
        ];
        let reply = replay([text.concat().as_bytes()]).expect("a reply");
        assert_eq!(reply.message.text(), "ab");
        assert_eq!(calls(&reply), [("c", "f", r#"{"x":1}"#)]);
        assert_eq!(reply.usage, Usage { input: 8, output: 2, ..Usage::default() });
    }

    #[test]
    fn every_finish_reason_is_told_apart() {
        let stop = |finish: &str| {
            let text = choice(r#"{"content":"x"}"#, &format!("\"{finish}\""));
            replay([text.as_bytes()]).expect("a reply").stop
        };
        assert_eq!(stop("stop"), StopReason::EndTurn);
        assert_eq!(stop("length"), StopReason::MaxTokens);
        assert_eq!(stop("content_filter"), StopReason::Refusal(None));
        assert_eq!(stop("later"), StopReason::Other("later".to_owned()));
        let refused =
            [choice(r#"{"refusal":"I ca"}"#, "null"), choice(r#"{"refusal":"n't"}"#, r#""stop""#)];
        let reply = replay([refused.concat().as_bytes()]).expect("a reply");
        assert_eq!(reply.stop, StopReason::Refusal(Some("I can't".to_owned())));
    }

    #[test]
    fn a_call_cut_by_the_limit_is_dropped_and_bad_arguments_are_kept() {
        let cut = call(r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a"}}"#);
        let text = [cut.clone(), choice("{}", r#""length""#)].concat();
        let reply = replay([text.as_bytes()]).expect("a reply");
        assert_eq!((calls(&reply).len(), reply.stop), (0, StopReason::MaxTokens));
        let text = [cut, choice("{}", r#""tool_calls""#)].concat();
        let reply = replay([text.as_bytes()]).expect("a reply");
        assert_eq!(calls(&reply), [("c", "f", r#""{\"a""#)]);
    }

    #[test]
    fn error_objects_and_nonsense_break_the_stream() {
        let cases = [
            (
                r#"{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}"#,
                ErrorClass::RateLimited,
            ),
            (
                r#"{"object":"error","message":"This model's maximum context length is 10 tokens. However, you requested 30 tokens (20 in the messages, 10 in the completion).","code":400}"#,
                ErrorClass::ContextTokens { have: Some(20), max: Some(10) },
            ),
            (r#"{"error":"out of memory"}"#, ErrorClass::ServerError),
            (r#"{"choices":7}"#, ErrorClass::ServerError),
            ("{\"choi", ErrorClass::ServerError),
            (
                r#"{"choices":[{"delta":{"tool_calls":[{"index":3,"function":{"arguments":"x"}}]}}]}"#,
                ErrorClass::ServerError,
            ),
        ];
        for (bad, class) in cases {
            let text = [choice(r#"{"content":"x"}"#, "null"), format!("data: {bad}\n\n")].concat();
            let error = replay([text.as_bytes()]).expect_err(bad);
            assert_eq!(error.class, class, "{bad}: {error}");
        }
    }

    #[test]
    fn calls_of_one_id_and_two_indexes_are_two() {
        let stream = [
            call(r#"{"index":0,"id":"t1","function":{"name":"f","arguments":""}}"#),
            call(r#"{"index":0,"function":{"arguments":"{\"a\":"}}"#),
            call(r#"{"index":1,"id":"t1","function":{"name":"g","arguments":""}}"#),
            call(r#"{"index":0,"id":"t1","function":{"arguments":"1}"}}"#),
            call(r#"{"index":1,"id":"t1","function":{"arguments":"{\"b\":"}}"#),
            call(r#"{"index":1,"function":{"arguments":"2}"}}"#),
            choice("{}", r#""tool_calls""#),
            DONE.to_owned(),
        ];
        let reply = replay(stream.iter().map(String::as_bytes)).expect("a reply");
        let calls: Vec<_> = reply.message.tool_calls().collect();
        let told: Vec<_> =
            calls.iter().map(|call| (call.name.as_str(), call.input.as_str())).collect();
        assert_eq!(told, [("f", r#"{"a":1}"#), ("g", r#"{"b":2}"#)]);
        // A server that numbers no fragment, or repeats the name in each, means one call.
        let stream = [
            call(r#"{"id":"t1","function":{"name":"f","arguments":"{"}}"#),
            call(r#"{"id":"t1","function":{"name":"f","arguments":"}"}}"#),
            choice("{}", r#""tool_calls""#),
        ];
        let reply = replay(stream.iter().map(String::as_bytes)).expect("a reply");
        assert_eq!(reply.message.tool_calls().count(), 1);
    }

    #[test]
    fn usage_that_comes_with_an_error_is_kept() {
        let error = r#"data: {"error":{"code":502,"message":"gone"},"choices":[],"usage":{"prompt_tokens":43,"completion_tokens":10}}

"#;
        let text = choice(&format!(r#"{{"content":"{}"}}"#, "word ".repeat(100)), "null");
        let error = replay([text.as_bytes(), error.as_bytes()]).expect_err("an error");
        assert_eq!(error.class, ErrorClass::ServerError);
        let usage = Usage { input: 43, output: 10, ..Usage::default() };
        assert_eq!(error.usage.as_deref(), Some(&usage));
        // What comes after a count is estimated, and a count of nothing counts nothing.
        let early = |completion: u64| {
            let usage =
                format!(r#""usage":{{"prompt_tokens":43,"completion_tokens":{completion}}}"#);
            let counted = format!("data: {{\"choices\":[],{usage}}}\n\n");
            let broken = replay([counted.as_bytes(), text.as_bytes()]).expect_err("it broke");
            broken.usage.map(|usage| usage.output)
        };
        assert_eq!((early(0), early(7)), (Some(125), Some(132)));
    }

    #[test]
    fn tokens_that_were_written_to_a_cache_are_counted() {
        let written = |usage: Value| {
            let text = choice(r#"{"content":"hi"}"#, r#""stop""#);
            let usage = format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n");
            let reply = replay([text.as_bytes(), usage.as_bytes(), DONE.as_bytes()]).expect("one");
            reply.usage
        };
        let expected = Usage { input: 8, output: 5, cache_read: 100, cache_write: 4_012 };
        let details = [
            json!({"cached_tokens": 100, "cache_write_tokens": 4_012}),
            json!({"cached_tokens": 100, "cache_creation_tokens": 4_012}),
        ];
        for details in details {
            let usage = json!({"prompt_tokens": 4_120, "completion_tokens": 5, "prompt_tokens_details": details});
            assert_eq!(written(usage), expected);
        }
        let usage = json!({"prompt_tokens": 4_120, "completion_tokens": 5, "cache_creation_input_tokens": 4_012,
            "prompt_tokens_details": {"cached_tokens": 100}});
        assert_eq!(written(usage), expected);
        // No more than there is.
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 99}});
        let expected = Usage { input: 0, output: 5, cache_read: 4, cache_write: 6 };
        assert_eq!(written(usage), expected);
    }
}
