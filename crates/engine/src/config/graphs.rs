//! Reads the files of sub-graphs, and makes their tasks tasks of the plan.
//!
//! A file of a sub-graph has inputs, tasks and agents of its own; everything else comes from the main
//! file. Its tasks and agents get the name of the task that names the file in front: `nightly/list`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use figment::value::{Dict, Value};
use miette::NamedSource;
use serde_json::{Map, Value as Json};

use super::check::Check;
use super::diagnostic::{NO_HELP, Place, Problems, Text};
use super::files::{Form, Shelf};
use super::inputs::{self, Inputs, With};
use super::raw::{Header, Settings};
use super::shape::Section;
use super::templates::{Language, Scope};
use super::tree::Places;
use super::{Setting, agents, header, idle, output_types, overrides, tasks};
use crate::id::Name;
use crate::spec::acceptance::CheckWork;
use crate::spec::sub_graph::SubGraph;
use crate::spec::{AgentSpec, ModelSpec, TaskSpec, Work};
use crate::template;
use crate::template::value_type::Type;

/// The keys of a file of a sub-graph.
const KEYS: [&str; 7] = ["version", "requires", "name", "description", "inputs", "tasks", "agents"];

/// The keys of a task that stands for a sub-graph.
const TASK_KEYS: [&str; 6] = ["workflow", "with", "depends_on", "join", "enabled", "description"];

/// The keys that a sub-graph does not take from the main file.
const OWN: [&str; 6] = ["name", "description", "inputs", "tasks", "agents", "entry"];

/// The deepest that sub-graphs may be within each other.
const MOST_LEVELS: usize = 3;

/// The most sub-graphs of a configuration: files that name each other could make any number.
const MOST_GRAPHS: usize = 64;

/// A file of a sub-graph, for the task that names it.
#[derive(Debug)]
pub(super) struct Graph {
    task: String,
    raw: Settings,
    inner: Vec<Self>,
}

/// Reads the files of the sub-graphs of a configuration, whose main file is `main` with its layers.
pub(super) fn read(
    setting: Setting<'_>,
    main: &Dict,
    texts: &mut Vec<Text>,
    places: &mut Places,
) -> Vec<Graph> {
    let Setting { root, shelf, sources, problems, .. } = setting;
    let chain = vec![root.join(sources.file.file_name().unwrap_or_default())];
    let count = 0;
    Reader { main, root, shelf, texts, places, problems, sources, chain, count }.read(main)
}

struct Reader<'a> {
    main: &'a Dict,
    root: &'a Path,
    shelf: &'a Shelf<'a>,
    texts: &'a mut Vec<Text>,
    places: &'a mut Places,
    problems: &'a Problems,
    sources: &'a super::Sources,
    /// The files that are being read, from the main file inwards.
    chain: Vec<PathBuf>,
    count: usize,
}

impl Reader<'_> {
    /// Reads the files of the tasks in a tree, and those of their tasks.
    fn read(&mut self, tree: &Dict) -> Vec<Graph> {
        let tasks = tree.get("tasks").and_then(Value::as_dict).cloned().unwrap_or_default();
        let mut graphs = Vec::new();
        for (name, task) in &tasks {
            let Some(task) = task.as_dict() else { continue };
            let file = task.get("workflow").and_then(|file| Some((file.as_str()?, file)));
            let Some((file, value)) = file else { continue };
            let is_off = task.get("enabled").and_then(Value::to_bool) == Some(false);
            for (key, value) in task.iter().filter(|(key, _)| !TASK_KEYS.contains(&key.as_str())) {
                let message = format!("`{key}` cannot stand beside `workflow`");
                let help = "set it for the tasks of the sub-graph, in their file";
                self.problems.error("conflict", &self.places.of(value).key, message, help);
            }
            if !is_off {
                let place = self.places.of(value).value.clone();
                graphs.extend(self.graph(name, &self.root.join(file), &place));
            }
        }
        graphs
    }

    fn graph(&mut self, task: &str, path: &Path, place: &Place) -> Option<Graph> {
        self.count += 1;
        let shown =
            |path: &Path| path.strip_prefix(self.root).unwrap_or(path).display().to_string();
        if self.chain.iter().any(|above| above == path) {
            let chain = self.chain.iter().map(|path| shown(path)).chain([shown(path)]);
            let message =
                format!("sub-graphs name each other: {}", chain.collect::<Vec<_>>().join(" -> "));
            let help = "remove one of these `workflow` keys: none of the graphs would end";
            self.problems.error("cycle", place, message, help);
            return None;
        }
        if self.chain.len() > MOST_LEVELS || self.count > MOST_GRAPHS {
            let message = format!(
                "sub-graphs may be at most {MOST_LEVELS} deep, and a configuration has at most \
                 {MOST_GRAPHS}"
            );
            self.problems.error("bad_value", place, message, NO_HELP);
            return None;
        }
        let read = self.shelf.read(path, place, self.problems)?;
        // The name is built like that of the main file, so that diagnostics of both look alike.
        let folder = Path::new(self.texts[0].name()).parent().unwrap_or(Path::new(""));
        let name = folder.join(path.strip_prefix(self.root).unwrap_or(path)).display().to_string();
        let text: Text = Arc::new(NamedSource::new(name, read.text));
        self.texts.push(Arc::clone(&text));
        let form = Form::of(&read.real, self.root);
        let tree = form.parse(&text, place, self.places, self.problems)?;
        for (key, value) in tree.iter().filter(|(key, _)| !KEYS.contains(&key.as_str())) {
            let message = format!("`{key}` cannot stand in the file of a sub-graph");
            let help = "it comes from the main file";
            self.problems.error("conflict", &self.places.of(value).key, message, help);
        }
        Check::new(self.places, self.problems, idle(self.sources)).file(&tree);
        let start = Place::start(&text);
        header::check(&Header::read_keys(&tree, self.places), &start, self.problems);
        let mut whole = self.main.clone();
        whole.retain(|key, _| !OWN.contains(&key.as_str()));
        whole.extend(tree.clone().into_iter().filter(|(key, _)| OWN.contains(&key.as_str())));
        let raw = Settings::read_keys(&whole, self.places);
        if raw.tasks.iter().next().is_none() && !raw.tasks.is_wrong() {
            self.problems.error("no_tasks", &start, "the file has no tasks", "add a [tasks.NAME]");
        }
        self.chain.push(path.to_owned());
        let inner = self.read(&tree);
        self.chain.pop();
        Some(Graph { task: task.to_owned(), raw, inner })
    }
}

/// The tasks and agents of a file and of its sub-graphs.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) tasks: Vec<TaskSpec>,
    pub(super) agents: BTreeMap<Name, AgentSpec>,
    /// The type of the output, if the file is that of a sub-graph; unknown if a task could not be built.
    output: Type,
}

/// Builds the tasks and agents of a file with these inputs. The paths outside the root that inputs of
/// its sub-graphs name are added to those of `inputs`.
pub(super) fn parts(
    setting: Setting<'_>,
    models: &BTreeMap<Name, ModelSpec>,
    inputs: &mut Inputs,
    graphs: &[Graph],
) -> Parts {
    let mut agents = agents::agents(setting, models);
    let built = tasks::tasks(setting, &agents);
    let inner_parts = |graph: &Graph| {
        let mut own = with(setting, &inputs.values, graph);
        let inner = Setting { raw: &graph.raw, ..setting };
        let inner = self::parts(inner, models, &mut own, &graph.inner);
        (inner, own)
    };
    let inner: Vec<(Parts, Inputs)> = graphs.iter().map(inner_parts).collect();
    let types = graphs
        .iter()
        .zip(&inner)
        .map(|(graph, (inner, _))| (graph.task.as_str(), inner.output.clone()));
    let types: BTreeMap<&str, Type> = types.collect();
    output_types::check(setting, built.iter().map(|built| &built.task), &types);
    let is_whole = built.len() == setting.raw.tasks.names().count();
    let enabled = built.into_iter().filter_map(|built| built.is_enabled.then_some(built.task));
    let mut all: Vec<TaskSpec> = enabled.collect();
    let output = if is_whole { output_types::of_graph(&all, &types) } else { Type::Unknown };
    overrides::apply(setting, models, &mut agents, &mut all);
    let mut parts = Parts { tasks: all, agents, output };
    for (graph, (inner, own)) in graphs.iter().zip(inner) {
        inputs.read_only_roots.extend(own.read_only_roots);
        parts.add(graph, inner, &own.values);
    }
    parts
}

impl Parts {
    /// Adds the parts of a sub-graph under the name of its task.
    fn add(&mut self, graph: &Graph, inner: Self, inputs: &Map<String, Json>) {
        let Some(at) = self.tasks.iter().position(|task| task.name.as_str() == graph.task) else {
            return;
        };
        let name = self.tasks[at].name.clone();
        let under = |local: &Name| name.inner(local);
        let (outer, join) = (std::mem::take(&mut self.tasks[at].depends_on), self.tasks[at].join);
        let mut awaited: Vec<Name> = Vec::new();
        let mut made = Vec::new();
        for mut task in inner.tasks {
            task.name = under(&task.name);
            task.depends_on = task.depends_on.iter().map(under).collect();
            task.context = task.context.iter().map(under).collect();
            match &mut task.work {
                Work::Agent { agent, .. } => *agent = under(agent),
                Work::Command { .. } | Work::Approval(_) => {}
                Work::Graph { outputs } => {
                    *outputs = outputs.iter().map(under).collect();
                }
            }
            for check in &mut task.acceptance.checks {
                if let CheckWork::Agent { agent, .. } = &mut check.work {
                    *agent = under(agent);
                }
            }
            let of = task.within.take().map_or_else(
                || SubGraph { name: name.clone(), inputs: inputs.clone() },
                |inner| SubGraph { name: under(&inner.name), ..inner },
            );
            task.within = Some(of);
            awaited.extend(task.depends_on.iter().cloned());
            made.push(task);
        }
        // The first tasks of the sub-graph wait for what the task that names it depends on.
        for task in made.iter_mut().filter(|task| task.depends_on.is_empty()) {
            (task.depends_on, task.join) = (outer.clone(), join);
        }
        for (local, mut spec) in inner.agents {
            spec.name = under(&local);
            spec.sub_agents = spec.sub_agents.iter().map(under).collect();
            self.agents.insert(spec.name.clone(), spec);
        }
        let all: Vec<Name> = made.iter().map(|task| task.name.clone()).collect();
        let outputs = all.iter().filter(|name| !awaited.contains(name)).cloned().collect();
        let stands = &mut self.tasks[at];
        (stands.depends_on, stands.join) = (all, Default::default());
        stands.work = Work::Graph { outputs };
        self.tasks.extend(made);
    }
}

/// Returns the inputs of a sub-graph: the values of `with`, whose templates may use the inputs of the
/// file that names it, and defaults.
fn with(setting: Setting<'_>, given: &Map<String, Json>, graph: &Graph) -> Inputs {
    let Some(entry) = setting.raw.tasks.get(&graph.task) else { return Inputs::default() };
    let Some(task) = &entry.value else { return Inputs::default() };
    let values = serde_json::json!({ "inputs": given });
    let scope = Scope::of_inputs(setting);
    let mut found = BTreeMap::new();
    for (entry, value) in task.with.values() {
        let place = &entry.at.value;
        let value = match value {
            Json::String(text) => {
                scope.check(text, place, Language::Template);
                match template::render(text, &values) {
                    Ok(text) => Some(With::Text(text)),
                    Err(error) => {
                        // Other names are reported already, and so are inputs without a value.
                        if names_only(text, given) {
                            let message = format!("`with.{}`: {error}", entry.name);
                            setting.problems.error("bad_template", place, message, NO_HELP);
                        }
                        None
                    }
                }
            }
            value => Some(With::Value(value.clone())),
        };
        found.insert(entry.name.as_str(), (value, place));
    }
    inputs::of_graph(Setting { raw: &graph.raw, ..setting }, &found, &entry.at.key)
}

/// Returns true if all names of a template are inputs with a value.
fn names_only(text: &str, inputs: &Map<String, Json>) -> bool {
    let is_input = |name: &String| {
        let name = name.strip_prefix("inputs.").and_then(|rest| rest.split('.').next());
        name.is_some_and(|name| inputs.contains_key(name))
    };
    template::names_in_template(text).is_ok_and(|names| names.iter().all(is_input))
}
