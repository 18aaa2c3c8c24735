//! Builds the agents of a configuration: their instructions, tools, models and permissions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::concern::leads_outside;
use super::diagnostic::{NO_HELP, Text};
use super::raw::{Agent, Settings};
use super::shape::{Entry, Field, Item};
use super::{Setting, answers, budgets, foreign, loops, names, sandbox};
use crate::id::Name;
use crate::own_tool::{OwnTool, WaitsFor};
use crate::permission::{Bound, Permissions, Rule};
use crate::policy::RestartPolicy;
use crate::spec::{AgentSpec, ModelSpec};
use crate::tool::bash;

/// Code of the warning about a rule that allows more than its text shows.
pub const LOOSE_RULE: &str = "loose_rule";

/// Names of the built-in tools that work outside the agent.
const TOOLS: [&str; 7] =
    ["bash", "read_file", "write_file", "edit_file", "glob", "grep", "load_skill"];

/// Directory of the skills, below the workspace root.
const SKILLS: &str = ".agents/skills";

type Models = BTreeMap<Name, ModelSpec>;

/// Turns `[agents]` into agent definitions.
pub(super) fn agents(setting: Setting<'_>, models: &Models) -> BTreeMap<Name, AgentSpec> {
    let permissions = permissions(setting);
    known_model(&setting.raw.defaults.model, models, setting);
    let agent = |(entry, raw): (&Entry<Agent>, &Agent)| {
        let name = Name::new(&entry.name).ok()?;
        Some((name.clone(), agent(setting, name, entry, raw, models, &permissions)?))
    };
    setting.raw.agents.values().filter_map(agent).collect()
}

fn agent(
    setting: Setting<'_>,
    name: Name,
    entry: &Entry<Agent>,
    raw: &Agent,
    models: &Models,
    permissions: &Permissions,
) -> Option<AgentSpec> {
    let instructions = instructions(setting, raw);
    let sub_agents = sub_agents(setting, raw);
    let tools = tools(setting, raw, &sub_agents);
    let messages = *raw.messages;
    let own = &raw.permissions;
    let own_allow = rules(&own.allow, RuleList::Allow, setting);
    let own = Bound {
        deny: rules(&own.deny, RuleList::Restrict, setting),
        grants: rules(&own.grants, RuleList::Allow, setting),
    };
    let permissions = Permissions { own_allow, own, ..permissions.clone() };
    warn_of_texts(setting, raw);
    warn_of_background(setting, raw);
    warn_of_denied_tools(setting, entry, raw, &permissions);
    Some(AgentSpec {
        description: raw.description.clone().unwrap_or_default(),
        instructions,
        tools,
        sub_agents,
        max_turns: raw.max_turns.unwrap_or(*setting.raw.defaults.max_turns),
        permissions,
        restart: RestartPolicy {
            strategy: *raw.restart.strategy,
            max_restarts: *raw.restart.max_restarts,
            window: *raw.restart.window,
        },
        skills: skills(setting, raw),
        confinement: sandbox::confinement(setting, &raw.sandbox),
        output_schema: answers::schema(setting, &raw.output_schema),
        output_retries: *raw.output_retries,
        budget: budgets::budget(raw.budget.as_ref()),
        loops: loops::loops(setting, raw),
        messages,
        background: *raw.background,
        ..AgentSpec::new(name, model(setting, entry, raw, models)?)
    })
}

/// Warns of agents of the main file that nothing starts: no task, no check and no other agent.
pub(super) fn unused(setting: Setting<'_>, main: &Text) {
    let Settings { agents, tasks, permissions, .. } = setting.raw;
    let proposes =
        |agent: &Agent| agent.tools.iter().any(|tool| tool.value == OwnTool::ProposeTasks.name());
    // Tasks that are added later may name any agent.
    let grows = setting.sources.plan.is_some()
        || permissions.as_ref().is_some_and(|rules| rules.plan.is_set())
        || agents.values().any(|(_, agent)| proposes(agent));
    if grows || setting.raw.tasks.is_wrong() {
        return;
    }
    let of_checks = tasks.values().flat_map(|(_, task)| task.checks.iter());
    let of_checks = of_checks.filter_map(|check| check.value.agent.as_ref());
    let of_tasks = tasks.values().filter_map(|(_, task)| task.agent.as_ref());
    let children = agents.values().flat_map(|(_, agent)| agent.sub_agents.iter());
    let children = children.map(|name| &name.value);
    let used: BTreeSet<&String> = of_tasks.chain(of_checks).chain(children).collect();
    // A profile that is not chosen now may name it.
    let quoted: BTreeSet<&str> = ['"', '\''].iter().flat_map(|c| main.inner().split(*c)).collect();
    let is_named = |name: &String| used.contains(name) || quoted.contains(name.as_str());
    for entry in agents.iter().filter(|entry| !is_named(&entry.name)) {
        // Included files may be shared with other workflows.
        if Arc::ptr_eq(&entry.at.key.text, main) {
            let message = format!("no task uses agent `{}`", entry.name);
            let help = "name it as the `agent` of a task or in `sub_agents`, or remove it";
            setting.problems.warning("unused_agent", &entry.at.key, message, help);
        }
    }
}

/// Returns the system prompt: the instructions, if there are any, then each context file between
/// `<file path="...">` and `</file>`.
fn instructions(setting: Setting<'_>, raw: &Agent) -> String {
    let Setting { root, shelf, problems, .. } = setting;
    // Instructions may be missing: the prompt of the task alone can be enough.
    let mut text = raw.instructions.clone().unwrap_or_default();
    if let Some(at) = raw.instructions_file.at().filter(|_| raw.instructions.is_some()) {
        let message = "`instructions` and `instructions_file` exclude each other";
        problems.error("conflict", &at.key, message, NO_HELP);
    } else if let Some((file, place)) = raw.instructions_file.placed() {
        text =
            shelf.read(&root.join(file), place, problems).map(|read| read.text).unwrap_or_default();
    }
    for Item { value: pattern, at } in raw.context_files.iter() {
        for path in shelf.expand(pattern, &at.value, problems) {
            let Some(content) = shelf.read(&path, &at.value, problems) else { continue };
            let shown = path.strip_prefix(root).unwrap_or(&path).display();
            let content = content.text.trim_end();
            // Writing to a string cannot fail.
            let _ = write!(text, "\n\n<file path=\"{shown}\">\n{content}\n</file>");
        }
    }
    text
}

fn sub_agents(setting: Setting<'_>, raw: &Agent) -> Vec<Name> {
    let mut found = Vec::new();
    for Item { value: name, at } in raw.sub_agents.iter() {
        setting.raw.agents.must_have("unknown_agent", name, &at.value, setting.problems);
        found.extend(Name::new(name));
    }
    found.sort();
    found.dedup();
    found
}

/// Returns the tools that are listed and those that follow from other keys: `delegate` if there are
/// `sub_agents`, `load_skill` if there are `skills`, `send_message` and `list_agents` if `messages` allows any, `wait`,
/// `check_child` and `stop_child` if children may work in the background.
fn tools(setting: Setting<'_>, raw: &Agent, sub_agents: &[Name]) -> Vec<Name> {
    let problems = setting.problems;
    let (send, list) = (OwnTool::SendMessage.name(), OwnTool::ListAgents.name());
    let writes = !raw.messages.is_nobody();
    let of_background = [OwnTool::Wait, OwnTool::CheckChild, OwnTool::StopChild].map(OwnTool::name);
    let background = *raw.background && !sub_agents.is_empty();
    let mut found = Vec::new();
    for Item { value: tool, at } in raw.tools.iter() {
        let mut known = all_tools(setting);
        if !known.any(|known| known == tool) {
            match foreign::tool(tool) {
                None if tool.contains('(') && foreign::rule(tool).is_some() => {
                    let rule = foreign::rule(tool).unwrap_or_default();
                    let name = rule.split('(').next().unwrap_or_default();
                    let message = format!("`{tool}` is a rule, and `tools` has names");
                    let help =
                        format!("write `{name}` here, and \"{rule}\" in `allow` of [permissions]");
                    problems.error("unknown_tool", &at.value, message, help);
                }
                // Which tools there are is not known.
                None if setting.raw.tools.is_wrong() => {}
                None => {
                    let known = all_tools(setting);
                    names::report_unknown("unknown_tool", tool, &at.value, known, problems);
                }
                Some(here) => {
                    let (message, help) =
                        (format!("there is no tool `{tool}`"), format!("it is `{here}` here"));
                    problems.error("unknown_tool", &at.value, message, help);
                }
            }
        }
        if tool == OwnTool::Delegate.name() && sub_agents.is_empty() {
            let message = "`delegate` is listed, but there is nobody to delegate to";
            let help = "name them in `sub_agents`";
            problems.warning("no_sub_agents", &at.value, message, help);
        }
        if [send, list].contains(&tool.as_str()) && !writes {
            let message = format!("`{tool}` is listed, but the agent may write to nobody");
            let help = "set `messages = \"parent\"` or `messages = \"run\"`";
            problems.warning("unused_key", &at.value, message, help);
        }
        if of_background.contains(&tool.as_str()) && !background {
            let message =
                format!("`{tool}` is listed, but no child of the agent works in the background");
            let help = "set `background = true`, and name its children in `sub_agents`";
            problems.warning("unused_key", &at.value, message, help);
        }
        found.extend(Name::new(tool));
    }
    let delegate = OwnTool::Delegate.name();
    // Without the key they reach nobody.
    found.retain(|tool| writes || ![send, list].contains(&tool.as_str()));
    found.retain(|tool| background || !of_background.contains(&tool.as_str()));
    let due = [
        (delegate, !sub_agents.is_empty()),
        ("load_skill", !raw.skills.is_empty()),
        (send, writes),
        (list, writes),
    ];
    let due = due.into_iter().chain(of_background.map(|tool| (tool, background)));
    let due = due.filter(|(_, is_due)| *is_due);
    found.extend(due.filter_map(|(tool, _)| Name::new(tool).ok()));
    found.sort();
    found.dedup();
    found
}

/// Returns the names of the built-in tools, of those that an embedding program adds, and of those
/// in `[tools]`.
fn all_tools(setting: Setting<'_>) -> impl Iterator<Item = &str> {
    given_tools(setting).chain(setting.raw.tools.names())
}

/// Returns the names of the tools that are there before `[tools]` adds any.
pub(super) fn given_tools(setting: Setting<'_>) -> impl Iterator<Item = &str> {
    let own = OwnTool::ALL.iter().map(|tool| tool.name());
    TOOLS.into_iter().chain(own).chain(setting.sources.extra_tools.iter().map(Name::as_str))
}

fn skills(setting: Setting<'_>, raw: &Agent) -> Vec<String> {
    let skill = |Item { value: skill, at }: &Item<String>| {
        let file = Path::new(SKILLS).join(skill).join("SKILL.md");
        let is_inside = leads_outside(setting.root, &file.to_string_lossy()).is_none();
        if !is_inside || !setting.root.join(&file).is_file() {
            let message = format!("skill `{skill}` has no file `{}`", file.display());
            setting.problems.warning("missing_skill", &at.value, message, NO_HELP);
        }
        skill.clone()
    };
    raw.skills.iter().map(skill).collect()
}

/// Returns the model of an agent: its own, else that of `[defaults]`, else the one named `default`,
/// else the only one. Reports an error if there is none.
fn model(setting: Setting<'_>, entry: &Entry<Agent>, raw: &Agent, models: &Models) -> Option<Name> {
    known_model(&raw.model, models, setting);
    let named = if raw.model.is_set() { &raw.model } else { &setting.raw.defaults.model };
    if named.is_set() {
        return Name::new(named.as_ref()?).ok();
    }
    let mut all = models.keys();
    let only = match (models.get_key_value("default"), all.next(), all.next()) {
        (Some((default, _)), ..) => Some(default),
        (None, only, None) => only,
        _ => None,
    };
    if only.is_none() && !setting.raw.models.is_wrong() {
        let known: Vec<&str> = models.keys().map(Name::as_str).collect();
        let help = match known.as_slice() {
            [] => "add a [models.default]".to_owned(),
            known => format!("name one with `model`: {}", names::list(known)),
        };
        let message = format!("agent `{}` has no model", entry.name);
        setting.problems.error("no_model", &entry.at.key, message, help);
    }
    only.cloned()
}

/// Reports an error if a key names a model that does not exist.
pub(super) fn known_model(field: &Field<Option<String>>, models: &Models, setting: Setting<'_>) {
    let is_known = |name: &str| setting.raw.models.is_wrong() || models.contains_key(name);
    if let Some((name, place)) = field.placed().filter(|(name, _)| !is_known(name)) {
        let known = models.keys().map(Name::as_str);
        names::report_unknown("unknown_model", name, place, known, setting.problems);
    }
}

/// Returns the permission rules that all agents share.
fn permissions(setting: Setting<'_>) -> Permissions {
    let Some(raw) = setting.raw.permissions.as_ref() else { return Permissions::default() };
    Permissions {
        default: *raw.default,
        allow: rules(&raw.allow, RuleList::Allow, setting),
        ask: rules(&raw.ask, RuleList::Restrict, setting),
        deny: rules(&raw.deny, RuleList::Restrict, setting),
        sandboxed: *raw.sandboxed,
        non_interactive: *raw.non_interactive,
        ..Permissions::default()
    }
}

/// The kind of list in which a rule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleList {
    Allow,
    /// The rules of `ask` and `deny`. One that matches nothing protects nothing.
    Restrict,
}

fn rules(raw: &[Item<String>], list: RuleList, setting: Setting<'_>) -> Vec<Rule> {
    let rule = |item: &Item<String>| match Rule::parse(&item.value) {
        Ok(rule) => {
            names_a_tool(item, &rule, list, setting);
            if list == RuleList::Allow {
                warn_of_loose_rule(item, &rule, setting);
            }
            Some(rule)
        }
        Err(error) => {
            setting.problems.error("bad_rule", &item.at.value, error.to_string(), NO_HELP);
            None
        }
    };
    raw.iter().filter_map(rule).collect()
}

/// Warns of a rule that allows any arguments of a program of which nobody knows what it does with them.
fn warn_of_loose_rule(item: &Item<String>, rule: &Rule, setting: Setting<'_>) {
    let Some(program) = rule.open_command(bash::NAME) else { return };
    // A path is a program of this project, which its owner knows.
    if program.contains('/') || bash::is_known(program) {
        return;
    }
    let message = match program {
        "" => format!("`{}` allows other programs with any arguments", item.value),
        program => format!(
            "`{}` allows everything that `{program}` can do, with other files and programs too",
            item.value
        ),
    };
    let help = "name the arguments that are needed, without `*` where that is possible";
    setting.problems.warning(LOOSE_RULE, &item.at.value, message, help.to_owned());
}

/// Reports a rule that can never match, because no tool has the name.
fn names_a_tool(item: &Item<String>, rule: &Rule, list: RuleList, setting: Setting<'_>) {
    if all_tools(setting).any(|known| rule.names(known)) {
        return;
    }
    let tool = item.value.split('(').next().unwrap_or_default().trim();
    let help = match foreign::rule(&item.value) {
        Some(here) => format!("write it as `{here}`"),
        None => names::suggest(tool, all_tools(setting)),
    };
    let message = format!("the rule `{}` matches no tool", item.value);
    let place = &item.at.value;
    match list {
        RuleList::Allow => setting.problems.warning("unmatched_rule", place, message, help),
        RuleList::Restrict => setting.problems.error("unmatched_rule", place, message, help),
    }
}

/// Warns of texts of an agent that do not do what they seem to.
/// Warns of an agent whose children could work in the background, if it has none.
fn warn_of_background(setting: Setting<'_>, raw: &Agent) {
    if let Some(at) = raw.background.at()
        && *raw.background
        && raw.sub_agents.is_empty()
    {
        let message = "`background` has no effect, because the agent has no children";
        let help = "name those to which it may delegate in `sub_agents`";
        setting.problems.warning("unused_key", &at.key, message, help);
    }
}

fn warn_of_texts(setting: Setting<'_>, raw: &Agent) {
    let texts = [("instructions", &raw.instructions), ("description", &raw.description)];
    for (key, field) in texts {
        let Some((text, place)) = field.placed() else { continue };
        if text.trim().is_empty() {
            let message = format!("`{key}` is blank");
            setting.problems.warning("empty_prompt", place, message, NO_HELP);
        }
        if let Some(at) = text.find("{{") {
            let written = place.written().find("{{").unwrap_or(at);
            let place = place.part(written..written + 2);
            let message = format!("`{key}` is not a template: the agent reads `{{{{` as it is");
            let help = "insert values into the `prompt` of the task";
            setting.problems.warning("unused_template", &place, message, help);
        }
    }
}

/// Warns of the tools of an agent that no rule can allow, so that each call needs a person.
fn warn_of_denied_tools(
    setting: Setting<'_>,
    entry: &Entry<Agent>,
    raw: &Agent,
    permissions: &Permissions,
) {
    if setting.problems.mentions("bad_rule", "") {
        // A rule that could not be read may be the one that allows them.
        return;
    }
    for Item { value: tool, at } in raw.tools.iter() {
        let is_known = all_tools(setting).any(|known| known == tool);
        let is_free = OwnTool::named(tool).is_some_and(|own| {
            // A tool that asks by itself needs no permission, unless a rule denies it.
            let asks = own.waits_for() == WaitsFor::Person && !permissions.always_denies(tool);
            asks || !own.permission().is_judged()
        });
        if !is_known || is_free || permissions.can_allow(tool) {
            continue;
        }
        let agent = &entry.name;
        let message = match permissions.always_denies(tool) {
            true => format!("agent `{agent}` can never use `{tool}`: every call is denied"),
            false => format!(
                "every call of `{tool}` by agent `{agent}` needs the answer of a person: a run that \
                 cannot ask one denies it"
            ),
        };
        let help = match tool.as_str() {
            _ if permissions.always_denies(tool) => {
                format!(
                    "remove it from `tools`, or what denies it: a rule, or `default = \"deny\"` \
                     without a rule like `allow = [\"{tool}\"]`"
                )
            }
            "bash" => {
                "allow what it needs by a rule in [permissions], like `allow = [\"bash(cargo test*)\"]`".to_owned()
            }
            tool => format!("allow it by a rule in [permissions]: `allow = [\"{tool}\"]`"),
        };
        setting.problems.warning("needs_person", &at.value, message, help);
    }
}
