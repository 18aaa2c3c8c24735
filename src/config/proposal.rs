//! Adds the tasks of a plan that somebody else wrote, most often a model (`run --plan FILE`), to the
//! configuration, behind the approval of a person.

use std::path::Path;
use std::sync::Arc;

use figment::value::{Dict, Value};
use miette::NamedSource;

use super::Setting;
use super::diagnostic::{Giver, NO_HELP, Origin, Place, Problems, Text};
use super::files::{self, Form, Shelf};
use super::tree::{self, Places};
use crate::permission::Verdict;

/// The task that asks a person. The tasks of the plan depend on it.
const APPROVAL: &str = "approve_plan";

/// The keys that a plan may have.
const KEYS: [&str; 2] = ["version", "tasks"];

/// The most tasks of a plan: a person has to read it.
const MOST: usize = 200;

/// Adds the tasks of a plan to the main file. Unless the file has `permissions.plan = "allow"`, all
/// of them wait for the approval of a person, who is shown the whole plan.
pub(super) fn add(
    main: &mut Dict,
    file: &Path,
    shelf: &Shelf<'_>,
    texts: &mut Vec<Text>,
    places: &mut Places,
    problems: &Problems,
) {
    let written = file.display().to_string();
    let origin = Origin::new("--plan", Giver::PersonForRun);
    let place = Place::outside("command line", "--plan ", &written, origin);
    let Some(read) = shelf.read(file, &place, problems) else { return };
    let form = Form::of(&read.real, shelf.root);
    let text: Text = Arc::new(NamedSource::new(written, read.text));
    texts.push(Arc::clone(&text));
    let Some(mut plan) = form.parse(&text, &place, places, problems) else { return };
    plan.retain(|key, value| {
        let is_known = KEYS.contains(&key.as_str());
        if !is_known {
            let message = format!("a plan has only tasks, not `{key}`");
            let help = "agents, models, permissions and limits are those of the main file";
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
        problems.error("no_tasks", &Place::start(&text), message, "add [tasks.NAME]");
        return;
    }
    for (_, task) in plan.get("tasks").and_then(Value::as_dict).into_iter().flatten() {
        if let Some(file) = task.as_dict().and_then(|task| task.get("workflow")) {
            let message = "a plan has no sub-graphs: nobody would be shown what their files hold";
            problems.error("bad_value", &places.of(file).key, message, "write their tasks out");
        }
    }
    let verdict = verdict(main);
    match verdict.as_str() {
        Some("allow") => {}
        // [`check`] reports it.
        Some("deny") => {}
        _ => ask(&mut plan, &names, &text, &place, places),
    }
    // Without this, a file with an `entry` would not run them.
    if let Some(Value::Array(_, entry)) = main.get_mut("entry") {
        entry.extend(names.iter().map(|name| given(name.as_str(), &place, places)));
    }
    files::join(main, plan, places, problems);
}

/// Reports a plan whose tasks were added although a profile, a variable or a flag denies plans.
pub(super) fn check(setting: Setting<'_>) {
    let Setting { raw, sources, problems, .. } = setting;
    let at = raw.permissions.as_ref().and_then(|permissions| {
        (*permissions.plan == Verdict::Deny).then(|| permissions.plan.at()).flatten()
    });
    if let Some(at) = at.filter(|_| sources.plan.is_some()) {
        problems.error("conflict", &at.value, "`permissions.plan` denies plans", NO_HELP);
    }
}

/// Returns what the main file says about plans.
fn verdict(main: &Dict) -> Value {
    let permissions = main.get("permissions").and_then(Value::as_dict);
    let verdict = permissions.and_then(|permissions| permissions.get("plan"));
    verdict.cloned().unwrap_or_else(|| "ask".into())
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
