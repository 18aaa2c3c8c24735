//! The events of the Messages API, as far as a reply is built from them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::usage::UsageIn;
use crate::message::Json;
use crate::model::http::lenient;

/// An event of a stream.
#[derive(Default, Deserialize)]
pub(super) struct EventIn<'a> {
    #[serde(borrow)]
    pub(super) r#type: Cow<'a, str>,
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) usage: Option<UsageIn>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) stop_details: Option<Value>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) context_management: Option<Value>,
}

/// A reply that came as one document.
#[derive(Deserialize)]
pub(super) struct WholeIn<'a> {
    #[serde(borrow)]
    pub(super) content: Vec<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) usage: Option<UsageIn>,
}

/// The message of `message_start`.
#[derive(Deserialize)]
pub(super) struct StartIn {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) usage: Option<UsageIn>,
}

/// The end of a message.
#[derive(Deserialize)]
pub(super) struct StopIn {
    pub(super) stop_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) stop_details: Option<Value>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) context_management: Option<Value>,
}

/// A piece of a block.
#[derive(Deserialize)]
pub(super) struct DeltaIn<'a> {
    #[serde(borrow)]
    pub(super) r#type: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) text: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) partial_json: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) thinking: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) signature: Cow<'a, str>,
}

/// A piece of a block in the form in which the API sends nearly all events.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UsualDelta<'a> {
    /// A piece of text.
    Text(Cow<'a, str>),
    /// A piece of a call's input.
    Input(Cow<'a, str>),
}

impl<'a> UsualDelta<'a> {
    /// Reads the index of a block and its piece. Returns `None` for every event of another form, with a blank
    /// more or another field, which is read as JSON: that takes ten times as long.
    pub(super) fn read(data: &'a [u8]) -> Option<(u64, Self)> {
        let rest = data.strip_prefix(br#"{"type":"content_block_delta","index":"#)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (index, rest) = rest.split_at(digits);
        // JSON has no other number with a zero in front.
        let index = index.strip_prefix(b"0").is_none_or(<[u8]>::is_empty).then_some(index)?;
        let index = std::str::from_utf8(index).ok()?.parse().ok()?;
        let rest = rest.strip_prefix(br#","delta":{"type":""#)?.strip_suffix(b"}}")?;
        let text = |raw: &'a [u8]| {
            // The text alone, so what looks like its end is its end.
            raw.starts_with(b"\"").then(|| serde_json::from_slice::<Text<'a>>(raw).ok())?
        };
        if let Some(raw) = rest.strip_prefix(br#"text_delta","text":"#) {
            return Some((index, Self::Text(text(raw)?.0)));
        }
        let raw = rest.strip_prefix(br#"input_json_delta","partial_json":"#)?;
        Some((index, Self::Input(text(raw)?.0)))
    }
}

/// A text that is borrowed where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The beginning of a block, or a whole one.
#[derive(Deserialize)]
pub(super) struct BlockIn {
    pub(super) r#type: String,
    #[serde(default)]
    pub(super) text: String,
    #[serde(default)]
    pub(super) id: String,
    #[serde(default)]
    pub(super) name: String,
    pub(super) input: Option<Json>,
    #[serde(default)]
    pub(super) thinking: String,
    #[serde(default)]
    pub(super) signature: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an event in the slow way.
    fn plain(data: &str) -> Option<(u64, String)> {
        let event: EventIn<'_> = serde_json::from_str(data).ok()?;
        let delta: DeltaIn<'_> = serde_json::from_str(event.delta?.get()).ok()?;
        Some((event.index?, format!("{}{}", delta.text, delta.partial_json)))
    }

    #[test]
    fn a_usual_piece_is_read_as_any_event_is() {
        let delta = |index: &str, rest: &str| {
            format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{rest}}}}}"#
            )
        };
        for (usual, index, rest) in [
            (true, "0", r#"text_delta","text":"a \"b\" \u00e9 é""#),
            (true, "10", r#"text_delta","text":"""#),
            (true, "3", r#"input_json_delta","partial_json":"{\"a\": ""#),
            (false, "00", r#"text_delta","text":"a""#),
            (false, "-1", r#"text_delta","text":"a""#),
            (false, "18446744073709551616", r#"text_delta","text":"a""#),
            (false, "0", r#"text_delta","text":"a","text":"b""#),
            (false, "0", r#"text_delta","text":"a","more":"b""#),
            (false, "0", r#"text_delta","text": "a""#),
            (false, "0", r#"text_delta","text":null"#),
            (false, "0", r#"text_delta","text":"\ud83d""#),
            (false, "0", r#"later_delta","text":"a""#),
            (false, "0", r#"thinking_delta","thinking":"a""#),
        ] {
            let data = delta(index, rest);
            let read = UsualDelta::read(data.as_bytes());
            assert_eq!(read.is_some(), usual, "{data}");
            if let Some((index, UsualDelta::Text(text) | UsualDelta::Input(text))) = read {
                assert_eq!(Some((index, text.into_owned())), plain(&data), "{data}");
            }
        }
        let outside = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"},"x":{"y":"}}"#;
        assert_eq!(UsualDelta::read(outside.as_bytes()), None);
    }
}
