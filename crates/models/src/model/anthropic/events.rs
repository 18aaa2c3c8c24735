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
