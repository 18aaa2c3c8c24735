//! A model with everything that a call of it needs.

use std::sync::Arc;

use super::known_capabilities::KnownCapabilities;
use crate::model::Model;
use crate::policy::RetryPolicy;
use crate::spec::ModelSpec;

/// A model with everything that a call of it needs.
pub struct ModelService {
    /// What it is.
    pub spec: ModelSpec,
    /// How it is called.
    pub model: Arc<dyn Model>,
    /// How often a call is tried.
    pub retry: RetryPolicy,
    /// What its provider can do with a context.
    pub known_capabilities: KnownCapabilities,
}

impl std::fmt::Debug for ModelService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelService").field("spec", &self.spec).finish_non_exhaustive()
    }
}
