//! What the user wrote: a tree of keys and values that knows where each of them stands.
//!
//! Knows nothing of what the keys mean.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use figment::value::{Dict, Num, Value as Figment};
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Place, Severity, Text};
use super::duration;

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) raw: Raw,
    pub(super) place: Place,
    /// An environment variable has no quotes: where a text is wanted, `5` is one.
    pub(super) unquoted: Option<String>,
}

/// A value as it was written.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    Text(String),
    Integer(i64),
    Number(f64),
    Truth(bool),
    Moment(String),
    List(Vec<Node>),
    Table(Table),
}

/// A key, where it stands, and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_place: Place,
    pub(super) node: Node,
}

/// Keys and values in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(pub(super) Vec<Entry>);

/// Reads a TOML text.
pub(super) fn parse(text: &Text) -> Result<Table, Box<Diagnostic>> {
    let parsed = DeTable::parse(text.inner()).map_err(|error| {
        let length = text.inner().len();
        let span = error.span().unwrap_or(0..0);
        let place = Place::new(text, span.start.min(length)..span.end.min(length));
        let message = format!("not valid TOML: {}", error.message());
        Box::new(Diagnostic::new("bad_toml", Severity::Error, &place, message, None))
    })?;
    table(parsed.get_ref(), text)
}

fn table(from: &DeTable<'_>, text: &Text) -> Result<Table, Box<Diagnostic>> {
    let mut entries = Vec::with_capacity(from.len());
    for (key, value) in from {
        entries.push(Entry {
            key: key.get_ref().to_string(),
            key_place: Place::new(text, key.span()),
            node: node(value.get_ref(), value.span(), text)?,
        });
    }
    // The parser sorts by key; tasks keep the order of the file.
    entries.sort_by_key(|entry| entry.key_place.span.start);
    Ok(Table(entries))
}

fn node(value: &DeValue<'_>, span: Range<usize>, text: &Text) -> Result<Node, Box<Diagnostic>> {
    let place = Place::new(text, span);
    let unfit = |what: &str| {
        let message = format!("this {what} is out of range");
        Box::new(Diagnostic::new("bad_value", Severity::Error, &place, message, None))
    };
    let raw = match value {
        DeValue::String(s) => Raw::Text(s.to_string()),
        DeValue::Integer(n) => {
            let n = i64::from_str_radix(n.as_str(), n.radix());
            Raw::Integer(n.map_err(|_| unfit("integer"))?)
        }
        DeValue::Float(n) => Raw::Number(n.as_str().parse().map_err(|_| unfit("number"))?),
        DeValue::Boolean(b) => Raw::Truth(*b),
        DeValue::Datetime(d) => Raw::Moment(d.to_string()),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| node(item.get_ref(), item.span(), text));
            Raw::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(entries) => Raw::Table(table(entries, text)?),
    };
    Ok(Node { raw, place, unquoted: None })
}

impl Node {
    pub(super) fn new(raw: Raw, place: Place) -> Self {
        Self { raw, place, unquoted: None }
    }

    /// A value from a flag, all of it at one place.
    pub(super) fn from_toml(value: &toml::Value, place: &Place) -> Self {
        let raw = match value {
            toml::Value::String(s) => Raw::Text(s.clone()),
            toml::Value::Integer(n) => Raw::Integer(*n),
            toml::Value::Float(n) => Raw::Number(*n),
            toml::Value::Boolean(b) => Raw::Truth(*b),
            toml::Value::Datetime(d) => Raw::Moment(d.to_string()),
            toml::Value::Array(items) => {
                Raw::List(items.iter().map(|item| Self::from_toml(item, place)).collect())
            }
            toml::Value::Table(entries) => {
                let entry = |(key, value): (&String, &toml::Value)| Entry {
                    key: key.clone(),
                    key_place: place.clone(),
                    node: Self::from_toml(value, place),
                };
                Raw::Table(Table(entries.iter().map(entry).collect()))
            }
        };
        Self::new(raw, place.clone())
    }

    /// A value as figment reads it from an environment variable, all of it at one place.
    pub(super) fn from_figment(value: &Figment, place: &Place) -> Self {
        let raw = match value {
            Figment::String(_, s) => Raw::Text(s.clone()),
            Figment::Char(_, c) => Raw::Text(c.to_string()),
            Figment::Bool(_, b) => Raw::Truth(*b),
            Figment::Num(_, n) => number(*n),
            Figment::Empty(..) => Raw::Text(String::new()),
            Figment::Array(_, items) => {
                Raw::List(items.iter().map(|item| Self::from_figment(item, place)).collect())
            }
            Figment::Dict(_, dict) => {
                let entry = |(key, value): (&String, &Figment)| Entry {
                    key: key.clone(),
                    key_place: place.clone(),
                    node: Self::from_figment(value, place),
                };
                Raw::Table(Table(dict.iter().map(entry).collect()))
            }
        };
        Self::new(raw, place.clone())
    }

    /// The value in figment's form, for the layers.
    pub(super) fn to_figment(&self) -> Figment {
        match &self.raw {
            Raw::Text(s) | Raw::Moment(s) => Figment::from(s.clone()),
            Raw::Integer(n) => Figment::from(*n),
            Raw::Number(n) => Figment::from(*n),
            Raw::Truth(b) => Figment::from(*b),
            Raw::List(items) => {
                Figment::from(items.iter().map(Self::to_figment).collect::<Vec<_>>())
            }
            Raw::Table(table) => Figment::from(table.to_figment()),
        }
    }

    /// The value in JSON's form: inputs and their defaults.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.raw {
            Raw::Text(s) | Raw::Moment(s) => s.clone().into(),
            Raw::Integer(n) => (*n).into(),
            Raw::Number(n) => (*n).into(),
            Raw::Truth(b) => (*b).into(),
            Raw::List(items) => items.iter().map(Self::to_json).collect(),
            Raw::Table(table) => {
                table.0.iter().map(|e| (e.key.clone(), e.node.to_json())).collect()
            }
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self.raw {
            Raw::Text(_) => "a string",
            Raw::Integer(_) => "an integer",
            Raw::Number(_) => "a number",
            Raw::Truth(_) => "a boolean",
            Raw::Moment(_) => "a date",
            Raw::List(_) => "an array",
            Raw::Table(_) => "a table",
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.raw {
            Raw::Text(s) => Some(s),
            _ => self.unquoted.as_deref(),
        }
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match self.raw {
            Raw::Integer(n) => Some(n),
            _ => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "settings are far below 2^52")]
    pub(super) fn number(&self) -> Option<f64> {
        match self.raw {
            Raw::Number(n) => Some(n),
            Raw::Integer(n) => Some(n as f64),
            _ => None,
        }
    }

    /// Notes in every diagnostic of this value, and of what it holds, what brought it in.
    pub(super) fn came_from(&mut self, origin: &Arc<str>) {
        self.place.origin = Some(Arc::clone(origin));
        match &mut self.raw {
            Raw::List(items) => items.iter_mut().for_each(|item| item.came_from(origin)),
            Raw::Table(table) => table.came_from(origin),
            _ => {}
        }
    }

    pub(super) fn table(&self) -> Option<&Table> {
        match &self.raw {
            Raw::Table(table) => Some(table),
            _ => None,
        }
    }
}

fn number(n: Num) -> Raw {
    let whole = n.to_i128().or_else(|| n.to_u128().and_then(|n| i128::try_from(n).ok()));
    match whole.and_then(|n| i64::try_from(n).ok()) {
        Some(n) => Raw::Integer(n),
        None => Raw::Number(n.to_f64().unwrap_or(f64::INFINITY)),
    }
}

impl Table {
    pub(super) fn to_figment(&self) -> Dict {
        self.0.iter().map(|entry| (entry.key.clone(), entry.node.to_figment())).collect()
    }

    pub(super) fn came_from(&mut self, origin: &Arc<str>) {
        for entry in &mut self.0 {
            entry.key_place.origin = Some(Arc::clone(origin));
            entry.node.came_from(origin);
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Entry> {
        let at = self.0.iter().position(|entry| entry.key == key)?;
        Some(self.0.remove(at))
    }

    /// The table at a path of keys.
    pub(super) fn at(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |table, key| table.get(key)?.node.table())
    }

    /// The table of that key; an empty one when there is none.
    pub(super) fn section(&self, key: &str) -> &Self {
        static EMPTY: Table = Table(Vec::new());
        self.get(key).and_then(|entry| entry.node.table()).unwrap_or(&EMPTY)
    }

    /// The entries of a section that are tables themselves, each with its own.
    pub(super) fn tables(&self, key: &str) -> impl Iterator<Item = (&Entry, &Self)> {
        self.section(key).0.iter().filter_map(|entry| Some((entry, entry.node.table()?)))
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.node.text()
    }

    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.node.number()
    }

    pub(super) fn truth(&self, key: &str) -> Option<bool> {
        match self.get(key)?.node.raw {
            Raw::Truth(b) => Some(b),
            _ => None,
        }
    }

    /// A whole number that fits `T`.
    pub(super) fn whole<T: TryFrom<i64>>(&self, key: &str) -> Option<T> {
        T::try_from(self.get(key)?.node.integer()?).ok()
    }

    pub(super) fn duration(&self, key: &str) -> Option<Duration> {
        duration::parse(self.text(key)?)
    }

    /// The texts of a list, each with its place.
    pub(super) fn texts(&self, key: &str) -> Vec<(&str, &Place)> {
        let Some(Raw::List(items)) = self.get(key).map(|entry| &entry.node.raw) else {
            return Vec::new();
        };
        items.iter().filter_map(|item| Some((item.text()?, &item.place))).collect()
    }
}
