//! A model with everything that a call of it needs, and the models that one call may use.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::call_machine::standing::{Models, Rules, Standing};
use crate::id::Name;
use crate::model::Client;
use crate::policy::RetryPolicy;
use crate::spec::ModelSpec;
use crate::spec::capability::Capabilities;

/// A model with everything that a call of it needs.
pub struct ModelService {
    /// The settings of the model: its name, provider, window and prices.
    pub spec: ModelSpec,
    /// The client that calls it.
    pub model: Arc<dyn Client>,
    /// The policy for retries of its calls.
    pub retry: RetryPolicy,
    /// True if the gateway makes all calls wait after a 429 of one.
    pub shares_pauses: bool,
    /// True if the gateway makes all calls wait until the quota is reset.
    pub waits_for_quota: bool,
    /// What all calls have learned of it.
    standing: Mutex<Standing>,
    /// How often it was given up.
    falls: watch::Sender<u64>,
}

impl ModelService {
    /// Creates a service of a model whose provider has no known capabilities.
    #[must_use]
    pub fn new(spec: ModelSpec, model: Arc<dyn Client>, retry: RetryPolicy) -> Self {
        let standing = Standing::new(spec.fallback_cooldown, Instant::now().into_std());
        let (shares_pauses, waits_for_quota) = (true, true);
        let (standing, falls) = (Mutex::new(standing), watch::Sender::new(0));
        Self { spec, model, retry, shares_pauses, waits_for_quota, standing, falls }
    }

    /// Sets what is believed of the provider before the first call: how it can shrink a context by itself, and
    /// whether it holds an answer to a schema.
    pub fn believe(&self, capabilities: Capabilities, holds_to_schema: bool) {
        self.with(|standing| standing.believe(capabilities, holds_to_schema));
    }

    /// Returns the ways in which the provider is known to shrink a context by itself.
    pub(super) fn capabilities(&self) -> Capabilities {
        self.with(|standing| standing.capabilities().clone())
    }

    /// Returns true if the provider holds an answer to a schema.
    pub(super) fn holds_to_schema(&self) -> bool {
        self.with(|standing| standing.holds_to_schema())
    }

    /// Gives the model up for its fallbacks.
    pub(super) fn give_up(&self) {
        self.with(|standing| standing.give_up(Instant::now().into_std()));
    }

    /// Waits until the model was given up more than so often.
    pub(super) async fn fallen(&self, falls: u64) {
        // The sender is in the model itself, so it cannot be dropped here.
        let _ = self.falls.subscribe().wait_for(|now| *now > falls).await;
    }

    fn with<R>(&self, look: impl FnOnce(&mut Standing) -> R) -> R {
        let mut standing = self.standing.lock();
        let before = standing.falls();
        let seen = look(&mut standing);
        if standing.falls() != before {
            self.falls.send_replace(standing.falls());
        }
        seen
    }
}

impl std::fmt::Debug for ModelService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelService").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// The models that one call may use.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    own: &'a ModelService,
    fallbacks: Vec<&'a ModelService>,
}

impl<'a> Chain<'a> {
    /// Returns this model alone.
    pub(super) fn alone(own: &'a ModelService) -> Self {
        Self { own, fallbacks: Vec::new() }
    }

    /// Returns this model with its fallbacks.
    pub(super) fn of(models: &'a HashMap<Name, Arc<ModelService>>, own: &'a ModelService) -> Self {
        let names = own.spec.fallbacks.iter();
        let fallbacks = names.filter_map(|name| models.get(name)).map(Arc::as_ref);
        Self { own, fallbacks: fallbacks.collect() }
    }

    /// Returns the model at this place.
    pub(super) fn at(&self, place: usize) -> &'a ModelService {
        place.checked_sub(1).map_or(self.own, |behind| self.fallbacks[behind])
    }
}

impl Models for Chain<'_> {
    fn count(&self) -> usize {
        1 + self.fallbacks.len()
    }

    fn rules(&self, place: usize) -> Rules<'_> {
        let service = self.at(place);
        Rules {
            retry: &service.retry,
            shares_pauses: service.shares_pauses,
            waits_for_quota: service.waits_for_quota,
            window: service.spec.context_window,
            max_output_tokens: service.spec.max_output_tokens,
        }
    }

    fn with<R>(&self, place: usize, look: impl FnOnce(&mut Standing) -> R) -> R {
        self.at(place).with(look)
    }
}
