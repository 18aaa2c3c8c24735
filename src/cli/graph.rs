//! `graph`: draws the task graph in several formats, with task states if a run is named.

use serde_json::json;

use super::args::{self, GraphFormat};
use super::locate::Project;
use super::paint::Paint;
use super::stream::Stream;
use super::{say, say_json, trust};
use crate::config::{Missing, Sources};
use crate::event::PlannedTask;
use crate::exit::Exit;
use crate::id::Name;
use crate::spec::Work;

/// A task as it is drawn. `state` is set if a run is named.
struct Node {
    task: PlannedTask,
    state: Option<&'static str>,
}

pub(super) fn run(project: &Project, verb: &args::Graph) -> Exit {
    let nodes = match &verb.run {
        Some(run) => of_run(project, run),
        None => of_file(project),
    };
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(exit) => return exit,
    };
    match verb.format {
        GraphFormat::Ascii => say(&ascii(&nodes, Paint::of(Stream::Out))),
        GraphFormat::Mermaid => say(&mermaid(&nodes)),
        GraphFormat::Dot => say(&dot(&nodes)),
        GraphFormat::Json => say_json(&document(&nodes)),
    }
}

fn of_run(project: &Project, run: &str) -> Result<Vec<Node>, Exit> {
    let dir = project.run(Some(run))?;
    let state = project.state(&dir)?;
    let tasks = state.created().map(|created| created.tasks.clone()).unwrap_or_default();
    let node = |task: PlannedTask| {
        let word = state.task(&task.name).map(|status| status.state.as_str());
        Node { state: word, task }
    };
    Ok(tasks.into_iter().map(node).collect())
}

fn of_file(project: &Project) -> Result<Vec<Node>, Exit> {
    let config = trust::looked(&Sources {
        missing_keys: Missing::Allow,
        missing_inputs: Missing::Allow,
        ..project.sources()
    })?;
    let node = |task: &crate::spec::TaskSpec| {
        let agent = match &task.work {
            Work::Agent { agent, .. } => Some(agent.clone()),
            Work::Command { .. } => None,
        };
        let (name, depends_on) = (task.name.clone(), task.depends_on.clone());
        Node { task: PlannedTask { name, agent, depends_on }, state: None }
    };
    Ok(config.tasks.iter().map(node).collect())
}

/// Draws one line for each task, after all its dependencies: its name, its agent or `command`, its
/// state, its dependencies.
fn ascii(nodes: &[Node], paint: Paint) -> String {
    let who = |node: &Node| {
        node.task.agent.as_ref().map_or("command".to_owned(), |agent| format!("agent {agent}"))
    };
    let widest = |length: &dyn Fn(&Node) -> usize| nodes.iter().map(length).max().unwrap_or(0);
    let names = widest(&|node| node.task.name.as_str().len());
    let works = widest(&|node| who(node).len());
    let mut text = String::new();
    for node in in_order(nodes) {
        let state = node.state.map(|word| paint.state(word, &format!("{word:9}  ")));
        let before: Vec<_> = node.task.depends_on.iter().map(Name::as_str).collect();
        let before = match before.as_slice() {
            [] => String::new(),
            before => format!("<- {}", before.join(", ")),
        };
        let (name, state) = (node.task.name.as_str(), state.unwrap_or_default());
        let line = format!("{name:names$}  {:works$}  {state}{before}", who(node));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the fill colour of a state, in the notation of both Mermaid and DOT.
fn fill(state: &str) -> &'static str {
    match state {
        "completed" | "reused" => "#b7e1b0",
        "failed" | "cancelled" => "#f2b8b5",
        "running" | "waiting" => "#f7dfa5",
        _ => "#e4e4e4",
    }
}

/// Returns the nodes so that each stands after its dependencies.
fn in_order(nodes: &[Node]) -> Vec<&Node> {
    let mut done: Vec<&Node> = Vec::new();
    // A checked plan has no cycle, so each round places at least one task.
    while done.len() < nodes.len() {
        let placed = |name: &Name| done.iter().any(|node| node.task.name == *name);
        let known = |name: &Name| nodes.iter().any(|node| node.task.name == *name);
        let next = nodes.iter().find(|node| {
            !placed(&node.task.name)
                && node.task.depends_on.iter().all(|before| placed(before) || !known(before))
        });
        let Some(next) = next else { break };
        done.push(next);
    }
    done
}

fn mermaid(nodes: &[Node]) -> String {
    // A task may be called `end`, which is a keyword of Mermaid: so nodes are named by number.
    let place = |name: &Name| nodes.iter().position(|node| node.task.name == *name);
    let mut text = String::from("flowchart TD\n");
    for (at, node) in nodes.iter().enumerate() {
        let state = node.state.map(|word| format!(": {word}")).unwrap_or_default();
        text.push_str(&format!("  t{at}[\"{}{state}\"]\n", node.task.name));
        for before in node.task.depends_on.iter().filter_map(place) {
            text.push_str(&format!("  t{before} --> t{at}\n"));
        }
        if let Some(state) = node.state {
            text.push_str(&format!("  style t{at} fill:{}\n", fill(state)));
        }
    }
    text
}

fn dot(nodes: &[Node]) -> String {
    let mut text = String::from("digraph plan {\n");
    for node in nodes {
        let name = &node.task.name;
        let label = match node.state {
            Some(word) => {
                format!("label=\"{name}\\n{word}\", style=filled, fillcolor=\"{}\"", fill(word))
            }
            None => format!("label=\"{name}\""),
        };
        text.push_str(&format!("  \"{name}\" [{label}];\n"));
        for before in &node.task.depends_on {
            text.push_str(&format!("  \"{before}\" -> \"{name}\";\n"));
        }
    }
    text.push_str("}\n");
    text
}

fn document(nodes: &[Node]) -> String {
    let tasks = nodes.iter().map(|node| {
        json!({
            "name": node.task.name,
            "agent": node.task.agent,
            "depends_on": node.task.depends_on,
            "state": node.state,
        })
    });
    format!("{}\n", json!({ "tasks": tasks.collect::<Vec<_>>() }))
}
