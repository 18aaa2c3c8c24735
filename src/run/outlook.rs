//! What becomes of each task of a run that goes on, and why: for people, and to accept changes.
//!
//! Decides as the supervisor will, as far as that can be known before anything is done. Reads
//! stored outputs and nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use super::commands::{self, Command};
use super::{Options, StartError, plan_of};
use crate::config::Config;
use crate::event::RunCreated;
use crate::id::{Name, RunId};
use crate::journal::file::RunDir;
use crate::journal::{JournalError, results};
use crate::output::Output;
use crate::plan::{Plan, Standing, TaskState};
use crate::run_machine::scope::{self, Scope};
use crate::run_state::{RunState, TaskStatus};
use crate::spec::TaskSpec;
use crate::template;
use crate::turn::Program;
use crate::turn::content::Content;

/// What becomes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Its result stands, and nothing is paid for it.
    Reused,
    /// It goes on where its agents were stopped.
    GoesOn,
    /// It is run, from its beginning.
    Runs,
    /// What another task gives decides it.
    Depends,
    /// It fails, for what it did cannot be told or done again.
    Fails,
    /// It stays as it ended.
    Stays,
    /// It is no task of the run any more.
    Removed,
}

impl Verdict {
    /// The verdict in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::GoesOn => "goes on",
            Self::Runs => "runs",
            Self::Depends => "depends",
            Self::Fails => "fails",
            Self::Stays => "stays",
            Self::Removed => "removed",
        }
    }
}

/// What becomes of one task, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prospect {
    /// The task.
    pub task: Name,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
}

/// The prospects of a run that goes on with its recorded configuration: `None` where that cannot be
/// had here and now. Blocks.
///
/// # Errors
/// When the journal or the spool cannot be read.
pub fn as_recorded(
    dir: &RunDir,
    state: &RunState,
    config: Option<&Config>,
) -> Result<Vec<Prospect>, JournalError> {
    let commands = commands::under_way(dir, state)?;
    let specs: BTreeMap<_, _> =
        config.iter().flat_map(|config| &config.tasks).map(|task| (&task.name, task)).collect();
    let half_run: BTreeMap<_, _> = commands
        .iter()
        .filter_map(|(name, command)| {
            let status = state.task(name).filter(|task| task.state == TaskState::Running)?;
            Some((name, half_run(specs.get(name)?, status, command)))
        })
        .collect();
    let fails =
        |on: &&Name| half_run.get(on).is_some_and(|(verdict, _)| *verdict == Verdict::Fails);
    let prospect = |(name, status): (&Name, &TaskStatus)| {
        let open = specs.get(name).filter(|_| status.state == TaskState::Pending);
        let (verdict, why) =
            match (half_run.get(name), open.and_then(|s| s.depends_on.iter().find(fails))) {
                (Some(known), _) => known.clone(),
                (None, Some(on)) => (Verdict::Depends, format!("on `{on}`, which fails")),
                (None, None) => unchanged(state, name, status),
            };
        Prospect { task: name.clone(), verdict, why }
    };
    Ok(state.tasks().map(prospect).collect())
}

/// What becomes of a task whose command was under way.
fn half_run(spec: &TaskSpec, status: &TaskStatus, command: &Command) -> (Verdict, String) {
    let failure = match command.fate() {
        Ok(told) => return (Verdict::GoesOn, told.to_owned()),
        Err(failure) => failure,
    };
    let (attempt, made) = (status.attempt, status.attempt.saturating_sub(status.earlier));
    match spec.retry.pause(made, failure.kind, 0.0) {
        Some(_) => {
            let next = attempt + 1;
            (Verdict::Runs, format!("attempt {next} is next: attempt {attempt} failed: {failure}"))
        }
        None => (Verdict::Fails, failure.to_string()),
    }
}

fn unchanged(state: &RunState, name: &Name, status: &TaskStatus) -> (Verdict, String) {
    let reason = || status.reason.clone().unwrap_or_default();
    match status.state {
        TaskState::Completed => (Verdict::Reused, format!("attempt {} completed", status.attempt)),
        TaskState::Reused => (Verdict::Reused, "its result was reused before".to_owned()),
        TaskState::Failed => {
            let failure = status.failure.as_ref().map(ToString::to_string);
            (Verdict::Stays, format!("it failed: {}", failure.unwrap_or_default()))
        }
        TaskState::Skipped => (Verdict::Stays, format!("it was skipped: {}", reason())),
        TaskState::Cancelled => (Verdict::Stays, format!("it was cancelled: {}", reason())),
        TaskState::Running => (Verdict::GoesOn, at_work(state, status)),
        TaskState::Waiting => (Verdict::Runs, format!("attempt {} is next", status.attempt + 1)),
        TaskState::Pending | TaskState::Ready if status.is_held() => {
            let planned = state.created().into_iter().flat_map(|created| &created.tasks);
            let before =
                planned.filter(|task| task.name == *name).flat_map(|task| &task.depends_on);
            let is_open = |task: &&Name| state.standing(task) == Standing::Open;
            let names: Vec<_> = before.filter(is_open).map(|task| format!("`{task}`")).collect();
            match names.is_empty() {
                true => (Verdict::Depends, going_on(state, status, "what it is made from")),
                false => {
                    let what = format!("what {} gives", names.join(", "));
                    (Verdict::Depends, going_on(state, status, &what))
                }
            }
        }
        TaskState::Pending | TaskState::Ready => (Verdict::Runs, "it has not begun".to_owned()),
    }
}

/// What decides whether a task that is half done goes on.
fn going_on(state: &RunState, status: &TaskStatus, what: &str) -> String {
    format!("on {what}: if that is as before it goes on ({}), else anew", at_work(state, status))
}

/// What becomes of a task that the configuration does not have any more.
fn removed(state: &RunState, name: &Name, status: &TaskStatus) -> Prospect {
    let open = state.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
    let open: Vec<_> = open.filter(|(_, agent)| agent.task == *name).map(|(id, _)| id).collect();
    let state = status.state.as_str();
    let becomes = match (open.as_slice(), status.state.is_end()) {
        ([], true) => format!("that it was {state} stays on record"),
        ([], false) => "it is dropped".to_owned(),
        ([one], _) => format!("agent `{one}` is cancelled"),
        ([one, _], _) => format!("agent `{one}` is cancelled with 1 child"),
        ([one, more @ ..], _) => {
            format!("agent `{one}` is cancelled with {} children", more.len())
        }
    };
    let why = format!("the file has it no more: {becomes}");
    Prospect { task: name.clone(), verdict: Verdict::Removed, why }
}

fn at_work(state: &RunState, status: &TaskStatus) -> String {
    let Some(id) = &status.agent else { return "it is at work".to_owned() };
    match state.agents().get(id) {
        Some(agent) if agent.outcome.is_some() => format!("agent `{id}` has ended"),
        Some(agent) => format!("agent `{id}` is in turn {}", agent.turn),
        None => format!("agent `{id}` begins"),
    }
}

/// The prospects of a run that goes on with the configuration `now` in place of the recorded one, in
/// the order of its plan.
///
/// # Errors
/// When the plan of `now` has no such tasks, or a stored output is not what was recorded.
pub fn accepting(
    dir: &RunDir,
    state: &RunState,
    before: &Config,
    now: &Config,
) -> Result<Vec<Prospect>, StartError> {
    let Some(created) = state.created() else { return Ok(Vec::new()) };
    let plan = changed_plan(created, before, now)?;
    let (run, results) = (created.run, dir.results());
    let mut judge = Judge {
        run,
        results,
        state,
        before,
        now,
        then: Map::new(),
        ended: Map::new(),
        kept: results_of(state),
        commands: commands::under_way(dir, state)?,
    };
    judge.look_back();
    let mut decided: BTreeMap<Name, Decision> = BTreeMap::new();
    // Each pass decides at least one task, for a plan has no cycle.
    while decided.len() < plan.tasks().len() {
        let before = decided.len();
        for task in plan.tasks() {
            let is_open = |name: &Name| !decided.contains_key(name);
            if is_open(&task.name) && !task.depends_on.iter().any(is_open) {
                let decision = judge.decide(task, &decided)?;
                decided.insert(task.name.clone(), decision);
            }
        }
        if decided.len() == before {
            break;
        }
    }
    let in_order = plan.tasks().iter().filter_map(|task| decided.remove(&task.name));
    let is_gone = |(name, _): &(&Name, &TaskStatus)| plan.task(name).is_none();
    let gone = state.tasks().filter(is_gone).map(|(name, status)| removed(state, name, status));
    Ok(in_order.map(|decision| decision.prospect).chain(gone).collect())
}

/// The results so far, by the key of what they were made from.
fn results_of(state: &RunState) -> BTreeMap<String, Output> {
    let results = state.tasks().filter_map(|(_, task)| task.result());
    results.map(|(key, output)| (key.to_owned(), output.clone())).collect()
}

/// What was decided of a task, and whether what templates see of it is known.
struct Decision {
    prospect: Prospect,
    is_known: bool,
}

struct Judge<'a> {
    run: RunId,
    results: PathBuf,
    state: &'a RunState,
    before: &'a Config,
    now: &'a Config,
    /// What templates saw of the tasks.
    then: Map<String, Value>,
    /// What they will see, as far as it is known.
    ended: Map<String, Value>,
    kept: BTreeMap<String, Output>,
    /// The commands that were under way.
    commands: BTreeMap<Name, Command>,
}

impl Judge<'_> {
    /// Notes what templates saw of the tasks that ended: nothing of one whose output is lost, for
    /// that stands in nobody's way who makes it again.
    fn look_back(&mut self) {
        for task in &self.before.tasks {
            let Some(status) = self.state.task(&task.name).filter(|s| s.state.is_end()) else {
                continue;
            };
            let Ok(value) = self.value(task, status.output.as_ref()) else { continue };
            let seen = scope::ended(status, value.unwrap_or_default());
            self.then.insert(task.name.to_string(), seen);
        }
    }

    fn decide(
        &mut self,
        task: &TaskSpec,
        decided: &BTreeMap<Name, Decision>,
    ) -> Result<Decision, JournalError> {
        let (verdict, why, value) = self.judge(task, decided)?;
        let is_known = value.is_some();
        if let Some(value) = value {
            self.ended.insert(task.name.to_string(), value);
        }
        let prospect = Prospect { task: task.name.clone(), verdict, why };
        Ok(Decision { prospect, is_known })
    }

    /// The verdict, why, and what templates will see of the task if that is known.
    fn judge(
        &self,
        task: &TaskSpec,
        decided: &BTreeMap<Name, Decision>,
    ) -> Result<(Verdict, String, Option<Value>), JournalError> {
        let is_open =
            |name: &&Name| decided.get(*name).is_none_or(|dependency| !dependency.is_known);
        if let Some(dependency) = task.depends_on.iter().find(is_open) {
            let (verdict, why) = self.depends(task, dependency);
            return Ok((verdict, why, None));
        }
        let scope = self.scope(self.now, &self.ended);
        if let Some(when) = &task.when
            && let Ok(false) = template::is_true(when, &scope.values(task))
        {
            let status = TaskStatus { state: TaskState::Skipped, ..TaskStatus::default() };
            let seen = scope::ended(&status, Value::Null);
            return Ok((Verdict::Stays, format!("`when` is false: {when}"), Some(seen)));
        }
        let program = match scope.program(task) {
            Ok(program) => program,
            Err((place, error)) => {
                return Ok((Verdict::Runs, format!("`{place}`: {}", error.message), None));
            }
        };
        let content = content(self.now, task, &program);
        let key = content.key();
        let kept = self.kept.get(&key).or_else(|| self.state.earlier_result(&key));
        if let Some(value) = self.value(task, kept)? {
            let status = TaskStatus { state: TaskState::Reused, ..TaskStatus::default() };
            let why = "nothing that it was made from has changed".to_owned();
            return Ok((Verdict::Reused, why, Some(scope::ended(&status, value))));
        }
        let Some(status) = self.state.task(&task.name) else {
            return Ok((Verdict::Runs, "it is new".to_owned(), None));
        };
        if is_half_done(status) && status.key.as_ref() == Some(&key) {
            if let Some(command) = self.commands.get(&task.name) {
                let (verdict, why) = half_run(task, status, command);
                return Ok((verdict, why, None));
            }
            let with = match self.before.compaction == self.now.compaction {
                true => "",
                false => ", from here on with the changed [compaction]",
            };
            return Ok((Verdict::GoesOn, at_work(self.state, status) + with, None));
        }
        let why = match status.state {
            TaskState::Pending | TaskState::Ready => "it has not begun".to_owned(),
            TaskState::Waiting | TaskState::Failed => "it failed".to_owned(),
            TaskState::Skipped => "it was skipped".to_owned(),
            TaskState::Cancelled => "it was cancelled".to_owned(),
            TaskState::Running | TaskState::Completed | TaskState::Reused => {
                self.what_changed(task, &content)
            }
        };
        Ok((Verdict::Runs, why, None))
    }

    /// What is known of a task before it is known what another one gives.
    fn depends(&self, task: &TaskSpec, on: &Name) -> (Verdict, String) {
        let what = format!("what `{on}` gives");
        match self.state.task(&task.name) {
            Some(status) if is_half_done(status) => {
                (Verdict::Depends, going_on(self.state, status, &what))
            }
            Some(status) if status.result().is_some() => {
                let why =
                    format!("on {what}: if that is as before its result is reused, else it runs");
                (Verdict::Depends, why)
            }
            Some(_) | None => (Verdict::Runs, format!("`{on}` comes first")),
        }
    }

    /// In what the task's content differs from the recorded one.
    fn what_changed(&self, task: &TaskSpec, now: &Content<'_>) -> String {
        let before = self.before.tasks.iter().find(|before| before.name == task.name);
        let program =
            before.and_then(|task| self.scope(self.before, &self.then).program(task).ok());
        let differences = match (before, &program) {
            (Some(task), Some(program)) => content(self.before, task, program).differences(now),
            _ => Vec::new(),
        };
        let part = |path: String| match path.strip_prefix("program.") {
            // `program.model.prompt` is the prompt.
            Some(rest) => rest.split_once('.').map_or(rest, |(_, part)| part).to_owned(),
            None => path,
        };
        let parts: Vec<_> = differences.into_iter().map(part).collect();
        match parts.is_empty() {
            true => "what it is made from has changed".to_owned(),
            false => format!("changed: {}", parts.join(", ")),
        }
    }

    fn scope<'a>(&self, config: &'a Config, ended: &'a Map<String, Value>) -> Scope<'a> {
        Scope { run: self.run, workflow: &config.name, inputs: &config.inputs, ended }
    }

    /// What templates see of an output; nothing when it does not have the form that is wanted.
    fn value(
        &self,
        task: &TaskSpec,
        output: Option<&Output>,
    ) -> Result<Option<Value>, JournalError> {
        let Some(output) = output else { return Ok(None) };
        let text = results::whole_text(&self.results, output)?;
        Ok(task.output.parse(&text).ok())
    }
}

/// Whether an attempt is under way that may go on.
fn is_half_done(status: &TaskStatus) -> bool {
    status.state == TaskState::Running || status.is_held()
}

fn content<'a>(config: &'a Config, task: &TaskSpec, program: &'a Program) -> Content<'a> {
    let (agent, model) = (|n: &Name| config.agents.get(n), |n: &Name| config.models.get(n));
    Content::of(program, task.output, &config.env, agent, model)
}

/// The plan of a run whose configuration changes: all tasks if it had all, else those of its own
/// that are left.
pub(super) fn changed_plan(
    created: &RunCreated,
    before: &Config,
    now: &Config,
) -> Result<Plan, StartError> {
    let mut tasks: Vec<_> = created.tasks.iter().map(|task| task.name.to_string()).collect();
    if tasks.len() == before.tasks.len() {
        tasks.clear();
    } else {
        tasks.retain(|task| now.tasks.iter().any(|left| left.name.as_str() == task));
    }
    plan_of(now, &Options { tasks, ..Options::default() })
}
