//! Collects the arguments of tool calls, and converts those that are not a JSON object.
//!
//! Owns the form that replaces arguments that are not JSON. Checks no schema: the tool does.

use serde::de::IgnoredAny;

use super::bounds::{self, ARGUMENT_BYTES};
use super::values::is_recordable;
use crate::message::{Json, ToolCall};
use crate::model::ModelError;

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

/// Converts the arguments of a call as they arrived. Empty text means `{}`; text that is not JSON, or
/// cannot be recorded, becomes a JSON string, which no tool accepts, so that the model receives an
/// error.
pub(crate) fn received_input(text: String) -> Json {
    if text.trim().is_empty() {
        return Json::encode(&serde_json::Map::new());
    }
    match is_recordable(&text) {
        true => Json::parse(text.clone()).unwrap_or_else(|_| Json::encode(&text)),
        false => Json::encode(&text),
    }
}

/// The arguments of a call of which more may arrive.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    text: String,
    /// The arrays and objects that are open.
    depth: usize,
    in_string: bool,
    after_backslash: bool,
    has_content: bool,
    /// The result of [`Arguments::is_whole`] for the text so far, once it is known.
    is_whole: Option<bool>,
}

impl Arguments {
    /// Adds a fragment.
    ///
    /// # Errors
    /// Returns an error if the arguments are longer than their bound.
    pub(crate) fn push(&mut self, fragment: &str) -> Result<(), ModelError> {
        bounds::within(
            self.text.len() + fragment.len(),
            ARGUMENT_BYTES,
            "arguments of a call are",
        )?;
        for byte in fragment.bytes() {
            match (self.in_string, byte) {
                (true, _) if std::mem::take(&mut self.after_backslash) => {}
                (true, b'\\') => self.after_backslash = true,
                (_, b'"') => self.in_string = !self.in_string,
                (false, b'{' | b'[') => self.depth += 1,
                (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.text.push_str(fragment);
        self.has_content |= !fragment.trim_ascii().is_empty();
        // What is closed and no document cannot become one.
        self.is_whole = self.is_whole.filter(|is_whole| !is_whole);
        Ok(())
    }

    /// Returns true if the text so far is a whole JSON document. The text is parsed only when all that
    /// it opened is closed: it may come in many fragments.
    pub(crate) fn is_whole(&mut self) -> bool {
        if self.in_string || self.depth > 0 || !self.has_content {
            return false;
        }
        let text = &self.text;
        let parse = || serde_json::from_str::<IgnoredAny>(text).is_ok();
        *self.is_whole.get_or_insert_with(parse)
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_whole_when_their_document_is_wherever_it_is_cut() {
        for (text, expected) in [
            (r#"{"a": "}\"{[", "b": [1, {}]} "#, true),
            (r#"{"a": "}\\"}"#, true),
            ("[1]", true),
            ("7", true),
            (" ", false),
            (r#"{"a"#, false),
            (r#"{"a":1}}"#, false),
            (r#"{"a":1}{"#, false),
            ("}{", false),
        ] {
            for at in 0..=text.len() {
                let mut arguments = Arguments::default();
                arguments.push(&text[..at]).expect("short");
                arguments.push(&text[at..]).expect("short");
                assert_eq!(arguments.is_whole(), expected, "{text} at {at}");
            }
        }
    }

    #[test]
    fn arguments_in_many_fragments_are_parsed_once() {
        let mut arguments = Arguments::default();
        arguments.push("{\"a\":\"").expect("short");
        // A parse after each of these fragments would take hours.
        for _ in 0..1_000_000 {
            arguments.push("x").expect("short");
            assert!(!arguments.is_whole());
        }
        arguments.push("\"}x").expect("short");
        for _ in 0..1_000_000 {
            assert!(!arguments.is_whole());
            arguments.push(" ").expect("short");
        }
        let error = arguments.push(&"x".repeat(ARGUMENT_BYTES)).expect_err("too long");
        assert_eq!(
            error.message,
            "the reply was refused: arguments of a call are longer than 4 MiB"
        );
    }

    #[test]
    fn what_no_reader_of_records_takes_is_a_text() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let input = |text: String| received_input(text).as_str().to_owned();
        assert_eq!(input(nested(100)), nested(100));
        for bad in [nested(101), nested(100_000), "1e400".to_owned()] {
            assert_eq!(input(bad.clone()), format!("\"{bad}\""));
        }
    }

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
