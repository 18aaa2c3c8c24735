//! The places at which the texts of a task are written, for the messages of their mistakes.

use std::collections::BTreeMap;

/// The lines of a configuration file at which the templates and expressions of a task begin.
///
/// They are no part of what the task does: two tasks that differ in them alone are equal.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The path of the file, as messages show it.
    pub file: String,
    /// The first and the last line of each text, from 1, by the key: `prompt`, `env.NAME`.
    pub lines: BTreeMap<String, (usize, usize)>,
}

impl PartialEq for Written {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Written {
    /// Returns the place of a line, from 1, of the text of a key as `FILE:LINE`; absent if it is not known.
    #[must_use]
    pub fn line(&self, key: &str, line: usize) -> Option<String> {
        let (first, last) = *self.lines.get(key)?;
        // A text in one line may hold line breaks as escapes.
        Some(format!("{}:{}", self.file, last.min(first + line.saturating_sub(1))))
    }
}
