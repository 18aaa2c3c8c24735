//! The configuration: `agents.toml` -> what the program needs, with diagnostics.
//!
//! Owns reading, layering and checking. All problems are found in one go and before anything is
//! spent; nothing here prints, calls a model or touches the network. Actors never see these types,
//! only the values they need.
//!
//! What the user wrote is a tree of values with places (`raw`); its layers are merged by figment
//! (`layers`); the keys are checked one by one (`schema`, `check`); then each section is
//! turned into what the program needs, and what it names is resolved.

mod abilities;
mod agents;
mod capabilities;
mod check;
mod compaction;
mod diagnostic;
mod duration;
mod env;
mod files;
mod inputs;
mod keys;
mod layers;
mod names;
mod plan;
mod providers;
mod raw;
mod recorded;
mod retry;
mod schema;
mod strategy;
mod tasks;
mod templates;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use miette::NamedSource;
use serde_json::{Map, Value};

pub use self::diagnostic::{Diagnostic, Diagnostics, Severity};
pub use self::keys::Secret;
pub use self::providers::{ProviderKind, ProviderSpec};
pub use self::recorded::{Change, changed_files, changed_settings, changes};
pub use self::templates::{RUN_FIELDS, TASK_FIELDS};
pub use crate::context::compaction::CompactionSpec;

use self::diagnostic::{Place, Problems, Text};
use self::files::Shelf;
use self::layers::Layer;
use self::raw::{Raw, Table};
use crate::id::Name;
use crate::spec::{AgentSpec, Limits, ModelSpec, TaskSpec};

/// The version of the schema of `agents.toml` that this program reads.
const VERSION: i64 = 1;

/// What is done about a key or an input that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// It is an error: something is about to run.
    #[default]
    Refuse,
    /// It is left out: somebody only looks.
    Allow,
}

/// Where a configuration comes from.
#[derive(Clone, Default)]
pub struct Sources {
    /// The file.
    pub file: PathBuf,
    /// The profile to lay over it.
    pub profile: Option<String>,
    /// Inputs as given, the last of a name wins.
    pub inputs: Vec<(String, String)>,
    /// Flags: dotted keys and values.
    pub overrides: Vec<(String, toml::Value)>,
    /// The variables of the environment: `CALLSHEET_*` and those that hold keys.
    pub environment: BTreeMap<String, String>,
    /// The tasks to run; empty: the file's `entry`, or all. Names that do not exist are ignored.
    pub targets: Vec<String>,
    /// Tools that the program brings along.
    pub extra_tools: Vec<Name>,
    /// Models that the program brings along: they need no provider.
    pub custom_models: Vec<Name>,
    /// The files that the configuration names, as a run recorded them; one that is not among them
    /// is read from the disk.
    pub recorded: Option<BTreeMap<String, String>>,
    /// What is done about a provider's key that is not set.
    pub missing_keys: Missing,
    /// What is done about an input without a value.
    pub missing_inputs: Missing,
}

impl Sources {
    /// A file and nothing else.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }

    /// Takes the variables of this process; those that are not Unicode are left out.
    #[must_use]
    pub fn with_process_environment(mut self) -> Self {
        let text = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((key.into_string().ok()?, value.into_string().ok()?))
        };
        self.environment = std::env::vars_os().filter_map(text).collect();
        self
    }
}

impl fmt::Debug for Sources {
    /// Shows the names of the variables only: their values may be keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("file", &self.file)
            .field("profile", &self.profile)
            .field("inputs", &self.inputs)
            .field("environment", &self.environment.keys())
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}

/// A configuration as the program needs it.
#[derive(Clone)]
pub struct Config {
    /// The name of the workflow; without one, that of the directory.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The text of the file, without those it includes.
    pub text: String,
    /// The texts of the files that it names: included ones, instructions and context files, by
    /// their path.
    pub files: BTreeMap<String, String>,
    /// The file, as an absolute path.
    pub file: PathBuf,
    /// The workspace root: the directory of the file.
    pub root: PathBuf,
    /// Where run directories are made.
    pub state_dir: PathBuf,
    /// The profile in force.
    pub profile: Option<String>,
    /// The variables that set keys, without those that may hold a secret.
    pub settings: BTreeMap<String, String>,
    /// The inputs, checked, with their defaults.
    pub inputs: Map<String, Value>,
    /// Files and directories outside the root that may be read: inputs of type `path`.
    pub read_only_roots: Vec<PathBuf>,
    /// The providers, those of models without one included.
    pub providers: BTreeMap<Name, ProviderSpec>,
    /// The models.
    pub models: BTreeMap<Name, ModelSpec>,
    /// The models that the tasks to run may call.
    pub models_in_use: BTreeSet<Name>,
    /// The agents.
    pub agents: BTreeMap<Name, AgentSpec>,
    /// The tasks, in the order of the file.
    pub tasks: Vec<TaskSpec>,
    /// The whole-run ceilings.
    pub limits: Limits,
    /// How contexts are kept within their window.
    pub compaction: CompactionSpec,
    /// Variables for commands and shell tools.
    pub env: BTreeMap<String, String>,
    /// The secrets that could be read, by name: what must not appear in records.
    pub secrets: BTreeMap<String, Secret>,
    /// The tasks that a run without named tasks is for; empty: all.
    pub entry: Vec<Name>,
    /// What is written to the readable logs of agents: `error`, `warn`, `info`, `debug`, `trace`.
    pub log_level: String,
    /// What is probably not meant as it is written.
    pub warnings: Vec<Diagnostic>,
}

impl fmt::Debug for Config {
    /// Leaves the text out; secrets hide themselves.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("name", &self.name)
            .field("file", &self.file)
            .field("state_dir", &self.state_dir)
            .field("profile", &self.profile)
            .field("inputs", &self.inputs)
            .field("read_only_roots", &self.read_only_roots)
            .field("providers", &self.providers)
            .field("models", &self.models)
            .field("agents", &self.agents)
            .field("tasks", &self.tasks)
            .field("limits", &self.limits)
            .field("compaction", &self.compaction)
            .field("env", &self.env)
            .field("secrets", &self.secrets)
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// These agents, those to which they may delegate, and theirs.
    #[must_use]
    pub fn team<'a>(
        &'a self,
        mains: impl IntoIterator<Item = &'a Name>,
    ) -> BTreeMap<&'a Name, &'a AgentSpec> {
        plan::team(&self.agents, mains)
    }
}

/// Reads, layers and checks a configuration.
///
/// # Errors
/// Everything that is wrong with it, in one go.
pub fn load(sources: &Sources) -> Result<Config, Diagnostics> {
    match std::fs::read_to_string(&sources.file) {
        Ok(text) => load_text(&text, sources),
        Err(error) => {
            let place = Place::start(&named(sources, String::new()));
            let message = format!("cannot read `{}`: {error}", sources.file.display());
            let help = Some("name another file with `-f FILE`".to_owned());
            let code = "unreadable_file";
            Err(Diagnostics(vec![Diagnostic::new(code, Severity::Error, &place, message, help)]))
        }
    }
}

/// As [`load`], from a text; `sources.file` says where it would stand and need not exist.
///
/// # Errors
/// Everything that is wrong with it, in one go.
pub fn load_text(text: &str, sources: &Sources) -> Result<Config, Diagnostics> {
    let mut problems = Problems::default();
    let mut texts = vec![named(sources, text.to_owned())];
    let config = read(&mut texts, sources, &mut problems);
    let warnings = problems.settle(&texts)?;
    // Without an error there is a configuration: `read` gives none only after reporting one.
    config.map(|config| Config { warnings, ..config }).ok_or(Diagnostics(Vec::new()))
}

/// Where run directories are made, for those who only look at runs: needs no valid configuration
/// and no file.
#[must_use]
pub fn state_dir(sources: &Sources) -> PathBuf {
    let text = named(sources, std::fs::read_to_string(&sources.file).unwrap_or_default());
    let tree = raw::parse(&text).unwrap_or_default();
    let mut problems = Problems::default();
    let tree = layered(tree, sources, &Place::start(&text), &mut problems);
    state_dir_of(&tree, &root(&sources.file), sources)
}

fn named(sources: &Sources, text: String) -> Text {
    Arc::new(NamedSource::new(sources.file.display().to_string(), text))
}

/// The directory of the file, canonical when it exists.
fn root(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let absolute = || std::path::absolute(parent).unwrap_or_else(|_| parent.to_path_buf());
    parent.canonicalize().unwrap_or_else(|_| absolute())
}

fn read(texts: &mut Vec<Text>, sources: &Sources, problems: &mut Problems) -> Option<Config> {
    let start = Place::start(&texts[0]);
    let mut tree = match raw::parse(&texts[0]) {
        Ok(tree) => tree,
        Err(found) => {
            problems.push(*found);
            return None;
        }
    };
    if foreign(&tree, problems) {
        return None;
    }
    let root = root(&sources.file);
    let shelf = Shelf::new(&root, sources.recorded.as_ref());
    files::include(&mut tree, &shelf, texts, problems);
    check::file(&tree, problems);
    header(&tree, &start, problems);
    let tree = layered(tree, sources, &start, problems);
    let config = build(&tree, &shelf, &root, texts, sources, problems)?;
    Some(Config { files: shelf.into_taken(), ..config })
}

/// Another tool has a file of the same name, with an array at this place.
fn foreign(tree: &Table, problems: &mut Problems) -> bool {
    let Some(agents) = tree.get("agents").filter(|e| matches!(e.node.raw, Raw::List(_))) else {
        return false;
    };
    let message = "this file belongs to another tool: its `agents` is an array";
    let help = "name the file of callsheet with `-f FILE`".to_owned();
    problems.error_help("foreign_file", &agents.key_place, message, Some(help));
    true
}

/// Checks what decides how the file is read.
fn header(tree: &Table, start: &Place, problems: &mut Problems) {
    match tree.get("version") {
        None => {
            let help = Some(format!("add `version = {VERSION}` as the first line"));
            problems.error_help("missing_version", start, "the file has no `version`", help);
        }
        Some(at) if at.node.integer() != Some(VERSION) => {
            let message = format!("this program reads version {VERSION} of the configuration");
            problems.error("unknown_version", &at.node.place, message);
        }
        Some(_) => {}
    }
    let Some(at) = tree.get("requires") else { return };
    let Some(text) = at.node.text() else { return };
    let own = env!("CARGO_PKG_VERSION");
    match numbers(text.trim_start_matches(">=").trim()) {
        None => {
            let message = format!("`{text}` is not a minimum version");
            let help = Some("write it like `>=0.1`".to_owned());
            problems.error_help("bad_value", &at.node.place, message, help);
        }
        Some(least) if numbers(own).is_some_and(|own| own < least) => {
            let message = format!("the file asks for callsheet {text}; this is {own}");
            problems.error("requires", &at.node.place, message);
        }
        Some(_) => {}
    }
}

/// The three numbers of a version, of which the last two may be left out.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut numbers = [0; 3];
    let parts: Vec<&str> = version.split('.').collect();
    if parts.len() > numbers.len() {
        return None;
    }
    for (number, part) in numbers.iter_mut().zip(parts) {
        *number = part.parse().ok()?;
    }
    Some(numbers)
}

/// Lays the profile, the variables and the flags over the file.
fn layered(mut tree: Table, sources: &Sources, start: &Place, problems: &mut Problems) -> Table {
    let profiles = tree.remove("profiles");
    let profile = sources.profile.as_deref().and_then(|name| {
        let all = profiles.as_ref().and_then(|entry| entry.node.table());
        profile(name, all, start, problems)
    });
    let environment = layers::environment(&sources.environment, &tree);
    let flags = layers::flags(&sources.overrides);
    check::overlay(&environment.tree, "", problems);
    check::overlay(&flags.tree, "", problems);
    let profile = Layer::new("profile", profile.unwrap_or_default());
    layers::merge(&[layers::built_in(), Layer::new("file", tree), profile, environment, flags])
}

fn profile(
    name: &str,
    profiles: Option<&Table>,
    start: &Place,
    problems: &mut Problems,
) -> Option<Table> {
    if let Some(found) = profiles.and_then(|all| all.get(name)) {
        let mut table = found.node.table()?.clone();
        table.came_from(&format!("profile `{name}`").into());
        return Some(table);
    }
    let known = profiles.map(|all| all.0.iter().map(|entry| entry.key.as_str()).collect());
    let known: Vec<&str> = known.unwrap_or_default();
    let help = match (names::nearest(name, known.iter().copied()), known.as_slice()) {
        (_, []) => "the file has no profiles".to_owned(),
        (Some(near), all) => format!("did you mean `{near}`? there is {}", names::list(all)),
        (None, all) => format!("there is {}", names::list(all)),
    };
    let place = Place { origin: Some("--profile".into()), ..start.clone() };
    let message = format!("there is no profile `{name}`");
    problems.error_help("unknown_profile", &place, message, Some(help));
    None
}

/// Turns each section into what the program needs.
fn build(
    tree: &Table,
    shelf: &Shelf<'_>,
    root: &Path,
    texts: &[Text],
    sources: &Sources,
    problems: &mut Problems,
) -> Option<Config> {
    let inputs = inputs::inputs(tree, root, sources, problems);
    let mut models = providers::models(tree, sources, problems);
    let setting = agents::Setting { tree, root, sources, shelf, models: &models.models };
    let agents = agents::agents(setting, problems);
    let tasks = tasks::tasks(tree, problems);
    if tree.section("tasks").0.is_empty() {
        let help = Some("add a [tasks.NAME]".to_owned());
        problems.error_help("no_tasks", &Place::start(&texts[0]), "the file has no tasks", help);
    }
    let entry = plan::entry(tree, problems);
    let compaction = compaction::compaction(tree, root, &models.models, problems);
    let used = plan::models_in_use(&tasks, &agents, &compaction, &entry, &sources.targets);
    let setting = providers::Setting { tree, root, sources, used: &used };
    let providers = providers::providers(setting, &mut models, problems);
    plan::prices(tree, &models.models, &used, problems);
    providers::check_capabilities(tree, &models.models, &providers, problems);
    let env = env::variables(tree, &inputs.values, sources, problems);
    let secrets = env::secrets(tree, root, sources, problems);
    let directory = root.file_name().map(|name| name.to_string_lossy().into_owned());
    let file = root.join(sources.file.file_name().unwrap_or_default());
    Some(Config {
        name: tree.text("name").map(str::to_owned).or(directory).unwrap_or_default(),
        description: tree.text("description").map(str::to_owned),
        text: texts.first()?.inner().clone(),
        files: BTreeMap::new(),
        file,
        root: root.to_path_buf(),
        state_dir: state_dir_of(tree, root, sources),
        profile: sources.profile.clone(),
        settings: recorded::settings(&sources.environment),
        inputs: inputs.values,
        read_only_roots: inputs.read_only_roots,
        providers,
        models: models.models,
        models_in_use: used,
        agents,
        tasks,
        limits: limits(tree),
        compaction,
        env,
        secrets,
        entry,
        log_level: tree.section("logs").text("level").unwrap_or_default().to_owned(),
        warnings: Vec::new(),
    })
}

/// The ceilings. The defaults are a layer of their own, so that a value is missing only where an
/// error is reported already.
fn limits(tree: &Table) -> Limits {
    let table = tree.section("limits");
    let count = |key: &str| table.whole::<usize>(key).unwrap_or_default();
    Limits {
        max_concurrency: count("max_concurrency"),
        max_depth: table.whole("max_depth").unwrap_or_default(),
        max_children: count("max_children"),
        max_descendants: count("max_descendants"),
        timeout: table.duration("timeout"),
        fail_fast: table.truth("fail_fast").unwrap_or_default(),
        cancel_running: table.truth("cancel_running").unwrap_or_default(),
        grace_period: table.duration("grace_period").unwrap_or_default(),
    }
}

/// The directory of runs: a flag, `CALLSHEET_STATE_DIR`, or the file; what the file says is meant
/// from its own directory, the others from the current one.
fn state_dir_of(tree: &Table, root: &Path, sources: &Sources) -> PathBuf {
    let here = |path: &str| std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    let entry = tree.section("state").get("dir");
    let text = entry.and_then(|entry| entry.node.text()).unwrap_or_default();
    if entry.is_some_and(|entry| entry.node.place.text.name() == "command line") {
        return here(text);
    }
    let variable = sources.environment.get("CALLSHEET_STATE_DIR").filter(|dir| !dir.is_empty());
    variable.map_or_else(|| root.join(text), |dir| here(dir))
}

#[cfg(test)]
mod tests;
