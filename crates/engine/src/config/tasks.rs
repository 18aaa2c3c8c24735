//! Builds the tasks of a configuration: their work, dependencies and templates.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::diagnostic::{NO_HELP, Place, Problems};
use super::raw::Task;
use super::shape::{Entry, Field, Item, Named};
use super::templates::{Language, Scope, command};
use super::written::Lines;
use super::{
    Setting, answers, approvals, budgets, env, fan_out, names, network, paths, retry, sandbox,
};
use crate::id::Name;
use crate::spec::{AgentSpec, Join, OutputFormat, TaskSpec, Work};

/// A task of a file.
pub(super) struct Built {
    /// True if it is part of the plan. The mistakes of others are found too.
    pub(super) is_enabled: bool,
    pub(super) task: TaskSpec,
}

/// Turns `[tasks]` into tasks, in the order in which they are written. Those that cannot be built are left out.
pub(super) fn tasks(setting: Setting<'_>, agents: &BTreeMap<Name, AgentSpec>) -> Vec<Built> {
    cycles(&setting.raw.tasks, setting.problems);
    let mut lines = Lines::default();
    let built = setting.raw.tasks.values().filter_map(|(entry, task)| {
        let is_enabled = *task.enabled;
        Some(Built { is_enabled, task: spec(setting, entry, task, agents, &mut lines)? })
    });
    built.collect()
}

fn spec(
    setting: Setting<'_>,
    entry: &Entry<Task>,
    task: &Task,
    agents: &BTreeMap<Name, AgentSpec>,
    lines: &mut Lines,
) -> Option<TaskSpec> {
    let problems = setting.problems;
    let depends_on = depends_on(setting, entry, task);
    texts(setting, entry, task);
    let work = work(setting, entry, task);
    let agent = task.agent.as_ref().and_then(|name| agents.get(name.as_str()));
    let (acceptance, output) = answers::rules(setting, entry, task, agent);
    let retry = retry::of_task(task.retry.as_ref(), setting.problems);
    let is_approval = task.approval.is_set();
    let env = task.env.values().map(|(variable, text)| (variable.name.clone(), text.clone()));
    Some(TaskSpec {
        join: join(task, depends_on.len(), problems),
        depends_on,
        always: always(task, problems),
        locks: locks(task, problems),
        paths: paths::read(task, problems),
        exclusive: *task.exclusive,
        fan_out: fan_out::fan_out(task, problems),
        when: task.when.clone(),
        // The time of an approval is its own.
        timeout: if is_approval { None } else { task.timeout.or(*setting.raw.defaults.timeout) },
        retry,
        on_failure: *task.on_failure,
        // An approval gives an object, and so does a sub-graph.
        output: if is_approval || task.workflow.is_set() { OutputFormat::Json } else { output },
        output_file: task.output_file.clone(),
        env: env.collect(),
        stdin: task.stdin.clone(),
        cwd: task.cwd.clone(),
        capture: *task.capture,
        idempotent: *task.idempotent,
        idempotency_key: task.idempotency_key.clone(),
        names_output_paths: names_output_paths(task) || task.context.at().is_some(),
        context: context(setting, entry, task),
        context_budget: *task.context_budget,
        confinement: sandbox::confinement(setting, &task.sandbox),
        on_unknown: *task.on_unknown,
        acceptance,
        budget: budgets::budget(task.budget.as_ref()),
        written: lines.of_task(setting, entry, task),
        ..TaskSpec::new(Name::new(&entry.name).ok()?, work?)
    })
}

/// Returns the join of a task that depends on `count` different tasks, and reports one that can never
/// hold.
fn join(task: &Task, count: usize, problems: &Problems) -> Join {
    let Some(join) = Join::read(&task.join) else {
        if let Some(at) = task.join.at() {
            let message = format!("`{}` is not a join", *task.join);
            let help = names::suggest(&task.join, Join::WORDS);
            problems.error("bad_value", &at.value, message, help);
        }
        return Join::default();
    };
    if let (Some(wanted), Some(at)) = (join.wanted(), task.join.at())
        && !(1..=count).contains(&wanted)
    {
        let (message, help) = match (wanted, count) {
            (0, _) => ("it asks for no task at all".to_owned(), "ask for at least one"),
            (_, 0) => ("the task depends on none".to_owned(), "name tasks in `depends_on`"),
            (_, 1) => ("the task depends on one other".to_owned(), "ask for fewer, or name more"),
            _ => (format!("the task depends on {count} others"), "ask for fewer, or name more"),
        };
        let message = format!("`{}` can never hold: {message}", *task.join);
        problems.error("bad_value", &at.value, message, help);
    }
    join
}

fn always(task: &Task, problems: &Problems) -> bool {
    let waits_for_all = Join::read(&task.join).is_none_or(|join| join == Join::AllDone);
    if let Some(join) = task.join.at().filter(|_| *task.always && !waits_for_all) {
        let message = "`always` and this `join` exclude each other";
        let help = "a task that always runs waits until all its dependencies have ended";
        problems.error("conflict", &join.key, message, help);
    }
    *task.always
}

fn locks(task: &Task, problems: &Problems) -> Vec<Name> {
    let read = |Item { value, at }: &Item<String>| match Name::new(value) {
        Ok(name) => Some(name),
        Err(error) => {
            problems.error("bad_value", &at.value, error.to_string(), NO_HELP);
            None
        }
    };
    let mut all: Vec<Name> = task.locks.iter().filter_map(read).collect();
    // In one order, so that no two tasks take them in different ones.
    all.sort();
    all.dedup();
    all
}

/// Returns true if a template of the task names the file of an output.
fn names_output_paths(task: &Task) -> bool {
    let texts = [&task.prompt, &task.when, &task.output_file, &task.stdin, &task.cwd];
    let texts = texts.into_iter().chain([&task.idempotency_key]).filter_map(|text| text.as_deref());
    let variables = task.env.values().map(|(_, text)| text.as_str());
    let asked = task.approval.iter().flat_map(approvals::all_texts);
    let judged = task.checks.iter().flat_map(|check| {
        let variables = check.value.env.values().map(|(_, text)| text.as_str());
        check.value.prompt.as_deref().into_iter().chain(variables)
    });
    texts.chain(variables).chain(asked).chain(judged).any(|text| text.contains("output_path"))
}

fn depends_on(setting: Setting<'_>, entry: &Entry<Task>, task: &Task) -> Vec<Name> {
    let tasks = &setting.raw.tasks;
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    for Item { value: name, at } in task.depends_on.iter() {
        if !tasks.has(name) {
            let others = tasks.names().filter(|name| *name != entry.name);
            names::report_unknown("unknown_task", name, &at.value, others, setting.problems);
        }
        if let Some(other) = tasks.value(name)
            && *task.enabled
            && !*other.enabled
        {
            report_disabled(name, &at.value, setting.problems);
        }
        if seen.insert(name) {
            all.extend(Name::new(name));
        }
    }
    all
}

/// Reports a name of a task that is not part of the plan.
pub(super) fn report_disabled(name: &str, place: &Place, problems: &Problems) {
    let message = format!("task `{name}` is not enabled, so it never runs");
    let help = format!("remove `{name}` here, or set `enabled = true` in [tasks.{name}]");
    problems.error("disabled_task", place, message, help);
}

/// Returns the tasks whose outputs are added to the prompt.
fn context(setting: Setting<'_>, entry: &Entry<Task>, task: &Task) -> Vec<Name> {
    for at in [task.context.at(), task.context_budget.at()].into_iter().flatten() {
        if task.run.is_set() {
            let message = "outputs are added to a prompt, and this task runs a command";
            setting.problems.error("conflict", &at.key, message, "use `stdin` or `env`");
        }
    }
    let mut all = Vec::new();
    for Item { value: name, at } in task.context.iter() {
        setting.raw.tasks.must_have("unknown_task", name, &at.value, setting.problems);
        if *name == entry.name {
            let message = format!("`context` of task `{name}` names the task itself");
            let help = "remove it: a task has no output before it has run";
            setting.problems.error("conflict", &at.value, message, help);
        } else if setting.raw.tasks.has(name)
            && !task.depends_on.iter().any(|item| item.value == *name)
        {
            let message = format!("`context` names `{name}`, which is not in `depends_on`");
            let help = format!("add \"{name}\" to `depends_on`");
            setting.problems.error("missing_dependency", &at.value, message, help);
        }
        all.extend(Name::new(name).ok().filter(|name| !all.contains(name)));
    }
    all
}

fn work(setting: Setting<'_>, entry: &Entry<Task>, task: &Task) -> Option<Work> {
    let (name, problems) = (&entry.name, setting.problems);
    if let Some(approval) = task.approval.as_ref() {
        return approvals::work(setting, entry, task, approval);
    }
    match (task.agent.is_set(), task.run.at()) {
        (true, Some(run)) => {
            let message = format!("task `{name}` has both `agent` and `run`");
            problems.error("conflict", &run.key, message, NO_HELP);
            None
        }
        // The tasks of its file are added later.
        (false, None) if task.workflow.is_set() => Some(Work::Graph { outputs: Vec::new() }),
        (false, None) => {
            // An approval that could not be read is reported already, and so is a key that may have been the work.
            let is_unread = || problems.mentions("unknown_key", &format!("in [tasks.{name}"));
            if !task.approval.is_set() && !is_unread() {
                let message = format!("task `{name}` does nothing");
                let help = "add `agent` and `prompt`, `run`, or `approval`";
                problems.error("missing_field", &entry.at.key, message, help);
            }
            None
        }
        (false, Some(_)) => {
            if let Some(prompt) = task.prompt.at() {
                let message = format!("task `{name}` runs a command, which takes no `prompt`");
                problems.error("conflict", &prompt.key, message, NO_HELP);
            }
            let (run, place) = task.run.placed()?;
            command(run, place, problems);
            network::of_task(setting, task);
            Some(Work::Command { run: run.clone() })
        }
        (true, None) => {
            if let Some(env) = task.env.at() {
                let message = "`env` of an agent's task is not available in this version";
                problems.error("not_built", &env.key, message, NO_HELP);
            }
            for (key, at) in [
                ("stdin", task.stdin.at()),
                ("cwd", task.cwd.at()),
                ("capture", task.capture.at()),
                ("idempotent", task.idempotent.at()),
                ("idempotency_key", task.idempotency_key.at()),
            ] {
                if let Some(at) = at {
                    let message =
                        format!("`{key}` is for commands, and task `{name}` has an agent");
                    problems.error("conflict", &at.key, message, NO_HELP);
                }
            }
            if let Some((agent, place)) = task.agent.placed() {
                setting.raw.agents.must_have("unknown_agent", agent, place, problems);
            }
            if !task.prompt.is_set() {
                let message = format!("task `{name}` gives its agent no `prompt`");
                problems.error("missing_field", &entry.at.key, message, NO_HELP);
            }
            if let Some((prompt, place)) = task.prompt.placed()
                && prompt.trim().is_empty()
            {
                let message = format!("the prompt of task `{name}` is blank");
                let help =
                    "say what the agent is to do; no provider accepts a message without text";
                problems.warning("empty_prompt", place, message, help);
            }
            let prompt = task.prompt.clone()?;
            Some(Work::Agent { agent: Name::new(task.agent.as_ref()?).ok()?, prompt })
        }
    }
}

/// Checks the templates and expressions of a task.
fn texts(setting: Setting<'_>, entry: &Entry<Task>, task: &Task) {
    let scope = Scope::of_task(setting, &entry.name, task);
    let own = scope.with_item();
    let templates =
        [&task.prompt, &task.output_file, &task.stdin, &task.cwd, &task.idempotency_key];
    let templates = templates.into_iter().filter_map(Field::placed);
    let variables = task.env.values().map(|(variable, text)| (text, &variable.at.value));
    for (text, place) in templates.chain(variables) {
        own.check(text, place, Language::Template);
    }
    let of_checks = task.checks.iter().flat_map(|check| {
        let variables = check.value.env.values().map(|(variable, text)| (text, &variable.at.value));
        check.value.run.placed().into_iter().chain(variables)
    });
    let of_task = task.env.values().map(|(variable, text)| (text, &variable.at.value));
    let paths = [&task.run, &task.output_file, &task.cwd, &task.idempotency_key];
    for (text, place) in paths.into_iter().filter_map(Field::placed).chain(of_task).chain(of_checks)
    {
        env::check_nul(text, place, setting.problems);
    }
    if let Some((key, place)) = task.foreach_key.placed() {
        scope.with_item_alone().check(key, place, Language::Template);
        if own.is_same_for_all(key) {
            let message = format!("`{key}` gives all items the same key");
            let help = format!("name the item: `{{{{ {} }}}}`, or a part of it", *task.foreach_as);
            setting.problems.error("bad_value", place, message, &help);
        }
    }
    if let Some((list, place)) = task.foreach.placed() {
        scope.check(list, place, Language::Expression("foreach"));
    }
    if let Some(approval) = task.approval.as_ref() {
        approvals::texts(&own, approval);
    }
    if let Some((when, place)) = task.when.placed() {
        scope.check(when, place, Language::Expression("when"));
    }
    if let Some((file, place)) =
        task.output_file.placed().filter(|(file, _)| own.is_same_for_all(file))
    {
        let item = &*task.foreach_as;
        let message =
            format!("all instances write `{file}`, so that it holds the output of the last");
        let help = format!("name `{item}`, `instance.index` or `instance.key` in it");
        setting.problems.error("same_file", place, message, &help);
    }
    for (path, place) in [&task.output_file, &task.cwd].into_iter().filter_map(Field::placed) {
        if path.starts_with('/') || path.split('/').any(|part| part == "..") {
            let message = format!("`{path}` leads out of the workspace");
            setting.problems.error("outside_workspace", place, message, NO_HELP);
        }
    }
}

/// The progress of the search for cycles with one task.
#[derive(Clone, Copy)]
enum Walked {
    No,
    /// The task is on the path that is being walked.
    Begun,
    Whole,
}

/// Reports every cycle of dependencies once, at the dependency that closes it. The walk keeps its
/// own stack, because recursion over a long chain of tasks could exhaust that of the thread.
fn cycles(tasks: &Named<Task>, problems: &Problems) {
    let all: Vec<(&str, &[Item<String>])> =
        tasks.values().map(|(entry, task)| (&*entry.name, &**task.depends_on)).collect();
    let numbers: HashMap<&str, usize> = all.iter().map(|(name, _)| *name).zip(0..).collect();
    let mut walked = vec![Walked::No; all.len()];
    for start in 0..all.len() {
        let mut path = match walked[start] {
            Walked::No => vec![(start, all[start].1.iter())],
            Walked::Begun | Walked::Whole => continue,
        };
        walked[start] = Walked::Begun;
        while let Some((task, rest)) = path.last_mut() {
            let Some(item) = rest.next() else {
                walked[*task] = Walked::Whole;
                path.pop();
                continue;
            };
            let Some(&next) = numbers.get(item.value.as_str()) else { continue };
            match walked[next] {
                Walked::Whole => {}
                Walked::No => {
                    walked[next] = Walked::Begun;
                    path.push((next, all[next].1.iter()));
                }
                Walked::Begun => {
                    let cycle = path.iter().map(|(task, _)| *task).skip_while(|task| *task != next);
                    let names: Vec<&str> = cycle.chain([next]).map(|task| all[task].0).collect();
                    let message = format!("dependency cycle: {}", names.join(" -> "));
                    let help = match &names[..] {
                        [.., last, first] if last != first => format!(
                            "remove `{first}` from `depends_on` of [tasks.{last}], or another of these \
                             dependencies"
                        ),
                        _ => format!(
                            "remove `{0}` from its `depends_on`; what repeats itself has [tasks.{0}.loop]",
                            item.value
                        ),
                    };
                    problems.error("cycle", &item.at.value, message, help);
                }
            }
        }
    }
}
