//! What a model's provider can do with a context, as far as the run knows by now.
//!
//! Known before the first call; a provider that refuses what it was said to be able to do loses it
//! for the rest of the run, so that one refused request is all that a wrong belief costs.

use parking_lot::Mutex;

use crate::spec::capability::{Capabilities, Capability};

/// What one model's provider can do.
#[derive(Debug, Default)]
pub struct KnownCapabilities(Mutex<Capabilities>);

impl KnownCapabilities {
    /// What is believed before the first call.
    #[must_use]
    pub fn new(believed: Capabilities) -> Self {
        Self(Mutex::new(believed))
    }

    /// What is believed now.
    #[must_use]
    pub fn now(&self) -> Capabilities {
        self.0.lock().clone()
    }

    /// Notes that the provider cannot do this; says whether that is news.
    pub(super) fn lose(&self, capability: Capability) -> bool {
        self.0.lock().lose(capability)
    }
}
