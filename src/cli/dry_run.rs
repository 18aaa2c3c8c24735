//! `run --dry-run`: prints what a run would do, in which order, and what could stop it.
//!
//! Starts no run, calls no model and writes nothing: it decides from the configuration alone.

use std::collections::BTreeMap;

use super::{chosen, complain, drive, mistakes, say, trust};
use crate::config::{self, Config, PriceSource, ProviderKind, Sources};
use crate::duration;
use crate::exit::Exit;
use crate::id::Name;
use crate::plan::Plan;
use crate::printable;
use crate::show::log_line::cut;
use crate::spec::sandbox::SandboxMode;
use crate::spec::{AgentSpec, Join, OnTimeout, TaskSpec, Work};

/// The most characters of a command or a condition that are shown: a line of most terminals has room for them.
const SHOWN: usize = 90;

/// The width of the words before a row of what binds the run.
const WORDS: usize = 11;

/// Tools that change files or run commands.
const CHANGING: [&str; 3] = ["bash", "edit_file", "write_file"];

/// Prints what the run would do. The exit code is the one of `check` for the same file.
pub(super) fn run(sources: &Sources, tasks: &[String]) -> Exit {
    let read = |outside| config::load(&Sources { outside, ..sources.clone() });
    let config = match mistakes::shown(trust::look(read), sources) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    if let Err(exit) = chosen::known_tasks(&config, tasks) {
        return exit;
    }
    let Some(plan) = plan(&config, tasks) else { return Exit::Usage };
    drive::note_scripts(&config);
    chosen::note_facts_of_file(&config, sources.model.as_deref());
    say(&text(&config, &plan))
}

/// Returns the tasks that would run: the named ones, or those of `entry`, or all, each with what it needs.
pub(super) fn plan(config: &Config, tasks: &[String]) -> Option<Plan> {
    let plan = match Plan::new(config.tasks.clone()) {
        Ok(plan) => plan,
        Err(problems) => {
            problems.iter().for_each(|problem| complain(&format!("error: {problem}")));
            return None;
        }
    };
    let mut targets = tasks.to_vec();
    if targets.is_empty() {
        targets = config.entry.iter().map(ToString::to_string).collect();
    }
    match targets.is_empty() {
        true => Some(plan),
        false => plan.only(&targets).inspect_err(|error| complain(&format!("error: {error}"))).ok(),
    }
}

fn text(config: &Config, plan: &Plan) -> String {
    let steps = steps(plan);
    let count = plan.tasks().len();
    let tasks = if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") };
    let mut text = format!(
        "{tasks} of {} would run, at most {} at the same time; tasks with the same number may run \
         together:\n\n",
        printable::line(&config.name),
        config.limits.max_concurrency
    );
    let names = plan.tasks().iter().map(|task| task.name.as_str().chars().count());
    let (width, last) = (names.max().unwrap_or(0), steps.iter().max().copied().unwrap_or(0));
    let digits = last.to_string().len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|place| steps[*place]);
    for place in order {
        let (task, step) = (&plan.tasks()[place], steps[place]);
        let name = printable::padded(task.name.as_str(), width);
        text.push_str(&format!("{step:>digits$}  {name}  {}\n", work(config, task)));
        for more in conditions(task) {
            text.push_str(&format!("{:>digits$}  {:width$}  {}\n", "", "", printable::line(&more)));
        }
    }
    text.push('\n');
    for (word, row) in binding(config, plan) {
        text.push_str(&format!("{word:WORDS$}  {}\n", printable::line(&row)));
    }
    text.push_str("\nnothing was started, and nothing was written\n");
    text
}

/// Returns the number of the step of each task, from 1: one more than the latest of its dependencies.
fn steps(plan: &Plan) -> Vec<usize> {
    let count = plan.tasks().len();
    let mut steps = vec![1; count];
    let mut waits: Vec<usize> = (0..count).map(|place| plan.dependencies(place).len()).collect();
    let mut ready: Vec<usize> = (0..count).filter(|place| waits[*place] == 0).collect();
    while let Some(place) = ready.pop() {
        for next in plan.dependents(place) {
            steps[*next] = steps[*next].max(steps[place] + 1);
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.push(*next);
            }
        }
    }
    steps
}

/// Says what a task does, and its effect.
fn work(config: &Config, task: &TaskSpec) -> String {
    let said = match &task.work {
        Work::Agent { agent, .. } => match config.agents.get(agent) {
            Some(spec) => format!("agent {agent}, {}; {}", model(config, &spec.model), tools(spec)),
            None => format!("agent {agent}"),
        },
        Work::Command { run } => {
            let first = run.lines().map(str::trim).find(|line| !line.is_empty());
            let more = if run.trim().lines().count() > 1 { " …" } else { "" };
            format!("command: {}{more}", cut(first.unwrap_or_default(), SHOWN))
        }
        Work::Approval(approval) => match (approval.timeout, approval.on_timeout) {
            (None, _) => "a person is asked, for as long as it takes".to_owned(),
            (Some(time), answer) => {
                let then = match answer {
                    OnTimeout::Reject => "it counts as rejected",
                    OnTimeout::Approve => "it counts as approved",
                    OnTimeout::Fail => "the task fails",
                };
                format!("a person is asked; after {} {then}", duration::text(time))
            }
        },
        Work::Graph { .. } => "the output of its sub-graph".to_owned(),
    };
    printable::line(&said).into_owned()
}

fn model(config: &Config, name: &Name) -> String {
    let Some(model) = config.models.get(name) else { return format!("model {name}") };
    let provider = config.providers.get(&model.provider);
    let is_script =
        provider.is_some_and(|provider| matches!(provider.kind, ProviderKind::Scripted { .. }));
    let by = if is_script { "a script" } else { model.provider.as_str() };
    format!("model {name} ({} of {by})", model.model)
}

/// Says what the tools of an agent can do.
fn tools(agent: &AgentSpec) -> String {
    let is_changing = |tool: &&Name| CHANGING.contains(&tool.as_str());
    let list =
        |tools: Vec<&Name>| tools.iter().map(|tool| tool.as_str()).collect::<Vec<_>>().join(", ");
    let (changing, others): (Vec<_>, Vec<_>) = agent.tools.iter().partition(is_changing);
    match (changing.is_empty(), others.is_empty()) {
        (true, true) => "no tools".to_owned(),
        (true, false) => format!("tools: {}", list(others)),
        (false, true) => format!("changes files: {}", list(changing)),
        (false, false) => format!("changes files: {}; tools: {}", list(changing), list(others)),
    }
}

/// Returns a line for each thing that decides whether, when and how often a task runs.
fn conditions(task: &TaskSpec) -> Vec<String> {
    let mut lines = Vec::new();
    if !task.depends_on.is_empty() {
        let before: Vec<_> = task.depends_on.iter().map(Name::as_str).collect();
        let join = match task.effective_join() {
            Join::AllSuccess => String::new(),
            Join::AllDone => " (however they end)".to_owned(),
            Join::AnySuccess => " (one of them must complete)".to_owned(),
            Join::NoneFailed => " (none may fail)".to_owned(),
            Join::AtLeast(count) => format!(" ({count} of them must complete)"),
        };
        lines.push(format!("after {}{join}", cut(&before.join(", "), SHOWN)));
    }
    lines.extend(task.when.as_ref().map(|when| format!("only when {}", cut(when, SHOWN))));
    lines.extend(
        task.fan_out.as_ref().map(|fan_out| {
            format!("once for each {} of {}", fan_out.item, cut(&fan_out.list, SHOWN))
        }),
    );
    if task.retry.max_attempts > 1 {
        lines.push(format!("up to {} attempts", task.retry.max_attempts));
    }
    lines.extend(task.timeout.map(|time| format!("at most {}", duration::text(time))));
    if let Some(file) = &task.output_file {
        lines.push(format!("its output is written to {}", cut(file, SHOWN)));
    }
    match task.acceptance.checks.len() {
        0 => {}
        1 => lines.push("its answer must pass 1 check".to_owned()),
        many => lines.push(format!("its answer must pass {many} checks")),
    }
    lines
}

/// Returns what could stop the run, make it wait or cost money, each with the word for it.
fn binding(config: &Config, plan: &Plan) -> Vec<(&'static str, String)> {
    let limits = &config.limits;
    let team = config.team(plan.tasks().iter().flat_map(TaskSpec::agents));
    let mut rows = Vec::new();
    rows.push((
        "time",
        match limits.timeout {
            Some(time) => format!("the run ends after {}", duration::text(time)),
            None => "no limit of the run (`limits.timeout`)".to_owned(),
        },
    ));
    if team.values().any(|agent| !agent.sub_agents.is_empty()) {
        rows.push((
            "children",
            format!(
                "at most {} at the same time, {} in all, {} deep",
                limits.max_children, limits.max_descendants, limits.max_depth
            ),
        ));
    }
    let turns: Vec<_> =
        team.iter().map(|(name, agent)| format!("{name} {}", agent.max_turns)).collect();
    if !turns.is_empty() {
        rows.push(("turns", format!("at most {}", turns.join(", "))));
    }
    rows.push((
        "on failure",
        match limits.fail_fast {
            true => "the first failure starts no new task (`--keep-going` goes on)".to_owned(),
            false => "tasks that do not depend on a failed one go on".to_owned(),
        },
    ));
    rows.extend(people(plan, &team).map(|row| ("people", row)));
    rows.push(("sandbox", sandbox(config)));
    rows.extend(price(config).map(|row| ("money", row)));
    rows.extend(config.set.iter().map(|(key, value)| ("set", format!("{key}={value}"))));
    rows
}

/// Says who waits for a person.
fn people(plan: &Plan, team: &BTreeMap<&Name, &AgentSpec>) -> Option<String> {
    let gates = plan.tasks().iter().filter(|task| matches!(task.work, Work::Approval(_)));
    let gates = gates.map(|task| format!("task {} asks", task.name));
    let asking = team.iter().filter_map(|(name, agent)| {
        let tools = agent.tools.iter().filter(|tool| {
            !agent.permissions.always_denies(tool.as_str())
                && CHANGING.contains(&tool.as_str())
                && !agent.permissions.can_allow(tool.as_str())
        });
        let tools: Vec<_> = tools.map(Name::as_str).collect();
        (!tools.is_empty()).then(|| format!("each {} of agent {name} asks", tools.join(" and ")))
    });
    let asks: Vec<String> = gates.chain(asking).collect();
    (!asks.is_empty()).then(|| asks.join("; "))
}

fn sandbox(config: &Config) -> String {
    let sandbox = &config.sandbox;
    if sandbox.mode == SandboxMode::DangerFullAccess {
        return "none: turned off".to_owned();
    }
    let network = match (sandbox.network, sandbox.hosts.as_slice()) {
        (true, _) => "network".to_owned(),
        (false, []) => "no network".to_owned(),
        (false, hosts) => {
            format!("network to {}", hosts.join(", "))
        }
    };
    format!("{}, {network}", sandbox.mode)
}

/// Says what the models in use cost, and what limits the run.
fn price(config: &Config) -> Option<String> {
    let models = config.models_in_use.iter().filter_map(|name| config.models.get(name));
    let paid = models.filter(|model| {
        let provider = config.providers.get(&model.provider);
        !provider.is_some_and(|provider| matches!(provider.kind, ProviderKind::Scripted { .. }))
    });
    let each = paid.map(|model| {
        let name = &model.name;
        match (model.price, config.price_sources.get(name)) {
            (None, _) => format!("{name} has no price"),
            (Some(price), source) => {
                let from = match source {
                    Some(PriceSource::Builtin { checked, .. }) => {
                        format!(" (built in, of {checked})")
                    }
                    Some(_) | None => String::new(),
                };
                format!("{name} ${} in, ${} out a million tokens{from}", price.input, price.output)
            }
        }
    });
    let each: Vec<String> = each.collect();
    let limits = config.budget.as_ref().map(|budget| {
        format!("the budget of the run is {}, then {}", budget.caps, budget.on_exceed.as_str())
    });
    let limits = limits.unwrap_or_else(|| "no amount ends the run".to_owned());
    (!each.is_empty()).then(|| format!("{}; {limits}", each.join("; ")))
}
