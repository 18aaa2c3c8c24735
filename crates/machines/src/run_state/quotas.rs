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
            // Whoever stopped the run may have got credit: the next process tries one call at once.
            Event::RunPaused(paused) if !paused.cause.ends_by_itself() => {
                self.0.values_mut().for_each(|closed| closed.until_ms = record.ts_ms);
            }
            // The providers may be others.
            Event::RunOpened(opened) if opened.accepted.is_some() => self.0.clear(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Accepted, GatewayParked, GatewayResumed, PauseCause, RunOpened, RunPaused};
    use crate::message::Json;

    fn note(quotas: &mut Quotas, ts_ms: i64, event: impl Into<Event>) {
        let (seq, epoch, task, agent, event) = (1, 1, None, None, event.into());
        quotas.note(&Record { seq, epoch, ts_ms, task, agent, event });
    }

    fn parked(quota: Option<QuotaWait>) -> GatewayParked {
        let (provider, reason) = (Name::new("main").expect("a name"), "used up".to_owned());
        GatewayParked { provider, for_ms: 5_000, reason, quota }
    }

    fn until(quotas: &Quotas) -> Option<i64> {
        quotas.last().map(|(_, closed)| closed.until_ms)
    }

    #[test]
    fn a_quota_is_closed_until_it_is_reset_or_somebody_stops_the_run() {
        let mut quotas = Quotas::default();
        note(&mut quotas, 1_000, parked(None));
        note(&mut quotas, 1_000, parked(Some(QuotaWait::Resume)));
        assert_eq!(until(&quotas), None, "only a wait in the process outlives it");
        note(&mut quotas, 1_000, parked(Some(QuotaWait::InProcess)));
        let pause = |cause| RunPaused { reason: String::new(), cause };
        note(&mut quotas, 1_001, pause(PauseCause::Quota));
        assert_eq!(until(&quotas), Some(6_000));
        note(&mut quotas, 2_000, pause(PauseCause::Interrupted));
        assert_eq!(until(&quotas), Some(2_000), "it is tried at once");
        let (mut same, mut changed) = (quotas.clone(), quotas.clone());
        note(&mut same, 3_000, RunOpened::by_this_process(2));
        assert_eq!(until(&same), Some(2_000));
        let accepted = Accepted {
            config: Default::default(),
            files: BTreeMap::new(),
            config_hash: String::new(),
            inputs: Json::encode(&serde_json::json!({})),
            settings: BTreeMap::new(),
            tasks: Default::default(),
        };
        let accepted = Some(Box::new(accepted));
        note(&mut changed, 3_000, RunOpened { accepted, ..RunOpened::by_this_process(2) });
        assert_eq!(until(&changed), None, "the providers may be others");
        let provider = Name::new("main").expect("a name");
        note(&mut quotas, 3_000, GatewayResumed { provider });
        assert_eq!(until(&quotas), None);
    }
}
