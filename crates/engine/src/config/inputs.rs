//! Reads the inputs of the run: given values and defaults, checked against `[inputs]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::bounds::PATTERN_BYTES;
use super::concern::leads_outside;
use super::diagnostic::{Giver, NO_HELP, Origin, Place, Problems};
use super::raw::{Input, InputKind};
use super::shape::{Entry, Read};
use super::{Missing, Setting, names};

/// The checked inputs and the paths outside the root that they name.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub(super) values: Map<String, Value>,
    pub(super) read_only_roots: Vec<PathBuf>,
}

/// Checks the given inputs against `[inputs]` and adds the defaults.
pub(super) fn inputs(setting: Setting<'_>) -> Inputs {
    let Setting { raw, sources, problems, .. } = setting;
    unknown(setting);
    let mut all = Inputs::default();
    for (Entry { name, at, .. }, input) in raw.inputs.values() {
        let rules = Rules::read(name, input, problems);
        let default = input.default.placed();
        if let Some((value, place)) = default {
            rules.check(value, place);
        }
        let given = sources.inputs.iter().rev().find(|(key, _)| key == name);
        let value = match (given, default) {
            (Some((key, text)), _) => {
                let origin = Origin::new("the command line", sources.giver());
                let place =
                    Place::outside("command line", &format!("--input {key}="), text, origin);
                let value = rules.parse(text, &place);
                value.filter(|value| rules.check(value, &place)).map(|value| (value, place))
            }
            (None, Some((value, place))) => Some((value.clone(), place.clone())),
            (None, None) => {
                if sources.missing_inputs == Missing::Refuse {
                    let message = format!("input `{name}` has no value and no default");
                    let help = format!("give it with `--input {name}=...`");
                    problems.error("missing_input", &at.key, message, help);
                }
                None
            }
        };
        let Some((mut value, place)) = value else { continue };
        if let (Some(InputKind::Path), Value::String(text)) = (rules.kind, &value) {
            value = all.path(text, &place, setting).into();
        }
        all.values.insert(name.clone(), value);
    }
    all
}

/// A value that a task gives to an input of its sub-graph.
#[derive(Clone, Debug)]
pub(super) enum With {
    /// A text, which is read by the type of the input.
    Text(String),
    Value(Value),
}

/// Checks the values that a task gives to its sub-graph against the inputs of that file, and adds the
/// defaults. A value is absent if it could not be rendered, which is reported already.
pub(super) fn of_graph(
    setting: Setting<'_>,
    given: &BTreeMap<&str, (Option<With>, &Place)>,
    task: &Place,
) -> Inputs {
    let Setting { raw, problems, .. } = setting;
    for (name, (_, place)) in given.iter().filter(|(name, _)| !raw.inputs.has(name)) {
        let help = names::suggest(name, raw.inputs.names());
        let message = format!("the sub-graph has no input `{name}`");
        problems.error("unknown_input", place, message, help);
    }
    let mut all = Inputs::default();
    for (Entry { name, .. }, input) in raw.inputs.values() {
        let rules = Rules::read(name, input, problems);
        let default = input.default.placed().filter(|(value, place)| rules.check(value, place));
        let value = match (given.get(name.as_str()), default) {
            (Some((None, _)), _) => None,
            (Some((Some(With::Text(text)), place)), _) => {
                rules.parse(text, place).map(|value| (value, *place))
            }
            (Some((Some(With::Value(value)), place)), _) => Some((value.clone(), *place)),
            (None, Some((value, place))) => Some((value.clone(), place)),
            (None, None) => {
                let message = format!("the sub-graph needs a value for its input `{name}`");
                let help = format!("add `with = {{ {name} = ... }}`");
                problems.error("missing_input", task, message, help);
                None
            }
        };
        let Some((mut value, place)) = value.filter(|(value, place)| rules.check(value, place))
        else {
            continue;
        };
        if let (Some(InputKind::Path), Value::String(text)) = (rules.kind, &value) {
            value = all.path(text, place, setting).into();
        }
        all.values.insert(name.clone(), value);
    }
    all
}

fn unknown(setting: Setting<'_>) {
    let known = &setting.raw.inputs;
    for (key, text) in setting.sources.inputs.iter().filter(|(key, _)| !known.has(key)) {
        let rest = format!("{key}={text}");
        let origin = Origin::new("the command line", Giver::PersonForRun);
        let place = Place::outside("command line", "--input ", &rest, origin);
        let help = match names::suggest(key, known.names()) {
            help if help.is_empty() => "the file has no [inputs]".to_owned(),
            help => help,
        };
        let (message, place) = (format!("there is no input `{key}`"), place.part(0..key.len()));
        setting.problems.error("unknown_input", &place, message, help);
    }
}

impl Inputs {
    /// Returns the text of a path: as given within the root, canonical outside it. A path outside
    /// the root is added to the roots that may be read.
    fn path(&mut self, text: &str, place: &Place, setting: Setting<'_>) -> String {
        let root = setting.root;
        if let Some(outside) = leads_outside(root, text) {
            let what = format!("agents and commands can read `{}`", outside.display());
            setting.problems.concern(place, what);
            if !setting.shelf.touches(place) {
                return text.to_owned();
            }
        }
        let real = match root.join(text).canonicalize() {
            Ok(real) => real,
            Err(error) => {
                let message = format!("cannot find `{text}`: {error}");
                setting.problems.error("bad_input", place, message, NO_HELP);
                return text.to_owned();
            }
        };
        if let Ok(inside) = real.strip_prefix(root) {
            if Path::new(text).is_relative() {
                return text.to_owned();
            }
            let inside = inside.display().to_string();
            return if inside.is_empty() { ".".to_owned() } else { inside };
        }
        if !self.read_only_roots.contains(&real) {
            self.read_only_roots.push(real.clone());
        }
        real.display().to_string()
    }
}

/// The rules for one input.
struct Rules<'a> {
    name: &'a str,
    /// The type; absent when the file names no known type. That error is reported already, so every
    /// value is accepted then.
    kind: Option<InputKind>,
    pattern: Option<Regex>,
    allowed: Option<Vec<Value>>,
    problems: &'a Problems,
}

/// The properties of an input type: its words in messages, the test of a value, and the reader of a
/// text.
type OfType = (&'static str, fn(&Value) -> bool, fn(&str) -> Option<Value>);

fn of_type(kind: Option<InputKind>) -> OfType {
    let text = |text: &str| Some(Value::from(text));
    let json = |text: &str| serde_json::from_str(text).ok();
    match kind {
        None => ("a string", |_| true, text),
        Some(InputKind::String) => ("a string", Value::is_string, text),
        Some(InputKind::Path) => ("a path", Value::is_string, text),
        Some(InputKind::Integer) => ("an integer", Value::is_i64, integer),
        Some(InputKind::Number) => ("a number", Value::is_number, |text| {
            let decimal = || text.parse::<f64>().ok().filter(|n| n.is_finite()).map(Value::from);
            integer(text).or_else(decimal)
        }),
        Some(InputKind::Boolean) => ("`true` or `false`", Value::is_boolean, |text| {
            text.parse::<bool>().ok().map(Value::from)
        }),
        Some(InputKind::Array) => ("an array (as JSON when given as text)", Value::is_array, json),
        Some(InputKind::Object) => {
            ("an object (as JSON when given as text)", Value::is_object, json)
        }
    }
}

fn integer(text: &str) -> Option<Value> {
    text.parse::<i64>().ok().map(Value::from)
}

impl<'a> Rules<'a> {
    fn read(name: &'a str, raw: &Input, problems: &'a Problems) -> Self {
        let kind = (!raw.r#type.is_wrong()).then_some(*raw.r#type);
        let mut rules = Self { name, kind, pattern: None, allowed: None, problems };
        if let Some(items) = raw.r#enum.as_ref() {
            for item in items {
                rules.check(&item.value, &item.at.value);
            }
            rules.allowed = Some(items.iter().map(|item| item.value.clone()).collect());
        }
        let Some((text, at)) = raw.pattern.as_ref().zip(raw.pattern.at()) else { return rules };
        if kind.is_some_and(|kind| !matches!(kind, InputKind::String | InputKind::Path)) {
            let kind = raw.r#type.show();
            let kind = kind.as_str().unwrap_or_default();
            let message = format!("`pattern` does not fit an input of type `{kind}`");
            problems.error("bad_value", &at.key, message, NO_HELP);
        }
        match RegexBuilder::new(text).size_limit(PATTERN_BYTES).build() {
            Ok(regex) => rules.pattern = Some(regex),
            Err(error) => {
                // The last line is the message; the lines before it draw the pattern.
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or_default();
                let reason = reason.trim_start_matches("error: ");
                let message = format!("`pattern` is not a regular expression: {reason}");
                problems.error("bad_pattern", &at.value, message, NO_HELP);
            }
        }
        rules
    }

    /// Reads a value that is given as text.
    fn parse(&self, text: &str, place: &Place) -> Option<Value> {
        let (wanted, _, parse) = of_type(self.kind);
        let value = parse(text);
        if value.is_none() {
            let message = format!("input `{}` must be {wanted}", self.name);
            self.problems.error("bad_input", place, message, NO_HELP);
        }
        value
    }

    /// Returns true if a value is allowed; reports the reason if not.
    fn check(&self, value: &Value, place: &Place) -> bool {
        let (wanted, fits, _) = of_type(self.kind);
        if self.kind.is_none() {
            return true;
        }
        // Numbers are compared by value, so that `1` in the file allows `1.0`.
        let equal = |a: &Value| match (a.as_f64(), value.as_f64()) {
            (Some(a), Some(b)) => a == b,
            _ => a == value,
        };
        let reason = if !fits(value) {
            format!("input `{}` must be {wanted}", self.name)
        } else if let Some(allowed) = self.allowed.as_ref().filter(|a| !a.iter().any(equal)) {
            let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
            format!("input `{}` must be one of {}", self.name, allowed.join(", "))
        } else if let Some(regex) = &self.pattern
            && value.as_str().is_some_and(|text| !regex.is_match(text))
        {
            format!("input `{}` does not match `{regex}`", self.name)
        } else {
            return true;
        };
        self.problems.error("bad_input", place, reason, NO_HELP);
        false
    }
}
