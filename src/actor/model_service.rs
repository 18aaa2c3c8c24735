//! A model with everything that a call of it needs.

use std::sync::Arc;

use super::known_capabilities::KnownCapabilities;
use crate::model::Model;
use crate::policy::RetryPolicy;
use crate::spec::ModelSpec;

/// A model with everything that a call of it needs.
pub struct ModelService {
    /// The settings of the model: its name, provider, window and prices.
    pub spec: ModelSpec,
    /// The client that calls it.
    pub model: Arc<dyn Model>,
    /// The policy for retries of its calls.
    pub retry: RetryPolicy,
    /// The known capabilities of its provider.
    pub known_capabilities: KnownCapabilities,
}

impl std::fmt::Debug for ModelService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelService").field("spec", &self.spec).finish_non_exhaustive()
    }
}
