//! The types of values in templates: what is known of a value before it is there.
//!
//! Pure. A type is a set of values, never a smaller one than its values need: what cannot be told is
//! [`Type::Unknown`], so that a mistake which follows from a type is one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{Serde, Value as Cell, ValueKind};
use serde_json::Value;

/// The most parts of a schema or of a value that are read, those that references lead to again included.
const MOST_PARTS: usize = 2_000;

/// The same for the values of an evaluation that failed, for each name.
const MOST_OF_VALUES: usize = 20_000;

/// The deepest that types may be within each other.
const DEEPEST: usize = 24;

/// The most alternatives of a type.
const MOST_ALTERNATIVES: usize = 16;

/// An object, in words.
pub(super) const OBJECT: &str = "an object";

/// The type of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Type {
    /// Any value.
    #[default]
    Unknown,
    /// None.
    Null,
    /// True or false.
    Bool,
    /// A number.
    Number,
    /// A text.
    Text,
    /// A list of values of one type.
    List(Arc<Self>),
    /// An object.
    Object(Arc<Fields>),
    /// One of several types, none of which is such a choice itself.
    OneOf(Arc<[Self]>),
}

/// The fields of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// The fields that are known by name.
    pub known: BTreeMap<String, Field>,
    /// The type of other fields; absent if there are none.
    pub rest: Option<Type>,
}

/// A field of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The type of its value.
    pub of: Type,
    /// True if every such object has it.
    pub is_required: bool,
}

/// What a value has under a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A value of this type.
    Always(Type),
    /// A value of this type, or nothing.
    Perhaps(Type),
    /// It is not among the fields that are known by name, and others are allowed.
    Unlisted(Type),
    /// Nothing.
    Never,
}

impl Type {
    /// Makes a list of values of this type.
    #[must_use]
    pub fn list(self) -> Self {
        Self::List(self.into())
    }

    /// Makes an object that has exactly these fields.
    #[must_use]
    pub fn object<K: Into<String>>(fields: impl IntoIterator<Item = (K, Self)>) -> Self {
        let field = |(name, of): (K, Self)| (name.into(), Field { of, is_required: true });
        Self::Object(Fields { known: fields.into_iter().map(field).collect(), rest: None }.into())
    }

    /// Makes an object of which nothing else is known.
    #[must_use]
    pub fn any_object() -> Self {
        Self::Object(Fields { rest: Some(Self::Unknown), ..Fields::default() }.into())
    }

    /// Makes a choice of types.
    #[must_use]
    pub fn one_of(types: impl IntoIterator<Item = Self>) -> Self {
        let mut all: Vec<Self> = Vec::new();
        let mut add = |new: Self| match new {
            Self::Unknown => false,
            new if all.contains(&new) => true,
            new => {
                all.push(new);
                all.len() <= MOST_ALTERNATIVES
            }
        };
        let is_known = types.into_iter().all(|new| match new {
            Self::OneOf(inner) => inner.iter().cloned().all(&mut add),
            new => add(new),
        });
        match (is_known, all.len()) {
            (false, _) | (_, 0) => Self::Unknown,
            (true, 1) => all.remove(0),
            (true, _) => Self::OneOf(all.into()),
        }
    }

    /// Returns the type of the values that fit a JSON Schema.
    #[must_use]
    pub fn of_schema(document: &Value) -> Self {
        Reader { document, left: MOST_PARTS }.schema(document, 0)
    }

    /// Returns the type of a value.
    #[must_use]
    pub fn of_value(value: &Value) -> Self {
        Self::of_cell(&Cell::from(Serde(value)))
    }

    /// Returns the type of a value of the template language.
    pub(super) fn of_cell(value: &Cell) -> Self {
        cell(value, 0, &mut { MOST_OF_VALUES })
    }

    /// Returns what its values have under a name.
    #[must_use]
    pub fn field(&self, name: &str) -> Found {
        match self {
            Self::Unknown => Found::Always(Self::Unknown),
            Self::Null | Self::Bool | Self::Number | Self::Text | Self::List(_) => Found::Never,
            Self::Object(fields) => match (fields.known.get(name), &fields.rest) {
                (Some(Field { of, is_required: true }), _) => Found::Always(of.clone()),
                (Some(Field { of, is_required: false }), _) => Found::Perhaps(of.clone()),
                (None, Some(rest)) if fields.known.is_empty() => Found::Always(rest.clone()),
                (None, Some(rest)) => Found::Unlisted(rest.clone()),
                (None, None) => Found::Never,
            },
            Self::OneOf(all) => {
                let (mut types, mut is_sure) = (Vec::new(), true);
                for one in all.iter() {
                    match one.field(name) {
                        Found::Always(of) => types.push(of),
                        Found::Perhaps(of) | Found::Unlisted(of) => {
                            types.push(of);
                            is_sure = false;
                        }
                        Found::Never => is_sure = false,
                    }
                }
                match (types.is_empty(), is_sure) {
                    (true, _) => Found::Never,
                    (false, true) => Found::Always(Self::one_of(types)),
                    (false, false) => Found::Perhaps(Self::one_of(types)),
                }
            }
        }
    }

    /// Returns the names of the fields that its values may have, as far as they are known.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Object(fields) => fields.known.keys().map(String::as_str).collect(),
            Self::OneOf(all) => {
                let mut names: Vec<&str> = all.iter().flat_map(Self::names).collect();
                names.sort_unstable();
                names.dedup();
                names
            }
            _ => Vec::new(),
        }
    }

    /// Returns the type of the items of a list; unknown for what may be anything else.
    #[must_use]
    pub fn item(&self) -> Self {
        match self {
            Self::List(item) => (**item).clone(),
            Self::OneOf(all) => Self::one_of(all.iter().map(Self::item)),
            _ => Self::Unknown,
        }
    }

    /// Returns the type of what stands at an index: an item of a list, or a character of a text.
    pub(super) fn at_index(&self) -> Self {
        match self {
            Self::Text => Self::Text,
            Self::OneOf(all) => Self::one_of(all.iter().map(Self::at_index)),
            other => other.item(),
        }
    }

    /// Returns true if a value may be a list.
    #[must_use]
    pub fn may_be_list(&self) -> bool {
        match self {
            Self::Unknown | Self::List(_) => true,
            Self::OneOf(all) => all.iter().any(Self::may_be_list),
            Self::Null | Self::Bool | Self::Number | Self::Text | Self::Object(_) => false,
        }
    }

    /// Returns the type without none.
    pub(super) fn but_none(self) -> Self {
        match self {
            Self::OneOf(all) => Self::one_of(all.iter().filter(|one| **one != Self::Null).cloned()),
            other => other,
        }
    }

    /// Returns the type of objects that have all fields which they may have.
    pub(super) fn whole(&self) -> Self {
        match self {
            Self::Object(fields) => {
                let whole = |(name, field): (&String, &Field)| {
                    (name.clone(), Field { is_required: true, of: field.of.clone() })
                };
                let known = fields.known.iter().map(whole).collect();
                Self::Object(Fields { known, rest: fields.rest.clone() }.into())
            }
            Self::OneOf(all) => Self::one_of(all.iter().map(Self::whole)),
            other => other.clone(),
        }
    }

    /// Returns the type of the values that are of both types, or a larger one.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, one) | (one, Self::Unknown) => one,
            (Self::Object(one), Self::Object(other)) => Self::Object(both(&one, &other).into()),
            // The objects among the alternatives are those of the other type too.
            (Self::OneOf(all), object @ Self::Object(_))
            | (object @ Self::Object(_), Self::OneOf(all)) => {
                let objects = all.iter().filter(|one| matches!(one, Self::Object(_)));
                let of_both: Vec<Self> =
                    objects.map(|one| one.clone().and(object.clone())).collect();
                if of_both.is_empty() { object } else { Self::one_of(of_both) }
            }
            (one, _) => one,
        }
    }
}

/// Returns the fields of objects that are of both types. Where one allows no other fields than its own, there
/// are only those.
fn both(one: &Fields, other: &Fields) -> Fields {
    let (base, more) = if one.rest.is_none() { (one, other) } else { (other, one) };
    let mut known = base.known.clone();
    for (name, field) in &more.known {
        if let Some(mine) = known.get_mut(name) {
            mine.is_required |= field.is_required;
        } else if base.rest.is_some() {
            known.insert(name.clone(), field.clone());
        }
    }
    Fields { known, rest: base.rest.as_ref().and(more.rest.as_ref()).map(|_| Type::Unknown) }
}

impl fmt::Display for Type {
    /// Writes the type in words: `a text`, `a list or none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "a value",
            Self::Null => "none",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::Text => "text",
            Self::List(_) => "a list",
            Self::Object(_) => OBJECT,
            Self::OneOf(all) => {
                let mut words: Vec<String> = all.iter().map(ToString::to_string).collect();
                words.dedup();
                return f.write_str(&words.join(" or "));
            }
        })
    }
}

/// Returns the type of a value, with `left` parts to look at.
fn cell(value: &Cell, depth: usize, left: &mut usize) -> Type {
    if *left == 0 || depth > DEEPEST {
        return Type::Unknown;
    }
    *left -= 1;
    match value.kind() {
        ValueKind::None => Type::Null,
        ValueKind::Bool => Type::Bool,
        ValueKind::Number => Type::Number,
        ValueKind::String => Type::Text,
        ValueKind::Seq => {
            let Ok(items) = value.try_iter() else { return Type::Unknown };
            Type::one_of(items.map(|item| cell(&item, depth + 1, left))).list()
        }
        ValueKind::Map => {
            let Ok(names) = value.try_iter() else { return Type::Unknown };
            let field = |name: Cell| {
                let of = value.get_item(&name).unwrap_or_default();
                (name.as_str().unwrap_or_default().to_owned(), cell(&of, depth + 1, left))
            };
            Type::object(names.map(field))
        }
        _ => Type::Unknown,
    }
}

/// The reader of one schema.
struct Reader<'a> {
    document: &'a Value,
    left: usize,
}

impl Reader<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Type {
        let Some(keywords) = schema.as_object().filter(|_| self.left > 0 && depth <= DEEPEST)
        else {
            return Type::Unknown;
        };
        self.left -= 1;
        let depth = depth + 1;
        // Each keyword alone gives a type that is large enough.
        let mut of = self.of_words(schema, depth);
        let values = keywords.get("const").map(std::slice::from_ref);
        let values = values.or(keywords.get("enum").and_then(Value::as_array).map(Vec::as_slice));
        if let Some(values) = values.filter(|values| values.len() <= MOST_PARTS) {
            of = Type::one_of(values.iter().map(Type::of_value)).and(of);
        }
        let target = keywords.get("$ref").and_then(Value::as_str);
        if let Some(path) = target.and_then(|target| target.strip_prefix('#'))
            && let Some(target) = self.document.pointer(path)
        {
            of = of.and(self.schema(target, depth));
        }
        for all in keywords.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            of = of.and(self.schema(all, depth));
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(any) = keywords.get(word).and_then(Value::as_array) {
                let any: Vec<Type> = any.iter().map(|one| self.schema(one, depth)).collect();
                of = of.and(Type::one_of(any));
            }
        }
        of
    }

    /// Returns what `type` and the keywords of lists and objects say.
    fn of_words(&mut self, schema: &Value, depth: usize) -> Type {
        let words = ["properties", "required", "items", "additionalProperties"];
        let is_open = !words.iter().any(|word| schema.get(word).is_some());
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            _ if is_open => return Type::Unknown,
            // These keywords say nothing of other values.
            _ => vec!["object", "array", "string", "number", "boolean", "null"],
        };
        let types: Vec<Type> =
            types.into_iter().map(|word| self.word(word, schema, depth)).collect();
        Type::one_of(types)
    }

    fn word(&mut self, word: &str, schema: &Value, depth: usize) -> Type {
        match word {
            "null" => Type::Null,
            "boolean" => Type::Bool,
            "number" | "integer" => Type::Number,
            "string" => Type::Text,
            "array" if schema.get("prefixItems").is_some() => Type::Unknown.list(),
            "array" => self.schema(&schema["items"], depth).list(),
            "object" => {
                let required = schema["required"].as_array();
                let is_required =
                    |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
                let properties = schema["properties"].as_object();
                let properties = properties.into_iter().flatten().map(|(name, property)| {
                    let of = self.schema(property, depth);
                    (name.clone(), Field { of, is_required: is_required(name) })
                });
                let mut known: BTreeMap<String, Field> = properties.collect();
                let rest = match &schema["additionalProperties"] {
                    Value::Bool(false) if schema.get("patternProperties").is_none() => None,
                    _ => Some(Type::Unknown),
                };
                let others = required.into_iter().flatten().filter_map(Value::as_str);
                for name in others.filter(|_| rest.is_some()) {
                    let new = || Field { of: Type::Unknown, is_required: true };
                    known.entry(name.to_owned()).or_insert_with(new);
                }
                Type::Object(Fields { known, rest }.into())
            }
            _ => Type::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row() -> Value {
        json!({
            "type": "object", "required": ["file"], "additionalProperties": false,
            "properties": {"file": {"type": "string"}, "line": {"type": ["integer", "null"]}},
        })
    }

    #[test]
    fn a_schema_says_what_a_value_has() {
        let rows = Type::of_schema(&json!({"type": "array", "items": row()}));
        assert!(rows.may_be_list());
        let row = rows.item();
        assert_eq!(row.field("file"), Found::Always(Type::Text));
        let line = Type::one_of([Type::Number, Type::Null]);
        assert_eq!(row.field("line"), Found::Perhaps(line));
        assert_eq!(row.field("lien"), Found::Never);
        assert_eq!(row.names(), ["file", "line"]);
        assert_eq!((rows.field("file"), rows.to_string().as_str()), (Found::Never, "a list"));
    }

    #[test]
    fn what_a_schema_leaves_open_is_unknown() {
        let sure = |of: Type| Found::Always(of);
        for (schema, name, found) in [
            (json!(true), "x", sure(Type::Unknown)),
            (json!({}), "x", sure(Type::Unknown)),
            (json!({"type": "object"}), "x", sure(Type::Unknown)),
            (json!({"not": {"type": "string"}}), "x", sure(Type::Unknown)),
            (json!({"properties": {"a": true}}), "x", Found::Perhaps(Type::Unknown)),
            (
                json!({"type": "object", "additionalProperties": false, "patternProperties": {"^x": true}}),
                "x",
                sure(Type::Unknown),
            ),
            (
                json!({"type": "object", "unevaluatedProperties": false, "properties": {}}),
                "x",
                sure(Type::Unknown),
            ),
            (json!({"$ref": "#/$defs/r", "$defs": {"r": row()}}), "lien", Found::Never),
            (json!({"allOf": [row(), {"type": "object", "required": ["x"]}]}), "x", Found::Never),
            (
                json!({"type": "object", "allOf": [row(), {"required": ["line"]}]}),
                "line",
                sure(Type::one_of([Type::Number, Type::Null])),
            ),
            (json!({"anyOf": [row(), {"type": "null"}]}), "file", Found::Perhaps(Type::Text)),
            (json!({"anyOf": [row(), true]}), "lien", sure(Type::Unknown)),
            (
                json!({"type": "object", "anyOf": [row(), {"type": "object"}]}),
                "lien",
                Found::Perhaps(Type::Unknown),
            ),
            (json!({"const": {"a": 1}}), "a", sure(Type::Number)),
            (json!({"enum": ["a", "b"]}), "a", Found::Never),
        ] {
            assert_eq!(Type::of_schema(&schema).field(name), found, "{schema}");
        }
        // A tree that holds itself has an end.
        let tree = json!({"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}},
            "additionalProperties": false});
        let Found::Perhaps(left) = Type::of_schema(&tree).field("l") else { panic!("no left") };
        assert_eq!(left.field("x"), Found::Never);
    }

    #[test]
    fn a_value_has_its_fields_and_no_others() {
        let of = Type::of_value(&json!({"a": [{"b": 1}, {"c": null}], "t": "x"}));
        let Found::Always(rows) = of.field("a") else { panic!("no rows") };
        assert_eq!(rows.item().field("b"), Found::Perhaps(Type::Number));
        assert_eq!((rows.item().field("d"), of.field("b")), (Found::Never, Found::Never));
        assert_eq!(Type::of_value(&json!([])), Type::Unknown.list());
    }
}
