//! The configuration: reads `agents.toml` and turns it into the values that the program needs.
//!
//! Owns reading, layering and checking. All problems are found at once and before a model is
//! called; nothing here prints, calls a model or uses the network. Actors never see these types,
//! only the values they need.
//!
//! The file is read as a tree of values with their places (`tree`). Each key is checked against its
//! declaration (`raw`, `shape`, `check`). figment merges the layers (`layers`). Then each section
//! is turned into the values that the program needs, and the names in it are resolved.

mod agents;
mod answers;
mod approvals;
mod bounds;
mod budgets;
mod check;
mod compaction;
mod compared;
mod concern;
mod diagnostic;
mod env;
mod excerpt;
mod fan_out;
mod files;
mod foreign;
mod given;
mod graphs;
mod header;
mod hints;
mod inputs;
mod json_schema;
mod keys;
mod layers;
mod limits;
mod loops;
mod models;
mod names;
mod network;
mod notify;
mod output_files;
mod output_types;
mod overrides;
mod paths;
mod plan;
mod prices;
mod proposal;
mod providers;
mod raw;
mod recorded;
mod reference;
mod retry;
mod sandbox;
mod scripts;
mod shape;
mod size;
mod sources;
mod state;
mod tasks;
mod templates;
mod tools;
mod tree;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use figment::value::Dict;
use miette::NamedSource;
use serde_json::{Map, Value};

pub use self::agents::LOOSE_RULE;
pub use self::compared::{Comparison, KeyChange, NotCompared, compared};
pub(crate) use self::concern::is_secret;
pub use self::diagnostic::{Concern, Diagnostic, Diagnostics, Severity};
pub use self::excerpt::Excerpt;
pub use self::given::as_toml;
pub use self::json_schema::json_schema;
pub use self::keys::Secret;
pub use self::names::{did_you_mean, suggest};
pub use self::notify::{NotifySpec, WebhookSpec};
pub use self::prices::PriceSource;
pub(crate) use self::proposal::wanted_of;
pub use self::providers::{ProviderKind, ProviderSpec};
pub use self::raw::{VERSION, known_key_variables};
pub use self::reference::{diagnostic_codes, reference};
pub use self::sources::{Missing, Outside, ProposedPlan, Sources};
pub use self::state::{records_outside, state_dir};
pub use self::templates::{RUN_FIELDS, TASK_FIELDS};
pub use crate::context::compaction::CompactionSpec;

use self::check::Check;
use self::diagnostic::{Giver, NO_HELP, Origin, Place, Problems, Sorted, Text};
use self::files::{Form, Shelf};
use self::given::Given;
use self::graphs::{Graph, Parts};
use self::raw::{Header, Settings};
use self::shape::Section;
use self::tree::Places;
use crate::id::Name;
use crate::permission;
use crate::spec::budget::Budget;
use crate::spec::hooks::HookSpec;
use crate::spec::keeping::Keeping;
use crate::spec::sandbox::SandboxSpec;
use crate::spec::tool::CommandTool;
use crate::spec::{AgentSpec, Limits, ModelSpec, TaskSpec};

/// A checked configuration in the form that the program needs.
#[derive(Clone)]
pub struct Config {
    /// The name of the workflow; by default the name of the directory.
    pub name: String,
    /// The purpose of the workflow.
    pub description: Option<String>,
    /// The text of the file, without the files that it includes.
    pub text: String,
    /// The texts of the files that it names, by path: included files, instructions and context
    /// files.
    pub files: BTreeMap<String, String>,
    /// The absolute path of the file.
    pub file: PathBuf,
    /// The workspace root: the directory of the file.
    pub root: PathBuf,
    /// The directory in which run directories are made.
    pub state_dir: PathBuf,
    /// What is kept of its earlier runs.
    pub keeping: Keeping,
    /// The profile in use.
    pub profile: Option<String>,
    /// The file with the plan that was added, if one was.
    pub plan: Option<PathBuf>,
    /// The answer of the file to plans that somebody else wrote.
    pub plans: permission::PermissionDecision,
    /// The parts that the configuration was made from, to make it again with more tasks.
    pub sources: Sources,
    /// The environment variables that set configuration keys, except those that may hold a secret.
    pub settings: BTreeMap<String, String>,
    /// The keys that `--set` and `--model` set for this run, with their values as they were typed.
    pub set: BTreeMap<String, String>,
    /// The inputs, checked and completed with their defaults.
    pub inputs: Map<String, Value>,
    /// Files and directories outside the root that may be read: the values of inputs of type
    /// `path`.
    pub read_only_roots: Vec<PathBuf>,
    /// The providers, including those of models that name none.
    pub providers: BTreeMap<Name, ProviderSpec>,
    /// The models, by name.
    pub models: BTreeMap<Name, ModelSpec>,
    /// Where the prices of the models that have one were found.
    pub price_sources: BTreeMap<Name, PriceSource>,
    /// Names of the models that the tasks to run may call.
    pub models_in_use: BTreeSet<Name>,
    /// The agents, by name.
    pub agents: BTreeMap<Name, AgentSpec>,
    /// The tools that are commands of the file, by name.
    pub tools: BTreeMap<Name, CommandTool>,
    /// The hooks of the run and of its tool calls.
    pub hooks: HookSpec,
    /// The time after which a question for a permission is denied.
    pub ask_timeout: Option<Duration>,
    /// Who is told of runs.
    pub notify: NotifySpec,
    /// The tasks, in the order of the file.
    pub tasks: Vec<TaskSpec>,
    /// Limits of the whole run.
    pub limits: Limits,
    /// The most that the run may spend.
    pub budget: Option<Budget>,
    /// Settings that keep each context within its window.
    pub compaction: CompactionSpec,
    /// Environment variables for commands and shell tools.
    pub env: BTreeMap<String, String>,
    /// What commands may reach.
    pub sandbox: SandboxSpec,
    /// The secrets that could be read, by name; no record may contain them.
    pub secrets: BTreeMap<String, Secret>,
    /// The tasks of a run for which no tasks were named; if empty, all tasks.
    pub entry: Vec<Name>,
    /// Warnings: values that are valid but probably not meant. If the configuration is partial, also
    /// the errors of that part.
    pub warnings: Vec<Diagnostic>,
    /// What the configuration wants that needs trust.
    pub concerns: Vec<Concern>,
    /// True if files outside the directory were left out ([`Outside::LeaveOut`]).
    pub is_partial: bool,
    /// The hash of the file and of the files that it includes.
    pub content_hash: String,
}

impl fmt::Debug for Config {
    /// Leaves the text of the file out. Secrets print as `***`.
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
            .field("tools", &self.tools)
            .field("hooks", &self.hooks)
            .field("notify", &self.notify)
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
    /// Returns the given agents and all agents that they can start, directly or through others.
    #[must_use]
    pub fn team<'a>(
        &'a self,
        mains: impl IntoIterator<Item = &'a Name>,
    ) -> BTreeMap<&'a Name, &'a AgentSpec> {
        plan::team(&self.agents, mains)
    }

    /// Returns true if an agent may propose tasks during a run.
    #[must_use]
    pub fn grows(&self) -> bool {
        plan::grows(&self.agents)
    }
}

/// Reads, layers and checks a configuration.
///
/// # Errors
/// Returns every problem of the configuration at once.
///
/// ```no_run
/// # use callsheet_engine::config as callsheet;
/// let config = callsheet::load(&callsheet::Sources::new("agents.toml").with_process_environment());
/// match config {
///     Ok(config) => println!("{} tasks", config.tasks.len()),
///     Err(mistakes) => eprintln!("{mistakes}"),
/// }
/// ```
pub fn load(sources: &Sources) -> Result<Config, Diagnostics> {
    let folders = [root(&sources.file), state_dir(sources)];
    if let Some(found) = files::not_text(&folders, &named(sources, String::new())) {
        return Err(Diagnostics(vec![found]));
    }
    match files::opened(&sources.file, files::MOST_CONFIGURATION) {
        Ok(read) => {
            // A link may lead to a file that is none of callsheet's, such as a key.
            let form = files::Form::of(&read.real, &root(&sources.file));
            load_as(&read.text, form, sources)
        }
        Err(error) => {
            let place = Place::start(&named(sources, String::new()));
            let message = format!("cannot read `{}`: {error}", sources.file.display());
            let help = match sources.file.exists() {
                true => NO_HELP,
                false => "name another file with `-f FILE`, or write one with `callsheet init`",
            };
            Err(Diagnostics(vec![Diagnostic::error("unreadable_file", &place, message, help)]))
        }
    }
}

/// Does the same as [`load`] with a text that is given; `sources.file` is the path that the text
/// would have and need not exist.
///
/// # Errors
/// Returns every problem of the configuration at once.
pub fn load_text(text: &str, sources: &Sources) -> Result<Config, Diagnostics> {
    load_as(text, Form::Configuration, sources)
}

fn load_as(text: &str, form: Form, sources: &Sources) -> Result<Config, Diagnostics> {
    let problems = Problems::default();
    let mut texts = vec![named(sources, text.to_owned())];
    let config = read(&mut texts, form, sources, &problems);
    let Sorted { found: warnings, concerns, has_errors } = problems.sorted(&texts);
    match config {
        // The mistakes of a part may be none of the whole.
        Some(config) if !has_errors || config.is_partial => {
            // The plans of agents stand last. They are no part of what a person trusts.
            let given = texts.len().saturating_sub(sources.proposed.len());
            let content_hash = files::hash(&texts[..given]);
            Ok(Config { warnings, concerns, content_hash, ..config })
        }
        _ => Err(Diagnostics(warnings)),
    }
}

/// Returns the names in a table of the configuration file, such as `tasks`; none if the file cannot
/// be read.
#[must_use]
pub fn names_of(sources: &Sources, table: &str) -> Vec<String> {
    let text = files::text_of(&sources.file).unwrap_or_default();
    let tree = text.parse::<toml::Table>().unwrap_or_default();
    let names = tree.get(table).and_then(toml::Value::as_table);
    names.into_iter().flat_map(toml::Table::keys).cloned().collect()
}

fn named(sources: &Sources, text: String) -> Text {
    Arc::new(NamedSource::new(sources.file.display().to_string(), text))
}

/// Returns the directory of the file; canonical if it exists.
fn root(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let absolute = || std::path::absolute(parent).unwrap_or_else(|_| parent.to_path_buf());
    parent.canonicalize().unwrap_or_else(|_| absolute())
}

fn read(
    texts: &mut Vec<Text>,
    form: Form,
    sources: &Sources,
    problems: &Problems,
) -> Option<Config> {
    let mut places = Places::default();
    let start = Place::start(&texts[0]);
    let mut tree = form.parse(&texts[0], &start, &mut places, problems)?;
    if let Some(agents) = tree.get("agents").map(|value| places.of(value))
        && agents.kind == tree::ARRAY
    {
        // The rest of such a file would only give misleading errors.
        let message = "this file belongs to another tool: its `agents` is an array";
        let help = "name the file of callsheet with `-f FILE`";
        problems.error("foreign_file", &agents.key, message, help);
        return None;
    }
    let root = root(&sources.file);
    let shelf = Shelf::new(&root, sources.recorded.as_ref(), sources.outside);
    let header = Header::read_keys(&tree, &places);
    files::include(&mut tree, &header.include, &shelf, texts, &mut places, problems);
    proposal::add(&mut tree, sources, &shelf, texts, &mut places, problems);
    let proposed = proposal::add_proposed(&mut tree, sources, &mut places, problems);
    Check::new(&places, problems, idle(sources)).file(&tree);
    header::check(&header, &start, problems);
    let (merged, given) = layered(tree, &header, sources, &mut places, &start, problems);
    // The layers are not checked again after the merge: each was checked by itself, with the places
    // and names that its author knows.
    let raw = Settings::read_keys(&merged, &places);
    let setting = Setting { raw: &raw, root: &root, sources, shelf: &shelf, problems };
    if !bounds::hold(setting) {
        return None;
    }
    let graphs = graphs::read(setting, &merged, texts, &mut places);
    let config = build(setting, &texts[0], &graphs);
    concern::concerns(setting);
    notify::concerns(setting);
    proposal::check(setting);
    proposal::concern(setting);
    texts.extend(proposed);
    let is_partial = shelf.left_out();
    let set = given.into_iter().map(|(key, given)| (key, given.text)).collect();
    Some(Config { files: shelf.into_taken(), is_partial, set, ..config })
}

/// Returns the severity of a key that never had an effect. For a recorded configuration it is a
/// warning, because the key was accepted when the run began.
fn idle(sources: &Sources) -> Severity {
    if sources.recorded.is_some() { Severity::Warning } else { Severity::Error }
}

/// Merges the profile, the variables and the flags over the file, in this order. Returns also the keys that the flags
/// of the run set.
fn layered(
    file: Dict,
    header: &Header,
    sources: &Sources,
    places: &mut Places,
    start: &Place,
    problems: &Problems,
) -> (Dict, BTreeMap<String, Given>) {
    let environment = layers::environment(sources, &file, places);
    let profile = sources.profile.as_deref();
    let profile = profile.and_then(|name| profile_of(name, header, places, start, problems));
    let profile = profile.unwrap_or_default();
    let given = given::given(sources, &[&environment, &profile, &file], problems);
    let flags = layers::flags(sources, &given, places);
    for layer in [&environment, &flags] {
        Check::new(places, problems, idle(sources)).overlay(layer);
    }
    (layers::merge([file, profile, environment, flags]), given)
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
        let origin = Origin::new(format!("profile `{name}`"), Giver::Project);
        places.came_from(&mut tree, &origin);
        return tree.into_dict();
    }
    let known: Vec<&str> = header.profiles.names().collect();
    let help = match (names::nearest(name, known.iter().copied()), known.as_slice()) {
        (_, []) => "the file has no profiles".to_owned(),
        (Some(near), all) => format!("did you mean `{near}`? there is {}", names::list(all)),
        (None, all) => format!("there is {}", names::list(all)),
    };
    let origin = Some(Origin::new("--profile", Giver::PersonForRun));
    let place = Place { origin, ..start.clone() };
    problems.error("unknown_profile", &place, format!("there is no profile `{name}`"), help);
    None
}

/// The arguments that every section needs to be turned into values.
#[derive(Clone, Copy, Debug)]
struct Setting<'a> {
    raw: &'a Settings,
    root: &'a Path,
    sources: &'a Sources,
    shelf: &'a Shelf<'a>,
    problems: &'a Problems,
}

/// Turns each section into the values that the program needs.
fn build(setting: Setting<'_>, text: &Text, graphs: &[Graph]) -> Config {
    let Setting { raw, root, sources, .. } = setting;
    let mut inputs = inputs::inputs(setting);
    let mut models = models::models(setting);
    let tools = tools::tools(setting, &inputs.values);
    loops::check(setting);
    let Parts { mut tasks, agents, .. } =
        graphs::parts(setting, &models.models, &mut inputs, graphs);
    output_files::check(setting, &tasks, &inputs.values);
    paths::check(setting, &mut tasks);
    plan::has_tasks(setting, text);
    agents::unused(setting, text);
    let entry = plan::entry(setting);
    let compaction = compaction::compaction(setting, &models.models);
    let used = plan::models_in_use(setting, &tasks, &agents, &compaction, &entry, &models.models);
    let providers = providers::providers(setting, &mut models, &used, &agents);
    let is_scripted = |model: &ModelSpec| providers::is_scripted(&providers, model);
    budgets::check(setting, &agents, &tasks);
    prices::check(setting, &models.models, &used, is_scripted);
    providers::check_capabilities(setting, &models.models, &providers);
    let directory = root.file_name().map(|name| name.to_string_lossy().into_owned());
    Config {
        name: raw.name.clone().or(directory).unwrap_or_default(),
        description: raw.description.clone(),
        text: text.inner().clone(),
        files: BTreeMap::new(),
        file: root.join(sources.file.file_name().unwrap_or_default()),
        root: root.to_path_buf(),
        state_dir: layers::state_dir(raw, root, sources),
        keeping: Keeping { runs: *raw.state.keep_runs, time: *raw.state.keep_for },
        profile: sources.profile.clone(),
        plan: sources.plan.clone(),
        plans: raw
            .permissions
            .as_ref()
            .map_or(permission::PermissionDecision::Ask, |rules| *rules.plan),
        sources: sources.clone(),
        settings: layers::recorded(&sources.environment),
        set: BTreeMap::new(),
        env: env::variables(setting, &inputs.values),
        sandbox: sandbox::sandbox(setting),
        inputs: inputs.values,
        read_only_roots: inputs.read_only_roots,
        providers,
        models: models.models,
        price_sources: models.price_sources,
        models_in_use: used,
        agents,
        tools,
        hooks: compaction::run_hooks(setting),
        ask_timeout: raw.permissions.as_ref().and_then(|rules| *rules.ask_timeout),
        notify: notify::notify(setting),
        tasks,
        limits: limits::limits(setting),
        budget: budgets::budget(raw.budget.as_ref()),
        compaction,
        secrets: env::secrets(setting),
        entry,
        warnings: Vec::new(),
        concerns: Vec::new(),
        is_partial: false,
        content_hash: String::new(),
    }
}

#[cfg(test)]
mod tests;
