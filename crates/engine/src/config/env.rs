//! Builds the variables that commands and shell tools get, and the secrets that records must not
//! contain.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Setting;
use super::diagnostic::{NO_HELP, Place, Problems};
use super::keys::{self, Secret};
use super::shape::Named;
use super::templates::{Language, Scope};
use crate::template;

/// Renders `[env]`, whose values are templates that may use the inputs.
pub(super) fn variables(
    setting: Setting<'_>,
    inputs: &Map<String, Value>,
) -> BTreeMap<String, String> {
    rendered(setting, &setting.raw.env, inputs)
}

/// Renders variables whose values are templates that may use the inputs.
pub(super) fn rendered(
    setting: Setting<'_>,
    variables: &Named<String>,
    inputs: &Map<String, Value>,
) -> BTreeMap<String, String> {
    let Setting { raw, problems, .. } = setting;
    let scope = Scope::of_inputs(setting);
    let values = serde_json::json!({ "inputs": inputs });
    let mut all = BTreeMap::new();
    for (entry, text) in variables.values() {
        let before = problems.count();
        check_nul(text, &entry.at.value, problems);
        scope.check(text, &entry.at.value, Language::Template);
        if problems.count() > before {
            continue;
        }
        match template::render(text, &values) {
            Ok(rendered) => drop(all.insert(entry.name.clone(), rendered)),
            // A missing input is reported at its declaration, so it is not reported here again.
            Err(_) if inputs.len() < raw.inputs.names().count() => {}
            Err(error) => {
                let message = format!("cannot render the variable `{}`: {error}", entry.name);
                problems.error("bad_template", &entry.at.value, message, NO_HELP);
            }
        }
    }
    all
}

/// Checks `[secrets]` and reads those that exist. A missing secret is an error only for a provider
/// in use, which is checked elsewhere.
pub(super) fn secrets(setting: Setting<'_>) -> BTreeMap<String, Secret> {
    let mut all = BTreeMap::new();
    for (entry, secret) in setting.raw.secrets.values() {
        let given = [("env", secret.env.is_set()), ("file", secret.file.is_set())];
        keys::check_one(&entry.name, &entry.at, &given, setting.problems);
        if let Ok(Some(found)) = keys::of_secret(secret, setting) {
            all.insert(entry.name.clone(), found);
        }
    }
    all
}

/// Reports a text for a command, a variable or a path that no system takes.
pub(super) fn check_nul(text: &str, place: &Place, problems: &Problems) {
    if text.contains('\0') {
        let help = "remove it; what holds such a character goes to a command by `stdin`";
        problems.error("bad_value", place, "a NUL character ends a text for a command", help);
    }
}
