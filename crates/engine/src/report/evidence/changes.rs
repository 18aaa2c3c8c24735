//! Counts the lines that a call of `write_file` or `edit_file` added and removed, from its
//! arguments and from contents that earlier calls wrote.
//!
//! Pure. An edit counts the lines in which its two texts differ. A whole file that replaces another
//! one counts only if this run wrote the other one as well.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use similar::{ChangeTag, TextDiff};

use crate::message::Json;
use crate::turn::FileChange;

/// The most bytes of contents that are kept for later comparisons.
const KEPT: usize = 8 << 20;

/// The largest content that is kept or compared, in bytes: comparing takes up to the square of it.
const COMPARED: usize = 128 << 10;

/// A change that a call asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) path: String,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Write { content: String },
    Edit { old: String, new: String, times: Option<u64> },
}

/// Reads the change from the arguments of a call and from the record of its beginning; `None` if
/// the arguments name no file.
pub(super) fn read(tool: &str, input: &Json, recorded: Option<&FileChange>) -> Option<Change> {
    #[derive(Deserialize)]
    struct Arguments {
        path: String,
        #[serde(default)]
        content: String,
        #[serde(default)]
        old_string: String,
        #[serde(default)]
        new_string: String,
        #[serde(default)]
        replace_all: bool,
    }
    let asked: Arguments = input.decode().ok()?;
    let what = match tool {
        "write_file" => What::Write { content: asked.content },
        _ => {
            let told = || {
                // "replaced 3 occurrences in ..."
                let answer = &recorded?.answer;
                answer.strip_prefix("replaced ")?.split(' ').next()?.parse().ok()
            };
            let times = if asked.replace_all { told() } else { Some(1) };
            What::Edit { old: asked.old_string, new: asked.new_string, times }
        }
    };
    Some(Change { path: asked.path, what })
}

/// Contents that calls of this run wrote, by the hash of their bytes.
#[derive(Debug, Default)]
pub(super) struct Contents {
    known: HashMap<String, Arc<str>>,
    bytes: usize,
}

impl Contents {
    /// Returns the numbers of lines added and removed, if they are known. Keeps the new content.
    pub(super) fn count(
        &mut self,
        change: &Change,
        recorded: Option<&FileChange>,
    ) -> Option<(u64, u64)> {
        let before = recorded.and_then(|recorded| self.take(recorded.pre.as_deref()?));
        match &change.what {
            What::Write { content } => {
                let counts = match (recorded, before) {
                    (None, _) => None,
                    (Some(FileChange { pre: None, .. }), _) => {
                        Some((content.lines().count() as u64, 0))
                    }
                    (Some(_), Some(before)) => differing(&before, content),
                    (Some(_), None) => None,
                };
                self.keep(recorded, content);
                counts
            }
            What::Edit { old, new, times } => {
                if let Some(before) = before {
                    self.keep(recorded, &before.replace(old, new));
                }
                let (added, removed) = differing(old, new)?;
                let times = (*times)?;
                Some((added.saturating_mul(times), removed.saturating_mul(times)))
            }
        }
    }

    fn take(&mut self, hash: &str) -> Option<Arc<str>> {
        let content = self.known.remove(hash)?;
        self.bytes -= content.len();
        Some(content)
    }

    fn keep(&mut self, recorded: Option<&FileChange>, content: &str) {
        let Some(recorded) = recorded else { return };
        if content.len() > COMPARED || self.bytes + content.len() > KEPT {
            return;
        }
        if self.known.insert(recorded.post.clone(), content.into()).is_none() {
            self.bytes += content.len();
        }
    }
}

/// Returns the numbers of lines that only the new text and only the old text has; `None` if they
/// are too long to compare.
fn differing(old: &str, new: &str) -> Option<(u64, u64)> {
    if old.len() > COMPARED || new.len() > COMPARED {
        return None;
    }
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let diff = TextDiff::from_slices(&old, &new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count() as u64;
    Some((count(ChangeTag::Insert), count(ChangeTag::Delete)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash(text: &str) -> String {
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }

    fn recorded(pre: Option<&str>, post: &str, answer: &str) -> FileChange {
        let (path, answer) = ("a".to_owned(), answer.to_owned());
        FileChange { path, pre: pre.map(hash), post: hash(post), answer, ..FileChange::default() }
    }

    #[test]
    fn lines_are_counted_where_the_records_tell_and_absent_where_not() {
        let mut contents = Contents::default();
        let mut count = |tool: &str, input: serde_json::Value, recorded: Option<FileChange>| {
            let change = read(tool, &Json::encode(&input), recorded.as_ref()).expect("a change");
            contents.count(&change, recorded.as_ref())
        };
        let write = |content: &str| json!({"path": "a", "content": content});
        // A new file, the same file again, then one that this run did not write.
        let first = count("write_file", write("1\n2\n3\n"), Some(recorded(None, "1\n2\n3\n", "")));
        assert_eq!(first, Some((3, 0)));
        let again = recorded(Some("1\n2\n3\n"), "1\nx\n3\n4\n", "");
        assert_eq!(count("write_file", write("1\nx\n3\n4\n"), Some(again)), Some((2, 1)));
        let edit = json!({"path": "a", "old_string": "x\n3", "new_string": "y\nz\n3"});
        let edited =
            recorded(Some("1\nx\n3\n4\n"), "1\ny\nz\n3\n4\n", "replaced 1 occurrence in a");
        assert_eq!(count("edit_file", edit, Some(edited)), Some((2, 1)));
        let over = recorded(Some("1\ny\nz\n3\n4\n"), "", "");
        assert_eq!(count("write_file", write(""), Some(over)), Some((0, 5)));
        let foreign = recorded(Some("other"), "b", "");
        assert_eq!(count("write_file", write("b"), Some(foreign)), None);
        assert_eq!(count("write_file", write("b"), None), None);
        let all = json!({"path": "a", "old_string": "x", "new_string": "", "replace_all": true});
        let three = recorded(Some("x x x"), "  ", "replaced 3 occurrences in a");
        assert_eq!(count("edit_file", all.clone(), Some(three)), Some((0, 3)));
        assert_eq!(count("edit_file", all, None), None);
        let long = "x\n".repeat(COMPARED);
        let edit = json!({"path": "a", "old_string": "x", "new_string": long});
        assert_eq!(count("edit_file", edit, None), None);
        assert_eq!(read("write_file", &Json::encode(&json!({"file": 1})), None), None);
    }
}
