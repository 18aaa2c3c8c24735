//! What the calls of a run have learned of a model, and what is set for it.
//!
//! While a model that has fallbacks is given up, its calls go to these at once. After a cooldown one call at a
//! time tries it again. A model without fallbacks is never given up.

use std::time::{Duration, Instant};

use super::error::{ErrorClass, ModelError};
use crate::policy::{Breaker, BreakerState, RetryPolicy};
use crate::spec::capability::{Capabilities, Capability};

/// The right to call a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The model is well, or nothing else can be called.
    Freely,
    /// The model was given up a while ago, and this call tries it.
    AsProbe,
}

/// What a provider turned out not to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// This work on the context.
    Capability(Capability),
    /// It holds no answer to a schema.
    Schemas,
}

/// What all calls have learned of a model.
#[derive(Debug)]
pub struct Standing {
    breaker: Breaker,
    born: Instant,
    falls: u64,
    taken: u64,
    holds_to_schema: bool,
    capabilities: Capabilities,
}

impl Standing {
    /// Creates the standing of a model that is well, from which nothing is known of its provider. One call tries
    /// it again so long after it was given up.
    pub fn new(cooldown: Duration, born: Instant) -> Self {
        Self {
            breaker: Breaker::new(1, cooldown),
            born,
            falls: 0,
            taken: 0,
            holds_to_schema: false,
            capabilities: Capabilities::default(),
        }
    }

    /// Sets what is believed of the provider before the first call. What it refuses is taken back for the rest of
    /// the run, so that a wrong belief costs one refused request.
    pub fn believe(&mut self, capabilities: Capabilities, holds_to_schema: bool) {
        (self.capabilities, self.holds_to_schema) = (capabilities, holds_to_schema);
    }

    /// Returns the ways in which the provider is known to shrink a context by itself.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns true if the provider holds an answer to a schema.
    pub fn holds_to_schema(&self) -> bool {
        self.holds_to_schema
    }

    /// Takes back what the provider refused to do with this error; `None` if that was known.
    pub(super) fn lose(&mut self, error: &ModelError) -> Option<Lost> {
        match error.class {
            ErrorClass::SchemaRefused => {
                std::mem::take(&mut self.holds_to_schema).then_some(Lost::Schemas)
            }
            ErrorClass::Unsupported(capability) => {
                self.capabilities.lose(capability).then_some(Lost::Capability(capability))
            }
            _ => None,
        }
    }

    /// Returns how often the model was given up.
    pub fn falls(&self) -> u64 {
        self.falls
    }

    /// Returns true if the model may be called, or tried, now.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        match self.breaker.state() {
            BreakerState::Closed => true,
            BreakerState::HalfOpen => false,
            BreakerState::Open => self.breaker.wait(self.age(now)).is_zero(),
        }
    }

    /// Takes the right to call the model, if it may be called now.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Admitted> {
        let is_admitted = self.breaker.admit(self.age(now));
        is_admitted.then(|| match self.breaker.state() {
            BreakerState::HalfOpen => Admitted::AsProbe,
            BreakerState::Closed | BreakerState::Open => Admitted::Freely,
        })
    }

    /// Notes that the model is given up.
    pub fn give_up(&mut self, now: Instant) {
        self.breaker.fail(self.age(now));
        self.falls += 1;
    }

    /// Notes that the model answered.
    pub(super) fn is_well(&mut self) {
        self.breaker.succeed();
    }

    /// Notes that the call that tried the model had no result.
    pub(super) fn abandon(&mut self) {
        self.breaker.abandon();
    }

    /// Returns the number of calls that the provider has taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Counts a call that the provider has taken.
    pub(super) fn note_taken(&mut self) {
        self.taken += 1;
    }

    /// Takes back that the provider has taken a call.
    pub(super) fn note_refused(&mut self) {
        self.taken -= 1;
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.born)
    }
}

/// What is set for the calls of a model.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The policy for retries.
    pub retry: &'a RetryPolicy,
    /// True if the gateway makes all calls wait after a 429 of one.
    pub shares_pauses: bool,
    /// True if the gateway makes all calls wait until the quota is reset.
    pub waits_for_quota: bool,
    /// The tokens of the model's window.
    pub window: u64,
    /// The most tokens of a reply.
    pub max_output_tokens: u64,
}

impl Rules<'_> {
    /// Returns true if the window has room for a request of so many tokens and its reply.
    pub(super) fn holds(&self, tokens: u64) -> bool {
        tokens <= self.window.saturating_sub(self.max_output_tokens)
    }
}

/// The models that a call may use: its own at place 0, then its fallbacks in their order.
pub trait Models {
    /// Returns how many there are.
    fn count(&self) -> usize;

    /// Returns what is set for the model at this place.
    fn rules(&self, place: usize) -> Rules<'_>;

    /// Looks at what is known of the model at this place, or changes it.
    fn with<R>(&self, place: usize, look: impl FnOnce(&mut Standing) -> R) -> R;
}
