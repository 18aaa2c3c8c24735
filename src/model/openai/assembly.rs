//! How a stream of chat completion chunks becomes a reply.
//!
//! Owns the text and the calls in the making, and the tolerance for what servers do differently.
//! A call is complete only when the finish reason or the end has come.

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::message::{Block, Json, Message, Role, StopReason, ToolCall, Usage};
use crate::model::http::{Assembly, Progress, Refusal, malformed, received_input};
use crate::model::{Delta, DeltaSink, ModelError, Reply, sse};

/// A chat completion in the making.
#[derive(Debug)]
pub(crate) struct ChatAssembly {
    text: String,
    refusal: String,
    calls: Vec<CallPart>,
    finish: Option<String>,
    done: bool,
    usage: Option<UsageIn>,
    request_bytes: u64,
}

#[derive(Debug, Default)]
struct CallPart {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct ChunkIn {
    #[serde(default)]
    choices: Option<Vec<ChoiceIn>>,
    #[serde(default)]
    usage: Option<UsageIn>,
    #[serde(default)]
    error: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    object: Option<String>,
}

#[derive(Deserialize)]
struct ChoiceIn {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    delta: Option<DeltaIn>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct DeltaIn {
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<CallIn>>,
}

#[derive(Deserialize)]
struct CallIn {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionIn>,
}

#[derive(Default, Deserialize)]
struct FunctionIn {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct UsageIn {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<DetailsIn>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct DetailsIn {
    #[serde(default)]
    cached_tokens: Option<u64>,
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
        let chunk: ChunkIn = serde_json::from_slice(event.data).map_err(|error| {
            let refusal = serde_json::from_slice(event.data).ok();
            let refusal = refusal.as_ref().and_then(Refusal::find);
            refusal.map_or_else(
                || malformed(format!("the stream cannot be read: {error}")),
                |refusal| refusal.into_error(200),
            )
        })?;
        if chunk.error.is_some() || chunk.object.as_deref() == Some("error") {
            return Err(Refusal::read(event.data).into_error(200));
        }
        self.usage = chunk.usage.or(self.usage);
        let mut spoke = false;
        for choice in chunk.choices.into_iter().flatten() {
            // Only one choice is asked for.
            if choice.index.unwrap_or(0) == 0 {
                spoke |= self.grow(choice, deltas)?;
            }
        }
        if !spoke {
            deltas(Delta::Alive);
        }
        Ok(Progress::More)
    }

    fn is_whole(&self) -> bool {
        self.done || self.finish.is_some()
    }

    fn finish(mut self) -> Reply {
        let cut = self.finish.as_deref() == Some("length");
        if cut && self.calls.last().is_some_and(CallPart::is_cut) {
            self.calls.pop();
        }
        let stop = self.stop_reason();
        let reported = self.usage;
        let request_bytes = self.request_bytes;
        let message = self.into_message();
        Reply { stop, usage: usage(reported, request_bytes, &message), message }
    }

    /// The text is complete once a call has begun; a call never is before the end.
    fn salvage(mut self, reason: &ModelError) -> Option<Reply> {
        if self.text.trim().is_empty() || self.calls.is_empty() {
            return None;
        }
        self.calls.clear();
        let (reported, request_bytes) = (self.usage, self.request_bytes);
        let message = self.into_message();
        let usage = usage(reported, request_bytes, &message);
        Some(Reply { message, stop: StopReason::Interrupted(reason.message.clone()), usage })
    }
}

impl ChatAssembly {
    /// A reply to a request of this many bytes, from which its tokens are estimated if the server
    /// does not report them.
    pub(crate) fn new(request_bytes: u64) -> Self {
        Self {
            text: String::new(),
            refusal: String::new(),
            calls: Vec::new(),
            finish: None,
            done: false,
            usage: None,
            request_bytes,
        }
    }

    /// Takes a choice; says whether it was told to those who watch.
    fn grow(&mut self, choice: ChoiceIn, deltas: DeltaSink<'_>) -> Result<bool, ModelError> {
        let mut spoke = false;
        if let Some(delta) = choice.delta {
            let text = delta.content.as_ref().map(plain_text).unwrap_or_default();
            if !text.is_empty() {
                self.text.push_str(&text);
                deltas(Delta::Text(&text));
                spoke = true;
            }
            self.refusal.push_str(delta.refusal.as_deref().unwrap_or_default());
            for call in delta.tool_calls.into_iter().flatten() {
                spoke |= self.grow_call(call, deltas)?;
            }
        }
        let finish = choice.finish_reason.filter(|reason| !reason.is_empty());
        self.finish = finish.or(self.finish.take());
        Ok(spoke)
    }

    fn grow_call(&mut self, call: CallIn, deltas: DeltaSink<'_>) -> Result<bool, ModelError> {
        let CallIn { index, id, function } = call;
        let id = id.unwrap_or_default();
        let FunctionIn { name, arguments } = function.unwrap_or_default();
        let name = name.unwrap_or_default();
        let at = match self.find_call(index, &id, &name) {
            Some(at) => at,
            None if name.is_empty() && id.is_empty() => {
                return Err(malformed("a fragment of a call that has not begun"));
            }
            None => {
                self.calls.push(CallPart { index, ..CallPart::default() });
                self.calls.len() - 1
            }
        };
        let part = &mut self.calls[at];
        if part.id.is_empty() {
            part.id = id;
        }
        let begins = part.name.is_empty() && !name.is_empty();
        if begins {
            deltas(Delta::Tool(&name));
            part.name = name;
        }
        match arguments {
            None | Some(Value::Null) => {}
            Some(Value::String(fragment)) => part.arguments.push_str(&fragment),
            // Some servers send the arguments as what they mean.
            Some(value) => part.arguments.push_str(&value.to_string()),
        }
        Ok(begins)
    }

    /// The call that a fragment belongs to. The id decides, then the index; a fragment with a
    /// name and the index of a call that has all its arguments begins another one, as some
    /// servers number every call 0.
    fn find_call(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        if !id.is_empty()
            && let Some(at) = self.calls.iter().rposition(|call| call.id == id)
        {
            return Some(at);
        }
        let same = |call: &CallPart| index.is_none() || call.index == index;
        let at = self.calls.iter().rposition(same)?;
        let call = &self.calls[at];
        let other_id = !id.is_empty() && !call.id.is_empty();
        let other_call = !name.is_empty() && !call.name.is_empty() && !call.is_cut();
        (!other_id && !other_call).then_some(at)
    }

    fn stop_reason(&self) -> StopReason {
        if !self.refusal.is_empty() {
            return StopReason::Refusal(Some(self.refusal.clone()));
        }
        match self.finish.as_deref() {
            Some("content_filter") => StopReason::Refusal(None),
            Some("length") => StopReason::MaxTokens,
            // Several servers say `stop` although there are calls.
            Some("stop" | "tool_calls" | "function_call") | None => match self.calls.is_empty() {
                true => StopReason::EndTurn,
                false => StopReason::ToolUse,
            },
            Some(other) => StopReason::Other(other.to_owned()),
        }
    }

    fn into_message(self) -> Message {
        let text = (!self.text.trim().is_empty()).then_some(Block::Text(self.text));
        let calls = self.calls.into_iter().map(CallPart::into_block);
        Message { role: Role::Assistant, content: text.into_iter().chain(calls).collect() }
    }
}

impl CallPart {
    /// Whether its arguments are not, or not yet, a JSON document.
    fn is_cut(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_err()
    }

    fn into_block(self) -> Block {
        // Results are joined to calls by the id, so a server that gives none gets one.
        let id = match self.id.is_empty() {
            true => format!("call_{}", Uuid::now_v7().simple()),
            false => self.id,
        };
        Block::ToolUse(ToolCall { id, name: self.name, input: received_input(self.arguments) })
    }
}

/// The content of a delta: a text, or a list of parts of which the texts count.
fn plain_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// The reported tokens, where `prompt_tokens` includes the cached ones; what is missing is
/// estimated by the rule of four characters each.
fn usage(reported: Option<UsageIn>, request_bytes: u64, message: &Message) -> Usage {
    let prompt = reported.and_then(|usage| usage.prompt_tokens);
    let output = reported.and_then(|usage| usage.completion_tokens);
    let details = reported.and_then(|usage| usage.prompt_tokens_details);
    let cached = details.and_then(|details| details.cached_tokens).unwrap_or(0);
    let written = || Json::encode(message).as_str().chars().count() as u64 / 4;
    Usage {
        input: prompt.unwrap_or(request_bytes / 4).saturating_sub(cached),
        output: output.unwrap_or_else(written),
        cache_read: cached,
        cache_write: 0,
    }
}
