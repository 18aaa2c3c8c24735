//! Decides when the run pauses and when it ends: interruption, a full disk, no work left.

use std::time::Duration;

use super::action::Haste;
use super::decision::Decision;
use super::facts::{Facts, Stage};
use super::timers::Timer;
use super::{Action, Finish, RunMachine};
use crate::event::{Draft, PauseCause, RunOpened, RunPaused, RunStatus};
use crate::id::Name;
use crate::plan::TaskState;
use crate::run_state::{HookState, RunPhase, TaskStatus};
use crate::spec::hooks::Hook;

/// The reason for a pause on a full disk, for people.
const DISK_FULL: &str = "disk full: waiting for disk space, then the run continues by itself";

/// The longest time that the record of a pause may take on a full disk. The journal keeps space in
/// reserve for it, so it takes this long only when the reserve is used up too.
const PAUSE_PATIENCE: Duration = Duration::from_secs(5);

/// The longest time that replies are waited for which are on their way and paid for: 64,000 tokens at 107 a
/// second, which is a usual pace.
const REPLY_PATIENCE: Duration = Duration::from_secs(600);

impl Facts {
    /// Returns the agents that have an actor and were not killed, sorted by id.
    fn live(&self) -> Vec<crate::id::AgentId> {
        let live = self.agents.iter().filter(|(_, agent)| agent.stage == Stage::Live);
        let mut live: Vec<_> = live.map(|(id, _)| id.clone()).collect();
        live.sort();
        live
    }

    /// Returns true if a change of a task or of the plan is on its way to the journal.
    fn is_recording(&self) -> bool {
        !self.proposed.is_empty() || !self.growing.is_empty()
    }
}

impl RunMachine {
    /// Stops the run so that it can be resumed: no new work, and a grace for the agents at work.
    pub(super) fn interrupted(&mut self, reason: String, haste: Haste) {
        if self.facts.interrupted.is_some() {
            return;
        }
        self.facts.interrupted = Some(reason);
        if self.facts.is_disk_full {
            // On a full disk, no record requested from now on may ever be written.
            let patience = self.facts.settings.limits.grace_period + PAUSE_PATIENCE;
            self.facts.timers.set(self.facts.now.since + patience, Timer::PauseOverdue);
        }
        for agent in self.facts.live() {
            self.actions.push_back(Action::Interrupt(agent, haste));
        }
        self.post(Decision::EndHook);
        let patience = match haste {
            Haste::WithinGrace => self.facts.end_grace(),
            Haste::AfterReply => self.facts.end_grace() + REPLY_PATIENCE,
        };
        self.facts.timers.set(self.facts.now.since + patience, Timer::InterruptOverdue);
    }

    /// Kills the interrupted agents that have used up their grace.
    pub(super) fn interrupt_overdue(&mut self) {
        for agent in self.facts.live() {
            self.post(Decision::Kill(agent));
        }
    }

    /// Records the pause once no agent is at work any more.
    pub(super) fn pause_when_quiet(&mut self) {
        // The consequences of an agent's end are recorded first, so that a resumed run need not
        // decide them again.
        let is_quiet = self.facts.live == 0 && self.facts.ending == 0 && !self.facts.is_recording();
        if is_quiet && self.facts.hook.is_none() {
            self.facts.is_finishing = true;
            let reason = self.facts.interrupted.clone().unwrap_or_default();
            let paused = RunPaused { reason, cause: self.facts.pause_cause };
            self.record(vec![Draft::run(paused)]);
        }
    }

    /// Records the run's result once every task and every agent has ended.
    pub(super) fn complete_when_done(&mut self) {
        let is_pausing = self.facts.interrupted.is_some();
        if is_pausing || self.facts.state.open_agents() > 0 || self.facts.is_recording() {
            return;
        }
        if self.facts.state.open_tasks() > 0 {
            return self.pause_if_failures_wait();
        }
        let is_stopped = self.facts.stopped.is_some();
        let by_failure = self.facts.stopping_failure().is_some();
        let mixed = match self.facts.state.hook(Hook::OnStart) {
            Some(HookState::Failed(_)) => RunStatus::Failed,
            // The failure of a task stopped the others, not a person.
            _ if by_failure && (!is_stopped || self.facts.settings.limits.cancel_running) => {
                RunStatus::Failed
            }
            _ if is_stopped => RunStatus::Cancelled,
            // All other tasks were done, as far as they could be.
            _ => RunStatus::Partial,
        };
        let result = self.facts.state.result(mixed, self.facts.settings.limits.strict);
        self.post(Decision::Complete(Box::new(result)));
    }

    /// Records a pause if every open task waits for the run to be resumed, or for such a task.
    fn pause_if_failures_wait(&mut self) {
        let Some(first) = self.facts.waiting_for_resume.first().copied() else { return };
        let waits = |(_, task): (&Name, &TaskStatus)| {
            task.state.is_end() || task.state == TaskState::Pending || task.waits_for_resume()
        };
        if !self.facts.evaluating.is_empty() || !self.facts.state.tasks().all(waits) {
            return;
        }
        self.facts.is_finishing = true;
        let failure = self.facts.status(first).and_then(|task| task.failure.clone());
        let failure = failure.map(|failure| failure.to_string()).unwrap_or_default();
        let others = match self.facts.waiting_for_resume.len() - 1 {
            0 => String::new(),
            1 => ", and 1 more task waits".to_owned(),
            more => format!(", and {more} more tasks wait"),
        };
        let reason = format!("task `{}` failed: {failure}{others}", self.facts.name(first));
        self.record(vec![Draft::run(RunPaused { reason, cause: PauseCause::Failure })]);
    }

    /// Pauses the run because the disk is full: nothing new begins until there is disk space.
    pub(super) fn no_room(&mut self) {
        self.facts.is_disk_full = true;
        if self.facts.is_finishing {
            return;
        }
        self.actions.push_back(Action::HoldSteps);
        let (reason, cause) = (DISK_FULL.to_owned(), PauseCause::DiskFull);
        self.record(vec![Draft::run(RunPaused { reason, cause })]);
        self.facts.timers.set(self.facts.now.since + PAUSE_PATIENCE, Timer::PauseOverdue);
    }

    /// Records that the run continues, after the disk has space again. Work begins once this is
    /// durable.
    pub(super) fn room_again(&mut self) {
        self.facts.is_disk_full = false;
        if self.facts.is_finishing {
            return;
        }
        let opened = RunOpened {
            pid: self.facts.settings.pid,
            reason: Some("there is disk space again".to_owned()),
            ..RunOpened::by_this_process(self.facts.state.epoch())
        };
        self.record(vec![Draft::run(opened)]);
    }

    /// Continues the waiting work after the run was opened again, unless the disk filled up
    /// meanwhile.
    pub(super) fn opened(&mut self) {
        self.post(Decision::StartLimits);
        self.post(Decision::Act(match self.facts.is_disk_full {
            true => Action::HoldSteps,
            false => Action::AllowSteps,
        }));
        self.facts.waits_for_quota = false;
        self.post(Decision::WaitForQuota);
    }

    /// Ends the run for this process if not even its pause could be recorded.
    pub(super) fn pause_overdue(&mut self) {
        if !self.facts.is_disk_full {
            return;
        }
        match (&self.facts.interrupted, self.facts.state.phase()) {
            // The pause is recorded, so the sender of the interrupt need not wait for anything
            // else.
            (Some(reason), RunPhase::Paused) => {
                let (reason, cause) = (reason.clone(), PauseCause::Interrupted);
                self.finish(Finish::Paused(RunPaused { reason, cause }));
            }
            (None, RunPhase::Paused) | (_, RunPhase::Completed(_)) => {}
            (_, RunPhase::Open) => self.finish(Finish::DiskFull),
        }
    }
}
