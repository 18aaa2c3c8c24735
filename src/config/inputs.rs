//! The run's inputs: given values and defaults, checked against `[inputs]`.

use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::{Map, Value};

use super::diagnostic::{Place, Problems};
use super::names;
use super::raw::{Entry, Raw, Table};
use super::{Missing, Sources};

/// The checked inputs.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub(super) values: Map<String, Value>,
    pub(super) read_only_roots: Vec<PathBuf>,
}

/// Checks what was given against what the file asks for, and fills in defaults.
pub(super) fn inputs(
    tree: &Table,
    root: &Path,
    sources: &Sources,
    problems: &mut Problems,
) -> Inputs {
    let section = tree.section("inputs");
    unknown(section, sources, problems);
    let mut all = Inputs::default();
    for entry in &section.0 {
        let Some(table) = entry.node.table() else { continue };
        let rules = Rules::read(entry, table, problems);
        let default = table.get("default").map(|at| (at.node.to_json(), &at.node.place));
        if let Some((value, place)) = &default {
            rules.check(value, place, problems);
        }
        let given = sources.inputs.iter().rev().find(|(key, _)| *key == entry.key);
        let value = match (given, default) {
            (Some((key, text)), _) => {
                let origin = "the command line";
                let prefix = format!("--input {key}=");
                let place = Place::outside("command line", &prefix, text, origin);
                let value = rules.parse(text, &place, problems);
                value.filter(|value| rules.check(value, &place, problems)).map(|v| (v, place))
            }
            (None, Some((value, place))) => Some((value, place.clone())),
            (None, None) => {
                if sources.missing_inputs == Missing::Refuse {
                    let message = format!("input `{}` has no value and no default", entry.key);
                    let help = Some(format!("give it with `--input {}=...`", entry.key));
                    problems.error_help("missing_input", &entry.key_place, message, help);
                }
                None
            }
        };
        let Some((mut value, place)) = value else { continue };
        if rules.kind == "path"
            && let Value::String(text) = &value
        {
            value = all.path(text, root, &place, problems).into();
        }
        all.values.insert(entry.key.clone(), value);
    }
    all
}

fn unknown(section: &Table, sources: &Sources, problems: &mut Problems) {
    for (key, text) in &sources.inputs {
        if section.get(key).is_none() {
            let rest = format!("{key}={text}");
            let place = Place::outside("command line", "--input ", &rest, "the command line");
            let help = match names::suggest(key, section.0.iter().map(|e| e.key.as_str())) {
                Some(help) => help,
                None => "the file has no [inputs]".to_owned(),
            };
            let message = format!("there is no input `{key}`");
            let place = place.part(0..key.len());
            problems.error_help("unknown_input", &place, message, Some(help));
        }
    }
}

impl Inputs {
    /// The text of a path: as given within the root, canonical outside it. A path outside adds a
    /// root that may be read.
    fn path(&mut self, text: &str, root: &Path, place: &Place, problems: &mut Problems) -> String {
        let real = match root.join(text).canonicalize() {
            Ok(real) => real,
            Err(error) => {
                problems.error("bad_input", place, format!("cannot find `{text}`: {error}"));
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

/// What one input must be.
struct Rules<'a> {
    name: &'a str,
    kind: &'a str,
    pattern: Option<Regex>,
    allowed: Option<Vec<Value>>,
}

impl<'a> Rules<'a> {
    fn read(entry: &'a Entry, table: &'a Table, problems: &mut Problems) -> Self {
        let kind = table.text("type").unwrap_or("string");
        let mut rules = Self { name: &entry.key, kind, pattern: None, allowed: None };
        if let Some(at) = table.get("enum")
            && let Raw::List(items) = &at.node.raw
        {
            for item in items {
                rules.check(&item.to_json(), &item.place, problems);
            }
            rules.allowed = Some(items.iter().map(super::raw::Node::to_json).collect());
        }
        if let Some(at) = table.get("pattern")
            && let Some(text) = at.node.text()
        {
            if !matches!(kind, "string" | "path") {
                let message = format!("`pattern` does not fit an input of type `{kind}`");
                problems.error("bad_value", &at.key_place, message);
            }
            match Regex::new(text) {
                Ok(regex) => rules.pattern = Some(regex),
                Err(error) => {
                    // The last line says what is wrong; the ones before draw the pattern.
                    let error = error.to_string();
                    let reason = error.lines().last().unwrap_or_default();
                    let reason = reason.trim_start_matches("error: ");
                    let message = format!("`pattern` is not a regular expression: {reason}");
                    problems.error("bad_pattern", &at.node.place, message);
                }
            }
        }
        rules
    }

    /// Reads a value given as text.
    fn parse(&self, text: &str, place: &Place, problems: &mut Problems) -> Option<Value> {
        let value = match self.kind {
            "string" | "path" => Some(Value::from(text)),
            "integer" => text.parse::<i64>().ok().map(Value::from),
            "number" => match text.parse::<i64>() {
                Ok(whole) => Some(Value::from(whole)),
                Err(_) => text.parse::<f64>().ok().filter(|n| n.is_finite()).map(Value::from),
            },
            "boolean" => text.parse::<bool>().ok().map(Value::from),
            _ => serde_json::from_str(text).ok(),
        };
        if value.is_none() {
            problems.error("bad_input", place, self.wrong_type());
        }
        value
    }

    fn wrong_type(&self) -> String {
        let want = match self.kind {
            "boolean" => "`true` or `false`",
            "integer" => "an integer",
            "number" => "a number",
            "array" => "an array (as JSON when given as text)",
            "object" => "an object (as JSON when given as text)",
            "path" => "a path",
            _ => "a string",
        };
        format!("input `{}` must be {want}", self.name)
    }

    /// Whether a value is allowed; says why not.
    fn check(&self, value: &Value, place: &Place, problems: &mut Problems) -> bool {
        let fits = match self.kind {
            "string" | "path" => value.is_string(),
            "integer" => value.is_i64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => true,
        };
        let equal = |a: &Value| match (a.as_f64(), value.as_f64()) {
            (Some(a), Some(b)) => a == b,
            _ => a == value,
        };
        let reason = if !fits {
            self.wrong_type()
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
        problems.error("bad_input", place, reason);
        false
    }
}
