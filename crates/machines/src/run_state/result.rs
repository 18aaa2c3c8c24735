//! The result of a run: the ends of its tasks, its spending, and what was left undone.

use std::collections::BTreeSet;

use super::{AgentStatus, RunState, TaskStatus};
use crate::event::{RunCompleted, RunStatus, TaskEnd};
use crate::failure::FailureKind;
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::turn::{Outcome, Shortfalls};

impl RunState {
    /// Returns the result for `run.completed`, computed from the tasks' states. `mixed` is the
    /// status of a run in which some tasks completed and some did not. If the run is `strict`, one
    /// in which anything was left undone completed only in part.
    #[must_use]
    pub fn result(&self, mixed: RunStatus, strict: bool) -> RunCompleted {
        let shortfalls = self.shortfalls();
        let has_output =
            |task: &&TaskStatus| matches!(task.state, TaskState::Completed | TaskState::Reused);
        let done = self.tasks.values().filter(has_output).count();
        // A cancelled run stays cancelled, even if no task completed.
        let status = if self.written_tasks().all(|(_, task)| task.is_done()) {
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
                // The outputs of instances stand in the output of their task.
                output: task
                    .output
                    .as_ref()
                    .filter(|_| name.of_instance().is_none())
                    .map(|output| output.text.clone()),
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

    /// Returns what the agents of the run left undone. Attempts that were followed by another one
    /// do not count.
    #[must_use]
    pub fn shortfalls(&self) -> Shortfalls {
        let is_latest = |(id, agent): &(&AgentId, &AgentStatus)| {
            let main = self.tasks.get(&agent.task).and_then(|task| task.agent.as_ref());
            main.is_some_and(|main| id.is_within(main))
        };
        let latest = self.agents.iter().filter(is_latest);
        let mut all = Self::shortfalls_of(latest.map(|(_, agent)| agent));
        self.tasks.values().for_each(|task| all.add(&self.undone_items(task)));
        all
    }

    /// Returns what a failed task had made: what its agent handed over when its turns or its time were
    /// used up, or what its command had printed.
    #[must_use]
    pub fn partial(&self, task: &TaskStatus) -> Option<&str> {
        let agent = task.agent.as_ref().filter(|_| task.state == TaskState::Failed)?;
        match self.agents.get(agent)?.outcome.as_ref()? {
            Outcome::Failed { partial, .. } => Some(partial.as_ref()?.text.as_str()),
            Outcome::Completed { .. } | Outcome::Cancelled { .. } => None,
        }
    }

    /// Returns the items that a fan-out left undone although it completed: too few for its
    /// `min_success` to fail it.
    #[must_use]
    pub fn undone_items(&self, task: &TaskStatus) -> Shortfalls {
        let is_done = |name: &Name| self.tasks.get(name).is_some_and(TaskStatus::is_done);
        let instances = match task.state {
            TaskState::Completed | TaskState::Reused => task.instances.as_slice(),
            _ => &[],
        };
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let failed = count(instances.iter().filter(|(name, _)| !is_done(name)).count());
        let items = if failed > 0 { count(instances.len()) } else { 0 };
        Shortfalls { failed_items: failed, items, ..Shortfalls::default() }
    }

    /// Returns the tasks whose latest attempt left something undone, by name.
    #[must_use]
    pub fn tasks_that_fell_short(&self) -> BTreeSet<&Name> {
        let fell_short = self.agents.iter().filter(|(id, agent)| {
            let main = self.tasks.get(&agent.task).and_then(|task| task.agent.as_ref());
            let is_latest = main.is_some_and(|main| id.is_within(main));
            is_latest && !Self::shortfalls_of([*agent]).is_empty()
        });
        let partly = self.tasks.iter().filter(|(_, task)| !self.undone_items(task).is_empty());
        fell_short.map(|(_, agent)| &agent.task).chain(partly.map(|(name, _)| name)).collect()
    }

    /// Returns what the latest attempt of a task left undone.
    #[must_use]
    pub fn shortfalls_of_task(&self, name: &Name) -> Shortfalls {
        let main = self.tasks.get(name).and_then(|task| task.agent.as_ref());
        let of_task = self.agents.iter().filter(|(id, agent)| {
            agent.task == *name && main.is_some_and(|main| id.is_within(main))
        });
        let mut all = Self::shortfalls_of(of_task.map(|(_, agent)| agent));
        self.tasks.get(name).iter().for_each(|task| all.add(&self.undone_items(task)));
        all
    }

    /// Returns what these agents left undone.
    #[must_use]
    pub fn shortfalls_of<'a>(agents: impl IntoIterator<Item = &'a AgentStatus>) -> Shortfalls {
        let mut all = Shortfalls::default();
        for agent in agents {
            all.add(&agent.shortfalls);
            if agent.is_delegated() {
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

/// Returns the kinds of failure of a run's tasks, from which the exit code is computed. The failures
/// of instances count only if their task failed too.
#[must_use]
pub fn failure_kinds(completed: &RunCompleted) -> Vec<FailureKind> {
    let counts = |name: &Name| {
        let task = name.of_instance().and_then(|task| completed.tasks.get(task));
        task.is_none_or(|task| task.state == TaskState::Failed)
    };
    let failed = completed.tasks.iter().filter(|(name, _)| counts(name));
    failed.filter_map(|(_, end)| end.error.as_ref()).map(|error| error.kind).collect()
}
