//! What a tool is to a model and to callsheet, in plain data: its description and the effect of a
//! repeated call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Name;
use crate::message::Json;

/// Effect that a repeated call would have on the world; decides whether a lost call runs again
/// after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// None: the call may run again.
    Pure,
    /// The target honours the call's key: the call may run again with the same key.
    Keyed,
    /// The state of the target shows if the call has happened.
    Checked,
    /// It must not be repeated blindly.
    Once,
}

impl Effect {
    /// Returns true if a call that was cut short may simply run again.
    #[must_use]
    pub fn is_repeatable(self) -> bool {
        match self {
            Self::Pure | Self::Keyed => true,
            Self::Checked | Self::Once => false,
        }
    }
}

/// Description of a tool: the part that a model reads, and the part that callsheet acts on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolSpec {
    /// Name of the tool.
    pub name: Name,
    /// Description of the tool for the model.
    pub description: String,
    /// JSON Schema of the arguments, of type `object`.
    pub input_schema: Json,
    /// Effect that a repeated call would have.
    #[serde(skip)]
    pub effect: Effect,
    /// True if a call changes nothing: such calls of one turn run in parallel.
    #[serde(skip)]
    pub reads_only: bool,
}
