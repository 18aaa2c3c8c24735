//! The parts of a declaration and the values read by it: kinds, keys and fields.
//!
//! The tables of keys are data for the checks and for the documentation. [`Read`] takes the values
//! out of a checked tree. The keys themselves are declared in `raw`.

mod declare;
pub(super) mod examples;
pub(super) mod kinds;
pub(super) mod named;

use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

use figment::value::{Dict, Value};
use serde_json::Value as Json;

pub(in crate::config) use self::declare::{constants, sections, words};
pub(super) use self::kinds::Kind;
pub(super) use self::named::{Entry, Named};
use super::diagnostic::{Code, Place};
use super::tree::{self, Places, Written};
use crate::duration;
use crate::spec::spawn_rate::SpawnRate;

/// The keys of a table, as a list for each of the sections that share the table.
pub(super) type Keys = &'static [&'static [Key]];

/// A declared key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The meaning of the key: its doc comment.
    pub(super) doc: &'static str,
    pub(super) kind: Kind,
    /// The value when the key is absent; null for a table.
    pub(super) default: Option<fn() -> Json>,
    /// The value when the key is absent, in words, if it depends on something else.
    pub(super) absent: Option<&'static str>,
    /// Codes of the diagnostics at this key, beside those of its kind.
    pub(super) codes: &'static [Code],
    pub(super) built: Built,
}

/// The availability of a key in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Built {
    Yes,
    /// The key is refused.
    Later,
    /// The key is refused. Earlier versions accepted it without an effect, so in the configuration
    /// that a run recorded it is only a warning.
    Idle,
}

impl Key {
    /// Returns the constant default of the key, if it has one.
    pub(super) fn default_value(&self) -> Option<Json> {
        self.default.map(|default| default()).filter(|value| !value.is_null())
    }

    /// Returns a value of the key as the file would write it; `None` if there is no short one.
    pub(super) fn example(&self) -> Option<String> {
        examples::of(self.name, &self.kind)
    }

    /// Returns the doc comment as one paragraph.
    pub(super) fn text(&self) -> String {
        self.doc.lines().map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

/// A table of which the keys are declared.
pub(super) trait Section: Sized {
    const KEYS: Keys;
    const KIND: Kind = Kind::Table(Self::KEYS);

    /// Reads the keys of a table; absent keys get their defaults.
    fn read_keys(dict: &Dict, places: &Places) -> Self;
}

/// A type of values that can be read from a tree. A value that cannot be read has been reported
/// before, by the check.
pub(super) trait Read: Sized {
    fn read(value: &Value, places: &Places) -> Option<Self>;

    /// Returns a value as the file would write it; null for a table.
    fn show(&self) -> Json {
        Json::Null
    }
}

impl<S: Section> Read for S {
    fn read(value: &Value, places: &Places) -> Option<Self> {
        Some(Self::read_keys(value.as_dict()?, places))
    }
}

/// Two sections that share a table.
impl<A: Section, B: Section> Section for (A, B) {
    const KEYS: Keys = &[A::KEYS[0], B::KEYS[0]];

    fn read_keys(dict: &Dict, places: &Places) -> Self {
        (A::read_keys(dict, places), B::read_keys(dict, places))
    }
}

impl Read for String {
    fn read(value: &Value, places: &Places) -> Option<Self> {
        places.text(value)
    }

    fn show(&self) -> Json {
        self.as_str().into()
    }
}

impl Read for Duration {
    fn read(value: &Value, places: &Places) -> Option<Self> {
        duration::parse(&places.text(value)?)
    }

    fn show(&self) -> Json {
        duration::text(*self).into()
    }
}

impl Read for SpawnRate {
    fn read(value: &Value, places: &Places) -> Option<Self> {
        places.text(value)?.parse().ok()
    }

    fn show(&self) -> Json {
        self.to_string().into()
    }
}

impl Read for Json {
    fn read(value: &Value, _: &Places) -> Option<Self> {
        Some(tree::json(value))
    }
}

/// Keeps the value as it is in the tree.
impl Read for Value {
    fn read(value: &Value, _: &Places) -> Option<Self> {
        Some(value.clone())
    }
}

/// Implements [`Read`] for plain types, which are read without places.
macro_rules! plain {
    ($($plain:ty: $read:expr;)+) => { $(
        impl Read for $plain {
            fn read(value: &Value, _: &Places) -> Option<Self> {
                $read(value)
            }

            fn show(&self) -> Json {
                (*self).into()
            }
        }
    )+ };
}

plain! {
    bool: Value::to_bool;
    f64: tree::decimal;
    i64: tree::integer;
    u32: |value| Self::try_from(tree::integer(value)?).ok();
    u64: |value| Self::try_from(tree::integer(value)?).ok();
    usize: |value| Self::try_from(tree::integer(value)?).ok();
}

/// The items of an array; items that cannot be read are left out.
pub(super) type List<V> = Vec<Item<V>>;

/// An item of an array, with the place where it is written.
#[derive(Debug)]
pub(super) struct Item<V> {
    pub(super) value: V,
    pub(super) at: Rc<Written>,
}

impl<V: Read> Read for List<V> {
    fn read(value: &Value, places: &Places) -> Option<Self> {
        let items = value.as_array()?.iter();
        let item = |item| Some(Item { value: V::read(item, places)?, at: places.of(item).clone() });
        Some(items.filter_map(item).collect())
    }

    fn show(&self) -> Json {
        self.iter().map(|item| item.value.show()).collect()
    }
}

/// An array, or something else.
#[derive(Debug)]
pub(super) enum ListOr {
    List(List<Json>),
    Other(Json),
}

impl Read for ListOr {
    fn read(value: &Value, places: &Places) -> Option<Self> {
        let other = || Some(Self::Other(tree::json(value)));
        List::read(value, places).map(Self::List).or_else(other)
    }
}

/// The value of a key, with the place where it is written.
#[derive(Debug)]
pub(super) struct Field<V> {
    value: V,
    at: Option<Rc<Written>>,
    is_wrong: bool,
}

impl<V> Field<V> {
    /// Returns the places of the key and its value; `None` for a default.
    pub(super) fn at(&self) -> Option<&Written> {
        self.at.as_deref()
    }

    pub(super) fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Returns true if the value could not be read. That is reported already, so its consequences
    /// get no diagnostic.
    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong
    }
}

impl<V> Field<Option<V>> {
    /// Fills the field with a default if it has no value.
    pub(super) fn filled(self, default: impl FnOnce() -> V) -> Field<V> {
        let Self { value, at, is_wrong } = self;
        Field { value: value.unwrap_or_else(default), at, is_wrong }
    }

    /// Returns the value and its place, if it is written.
    pub(super) fn placed(&self) -> Option<(&V, &Place)> {
        Some((self.value.as_ref()?, &self.at()?.value))
    }
}

impl<V> Deref for Field<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

/// A constant of a preset that the file sets. The value is absent if it could not be read.
#[derive(Clone, Debug)]
pub(super) struct Constant {
    pub(super) name: &'static str,
    pub(super) value: Option<Json>,
    pub(super) at: Rc<Written>,
}

impl<V: Read> Field<Option<V>> {
    /// Returns the value as a constant of a preset, if it is written.
    pub(super) fn as_constant(&self, name: &'static str) -> Option<Constant> {
        Some(Constant { name, value: self.value.as_ref().map(V::show), at: self.at.clone()? })
    }
}

/// Reads one key of a table.
pub(super) fn field<V: Read>(dict: &Dict, key: &str, places: &Places) -> Field<Option<V>> {
    let written = dict.get(key);
    let value = written.and_then(|written| V::read(written, places));
    let is_wrong = written.is_some() && value.is_none();
    Field { value, at: written.and_then(|written| places.written(written)), is_wrong }
}

/// Returns a section without any written keys.
pub(super) fn absent<S: Section>() -> S {
    S::read_keys(&Dict::new(), &Places::default())
}

/// Returns the key of a field: Rust writes a field as `r#type` if the key is a keyword.
pub(super) const fn bare(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}
