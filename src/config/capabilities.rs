//! What the pipeline can do beside its layers: keys of `[compaction]` that any preset may have.

use super::raw::Table;
use crate::context::preset::Preset;

/// What the file says of capabilities; what it does not say is for the preset to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether a repeated read is answered by a stub while the view still shows what it gave.
    pub unchanged_stub: Option<bool>,
}

impl Capabilities {
    /// Puts what the file says over what the preset lists.
    pub fn apply(&self, preset: &mut Preset) {
        preset.unchanged_stub = self.unchanged_stub.unwrap_or(preset.unchanged_stub);
    }
}

/// Reads the capabilities in `[compaction]`.
pub(super) fn capabilities(table: &Table) -> Capabilities {
    Capabilities { unchanged_stub: table.truth("unchanged_stub") }
}
