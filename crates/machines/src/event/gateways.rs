//! The payloads of the `gateway.*` events: what happens to the calls of all agents to one provider.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Name;
use crate::policy::BreakerState;

/// Payload of `gateway.parked`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayParked {
    /// The provider.
    pub provider: Name,
    /// Length of the wait, in milliseconds.
    pub for_ms: u64,
    /// The reason that the provider gave.
    pub reason: String,
    /// Present if the quota of the account is used up: how its reset is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaWait>,
}

/// How the reset of a quota is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaWait {
    /// The process waits, and the run goes on by itself.
    InProcess,
    /// The run pauses, and a later process resumes it.
    Resume,
}

/// Payload of `gateway.resumed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayResumed {
    /// The provider.
    pub provider: Name,
}

/// Payload of `gateway.breaker`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayBreaker {
    /// The provider.
    pub provider: Name,
    /// The new state.
    pub state: BreakerState,
}
