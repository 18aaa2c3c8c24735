//! The configuration: `agents.toml` -> what the program needs, with diagnostics.
//!
//! Owns reading, layering and checking. All problems are found in one go and before anything is
//! spent; nothing here prints, calls a model or touches the network. Actors never see these types,
//! only the values they need.
//!
//! What the user wrote is a tree of values with places (`raw`); its layers are merged by figment
//! (`layers`); the keys are checked one by one (`schema`, `check`); then each section is
//! turned into what the program needs, and what it names is resolved.

mod agents;
mod check;
mod compaction;
mod diagnostic;
mod duration;
mod env;
mod files;
mod inputs;
mod json_schema;
mod keys;
mod layers;
mod names;
mod plan;
mod providers;
mod raw;
mod recorded;
mod reference;
mod retry;
mod shape;
mod tasks;
mod templates;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use figment::value::Dict;
use miette::NamedSource;
use serde_json::{Map, Value};

pub use self::diagnostic::{Diagnostic, Diagnostics, Severity};
pub use self::json_schema::json_schema;
pub use self::keys::Secret;
pub use self::providers::{ProviderKind, ProviderSpec};
pub use self::recorded::{KeyChange, changed_files, changed_settings, changes};
pub use self::reference::reference;
pub use self::templates::{RUN_FIELDS, TASK_FIELDS};
pub use crate::context::compaction::CompactionSpec;

use self::check::Check;
use self::diagnostic::{NO_HELP, Place, Problems, Text};
use self::files::Shelf;
use self::raw::{Header, Settings, VERSION};
use self::shape::Section;
use self::tree::Places;
use crate::id::Name;
use crate::spec::{AgentSpec, Limits, ModelSpec, TaskSpec};

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
            let help = "name another file with `-f FILE`";
            Err(Diagnostics(vec![Diagnostic::error("unreadable_file", &place, message, help)]))
        }
    }
}

/// As [`load`], from a text; `sources.file` says where it would stand and need not exist.
///
/// # Errors
/// Everything that is wrong with it, in one go.
pub fn load_text(text: &str, sources: &Sources) -> Result<Config, Diagnostics> {
    let problems = Problems::default();
    let mut texts = vec![named(sources, text.to_owned())];
    let config = read(&mut texts, sources, &problems);
    let warnings = problems.settle(&texts)?;
    // Without an error there is a configuration: `read` gives none only after reporting one.
    config.map(|config| Config { warnings, ..config }).ok_or(Diagnostics(Vec::new()))
}

/// Where run directories are made, for those who only look at runs: needs no valid configuration
/// and no file.
#[must_use]
pub fn state_dir(sources: &Sources) -> PathBuf {
    let text = named(sources, std::fs::read_to_string(&sources.file).unwrap_or_default());
    let (mut places, ignored) = (Places::default(), Problems::default());
    let tree = places.parse(&text).unwrap_or_default();
    let header = Header::read_keys(&tree, &places);
    let merged = layered(tree, &header, sources, &mut places, &Place::start(&text), &ignored);
    let raw = Settings::read_keys(&merged, &places);
    state_dir_of(&raw, &root(&sources.file), sources)
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

fn read(texts: &mut Vec<Text>, sources: &Sources, problems: &Problems) -> Option<Config> {
    let mut places = Places::default();
    let mut tree = places.parse(&texts[0]).map_err(|found| problems.add(*found)).ok()?;
    if let Some(agents) = tree.get("agents").map(|value| places.of(value))
        && agents.kind == tree::ARRAY
    {
        // Nothing else in the file means anything then.
        let message = "this file belongs to another tool: its `agents` is an array";
        let help = "name the file of callsheet with `-f FILE`";
        problems.error("foreign_file", &agents.key, message, help);
        return None;
    }
    let root = root(&sources.file);
    let shelf = Shelf::new(&root, sources.recorded.as_ref());
    let header = Header::read_keys(&tree, &places);
    files::include(&mut tree, &header.include, &shelf, texts, &mut places, problems);
    Check::new(&places, problems, idle(sources)).file(&tree);
    let start = Place::start(&texts[0]);
    check_header(&header, &start, problems);
    let merged = layered(tree, &header, sources, &mut places, &start, problems);
    // Each layer was checked by itself, with the places and the keys that its author knows.
    let raw = Settings::read_keys(&merged, &places);
    let setting = Setting { raw: &raw, root: &root, sources, shelf: &shelf, problems };
    let config = build(setting, &texts[0]);
    Some(Config { files: shelf.into_taken(), ..config })
}

/// How bad it is to use a key that never did anything: what a run recorded was accepted then.
fn idle(sources: &Sources) -> Severity {
    if sources.recorded.is_some() { Severity::Warning } else { Severity::Error }
}

/// Checks what decides how the file is read.
fn check_header(header: &Header, start: &Place, problems: &Problems) {
    match (header.version.at(), *header.version) {
        (None, _) => {
            let help = format!("add `version = {VERSION}` as the first line");
            problems.error("missing_version", start, "the file has no `version`", help);
        }
        (Some(_), Some(VERSION)) => {}
        (Some(at), _) => {
            let message = format!("this program reads version {VERSION} of the configuration");
            problems.error("unknown_version", &at.value, message, NO_HELP);
        }
    }
    let Some((text, place)) = header.requires.placed() else { return };
    let own = env!("CARGO_PKG_VERSION");
    match numbers(text.trim_start_matches(">=").trim()) {
        None => {
            let message = format!("`{text}` is not a minimum version");
            problems.error("bad_value", place, message, "write it like `>=0.1`");
        }
        Some(least) if numbers(own).is_some_and(|own| own < least) => {
            let message = format!("the file asks for callsheet {text}; this is {own}");
            problems.error("requires", place, message, NO_HELP);
        }
        Some(_) => {}
    }
}

/// The numbers of a version, three at most.
fn numbers(version: &str) -> Option<Vec<u64>> {
    let numbers: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() <= 3)
}

/// Lays the profile, the variables and the flags over the file.
fn layered(
    file: Dict,
    header: &Header,
    sources: &Sources,
    places: &mut Places,
    start: &Place,
    problems: &Problems,
) -> Dict {
    let environment = layers::environment(&sources.environment, &file, places);
    let flags = layers::flags(&sources.overrides, places);
    for layer in [&environment, &flags] {
        Check::new(places, problems, idle(sources)).overlay(layer);
    }
    let profile = sources.profile.as_deref();
    let profile = profile.and_then(|name| profile_of(name, header, places, start, problems));
    layers::merge([file, profile.unwrap_or_default(), environment, flags])
}

fn profile_of(
    name: &str,
    header: &Header,
    places: &mut Places,
    start: &Place,
    problems: &Problems,
) -> Option<Dict> {
    if let Some(found) = header.profiles.get(name) {
        let mut tree = found.value.clone()?;
        places.came_from(&mut tree, &format!("profile `{name}`").into());
        return tree.into_dict();
    }
    let known: Vec<&str> = header.profiles.names().collect();
    let help = match (names::nearest(name, known.iter().copied()), known.as_slice()) {
        (_, []) => "the file has no profiles".to_owned(),
        (Some(near), all) => format!("did you mean `{near}`? there is {}", names::list(all)),
        (None, all) => format!("there is {}", names::list(all)),
    };
    let place = Place { origin: Some("--profile".into()), ..start.clone() };
    problems.error("unknown_profile", &place, format!("there is no profile `{name}`"), help);
    None
}

/// What the sections are turned into values with.
#[derive(Clone, Copy, Debug)]
struct Setting<'a> {
    raw: &'a Settings,
    root: &'a Path,
    sources: &'a Sources,
    shelf: &'a Shelf<'a>,
    problems: &'a Problems,
}

/// Turns each section into what the program needs.
fn build(setting: Setting<'_>, text: &Text) -> Config {
    let Setting { raw, root, sources, problems, .. } = setting;
    let inputs = inputs::inputs(setting);
    let mut models = providers::models(setting);
    let agents = agents::agents(setting, &models.models);
    let tasks = tasks::tasks(setting);
    if raw.tasks.iter().next().is_none() {
        let (start, help) = (Place::start(text), "add a [tasks.NAME]");
        problems.error("no_tasks", &start, "the file has no tasks", help);
    }
    let entry = plan::entry(setting);
    let compaction = compaction::compaction(setting, &models.models);
    let used = plan::models_in_use(&tasks, &agents, &compaction, &entry, &sources.targets);
    let providers = providers::providers(setting, &mut models, &used);
    plan::prices(setting, &models.models, &used);
    providers::check_capabilities(setting, &models.models, &providers);
    let directory = root.file_name().map(|name| name.to_string_lossy().into_owned());
    Config {
        name: raw.name.clone().or(directory).unwrap_or_default(),
        description: raw.description.clone(),
        text: text.inner().clone(),
        files: BTreeMap::new(),
        file: root.join(sources.file.file_name().unwrap_or_default()),
        root: root.to_path_buf(),
        state_dir: state_dir_of(raw, root, sources),
        profile: sources.profile.clone(),
        settings: recorded::settings(&sources.environment),
        env: env::variables(setting, &inputs.values),
        inputs: inputs.values,
        read_only_roots: inputs.read_only_roots,
        providers,
        models: models.models,
        models_in_use: used,
        agents,
        tasks,
        limits: limits(&raw.limits),
        compaction,
        secrets: env::secrets(setting),
        entry,
        warnings: Vec::new(),
    }
}

/// The ceilings.
fn limits(raw: &raw::Limits) -> Limits {
    Limits {
        max_concurrency: *raw.max_concurrency,
        max_depth: *raw.max_depth,
        max_children: *raw.max_children,
        max_descendants: *raw.max_descendants,
        timeout: *raw.timeout,
        fail_fast: *raw.fail_fast,
        cancel_running: *raw.cancel_running,
        grace_period: *raw.grace_period,
    }
}

impl Default for Limits {
    /// The ceilings of a file that says nothing of them.
    fn default() -> Self {
        limits(&raw::Limits::default())
    }
}

/// The directory of runs: a flag, `CALLSHEET_STATE_DIR`, or the file; what the file says is meant
/// from its own directory, the others from the current one.
fn state_dir_of(raw: &Settings, root: &Path, sources: &Sources) -> PathBuf {
    let here = |path: &str| std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    let dir = &raw.state.dir;
    if dir.at().is_some_and(|at| at.value.text.name() == "command line") {
        return here(dir);
    }
    let variable = sources.environment.get("CALLSHEET_STATE_DIR").filter(|dir| !dir.is_empty());
    variable.map_or_else(|| root.join(dir.as_str()), |dir| here(dir))
}

#[cfg(test)]
mod tests;
