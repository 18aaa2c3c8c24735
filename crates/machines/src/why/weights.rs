//! Which of several causes binds: the one that would hold up the subject longest if the others ended now.
//!
//! A task that needs somebody, or that waits for one which does, ends last: nobody knows when. Of others the one with
//! the longest path of open tasks before it does.

use ahash::{HashMap, HashMapExt};

use super::Why;
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::run_state::{AgentStatus, TaskStatus};

/// The weight of an open task; the greater one binds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Weight {
    needs_somebody: bool,
    /// Number of open tasks on the longest path before it.
    path: u32,
    /// True if it does not work yet: it has its whole work before it.
    is_idle: bool,
}

/// The weights of the open tasks of a run.
pub(super) type Weights<'a> = HashMap<&'a Name, Weight>;

impl<'a> Why<'a> {
    /// Returns the weight of a task; the least for one that has ended.
    pub(super) fn weight(&self, name: &Name) -> Weight {
        self.weights.get_or_init(|| self.all_weights()).get(name).copied().unwrap_or_default()
    }

    /// Sorts tasks so that the one that binds comes first. Those of the same weight stay in their order.
    pub(super) fn heaviest_first(&self, names: &mut [&Name]) {
        names.sort_by_cached_key(|name| std::cmp::Reverse(self.weight(name)));
    }

    fn all_weights(&self) -> Weights<'a> {
        let mut weights = Weights::new();
        for (name, _) in self.state.tasks().filter(|(_, task)| !task.state.is_end()) {
            // Pairs of a task and whether those before it are weighed. A recursive search could exhaust the stack.
            let mut path = vec![(name, false)];
            while let Some((name, is_ready)) = path.pop() {
                let Some(task) = self.state.task(name) else { continue };
                if !is_ready {
                    if !weights.contains_key(name) {
                        // It counts nothing for itself if it stands in a cycle.
                        weights.insert(name, Weight::default());
                        path.push((name, true));
                        path.extend(self.before(name, task).into_iter().map(|name| (name, false)));
                    }
                    continue;
                }
                let before = self.before(name, task).into_iter();
                let mut weight = Weight { is_idle: task.agent.is_none(), ..Weight::default() };
                weight.needs_somebody = self.needs_somebody(name, task);
                for of in before.filter_map(|name| weights.get(name)) {
                    weight.needs_somebody |= of.needs_somebody;
                    weight.path = weight.path.max(of.path + 1);
                }
                weights.insert(name, weight);
            }
        }
        weights
    }

    /// Returns the open tasks that must end before a task can.
    fn before(&self, name: &Name, task: &'a TaskStatus) -> Vec<&'a Name> {
        match task.state {
            TaskState::Pending => self.open_before(name),
            TaskState::Running => {
                let instances = task.instances.iter().map(|(name, _)| name);
                instances.filter(|name| self.is_open(name)).collect()
            }
            TaskState::Ready
            | TaskState::Waiting
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Reused => Vec::new(),
        }
    }

    fn needs_somebody(&self, name: &Name, task: &TaskStatus) -> bool {
        let main = task.agent.as_ref().and_then(|id| self.state.agents().get_key_value(id));
        let waits = |(id, agent): (&AgentId, &AgentStatus)| {
            agent.outcome.is_none() && (!agent.asked.is_empty() || self.rests(id, agent))
        };
        self.state.question_of_task(name).is_some()
            || task.waits_for_resume()
            || main.is_some_and(waits)
    }
}
