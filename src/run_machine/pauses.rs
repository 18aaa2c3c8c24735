//! Decides when the run pauses and when it is over: interruption, a full disk, nothing left to do.

use std::time::Duration;

use super::open::Stage;
use super::timers::Timer;
use super::{Action, Finish, RunMachine};
use crate::event::{Draft, PauseCause, RunOpened, RunPaused, RunStatus};
use crate::run_state::RunPhase;

/// Why the run pauses on a full disk, for people.
const DISK_FULL: &str = "disk full: waiting for room, the run goes on by itself";

/// The longest time that the record of a pause may take on a full disk. The journal keeps room for
/// it, so it takes this long only when that is used up too.
const PAUSE_PATIENCE: Duration = Duration::from_secs(5);

impl RunMachine {
    /// Stops the run so that it can be resumed: no new work, and a grace for what is at work.
    pub(super) fn interrupted(&mut self, reason: String) {
        if self.open.interrupted.is_some() {
            return;
        }
        self.open.interrupted = Some(reason);
        if self.open.is_disk_full {
            // On a full disk nothing that is asked for now may ever be recorded.
            let patience = self.settings.limits.grace_period + PAUSE_PATIENCE;
            self.open.timers.set(self.now.since + patience, Timer::PauseOverdue);
        }
        for agent in self.live() {
            self.actions.push_back(Action::Interrupt(agent));
        }
        let at = self.now.since + self.end_grace();
        self.open.timers.set(at, Timer::InterruptOverdue);
    }

    /// The agents that have an actor, in the order of their ids.
    fn live(&self) -> Vec<crate::id::AgentId> {
        let live = self.open.agents.iter().filter(|(_, agent)| agent.stage == Stage::Live);
        let mut live: Vec<_> = live.map(|(id, _)| id.clone()).collect();
        live.sort();
        live
    }

    /// The agents that were interrupted have had their grace.
    pub(super) fn interrupt_overdue(&mut self) {
        for agent in self.live() {
            self.kill(&agent);
        }
    }

    /// Has the pause recorded once no agent is at work any more.
    pub(super) fn pause_when_quiet(&mut self) {
        // The consequences of an agent's end are recorded first: a resumed run need not draw them
        // again.
        let is_quiet =
            self.open.live == 0 && self.open.ending == 0 && self.open.proposed.is_empty();
        if is_quiet {
            self.open.is_finishing = true;
            let reason = self.open.interrupted.clone().unwrap_or_default();
            let paused = RunPaused { reason, cause: PauseCause::Interrupted };
            self.record(vec![Draft::run(paused)]);
        }
    }

    /// Has the run's result recorded once every task and every agent has ended.
    pub(super) fn complete_when_done(&mut self) {
        let is_done = self.state.open_tasks() == 0
            && self.state.open_agents() == 0
            && self.open.proposed.is_empty();
        if !is_done {
            return;
        }
        let mixed = match (&self.open.stopped, self.settings.limits.fail_fast) {
            (Some(_), _) => RunStatus::Cancelled,
            (None, true) => RunStatus::Failed,
            (None, false) => RunStatus::Partial,
        };
        self.open.is_finishing = true;
        let result = self.state.result(mixed);
        self.record(vec![Draft::run(result)]);
    }

    /// The disk is full: nothing new begins until there is room.
    pub(super) fn no_room(&mut self) {
        self.open.is_disk_full = true;
        if self.open.is_finishing {
            return;
        }
        self.actions.push_back(Action::HoldSteps);
        let (reason, cause) = (DISK_FULL.to_owned(), PauseCause::DiskFull);
        self.record(vec![Draft::run(RunPaused { reason, cause })]);
        self.open.timers.set(self.now.since + PAUSE_PATIENCE, Timer::PauseOverdue);
    }

    /// The disk has room again: that the run goes on is recorded before it does.
    pub(super) fn room_again(&mut self) {
        self.open.is_disk_full = false;
        if self.open.is_finishing {
            return;
        }
        let opened = RunOpened {
            epoch: self.state.epoch(),
            pid: self.settings.pid,
            reason: Some("there is room on the disk again".to_owned()),
            accepted: None,
        };
        self.record(vec![Draft::run(opened)]);
    }

    /// The run was opened again: what waited goes on, unless the disk filled up meanwhile.
    pub(super) fn opened(&mut self) {
        self.start_limits();
        self.actions.push_back(match self.open.is_disk_full {
            true => Action::HoldSteps,
            false => Action::AllowSteps,
        });
    }

    /// Ends the run for this process when not even its pause could be recorded.
    pub(super) fn pause_overdue(&mut self) {
        if !self.open.is_disk_full {
            return;
        }
        match (&self.open.interrupted, self.state.phase()) {
            // The journal says that the run is paused; who told it to stop need not wait for more.
            (Some(reason), RunPhase::Paused) => self.finish(Finish::Paused(reason.clone())),
            (None, RunPhase::Paused) | (_, RunPhase::Completed(_)) => {}
            (_, RunPhase::Open) => self.finish(Finish::DiskFull),
        }
    }
}
