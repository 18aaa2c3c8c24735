//! The layers of the configuration: built-in defaults, the file, a profile, `CALLSHEET_*`
//! variables, flags.
//!
//! figment decides which layer wins; each winning value keeps the place at which it was written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::Sources;
use super::diagnostic::{Giver, Origin, Place};
use super::given::{self, Given, as_toml};
use super::raw::Settings;
use super::shape::{Key, Keys, Kind, Section};
use super::tree::{self, Places};

/// Prefix of the variables that set configuration keys.
const PREFIX: &str = "CALLSHEET_";

/// Variables with this prefix that have another meaning.
const NOT_KEYS: [&str; 2] = ["CALLSHEET_STATE_DIR", "CALLSHEET_LOG"];

/// The sections whose variables are not recorded.
const NOT_RECORDED: [&str; 4] = ["providers", "secrets", "env", "notify"];

/// One layer for figment: its name and its tree.
struct Layer(&'static str, Dict);

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.0)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.1.clone()))
    }
}

/// Merges the layers over the built-in defaults: the file, a profile, variables and flags, each
/// over those before it.
pub(super) fn merge(mut written: [Dict; 4]) -> Dict {
    for upper in 1..written.len() {
        let (below, above) = written.split_at_mut(upper);
        // The lowest layer is settled last, because the last place that is taken stays.
        below.iter().rev().for_each(|lower| tree::keep_places(&mut above[0], lower));
    }
    let names = ["file", "profile", "environment", "command line"];
    let defaults = Layer("built-in defaults", defaults(Settings::KEYS));
    let layers = names.into_iter().zip(written).map(|(name, tree)| Layer(name, tree));
    let figment = layers.fold(Figment::from(defaults), Figment::merge);
    let merged = figment.data().ok().and_then(|mut data| data.remove(&Profile::Default));
    merged.unwrap_or_default()
}

/// Returns the built-in defaults. Keys below a name that the user chose have none here: their
/// defaults are filled in when the entry is read.
fn defaults(keys: Keys) -> Dict {
    let value = |key: &Key| match key.kind {
        Kind::Table(inner) => key.default.map(|_| Value::from(defaults(inner))),
        _ => Value::serialize(key.default_value()?).ok(),
    };
    let keys = keys.iter().copied().flatten();
    keys.filter_map(|key| Some((key.name.to_owned(), tree::built_in(value(key)?)))).collect()
}

/// Returns the part of a variable's name that names a configuration key; `None` for any other
/// variable.
pub(super) fn setting(variable: &str) -> Option<&str> {
    let rest = variable.strip_prefix(PREFIX)?;
    if rest.is_empty() || NOT_KEYS.contains(&variable) {
        return None;
    }
    // A variable of one word that is not a key belongs to another program, or to this one.
    let top = rest.to_ascii_lowercase();
    let is_key = Settings::KEYS[0].iter().any(|key| key.name == top);
    (rest.contains("__") || is_key).then_some(rest)
}

/// Returns those of the variables that are recorded with a run.
pub(super) fn recorded(variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let recorded = variables.iter().filter(|(variable, _)| is_recorded(variable));
    recorded.map(|(variable, text)| (variable.clone(), text.clone())).collect()
}

/// Returns true if a run records a variable: it sets a key, and not one that may hold a secret.
pub(super) fn is_recorded(variable: &str) -> bool {
    setting(variable).is_some_and(|rest| {
        let section = rest.split("__").next().unwrap_or_default().to_ascii_lowercase();
        !NOT_RECORDED.contains(&section.as_str())
    })
}

/// Returns the layer of the `CALLSHEET_*` variables; `__` separates the levels. A name in capitals
/// also finds a key of the file in other letters, and `_` finds `-`.
pub(super) fn environment(sources: &Sources, file: &Dict, places: &mut Places) -> Dict {
    let mut tree = Dict::new();
    for (variable, text) in &sources.environment {
        let Some(rest) = setting(variable) else { continue };
        let giver = match (is_recorded(variable), &sources.recorded) {
            (false, _) => Giver::Person,
            (true, None) => Giver::PersonForRun,
            (true, Some(_)) => Giver::Record,
        };
        let origin = Origin::new(variable.as_str(), giver);
        let place = Place::outside("environment", &format!("{variable}="), text, origin);
        // figment reads one character, and an empty text, as types of their own.
        let mut value = match text.parse::<Value>() {
            Ok(Value::Char(_, c)) => Value::from(c.to_string()),
            Ok(Value::Empty(..)) => Value::from(""),
            Ok(value) => value,
        };
        let unquoted = (!matches!(value, Value::String(..))).then(|| text.clone());
        let name = place.name_only();
        places.given(&mut value, &name, &place, unquoted);
        places.insert(&mut tree, &resolve(rest, file), &name, value);
    }
    tree
}

/// Returns the path of keys that a variable sets.
fn resolve(variable: &str, file: &Dict) -> Vec<String> {
    let mut table = Some(file);
    let mut path = Vec::new();
    for part in variable.split("__") {
        let alike = |key: &str| key.replace('-', "_").eq_ignore_ascii_case(part);
        let found = table.and_then(|table| table.iter().find(|(key, _)| alike(key)));
        table = found.and_then(|(_, value)| value.as_dict());
        path.push(found.map_or_else(|| part.to_ascii_lowercase(), |(key, _)| key.clone()));
    }
    path
}

/// Returns the layer of the flags, whose keys are written with dots: what the run recorded, what its flags set
/// (`given`), and what other flags stand for.
pub(super) fn flags(
    sources: &Sources,
    given: &BTreeMap<String, Given>,
    places: &mut Places,
) -> Dict {
    let mut tree = Dict::new();
    let mut insert = |path: &[String], value: toml::Value, text: Option<&str>, place: Place| {
        let Ok(mut value) = Value::serialize(value) else { return };
        let name = place.name_only();
        let unquoted = text.filter(|_| !matches!(value, Value::String(..))).map(str::to_owned);
        places.given(&mut value, &name, &place, unquoted);
        places.insert(&mut tree, path, &name, value);
    };
    let place = |key: &str, text: &str, giver: Giver| {
        let origin = Origin::new("the command line", giver);
        Place::outside("command line", &format!("{key}="), text, origin)
    };
    let split = |key: &str| key.split('.').map(str::to_owned).collect::<Vec<_>>();
    for (key, text) in &sources.recorded_overrides {
        let path = given::path(key).unwrap_or_else(|| split(key));
        insert(&path, as_toml(text), Some(text), place(key, text, Giver::Record));
    }
    for (key, given) in given {
        insert(&given.path, as_toml(&given.text), Some(&given.text), given.place(key));
    }
    for (key, value) in &sources.overrides {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        insert(&split(key), value.clone(), None, place(key, &text, Giver::PersonForRun));
    }
    tree
}

/// Returns the directory of runs: that of the flag, of `CALLSHEET_STATE_DIR` or of the file. The
/// file's path is relative to its own directory, the others to the current directory.
pub(super) fn state_dir(raw: &Settings, root: &Path, sources: &Sources) -> PathBuf {
    let here = |path: &str| std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    let dir = &raw.state.dir;
    // A flag is recognised by the name of the text that its value is written in.
    if dir.at().is_some_and(|at| at.value.text.name() == "command line") {
        return here(dir);
    }
    let variable = sources.environment.get("CALLSHEET_STATE_DIR").filter(|dir| !dir.is_empty());
    variable.map_or_else(|| root.join(dir.as_str()), |dir| here(dir))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use miette::NamedSource;

    use super::*;

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
        let kept = recorded(&all.map(variable).into());
        assert_eq!(kept.keys().collect::<Vec<_>>(), [all[0], all[1]]);
    }

    #[test]
    fn the_higher_layer_wins_key_by_key_and_keeps_its_place() {
        let mut places = Places::default();
        let mut layer = |name: &str, toml: &str| {
            places.parse(&Arc::new(NamedSource::new(name, toml.to_owned()))).expect("valid TOML")
        };
        let file = layer("file", "[a]\nx = 1\ny = [1, 2]\n[a.deep]\nz = 'low'\n[b]\nk = 1\n");
        let over = layer("over", "[a]\ny = [3]\n[a.deep]\nw = 2\n");
        let merged = merge([file, over, Dict::new(), Dict::new()]);
        let find = |path: &str| {
            let value = merged.get("a").and_then(|a| a.find_ref(path)).expect("a value");
            let key = &places.of(value).key;
            (tree::json(value).to_string(), key.text.name().to_owned(), key.line_column())
        };
        assert_eq!(find("x"), ("1".to_owned(), "file".to_owned(), (2, 1)));
        assert_eq!(find("y"), ("[3]".to_owned(), "over".to_owned(), (2, 1)));
        assert_eq!(find("deep"), (r#"{"z":"low","w":2}"#.to_owned(), "file".to_owned(), (4, 4)));
        let limits = merged["limits"].as_dict().expect("a table");
        assert_eq!(limits["max_concurrency"].to_u128(), Some(8));
        assert!(places.written(&limits["grace_period"]).is_none(), "nobody wrote it");
    }

    #[test]
    fn variables_find_the_keys_that_they_mean() {
        let mut places = Places::default();
        let toml = "[agents.fix-it]\nmodel = 'a'\n[env]\nFOO = '1'\n";
        let file = places.parse(&Arc::new(NamedSource::new("file", toml.to_owned())));
        let variables = [
            ("CALLSHEET_AGENTS__FIX_IT__MODEL", "5"),
            ("CALLSHEET_ENV__FOO", "2"),
            ("CALLSHEET_LIMITS__MAX_CONCURRENCY", "2"),
            ("CALLSHEET_STATE_DIR", "x"),
            ("CALLSHEET_LOG", "debug"),
            ("CALLSHEET_WHATEVER", "x"),
            ("HOME", "/"),
        ];
        let environment = variables.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let sources = Sources { environment, ..Sources::default() };
        let tree = super::environment(&sources, &file.expect("valid TOML"), &mut places);
        let all = tree::json(&Value::from(tree.clone()));
        let expected = serde_json::json!({
            "agents": {"fix-it": {"model": 5}}, "env": {"FOO": 2}, "limits": {"max_concurrency": 2},
        });
        assert_eq!(all, expected);
        let model = tree["agents"].find_ref("fix-it.model").expect("a value");
        assert_eq!(places.text(model).as_deref(), Some("5"), "it has no quotes");
    }
}
