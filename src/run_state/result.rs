//! The result of a run: the ends of its tasks, its spending, and what was left undone.

use super::{AgentStatus, RunState, TaskStatus};
use crate::event::{RunCompleted, RunStatus, TaskEnd};
use crate::failure::FailureKind;
use crate::plan::{Standing, TaskState};
use crate::turn::{Outcome, Shortfalls};

impl RunState {
    /// Returns the result for `run.completed`, computed from the tasks' states. `mixed` is the
    /// status of a run in which some tasks completed and some did not. If the run is `strict`, one
    /// in which anything was left undone completed only in part.
    #[must_use]
    pub fn result(&self, mixed: RunStatus, strict: bool) -> RunCompleted {
        let shortfalls = self.shortfalls();
        let count = |wanted: &[Standing]| {
            self.order.iter().filter(|name| wanted.contains(&self.standing(name))).count()
        };
        let has_output =
            |task: &&TaskStatus| matches!(task.state, TaskState::Completed | TaskState::Reused);
        let done = self.tasks.values().filter(has_output).count();
        // A cancelled run stays cancelled, even if no task completed.
        let status = if count(&[Standing::Done]) == self.order.len() {
            match strict && !shortfalls.is_empty() {
                true => RunStatus::Partial,
                false => RunStatus::Completed,
            }
        } else if mixed == RunStatus::Cancelled || done > 0 {
            mixed
        } else {
            RunStatus::Failed
        };
        let ends = self.tasks().map(|(name, task)| {
            let end = TaskEnd {
                state: task.state,
                output: task.output.as_ref().map(|output| output.text.clone()),
                error: task.failure.clone().filter(|_| task.state == TaskState::Failed),
            };
            (name.clone(), end)
        });
        RunCompleted {
            status,
            tasks: ends.collect(),
            usage: self.spending.usage,
            cost_usd: self.spending.cost_usd(),
            shortfalls,
        }
    }

    /// Returns what the agents of the run left undone.
    #[must_use]
    pub fn shortfalls(&self) -> Shortfalls {
        Self::shortfalls_of(self.agents.values())
    }

    /// Returns what these agents left undone.
    #[must_use]
    pub fn shortfalls_of<'a>(agents: impl IntoIterator<Item = &'a AgentStatus>) -> Shortfalls {
        let mut all = Shortfalls::default();
        for agent in agents {
            all.add(&agent.shortfalls);
            if agent.parent.is_some() {
                all.children += u32::from(agent.outcome.is_some());
                let has_failed = matches!(agent.outcome, Some(Outcome::Failed { .. }));
                all.failed_children += u32::from(has_failed);
            }
        }
        if all.failed_children == 0 {
            all.children = 0;
        }
        all
    }
}

/// Returns the kinds of failure of a run's tasks, from which the exit code is computed.
#[must_use]
pub fn failure_kinds(completed: &RunCompleted) -> Vec<FailureKind> {
    completed.tasks.values().filter_map(|end| end.error.as_ref()).map(|error| error.kind).collect()
}
