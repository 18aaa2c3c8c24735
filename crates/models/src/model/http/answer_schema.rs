//! Schemas to which a provider holds an answer: which it can take, and how it refuses one.

use serde_json::Value;

use crate::model::{ErrorClass, ModelError, Request};

/// Words of an error that is about the schema, or about the field that has it.
const WORDS: [&str; 7] = [
    "response_format",
    "json_schema",
    "output_config",
    "output_format",
    "structured output",
    "schema",
    "grammar",
];

/// Whether the objects of a schema may have fields that an answer may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Optional {
    Allowed,
    Refused,
}

/// Returns true if all objects of a schema are closed: they forbid other fields than their own.
pub(crate) fn is_closed(schema: &Value, optional: Optional) -> bool {
    let is_object = schema["type"] == "object" || schema.get("properties").is_some();
    if is_object {
        let none = serde_json::Map::new();
        let fields = schema["properties"].as_object().unwrap_or(&none);
        let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        let is_required = |name: &String| required.iter().any(|one| one == name);
        let is_open = schema["additionalProperties"] != false;
        if is_open || (optional == Optional::Refused && !fields.keys().all(is_required)) {
            return false;
        }
    }
    match schema {
        Value::Object(parts) => parts.iter().all(|(name, part)| match (name.as_str(), part) {
            ("enum" | "const" | "default" | "examples" | "required", _) => true,
            ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                named.values().all(|part| is_closed(part, optional))
            }
            (_, part) => is_closed(part, optional),
        }),
        Value::Array(parts) => parts.iter().all(|part| is_closed(part, optional)),
        _ => true,
    }
}

/// Returns the error of a request, which is another if the provider refused the schema of the answer.
pub(crate) fn judge_schema(request: &Request, error: ModelError) -> ModelError {
    let is_refusal = matches!(error.status, Some(400 | 422)) && error.class == ErrorClass::Fatal;
    if request.answer_schema.is_none() || !is_refusal {
        return error;
    }
    let message = error.message.to_lowercase();
    match WORDS.iter().any(|word| message.contains(word)) {
        true => ModelError { class: ErrorClass::SchemaRefused, ..error },
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_closed_if_all_its_objects_are() {
        let closed = json!({
            "type": "object", "additionalProperties": false, "required": ["a", "type"],
            "properties": {
                "a": {"type": "array", "items": {"type": "object", "additionalProperties": false}},
                "type": {"enum": [{"properties": {}}]},
            },
        });
        assert!(is_closed(&closed, Optional::Refused));
        let mut optional = closed.clone();
        optional["required"] = json!(["a"]);
        assert_eq!(
            [Optional::Allowed, Optional::Refused].map(|o| is_closed(&optional, o)),
            [true, false]
        );
        let mut open = closed.clone();
        open["properties"]["a"]["items"] = json!({"type": "object"});
        assert!(!is_closed(&open, Optional::Allowed));
        assert!(!is_closed(
            &json!({"$defs": {"x": {"properties": {}}}, "type": "string"}),
            Optional::Allowed
        ));
        assert!(is_closed(&json!({"type": "string"}), Optional::Refused));
    }
}
