//! The providers whose quota is used up, as the records of the gateways tell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Event, QuotaWait, Record};
use crate::id::Name;

/// The providers whose quota is used up while the run waits for its reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas(BTreeMap<Name, Closed>);

/// A quota that is used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The wall time at which the provider is called again, in milliseconds since the Unix epoch.
    pub until_ms: i64,
    /// The provider's own words.
    pub reason: String,
}

impl Quotas {
    /// Takes in a record.
    pub(super) fn note(&mut self, record: &Record) {
        match &record.event {
            Event::GatewayParked(parked) if parked.quota == Some(QuotaWait::InProcess) => {
                let left = i64::try_from(parked.for_ms).unwrap_or(i64::MAX);
                let until_ms = record.ts_ms.saturating_add(left);
                let reason = parked.reason.clone();
                self.0.insert(parked.provider.clone(), Closed { until_ms, reason });
            }
            Event::GatewayResumed(resumed) => drop(self.0.remove(&resumed.provider)),
            _ => {}
        }
    }

    /// Returns the quota of a provider, if it is used up.
    #[must_use]
    pub fn closed(&self, provider: &Name) -> Option<&Closed> {
        self.0.get(provider)
    }

    /// Returns the quota that is reset last.
    #[must_use]
    pub fn last(&self) -> Option<(&Name, &Closed)> {
        self.0.iter().max_by_key(|(_, closed)| closed.until_ms)
    }
}
