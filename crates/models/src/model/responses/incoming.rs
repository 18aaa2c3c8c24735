//! The parts of events of a response that are read. What has another form than expected is passed over.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::usage::UsageIn;
use crate::model::http::lenient;

#[derive(Deserialize)]
pub(super) struct EventIn<'a> {
    #[serde(borrow)]
    pub(super) r#type: Cow<'a, str>,
    #[serde(default)]
    pub(super) output_index: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) item_id: Option<String>,
    #[serde(default, borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) delta: Option<String>,
    #[serde(default, borrow)]
    pub(super) response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ItemIn<'a> {
    #[serde(borrow)]
    pub(super) r#type: Cow<'a, str>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) call_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) arguments: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) phase: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) content: Option<Vec<PartIn>>,
}

#[derive(Deserialize)]
pub(super) struct PartIn {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) refusal: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ResponseIn<'a> {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) status: Option<String>,
    #[serde(default, borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) incomplete_details: Option<ReasonIn>,
    #[serde(default, borrow)]
    pub(super) output: Option<Vec<&'a RawValue>>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) usage: Option<UsageIn>,
}

#[derive(Deserialize)]
pub(super) struct ReasonIn {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) reason: Option<String>,
}
