//! The forecast of a resume: what it would do with each task and why, for people.
//!
//! Decides nothing: a forecast of the run machine decides (`run_machine/forecast.rs`), and this
//! module puts it into words. Reads the journal, the spool and stored outputs, and writes nothing.

mod run_forecast;
mod task_forecast;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use serde_json::Map;

use self::run_forecast::forecast_run;
pub use self::task_forecast::{TaskFate, TaskForecast};
use super::commands::{self, Command};
use super::{Options, StartError, accepted, plan_of, recorded_plan};
use crate::config::Config;
use crate::event::RunCreated;
use crate::id::{Name, RunId};
use crate::journal::source::RunSource;
use crate::journal::stamp;
use crate::plan::{Plan, Standing, TaskState};
pub use crate::run_machine::forecast::{self, Forecast, Lookup};
pub use crate::run_machine::reopening::Reopening;
use crate::run_machine::scope::{self, Inputs, Scope};
use crate::run_state::{Retry, RunState, TaskStatus};
use crate::show::names::Names;
use crate::spec::{OnUnknown, TaskSpec};
use crate::store;
use crate::template::Known;
use crate::turn::Program;
use crate::turn::content::Content;
use crate::why::Why;

/// Returns the forecast of each task of a run that resumes with its recorded configuration. `config` is `None`
/// if that cannot be loaded here and now. The tasks of `retry` begin again. Blocks.
///
/// # Errors
/// Returns an error if the journal or the spool cannot be read.
pub fn as_recorded(
    run: &dyn RunSource,
    state: &RunState,
    config: Option<&Config>,
    retry: Option<&Retry>,
) -> Result<Vec<TaskForecast>, StartError> {
    let commands = commands::under_way(run, state, |task| asks(config, task))?;
    let reopening = retry.cloned().map_or(Reopening::AsRecorded, Reopening::Retrying);
    let opened = reopening.state_after(state)?;
    let forecast = match (config, state.created()) {
        (Some(config), Some(created)) => {
            let tasks = created.tasks.iter().map(|task| task.name.to_string()).collect();
            let plan = recorded_plan(config, &Options { tasks, ..Options::default() })?;
            // A run whose outputs cannot be read does not resume; the caller reports that.
            let outputs = super::values::of_ended(run, &opened, plan.tasks(), config.grows()).ok();
            let forecast_run = |outputs| {
                let results = run.results_place();
                forecast_run(results, opened.clone(), plan, config, created, outputs, &commands)
            };
            outputs.map(forecast_run).transpose()?
        }
        (None, _) | (_, None) => None,
    };
    // What holds up a task once a process drives the run again.
    let (now_ms, names) = (stamp::now_ms(), Names::of(&opened));
    let why = Why::of(&opened, true, now_ms);
    let begins: HashSet<&Name> = retry.iter().flat_map(|retry| &retry.tasks).collect();
    let of_task = |(name, before): (&Name, &TaskStatus)| {
        let status = opened.task(name).unwrap_or(before);
        if status.state != before.state {
            let is_reopened = retry.is_some_and(|_| !begins.contains(name));
            return TaskForecast::new(
                name,
                begins_again(&opened, name, status, before, is_reopened),
            );
        }
        let forecast = forecast.as_ref().and_then(|forecast| forecast.state().task(name));
        let forecast = match forecast {
            Some(then) if then.state != status.state => changes(then, commands.get(name)),
            _ => None,
        };
        let or_same = || unchanged(state, name, status, commands.get(name));
        let forecast = TaskForecast::new(name, forecast.unwrap_or_else(or_same));
        forecast.with_wait(&why, &names, now_ms)
    };
    Ok(state.tasks().map(of_task).collect())
}

/// Returns the fate of a task that begins again because it failed before, or that is reopened because it
/// follows from one that does.
fn begins_again(
    opened: &RunState,
    name: &Name,
    status: &TaskStatus,
    before: &TaskStatus,
    is_reopened: bool,
) -> (TaskFate, String) {
    let failure = before.failure.as_ref().map(ToString::to_string);
    let reason = failure.or(before.reason.clone()).unwrap_or_default();
    let planned = opened.created().into_iter().flat_map(|created| created.tasks.iter());
    let written = name.of_instance().unwrap_or(name.as_str());
    let mut before_it =
        planned.filter(|task| task.name.as_str() == written).flat_map(|task| &task.depends_on);
    let open_before = before_it.find(|task| opened.standing(task) == Standing::Open);
    if !status.is_held() {
        if let Some(on) = open_before.filter(|_| is_reopened && status.again) {
            let why = match status.kept {
                Some(_) => format!(
                    "on the end of `{on}`: if what it was made from is unchanged its result is \
                     reused, else it runs"
                ),
                None => format!("on the end of `{on}`: it is decided again"),
            };
            return (TaskFate::Depends, why);
        }
        return match before.state {
            TaskState::Failed | TaskState::Waiting => {
                (TaskFate::Runs, format!("it failed: {reason}"))
            }
            TaskState::Completed | TaskState::Reused if before.instances.is_empty() => {
                (TaskFate::Runs, "it completed, and is named for the retry".to_owned())
            }
            TaskState::Completed | TaskState::Reused => {
                (TaskFate::Runs, "it completed, and some of its instances run again".to_owned())
            }
            state => (TaskFate::Runs, format!("it was {}: {reason}", state.as_str())),
        };
    }
    if open_before.is_some() {
        // What it is made from may change.
        return unchanged(opened, name, status, None);
    }
    (TaskFate::GoesOn, format!("{}; it was cut short: {reason}", at_work(opened, status)))
}

/// Returns the fate of a task whose state a resume changes before any agent works.
fn changes(then: &TaskStatus, command: Option<&Command>) -> Option<(TaskFate, String)> {
    let failure = || then.failure.as_ref().map(ToString::to_string).unwrap_or_default();
    match then.state {
        TaskState::Waiting if then.question.is_some() => {
            Some((TaskFate::Waits, "it asks a person".to_owned()))
        }
        TaskState::Waiting => {
            let (attempt, next) = (then.attempt, then.attempt + 1);
            let why = format!("attempt {next} is next: attempt {attempt} failed: {}", failure());
            Some((TaskFate::Runs, why))
        }
        TaskState::Failed => Some((TaskFate::Fails, failure())),
        TaskState::Cancelled | TaskState::Skipped => {
            let reason = then.reason.clone().unwrap_or_default();
            Some(match &then.because {
                Some(on) if command.is_none() => {
                    (TaskFate::Depends, format!("on `{on}`, which fails"))
                }
                _ => (TaskFate::Stays, reason),
            })
        }
        // It begins or continues, as its state so far tells.
        TaskState::Pending
        | TaskState::Ready
        | TaskState::Running
        | TaskState::Completed
        | TaskState::Reused => None,
    }
}

/// Returns true if a person is asked about a command of the task that was interrupted.
fn asks(config: Option<&Config>, task: &Name) -> bool {
    let declared = task.of_instance().unwrap_or(task.as_str());
    let tasks = config.map(|config| config.tasks.as_slice()).unwrap_or_default();
    let spec = tasks.iter().find(|spec| spec.name.as_str() == declared);
    spec.is_some_and(|spec| spec.on_unknown == OnUnknown::Ask)
}

/// Returns the fate of a task whose state a resume leaves as it is.
fn unchanged(
    state: &RunState,
    name: &Name,
    status: &TaskStatus,
    command: Option<&Command>,
) -> (TaskFate, String) {
    let reason = || status.reason.clone().unwrap_or_default();
    match status.state {
        TaskState::Completed => (TaskFate::Reused, format!("attempt {} completed", status.attempt)),
        TaskState::Reused => (TaskFate::Reused, "its result was reused before".to_owned()),
        TaskState::Failed => {
            let failure = status.failure.as_ref().map(ToString::to_string);
            (TaskFate::Stays, format!("it failed: {}", failure.unwrap_or_default()))
        }
        TaskState::Skipped => (TaskFate::Stays, format!("it was skipped: {}", reason())),
        TaskState::Cancelled => (TaskFate::Stays, format!("it was cancelled: {}", reason())),
        TaskState::Running => match command.map(Command::fate) {
            Some(Ok(why)) => (TaskFate::GoesOn, why.to_owned()),
            Some(Err(failure)) => (TaskFate::Fails, failure.to_string()),
            None => (TaskFate::GoesOn, at_work(state, status)),
        },
        TaskState::Waiting if status.question.is_some() => {
            let message = state.question_of_task(name).map(|question| &*question.asked.message);
            let line = message.and_then(|message| message.lines().next()).unwrap_or_default();
            (TaskFate::Waits, format!("a person is asked: {line}"))
        }
        TaskState::Waiting => (TaskFate::Runs, format!("attempt {} is next", status.attempt + 1)),
        TaskState::Pending | TaskState::Ready if status.is_held() => {
            let planned = state.created().into_iter().flat_map(|created| created.tasks.iter());
            let before =
                planned.filter(|task| task.name == *name).flat_map(|task| &task.depends_on);
            let is_open = |task: &&Name| state.standing(task) == Standing::Open;
            let names: Vec<_> = before.filter(is_open).map(|task| format!("`{task}`")).collect();
            match names.is_empty() {
                true => (TaskFate::Depends, going_on(state, status, "what it is made from")),
                false => {
                    let what = format!("the output of {}", names.join(", "));
                    (TaskFate::Depends, going_on(state, status, &what))
                }
            }
        }
        TaskState::Pending | TaskState::Ready => (TaskFate::Runs, "it has not begun".to_owned()),
    }
}

/// Says what decides whether a half-done task continues.
fn going_on(state: &RunState, status: &TaskStatus, what: &str) -> String {
    format!(
        "on {what}: if that is unchanged it continues ({}), else it begins anew",
        at_work(state, status)
    )
}

/// Says how far the agent of a half-done task has come.
fn at_work(state: &RunState, status: &TaskStatus) -> String {
    let Some(id) = &status.agent else { return "it is running".to_owned() };
    match state.agents().get(id) {
        Some(agent) if agent.outcome.is_some() => format!("agent `{id}` has ended"),
        Some(agent) => format!("agent `{id}` is in turn {}", agent.turn),
        None => format!("agent `{id}` begins"),
    }
}

/// Returns the forecast of each task of a run that resumes with the configuration `now` in place of the
/// recorded one: in the order of its plan, then the removed tasks. Blocks.
///
/// # Errors
/// Returns an error if the plan of `now` has no such tasks, or if a stored output is not what was
/// recorded.
pub fn accepting(
    run: &dyn RunSource,
    state: &RunState,
    before: &Config,
    now: &Config,
) -> Result<Vec<TaskForecast>, StartError> {
    let Some(created) = state.created() else { return Ok(Vec::new()) };
    let plan = changed_plan(created, before, now)?;
    let commands = commands::under_way(run, state, |task| asks(Some(now), task))?;
    let accepted = accept(state, now, &plan)?;
    let results = run.results_place();
    let forecast =
        forecast_run(results.clone(), accepted, plan.clone(), now, created, Map::new(), &commands)?;
    let words = Words { run: created.run, results, state, before, now, forecast };
    let then = words.look_back();
    let in_order = plan.tasks().iter().enumerate().map(|(place, task)| {
        let fate = words.of_task(place, task, commands.get(&task.name), &then);
        let is_moved = fate.0 == TaskFate::Reused && words.is_moved(task);
        TaskForecast { is_moved, ..TaskForecast::new(&task.name, fate) }
    });
    let is_gone = |(name, _): &(&Name, &TaskStatus)| {
        plan.task(*name).is_none() && name.of_instance().is_none()
    };
    let gone = state
        .tasks()
        .filter(is_gone)
        .map(|(name, status)| TaskForecast::removed(state, name, status));
    Ok(in_order.chain(gone).collect())
}

/// Returns the state of the run once it is opened with another configuration.
fn accept(state: &RunState, now: &Config, plan: &Plan) -> Result<RunState, StartError> {
    Ok(Reopening::Accepting(Box::new(accepted(now, plan))).state_after(state)?)
}

/// A forecast, and what is needed to explain it.
struct Words<'a> {
    run: RunId,
    results: PathBuf,
    state: &'a RunState,
    before: &'a Config,
    now: &'a Config,
    forecast: Forecast,
}

impl Words<'_> {
    /// Returns the values that templates had for the tasks that have ended. A task whose output is
    /// lost is left out: that does not prevent the task from running again.
    fn look_back(&self) -> BTreeMap<String, Known> {
        let mut then = BTreeMap::new();
        for task in &self.before.tasks {
            let Some(status) = self.state.task(&task.name).filter(|s| s.state.is_end()) else {
                continue;
            };
            let text = status.output.as_ref().map(|o| store::whole_text(&self.results, o));
            let Ok(text) = text.transpose() else { continue };
            let value = text.and_then(|text| task.output_format().parse(&text).ok());
            let value = scope::value_of(task, Known::of(&value.unwrap_or_default()));
            let partial = self.state.partial(status);
            let value = scope::ended(status, &value, partial, Some(&self.results));
            then.insert(task.name.to_string(), value);
        }
        then
    }

    /// Returns the fate of a task of the new plan, and why.
    fn of_task(
        &self,
        place: usize,
        task: &TaskSpec,
        command: Option<&Command>,
        then: &BTreeMap<String, Known>,
    ) -> (TaskFate, String) {
        let Some(status) = self.forecast.state().task(&task.name) else {
            return (TaskFate::Runs, "it is new".to_owned());
        };
        if let Some(program) = self.forecast.begins.get(&place) {
            return (TaskFate::Runs, self.why_anew(task, program, then));
        }
        match status.state {
            TaskState::Reused => self.kept(task),
            // What has fanned out, or is a sub-graph, completes with its parts.
            TaskState::Completed if self.had_output(task) => self.kept(task),
            TaskState::Running if self.fans_out_again(task) => {
                (TaskFate::Runs, self.what_runs(task))
            }
            TaskState::Running => self.goes_on(status, command),
            TaskState::Pending | TaskState::Ready => self.depends(task),
            TaskState::Skipped if status.because.is_none() => {
                (TaskFate::Stays, status.reason.clone().unwrap_or_default())
            }
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Waiting => {
                let fallback = || (TaskFate::Stays, status.reason.clone().unwrap_or_default());
                changes(status, command).unwrap_or_else(fallback)
            }
        }
    }

    /// Returns true if a fan-out that had ended is open again for some of its instances.
    fn fans_out_again(&self, task: &TaskSpec) -> bool {
        let had_ended = |status: &TaskStatus| status.state.is_end();
        task.fan_out.is_some() && self.state.task(&task.name).is_some_and(had_ended)
    }

    /// Says which instances of a fan-out run.
    fn what_runs(&self, task: &TaskSpec) -> String {
        let tasks = self.forecast.machine.plan().tasks();
        let begins = self.forecast.begins.keys().filter_map(|place| tasks.get(*place));
        let own = |name: &&Name| name.of_instance() == Some(task.name.as_str());
        let mut instances: Vec<_> = begins.map(|instance| &instance.name).filter(own).collect();
        instances.sort();
        match instances.as_slice() {
            [] => "its open instances go on".to_owned(),
            [one] => format!("`{one}` runs, its other instances are reused"),
            [one, more @ ..] => {
                let more = more.len();
                format!("`{one}` and {more} more run, its other instances are reused")
            }
        }
    }

    fn kept(&self, task: &TaskSpec) -> (TaskFate, String) {
        let file = task.output_file.as_ref().filter(|_| self.is_moved(task));
        let moved = file.map(|file| format!("; it is written to {file}")).unwrap_or_default();
        (TaskFate::Reused, format!("nothing that it was made from has changed{moved}"))
    }

    fn had_output(&self, task: &TaskSpec) -> bool {
        self.state.task(&task.name).is_some_and(|status| status.output.is_some())
    }

    /// Returns true if the output of a task may be written to another file than before.
    fn is_moved(&self, task: &TaskSpec) -> bool {
        let is_same = |before: &TaskSpec| before.output_file == task.output_file;
        let before = self.before.tasks.iter().find(|before| before.name == task.name);
        let is_same = before.is_some_and(is_same) && self.before.inputs == self.now.inputs;
        self.had_output(task) && task.output_file.is_some() && !is_same
    }

    fn goes_on(&self, status: &TaskStatus, command: Option<&Command>) -> (TaskFate, String) {
        if let Some(Ok(why)) = command.map(Command::fate) {
            return (TaskFate::GoesOn, why.to_owned());
        }
        let with = match self.before.compaction == self.now.compaction {
            true => "",
            false => ", from here on with the changed [compaction]",
        };
        (TaskFate::GoesOn, at_work(self.state, status) + with)
    }

    /// Says why a task begins anew, once its dependencies are known.
    fn why_anew(
        &self,
        task: &TaskSpec,
        program: &Program,
        then: &BTreeMap<String, Known>,
    ) -> String {
        let Some(status) = self.state.task(&task.name) else { return "it is new".to_owned() };
        match status.state {
            TaskState::Pending | TaskState::Ready => "it has not begun".to_owned(),
            TaskState::Waiting | TaskState::Failed => "it failed".to_owned(),
            TaskState::Skipped => "it was skipped".to_owned(),
            TaskState::Cancelled => "it was cancelled".to_owned(),
            TaskState::Running | TaskState::Completed | TaskState::Reused => {
                self.what_changed(task, &content(self.now, task, program), then)
            }
        }
    }

    /// Returns the fate of a task that still needs the output of another.
    fn depends(&self, task: &TaskSpec) -> (TaskFate, String) {
        let is_open = |name: &&Name| self.forecast.state().standing(name) == Standing::Open;
        let Some(on) = task.depends_on.iter().find(is_open) else {
            return (TaskFate::Runs, "it has not begun".to_owned());
        };
        let what = format!("the output of `{on}`");
        match self.state.task(&task.name) {
            Some(status) if is_half_done(status) => {
                (TaskFate::Depends, going_on(self.state, status, &what))
            }
            Some(status) if status.result().is_some() => {
                let why =
                    format!("on {what}: if that is unchanged its result is reused, else it runs");
                (TaskFate::Depends, why)
            }
            // Each of its instances has a result of its own.
            Some(status) if !status.instances.is_empty() => {
                let why = format!("on {what}: instances that are made from the same are reused");
                (TaskFate::Depends, why)
            }
            Some(_) | None => (TaskFate::Runs, format!("it waits for `{on}`")),
        }
    }

    /// Names the parts in which a task's content differs from the recorded one.
    fn what_changed(
        &self,
        task: &TaskSpec,
        now: &Content<'_>,
        then: &BTreeMap<String, Known>,
    ) -> String {
        let before = self.before.tasks.iter().find(|before| before.name == task.name);
        let Config { name: workflow, inputs, .. } = self.before;
        let inputs = &Inputs::new(inputs.clone());
        let scope = Scope { run: self.run, workflow, inputs, ended: then, item: None };
        let program = before.and_then(|task| scope.program(task).ok());
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
}

/// Returns true if the task has an attempt in progress that may continue.
fn is_half_done(status: &TaskStatus) -> bool {
    status.state == TaskState::Running || status.is_held()
}

fn content<'a>(config: &'a Config, task: &'a TaskSpec, program: &'a Program) -> Content<'a> {
    Content::of(program, task, &config.env, &config)
}

/// Returns the plan of a run whose configuration changes: all tasks if the run had all, else those
/// of its tasks that still exist.
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
