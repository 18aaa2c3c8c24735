//! Checks a tree of values against the declared keys: unknown keys, wrong types, values out of
//! bounds.
//!
//! Looks at one value at a time and continues after a mistake, so that all mistakes are found at
//! once. It does not check whether names exist: the code that resolves a name does.

use std::collections::HashMap;

use figment::value::{Dict, Value};
use regex::Regex;

use super::diagnostic::{Code, NO_HELP, Problems, Severity};
use super::raw::{File, Header};
use super::shape::examples;
use super::shape::kinds::{Form, LINE};
use super::shape::{Built, Key, Keys, Kind, Section};
use super::size::Size;
use super::tree::{self, Places, Written};
use super::{foreign, hints, names, reference};
use crate::duration;
use crate::model::http::HeaderRole;
use crate::redaction::key_shapes;
use crate::spec::spawn_rate::SpawnRate;

/// The most bytes of a name: it stands in ids and in names of files, which have at most 255 (NAME_MAX of Linux).
const LONGEST_NAME: usize = 200;

/// The most keys that a message lists.
const MOST_KEYS: usize = 12;

/// An upper bound of numbers that nobody comes to: it is not named.
const BOUNDLESS: i64 = u32::MAX as i64;

/// Returns the entries of a table in the order in which they are written.
fn as_written(dict: &Dict) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = dict.iter().collect();
    entries.sort_by_key(|(_, value)| tree::number(value));
    entries
}

/// Checks trees of values and reports the problems that it finds.
#[derive(Debug)]
pub(super) struct Check<'a> {
    places: &'a Places,
    problems: &'a Problems,
    /// The severity of a key that never had an effect.
    idle: Severity,
    /// The keys that lead to the value being checked, with dots between them.
    path: String,
    /// The tables that are open, from outside: the length of the path to each, and its keys.
    open: Vec<(usize, Keys)>,
    forms: HashMap<&'static str, Regex>,
}

impl<'a> Check<'a> {
    pub(super) fn new(places: &'a Places, problems: &'a Problems, idle: Severity) -> Self {
        Self {
            places,
            problems,
            idle,
            path: String::new(),
            open: Vec::new(),
            forms: HashMap::new(),
        }
    }

    /// Checks the tree of a file.
    pub(super) fn file(&mut self, tree: &Dict) {
        self.table(tree, File::KEYS);
    }

    /// Checks a layer above the file: a profile, variables or flags.
    pub(super) fn overlay(&mut self, tree: &Dict) {
        for key in Header::KEYS[0] {
            if let Some(value) = tree.get(key.name) {
                let message = format!("`{}` can only be set at the top of the file", key.name);
                self.problems.error("bad_value", &self.at(value).key, message, NO_HELP);
            }
        }
        self.table(tree, File::KEYS);
    }

    fn table(&mut self, dict: &Dict, keys: Keys) {
        let known = keys.iter().copied().flatten();
        self.open.push((self.path.len(), keys));
        for (name, value) in as_written(dict) {
            let Some(key) = known.clone().find(|key| key.name == name) else {
                if self.problems.is_full() {
                    continue;
                }
                let whose = match self.path.as_str() {
                    "" => "at the top level".to_owned(),
                    path => format!("in [{path}]"),
                };
                let built = known.clone().filter(|key| key.built == Built::Yes);
                let near = names::did_you_mean(name, known.clone().map(|key| key.name));
                let help = match (foreign::key(&self.path, name), near.is_empty()) {
                    (None, _) if self.above(name).is_some() => self.above(name).unwrap_or_default(),
                    (Some(here), _) => here.to_owned(),
                    (None, false) => near,
                    (None, true) => {
                        let all: Vec<&str> = built.map(|key| key.name).collect();
                        self.keys(name, value, &all)
                    }
                };
                let message = format!("unknown key `{name}` {whose}");
                self.problems.error("unknown_key", &self.at(value).key, message, help);
                continue;
            };
            self.below(name, |check| match key.built {
                Built::Yes => check.value(value, key.kind),
                Built::Later | Built::Idle => check.not_built(value, key),
            });
        }
        self.open.pop();
    }

    /// Returns the advice for a key that is near to none of these: the keys, or the page that has so many.
    fn keys(&self, name: &str, value: &Value, all: &[&str]) -> String {
        if all.len() <= MOST_KEYS {
            return format!("the keys here are {}", names::list(all));
        }
        let section = foreign::section(&self.path);
        let (title, anchor) = match section.as_str() {
            "" => ("the top level".to_owned(), reference::anchor("The top level")),
            section => (format!("[{section}]"), reference::anchor(section)),
        };
        let page = format!("docs/agents-toml.md#{anchor} lists the keys of {title}");
        match (value, self.path.as_str()) {
            (Value::Dict(..), "") => format!("there is no table `[{name}]`; {page}"),
            (Value::Dict(..), path) => format!("there is no table `[{path}.{name}]`; {page}"),
            _ => page,
        }
    }

    /// Returns the advice for a key that belongs to the table around this one: after the header of a
    /// sub-table, all keys are of that.
    fn above(&self, name: &str) -> Option<String> {
        let (above, _) = self.path.rsplit_once('.')?;
        let [.., (at, around), _] = &self.open[..] else { return None };
        // Between a table of names and its entries there are no keys.
        if *at != above.len() {
            return None;
        }
        let mut known = around.iter().copied().flatten();
        known.find(|key| key.name == name && key.built == Built::Yes)?;
        let own = self.path.rsplit('.').next().unwrap_or_default();
        Some(format!("it belongs to [{above}]: write it above [{above}.{own}]"))
    }

    fn not_built(&mut self, value: &Value, key: &Key) {
        let before = self.problems.count();
        let message = format!("`{}` is not available in this version", self.path);
        let help = foreign::instead(&self.path).unwrap_or(NO_HELP);
        let place = &self.at(value).key;
        match (key.built, self.idle) {
            _ if self.problems.count() > before => {}
            (Built::Idle, Severity::Warning) => {
                self.problems.warning("not_built", place, message, help);
            }
            _ => self.problems.error("not_built", place, message, help),
        }
    }

    fn value(&mut self, value: &Value, kind: Kind) {
        match (kind, value) {
            (Kind::Any | Kind::Only(_) | Kind::Either(_), _) => {}
            (Kind::Text(..), _) => drop(self.text(value, kind)),
            (Kind::Header(keys), Value::Dict(_, dict)) => self.table(dict, keys),
            (Kind::Header(_), _) => self.header(value, kind),
            (Kind::Words(built, later), _) => self.word(value, kind, built(), later),
            (Kind::Truth, Value::Bool(..)) => {}
            (Kind::Truth, _) => self.wrong(value, "true or false", kind),
            (Kind::Whole(low, high, _), _) => match tree::integer(value) {
                None => self.wrong(value, "an integer", kind),
                Some(n) => self.bounds(value, (low..=high).contains(&n), low, high),
            },
            (Kind::Number(low, high, _), _) => match tree::decimal(value) {
                None => self.wrong(value, "a number", kind),
                #[expect(clippy::cast_precision_loss, reason = "bounds are far below 2^52")]
                Some(n) => {
                    self.bounds(value, (low as f64..=high as f64).contains(&n), low, high);
                }
            },
            (Kind::Pause | Kind::Time, _) => self.time(value, kind),
            (Kind::Rate, _) => self.rate(value),
            (Kind::Size(low), _) => self.size(value, low),
            (Kind::List(inner), Value::Array(_, items)) => {
                for (n, item) in items.iter().enumerate() {
                    self.below(&format!("[{n}]"), |check| check.value(item, *inner));
                }
            }
            (Kind::List(_), _) => self.wrong(value, tree::ARRAY, kind),
            (Kind::Map(form, inner), Value::Dict(_, dict)) => {
                for (name, value) in as_written(dict) {
                    self.name(name, value, form);
                    if matches!(inner, Kind::Header(_))
                        && HeaderRole::of(name) == HeaderRole::Framing
                    {
                        let message = format!(
                            "the header `{name}` is no setting: it says where a request ends"
                        );
                        self.problems.error(
                            "bad_value",
                            &self.places.of(value).key,
                            message,
                            "leave it out",
                        );
                    }
                    self.below(name, |check| check.value(value, *inner));
                }
            }
            (Kind::Table(keys) | Kind::Key(keys), Value::Dict(_, dict)) => self.table(dict, keys),
            (Kind::Profile, Value::Dict(_, dict)) => self.overlay(dict),
            (Kind::Map(..) | Kind::Table(_) | Kind::Profile, _) => {
                self.wrong(value, "a table", kind);
            }
            (Kind::Key(_), _) => {
                let message =
                    format!("`{}` must say where the key is found, not hold it", self.path);
                let help = "write `{ env = \"NAME_OF_A_VARIABLE\" }`";
                self.hide("literal_key", value, message, help);
            }
        }
    }

    fn name(&mut self, name: &str, value: &Value, form: &'static Form) {
        if name.len() > LONGEST_NAME {
            let message = format!("a name of {} bytes is too long", name.len());
            let help = format!("use at most {LONGEST_NAME}");
            self.problems.error("bad_name", &self.places.of(value).key, message, help);
            return;
        }
        let regex = self.forms.entry(form.pattern).or_insert_with(|| {
            Regex::new(form.pattern).expect("the patterns are constant and valid")
        });
        if !regex.is_match(name) {
            let message = format!("`{name}` is not a name");
            self.problems.error("bad_name", &self.places.of(value).key, message, form.rule);
        }
    }

    fn text(&self, value: &Value, kind: Kind) -> Option<String> {
        let text = self.places.text(value);
        match &text {
            None => self.wrong(value, "a string", kind),
            Some(text) if matches!(kind, Kind::Text(LINE, _)) => {
                if let Some(control) = text.chars().find(|c| c.is_control()) {
                    let code = u32::from(control);
                    let message = format!("`{}` has a control character, U+{code:04X}", self.path);
                    self.refuse("bad_value", value, message, "remove it");
                }
            }
            Some(_) => {}
        }
        text
    }

    fn header(&self, value: &Value, kind: Kind) {
        let Some(text) = self.text(value, kind) else { return };
        let header = self.path.rsplit_once(".headers.").map_or("", |(_, header)| header);
        if text.chars().any(|c| !(' '..='~').contains(&c)) {
            let message = format!("the value of the header `{header}` must be printable ASCII");
            self.hide("bad_value", value, message, NO_HELP);
        } else if let Some(reason) = key_shapes::reason(header, &text)
            // A run that recorded such a header must be able to resume.
            && self.idle == Severity::Error
        {
            let message = format!("the header `{header}` holds what looks like a key: {reason}");
            let help = format!(
                "write `{header} = {{ env = \"NAME_OF_A_VARIABLE\" }}` and set the variable to the whole value"
            );
            self.hide("literal_key", value, message, &help);
        }
    }

    fn word(&self, value: &Value, kind: Kind, built: &[&str], later: &[&str]) {
        let Some(text) = self.text(value, kind).filter(|text| !built.contains(&text.as_str()))
        else {
            return;
        };
        let is = |word: &str| text == word || (word.ends_with(':') && text.starts_with(word));
        if later.iter().any(|word| is(word)) {
            let message = format!("`{} = \"{text}\"` is not available in this version", self.path);
            let help = format!("available: {}", names::list(built));
            return self.refuse("not_built", value, message, help);
        }
        let mut help = match foreign::value(&self.path, &text) {
            Some(here) => format!("did you mean `{here}`?"),
            None => names::did_you_mean(&text, built.iter().copied()),
        };
        if help.is_empty() {
            help = format!("use one of {}", names::list(built));
        }
        let message = format!("`{text}` is not a value of `{}`", self.path);
        self.refuse("bad_value", value, message, help);
    }

    fn bounds(&self, value: &Value, fits: bool, low: i64, high: i64) {
        if !fits {
            let (path, key) = (&self.path, self.path.rsplit('.').next().unwrap_or_default());
            let message = match high {
                BOUNDLESS.. => format!("`{path}` must be at least {low}"),
                high => format!("`{path}` must be from {low} to {high}"),
            };
            let help = match key {
                "context_window" => "below that, no request with a tool and a reply fits",
                _ => NO_HELP,
            };
            self.refuse("bad_value", value, message, help);
        }
    }

    fn time(&self, value: &Value, kind: Kind) {
        let form = "write a number and a unit, like `250ms`, `10s`, `5m`, `2h` or `1m30s`";
        let help = |text: &str| match hints::duration(text) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => form.to_owned(),
        };
        let Some(text) = self.places.text(value) else {
            let kind = self.at(value).kind;
            let message = format!("`{}` must be a duration, not {kind}", self.path);
            let written = self.at(value).value.written();
            return self.refuse("wrong_type", value, message, help(written));
        };
        let help = help(&text);
        match duration::parse(&text) {
            None => {
                self.refuse("bad_duration", value, format!("`{text}` is not a duration"), help);
            }
            Some(time) if time.is_zero() && matches!(kind, Kind::Time) => {
                let message = format!("`{}` must be above 0", self.path);
                self.refuse("bad_duration", value, message, NO_HELP);
            }
            Some(_) => {}
        }
    }

    fn size(&self, value: &Value, low: u64) {
        let help = "write a number and a unit, like `512MiB` or `8GiB`";
        let Some(text) = self.places.text(value) else {
            let message = format!("`{}` must be a size, not {}", self.path, self.at(value).kind);
            return self.refuse("wrong_type", value, message, help);
        };
        match Size::parse(&text) {
            None => self.refuse("bad_value", value, format!("`{text}` is not a size"), help),
            Some(size) if size < Size(low << 20) => {
                let message = format!("`{}` must be {low}MiB or more", self.path);
                self.refuse("bad_value", value, message, NO_HELP);
            }
            Some(_) => {}
        }
    }

    fn rate(&self, value: &Value) {
        let text = self.places.text(value).unwrap_or_default();
        if text.parse::<SpawnRate>().is_err() {
            let key = self.path.rsplit('.').next().unwrap_or_default();
            let message = format!("`{key}` must be a count per time");
            self.refuse("bad_value", value, message, "write it like `5/10s`");
        }
    }

    /// Runs `check` with `key` added to the path.
    fn below(&mut self, key: &str, check: impl FnOnce(&mut Self)) {
        let end = self.path.len();
        if end > 0 && !key.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(key);
        check(self);
        self.path.truncate(end);
    }

    fn at(&self, value: &Value) -> &Written {
        self.places.of(value)
    }

    fn wrong(&self, value: &Value, wanted: &str, kind: Kind) {
        let message = format!("`{}` must be {wanted}, not {}", self.path, self.at(value).kind);
        let key = self.path.rsplit('.').next().unwrap_or_default();
        let help = match self.meant(value, kind, key).or_else(|| examples::of(key, &kind)) {
            // A table by a name of its own.
            Some(example) if example.starts_with("write ") => example,
            // An item of an array or the value of a chosen name has no key of its own.
            Some(example) if !key.ends_with(']') => format!("write it like `{key} = {example}`"),
            Some(example) => format!("write it like `{example}`"),
            None => NO_HELP.to_owned(),
        };
        match (kind, value) {
            // The parser has no place of an array of tables: its parts stand apart.
            (Kind::Map(_, Kind::Table(_)), Value::Array(..)) => {
                self.problems.error("wrong_type", &self.at(value).key, message, help);
            }
            _ => self.refuse("wrong_type", value, message, help),
        }
    }

    /// Returns a value of the right kind that was probably meant, or the whole advice where it is no value.
    fn meant(&self, value: &Value, kind: Kind, key: &str) -> Option<String> {
        let written = self.at(value).value.written();
        let is_plain = matches!(value, Value::Num(..) | Value::Bool(..));
        match (kind, value) {
            (Kind::Whole(..) | Kind::Number(..) | Kind::Only(_), Value::String(_, text)) => {
                let meant = hints::whole(text)?;
                (!key.ends_with(']')).then(|| format!("write `{key} = {meant}`"))
            }
            (Kind::Text(..), _) if is_plain && !written.is_empty() => (!key.ends_with(']'))
                .then(|| format!("write it as a string: `{key} = \"{written}\"`")),
            (Kind::Table(keys), Value::Num(..)) if tree::integer(value).is_some() => {
                let mut keys = keys.iter().copied().flatten();
                let first = keys.find(|key| key.built == Built::Yes)?;
                matches!(first.kind, Kind::Whole(..))
                    .then(|| format!("write `{key} = {{ {} = {written} }}`", first.name))
            }
            (Kind::List(Kind::Table(_)), Value::Dict(..)) => {
                Some(format!("write the header in two brackets: `[[{}]]`", self.path))
            }
            (Kind::Map(_, Kind::Table(_)), Value::Array(..)) => {
                Some(format!("write each as `[{}.NAME]`, with a name of its own", self.path))
            }
            _ => None,
        }
    }

    fn refuse(&self, code: Code, value: &Value, message: String, help: impl Into<String>) {
        self.problems.error(code, &self.at(value).value, message, help);
    }

    /// Does the same as [`Check::refuse`] for a value that may be a provider's key: the value is
    /// not shown.
    fn hide(&self, code: Code, value: &Value, message: String, help: &str) {
        self.problems.hide(&self.at(value).value);
        self.refuse(code, value, message, help);
    }
}
