//! The tree of written values: values of figment, each of which knows its place.
//!
//! figment keeps a tag with every value, and of several layers the tag of the winning value
//! remains. Here the tag is the index of a [`Written`] in a table beside the trees, so that a
//! merged value leads to its key, line and column, and no second tree is needed. Does not know the
//! meaning of keys.

use std::rc::Rc;
use std::sync::Arc;

use figment::value::{Dict, Tag, Value};
use miette::NamedSource;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as Unfit;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, NO_HELP, Origin, Place, Text};
use super::hints;

/// The word for an array in messages.
pub(super) const ARRAY: &str = "an array";

/// The word for a date in messages. figment has no dates, so a date is a string that is not
/// accepted where a text is wanted.
pub(super) const DATE: &str = "a date";

/// The places and the form of a value as it is written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// The place of the value's key; for an item of an array, the place of the item.
    pub(super) key: Place,
    /// The place of the value.
    pub(super) value: Place,
    /// The word for this kind of value in messages.
    pub(super) kind: &'static str,
    /// The text of an environment variable, which has no quotes: where a text is wanted, `5` is a
    /// text.
    pub(super) unquoted: Option<String>,
}

/// The places and forms of all values, by the number in their tags.
#[derive(Debug)]
pub(super) struct Places(Vec<Rc<Written>>);

/// The number of values that nobody wrote. It is not 0, because figment would replace a tag of 0 by
/// one of its own.
const BUILT_IN: usize = 1;

impl Default for Places {
    fn default() -> Self {
        let text = Arc::new(NamedSource::new("built-in defaults", String::new()));
        let (key, value) = (Place::start(&text), Place::start(&text));
        Self(vec![Rc::new(Written { key, value, kind: "a default", unquoted: None })])
    }
}

impl Places {
    /// Reads a TOML text.
    ///
    /// # Errors
    /// Returns a diagnostic with the place if the text is not TOML or holds a number out of range.
    pub(super) fn parse(&mut self, text: &Text) -> Result<Dict, Box<Diagnostic>> {
        let parsed = DeTable::parse(text.inner()).map_err(|error| {
            let length = text.inner().len();
            let span = error.span().unwrap_or(0..0);
            let place = Place::new(text, span.start.min(length)..span.end.min(length));
            let first = Some(error.message())
                .filter(|message| message.contains("duplicate key"))
                .and_then(|_| first_place(text.inner(), span.start));
            let first = first.map(|line| format!(" (it is set in line {line} already)"));
            let advice = hints::not_toml(text.inner(), place.span.start);
            let (reason, help) = advice.unwrap_or_else(|| {
                let reason = format!("{}{}", error.message(), first.unwrap_or_default());
                (reason, NO_HELP.to_owned())
            });
            let message = format!("not valid TOML: {reason}");
            Box::new(Diagnostic::error("bad_toml", &place, message, help))
        })?;
        self.table(parsed.get_ref(), text)
    }

    fn table(&mut self, from: &DeTable<'_>, text: &Text) -> Result<Dict, Box<Diagnostic>> {
        // The parser sorts by key, but numbers are given in the order of the text: `number` then
        // tells which value is written first.
        let mut entries: Vec<_> = from.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entries = entries.into_iter().map(|(key, value)| {
            let place = Place::new(text, key.span());
            Ok((key.get_ref().to_string(), self.value(value, place, text)?))
        });
        entries.collect()
    }

    fn value(
        &mut self,
        from: &Spanned<DeValue<'_>>,
        key: Place,
        text: &Text,
    ) -> Result<Value, Box<Diagnostic>> {
        let place = Place::new(text, from.span());
        let unfit = |what: &str| {
            let message = format!("this {what} is out of range");
            Box::new(Diagnostic::error("bad_value", &place, message, NO_HELP))
        };
        let mut value = match from.get_ref() {
            DeValue::String(s) => Value::from(s.to_string()),
            DeValue::Integer(n) => {
                let n = i64::from_str_radix(n.as_str(), n.radix());
                Value::from(n.map_err(|_| unfit("integer"))?)
            }
            DeValue::Float(n) => {
                Value::from(n.as_str().parse::<f64>().map_err(|_| unfit("number"))?)
            }
            DeValue::Boolean(b) => Value::from(*b),
            DeValue::Datetime(d) => Value::from(d.to_string()),
            DeValue::Array(items) => {
                let items =
                    items.iter().map(|item| self.value(item, Place::new(text, item.span()), text));
                Value::from(items.collect::<Result<Vec<_>, _>>()?)
            }
            DeValue::Table(entries) => Value::from(self.table(entries, text)?),
        };
        let is_date = matches!(from.get_ref(), DeValue::Datetime(_));
        let kind = if is_date { DATE } else { kind(&value) };
        self.tag(&mut value, Written { key, value: place, kind, unquoted: None });
        Ok(value)
    }

    /// Adds the places of a value to the table and sets its tag.
    fn tag(&mut self, value: &mut Value, written: Written) {
        self.0.push(Rc::new(written));
        *tag_of(value) = tag(self.0.len());
    }

    /// Tags a value that is in no file, and all values in it, with the place where it was given.
    pub(super) fn given(
        &mut self,
        value: &mut Value,
        key: &Place,
        place: &Place,
        unquoted: Option<String>,
    ) {
        for inner in inner(value) {
            self.given(inner, place, place, None);
        }
        let (key, kind) = (key.clone(), kind(value));
        self.tag(value, Written { key, value: place.clone(), kind, unquoted });
    }

    /// Inserts a value into a tree at a path of keys; `name` is the place where the path is
    /// written.
    pub(super) fn insert(&mut self, tree: &mut Dict, path: &[String], name: &Place, value: Value) {
        let Some((key, rest)) = path.split_first() else { return };
        if rest.is_empty() {
            tree.insert(key.clone(), value);
            return;
        }
        // If a value exists where this path needs a table, the later layer wins.
        if !matches!(tree.get(key), Some(Value::Dict(..))) {
            let mut table = Value::from(Dict::new());
            self.given(&mut table, name, name, None);
            tree.insert(key.clone(), table);
        }
        if let Some(Value::Dict(_, inner)) = tree.get_mut(key) {
            self.insert(inner, rest, name, value);
        }
    }

    /// Adds the origin of a value, and of all values in it, to its places, so that every diagnostic
    /// shows it. The value gets new numbers, so it counts as written after all others.
    pub(super) fn came_from(&mut self, value: &mut Value, origin: &Origin) {
        let mut inner = inner(value);
        inner.sort_by_key(|value| number(value));
        inner.into_iter().for_each(|value| self.came_from(value, origin));
        let mut written = Written::clone(self.of(value));
        written.key.origin = Some(origin.clone());
        written.value.origin = Some(origin.clone());
        self.tag(value, written);
    }

    /// Returns the places of a value; those of a built-in default are empty.
    pub(super) fn of(&self, value: &Value) -> &Rc<Written> {
        self.0.get(number(value) - 1).unwrap_or(&self.0[0])
    }

    /// Returns the places of a value, or `None` for a built-in default.
    pub(super) fn written(&self, value: &Value) -> Option<Rc<Written>> {
        (number(value) > BUILT_IN).then(|| Rc::clone(self.of(value)))
    }

    /// Returns a value as a text, if it can be one.
    pub(super) fn text(&self, value: &Value) -> Option<String> {
        let written = self.of(value);
        let text = value.as_str().filter(|_| written.kind != DATE);
        text.or(written.unquoted.as_deref()).map(str::to_owned)
    }
}

/// Returns a value as JSON, with the keys in the order in which they are written.
pub(super) fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Dict(_, dict) => {
            let mut entries: Vec<_> = dict.iter().collect();
            entries.sort_by_key(|(_, value)| number(value));
            entries.into_iter().map(|(key, value)| (key.clone(), json(value))).collect()
        }
        Value::Array(_, items) => items.iter().map(json).collect(),
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}

/// Returns a built-in default as a value of a tree.
pub(super) fn built_in(value: impl Into<Value>) -> Value {
    let mut value = value.into();
    *tag_of(&mut value) = tag(BUILT_IN);
    value
}

/// Gives a table that is in two layers the places of the lower layer, which diagnostics should
/// show; figment would keep those of the upper one.
pub(super) fn keep_places(upper: &mut Dict, lower: &Dict) {
    for (key, value) in upper {
        if let (Value::Dict(tag, inner), Some(Value::Dict(low, below))) = (value, lower.get(key)) {
            *tag = *low;
            keep_places(inner, below);
        }
    }
}

/// Returns the integer that a value is, if it is one that fits an `i64`.
pub(super) fn integer(value: &Value) -> Option<i64> {
    let n = value.to_num()?;
    let wide = n.to_i128().or_else(|| n.to_u128().and_then(|n| i128::try_from(n).ok()))?;
    i64::try_from(wide).ok()
}

/// Returns the number that a value is; an integer is a number too.
pub(super) fn decimal(value: &Value) -> Option<f64> {
    let n = value.to_num()?;
    #[expect(clippy::cast_precision_loss, reason = "settings are far below 2^52")]
    integer(value).map(|n| n as f64).or(n.to_f64()).or(n.to_u128().map(|n| n as f64))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(..) | Value::Char(..) | Value::Empty(..) => "a string",
        Value::Num(..) if integer(value).is_some() => "an integer",
        Value::Num(..) => "a number",
        Value::Bool(..) => "a boolean",
        Value::Array(..) => ARRAY,
        Value::Dict(..) => "a table",
    }
}

/// Returns the values directly inside a value.
fn inner(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Dict(_, dict) => dict.values_mut().collect(),
        Value::Array(_, items) => items.iter_mut().collect(),
        _ => Vec::new(),
    }
}

fn tag_of(value: &mut Value) -> &mut Tag {
    match value {
        Value::String(tag, _)
        | Value::Char(tag, _)
        | Value::Bool(tag, _)
        | Value::Num(tag, _)
        | Value::Empty(tag, _)
        | Value::Dict(tag, _)
        | Value::Array(tag, _) => tag,
    }
}

/// Returns the tag with a number. A tag has no constructor, but figment deserialises it from a
/// number.
fn tag(number: usize) -> Tag {
    let number = IntoDeserializer::<Unfit>::into_deserializer(number as u64);
    Tag::deserialize(number).unwrap_or_default()
}

pub(super) fn number(value: &Value) -> usize {
    let number = Value::from(value.tag()).to_u128().unwrap_or_default();
    usize::try_from(number).unwrap_or_default().max(BUILT_IN)
}
/// Returns the line, from 1, in which a key or a table that is written again at the offset `again`
/// is written first. The text up to there is read line by line: the parser does not tell.
fn first_place(text: &str, again: usize) -> Option<usize> {
    let again_line = text[..again.min(text.len())].matches('\n').count();
    let lines: Vec<&str> = text.lines().take(again_line + 1).map(str::trim).collect();
    let written = lines.get(again_line)?;
    if written.starts_with('[') {
        return lines[..again_line].iter().position(|line| line == written).map(|at| at + 1);
    }
    let key = |line: &str| line.split_once('=').map(|(key, _)| key.trim().to_owned());
    let wanted = key(written)?;
    let header = lines[..again_line].iter().rposition(|line| line.starts_with('['));
    let from = header.map_or(0, |at| at + 1);
    let same = |line: &&str| key(line).is_some_and(|key| key == wanted);
    lines[from..again_line].iter().position(same).map(|at| from + at + 1)
}
