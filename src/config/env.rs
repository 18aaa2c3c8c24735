//! The variables that commands and shell tools get, and the secrets that records must not hold.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::diagnostic::Problems;
use super::keys::{self, Secret};
use super::raw::Table;
use super::templates::{Language, Scope};
use super::{Missing, Sources};
use crate::template;

/// `[env]`, rendered: its values may use the inputs.
pub(super) fn variables(
    tree: &Table,
    inputs: &Map<String, Value>,
    sources: &Sources,
    problems: &mut Problems,
) -> BTreeMap<String, String> {
    let scope = Scope {
        inputs: tree.section("inputs"),
        tasks: tree.section("tasks"),
        task: None,
        depends_on: &[],
    };
    let values = serde_json::json!({ "inputs": inputs });
    let mut all = BTreeMap::new();
    for entry in &tree.section("env").0 {
        let before = problems.count();
        scope.check(&entry.node, Language::Template, problems);
        let Some(text) = entry.node.text().filter(|_| problems.count() == before) else { continue };
        match template::render(text, &values) {
            Ok(rendered) => {
                all.insert(entry.key.clone(), rendered);
            }
            // An input that is missing is reported where it is declared.
            Err(_) if inputs.len() < scope.inputs.0.len() => {}
            Err(_) if sources.missing_inputs == Missing::Allow => {}
            Err(error) => {
                let message = format!("cannot render `env.{}`: {error}", entry.key);
                problems.error("bad_template", &entry.node.place, message);
            }
        }
    }
    all
}

/// Checks `[secrets]` and reads those that are there; one that is missing is an error only for a
/// provider in use.
pub(super) fn secrets(
    tree: &Table,
    root: &Path,
    sources: &Sources,
    problems: &mut Problems,
) -> BTreeMap<String, Secret> {
    let section = tree.section("secrets");
    let mut all = BTreeMap::new();
    for entry in &section.0 {
        keys::check(entry, &["env", "file"], section, problems);
        if let Ok(Some(secret)) = keys::find(entry, section, root, sources) {
            all.insert(entry.key.clone(), secret);
        }
    }
    all
}
