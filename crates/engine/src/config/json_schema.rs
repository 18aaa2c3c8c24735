//! Makes the JSON Schema of `agents.toml` from the declaration of its keys.

use serde_json::{Map, Value, json};

use super::raw::{File, Settings};
use super::shape::{Built, Key, Keys, Kind, Section};

/// The form of a duration: one or more numbers, each with a unit.
const DURATION: &str = "^([0-9]+(ms|s|m|h|d))+$";

/// The form of a size: a number with its unit.
const SIZE: &str = "^[0-9]+ ?(K|M|G|T)iB$";

/// Returns the JSON Schema (draft 7) of the file. Keys that are not available yet are not part of
/// it.
#[must_use]
pub fn json_schema() -> Value {
    let mut schema = table(File::KEYS);
    schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    schema["title"] = "agents.toml".into();
    schema["required"] = json!(["version"]);
    let of_root =
        |key: &Key| (key.name.to_owned(), json!({"$ref": format!("#/properties/{}", key.name)}));
    let properties: Map<String, Value> = built(Settings::KEYS).map(of_root).collect();
    let profile =
        json!({"type": "object", "additionalProperties": false, "properties": properties});
    schema["definitions"] = json!({ "profile": profile });
    schema
}

fn built(keys: Keys) -> impl Iterator<Item = &'static Key> {
    keys.iter().copied().flatten().filter(|key| key.built == Built::Yes)
}

fn table(keys: Keys) -> Value {
    let properties = built(keys).map(|key| (key.name.to_owned(), property(key)));
    let properties: Map<String, Value> = properties.collect();
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

fn property(key: &Key) -> Value {
    let mut schema = value(&key.kind);
    let mut text = key.text();
    if let Some(absent) = key.absent {
        text.push_str(&format!(" Default: {absent}."));
    }
    schema["description"] = text.into();
    if let Some(default) = key.default_value() {
        schema["default"] = default;
    }
    schema
}

fn value(kind: &Kind) -> Value {
    match kind {
        Kind::Any => json!({}),
        Kind::Text(..) => json!({"type": "string"}),
        Kind::Header(keys) => json!({"anyOf": [{"type": "string"}, table(keys)]}),
        Kind::Words(words, _) => json!({"type": "string", "enum": words()}),
        Kind::Truth => json!({"type": "boolean"}),
        Kind::Only(n) => json!({"const": n}),
        Kind::Whole(low, high, _) => json!({"type": "integer", "minimum": low, "maximum": high}),
        Kind::Number(low, high, _) => json!({"type": "number", "minimum": low, "maximum": high}),
        Kind::Pause | Kind::Time => json!({"type": "string", "pattern": DURATION}),
        Kind::Rate => json!({"type": "string"}),
        Kind::Size(_) => json!({"type": "string", "pattern": SIZE}),
        Kind::List(inner) => json!({"type": "array", "items": value(inner)}),
        Kind::Map(form, inner) => json!({
            "type": "object",
            "propertyNames": {"pattern": form.pattern},
            "additionalProperties": value(inner),
        }),
        Kind::Table(keys) | Kind::Key(keys) => table(keys),
        Kind::Profile => json!({"$ref": "#/definitions/profile"}),
        Kind::Either(kinds) => json!({"anyOf": kinds.iter().map(value).collect::<Vec<_>>()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_schema_of_draft_7() {
        let schema = json_schema();
        assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
        assert_eq!(schema["required"], json!(["version"]));
        assert_eq!(
            schema["properties"]["limits"]["properties"]["max_children"],
            json!({
                "type": "integer", "minimum": 1, "maximum": 4_294_967_295_u32, "default": 20,
                "description": "The delegated children that run at the same time.",
            })
        );
        let names = &schema["properties"]["tasks"]["propertyNames"];
        assert_eq!(names, &json!({"pattern": "^[a-z0-9_-]+$"}));
        let profile = &schema["definitions"]["profile"]["properties"];
        assert_eq!(profile["limits"], json!({"$ref": "#/properties/limits"}));
        assert_eq!(profile["include"], Value::Null, "only the file itself can have it");
    }

    #[test]
    fn every_key_that_is_built_stands_in_it_with_its_meaning_and_no_other() {
        fn check(schema: &Value, keys: Keys) {
            assert_eq!(schema["additionalProperties"], false);
            let properties = schema["properties"].as_object().expect("properties");
            let all = keys.iter().copied().flatten();
            assert_eq!(properties.len(), all.clone().filter(|k| k.built == Built::Yes).count());
            for key in all {
                let property = properties.get(key.name);
                assert_eq!(property.is_some(), key.built == Built::Yes, "{}", key.name);
                let Some(property) = property else { continue };
                let text = property["description"].as_str().expect("a description");
                assert!(text.starts_with(&key.text()) && text.ends_with('.'), "{}", key.name);
                match key.kind {
                    Kind::Table(inner) | Kind::Key(inner) => check(property, inner),
                    Kind::Map(_, Kind::Table(inner)) => {
                        check(&property["additionalProperties"], inner);
                    }
                    _ => {}
                }
            }
        }
        check(&json_schema(), File::KEYS);
    }
}
