//! The configuration that a run recorded, and its differences from the file as it is now.
//!
//! Owns the choice of what a run records: the text, the profile, the inputs, the tasks and the
//! variables that set keys. Providers, secrets and environment variables for commands are not
//! recorded, because they may hold keys: they come from the environment in which the run is
//! resumed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use figment::value::{Dict, Value};
use miette::NamedSource;
use serde_json::Value as Json;

use super::sources::ProposedPlan;
use super::tree::{self, Places};
use super::{Diagnostic, Sources, files, layers, root};
use crate::event::RunCreated;

/// The key of the folder of runs, which the command line can set.
const STATE_DIR: &str = "state.dir";

/// The most characters of a value in a list of changes, so that two values fit a line.
const VALUE: usize = 40;

/// Returns those of the variables that are recorded with a run.
pub(super) fn settings(variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let recorded = variables.iter().filter(|(variable, _)| layers::is_recorded(variable));
    recorded.map(|(variable, text)| (variable.clone(), text.clone())).collect()
}

impl Sources {
    /// Replaces the given sources by those that a run recorded. `dir` is the run directory: if it
    /// is in the workspace, the workspace's file is used, even if both were moved.
    #[must_use]
    pub fn of_run(mut self, created: &RunCreated, dir: &Path) -> Self {
        let here = root(&self.file);
        if let Some(name) = created.file.file_name() {
            let lies_here = dir.canonicalize().is_ok_and(|dir| dir.starts_with(&here));
            self.file = if lies_here { here.join(name) } else { created.file.clone() };
            // Whoever names the folder of runs means the run and its workspace.
            let names_folder = self.overrides.iter().any(|(key, _)| key == STATE_DIR)
                || self.environment.get("CALLSHEET_STATE_DIR").is_some_and(|dir| !dir.is_empty());
            self.recorded_elsewhere = !names_folder && root(&self.file) != here;
        }
        self.recorded = Some(created.files.clone());
        self.recorded_inputs = true;
        self.profile.clone_from(&created.profile);
        self.plan.clone_from(&created.plan);
        let proposed = created.proposed.iter();
        self.proposed = proposed.map(|plan| ProposedPlan::new(&plan.by, &plan.text)).collect();
        self.environment.retain(|variable, _| !layers::is_recorded(variable));
        // Others in a record would pass for what the person says now.
        self.environment.extend(settings(&created.settings));
        let overrides = created.overrides.iter();
        self.recorded_overrides =
            overrides.map(|(key, text)| (key.clone(), as_toml(text))).collect();
        let inputs = created.inputs.to_value();
        let inputs = inputs.as_object().into_iter().flatten();
        self.inputs = inputs.map(|(name, value)| (name.clone(), as_given(value))).collect();
        self.targets = created.tasks.iter().map(|task| task.name.to_string()).collect();
        self
    }
}

impl Sources {
    /// Returns the sources of a run that resumes with the current text of the file. It keeps the
    /// run's profile, and those inputs that were given to the run and that the file still declares.
    #[must_use]
    pub fn accepting(self, created: &RunCreated, dir: &Path) -> Self {
        let environment = self.environment.clone();
        let mut sources = self.of_run(created, dir);
        sources.environment = environment;
        sources.recorded = None;
        sources.targets = Vec::new();
        let now = files::text_of(&sources.file).unwrap_or_default();
        // A text that cannot be read is reported when the file is loaded.
        let of = |text: &str| keys(text, &sources.file).unwrap_or_default();
        let (before, now) = (of(&created.config), of(&now));
        let values = created.inputs.to_value();
        sources.inputs.retain(|(name, _)| {
            let default = before.get(&format!("inputs.{name}.default"));
            let value = values[name].to_string();
            let was_given = default.is_none_or(|default| *default != value);
            let section = format!("inputs.{name}");
            let is_asked_for = |key: &String| {
                key.strip_prefix(&section)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            was_given && now.keys().any(is_asked_for)
        });
        sources
    }
}

/// Returns an input's value as the command line gives it.
fn as_given(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Reads a text as a TOML value; a text that is none becomes a string.
pub(crate) fn as_toml(text: &str) -> toml::Value {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {text}"));
    // A text that parses to more than one key only looks like TOML: it is a string.
    let value = parsed.ok().filter(|table| table.len() == 1).and_then(|mut t| t.remove("value"));
    value.unwrap_or_else(|| text.into())
}

/// A key whose value differs between the recorded text and the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key, with dots between the levels.
    pub key: String,
    /// The recorded value; absent when the key is new.
    pub before: Option<String>,
    /// The current value; absent when the key is gone.
    pub now: Option<String>,
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, before, now } = self;
        match (before, now) {
            (Some(before), Some(now)) => write!(f, "~ {key}: {} -> {}", cut(before), cut(now)),
            (None, Some(now)) => write!(f, "+ {key}: {}", cut(now)),
            (Some(before), None) => write!(f, "- {key}: {}", cut(before)),
            (None, None) => write!(f, "  {key}"),
        }
    }
}

fn cut(text: &str) -> String {
    let mut characters = text.chars();
    let mut shown: String = characters.by_ref().take(VALUE).collect();
    if characters.next().is_some() {
        shown.push_str("...");
    }
    shown
}

/// Returns the keys whose values differ between the recorded text and the current one; comments and
/// order do not count. `file` is the path that diagnostics show.
///
/// # Errors
/// Returns a diagnostic with the place if the current text is not TOML.
pub fn changes(recorded: &str, now: &str, file: &Path) -> Result<Vec<KeyChange>, Box<Diagnostic>> {
    Ok(differences(&keys(recorded, file).unwrap_or_default(), &keys(now, file)?))
}

fn differences(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<KeyChange> {
    let mut all: Vec<_> = before.keys().chain(after.keys()).collect();
    all.sort_unstable();
    all.dedup();
    let differs = all.into_iter().filter(|key| before.get(*key) != after.get(*key));
    let change = |key: &String| KeyChange {
        key: key.clone(),
        before: before.get(key).cloned(),
        now: after.get(key).cloned(),
    };
    differs.map(change).collect()
}

/// Returns the variables that set keys and whose values differ from the recorded ones.
#[must_use]
pub fn changed_settings(
    recorded: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
) -> Vec<KeyChange> {
    differences(recorded, &settings(environment))
}

/// Returns the recorded files whose texts have changed or cannot be read. `file` is the
/// configuration that names them.
#[must_use]
pub fn changed_files(recorded: &BTreeMap<String, String>, file: &Path) -> Vec<KeyChange> {
    let root = root(file);
    let now = |path: &str| files::text_of(&root.join(path)).ok();
    let size = |text: &String| format!("{} bytes", text.len());
    let all = recorded.iter().map(|(path, before)| (path, before, now(path)));
    let changed = all.filter(|(_, before, now)| now.as_ref() != Some(before));
    let change = |(path, before, now): (&String, &String, Option<String>)| KeyChange {
        key: path.clone(),
        before: Some(size(before)),
        now: now.as_ref().map(size),
    };
    changed.map(change).collect()
}

fn keys(text: &str, file: &Path) -> Result<BTreeMap<String, String>, Box<Diagnostic>> {
    let named = Arc::new(NamedSource::new(file.display().to_string(), text.to_owned()));
    let mut all = BTreeMap::new();
    collect(&Places::default().parse(&named)?, "", &mut all);
    Ok(all)
}

fn collect(table: &Dict, above: &str, all: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let key = match above {
            "" => key.clone(),
            above => format!("{above}.{key}"),
        };
        match value {
            Value::Dict(_, inner) if !inner.is_empty() => collect(inner, &key, all),
            _ => drop(all.insert(key, tree::json(value).to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_count_as_changes() {
        let recorded = "# old\nversion = 1\n[tasks.a]\nrun = 'x'\n[tasks.b]\nrun = 'y'\n";
        let changes = |now: &str| changes(recorded, now, Path::new("a.toml"));
        let same = changes("version = 1 # new\ntasks = {b.run='y', a.run=\"x\"}").expect("TOML");
        assert_eq!(same, []);
        let now =
            format!("version = 1\n[tasks.a]\nrun = '{}'\n[tasks.c]\nrun = 'z'\n", "x".repeat(50));
        let lines: Vec<_> = changes(&now).expect("TOML").iter().map(ToString::to_string).collect();
        let long = format!("~ tasks.a.run: \"x\" -> \"{}...", "x".repeat(39));
        assert_eq!(lines, [long.as_str(), "- tasks.b.run: \"y\"", "+ tasks.c.run: \"z\""]);
        let found = changes("version = 1\n[tasks.a]\nrun = x\n").expect_err("not TOML");
        assert_eq!((found.file.as_str(), found.line, found.column), ("a.toml", 3, 7));
    }

    #[test]
    fn variables_that_may_hold_keys_are_not_recorded() {
        let variable = |name: &str| (name.to_owned(), "x".to_owned());
        let all = [
            "CALLSHEET_LIMITS__MAX_CONCURRENCY",
            "CALLSHEET_NAME",
            "CALLSHEET_PROVIDERS__MAIN__API_KEY",
            "CALLSHEET_SECRETS__TOKEN",
            "CALLSHEET_ENV__TOKEN",
            "CALLSHEET_STATE_DIR",
            "PATH",
        ];
        let recorded = settings(&all.map(variable).into());
        assert_eq!(recorded.keys().collect::<Vec<_>>(), [all[0], all[1]]);
    }
}
