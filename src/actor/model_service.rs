//! A model with everything that a call of it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::health::Health;
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
    /// True if the gateway makes all calls wait after a 429 of one.
    pub shares_pauses: bool,
    /// True if the gateway makes all calls wait until the quota is reset.
    pub waits_for_quota: bool,
    /// True if the provider holds an answer to a schema, until it refuses to.
    holds_to_schema: AtomicBool,
    /// Number of calls that the provider has taken.
    taken: AtomicU64,
    /// Whether the model was given up for its fallbacks.
    pub(super) health: Health,
}

impl ModelService {
    /// Creates a service of a model whose provider has no known capabilities.
    #[must_use]
    pub fn new(spec: ModelSpec, model: Arc<dyn Model>, retry: RetryPolicy) -> Self {
        let known_capabilities = KnownCapabilities::default();
        let (shares_pauses, waits_for_quota, taken) = (true, true, AtomicU64::new(0));
        let health = Health::new(spec.fallback_cooldown);
        Self {
            spec,
            model,
            retry,
            known_capabilities,
            shares_pauses,
            waits_for_quota,
            holds_to_schema: AtomicBool::new(false),
            taken,
            health,
        }
    }

    /// Returns true if the provider holds an answer to a schema.
    pub(super) fn holds_to_schema(&self) -> bool {
        self.holds_to_schema.load(Ordering::Relaxed)
    }

    /// Notes whether the provider holds an answer to a schema; returns what was known before.
    pub fn set_holds_to_schema(&self, holds: bool) -> bool {
        self.holds_to_schema.swap(holds, Ordering::Relaxed)
    }

    /// Counts a call that the provider has taken.
    pub(super) fn note_taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back that the provider has taken a call.
    pub(super) fn note_refused(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of calls that the provider has taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for ModelService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelService").field("spec", &self.spec).finish_non_exhaustive()
    }
}
