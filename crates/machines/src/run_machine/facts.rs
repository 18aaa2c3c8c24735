//! What all rules ask of the records and the plan.

use std::time::Duration;

use super::Facts;
use crate::id::Name;
use crate::plan::{Standing, TaskState};
use crate::run_state::{Reading, RunPhase, TaskStatus};
use crate::spec::TaskSpec;
use crate::spec::budget::Scope;
use crate::turn::question::AnswerOutcome;

impl Facts {
    /// Returns the run's open time at this moment. Unlike the state's reading, it also advances
    /// between records.
    pub(super) fn open_time(&self) -> Duration {
        let since = match self.state.phase() {
            RunPhase::Open if self.state.scope_pauses().get(&Scope::Run).is_some() => {
                Duration::ZERO
            }
            RunPhase::Open => self.now.since.saturating_sub(self.recorded_at),
            RunPhase::Paused | RunPhase::Completed(_) => Duration::ZERO,
        };
        self.state.reading().since(Reading::default()) + since
    }

    /// Returns true if the run has such a part.
    pub(super) fn is_scope_known(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Run => true,
            Scope::Task(name) => self.settings.plan.place(name).is_some(),
            Scope::Agent(id) => self.state.agents().contains_key(id),
        }
    }

    /// Returns why the run does not take up what a person changes of a part of it; `None` if it does.
    pub(super) fn refusal_of_change(&self, is_known: bool) -> Option<AnswerOutcome> {
        match (is_known, self.pauses.is_finishing()) {
            (false, _) => Some(AnswerOutcome::Unknown),
            (true, true) => Some(AnswerOutcome::Closing),
            (true, false) => None,
        }
    }

    pub(super) fn name(&self, place: usize) -> &Name {
        &self.spec(place).name
    }

    pub(super) fn spec(&self, place: usize) -> &TaskSpec {
        &self.settings.plan.tasks()[place]
    }

    pub(super) fn status(&self, place: usize) -> Option<&TaskStatus> {
        self.state.task(self.name(place))
    }

    pub(super) fn task_state(&self, place: usize) -> TaskState {
        self.status(place).map_or(TaskState::Pending, |status| status.state)
    }

    pub(super) fn standing(&self, place: usize) -> Standing {
        self.state.standing(self.name(place))
    }

    /// Returns true if a change of a task is on its way to the journal, or its output is being checked.
    pub(super) fn has_change_under_way(&self, place: usize) -> bool {
        self.proposed.contains(&place) || self.attempts.is_checking(place)
    }

    /// Returns true if a task still has agents.
    pub(super) fn has_agents(&self, place: usize) -> bool {
        self.status(place).is_some_and(|status| status.open_agents > 0)
    }
}
