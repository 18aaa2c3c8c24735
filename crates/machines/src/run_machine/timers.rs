//! The timers of a run, as data: the driver of the machine asks for the next one and wakes the
//! machine.
//!
//! Pure: a moment is the time since the machine was made.

use std::collections::BTreeSet;
use std::time::Duration;

use ahash::HashMap;

use crate::id::AgentId;

/// An event that happens at a set time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The pause before the next attempt of a task is over. The number is the task's place in the
    /// plan.
    Retry(usize),
    /// The attempt of a task has used up its time. The number is the task's place in the plan.
    TaskLimit(usize),
    /// A check or a child has used up its time.
    AgentLimit(AgentId),
    /// The run has used up its time.
    RunLimit,
    /// The pause before an agent's restart is over.
    Restart(AgentId),
    /// An agent that was asked to end has used up its grace.
    EndOverdue(AgentId),
    /// A killed actor counts as gone.
    KillOverdue(AgentId),
    /// The interrupted agents have used up their grace.
    InterruptOverdue,
    /// The record of a pause has taken too long on a full disk.
    PauseOverdue,
    /// Another child may begin.
    Spawn,
    /// The time of a wait for children may be over: the agent, and the id of its request.
    Wait(AgentId, String),
    /// A call should have been tried since the quota of a provider was to be reset.
    QuotaTried,
    /// The time of the question with this id may be over.
    Question(String),
    /// For some time nothing has been at work and nothing has been waited for.
    Stalled,
    /// A notice may be due.
    Notice,
}

impl Timer {
    /// Returns true if work begins or ends when the timer fires.
    fn is_for_work(&self) -> bool {
        match self {
            Self::Retry(_)
            | Self::Restart(_)
            | Self::EndOverdue(_)
            | Self::KillOverdue(_)
            | Self::Spawn
            | Self::QuotaTried => true,
            Self::TaskLimit(_)
            | Self::AgentLimit(_)
            | Self::RunLimit
            | Self::InterruptOverdue
            | Self::PauseOverdue
            | Self::Question(_)
            // What it waits for is work, or a question: a run that waits for people alone pauses.
            | Self::Wait(..)
            | Self::Stalled
            | Self::Notice => false,
        }
    }
}

/// The timers that are set. Each timer has at most one moment: setting it again replaces the
/// earlier one.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    due: BTreeSet<(Duration, Timer)>,
    times: HashMap<Timer, Duration>,
    /// Number of the timers that begin or end work.
    for_work: usize,
}

impl Timers {
    /// Sets a timer for the moment `at`.
    pub(super) fn set(&mut self, at: Duration, timer: Timer) {
        self.cancel(&timer);
        self.for_work += usize::from(timer.is_for_work());
        self.times.insert(timer.clone(), at);
        self.due.insert((at, timer));
    }

    /// Cancels a timer, if it is set.
    pub(super) fn cancel(&mut self, timer: &Timer) {
        if let Some(at) = self.times.remove(timer) {
            self.for_work -= usize::from(timer.is_for_work());
            self.due.remove(&(at, timer.clone()));
        }
    }

    /// Returns true if a timer is set.
    pub(super) fn is_set(&self, timer: &Timer) -> bool {
        self.times.contains_key(timer)
    }

    /// Returns true if a timer is set that begins or ends work: a pause between attempts, a restart,
    /// the deadline of an agent that must end.
    pub(super) fn any_for_work(&self) -> bool {
        self.for_work > 0
    }

    /// Returns the moment of the next timer.
    pub(super) fn next(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Removes and returns the next timer whose moment has come.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.due.pop_first()?;
        self.for_work -= usize::from(timer.is_for_work());
        self.times.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_once() {
        let at = Duration::from_secs;
        let mut timers = Timers::default();
        timers.set(at(3), Timer::RunLimit);
        timers.set(at(1), Timer::Retry(0));
        timers.set(at(9), Timer::Retry(1));
        timers.set(at(2), Timer::Retry(1));
        timers.set(at(1), Timer::PauseOverdue);
        timers.cancel(&Timer::PauseOverdue);
        assert!(!timers.is_set(&Timer::PauseOverdue) && timers.is_set(&Timer::Retry(1)));
        assert_eq!(timers.next(), Some(at(1)));
        assert_eq!(timers.pop_due(Duration::ZERO), None);
        let fired: Vec<_> = std::iter::from_fn(|| timers.pop_due(at(2))).collect();
        assert_eq!(fired, [Timer::Retry(0), Timer::Retry(1)]);
        assert_eq!(timers.next(), Some(at(3)));
    }
}
