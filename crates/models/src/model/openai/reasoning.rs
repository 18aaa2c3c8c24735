//! The reasoning that a server sends beside a reply, and wants back as it came.
//!
//! Owns the block in which a record keeps it: `{"type":"chat_reasoning","message":{...},"calls":[...]}`
//! has the fields of the assistant message, and those of each of its calls, in their order.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::message::{Block, Json};
use crate::model::ModelError;
use crate::model::http::Bounds;

/// The type of the block.
pub(crate) const TYPE: &str = "chat_reasoning";

/// Fields of a message or of a call, by name.
pub(super) type Fields = IndexMap<String, Json>;

/// The fields of a delta that carry reasoning.
#[derive(Default)]
pub(super) struct ReasoningIn<'a> {
    /// `reasoning_content`: the text at DeepSeek, llama.cpp, vLLM and many others.
    pub(super) content: Option<&'a RawValue>,
    /// `reasoning`: the text at OpenRouter, Groq, Ollama and newer vLLM.
    pub(super) text: Option<&'a RawValue>,
    /// `reasoning_details`: the parts at OpenRouter, some of them encrypted or signed.
    pub(super) details: Option<&'a RawValue>,
    /// `extra_content`: the signature at Gemini.
    pub(super) extra: Option<&'a RawValue>,
}

/// Returns true if a block of a record holds such reasoning.
pub fn is_of(block: &Block) -> bool {
    Kept::find(std::slice::from_ref(block)).is_some()
}

/// The block as a record has it.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Kept {
    r#type: String,
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub(super) message: Fields,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<Option<Json>>,
}

impl Kept {
    /// Returns the reasoning that a block of a record holds, if it holds any.
    pub(super) fn find(blocks: &[Block]) -> Option<Self> {
        blocks.iter().find_map(|block| match block {
            Block::Other(json) if json.as_str().contains(TYPE) => {
                json.decode::<Self>().ok().filter(|kept| kept.r#type == TYPE)
            }
            _ => None,
        })
    }
}

/// The reasoning of a reply of which the stream is being read.
#[derive(Debug, Default)]
pub(super) struct Reasoning {
    content: String,
    text: String,
    details: Vec<Detail>,
    extra: Option<Json>,
}

impl Reasoning {
    /// Takes the fields of a delta.
    pub(super) fn grow(
        &mut self,
        delta: &ReasoningIn<'_>,
        bounds: &mut Bounds,
    ) -> Result<(), ModelError> {
        for (text, raw) in [(&mut self.content, delta.content), (&mut self.text, delta.text)] {
            // A value that is no text is none of these fields.
            let Some(Ok(more)) = raw.map(|raw| serde_json::from_str::<String>(raw.get())) else {
                continue;
            };
            bounds.content(more.len())?;
            text.push_str(&more);
        }
        let details = delta.details.map(|raw| serde_json::from_str(raw.get()));
        let details: Vec<&RawValue> = details.and_then(Result::ok).unwrap_or_default();
        for raw in details {
            bounds.content(raw.get().len())?;
            self.grow_detail(raw, bounds)?;
        }
        if let Some(extra) = delta.extra.and_then(given) {
            bounds.content(extra.as_str().len())?;
            self.extra = Some(extra);
        }
        Ok(())
    }

    fn grow_detail(&mut self, raw: &RawValue, bounds: &mut Bounds) -> Result<(), ModelError> {
        let Ok(Value::Object(fields)) = serde_json::from_str(raw.get()) else { return Ok(()) };
        match self.details.last_mut().filter(|last| last.continues_in(&fields)) {
            Some(last) => last.grow(fields),
            None => {
                bounds.block()?;
                self.details.push(Detail { raw: Some(Json::of(raw)), fields });
            }
        }
        Ok(())
    }

    /// Returns the block for the record, if there was reasoning. `calls` are the extra fields of the calls.
    pub(super) fn into_block(self, calls: Vec<Option<Json>>) -> Option<Block> {
        let mut message = Fields::new();
        let text = |text: String| Json::encode(&text);
        if !self.content.is_empty() {
            message.insert("reasoning_content".to_owned(), text(self.content));
        }
        // Where there are parts, the text repeats them.
        if !self.details.is_empty() {
            let details: Vec<Json> = self.details.into_iter().map(Detail::into_json).collect();
            message.insert("reasoning_details".to_owned(), Json::encode(&details));
        } else if !self.text.is_empty() {
            message.insert("reasoning".to_owned(), text(self.text));
        }
        message.extend(self.extra.map(|extra| ("extra_content".to_owned(), extra)));
        let calls = if calls.iter().any(Option::is_some) { calls } else { Vec::new() };
        if message.is_empty() && calls.is_empty() {
            return None;
        }
        let kept = Kept { r#type: TYPE.to_owned(), message, calls };
        Some(Block::Other(Json::encode(&kept)))
    }
}

/// Returns a value that is not null.
pub(super) fn given(raw: &RawValue) -> Option<Json> {
    (raw.get() != "null").then(|| Json::of(raw))
}

/// One part of `reasoning_details`, whose text comes in pieces.
#[derive(Debug)]
struct Detail {
    /// The part as it came, if it came whole.
    raw: Option<Json>,
    fields: Map<String, Value>,
}

impl Detail {
    /// Returns true if the next piece belongs to this part: a text or a summary of the same index.
    fn continues_in(&self, next: &Map<String, Value>) -> bool {
        let kind = next.get("type").and_then(Value::as_str).unwrap_or_default();
        matches!(kind, "reasoning.text" | "reasoning.summary")
            && ["type", "index"].iter().all(|name| self.fields.get(*name) == next.get(*name))
    }

    fn grow(&mut self, next: Map<String, Value>) {
        self.raw = None;
        for (name, value) in next {
            match (self.fields.get_mut(&name), value) {
                (Some(Value::String(text)), Value::String(more))
                    if name == "text" || name == "summary" =>
                {
                    text.push_str(&more);
                }
                (Some(_), Value::Null) => {}
                (_, value) => {
                    self.fields.insert(name, value);
                }
            }
        }
    }

    fn into_json(self) -> Json {
        self.raw.unwrap_or_else(|| Json::encode(&self.fields))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The block of a reply with these deltas, and these fields of its calls.
    fn kept(deltas: &[&str], calls: &[Option<&str>]) -> Option<String> {
        let (mut reasoning, mut bounds) = (Reasoning::default(), Bounds::default());
        for delta in deltas {
            let fields: HashMap<&str, &RawValue> = serde_json::from_str(delta).expect("a delta");
            let field = |name| fields.get(name).copied();
            let delta = ReasoningIn {
                content: field("reasoning_content"),
                text: field("reasoning"),
                details: field("reasoning_details"),
                extra: field("extra_content"),
            };
            reasoning.grow(&delta, &mut bounds).expect("within the bounds");
        }
        let json = |text: &str| Json::parse(text.to_owned()).expect("JSON");
        let calls = calls.iter().map(|call| call.map(json)).collect();
        match reasoning.into_block(calls)? {
            Block::Other(json) => Some(json.as_str().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_fields_of_servers_are_kept_as_they_came() {
        let block = |fields: &str| Some(format!(r#"{{"type":"chat_reasoning",{fields}}}"#));
        let text = [
            r#"{"reasoning_content":"a "}"#,
            r#"{"reasoning_content":null}"#,
            r#"{"reasoning_content":"b"}"#,
        ];
        assert_eq!(kept(&text, &[None]), block(r#""message":{"reasoning_content":"a b"}"#));
        let other = [r#"{"reasoning":"a"}"#, r#"{"reasoning":{"effort":1}}"#];
        assert_eq!(kept(&other, &[]), block(r#""message":{"reasoning":"a"}"#));
        let parts = [
            r#"{"reasoning":"one","reasoning_details":[{"type":"reasoning.text","text":"o","index":0,"signature":null}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":"ne","index":0}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":"","index":0,"signature":"s"}, {"type":"reasoning.encrypted",  "data":"x"}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"y"},7]}"#,
        ];
        let merged = r#"{"type":"reasoning.text","text":"one","index":0,"signature":"s"}"#;
        let whole = r#"{"type":"reasoning.encrypted",  "data":"x"},{"type":"reasoning.encrypted","data":"y"}"#;
        let expected = format!(r#""message":{{"reasoning_details":[{merged},{whole}]}}"#);
        assert_eq!(kept(&parts, &[]), block(&expected));
        let signed = r#"{"google": {"thought_signature":"A/b="}}"#;
        let of_call = kept(&["{}"], &[None, Some(signed)]);
        assert_eq!(of_call, block(&format!(r#""calls":[null,{signed}]"#)));
        let of_message = kept(&[&format!(r#"{{"extra_content":{signed}}}"#)], &[None]);
        assert_eq!(of_message, block(&format!(r#""message":{{"extra_content":{signed}}}"#)));
        assert_eq!(
            kept(&[r#"{"reasoning":"","reasoning_details":[],"extra_content":null}"#], &[None]),
            None
        );
    }

    #[test]
    fn nonsense_is_no_reasoning_and_too_much_is_refused() {
        for odd in [
            r#"{"reasoning_details":7}"#,
            r#"{"reasoning_details":["x",null]}"#,
            r#"{"reasoning_content":["x"]}"#,
        ] {
            assert_eq!(kept(&[odd], &[]), None, "{odd}");
        }
        let (mut reasoning, mut bounds) = (Reasoning::default(), Bounds::default());
        let long = format!("\"{}\"", "x".repeat(1 << 20));
        let text = serde_json::from_str(&long).expect("a text");
        let delta = ReasoningIn { content: Some(text), ..ReasoningIn::default() };
        let refused = (0..9).find_map(|_| reasoning.grow(&delta, &mut bounds).err());
        assert!(refused.is_some_and(|error| !error.is_retryable()));
    }

    #[test]
    fn only_a_block_of_this_type_is_found() {
        let other = |text: &str| Block::Other(Json::parse(text.to_owned()).expect("JSON"));
        for none in [
            r#"{"type":"thinking","thinking":"chat_reasoning"}"#,
            r#"{"type":"chat_reasoning","calls":7}"#,
        ] {
            assert!(Kept::find(&[other(none)]).is_none(), "{none}");
        }
        let kept =
            Kept::find(&[Block::Text("t".to_owned()), other(r#"{"type":"chat_reasoning"}"#)]);
        assert!(kept.expect("one").message.is_empty());
    }
}
