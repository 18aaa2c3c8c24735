//! A call to a provider as the admission knows it: its rules, its ends, and what follows.

use std::time::Duration;

use super::pace::PerMinute;
use super::quota::QuotaRule;
use crate::event::Event;

/// The rules of the calls to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The most calls in progress at the same time.
    pub max_concurrency: usize,
    /// True if the number of calls begins low, and is halved while the provider is overloaded.
    pub is_adaptive: bool,
    /// True if a 429 of one call makes all calls wait.
    pub shares_pauses: bool,
    /// The limits of calls and tokens in a minute.
    pub per_minute: PerMinute,
    /// What follows when the quota is used up.
    pub quota: QuotaRule,
}

impl Rules {
    /// Returns the rules of a provider that limits nothing but the calls at the same time.
    #[must_use]
    pub fn of(max_concurrency: usize) -> Self {
        let (per_minute, quota) = (PerMinute::default(), QuotaRule::default());
        Self { max_concurrency, is_adaptive: false, shares_pauses: true, per_minute, quota }
    }
}

/// The result of a call, as far as it matters for other calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The call gave a reply.
    Succeeded {
        /// The tokens that count against a limit of tokens: all but those read from a cache.
        tokens: u64,
    },
    /// The provider asked to slow down.
    RateLimited {
        /// The pause that the provider asked for, if it named one.
        retry_after: Option<Duration>,
        /// What the headers say is left of the limit.
        left: Option<u64>,
        /// The provider's own words.
        reason: String,
    },
    /// The quota of the account is used up.
    QuotaExhausted {
        /// The time until its reset, if the provider named it.
        resets_in: Option<Duration>,
        /// The provider's own words.
        reason: String,
    },
    /// The provider has no capacity.
    Overloaded,
    /// The call failed in a way that may affect all calls to the provider.
    Failed,
    /// The provider answered, but refused this one request.
    Refused,
    /// The caller stopped waiting for the call, so it has no result.
    Abandoned,
}

/// Something that the caller must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<K> {
    /// Start this call.
    Admit(K),
    /// Record this event in the journal.
    Record(Box<Event>),
}

/// A call under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Out {
    /// True for the breaker's probe.
    pub(super) is_probe: bool,
    pub(super) started: Duration,
    /// True for the first call after a pause.
    pub(super) is_first: bool,
    /// True for the call that asks whether a refusal is a limit.
    pub(super) asks: bool,
    /// True once the provider has taken it.
    pub(super) is_taken: bool,
    /// The measurement of the pace that it belongs to.
    pub(super) round: u64,
    /// The tokens that were assumed at its start.
    pub(super) tokens: f64,
}

/// A call that wants to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) tokens: u64,
    /// The end of its own pause.
    pub(super) from: Duration,
}

/// The reason why no call may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Until this time, unless a call ends before.
    Until(Duration),
    /// Until a call ends.
    CallEnds,
}
