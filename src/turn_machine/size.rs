//! How large an agent's next request is.

use super::Machine;
use crate::context::measure::{self, Extent, Measure};
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

    /// How much the messages of the next request are, by estimate.
    #[must_use]
    pub fn extent(&self) -> Extent {
        let mut extent = self.view.extent();
        extent.held += self.continuation.as_ref().map_or(0, |m| measure::estimate(m.as_str()));
        extent
    }

    /// The tokens that the next request is expected to hold: system prompt, tools and messages,
    /// without the reply.
    #[must_use]
    pub fn context_tokens(&self) -> u64 {
        self.measure.size(self.extent())
    }
}
