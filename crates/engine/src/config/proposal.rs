//! Adds the tasks of a plan that somebody else wrote, most often a model, to the configuration: of a
//! file (`run --plan FILE`) behind the approval of a person, or those that agents proposed during the
//! run.

use std::collections::BTreeMap;
use std::sync::Arc;

use figment::value::{Dict, Value};
use miette::NamedSource;

use super::diagnostic::{Giver, NO_HELP, Origin, Place, Problems, Text};
use super::files::{self, Form, Shelf};
use super::sources::ProposedPlan;
use super::tree::{self, Places};
use super::{Config, Diagnostic, Diagnostics, Outside, Setting, Severity, Sources, load_text};
use crate::id::{Name, RunId};
use crate::permission::PermissionDecision;
use crate::spec::{AgentSpec, TaskSpec};

/// The task that asks a person. The tasks of the plan depend on it.
const APPROVAL: &str = "approve_plan";

/// The keys that a plan may have.
const KEYS: [&str; 2] = ["version", "tasks"];

/// Why a plan names no file of tasks.
const NO_SUB_GRAPHS: &str = "a plan has no sub-graphs: nobody would be shown what their files hold";

/// The most tasks of a plan: a person has to read it.
const MOST: usize = 200;

/// The most mistakes of a plan that its author is told at once.
const MISTAKES: usize = 20;

/// The keys of tasks that an agent may propose without a person, where the file allows plans.
const HARMLESS: [&str; 22] = [
    "agent",
    "checks",
    "context",
    "context_budget",
    "depends_on",
    "description",
    "foreach",
    "foreach_as",
    "foreach_key",
    "join",
    "locks",
    "loop",
    "max_concurrency",
    "min_success",
    "on_failure",
    "output",
    "output_retries",
    "output_schema",
    "prompt",
    "retry",
    "timeout",
    "when",
];

/// Adds the tasks of the plan that was named, if one was, to the main file. Unless the file has
/// `permissions.plan = "allow"`, all of them wait for the approval of a person, who is shown the whole plan.
pub(super) fn add(
    main: &mut Dict,
    sources: &Sources,
    shelf: &Shelf<'_>,
    texts: &mut Vec<Text>,
    places: &mut Places,
    problems: &Problems,
) {
    let Some(file) = &sources.plan else { return };
    let written = file.display().to_string();
    let origin = Origin::new("--plan", sources.giver());
    let place = Place::outside("command line", "--plan ", &written, origin);
    let Some(read) = shelf.read(file, &place, problems) else { return };
    let form = Form::of(&read.real, shelf.root);
    let text: Text = Arc::new(NamedSource::new(written, read.text));
    texts.push(Arc::clone(&text));
    let Some(mut plan) = form.parse(&text, &place, places, problems) else { return };
    let Some(names) = names(&mut plan, &text, places, problems) else { return };
    let decision = decision(main);
    match decision.as_str() {
        Some("allow") => {}
        // [`check`] reports it.
        Some("deny") => {}
        _ => ask(&mut plan, &names, &text, &place, places),
    }
    enter(main, &names, &place, places);
    files::join(main, plan, places, problems);
}

/// Adds the tasks that agents proposed during the run, which were approved before. Returns their
/// texts.
pub(super) fn add_proposed(
    main: &mut Dict,
    sources: &Sources,
    places: &mut Places,
    problems: &Problems,
) -> Vec<Text> {
    let mut texts = Vec::new();
    for proposed in &sources.proposed {
        let text: Text = Arc::new(NamedSource::new(&proposed.label, proposed.text.clone()));
        texts.push(Arc::clone(&text));
        let place = Place::start(&text);
        let plan = Form::Configuration.parse(&text, &place, places, problems);
        let Some(mut plan) = plan else { continue };
        let Some(names) = names(&mut plan, &text, places, problems) else { continue };
        enter(main, &names, &place, places);
        files::join(main, plan, places, problems);
    }
    texts
}

/// Returns the names of the tasks of a plan, which has nothing else. Returns `None` if it has too few
/// or too many.
fn names(
    plan: &mut Dict,
    text: &Text,
    places: &Places,
    problems: &Problems,
) -> Option<Vec<String>> {
    plan.retain(|key, value| {
        let is_known = KEYS.contains(&key.as_str());
        if !is_known {
            let message = format!("a plan has only tasks, not `{key}`");
            let help = "agents, models, permissions and limits come from the main file";
            problems.error("bad_value", &places.of(value).key, message, help);
        }
        is_known && key != "version"
    });
    let names: Vec<String> = match plan.get("tasks") {
        Some(Value::Dict(_, tasks)) => tasks.keys().cloned().collect(),
        _ => Vec::new(),
    };
    if names.is_empty() || names.len() > MOST {
        let message = match names.len() {
            0 => "the plan has no tasks".to_owned(),
            count => format!("the plan has {count} tasks, more than {MOST}"),
        };
        problems.error("no_tasks", &Place::start(text), message, "add [tasks.NAME]");
        return None;
    }
    for (_, task) in plan.get("tasks").and_then(Value::as_dict).into_iter().flatten() {
        if let Some(file) = task.as_dict().and_then(|task| task.get("workflow")) {
            problems.error(
                "bad_value",
                &places.of(file).key,
                NO_SUB_GRAPHS,
                "write their tasks out",
            );
        }
    }
    Some(names)
}

/// Adds the tasks of a plan to `entry`: without this, a file with an `entry` would not run them.
fn enter(main: &mut Dict, names: &[String], place: &Place, places: &mut Places) {
    if let Some(Value::Array(_, entry)) = main.get_mut("entry") {
        entry.extend(names.iter().map(|name| given(name.as_str(), place, places)));
    }
}

/// The tasks that an agent proposes and that pass the check.
#[derive(Debug)]
pub(crate) struct Added {
    pub(crate) tasks: Vec<TaskSpec>,
    /// The agent definitions that are theirs alone.
    pub(crate) agents: Vec<AgentSpec>,
    /// The texts of the files that they name and that the configuration did not name before.
    pub(crate) files: BTreeMap<String, String>,
    /// True if the file allows them without the approval of a person.
    pub(crate) is_allowed: bool,
}

impl Config {
    /// Makes the configuration again with these plans, of which the last is new, and returns the tasks
    /// of the last. An agent of the definition `by` proposes it.
    ///
    /// # Errors
    /// Returns what is wrong with the last plan, in words for the model that wrote it.
    pub(crate) fn extended(&self, plans: Vec<ProposedPlan>, by: &Name) -> Result<Added, String> {
        let Some(ProposedPlan { label, text }) = plans.last().cloned() else {
            return Err("there is no plan".to_owned());
        };
        if self.plans == PermissionDecision::Deny {
            return Err("`permissions.plan` denies plans".to_owned());
        }
        let place = Arc::new(NamedSource::new(&label, text.clone()));
        if let Ok(tree) = Places::default().parse(&place) {
            self.judge_files(&tree)?;
        }
        let sources = Sources {
            proposed: plans,
            run: None,
            // What a person trusted was read when the run began.
            recorded: Some(self.files.clone()),
            outside: Outside::LeaveOut,
            ..self.sources.clone()
        };
        let found = load_text(&self.text, &sources).map_err(|found| mistakes(&found, &label))?;
        let errors = found.warnings.iter().filter(|found| found.severity == Severity::Error);
        let errors: Vec<_> = errors.cloned().collect();
        if !errors.is_empty() {
            return Err(mistakes(&Diagnostics(errors), &label));
        }
        let is_known = |text: &String| self.concerns.iter().any(|known| known.text == *text);
        let mut wanted = found.concerns.iter().map(|concern| &concern.text);
        if let Some(new) = wanted.find(|text| !is_known(text)) {
            return Err(format!("a plan may not want this: {new}"));
        }
        if found.is_partial && !self.is_partial {
            return Err("a plan may name only files of the workspace".to_owned());
        }
        // By the parser that reads the configuration: another one might find other tasks.
        let own = Places::default().parse(&Arc::new(NamedSource::new(&label, text)));
        let own = own.map_err(|found| mistakes(&Diagnostics(vec![*found]), &label))?;
        let own = own.get("tasks").and_then(Value::as_dict).cloned().unwrap_or_default();
        let is_new = |task: &&TaskSpec| own.contains_key(task.name.as_str());
        let tasks: Vec<_> = found.tasks.iter().filter(is_new).cloned().collect();
        let named =
            tasks.iter().flat_map(TaskSpec::agents).filter_map(|name| found.agents.get(name));
        let agents =
            named.filter(|agent| !self.agents.contains_key(&agent.name)).cloned().collect();
        let files = found.files.into_iter().filter(|(path, _)| !self.files.contains_key(path));
        let is_harmless = is_harmless(&own, &tasks, self.agents.get(by));
        let is_allowed = self.plans == PermissionDecision::Allow && is_harmless;
        Ok(Added { tasks, agents, files: files.collect(), is_allowed })
    }
}

impl Config {
    /// Refuses a plan that names a file which the configuration did not name before, before anything of it
    /// is read: the rules of its author may forbid the file, and what is wrong with it would tell of it.
    fn judge_files(&self, plan: &Dict) -> Result<(), String> {
        let tasks = plan.get("tasks").and_then(Value::as_dict);
        for (name, task) in tasks.into_iter().flatten() {
            let Some(task) = task.as_dict() else { continue };
            if task.contains_key("workflow") {
                return Err(format!("`tasks.{name}.workflow`: {NO_SUB_GRAPHS}"));
            }
            let Some(file) = task.get("output_schema").and_then(Value::as_str) else { continue };
            if !self.files.contains_key(file) {
                return Err(format!(
                    "`tasks.{name}.output_schema` names a file that the configuration does not name: write \
                     the schema out as a table"
                ));
            }
        }
        Ok(())
    }
}

/// Returns true if tasks give an agent nothing that it could not do by `delegate`: they are work for
/// itself and for agents that it may delegate to, without commands, files and ways around a stop.
fn is_harmless(tasks: &Dict, specs: &[TaskSpec], by: Option<&AgentSpec>) -> bool {
    let own = tasks.values().filter_map(Value::as_dict);
    let has_known_keys = own.flat_map(Dict::keys).all(|key| HARMLESS.contains(&key.as_str()));
    let may_name =
        |agent: &Name| by.is_some_and(|by| *agent == by.name || by.sub_agents.contains(agent));
    has_known_keys && specs.iter().all(|task| !task.has_command() && task.agents().all(may_name))
}

/// Returns the mistakes of a plan, a line each.
fn mistakes(found: &Diagnostics, label: &str) -> String {
    let errors = found.0.iter().filter(|found| found.severity == Severity::Error);
    let line = |found: &Diagnostic| {
        let help = found.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
        let place = match found.file == label {
            true => format!("line {}, column {}: ", found.line, found.column),
            false => String::new(),
        };
        format!("{place}{}{help}", found.message)
    };
    let mut lines: Vec<_> = errors.map(line).collect();
    let more = lines.len().saturating_sub(MISTAKES);
    lines.truncate(MISTAKES);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

/// Reports a plan whose tasks were added although a profile, a variable or a flag denies plans.
pub(super) fn check(setting: Setting<'_>) {
    let Setting { raw, sources, problems, .. } = setting;
    let at = raw.permissions.as_ref().and_then(|permissions| {
        (*permissions.plan == PermissionDecision::Deny).then(|| permissions.plan.at()).flatten()
    });
    if let Some(at) = at.filter(|_| sources.plan.is_some()) {
        problems.error("conflict", &at.value, "`permissions.plan` denies plans", NO_HELP);
    }
}

/// Returns what a record wants with the tasks that agents proposed in its run: the same words for each run, so
/// that trust in them can be remembered while the run works.
#[must_use]
pub(crate) fn wanted_of(run: RunId) -> String {
    format!("the tasks run that agents proposed in run {run}")
}

/// Names the tasks that a record says to have been proposed as something that needs trust, beside a file that
/// needs some: the record may be of somebody else, and would have what the file has.
pub(super) fn concern(setting: Setting<'_>) {
    let Setting { sources, problems, .. } = setting;
    if let Some(run) = sources.run.filter(|_| !sources.proposed.is_empty())
        && problems.has_concerns()
    {
        let text = run.to_string();
        let origin = Origin::new("record", Giver::Record);
        problems.concern(&Place::outside("record", "run ", &text, origin), wanted_of(run));
    }
}

/// Returns what the main file says about plans.
fn decision(main: &Dict) -> Value {
    let permissions = main.get("permissions").and_then(Value::as_dict);
    let decision = permissions.and_then(|permissions| permissions.get("plan"));
    decision.cloned().unwrap_or_else(|| "ask".into())
}

/// Adds the approval of a person to a plan, on which all its tasks depend.
fn ask(plan: &mut Dict, names: &[String], text: &Text, place: &Place, places: &mut Places) {
    let Some(Value::Dict(_, tasks)) = plan.get_mut("tasks") else { return };
    for task in tasks.values_mut() {
        let Value::Dict(_, task) = task else { continue };
        let approval = given(APPROVAL, place, places);
        match task.get_mut("depends_on") {
            Some(Value::Array(_, before)) => before.push(approval),
            // Another type is a mistake, which the check reports.
            Some(_) => {}
            None => {
                let mut before = Value::from(Vec::<Value>::new());
                places.given(&mut before, place, place, None);
                if let Value::Array(_, items) = &mut before {
                    items.push(approval);
                }
                task.insert("depends_on".to_owned(), before);
            }
        }
    }
    let count = match names {
        [one] => format!("1 task (`{one}`)"),
        many => format!("{} tasks (`{}`)", many.len(), many.join("`, `")),
    };
    let message = format!("Run {count} of the plan {}?", text.name());
    // The name of the file is no template.
    let message = message.replace("{{", "{ {").replace("{%", "{ %");
    let shown = serde_json::Value::from(text.inner().as_str()).to_string();
    let gate = toml::toml! { approval = { message = "", show = [] } };
    let mut gate = Value::serialize(gate).unwrap_or_else(|_| Value::from(Dict::new()));
    if let Value::Dict(_, gate) = &mut gate
        && let Some(Value::Dict(_, approval)) = gate.get_mut("approval")
    {
        approval.insert("message".to_owned(), Value::from(message));
        approval.insert("show".to_owned(), Value::from(vec![shown]));
    }
    places.given(&mut gate, place, place, None);
    tasks.insert(APPROVAL.to_owned(), gate);
}

fn given(text: &str, place: &Place, places: &mut Places) -> Value {
    let mut value = Value::from(text);
    places.given(&mut value, place, place, None);
    debug_assert!(tree::number(&value) > 0, "the value has a place");
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposed_schema_reads_no_file_that_the_configuration_does_not_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "version = 1\n[permissions]\nplan = 'allow'\n[providers.p]\nkind = 'scripted'\nscript = 's.toml'\n\
            [models.m]\nprovider = 'p'\nmodel = 'x'\n[agents.a]\ninstructions = 'I'\nmodel = 'm'\n\
            [tasks.t]\nagent = 'a'\nprompt = 'P'\noutput_schema = 'known.json'\n";
        for (name, text) in [
            ("agents.toml", text),
            ("s.toml", "[[rules]]\nsay = 'done'\n"),
            ("known.json", "{\"type\":\"object\"}"),
            ("secret.json", "{\"type\":\"SECRET\"}"),
        ] {
            std::fs::write(dir.path().join(name), text).expect("written");
        }
        let sources = Sources::new(dir.path().join("agents.toml"));
        let config = super::super::load(&sources).unwrap_or_else(|errors| panic!("{errors}"));
        let by = Name::new("a").expect("a name");
        let propose = |schema: &str| {
            let text =
                format!("[tasks.p]\nagent = \"a\"\nprompt = \"x\"\noutput_schema = {schema}\n");
            config.extended(vec![ProposedPlan { label: "plan".to_owned(), text }], &by)
        };
        let refused = propose("\"secret.json\"").expect_err("refused");
        assert!(refused.contains("write the schema out") && !refused.contains("SECRET"));
        assert!(propose("\"gone.json\"").is_err_and(|gone| gone == refused));
        let both = ["\"secret.json\"", "\"gone.json\""].map(|file| {
            let refused = propose(&format!("{{ type = \"object\" }}\nworkflow = {file}"));
            refused.expect_err("a file of tasks")
        });
        assert!(both[0] == both[1] && both[0].contains("no sub-graphs"), "{both:?}");
        assert!(propose("\"known.json\"").expect("known").is_allowed);
        assert!(propose("{ type = \"object\" }").expect("a table").is_allowed);
    }
}
