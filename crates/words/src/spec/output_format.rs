//! The formats of outputs: text, JSON, or a list of JSON documents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::acceptance::unfenced;
use crate::failure::{Failure, FailureKind};

/// The form in which templates see a task's output text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    /// The text without the line breaks at its end, as a shell takes the output of a command.
    #[default]
    Text,
    /// The text as it is.
    Raw,
    /// The text parsed as one JSON document.
    Json,
    /// The text parsed as a list of JSON documents, one a line; blank lines are skipped.
    Jsonl,
}

impl OutputFormat {
    /// Returns true if the value is a text.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Raw)
    }

    /// Returns the part of an answer that is its output: a text as it is, JSON without a code fence
    /// around it.
    #[must_use]
    pub fn body(self, text: &str) -> &str {
        match self {
            Self::Text | Self::Raw => text,
            Self::Json | Self::Jsonl => {
                let inner = unfenced(text);
                // Without a fence the text stays as it came, with the line break at its end.
                if inner.len() == text.trim().len() { text } else { inner }
            }
        }
    }

    /// Converts an output's text to the value that templates see. One code fence around JSON is
    /// taken away.
    ///
    /// # Errors
    /// Returns a failure of the kind `output_format` if the text does not have this form.
    pub fn parse(self, text: &str) -> Result<Value, Failure> {
        let bad = |error: serde_json::Error| {
            let message = format!("the output is not valid JSON: {error}");
            Failure::new(FailureKind::OutputFormat, message)
        };
        let text = self.body(text);
        match self {
            Self::Text => Ok(Value::String(text.trim_end_matches(['\n', '\r']).to_owned())),
            Self::Raw => Ok(Value::String(text.to_owned())),
            Self::Json => serde_json::from_str(text.trim()).map_err(bad),
            Self::Jsonl => {
                let lines = text.lines().filter(|line| !line.trim().is_empty());
                let values = lines.map(|line| serde_json::from_str::<Value>(line).map_err(bad));
                values.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
        }
    }
}
