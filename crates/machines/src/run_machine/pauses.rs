//! Decides when the run pauses and when it ends: interruption, a full disk, no work left, no way on.

use std::time::Duration;

use super::action::Haste;
use super::decision::Decision;
use super::desk::Desk;
use super::timers::Timer;
use super::{Action, Facts, Finish};
use crate::event::{Draft, PauseCause, RunCompleted, RunOpened, RunPaused, RunStatus};
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

/// The time after which a run is given up in which nothing is at work and nothing is waited for. No measurement
/// behind it: `cargo bench --bench handlers` sees mail that is late by less than half a second, and a run that is
/// only slow must not be ended.
const STALL_PATIENCE: Duration = Duration::from_secs(30);

/// Most tasks that the reason of a stall names.
const STALLED_TASKS: usize = 3;

/// What keeps the run from going on, and whether it ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// The reason and the cause of an interruption.
    interrupted: Option<(String, PauseCause)>,
    is_disk_full: bool,
    /// True if the last record of this process is on its way to the journal or was made.
    is_finishing: bool,
    is_finished: bool,
}

impl Pauses {
    /// Returns true if the run is being stopped so that it can be resumed.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some()
    }

    /// Returns true unless somebody waits for the process to stop. A run that pauses for people calls them first.
    pub(super) fn lets_hooks_begin(&self) -> bool {
        self.interrupted.as_ref().is_none_or(|(_, cause)| *cause == PauseCause::Person)
    }

    pub(super) fn is_disk_full(&self) -> bool {
        self.is_disk_full
    }

    /// Returns true if the last record of this process is on its way to the journal or was made.
    pub(super) fn is_finishing(&self) -> bool {
        self.is_finishing
    }
}

impl Facts {
    /// Returns the agents that have an actor and were not killed, sorted by id.
    fn live_agents(&self) -> Vec<crate::id::AgentId> {
        let live = self.agents.open().filter(|(_, is_live)| *is_live);
        let mut live: Vec<_> = live.map(|(id, _)| id.clone()).collect();
        live.sort();
        live
    }

    /// Returns true if something has not ended, and nothing that the machine knows of can end it. No order of
    /// inputs leads there; records that contradict each other do, and so would a message that got lost.
    fn is_stalled(&self) -> bool {
        let is_open = self.state.open_tasks() > 0 || self.state.open_agents() > 0;
        let is_ending = self.pauses.is_interrupted() || self.pauses.is_finishing();
        is_open
            && !is_ending
            && self.nothing_is_under_way()
            && self.state.questions().is_empty()
            && !self.any_money_is_awaited()
            && !self.any_scope_paused()
            // A slot may be held for somebody who never comes.
            && !self.scarce.holders().any(|agent| self.agents.is_open(agent))
            && !self.any_loose()
            && !self.children.any_is_compared()
    }

    /// Returns what has not ended, in words. Takes time proportional to the run.
    fn stalled_work(&self) -> String {
        let open = self.state.tasks().filter(|(_, task)| !task.state.is_end());
        let open: Vec<_> = open.map(|(name, _)| format!("task `{name}`")).collect();
        let agents = || self.agents.open().map(|(id, _)| format!("agent `{id}`")).min();
        let mut named: Vec<_> = open.iter().take(STALLED_TASKS).cloned().collect();
        named.extend(agents().filter(|_| open.is_empty()));
        match open.len().saturating_sub(STALLED_TASKS) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }

    /// Returns true if a change of a task or of the plan, or a message, is on its way to the journal.
    fn is_recording(&self) -> bool {
        !self.proposed.is_empty()
            || self.attempts.any_checking()
            || self.growth.is_coming()
            || !self.messages.are_quiet()
    }
}

impl Desk<'_, Pauses> {
    /// Stops the run so that it can be resumed: no new work, and a grace for the agents at work.
    pub(super) fn interrupt(&mut self, reason: String, cause: PauseCause, haste: Haste) {
        if self.pauses.is_interrupted() {
            return;
        }
        self.own().interrupted = Some((reason, cause));
        if self.pauses.is_disk_full {
            // On a full disk, no record requested from now on may ever be written.
            let patience = self.settings.limits.grace_period + PAUSE_PATIENCE;
            let at = self.now.since + patience;
            self.post(Decision::SetTimer(at, Timer::PauseOverdue));
        }
        for agent in self.live_agents() {
            self.act(Action::Interrupt(agent, haste));
        }
        if !self.pauses.lets_hooks_begin() {
            self.post(Decision::EndHook());
        }
        let patience = match haste {
            Haste::WithinGrace => self.end_grace(),
            Haste::AfterReply => self.end_grace() + REPLY_PATIENCE,
        };
        let at = self.now.since + patience;
        self.post(Decision::SetTimer(at, Timer::InterruptOverdue));
    }

    /// Kills the interrupted agents that have used up their grace.
    pub(super) fn interrupt_overdue(&mut self) {
        for agent in self.live_agents() {
            self.post(Decision::Kill(agent));
        }
    }

    /// Records the pause once no agent is at work any more.
    pub(super) fn pause_when_quiet(&mut self) {
        // The consequences of an agent's end are recorded first, so that a resumed run need not
        // decide them again.
        let is_quiet = self.agents.are_at_rest() && !self.is_recording();
        if let Some((reason, cause)) = self.pauses.interrupted.clone()
            && is_quiet
            && !self.hooks.is_at_work()
        {
            self.post(Decision::Pause(reason, cause));
        }
    }

    /// Records the pause, after its notices.
    pub(super) fn record_pause(&mut self, reason: String, cause: PauseCause) {
        self.own().is_finishing = true;
        self.record(vec![Draft::run(RunPaused { reason, cause })]);
    }

    /// Records the run's result once every task and every agent has ended.
    pub(super) fn complete_when_done(&mut self) {
        if self.pauses.is_interrupted() || self.state.open_agents() > 0 || self.is_recording() {
            return;
        }
        if self.state.open_tasks() > 0 {
            return self.pause_if_failures_wait();
        }
        let is_stopped = self.stopping.is_stopped();
        let by_failure = self.has_stopping_failure();
        // A hook that was ended because a person cancelled the run is no failure: some task would show it.
        let is_failure = !self.stopping.is_cancelled() && self.state.first_failed().is_some();
        let mixed = match self.state.hook(Hook::OnStart) {
            Some(HookState::Failed(_)) if is_failure => RunStatus::Failed,
            // The failure of a task stopped the others, not a person.
            _ if by_failure && (!is_stopped || self.settings.limits.cancel_running) => {
                RunStatus::Failed
            }
            _ if is_stopped => RunStatus::Cancelled,
            // All other tasks were done, as far as they could be.
            _ => RunStatus::Partial,
        };
        let result = self.state.result(mixed, self.settings.limits.strict);
        self.post(Decision::Complete(Box::new(result)));
    }

    /// Records the result of the run, after all hooks.
    pub(super) fn record_end(&mut self, result: RunCompleted) {
        self.own().is_finishing = true;
        self.record(vec![Draft::run(result)]);
    }

    /// Records a pause if every open task waits for the run to be resumed, or for such a task.
    fn pause_if_failures_wait(&mut self) {
        let Some(first) = self.tasks.waiting_for_resume().first().copied() else { return };
        let waits = |(_, task): (&Name, &TaskStatus)| {
            task.state.is_end() || task.state == TaskState::Pending || task.waits_for_resume()
        };
        if self.evaluating.is_at_work() || !self.state.tasks().all(waits) {
            return;
        }
        let failure = self.status(first).and_then(|task| task.failure.clone());
        let failure = failure.map(|failure| failure.to_string()).unwrap_or_default();
        let others = match self.tasks.waiting_for_resume().len() - 1 {
            0 => String::new(),
            1 => ", and 1 more task waits".to_owned(),
            more => format!(", and {more} more tasks wait"),
        };
        let reason = format!("task `{}` failed: {failure}{others}", self.name(first));
        self.post(Decision::Pause(reason, PauseCause::Failure));
    }

    /// Sets the timer of a stall, or cancels it as soon as anything is at work or waited for.
    pub(super) fn watch_for_stall(&mut self) {
        match (self.is_stalled(), self.timers.is_set(&Timer::Stalled)) {
            (true, false) => {
                let at = self.now.since + STALL_PATIENCE;
                self.post(Decision::SetTimer(at, Timer::Stalled));
            }
            (false, true) => self.post(Decision::CancelTimer(Timer::Stalled)),
            (true, true) | (false, false) => {}
        }
    }

    /// Ends the run for this process if nothing can bring it further.
    pub(super) fn stalled(&mut self) {
        if self.is_stalled() {
            let open = self.stalled_work();
            let reason = format!(
                "the records contradict each other: nothing is at work and nothing is waited for, but this has \
                 not ended: {open}"
            );
            self.finish(Finish::Broken(reason));
        }
    }

    /// Pauses the run because the disk is full: nothing new begins until there is disk space.
    pub(super) fn disk_full(&mut self) {
        self.own().is_disk_full = true;
        if self.pauses.is_finishing {
            return;
        }
        self.act(Action::HoldSteps);
        let (reason, cause) = (DISK_FULL.to_owned(), PauseCause::DiskFull);
        // In the space that is kept for the pause, so that a person is told who can make more of it.
        let notices = self.notices_of_full_disk(&reason);
        let paused = Draft::run(RunPaused { reason, cause });
        self.record(std::iter::once(paused).chain(notices).collect());
        let at = self.now.since + PAUSE_PATIENCE;
        self.post(Decision::SetTimer(at, Timer::PauseOverdue));
    }

    /// Records that the run continues, after the disk has space again. Work begins once this is
    /// durable.
    pub(super) fn disk_has_space(&mut self) {
        self.own().is_disk_full = false;
        if self.pauses.is_finishing {
            return;
        }
        let opened = RunOpened {
            pid: self.settings.pid,
            reason: Some("there is disk space again".to_owned()),
            ..RunOpened::by_this_process(self.state.epoch())
        };
        self.record(vec![Draft::run(opened)]);
    }

    /// Continues the waiting work after the run was opened again, unless the disk filled up
    /// meanwhile.
    pub(super) fn opened(&mut self) {
        self.post(Decision::StartLimits());
        self.post(Decision::Act(match self.pauses.is_disk_full {
            true => Action::HoldSteps,
            false => Action::AllowSteps,
        }));
        self.post(Decision::WaitForQuota());
    }

    /// Ends the run for this process if not even its pause could be recorded.
    pub(super) fn pause_overdue(&mut self) {
        if !self.pauses.is_disk_full {
            return;
        }
        match (&self.pauses.interrupted, self.state.phase()) {
            // The pause is recorded, so the sender of the interrupt need not wait for anything
            // else.
            (Some((reason, _)), RunPhase::Paused) => {
                let (reason, cause) = (reason.clone(), PauseCause::Interrupted);
                self.finish(Finish::Paused(RunPaused { reason, cause }));
            }
            (None, RunPhase::Paused) | (_, RunPhase::Completed(_)) => {}
            (_, RunPhase::Open) => self.finish(Finish::DiskFull),
        }
    }

    /// Ends the run for this process. The performer ends the agents that are still at work.
    pub(super) fn finish(&mut self, finish: Finish) {
        if !self.pauses.is_finished {
            self.own().is_finished = true;
            self.own().is_finishing = true;
            self.act(Action::Finish(finish));
        }
    }
}

#[cfg(test)]
mod tests;
