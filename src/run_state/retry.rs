//! Decides which tasks of a run begin again, and which of their agents continue.
//!
//! Pure. The decision is recorded in `run.opened` and applied by the fold.

use std::collections::{HashMap, HashSet};

use super::{RunState, TaskStatus};
use crate::id::{AgentId, Name};
use crate::plan::{Standing, TaskState};

/// The tasks that begin again when a run resumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    /// The tasks, in the order of the plan.
    pub tasks: Vec<Name>,
    /// The agents of these tasks whose conversation continues. The other tasks start anew.
    pub agents: Vec<AgentId>,
}

/// The reason why tasks cannot begin again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    /// The run has no such task.
    #[error("the run has no task `{0}`")]
    NoTask(String),
    /// The task did not fail, and was neither cancelled nor skipped because of a failure.
    #[error("task `{0}` is {state}: only a task that failed, or left something undone, can be retried", state = .1.as_str())]
    NotFailed(Name, TaskState),
}

impl RunState {
    /// Returns the tasks that begin again: those in `named`, or all if it is empty, that failed or
    /// were cancelled, with the failed tasks that they depend on, and every task that was skipped
    /// because of one of them. A named task may also have completed with something left undone:
    /// it begins again with every task that depends on it.
    ///
    /// # Errors
    /// Returns an error if a named task does not exist or did not fail.
    pub fn retry(&self, named: &[String]) -> Result<Retry, RetryError> {
        let mut wanted = match named {
            [] => {
                let failed = self
                    .tasks()
                    .filter(|(name, task)| is_failed(task) && !self.is_of_done_fan_out(name));
                failed.map(|(name, _)| name).collect()
            }
            named => self.with_failed_dependencies(named)?,
        };
        self.add_skipped(&mut wanted);
        self.add_dependants_of_completed(&mut wanted);
        // These begin again at every resume.
        let waiting = self.tasks().filter(|(_, task)| task.waits_for_resume());
        wanted.extend(waiting.map(|(name, _)| name));
        Ok(self.retry_of(|name| wanted.contains(name)))
    }

    /// Returns the tasks that wait for the run to be resumed.
    #[must_use]
    pub fn retry_on_resume(&self) -> Retry {
        self.retry_of(|name| self.tasks.get(name).is_some_and(TaskStatus::waits_for_resume))
    }

    /// Returns the agents that continue if all tasks begin again under another configuration.
    #[must_use]
    pub fn continued_by(&self, tasks: &HashSet<&Name>) -> Vec<AgentId> {
        let is_wanted = |name: &Name, task: &TaskStatus| {
            tasks.contains(name) && (is_failed(task) || task.waits_for_resume())
        };
        let failed = self.tasks().filter(|(name, task)| is_wanted(name, task));
        failed.filter_map(|(_, task)| self.continued(task)).collect()
    }

    fn retry_of(&self, wanted: impl Fn(&Name) -> bool) -> Retry {
        let mut retry = Retry::default();
        for (name, task) in self.tasks().filter(|(name, _)| wanted(name)) {
            retry.tasks.push(name.clone());
            retry.agents.extend(self.continued(task));
        }
        retry
    }

    /// Returns the agent of a task's latest attempt, if it has ended and its conversation can
    /// continue.
    fn continued(&self, task: &TaskStatus) -> Option<AgentId> {
        let id = task.agent.as_ref()?;
        let agent = self.agents.get(id)?;
        let outcome = agent.outcome.as_ref().filter(|_| agent.has_subtree_ended())?;
        (agent.definition.is_some() && outcome.can_continue()).then(|| id.clone())
    }

    fn with_failed_dependencies(&self, named: &[String]) -> Result<HashSet<&Name>, RetryError> {
        let planned = self.created.iter().flat_map(|created| &created.tasks);
        let planned: HashMap<&str, _> =
            planned.map(|task| (task.name.as_str(), &task.depends_on)).collect();
        let mut wanted = HashSet::new();
        let mut open = Vec::new();
        for text in named {
            let found = self.tasks.iter().find(|(name, _)| name.as_str() == text);
            let (name, task) = found.ok_or_else(|| RetryError::NoTask(text.clone()))?;
            let fell_short =
                || task.state == TaskState::Completed && !self.shortfalls_of_task(name).is_empty();
            if !is_failed(task) && !is_skipped_by_failure(task) && !fell_short() {
                return Err(RetryError::NotFailed(name.clone(), task.state));
            }
            open.push(name);
        }
        while let Some(name) = open.pop() {
            if !wanted.insert(name) {
                continue;
            }
            let instances = self.tasks.get(name).map(|task| task.instances.as_slice());
            let instances = instances.unwrap_or_default().iter();
            let instances = instances.filter_map(|(name, _)| self.tasks.get_key_value(name));
            open.extend(instances.filter(|(_, task)| is_failed(task)).map(|(name, _)| name));
            open.extend(self.fan_out_of(name).map(|(task, _)| task));
            let dependencies =
                planned.get(name.as_str()).into_iter().flat_map(|names| names.iter());
            let found = dependencies.filter_map(|before| self.tasks.get_key_value(before));
            let failed = found.filter(|(_, task)| is_failed(task) || is_skipped_by_failure(task));
            open.extend(failed.map(|(before, _)| before));
        }
        Ok(wanted)
    }

    /// Adds every task that depends on a completed one that begins again: what it was made from may
    /// change.
    fn add_dependants_of_completed<'a>(&'a self, wanted: &mut HashSet<&'a Name>) {
        let planned = self.created.iter().flat_map(|created| &created.tasks);
        let mut after: HashMap<&Name, Vec<&Name>> = HashMap::new();
        for task in planned {
            for before in &task.depends_on {
                after.entry(before).or_default().push(&task.name);
            }
        }
        let is_done =
            |name: &&Name| matches!(self.standing(name), Standing::Done | Standing::Passed);
        let mut open: Vec<&Name> = wanted.iter().copied().filter(is_done).collect();
        while let Some(name) = open.pop() {
            let dependants = after.remove(name).unwrap_or_default();
            open.extend(dependants.into_iter().filter(|after| {
                self.tasks.get_key_value(*after).is_some_and(|(known, _)| wanted.insert(known))
            }));
        }
    }

    /// Returns true if a task is an instance of one that completed without it. It stays as it is,
    /// unless it is named.
    fn is_of_done_fan_out(&self, name: &Name) -> bool {
        self.fan_out_of(name).is_some_and(|(_, task)| task.is_done())
    }

    /// Adds every task that was skipped because of one of the tasks.
    fn add_skipped<'a>(&'a self, wanted: &mut HashSet<&'a Name>) {
        let mut skipped: HashMap<&Name, Vec<&Name>> = HashMap::new();
        let all = self.tasks().filter(|(_, task)| is_skipped_by_failure(task));
        for (name, task) in all.filter(|(name, _)| !self.is_of_done_fan_out(name)) {
            if let Some(because) = &task.because {
                skipped.entry(because).or_default().push(name);
            }
        }
        let mut open: Vec<&Name> = wanted.iter().copied().collect();
        while let Some(name) = open.pop() {
            let after = skipped.remove(name).unwrap_or_default();
            open.extend(after.into_iter().filter(|after| wanted.insert(after)));
        }
    }
}

fn is_failed(task: &TaskStatus) -> bool {
    matches!(task.state, TaskState::Failed | TaskState::Cancelled)
}

fn is_skipped_by_failure(task: &TaskStatus) -> bool {
    task.state == TaskState::Skipped && task.because.is_some()
}
