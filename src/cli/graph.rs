//! `graph`: draws the task graph in several formats, with task states if a run is named.
//!
//! Owns the formats for other programs and the list; [`boxes`] has the drawings.

mod boxes;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde_json::json;

use super::args::{self, GraphFormat};
use super::locate::Project;
use super::paint::Paint;
use super::stream::Stream;
use super::{complain, say, say_json, trust};
use crate::config::{Missing, Sources};
use crate::event::PlannedTask;
use crate::exit::Exit;
use crate::id::Name;
use crate::printable;
use crate::report::fold::{self, Group};

/// The most dependencies that a line of several tasks names.
const BEFORE: usize = 5;

/// A task as it is drawn. `state` is set if a run is named.
struct Node {
    task: PlannedTask,
    state: Option<&'static str>,
    /// The number of its instances, if it has fanned out in the run.
    instances: usize,
}

impl Node {
    /// Returns what does the work: `agent NAME`, `command`, `approval` or `sub-graph`.
    fn work(&self) -> String {
        let inner = format!("{}/", self.task.name);
        match &self.task.agent {
            Some(agent) => format!("agent {agent}"),
            None if self.task.approval => "approval".to_owned(),
            // Only a task that stands for a sub-graph depends on tasks below its own name.
            None if self.task.depends_on.iter().any(|name| name.as_str().starts_with(&inner)) => {
                "sub-graph".to_owned()
            }
            None => "command".to_owned(),
        }
    }
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
    let paint = Paint::of(Stream::Out);
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    // Scripts read the list; a person looks at a terminal.
    let usual = match Stream::Out.is_terminal() && !dumb {
        true => GraphFormat::Boxes,
        false => GraphFormat::Ascii,
    };
    match verb.format.unwrap_or(usual) {
        GraphFormat::Boxes => match boxes::in_columns(&nodes, columns(), paint) {
            Ok(text) => say(&text),
            Err(reason) => {
                complain(&format!(
                    "note: {reason}, so this is a list; `callsheet graph --format svg` draws it for a browser"
                ));
                say(&ascii(&nodes, paint))
            }
        },
        GraphFormat::Ascii => say(&ascii(&nodes, paint)),
        GraphFormat::Svg => match boxes::document(&nodes) {
            Ok(text) => say(&text),
            Err(error) => {
                complain(&format!("error: the graph cannot be drawn: {error}"));
                complain("help: `--format dot` writes it for Graphviz");
                Exit::Usage
            }
        },
        GraphFormat::Mermaid => say(&mermaid(&nodes)),
        GraphFormat::Dot => say(&dot(&nodes)),
        GraphFormat::Json => say_json(&document(&nodes)),
    }
}

/// The columns of a drawing that goes to a file or a pipe.
const COLUMNS: usize = 80;

fn columns() -> usize {
    Stream::Out.size().map_or(COLUMNS, |(width, _)| width)
}

fn of_run(project: &Project, run: &str) -> Result<Vec<Node>, Exit> {
    let dir = project.run(Some(run))?;
    let state = project.state(&dir)?;
    let tasks = state.created().map(|created| created.tasks.to_vec()).unwrap_or_default();
    let node = |task: PlannedTask| {
        let status = state.task(&task.name);
        Node {
            state: status.map(|status| status.state.as_str()),
            instances: status.map_or(0, |status| status.instances.len()),
            task,
        }
    };
    Ok(tasks.into_iter().map(node).collect())
}

fn of_file(project: &Project) -> Result<Vec<Node>, Exit> {
    let config = trust::looked(&Sources {
        missing_keys: Missing::Allow,
        missing_inputs: Missing::Allow,
        ..project.sources()
    })?;
    let nodes =
        config.tasks.iter().map(|task| Node { task: task.into(), state: None, instances: 0 });
    Ok(nodes.collect())
}

/// Draws one line for each task, after all its dependencies: its name, its agent, `command` or
/// `approval` or `sub-graph`, its state, its dependencies. Of many tasks, those that are alike share a
/// line.
fn ascii(nodes: &[Node], paint: Paint) -> String {
    let ordered = in_order(nodes);
    let keys: Vec<_> = ordered
        .iter()
        .map(|node| (node.task.name.as_str(), (node.state, node.work(), &node.task.depends_on)))
        .collect();
    let groups = fold::fold(&keys);
    let names = groups.iter().map(|group| group.label.chars().count()).max().unwrap_or(0);
    let works = ordered.iter().map(|node| node.work().len()).max().unwrap_or(0);
    let mut text = String::new();
    for Group { label, members } in groups {
        let of: Vec<_> = members.iter().map(|at| ordered[*at]).collect();
        let node = of[0];
        let state = node.state.map(|word| {
            let word = fold::same(of.iter().map(|node| node.state)).map_or("mixed", |_| word);
            paint.state(word, &format!("{word:9}  "))
        });
        let same = fold::same(of.iter().map(|node| &node.task.depends_on));
        let before: Vec<_> = same.into_iter().flatten().take(BEFORE).map(Name::as_str).collect();
        let more = same.is_some_and(|before| before.len() > BEFORE && members.len() > 1);
        let before = match (before.as_slice(), members.len()) {
            ([], _) => String::new(),
            (_, 1) => {
                let all = node.task.depends_on.iter().map(|name| (name.as_str(), ()));
                let all = fold::fold(&all.collect::<Vec<_>>()).into_iter();
                format!("<- {}", all.map(|group| group.label).collect::<Vec<_>>().join(", "))
            }
            (before, _) => format!("<- {}{}", before.join(", "), if more { ", …" } else { "" }),
        };
        let many = match members.len() {
            1 => String::new(),
            many => format!("{} tasks  ", fold::count(many)),
        };
        let work = if same.is_some() { node.work() } else { String::new() };
        let state = state.unwrap_or_default();
        let (label, work) = (printable::padded(&label, names), printable::padded(&work, works));
        let line = format!("{label}  {work}  {state}{many}{before}");
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

/// Returns the nodes so that each stands after its dependencies, and otherwise in their order.
fn in_order(nodes: &[Node]) -> Vec<&Node> {
    let places = places(nodes);
    let mut waits: Vec<usize> = Vec::with_capacity(nodes.len());
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        let known: Vec<_> =
            node.task.depends_on.iter().filter_map(|before| places.get(before)).collect();
        waits.push(known.len());
        known.into_iter().for_each(|before| after[*before].push(at));
    }
    // The first node in order that waits for nothing comes next. A checked plan has no cycle, so
    // every node comes.
    let mut ready: BinaryHeap<_> =
        (0..nodes.len()).filter(|at| waits[*at] == 0).map(Reverse).collect();
    let mut done = Vec::with_capacity(nodes.len());
    while let Some(Reverse(at)) = ready.pop() {
        done.push(&nodes[at]);
        for next in &after[at] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.push(Reverse(*next));
            }
        }
    }
    done
}

fn places(nodes: &[Node]) -> HashMap<&Name, usize> {
    nodes.iter().enumerate().map(|(at, node)| (&node.task.name, at)).collect()
}

fn mermaid(nodes: &[Node]) -> String {
    // A task may be called `end`, which is a keyword of Mermaid: so nodes are named by number.
    let places = places(nodes);
    let mut text = String::from("flowchart TD\n");
    for (at, node) in nodes.iter().enumerate() {
        let state = node.state.map(|word| format!(": {word}")).unwrap_or_default();
        text.push_str(&format!("  t{at}[\"{}{state}\"]\n", node.task.name));
        for before in node.task.depends_on.iter().filter_map(|before| places.get(before)) {
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
