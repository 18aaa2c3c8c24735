//! The task graph: built and checked at once, with the rule of which tasks may start.
//!
//! Pure. Owns the payloads of the `task.*` events. Tasks are known by their place in the plan, so
//! that a decision looks at the neighbours of one task and never at the whole plan.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::output::Output;
use crate::spec::{Join, TaskSpec};

/// The tasks of a run and their dependencies. A plan has no unknown names and no cycles.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    tasks: Vec<TaskSpec>,
    places: HashMap<Name, usize>,
    /// The places of each task's dependencies, in the order of `depends_on`.
    dependencies: Vec<Vec<usize>>,
    /// The places of the tasks that depend on each task, in the order of the plan.
    dependents: Vec<Vec<usize>>,
}

/// Tasks that do not make a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two tasks have one name.
    #[error("task `{0}` is defined twice")]
    Duplicate(Name),
    /// A task waits for one that does not exist.
    #[error("task `{task}` depends on `{dependency}`, which does not exist")]
    UnknownDependency {
        /// The task that waits.
        task: Name,
        /// What it waits for.
        dependency: Name,
    },
    /// Tasks wait for each other; the first is named again at the end.
    #[error("tasks wait for each other: {}", .0.iter().map(Name::as_str).collect::<Vec<_>>().join(" -> "))]
    Cycle(Vec<Name>),
    /// A task was asked for that does not exist.
    #[error("there is no task `{0}`")]
    UnknownTask(String),
}

impl Plan {
    /// Checks the tasks and keeps them in their order.
    ///
    /// # Errors
    /// Every duplicate and unknown name, or else the first cycle.
    pub fn new(tasks: Vec<TaskSpec>) -> Result<Self, Vec<PlanError>> {
        let mut problems = Vec::new();
        let mut places = HashMap::new();
        for (place, task) in tasks.iter().enumerate() {
            if places.insert(task.name.clone(), place).is_some() {
                problems.push(PlanError::Duplicate(task.name.clone()));
            }
        }
        for task in &tasks {
            for dependency in task.depends_on.iter().filter(|name| !places.contains_key(*name)) {
                let (task, dependency) = (task.name.clone(), dependency.clone());
                problems.push(PlanError::UnknownDependency { task, dependency });
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let plan = Self::linked(tasks, places);
        match plan.cycle() {
            Some(cycle) => Err(vec![PlanError::Cycle(cycle)]),
            None => Ok(plan),
        }
    }

    /// Links tasks whose dependencies are all among them.
    fn linked(tasks: Vec<TaskSpec>, places: HashMap<Name, usize>) -> Self {
        let place_of = |name: &Name| places.get(name).copied();
        let of_task = |task: &TaskSpec| task.depends_on.iter().filter_map(place_of).collect();
        let dependencies: Vec<Vec<usize>> = tasks.iter().map(of_task).collect();
        let mut dependents = vec![Vec::new(); tasks.len()];
        for (place, before) in dependencies.iter().enumerate() {
            for dependency in before {
                dependents[*dependency].push(place);
            }
        }
        Self { tasks, places, dependencies, dependents }
    }

    /// The tasks, in the order of the configuration.
    #[must_use]
    pub fn tasks(&self) -> &[TaskSpec] {
        &self.tasks
    }

    /// The task of that name.
    #[must_use]
    pub fn task(&self, name: &Name) -> Option<&TaskSpec> {
        self.place(name).map(|place| &self.tasks[place])
    }

    /// The place of a task in [`tasks`](Self::tasks), from 0.
    #[must_use]
    pub fn place(&self, name: &Name) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The places of the tasks that the task at `place` depends on, in the order of `depends_on`.
    #[must_use]
    pub fn dependencies(&self, place: usize) -> &[usize] {
        &self.dependencies[place]
    }

    /// The places of the tasks that depend on the task at `place`, in the order of the plan.
    #[must_use]
    pub fn dependents(&self, place: usize) -> &[usize] {
        &self.dependents[place]
    }

    /// The plan of the named tasks and all that they need.
    ///
    /// # Errors
    /// When a name is not that of a task.
    pub fn only(&self, targets: &[String]) -> Result<Self, PlanError> {
        let mut wanted = BTreeSet::new();
        let mut open = Vec::new();
        for target in targets {
            let place = self.places.get(target.as_str());
            open.push(*place.ok_or_else(|| PlanError::UnknownTask(target.clone()))?);
        }
        while let Some(place) = open.pop() {
            if wanted.insert(place) {
                open.extend(&self.dependencies[place]);
            }
        }
        let tasks: Vec<_> = wanted.into_iter().map(|place| self.tasks[place].clone()).collect();
        let places = tasks.iter().enumerate().map(|(at, task)| (task.name.clone(), at)).collect();
        Ok(Self::linked(tasks, places))
    }

    /// Some cycle, its first task named again at the end.
    fn cycle(&self) -> Option<Vec<Name>> {
        /// How far the search has come with a task.
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            OnPath,
            Done,
        }
        let mut marks = vec![Mark::New; self.tasks.len()];
        for start in 0..self.tasks.len() {
            // The path as (task, how many of its dependencies were followed): no recursion, so
            // that a chain of any length fits.
            let mut path = vec![(start, 0usize)];
            while let Some((place, followed)) = path.last_mut() {
                if marks[*place] == Mark::Done {
                    path.pop();
                    continue;
                }
                marks[*place] = Mark::OnPath;
                let next = self.dependencies[*place].get(*followed).copied();
                *followed += 1;
                let Some(next) = next else {
                    marks[*place] = Mark::Done;
                    path.pop();
                    continue;
                };
                match marks[next] {
                    Mark::New => path.push((next, 0)),
                    Mark::Done => {}
                    Mark::OnPath => {
                        let from = path.iter().position(|(at, _)| *at == next)?;
                        let cycle = path[from..].iter().map(|(at, _)| *at).chain([next]);
                        return Some(cycle.map(|at| self.tasks[at].name.clone()).collect());
                    }
                }
            }
        }
        None
    }
}

/// The state of a dependency as far as it decides about the tasks that depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has not ended.
    Open,
    /// It completed, or was skipped by its own `when`.
    Done,
    /// It failed or was cancelled.
    Failed,
    /// It was skipped because something before it failed.
    SkippedByFailure,
}

/// The numbers of a task's dependencies by their [`Standing`].
///
/// A dependency that ends changes one number of each of its dependents, so the readiness of a task
/// with thousands of dependencies costs no more than that of a task with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    open: usize,
    done: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    /// Counts a dependency.
    pub fn add(&mut self, standing: Standing) {
        *self.of(standing) += 1;
    }

    /// Counts a dependency under another standing than before.
    pub fn change(&mut self, before: Standing, now: Standing) {
        *self.of(before) -= 1;
        *self.of(now) += 1;
    }

    fn of(&mut self, standing: Standing) -> &mut usize {
        match standing {
            Standing::Open => &mut self.open,
            Standing::Done => &mut self.done,
            Standing::Failed => &mut self.failed,
            Standing::SkippedByFailure => &mut self.skipped,
        }
    }

    /// Decides whether a task with these dependencies may start.
    #[must_use]
    pub fn readiness(&self, join: Join) -> Readiness {
        let (is_bad, needs_success) = match join {
            Join::AllSuccess => (self.failed + self.skipped > 0, false),
            Join::NoneFailed => (self.failed > 0, false),
            Join::AllDone => (false, false),
            Join::AnySuccess => (false, true),
        };
        if is_bad {
            return Readiness::Skip;
        }
        if self.open > 0 {
            return Readiness::Wait;
        }
        // A task without dependencies has none that could have succeeded, and starts.
        if needs_success && self.done == 0 && self.failed + self.skipped > 0 {
            return Readiness::Skip;
        }
        Readiness::Ready
    }
}

impl Join {
    /// Whether a dependency of this standing may be the reason why a task is skipped.
    #[must_use]
    pub fn is_reason_to_skip(self, standing: Standing) -> bool {
        match standing {
            Standing::Open | Standing::Done => false,
            Standing::Failed => true,
            Standing::SkippedByFailure => self != Self::NoneFailed,
        }
    }
}

/// The answer to whether a task may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not yet.
    Wait,
    /// Now.
    Ready,
    /// Never: too many of its dependencies did not succeed.
    Skip,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// It waits for other tasks.
    #[default]
    Pending,
    /// It may start and waits for a slot.
    Ready,
    /// It is at work.
    Running,
    /// It waits for the pause before its next attempt, or for a person.
    Waiting,
    /// It has its output.
    Completed,
    /// It failed for good.
    Failed,
    /// It will not run.
    Skipped,
    /// It was cancelled.
    Cancelled,
    /// Its output was made before, from the same content.
    Reused,
}

impl TaskState {
    /// The state as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
            Self::Reused => "reused",
        }
    }

    /// Whether it is final.
    #[must_use]
    pub fn is_end(self) -> bool {
        match self {
            Self::Pending | Self::Ready | Self::Running | Self::Waiting => false,
            Self::Completed | Self::Failed | Self::Skipped | Self::Cancelled | Self::Reused => true,
        }
    }
}

/// `task.ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReady {}

/// `task.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStarted {
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The agent that does it.
    pub agent: AgentId,
    /// The key of what its result is made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `task.retrying`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRetrying {
    /// The attempt that failed.
    pub attempt: u32,
    /// Why.
    pub failure: Failure,
    /// The pause before the next attempt, in milliseconds.
    pub pause_ms: u64,
}

/// `task.completed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCompleted {
    /// The attempt that did it.
    pub attempt: u32,
    /// What it gave.
    pub output: Output,
}

/// `task.reused`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReused {
    /// The key of what the result was made from, then and now.
    pub key: String,
    /// What it gave.
    pub output: Output,
}

/// `task.failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFailed {
    /// The attempts made.
    pub attempt: u32,
    /// Why.
    pub failure: Failure,
}

/// `task.skipped`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSkipped {
    /// Why, for a person.
    pub reason: String,
    /// The task whose failure skips this one; absent when it skipped itself by its `when`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Name>,
}

/// `task.cancelled`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCancelled {
    /// Why.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::policy::RetryPolicy;
    use crate::spec::{OutputFormat, Work};

    fn task(name: &str, depends_on: &[&str], join: Join) -> TaskSpec {
        let name_of = |text: &str| Name::new(text).expect("a name");
        TaskSpec {
            name: name_of(name),
            work: Work::Command { run: "true".to_owned() },
            depends_on: depends_on.iter().map(|name| name_of(name)).collect(),
            join,
            when: None,
            timeout: None,
            retry: RetryPolicy::never(),
            output: OutputFormat::Text,
            output_file: None,
            env: BTreeMap::new(),
        }
    }

    fn plan(tasks: &[(&str, &[&str])]) -> Result<Plan, Vec<PlanError>> {
        Plan::new(tasks.iter().map(|(n, d)| task(n, d, Join::AllSuccess)).collect())
    }

    #[test]
    fn cycles_unknown_names_and_duplicates_are_found() {
        assert!(plan(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b"])]).is_ok());
        let texts = |result: Result<Plan, Vec<PlanError>>| {
            let problems = result.expect_err("a problem");
            problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(plan(&[("a", &["c"]), ("b", &["a"]), ("c", &["b"])])),
            ["tasks wait for each other: a -> c -> b -> a"]
        );
        assert_eq!(texts(plan(&[("a", &["a"])])), ["tasks wait for each other: a -> a"]);
        assert_eq!(
            texts(plan(&[("a", &["x"]), ("a", &[])])),
            ["task `a` is defined twice", "task `a` depends on `x`, which does not exist"]
        );
    }

    #[test]
    fn a_long_chain_is_no_problem() {
        let names: Vec<String> = (0..20_000).map(|n| format!("t{n}")).collect();
        let tasks = names.iter().enumerate().map(|(at, name)| {
            let before = names.get(at + 1).map(String::as_str);
            task(name, before.as_slice(), Join::AllSuccess)
        });
        assert!(Plan::new(tasks.collect()).is_ok());
    }

    #[test]
    fn a_part_of_the_plan_holds_what_it_needs() {
        let whole = plan(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &[])]).expect("a plan");
        let part = whole.only(&["b".to_owned()]).expect("a part");
        let names: Vec<_> = part.tasks().iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(whole.only(&["x".to_owned()]).is_err());
    }

    #[test]
    fn joins_decide_by_the_table() {
        use Readiness::{Ready, Skip, Wait};
        use Standing::{Done, Failed, Open, SkippedByFailure as Skipped};
        let table = [
            (Join::AllSuccess, [Done, Done], Ready),
            (Join::AllSuccess, [Done, Open], Wait),
            (Join::AllSuccess, [Failed, Open], Skip),
            (Join::AllSuccess, [Done, Skipped], Skip),
            (Join::AllDone, [Failed, Skipped], Ready),
            (Join::AllDone, [Failed, Open], Wait),
            (Join::NoneFailed, [Done, Skipped], Ready),
            (Join::NoneFailed, [Failed, Open], Skip),
            (Join::AnySuccess, [Done, Failed], Ready),
            (Join::AnySuccess, [Done, Open], Wait),
            (Join::AnySuccess, [Failed, Skipped], Skip),
        ];
        for (join, standings, readiness) in table {
            let mut tally = Tally::default();
            standings.iter().for_each(|standing| tally.add(*standing));
            assert_eq!(tally.readiness(join), readiness, "{join:?} {standings:?}");
            // The same numbers, come to one dependency after the other.
            let mut tally = Tally::default();
            standings.iter().for_each(|_| tally.add(Open));
            standings.iter().for_each(|standing| tally.change(Open, *standing));
            assert_eq!(tally.readiness(join), readiness, "{join:?} {standings:?}");
            let reason = standings.iter().any(|standing| join.is_reason_to_skip(*standing));
            assert!(readiness != Skip || reason, "a skipped task names a reason");
        }
        for join in [Join::AllSuccess, Join::AllDone, Join::NoneFailed, Join::AnySuccess] {
            assert_eq!(Tally::default().readiness(join), Ready, "{join:?} of nothing");
        }
    }

    #[test]
    fn tasks_know_their_neighbours() {
        let plan = plan(&[("a", &[]), ("b", &["a"]), ("c", &["b", "a"])]).expect("a plan");
        assert_eq!(plan.dependencies(2), [1, 0]);
        assert_eq!(plan.dependents(0), [1, 2]);
        let part = plan.only(&["b".to_owned()]).expect("a part");
        assert_eq!((part.dependents(0), part.dependents(1)), (&[1][..], &[][..]));
    }
}
