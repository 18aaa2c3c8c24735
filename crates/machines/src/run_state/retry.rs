//! Decides which tasks of a run begin again, which are decided again because they follow from those,
//! and which agents continue.
//!
//! Pure. The decision is recorded in `run.opened` and applied by the fold.

use std::collections::{HashMap, HashSet};

use super::{RunState, TaskStatus};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;

/// The tasks that begin again when a run resumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    /// The tasks, in the order of the plan.
    pub tasks: Vec<Name>,
    /// The agents of these tasks whose conversation continues. The other tasks start anew.
    pub agents: Vec<AgentId>,
    /// The tasks that follow from those and had begun or ended, in the order of the plan. What each
    /// was made from may change, so it is decided again by its content.
    pub reopened: Vec<Name>,
}

/// The reason why tasks cannot begin again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    /// The run has no such task.
    #[error("the run has no task `{0}`")]
    NoTask(String),
    /// The task has not ended.
    #[error("task `{0}` is {state}: only a task that has ended can be retried", state = .1.as_str())]
    NotEnded(Name, TaskState),
}

impl RunState {
    /// Returns the tasks that begin again: those in `named`, or all that failed or were cancelled if it
    /// is empty, with the failed tasks that they depend on, and every task that was skipped because of
    /// one of them. A named task may also have completed: it runs again, with everything that follows
    /// from it. What follows from the other tasks is decided again.
    ///
    /// # Errors
    /// Returns an error if a named task does not exist or has not ended.
    pub fn retry(&self, named: &[String]) -> Result<Retry, RetryError> {
        let mut wanted: HashSet<&Name> = match named {
            [] => {
                let failed = self.tasks().filter(|(_, task)| is_failed(task));
                let fan_out = |name| self.ended_fan_out_of(name);
                failed.flat_map(|(name, _)| [Some(name), fan_out(name)]).flatten().collect()
            }
            named => self.with_failed_dependencies(named)?,
        };
        // Nobody knows what a task left behind, in files and elsewhere, when it was made to run again.
        let is_done = |name: &&Name| self.tasks.get(*name).is_some_and(TaskStatus::is_complete);
        let completed = wanted.iter().copied().filter(is_done).collect();
        let has_ended = |name: &&Name| self.tasks.get(*name).is_some_and(|t| t.state.is_end());
        wanted.extend(self.following(&completed).into_iter().filter(has_ended));
        let following = loop {
            self.add_skipped(&mut wanted);
            let (before, following) = (wanted.len(), self.following(&wanted));
            // There is no result of these that could be kept.
            let is_undone = |name: &&&Name| {
                let task = self.tasks.get(**name);
                task.is_some_and(|task| is_failed(task) || is_skipped_by_failure(task))
            };
            wanted.extend(following.iter().filter(is_undone));
            if wanted.len() == before {
                break following;
            }
        };
        // These begin again at every resume.
        let waiting = self.tasks().filter(|(_, task)| task.waits_for_resume());
        wanted.extend(waiting.map(|(name, _)| name));
        let reopened = self.tasks().filter(|(name, task)| {
            // One that has not begun is decided once the tasks before it have ended.
            let has_begun = task.state != TaskState::Pending || task.is_held();
            following.contains(name) && has_begun && !wanted.contains(name)
        });
        let reopened = reopened.map(|(name, _)| name.clone()).collect();
        Ok(Retry { reopened, ..self.retry_of(|name| wanted.contains(name)) })
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
        let planned = self.created.iter().flat_map(|created| created.tasks.iter());
        let planned: HashMap<&str, _> =
            planned.map(|task| (task.name.as_str(), &task.depends_on)).collect();
        let mut wanted = HashSet::new();
        let mut open = Vec::new();
        for text in named {
            let found = self.tasks.iter().find(|(name, _)| name.as_str() == text);
            let (name, task) = found.ok_or_else(|| RetryError::NoTask(text.clone()))?;
            if !task.state.is_end() && !task.waits_for_resume() {
                return Err(RetryError::NotEnded(name.clone(), task.state));
            }
            open.push(name);
            open.extend(self.parts_of(name, task));
        }
        while let Some(name) = open.pop() {
            if !wanted.insert(name) {
                continue;
            }
            // The other instances stay as they are.
            wanted.extend(self.ended_fan_out_of(name));
            let written = name.of_instance().unwrap_or(name.as_str());
            let dependencies = planned.get(written).into_iter().flat_map(|names| names.iter());
            let found = dependencies.filter_map(|before| self.tasks.get_key_value(before));
            let failed = found.filter(|(_, task)| is_failed(task) || is_skipped_by_failure(task));
            for (before, task) in failed {
                open.push(before);
                open.extend(self.parts_of(before, task));
            }
        }
        Ok(wanted)
    }

    /// Returns the task that fanned out to an instance, if it has ended. One that is at work takes the
    /// instance up as it is.
    fn ended_fan_out_of(&self, name: &Name) -> Option<&Name> {
        let (task, status) = self.fan_out_of(name)?;
        status.state.is_end().then_some(task)
    }

    /// Returns the parts of a task that begin again with it: the instances of a fan-out, or the tasks
    /// of a sub-graph; those that failed, or all if the task completed.
    fn parts_of<'a>(&'a self, name: &'a Name, task: &'a TaskStatus) -> Vec<&'a Name> {
        let is_wanted = |part: &TaskStatus| task.is_done() || is_failed(part);
        let instances = task.instances.iter();
        let instances = instances.filter_map(|(name, _)| self.tasks.get_key_value(name));
        let within = format!("{name}/");
        let is_within = |part: &&Name| part.as_str().starts_with(&within);
        let inner = self.order.iter().filter(is_within);
        let inner = inner.filter_map(|name| self.tasks.get_key_value(name));
        let parts = instances.chain(inner.filter(|_| task.is_done()));
        parts.filter(|(_, part)| is_wanted(part)).map(|(name, _)| name).collect()
    }

    /// Returns the tasks that follow from others, in any number of steps: what they are made from may
    /// change when those begin again. The instances of a fan-out follow from what their task depends
    /// on.
    fn following<'a>(&'a self, sources: &HashSet<&'a Name>) -> HashSet<&'a Name> {
        let planned = self.created.iter().flat_map(|created| created.tasks.iter());
        let mut after: HashMap<&Name, Vec<&Name>> = HashMap::new();
        for task in planned {
            for before in &task.depends_on {
                after.entry(before).or_default().push(&task.name);
            }
        }
        let mut found = HashSet::new();
        let mut open: Vec<&Name> = sources.iter().copied().collect();
        while let Some(name) = open.pop() {
            // What is taken out is followed once.
            for next in after.remove(name).unwrap_or_default() {
                let Some((next, task)) = self.tasks.get_key_value(next) else { continue };
                if found.insert(next) {
                    open.push(next);
                    found.extend(task.instances.iter().map(|(instance, _)| instance));
                }
            }
        }
        found
    }

    /// Adds every task that was skipped because of one of the tasks.
    fn add_skipped<'a>(&'a self, wanted: &mut HashSet<&'a Name>) {
        let mut skipped: HashMap<&Name, Vec<&Name>> = HashMap::new();
        for (name, task) in self.tasks().filter(|(_, task)| is_skipped_by_failure(task)) {
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
