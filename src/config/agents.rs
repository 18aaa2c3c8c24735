//! Agents: their instructions, tools, models and permissions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::diagnostic::{Place, Problems};
use super::files::Shelf;
use super::raw::{Entry, Table};
use super::{Sources, names};
use crate::id::Name;
use crate::permission::{NonInteractive, Permissions, Rule, Verdict};
use crate::policy::{RestartPolicy, RestartStrategy};
use crate::spec::{AgentSpec, ModelSpec};

/// The tools that callsheet brings along.
const TOOLS: [&str; 12] = [
    "bash",
    "read_file",
    "write_file",
    "edit_file",
    "glob",
    "grep",
    "todo_write",
    "load_skill",
    "delegate",
    "compact",
    "recall",
    "snip",
];

/// Where skills are looked for, below the workspace root.
const SKILLS: &str = ".agents/skills";

/// What reading the agents needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub(super) tree: &'a Table,
    pub(super) root: &'a Path,
    pub(super) sources: &'a Sources,
    pub(super) shelf: &'a Shelf<'a>,
    pub(super) models: &'a BTreeMap<Name, ModelSpec>,
}

/// Reads `[agents]`.
pub(super) fn agents(setting: Setting<'_>, problems: &mut Problems) -> BTreeMap<Name, AgentSpec> {
    let permissions = permissions(setting, problems);
    default_model(setting, problems);
    let mut all = BTreeMap::new();
    for (entry, table) in setting.tree.tables("agents") {
        let Ok(name) = Name::new(&entry.key) else { continue };
        if let Some(agent) = agent(setting, &name, entry, table, &permissions, problems) {
            all.insert(name, agent);
        }
    }
    all
}

fn agent(
    setting: Setting<'_>,
    name: &Name,
    entry: &Entry,
    table: &Table,
    permissions: &Permissions,
    problems: &mut Problems,
) -> Option<AgentSpec> {
    let instructions = instructions(setting, table, problems);
    let sub_agents = sub_agents(setting.tree, table, problems);
    let mut tools = tools(setting, table, problems);
    let has_sub_agents = table.get("sub_agents").is_some() && !sub_agents.is_empty();
    add_steps(table, has_sub_agents, &mut tools, problems);
    tools.sort();
    tools.dedup();
    let own = table.section("permissions");
    let permissions =
        Permissions { own_allow: rules(own, "allow", setting, problems), ..permissions.clone() };
    let max_turns = setting.tree.section("defaults").whole("max_turns");
    Some(AgentSpec {
        description: table.text("description").unwrap_or_default().to_owned(),
        model: model(setting, name, entry, table, problems)?,
        instructions,
        tools,
        sub_agents,
        max_turns: table.whole("max_turns").or(max_turns).unwrap_or_default(),
        permissions,
        restart: restart(table.section("restart")),
        skills: skills(setting.root, table, problems),
        name: name.clone(),
    })
}

/// The system prompt: the instructions, if there are any, then each context file between `<file path="...">` and
/// `</file>`.
fn instructions(setting: Setting<'_>, table: &Table, problems: &mut Problems) -> String {
    let Setting { root, shelf, .. } = setting;
    let inline = table.text("instructions");
    let file = table.get("instructions_file");
    let mut text = match (inline, file) {
        (Some(_), Some(file)) => {
            let message = "`instructions` and `instructions_file` exclude each other";
            problems.error("conflict", &file.key_place, message);
            String::new()
        }
        (Some(inline), None) => inline.to_owned(),
        (None, Some(file)) => {
            let path = root.join(file.node.text().unwrap_or_default());
            shelf.read(&path, &file.node.place, problems).unwrap_or_default()
        }
        // The prompt alone can be enough.
        (None, None) => String::new(),
    };
    for (pattern, place) in table.texts("context_files") {
        for path in shelf.expand(pattern, place, problems) {
            let Some(content) = shelf.read(&path, place, problems) else { continue };
            let shown = path.strip_prefix(root).unwrap_or(&path).display();
            let content = content.trim_end();
            // Writing to a string cannot fail.
            let _ = write!(text, "\n\n<file path=\"{shown}\">\n{content}\n</file>");
        }
    }
    text
}

fn sub_agents(tree: &Table, table: &Table, problems: &mut Problems) -> Vec<Name> {
    let known = tree.section("agents");
    let mut all = Vec::new();
    for (text, place) in table.texts("sub_agents") {
        if known.get(text).is_none() {
            let help = names::suggest(text, known.0.iter().map(|entry| entry.key.as_str()));
            let message = format!("there is no agent `{text}`");
            problems.error_help("unknown_agent", place, message, help);
        }
        all.extend(Name::new(text));
    }
    all.sort();
    all.dedup();
    all
}

fn tools(setting: Setting<'_>, table: &Table, problems: &mut Problems) -> Vec<Name> {
    let mut all = Vec::new();
    for (text, place) in table.texts("tools") {
        let extra = extra_tools(setting);
        if !TOOLS.into_iter().chain(extra.clone()).any(|tool| tool == text) {
            let help = names::suggest(text, TOOLS.into_iter().chain(extra));
            let message = format!("there is no tool `{text}`");
            problems.error_help("unknown_tool", place, message, help);
        }
        all.extend(Name::new(text));
    }
    all
}

/// The tools that the program brings along, and those of `[tools]`: the section is not built, which
/// is said once, where it stands.
fn extra_tools(setting: Setting<'_>) -> impl Iterator<Item = &str> + Clone {
    let own = setting.tree.section("tools").0.iter().map(|entry| entry.key.as_str());
    setting.sources.extra_tools.iter().map(Name::as_str).chain(own)
}

/// Adds the tools that follow from other keys: to have somebody to delegate to, or a skill to
/// load, is to have the tool for it.
fn add_steps(table: &Table, has_sub_agents: bool, tools: &mut Vec<Name>, problems: &mut Problems) {
    if has_sub_agents {
        tools.extend(Name::new("delegate"));
    } else if let Some((_, place)) =
        table.texts("tools").into_iter().find(|(text, _)| *text == "delegate")
    {
        let message = "`delegate` is listed, but there is nobody to delegate to";
        let help = Some("name them in `sub_agents`".to_owned());
        problems.warning("no_sub_agents", place, message, help);
    }
    if !table.texts("skills").is_empty() {
        tools.extend(Name::new("load_skill"));
    }
}

fn skills(root: &Path, table: &Table, problems: &mut Problems) -> Vec<String> {
    let skills = table.texts("skills");
    for (text, place) in &skills {
        let file = Path::new(SKILLS).join(text).join("SKILL.md");
        if !root.join(&file).is_file() {
            let message = format!("skill `{text}` has no file `{}`", file.display());
            problems.warning("missing_skill", place, message, None);
        }
    }
    skills.into_iter().map(|(text, _)| text.to_owned()).collect()
}

fn restart(table: &Table) -> RestartPolicy {
    let usual = RestartPolicy::default();
    let strategy = match table.text("strategy") {
        Some("permanent") => RestartStrategy::Permanent,
        Some("transient") => RestartStrategy::Transient,
        Some("temporary") => RestartStrategy::Temporary,
        _ => usual.strategy,
    };
    RestartPolicy {
        strategy,
        max_restarts: table.whole("max_restarts").unwrap_or(usual.max_restarts),
        window: table.duration("window").unwrap_or(usual.window),
    }
}

/// The model of an agent: its own, else that of `[defaults]`, else the one named `default`, else
/// the only one.
fn model(
    setting: Setting<'_>,
    name: &Name,
    entry: &Entry,
    table: &Table,
    problems: &mut Problems,
) -> Option<Name> {
    let models = setting.models;
    if let Some(own) = table.get("model") {
        known_model(own, models, problems);
        return Name::new(own.node.text()?).ok();
    }
    if let Some(default) = setting.tree.section("defaults").text("model") {
        return Name::new(default).ok();
    }
    let mut all = models.keys();
    let only = match (models.get_key_value("default"), all.next(), all.next()) {
        (Some((default, _)), ..) => Some(default),
        (None, only, None) => only,
        _ => None,
    };
    if only.is_none() {
        let message = format!("agent `{name}` has no model");
        let known: Vec<&str> = models.keys().map(Name::as_str).collect();
        let help = match known.as_slice() {
            [] => "add a [models.default]".to_owned(),
            known => format!("name one with `model`: {}", names::list(known)),
        };
        problems.error_help("no_model", &entry.key_place, message, Some(help));
    }
    only.cloned()
}

/// Says so when a key names a model that does not exist.
pub(super) fn known_model(at: &Entry, models: &BTreeMap<Name, ModelSpec>, problems: &mut Problems) {
    let Some(text) = at.node.text() else { return };
    if !models.contains_key(text) {
        let help = names::suggest(text, models.keys().map(Name::as_str));
        let message = format!("there is no model `{text}`");
        problems.error_help("unknown_model", &at.node.place, message, help);
    }
}

fn default_model(setting: Setting<'_>, problems: &mut Problems) {
    if let Some(at) = setting.tree.section("defaults").get("model") {
        known_model(at, setting.models, problems);
    }
}

/// The rules that hold for every agent.
fn permissions(setting: Setting<'_>, problems: &mut Problems) -> Permissions {
    if setting.tree.get("permissions").is_none() {
        return Permissions::default();
    }
    let table = setting.tree.section("permissions");
    Permissions {
        default: match table.text("default") {
            Some("allow") => Verdict::Allow,
            Some("deny") => Verdict::Deny,
            _ => Verdict::Ask,
        },
        allow: rules(table, "allow", setting, problems),
        ask: rules(table, "ask", setting, problems),
        deny: rules(table, "deny", setting, problems),
        own_allow: Vec::new(),
        non_interactive: match table.text("non_interactive") {
            Some("allow") => NonInteractive::Allow,
            _ => NonInteractive::Deny,
        },
    }
}

fn rules(table: &Table, key: &str, setting: Setting<'_>, problems: &mut Problems) -> Vec<Rule> {
    let mut all = Vec::new();
    for (text, place) in table.texts(key) {
        match Rule::parse(text) {
            Ok(rule) => {
                names_a_tool(text, place, setting, problems);
                all.push(rule);
            }
            Err(error) => problems.error("bad_rule", place, error.to_string()),
        }
    }
    all
}

/// Warns of a rule that can never match, because it names no tool that there is.
fn names_a_tool(rule: &str, place: &Place, setting: Setting<'_>, problems: &mut Problems) {
    let tool = rule.split('(').next().unwrap_or_default().trim();
    let extra = extra_tools(setting);
    let mut known = TOOLS.into_iter().chain(extra.clone());
    if Name::new(tool).is_ok() && !known.any(|known| known == tool) {
        let help = names::nearest(tool, TOOLS.into_iter().chain(extra));
        let help = help.map(|near| format!("did you mean `{near}`?"));
        let message = format!("the rule names a tool that does not exist: `{tool}`");
        problems.warning("unknown_tool", place, message, help);
    }
}
