//! The known capabilities of a model's provider: how it can shrink a context by itself.
//!
//! They are assumed before the first call. If a provider refuses one of them, it is removed for the
//! rest of the run, so that a wrong assumption costs only one refused request.

use parking_lot::Mutex;

use crate::spec::capability::{Capabilities, Capability};

/// The known capabilities of one model's provider, shared by all its callers.
#[derive(Debug, Default)]
pub struct KnownCapabilities(Mutex<Capabilities>);

impl KnownCapabilities {
    /// Makes the set from the capabilities that are assumed before the first call.
    #[must_use]
    pub fn new(believed: Capabilities) -> Self {
        Self(Mutex::new(believed))
    }

    /// Returns the capabilities that are known now.
    #[must_use]
    pub fn now(&self) -> Capabilities {
        self.0.lock().clone()
    }

    /// Removes a capability that the provider refused. Returns true if it was known until now.
    pub(super) fn lose(&self, capability: Capability) -> bool {
        self.0.lock().lose(capability)
    }
}
