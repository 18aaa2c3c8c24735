//! Decides what a run does while the quota of a provider is used up: it is paused, nothing new starts, and
//! it goes on by itself once the provider has taken a call.
//!
//! The agents at work wait at the gateway, which tries one of their calls when the quota should be reset.

use std::time::Duration;

use super::Facts;
use super::action::Haste;
use super::decision::Decision;
use super::desk::Desk;
use super::timers::Timer;
use crate::event::{Draft, GatewayParked, PauseCause, QuotaWait, RunOpened, RunPaused};

/// Time after a reset in which a waiting agent tries its call. If the reset is still not known then, no agent
/// waits for it any more, and a new one may start to try it.
const TRY_PATIENCE: Duration = Duration::from_secs(60);

/// What the run does about quotas that are used up.
#[derive(Clone, Debug, Default)]
pub(super) struct Quotas {
    /// True if the run is paused, or about to be, until the quota of a provider is reset.
    is_waited_for: bool,
    /// True if nothing new starts, because the quota of a provider is used up.
    hold_starts: bool,
}

impl Facts {
    /// Returns true if nothing new may start: the quota is used up, and somebody waits for its reset.
    pub(super) fn holds_starts(&self) -> bool {
        self.quotas.hold_starts && (self.state.open_agents() > 0 || self.agents.any_begins())
    }

    fn is_ending(&self) -> bool {
        self.pauses.is_interrupted() || self.pauses.is_finishing()
    }
}

impl Desk<'_, Quotas> {
    /// Takes in that the quota of a provider is used up.
    pub(super) fn exhausted(&mut self, parked: &GatewayParked) {
        match parked.quota {
            None => {}
            Some(QuotaWait::InProcess) => self.wait(),
            // Whoever stops the run already says why it paused.
            Some(QuotaWait::Resume) if self.pauses.is_interrupted() => {}
            Some(QuotaWait::Resume) => {
                let (provider, reason) = (&parked.provider, &parked.reason);
                let reason = format!("the quota of provider `{provider}` is used up: {reason}");
                self.post(Decision::Interrupt(reason, PauseCause::Failure, Haste::AfterReply));
            }
        }
    }

    /// Waits for a quota again, after the run was opened.
    pub(super) fn opened(&mut self) {
        self.own().is_waited_for = false;
        self.wait();
    }

    /// Pauses the run, if a quota is used up and the run is open.
    fn wait(&mut self) {
        let Some((provider, closed)) = self.state.quotas().last() else { return };
        let left = closed.until_ms.saturating_sub(self.state.last_ms()).max(0);
        let left = Duration::from_millis(left.unsigned_abs());
        let until = jiff::Timestamp::from_millisecond(closed.until_ms).unwrap_or_default();
        let until = until.strftime("%Y-%m-%d %H:%M:%S UTC");
        let reason = format!(
            "quota of provider `{provider}` until {until}, then the run continues by itself: {}",
            closed.reason
        );
        self.own().hold_starts = true;
        let at = self.now.since + left + TRY_PATIENCE;
        self.post(Decision::SetTimer(at, Timer::QuotaTried));
        // A reset whose time has come is tried first: if it is refused, the run pauses then.
        let is_tried = left.is_zero();
        let waits = self.pauses.is_disk_full() || self.quotas.is_waited_for;
        if self.is_ending() || is_tried || waits {
            return;
        }
        self.own().is_waited_for = true;
        self.record(vec![Draft::run(RunPaused { reason, cause: PauseCause::Quota })]);
    }

    /// Lets new work start although the reset of the quota is not known.
    pub(super) fn tried(&mut self) {
        self.own().hold_starts = false;
    }

    /// Continues the run if no quota is used up any more.
    pub(super) fn reset(&mut self) {
        if self.state.quotas().last().is_some() {
            return;
        }
        self.own().hold_starts = false;
        self.post(Decision::CancelTimer(Timer::QuotaTried));
        let was_waited_for = std::mem::take(&mut self.own().is_waited_for);
        if !was_waited_for || self.is_ending() || self.pauses.is_disk_full() {
            return;
        }
        let opened = RunOpened {
            pid: self.settings.pid,
            reason: Some("the provider takes calls again".to_owned()),
            ..RunOpened::by_this_process(self.state.epoch())
        };
        self.record(vec![Draft::run(opened)]);
    }
}
