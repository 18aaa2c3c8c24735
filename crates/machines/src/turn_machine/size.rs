//! Access to the measure of an agent's requests.

use super::Machine;
use crate::context::measure::Measure;
use crate::id::Name;

impl Machine {
    /// Sets the beginning of the next requests: the model's name in the configuration, and the
    /// estimated tokens of system prompt and tools.
    pub fn begin_with(&mut self, model: &Name, head_tokens: u64) {
        self.measure.begin_with(model, head_tokens);
    }

    /// Returns the measure of the agent's requests.
    #[must_use]
    pub fn measure(&self) -> &Measure {
        &self.measure
    }
}
