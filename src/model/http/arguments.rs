//! Converts the arguments of tool calls that are not a JSON object, on their way in and out.
//!
//! Owns the form that replaces arguments that are not JSON. Checks no schema: the tool does.

use crate::message::{Json, ToolCall};

/// Returns the arguments of a call as both protocols accept them: an object. If the model wrote
/// anything else (text that is not JSON, a list), it is put inside an object, so that the model can
/// see its mistake.
pub(crate) fn sendable_input(call: &ToolCall) -> Json {
    if call.input.as_str().trim_start().starts_with('{') {
        return call.input.clone();
    }
    let text = call.input.decode::<String>().unwrap_or_else(|_| call.input.as_str().to_owned());
    Json::encode(&serde_json::json!({ "invalid_json": text }))
}

/// Converts the arguments of a call as they arrived. Empty text means `{}`; text that is not JSON
/// becomes a JSON string, which no tool accepts, so that the model receives an error.
pub(crate) fn received_input(text: String) -> Json {
    if text.trim().is_empty() {
        return Json::encode(&serde_json::Map::new());
    }
    Json::parse(text.clone()).unwrap_or_else(|_| Json::encode(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_survive_both_ways() {
        let call = |input: &str| ToolCall {
            id: "1".to_owned(),
            name: "t".to_owned(),
            input: received_input(input.to_owned()),
        };
        assert_eq!(call(" ").input.as_str(), "{}");
        assert_eq!(call(r#"{"a": 1}"#).input.as_str(), r#"{"a": 1}"#);
        assert_eq!(call(r#"{"a"#).input.as_str(), r#""{\"a""#);
        assert_eq!(sendable_input(&call(r#"{"a": 1}"#)).as_str(), r#"{"a": 1}"#);
        assert_eq!(sendable_input(&call(r#"{"a"#)).as_str(), r#"{"invalid_json":"{\"a"}"#);
        assert_eq!(sendable_input(&call("[1]")).as_str(), r#"{"invalid_json":"[1]"}"#);
    }
}
