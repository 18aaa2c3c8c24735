//! The values that templates name: made once, and shared by all that read them.
//!
//! A template that names one item of an output of many megabytes costs no copy of that output.

use std::collections::BTreeMap;

use minijinja::value::{Serde, Value as Cell};
use serde::Serialize;
use serde_json::Value;

/// A value that templates can name. Cloning shares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Known(pub(super) Cell);

impl Known {
    /// Makes it from data, in time proportional to its size.
    #[must_use]
    pub fn of<T: Serialize>(value: &T) -> Self {
        Self(Cell::from(Serde(value)))
    }

    /// Makes an object of values.
    #[must_use]
    pub fn object<K: Into<String>>(fields: impl IntoIterator<Item = (K, Self)>) -> Self {
        let fields = fields.into_iter().map(|(name, value)| (Cell::from(name.into()), value.0));
        Self(Cell::from(fields.collect::<indexmap::IndexMap<Cell, Cell>>()))
    }

    /// Makes a list of values.
    #[must_use]
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self(items.into_iter().map(|item| item.0).collect())
    }

    /// Returns a field of an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Self> {
        let field = self.0.get_attr(name).ok()?;
        (!field.is_undefined()).then_some(Self(field))
    }

    /// Returns the value if it is a text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_str()
    }

    /// Returns the value as JSON, in time proportional to its size. A value that JSON does not know is null.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }
}

impl Default for Known {
    fn default() -> Self {
        Self(Cell::from(()))
    }
}

impl From<&Self> for Known {
    fn from(known: &Self) -> Self {
        known.clone()
    }
}

impl From<&Value> for Known {
    fn from(value: &Value) -> Self {
        Self::of(value)
    }
}

/// The values that a template sees, by name.
#[derive(Clone, Debug, Default)]
pub struct Values(BTreeMap<String, Known>);

impl Values {
    /// Adds a value, or replaces the one of this name.
    pub fn set(&mut self, name: &str, value: Known) {
        self.0.insert(name.to_owned(), value);
    }

    /// Returns all of them as one value.
    #[must_use]
    pub fn known(&self) -> Known {
        Known::object(self.0.iter().map(|(name, value)| (name.as_str(), value.clone())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_comes_back_as_it_was() {
        for value in [
            json!(null),
            json!({"b": 1, "a": [true, 1.5, -3, 1.0, u64::MAX, i64::MIN, "\u{e9}\n"], "": {}}),
            json!([[], {}, null]),
        ] {
            let known = Known::of(&value);
            assert_eq!(known.to_json().to_string(), value.to_string());
            let field = Known::object([("x", known.clone()), ("y", Known::default())]);
            assert_eq!(field.to_json(), json!({"x": value, "y": null}));
            assert_eq!(Known::list([known]).to_json(), json!([value]));
            assert_eq!((field.get("y"), field.get("z")), (Some(Known::default()), None));
        }
    }
}
