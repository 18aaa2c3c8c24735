//! Decides what a run does while the quota of a provider is used up: it is paused, nothing new starts, and
//! it goes on by itself once the provider has taken a call.
//!
//! The agents at work wait at the gateway, which tries one of their calls when the quota should be reset.

use std::time::Duration;

use super::RunMachine;
use super::action::Haste;
use super::decision::Decision;
use super::facts::Facts;
use super::timers::Timer;
use crate::event::{Draft, GatewayParked, PauseCause, QuotaWait, RunOpened, RunPaused};

/// Time after a reset in which a waiting agent tries its call. If the reset is still not known then, no agent
/// waits for it any more, and a new one may start to try it.
const TRY_PATIENCE: Duration = Duration::from_secs(60);

impl Facts {
    /// Returns true if nothing new may start: the quota is used up, and somebody waits for its reset.
    pub(super) fn holds_starts(&self) -> bool {
        self.holds_starts && (self.state.open_agents() > 0 || !self.spawning.is_empty())
    }
}

impl RunMachine {
    /// Takes in that the quota of a provider is used up.
    pub(super) fn quota_exhausted(&mut self, parked: &GatewayParked, wait: QuotaWait) {
        match wait {
            QuotaWait::InProcess => self.wait_for_quota(),
            // Whoever stops the run already says why it paused.
            QuotaWait::Resume if self.facts.interrupted.is_some() => {}
            QuotaWait::Resume => {
                self.facts.pause_cause = PauseCause::Failure;
                let (provider, reason) = (&parked.provider, &parked.reason);
                let reason = format!("the quota of provider `{provider}` is used up: {reason}");
                self.post(Decision::Interrupt(reason, Haste::AfterReply));
            }
        }
    }

    /// Pauses the run, if a quota is used up and the run is open.
    pub(super) fn wait_for_quota(&mut self) {
        let Some((provider, closed)) = self.facts.state.quotas().last() else { return };
        let left = closed.until_ms.saturating_sub(self.facts.state.last_ms()).max(0);
        let left = Duration::from_millis(left.unsigned_abs());
        let until = jiff::Timestamp::from_millisecond(closed.until_ms).unwrap_or_default();
        let until = until.strftime("%Y-%m-%d %H:%M:%S UTC");
        let reason = format!(
            "quota of provider `{provider}` until {until}, then the run continues by itself: {}",
            closed.reason
        );
        self.facts.holds_starts = true;
        self.facts.timers.set(self.facts.now.since + left + TRY_PATIENCE, Timer::QuotaTried);
        let is_ending = self.facts.interrupted.is_some() || self.facts.is_finishing;
        // A reset whose time has come is tried first: if it is refused, the run pauses then.
        let is_tried = left.is_zero();
        if is_ending || is_tried || self.facts.is_disk_full || self.facts.waits_for_quota {
            return;
        }
        self.facts.waits_for_quota = true;
        self.record(vec![Draft::run(RunPaused { reason, cause: PauseCause::Quota })]);
    }

    /// Lets new work start although the reset of the quota is not known.
    pub(super) fn quota_tried(&mut self) {
        self.facts.holds_starts = false;
    }

    /// Continues the run if no quota is used up any more.
    pub(super) fn quota_reset(&mut self) {
        if self.facts.state.quotas().last().is_some() {
            return;
        }
        self.facts.holds_starts = false;
        self.facts.timers.cancel(&Timer::QuotaTried);
        let is_ending = self.facts.interrupted.is_some() || self.facts.is_finishing;
        if !std::mem::take(&mut self.facts.waits_for_quota) || is_ending || self.facts.is_disk_full
        {
            return;
        }
        let opened = RunOpened {
            pid: self.facts.settings.pid,
            reason: Some("the provider takes calls again".to_owned()),
            ..RunOpened::by_this_process(self.facts.state.epoch())
        };
        self.record(vec![Draft::run(opened)]);
    }
}
