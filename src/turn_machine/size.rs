//! The measure of an agent's requests.

use super::Machine;
use crate::context::measure::Measure;
use crate::id::Name;

impl Machine {
    /// Says what the next requests begin with: the model's name in the configuration, and the
    /// estimated tokens of system prompt and tools.
    pub fn begin_with(&mut self, model: &Name, head_tokens: u64) {
        self.measure.begin_with(model, head_tokens);
    }

    /// How the agent's requests are measured.
    #[must_use]
    pub fn measure(&self) -> &Measure {
        &self.measure
    }
}
