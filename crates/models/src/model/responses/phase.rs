//! The phase of a message of the Responses API: whether it comments the work or is the answer.
//!
//! Owns the block in which a record keeps it, before the text: `{"type":"message_phase","phase":"..."}`. The
//! service asks for it back with the message; models answer worse without it.

use serde::{Deserialize, Serialize};

use crate::message::{Block, Json};

/// The type of the block.
pub(crate) const TYPE: &str = "message_phase";

/// The most bytes of a phase: the known ones have 12.
const BYTES: usize = 64;

#[derive(Deserialize, Serialize)]
struct Kept<T> {
    r#type: T,
    phase: T,
}

/// Returns the block of a phase. What is no word is none.
pub(super) fn block(phase: &str) -> Option<Block> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_one = !phase.is_empty() && phase.len() <= BYTES && phase.bytes().all(is_word);
    is_one.then(|| Block::Other(Json::encode(&Kept { r#type: TYPE, phase })))
}

/// Returns the phase that a block of a record holds, if it holds one.
pub(super) fn read(json: &Json) -> Option<String> {
    let is_likely = json.as_str().contains(TYPE);
    let kept = is_likely.then(|| json.decode::<Kept<String>>().ok()).flatten()?;
    (kept.r#type == TYPE).then_some(kept.phase)
}

/// Returns true if a block of a record holds a phase.
pub fn is_of(block: &Block) -> bool {
    matches!(block, Block::Other(json) if read(json).is_some())
}
