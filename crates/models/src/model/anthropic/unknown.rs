//! Reads what an event may have in another form than this version knows.
//!
//! Decides what is skipped and what breaks the stream. `assembly` owns the reply.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::context::provider::server::AppliedEdit;
use crate::model::ModelError;
use crate::model::http::{BLOCKS, Refusal, TOKENS, malformed, shorten, tree};

/// Reads the edits in a report of context management; edits that cannot be read are left out.
pub(super) fn applied(management: &Value) -> Vec<AppliedEdit> {
    let edits = management["applied_edits"].as_array().into_iter().flatten();
    let edits = edits.filter_map(|edit| serde_json::from_value::<AppliedEdit>(edit.clone()).ok());
    let edits = edits.take(BLOCKS).map(|edit| AppliedEdit {
        r#type: shorten(&edit.r#type),
        cleared_tool_uses: edit.cleared_tool_uses.map(|count| count.min(TOKENS)),
        cleared_thinking_turns: edit.cleared_thinking_turns.map(|count| count.min(TOKENS)),
        cleared_input_tokens: edit.cleared_input_tokens.min(TOKENS),
    });
    edits.collect()
}

/// Decides about an event that has not the expected form: it may be of a type that this version
/// does not know, which is skipped, or an error object in a proxy's own form, which is an error.
pub(super) fn tolerate(
    data: &[u8],
    known: &[&str],
    error: &serde_json::Error,
) -> Result<(), ModelError> {
    let unreadable = || malformed(format!("the stream cannot be read: {error}"));
    if let Some(refusal) = Refusal::find_in(data) {
        return Err(refusal.into_error(200));
    }
    #[derive(Deserialize)]
    struct Peek<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    match serde_json::from_slice::<Peek<'_>>(data) {
        Ok(peek) if !known.contains(&peek.r#type.as_ref()) => Ok(()),
        Ok(_) | Err(_) => Err(unreadable()),
    }
}

/// Merges a delta into a block of unknown type: texts are appended, other values are replaced, and
/// fragments of JSON are collected until the block ends.
pub(super) fn merge(block: &mut Value, input: &mut String, delta: &str) {
    let Some(Value::Object(delta)) = tree(delta.as_bytes()) else { return };
    let Some(block) = block.as_object_mut() else { return };
    for (key, value) in delta {
        match (key.as_str(), block.get_mut(&key), value) {
            ("type", ..) => {}
            ("partial_json", _, Value::String(fragment)) => input.push_str(&fragment),
            (_, Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
            (_, _, value) => {
                block.insert(key, value);
            }
        }
    }
}
