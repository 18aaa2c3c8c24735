//! JSON Schemas: checks values that come from models against them.
//!
//! No other module may name `jsonschema`. Reads nothing from outside: a schema that refers to a file
//! or an address is refused. Its patterns are matched in linear time.

use std::fmt;
use std::sync::Arc;

use jsonschema::{Draft, PatternOptions, Validator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::foreign;

/// The draft of JSON Schema in which schemas are written, as `$schema` names it.
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The most mistakes that one check names.
const MOST_NAMED: usize = 5;

/// The most bytes that are told of one mistake: a schema may list a thousand values.
const MOST_OF_ONE: usize = 300;

/// The types that a schema can name.
pub const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// Keywords by which a schema refers to a part of itself.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords whose schemas judge the same value as the schema that holds them.
const IN_PLACE: [&str; 8] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];

/// Keywords whose values are no schemas.
const VALUES: [&str; 4] = ["const", "default", "enum", "examples"];

/// The most schemas that are looked at, those that references lead to again and again included. It
/// bounds the work of checking each part of a value.
const MOST_STEPS: usize = 10_000;

/// The deepest that schemas may be within each other.
const DEEPEST: usize = 100;

/// The largest compiled pattern, in bytes, and the most patterns: a model or a project writes them, and they are
/// compiled before anything else of them is known.
const PATTERN_BYTES: usize = 256 << 10;
const MOST_PATTERNS: usize = 100;

/// A schema that can be used: cloning shares it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Schema {
    document: Arc<Value>,
    validator: Arc<Validator>,
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// Returns the reason, as a fragment, if it is no schema, refers to something outside, or refers
    /// to itself without end.
    pub fn new(document: Value) -> Result<Self, String> {
        let draft = document["$schema"].as_str().map(|draft| draft.trim_end_matches('#'));
        if let Some(other) = draft.filter(|draft| *draft != DRAFT) {
            return Err(format!("`$schema` is `{other}`; only the draft 2020-12 is known"));
        }
        Survey::of(&document)?;
        let options = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES));
        let build = || options.build(&document).map_err(|error| placed(&error, error.to_string()));
        let validator = foreign::call(build).map_err(|panic| panic.to_string())??;
        Ok(Self { document: document.into(), validator: validator.into() })
    }

    /// Returns the schema as a JSON document.
    #[must_use]
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Adds to an object what it lacks and the schema has a default for, at the top.
    pub fn fill(&self, value: &mut Value) {
        let Some(fields) = value.as_object_mut() else { return };
        for (name, property) in self.document["properties"].as_object().into_iter().flatten() {
            if let Some(default) = property.get("default").filter(|_| !fields.contains_key(name)) {
                fields.insert(name.clone(), default.clone());
            }
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// Returns the first mistakes with their places in the value. The text is bounded and does not
    /// repeat the value.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        foreign::call(|| self.mistakes(value)).unwrap_or_else(|panic| Err(panic.to_string()))
    }

    fn mistakes(&self, value: &Value) -> Result<(), String> {
        let mut found = self.validator.iter_errors(value);
        let named: Vec<String> =
            found.by_ref().take(MOST_NAMED).map(|error| mistake(&error)).collect();
        if named.is_empty() {
            return Ok(());
        }
        let more = if found.next().is_some() { "; and more" } else { "" };
        Err(format!("{}{more}", named.join("; ")))
    }
}

impl TryFrom<Value> for Schema {
    type Error = String;

    fn try_from(document: Value) -> Result<Self, String> {
        Self::new(document)
    }
}

impl From<Schema> for Value {
    fn from(schema: Schema) -> Self {
        (*schema.document).clone()
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.document)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.document == other.document
    }
}

/// Returns a mistake in words: its place, if it is within the value, and what is wrong there.
fn mistake(error: &jsonschema::ValidationError<'_>) -> String {
    placed(error, error.masked().to_string())
}

fn placed(error: &jsonschema::ValidationError<'_>, text: String) -> String {
    let text = shortened(text);
    match error.instance_path().as_str() {
        "" => text,
        place => format!("`{place}`: {text}"),
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().find(|(at, _)| *at >= MOST_OF_ONE) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// The look at a schema before it is used: the steps of checking a value must have an end, and a bound.
struct Survey<'a> {
    document: &'a Value,
    /// The references that lead to the schema that is looked at, for the same value.
    above: Vec<&'a str>,
    steps: usize,
    patterns: usize,
}

impl<'a> Survey<'a> {
    fn of(document: &'a Value) -> Result<(), String> {
        Self { document, above: Vec::new(), steps: 0, patterns: 0 }.look(document, 0)
    }

    fn look(&mut self, schema: &'a Value, depth: usize) -> Result<(), String> {
        self.steps += 1;
        if self.steps > MOST_STEPS || depth > DEEPEST {
            return Err("it is too large".to_owned());
        }
        let depth = depth + 1;
        let Value::Object(fields) = schema else {
            let mut items = schema.as_array().into_iter().flatten();
            return items.try_for_each(|item| self.look(item, depth));
        };
        for (keyword, inner) in fields {
            self.patterns += match keyword.as_str() {
                "pattern" => 1,
                "patternProperties" => inner.as_object().map_or(0, serde_json::Map::len),
                _ => 0,
            };
            if self.patterns > MOST_PATTERNS {
                return Err(format!("it has more than {MOST_PATTERNS} patterns"));
            }
            match (keyword.as_str(), inner.as_str()) {
                ("type", Some(word)) if !TYPES.contains(&word) => {
                    return Err(format!("there is no JSON type `{}`", shortened(word.to_owned())));
                }
                (word, Some(target)) if REFERENCES.contains(&word) => self.follow(target, depth)?,
                ("$id" | "id", Some(_)) if depth > 1 => {
                    return Err(format!("`{keyword}` can only stand at its top"));
                }
                (word, _) if VALUES.contains(&word) => {}
                (word, _) if IN_PLACE.contains(&word) => self.look(inner, depth)?,
                // The schemas of parts judge smaller values; they are looked at from outside all
                // references.
                _ if self.above.is_empty() => self.look(inner, depth)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn follow(&mut self, target: &'a str, depth: usize) -> Result<(), String> {
        if self.above.contains(&target) {
            return Err(format!("`{target}` refers to itself without end"));
        }
        let found = target.strip_prefix('#').and_then(|path| self.document.pointer(path));
        let found = found.ok_or_else(|| {
            format!("`{target}` is no part of it; a reference is written like `#/$defs/NAME`")
        })?;
        self.above.push(target);
        self.look(found, depth)?;
        self.above.pop();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mistakes_are_named_with_their_places_and_without_the_value() {
        let schema = Schema::new(json!({
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}, "n": {"maximum": 3}},
            "additionalProperties": false,
        }));
        let schema = schema.expect("a schema");
        assert_eq!(schema.check(&json!({"name": "a", "n": 1})), Ok(()));
        let long = "A".repeat(1 << 20);
        for (value, told) in [
            (json!({}), "\"name\" is a required property"),
            (json!({"name": "; rm"}), "`/name`: value does not match \"^[a-z]+$\""),
            (json!({"name": long}), "`/name`: value does not match \"^[a-z]+$\""),
            (json!({"name": "a", "n": 4}), "`/n`: value is greater than the maximum of 3"),
            (
                json!({"name": "a", "x": 4}),
                "Additional properties are not allowed ('x' was unexpected)",
            ),
            (json!([]), "value is not of type \"object\""),
        ] {
            assert_eq!(schema.check(&value), Err(told.to_owned()));
        }
        let all =
            Schema::new(json!({"items": {"enum": vec!["x".repeat(1_000); 100]}})).expect("one");
        let error = all.check(&json!(vec![1; 1_000])).expect_err("wrong");
        assert!(error.len() < 2_000 && error.ends_with("...; and more"), "{error}");
    }

    /// A schema that judges its value 2^30 times.
    fn doubling() -> Value {
        let of = |n: usize| json!({"$ref": format!("#/$defs/{n}")});
        let defs: serde_json::Map<String, Value> =
            (0..30).map(|n| (n.to_string(), json!({"allOf": [of(n + 1), of(n + 1)]}))).collect();
        let mut defs = defs;
        defs.insert("30".to_owned(), json!(true));
        json!({"$ref": "#/$defs/0", "$defs": defs})
    }

    #[test]
    fn what_is_no_schema_says_why() {
        let many: serde_json::Map<_, _> =
            (0..101).map(|at| (format!("a{at}"), json!({}))).collect();
        for (document, told) in [
            (json!({"type": "objekt"}), "objekt"),
            (json!({"pattern": "("}), "regex"),
            (json!({"pattern": "(\\p{L}\\p{N}){200}"}), "regex"),
            (json!({"patternProperties": many}), "more than 100 patterns"),
            (json!({"pattern": "(?=a)"}), "regex"),
            (json!({"$ref": "https://example.com/x.json"}), "https://example.com/x.json"),
            (json!({"$ref": "file:///etc/passwd"}), "file:///etc/passwd"),
            (json!({"$ref": "#/none"}), "`#/none` is no part of it"),
            (json!({"properties": {"p": {"$id": "y", "$ref": "#"}}}), "can only stand at its top"),
            (doubling(), "it is too large"),
            (json!({"$ref": "#"}), "`#` refers to itself without end"),
            (json!({"allOf": [{"$ref": "#"}]}), "`#` refers to itself without end"),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/a"}},
                    "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}),
                "`#/$defs/a` refers to itself without end",
            ),
            (json!(3), "3"),
        ] {
            let error = Schema::new(document.clone()).expect_err("no schema");
            assert!(error.contains(told), "{document}: {error}");
        }
        let draft = Schema::new(json!({"$schema": "http://json-schema.org/draft-07/schema#"}));
        assert!(draft.expect_err("another draft").contains("draft 2020-12"));
        // A long chain of references is built on the stack of any thread.
        let link = |n: usize| {
            (format!("a{n}"), json!({"properties": {"x": {"$ref": format!("#/$defs/a{}", n + 1)}}}))
        };
        let mut defs: serde_json::Map<_, _> = (0..1_000).map(link).collect();
        defs.insert("a1000".to_owned(), json!({"type": "string"}));
        assert!(Schema::new(json!({"$ref": "#/$defs/a0", "$defs": defs})).is_ok());
        // A tree may hold trees: each step judges a smaller value.
        let tree = json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
        let schema = Schema::new(tree).expect("a schema");
        assert_eq!(schema.check(&json!({"left": {"right": {}}})), Ok(()));
    }
}
