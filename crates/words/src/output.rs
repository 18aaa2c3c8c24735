//! Outputs of tasks, agents and tools, and other long texts of records: the whole text, or a preview
//! and the hash of the stored text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reference to a stored result by the hash of its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stored {
    /// The blake3 hash in hexadecimal: the name of the file under `results/`.
    pub hash: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of bytes that followed and were not kept, because the output was too long.
    #[serde(default, skip_serializing_if = "is_none")]
    pub dropped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}

/// What a command printed, where its result does not hold exactly that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Printed {
    /// What it printed on stdout, if the result says more, as that of a killed command does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Output>,
    /// What it printed on stderr, if that was kept apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Output>,
    /// The last lines of both, in the order in which they came.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_lines: String,
    /// What the sandbox refused it, or may have, and the key that would allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
}

/// The output of a task, an agent or a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Output {
    /// The whole text; when `stored` is present, a part of it, or the whole with replacement
    /// characters where the bytes are not UTF-8.
    pub text: String,
    /// Reference to the whole text on disk; absent when `text` is the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
}

impl Output {
    /// Creates an output of which `text` is the whole.
    #[must_use]
    pub fn whole(text: impl Into<String>) -> Self {
        Self { text: text.into(), stored: None }
    }

    /// Returns the blake3 hash of the whole text, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> String {
        match &self.stored {
            Some(stored) => stored.hash.clone(),
            None => blake3::hash(self.text.as_bytes()).to_hex().to_string(),
        }
    }
}

impl Output {
    /// Returns the name of the file under `results/` that holds the whole text, or that would hold it.
    #[must_use]
    pub fn file_name(&self) -> String {
        match &self.stored {
            Some(stored) => stored.hash.clone(),
            None => blake3::hash(self.text.as_bytes()).to_hex().to_string(),
        }
    }
}

/// A text in a record, such as a prompt. One of more than 64 KiB is stored, so that many records
/// that hold the same text take its space once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Text {
    /// The whole.
    Whole(String),
    /// The beginning, and the reference to the whole.
    Stored(Output),
}

impl Text {
    /// Returns the whole text, or the beginning of one that is stored.
    #[must_use]
    pub fn beginning(&self) -> &str {
        match self {
            Self::Whole(text) => text,
            Self::Stored(output) => &output.text,
        }
    }

    /// Returns the reference to the whole text, if it is stored.
    #[must_use]
    pub fn stored(&self) -> Option<&Stored> {
        match self {
            Self::Whole(_) => None,
            Self::Stored(output) => output.stored.as_ref(),
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Whole(text)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Whole(text.to_owned())
    }
}
