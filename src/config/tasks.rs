//! Tasks: their work, their order, their templates.

use std::collections::{BTreeMap, BTreeSet};

use super::diagnostic::{Place, Problems};
use super::names;
use super::raw::{Entry, Node, Table};
use super::retry;
use super::templates::{Language, Scope};
use crate::id::Name;
use crate::spec::{Join, OutputFormat, TaskSpec, Work};

/// Reads `[tasks]`, in the order in which they are written.
pub(super) fn tasks(tree: &Table, problems: &mut Problems) -> Vec<TaskSpec> {
    let section = tree.section("tasks");
    cycles(section, problems);
    let mut all = Vec::new();
    for (entry, table) in tree.tables("tasks") {
        let depends_on = depends_on(entry, table, section, problems);
        texts(tree, entry, table, problems);
        let work = work(tree, entry, table, problems);
        let retry = retry::of_task(table.get("retry").and_then(|e| e.node.table()), problems);
        let (Ok(name), Some(work)) = (Name::new(&entry.key), work) else { continue };
        let default = tree.section("defaults").duration("timeout");
        let env = table.section("env").0.iter();
        let env = env.filter_map(|e| Some((e.key.clone(), e.node.text()?.to_owned()))).collect();
        all.push(TaskSpec {
            name,
            work,
            depends_on,
            join: match table.text("join") {
                Some("all_done") => Join::AllDone,
                Some("none_failed") => Join::NoneFailed,
                Some("any_success") => Join::AnySuccess,
                _ => Join::AllSuccess,
            },
            when: table.text("when").map(str::to_owned),
            timeout: table.duration("timeout").or(default),
            retry,
            output: match table.text("output") {
                Some("json") => OutputFormat::Json,
                Some("jsonl") => OutputFormat::Jsonl,
                _ => OutputFormat::Text,
            },
            output_file: table.text("output_file").map(str::to_owned),
            env,
        });
    }
    all
}

fn depends_on(entry: &Entry, table: &Table, tasks: &Table, problems: &mut Problems) -> Vec<Name> {
    let mut all: Vec<Name> = Vec::new();
    for (text, place) in table.texts("depends_on") {
        if tasks.get(text).is_none() {
            let others = tasks.0.iter().map(|e| e.key.as_str()).filter(|key| *key != entry.key);
            let help = names::suggest(text, others);
            let message = format!("there is no task `{text}`");
            problems.error_help("unknown_task", place, message, help);
        }
        if let Ok(name) = Name::new(text)
            && !all.contains(&name)
        {
            all.push(name);
        }
    }
    all
}

fn work(tree: &Table, entry: &Entry, table: &Table, problems: &mut Problems) -> Option<Work> {
    let name = &entry.key;
    match (table.get("agent"), table.get("run")) {
        (Some(_), Some(run)) => {
            let message = format!("task `{name}` has both `agent` and `run`");
            problems.error("conflict", &run.key_place, message);
            None
        }
        (None, None) => {
            // What is not built yet (an approval, a sub-graph) is work too and reported as such.
            let later = ["approval", "workflow"].iter().any(|key| table.get(key).is_some());
            if !later {
                let message = format!("task `{name}` does nothing");
                let help = Some("add `agent` and `prompt`, or `run`".to_owned());
                problems.error_help("missing_field", &entry.key_place, message, help);
            }
            None
        }
        (None, Some(run)) => {
            if let Some(prompt) = table.get("prompt") {
                let message = format!("task `{name}` runs a command, which takes no `prompt`");
                problems.error("conflict", &prompt.key_place, message);
            }
            command(&run.node, problems);
            Some(Work::Command { run: run.node.text()?.to_owned() })
        }
        (Some(agent), None) => {
            if let Some(env) = table.get("env") {
                let message = "`env` of an agent's task is not available in this version";
                problems.error("not_built", &env.key_place, message);
            }
            known_agent(agent, tree, problems);
            let Some(prompt) = table.get("prompt") else {
                let message = format!("task `{name}` gives its agent no `prompt`");
                problems.error("missing_field", &entry.key_place, message);
                return None;
            };
            let prompt = prompt.node.text()?.to_owned();
            Some(Work::Agent { agent: Name::new(agent.node.text()?).ok()?, prompt })
        }
    }
}

fn known_agent(at: &Entry, tree: &Table, problems: &mut Problems) {
    let known = tree.section("agents");
    let Some(text) = at.node.text() else { return };
    if known.get(text).is_none() {
        let help = names::suggest(text, known.0.iter().map(|entry| entry.key.as_str()));
        let message = format!("there is no agent `{text}`");
        problems.error_help("unknown_agent", &at.node.place, message, help);
    }
}

/// Nothing is spliced into a shell.
fn command(node: &Node, problems: &mut Problems) {
    if node.text().is_none_or(|text| !text.contains("{{")) {
        return;
    }
    let at = node.place.written().find("{{");
    let place = at.map_or_else(|| node.place.clone(), |at| node.place.part(at..at + 2));
    let message = "`run` is not a template: `{{` would be handed to the shell";
    let help = "inputs arrive as $INPUT_NAME; pass other values through `env`";
    problems.error_help("template_in_run", &place, message, Some(help.to_owned()));
}

/// Checks the templates and expressions of a task.
fn texts(tree: &Table, entry: &Entry, table: &Table, problems: &mut Problems) {
    let depends_on: Vec<&str> = table.texts("depends_on").into_iter().map(|(t, _)| t).collect();
    let scope = Scope {
        inputs: tree.section("inputs"),
        tasks: tree.section("tasks"),
        task: Some(&entry.key),
        depends_on: &depends_on,
    };
    for key in ["prompt", "output_file"] {
        if let Some(text) = table.get(key) {
            scope.check(&text.node, Language::Template, problems);
        }
    }
    for variable in &table.section("env").0 {
        scope.check(&variable.node, Language::Template, problems);
    }
    if let Some(when) = table.get("when") {
        scope.check(&when.node, Language::Expression, problems);
    }
    if let Some(file) = table.get("output_file")
        && let Some(text) = file.node.text()
        && (text.starts_with('/') || text.split('/').any(|part| part == ".."))
    {
        let message = format!("`{text}` leads out of the workspace");
        problems.error("outside_workspace", &file.node.place, message);
    }
}

/// Names every circle of dependencies once, at the dependency that closes it. Walks with a stack of
/// its own: a long chain of tasks must not exhaust that of the thread.
fn cycles(tasks: &Table, problems: &mut Problems) {
    let all: BTreeMap<&str, Vec<(&str, &Place)>> = tasks
        .0
        .iter()
        .filter_map(|e| Some((e.key.as_str(), e.node.table()?.texts("depends_on"))))
        .collect();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in &tasks.0 {
        let mut path: Vec<(&str, usize)> = vec![(&start.key, 0)];
        while let Some((task, step)) = path.last_mut() {
            let next = all.get(task).and_then(|next| next.get(*step)).copied();
            *step += 1;
            let Some((next, place)) = next.filter(|_| !done.contains(*task)) else {
                done.insert(*task);
                path.pop();
                continue;
            };
            if let Some(at) = path.iter().position(|(step, _)| *step == next) {
                let circle = path[at..].iter().map(|(step, _)| *step).chain([next]);
                let circle: Vec<&str> = circle.collect();
                let message = format!("tasks wait for each other: {}", circle.join(" -> "));
                problems.error("cycle", place, message);
            } else {
                path.push((next, 0));
            }
        }
    }
}
