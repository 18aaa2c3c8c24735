//! Outputs: text that is given whole, or a preview of it and where the whole is stored.

use serde::{Deserialize, Serialize};

/// A stored output, named by the hash of its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// blake3 of the bytes in hexadecimal: the file's name under `results/`.
    pub hash: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What a task, an agent or a tool gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The whole text, or its beginning when `stored` is given.
    pub text: String,
    /// The stored whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
}

impl Output {
    /// An output that is given whole.
    #[must_use]
    pub fn whole(text: impl Into<String>) -> Self {
        Self { text: text.into(), stored: None }
    }
}
