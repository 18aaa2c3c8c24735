//! To be written.
use super::Tool;
use std::sync::Arc;
/// Tools.
#[must_use]
pub fn tools() -> Vec<Arc<dyn Tool>> {
    Vec::new()
}
