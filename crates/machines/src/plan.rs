//! The task graph: checks the tasks of a run once, and decides which of them may start.
//!
//! Pure. Owns the payloads of the `task.*` events and of `plan.extended`. A task is named by its place in the plan, so
//! that a decision reads the neighbours of one task and never the whole plan.

mod records;

use std::collections::BTreeSet;

use ahash::{HashMap, HashMapExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::records::{
    Consequence, Instances, Mark, PlanExtended, PlannedTask, TaskCancelled, TaskCompleted,
    TaskFailed, TaskReady, TaskRetrying, TaskReused, TaskSkipped, TaskStarted,
};
use crate::id::Name;
use crate::spec::{Join, TaskSpec};

/// The tasks of a run and their dependencies. All names in it exist, and it has no cycles.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    tasks: Vec<TaskSpec>,
    places: HashMap<Name, usize>,
    /// The places of each task's dependencies, in the order of `depends_on`.
    dependencies: Vec<Vec<usize>>,
    /// The places of the tasks that depend on each task, in the order of the plan.
    dependents: Vec<Vec<usize>>,
    /// The fan-out of each instance with its number, by its place.
    members: HashMap<usize, Member>,
    /// The places of the instances of each task that has fanned out, by its place.
    instances: HashMap<usize, std::ops::Range<usize>>,
}

/// The fan-out to which an instance belongs, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The place of the task that fans out.
    pub of: usize,
    /// The number of the instance, from 0.
    pub number: usize,
}

/// A reason why tasks do not make a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two tasks have the same name.
    #[error("task `{0}` is defined twice")]
    Duplicate(Name),
    /// A task depends on a task that does not exist.
    #[error("task `{task}` depends on `{dependency}`, which does not exist")]
    UnknownDependency {
        /// The dependant.
        task: Name,
        /// The dependency that does not exist.
        dependency: Name,
    },
    /// Tasks wait for each other; the list ends with its first task again.
    #[error("dependency cycle: {}", .0.iter().map(Name::as_str).collect::<Vec<_>>().join(" -> "))]
    Cycle(Vec<Name>),
    /// The caller named a task that does not exist.
    #[error("there is no task `{0}`")]
    UnknownTask(String),
}

impl Plan {
    /// Checks the tasks and keeps them in their order.
    ///
    /// # Errors
    /// Returns every duplicate and unknown name, or, if there is none, the first cycle.
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

    /// Links tasks of which all dependencies are in `places`.
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
        let (members, instances) = (HashMap::new(), HashMap::new());
        Self { tasks, places, dependencies, dependents, members, instances }
    }

    /// Checks that tasks can be added to the plan: each depends on tasks of the plan or on tasks that
    /// are added with it. Returns the places of the dependencies of each.
    ///
    /// # Errors
    /// Returns an error if a task exists already, if a dependency does not exist or is an instance, or
    /// if the new tasks wait for each other.
    pub fn extension(&self, tasks: &[TaskSpec]) -> Result<Vec<Vec<usize>>, PlanError> {
        let mut new = HashMap::new();
        for (place, task) in (self.tasks.len()..).zip(tasks) {
            let is_twice = new.insert(&task.name, place).is_some();
            if is_twice || self.places.contains_key(&task.name) {
                return Err(PlanError::Duplicate(task.name.clone()));
            }
        }
        let before = |task: &TaskSpec, name: &Name| {
            let known = self.place(name).filter(|place| self.member(*place).is_none());
            known.or_else(|| new.get(name).copied()).ok_or_else(|| PlanError::UnknownDependency {
                task: task.name.clone(),
                dependency: name.clone(),
            })
        };
        let dependencies = tasks
            .iter()
            .map(|task| task.depends_on.iter().map(|name| before(task, name)).collect())
            .collect::<Result<_, _>>()?;
        // No task of the plan depends on a new one, so only new ones can close a cycle.
        let own = tasks.iter().map(|task| {
            let among = task.depends_on.iter().filter(|name| new.contains_key(name)).cloned();
            TaskSpec { depends_on: among.collect(), ..task.clone() }
        });
        let first = Self::new(own.collect()).err().and_then(|found| found.into_iter().next());
        first.map_or(Ok(dependencies), Err)
    }

    /// Adds tasks to the plan and returns their places.
    ///
    /// # Errors
    /// Returns an error, and adds nothing, if [`extension`](Self::extension) does.
    pub fn extend(&mut self, tasks: Vec<TaskSpec>) -> Result<std::ops::Range<usize>, PlanError> {
        let dependencies = self.extension(&tasks)?;
        let first = self.tasks.len();
        for (place, task) in (first..).zip(&tasks) {
            self.places.insert(task.name.clone(), place);
        }
        self.tasks.extend(tasks);
        self.dependents.resize(self.tasks.len(), Vec::new());
        for (place, before) in (first..).zip(&dependencies) {
            before.iter().for_each(|dependency| self.dependents[*dependency].push(place));
        }
        self.dependencies.extend(dependencies);
        Ok(first..self.tasks.len())
    }

    /// Adds the instances of the task at `place`, unless it has some. They have the dependencies of
    /// the task only for their templates: the plan does not link them.
    pub fn expand(&mut self, place: usize, count: usize) -> std::ops::Range<usize> {
        if let Some(known) = self.instances.get(&place) {
            return known.clone();
        }
        let first = self.tasks.len();
        for number in 0..count {
            let task = &self.tasks[place];
            let name = task.name.instance(number);
            let instance = TaskSpec { name, fan_out: None, when: None, ..task.clone() };
            self.places.insert(instance.name.clone(), self.tasks.len());
            self.tasks.push(instance);
            self.dependencies.push(Vec::new());
            self.dependents.push(Vec::new());
            self.members.insert(first + number, Member { of: place, number });
        }
        self.instances.insert(place, first..first + count);
        first..first + count
    }

    /// Removes all limits on how many tasks may be at work at the same time.
    pub(crate) fn unlock(&mut self) {
        for task in &mut self.tasks {
            task.locks.clear();
            if let Some(fan_out) = &mut task.fan_out {
                fan_out.max_concurrency = None;
            }
        }
    }

    /// Returns the fan-out to which the task at `place` belongs, if it is an instance.
    #[must_use]
    pub fn member(&self, place: usize) -> Option<Member> {
        self.members.get(&place).copied()
    }

    /// Returns the places of the instances of the task at `place`; none if it has not fanned out.
    #[must_use]
    pub fn instances(&self, place: usize) -> std::ops::Range<usize> {
        self.instances.get(&place).cloned().unwrap_or(0..0)
    }

    /// Returns the tasks, in the order of the configuration, and after them the instances of fan-outs
    /// and the tasks that were added, as they came.
    #[must_use]
    pub fn tasks(&self) -> &[TaskSpec] {
        &self.tasks
    }

    /// Returns the task with the given name.
    #[must_use]
    pub fn task(&self, name: &(impl AsRef<str> + ?Sized)) -> Option<&TaskSpec> {
        self.place(name).map(|place| &self.tasks[place])
    }

    /// Returns the place of a task in [`tasks`](Self::tasks), from 0.
    #[must_use]
    pub fn place(&self, name: &(impl AsRef<str> + ?Sized)) -> Option<usize> {
        self.places.get(name.as_ref()).copied()
    }

    /// Returns the places of the tasks that the task at `place` depends on, in the order of
    /// `depends_on`.
    #[must_use]
    pub fn dependencies(&self, place: usize) -> &[usize] {
        &self.dependencies[place]
    }

    /// Returns the places of the tasks that depend on the task at `place`, in the order of the
    /// plan.
    #[must_use]
    pub fn dependents(&self, place: usize) -> &[usize] {
        &self.dependents[place]
    }

    /// Returns true if a later task names the file that holds the output of the task at `place`.
    #[must_use]
    pub fn is_read_as_file(&self, place: usize) -> bool {
        self.dependents(place).iter().any(|later| self.tasks()[*later].names_output_paths)
    }

    /// Returns the plan of the named tasks and of all tasks that they depend on, directly or not.
    ///
    /// # Errors
    /// Returns an error if a name is not that of a task.
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
        // `wanted` is sorted by place, so the tasks keep their order.
        let tasks: Vec<_> = wanted.into_iter().map(|place| self.tasks[place].clone()).collect();
        let places = tasks.iter().enumerate().map(|(at, task)| (task.name.clone(), at)).collect();
        Ok(Self::linked(tasks, places))
    }

    /// Returns a cycle, if there is one; the list ends with its first task again.
    fn cycle(&self) -> Option<Vec<Name>> {
        /// The progress of the search with one task.
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            OnPath,
            Done,
        }
        let mut marks = vec![Mark::New; self.tasks.len()];
        for start in 0..self.tasks.len() {
            // The path as pairs of a task and the number of its dependencies that were followed. A
            // recursive search could exhaust the stack on a long chain.
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

/// The state of a dependency, as far as it decides about the tasks that depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The dependency has not ended.
    Open,
    /// The dependency completed.
    Done,
    /// The dependency counts as done and has no output: it was skipped by its own `when`, or its
    /// failure does not concern the tasks that depend on it.
    Passed,
    /// The dependency failed or was cancelled.
    Failed,
    /// The dependency was skipped because a task before it failed.
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
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    /// Counts a dependency with this standing.
    pub fn add(&mut self, standing: Standing) {
        *self.of(standing) += 1;
    }

    /// Moves a dependency from the count of its standing `before` to that of `now`.
    pub fn change(&mut self, before: Standing, now: Standing) {
        *self.of(before) -= 1;
        *self.of(now) += 1;
    }

    fn of(&mut self, standing: Standing) -> &mut usize {
        match standing {
            Standing::Open => &mut self.open,
            Standing::Done => &mut self.done,
            Standing::Passed => &mut self.passed,
            Standing::Failed => &mut self.failed,
            Standing::SkippedByFailure => &mut self.skipped,
        }
    }

    /// Returns the number of dependencies that have not ended.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Returns the number of dependencies that completed.
    #[must_use]
    pub fn done(&self) -> usize {
        self.done
    }

    /// Decides whether a task with these dependencies may start under the rule `join`.
    #[must_use]
    pub fn readiness(&self, join: Join) -> Readiness {
        // A failed dependency decides at once: the others need not end first.
        let is_bad = match join {
            Join::AllSuccess => self.failed + self.skipped > 0,
            Join::NoneFailed => self.failed > 0,
            Join::AllDone | Join::AnySuccess | Join::AtLeast(_) => false,
        };
        if is_bad {
            return Readiness::Skip;
        }
        let all = self.open + self.done + self.passed + self.failed + self.skipped;
        match join.wanted().filter(|_| all > 0) {
            Some(wanted) if self.done >= wanted => Readiness::Ready,
            Some(wanted) if self.done + self.open < wanted => Readiness::Skip,
            Some(_) => Readiness::Wait,
            // A task without dependencies has none that could complete, so it starts.
            None if self.open > 0 => Readiness::Wait,
            None => Readiness::Ready,
        }
    }
}

impl Standing {
    /// Returns true if a dependency of this standing can be the reason why a task with this rule is skipped.
    #[must_use]
    pub fn is_reason_to_skip(self, join: Join) -> bool {
        match self {
            Self::Open | Self::Done | Self::Passed => false,
            Self::Failed => true,
            Self::SkippedByFailure => join != Join::NoneFailed,
        }
    }
}

/// The answer to whether a task may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The task must wait for dependencies that have not ended.
    Wait,
    /// The task may start now.
    Ready,
    /// The task will never start: too many of its dependencies did not succeed.
    Skip,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// The task waits for other tasks.
    #[default]
    Pending,
    /// The task may start and waits for a slot.
    Ready,
    /// The task is at work.
    Running,
    /// The last attempt failed, and the pause before the next one is running.
    Waiting,
    /// The task completed and has an output.
    Completed,
    /// The task failed, and no attempt is left.
    Failed,
    /// The task will not run.
    Skipped,
    /// The task was cancelled.
    Cancelled,
    /// The task did not run: it has the output that an earlier run made from the same content.
    Reused,
}

impl TaskState {
    /// Returns the state as it is written in records.
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

    /// Returns the state as later tasks read it. A reused result counts as one that was made: a
    /// condition on it must hold, and a prompt that names the state must stay the same.
    #[must_use]
    pub fn as_read(self) -> &'static str {
        match self {
            Self::Reused => Self::Completed.as_str(),
            state => state.as_str(),
        }
    }

    /// Returns true if the state is final.
    #[must_use]
    pub fn is_end(self) -> bool {
        match self {
            Self::Pending | Self::Ready | Self::Running | Self::Waiting => false,
            Self::Completed | Self::Failed | Self::Skipped | Self::Cancelled | Self::Reused => true,
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    use crate::spec::Work;

    fn task(name: &str, depends_on: &[&str], join: Join) -> TaskSpec {
        let name_of = |text: &str| Name::new(text).expect("a name");
        let depends_on = depends_on.iter().map(|name| name_of(name)).collect();
        let work = Work::Command { run: "true".to_owned() };
        TaskSpec { depends_on, join, ..TaskSpec::new(name_of(name), work) }
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
            ["dependency cycle: a -> c -> b -> a"]
        );
        assert_eq!(texts(plan(&[("a", &["a"])])), ["dependency cycle: a -> a"]);
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
        use Standing::{Done, Failed, Open, Passed, SkippedByFailure as Skipped};
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
            (Join::AllSuccess, [Done, Passed], Ready),
            // The first success is enough, and one that was skipped is none.
            (Join::AnySuccess, [Done, Open], Ready),
            (Join::AnySuccess, [Passed, Open], Wait),
            (Join::AnySuccess, [Failed, Skipped], Skip),
            (Join::AtLeast(0), [Open, Open], Ready),
            (Join::AtLeast(2), [Done, Open], Wait),
            (Join::AtLeast(2), [Done, Done], Ready),
            (Join::AtLeast(2), [Failed, Open], Skip),
            (Join::AtLeast(3), [Failed, Open], Skip),
        ];
        for (join, standings, readiness) in table {
            let mut tally = Tally::default();
            standings.iter().for_each(|standing| tally.add(*standing));
            assert_eq!(tally.readiness(join), readiness, "{join:?} {standings:?}");
            // The same numbers, reached by one dependency after the other.
            let mut tally = Tally::default();
            standings.iter().for_each(|_| tally.add(Open));
            standings.iter().for_each(|standing| tally.change(Open, *standing));
            assert_eq!(tally.readiness(join), readiness, "{join:?} {standings:?}");
            let reason = standings.iter().any(|standing| standing.is_reason_to_skip(join));
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
