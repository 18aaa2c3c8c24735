//! The files that calls read and change: their facts, which no context holds, and whether a write is stale.
//!
//! Pure. A write is stale if somebody else changed the file since the agent last knew its content. What an agent knows
//! is its own ([`KnownFiles`]); who changed a file is known to the run (`run_state/files.rs`).

use std::collections::HashMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::AgentId;

/// The change of a file by a call; it shows later if the call has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// Path of the file, as the model wrote it.
    pub path: String,
    /// Its absolute path, without links; absent in records of versions before 0.3.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// blake3 hash of the content before, in hexadecimal; absent if there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre: Option<String>,
    /// blake3 hash of the content after, in hexadecimal.
    pub post: String,
    /// True if the call keeps the content but for one place that it names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// Text that the model reads once the call is done.
    pub answer: String,
}

/// What a call that has ended read of a file, or made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileUse {
    /// Absolute path of the file, without links.
    pub place: String,
    /// blake3 hash of the content that was read or replaced, in hexadecimal; absent if there was no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// blake3 hash of the content that the call made, in hexadecimal; absent if it only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// True if the call kept the content but for one place that it named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// True if the call read a later part and not the beginning: it shows nothing of a change before that part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub later_part: bool,
}

impl FileUse {
    /// Makes the use of a call that read a content, from its beginning or from a later part on.
    #[must_use]
    pub fn read(place: String, hash: String, later_part: bool) -> Self {
        Self { place, before: Some(hash), after: None, in_place: false, later_part }
    }

    /// Makes the use of a call that made this change; `None` if the record of the change names no place.
    #[must_use]
    pub fn changed(change: &FileChange) -> Option<Self> {
        let FileChange { place, pre, post, in_place, .. } = change.clone();
        let (before, after) = (pre, Some(post));
        let used = Self { place, before, after, in_place, later_part: false };
        (!used.place.is_empty()).then_some(used)
    }
}

/// The contents of files that an agent knows: those that it read, and those that it wrote.
#[derive(Clone, Debug, Default)]
pub struct KnownFiles {
    /// What it knew when its turn began: hashes by place. Shared with the steps of the turn.
    known: Arc<HashMap<String, String>>,
    /// What its calls of this turn have read and made.
    of_turn: Vec<FileUse>,
}

impl KnownFiles {
    /// Takes in what a call of the turn read or made.
    pub fn note(&mut self, used: &FileUse) {
        self.of_turn.push(used.clone());
    }

    /// Takes in that the results of the turn have reached the model.
    pub(crate) fn turn_started(&mut self) {
        if self.of_turn.is_empty() {
            return;
        }
        let known = Arc::make_mut(&mut self.known);
        for FileUse { place, before, after, in_place, later_part } in self.of_turn.drain(..) {
            let knew = known.get(&place).map(String::as_str);
            match (after, before) {
                (Some(after), before) => {
                    if is_known_after(knew, before.as_deref(), in_place) {
                        known.insert(place, after);
                    }
                }
                (None, Some(read)) if !later_part => drop(known.insert(place, read)),
                (None, _) => {}
            }
        }
    }

    /// Returns the places of the files that were known when the turn began.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// Returns the hash of the content of a file as the model knew it when it made the calls of its turn; those
    /// that it made before count, but no result that it had not read.
    #[must_use]
    pub fn content(&self, place: &str) -> Option<&str> {
        let mut knew = self.known.get(place).map(String::as_str);
        for used in self.of_turn.iter().filter(|used| used.place == place) {
            if let Some(after) = &used.after
                && is_known_after(knew, used.before.as_deref(), used.in_place)
            {
                knew = Some(after);
            }
        }
        knew
    }
}

/// Returns true if an agent knows the content of a file after its own change. A change in one place leaves the rest
/// as unknown as it was.
fn is_known_after(knew: Option<&str>, before: Option<&str>, in_place: bool) -> bool {
    !in_place || before.is_none() || knew == before
}

/// A change of a file by an agent of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedBy {
    /// The agent.
    pub agent: AgentId,
    /// Number of the record of the change.
    pub seq: u64,
    /// Time of that record, in milliseconds since the Unix epoch.
    pub ms: i64,
    /// Hash of the content that it made.
    pub after: String,
}

/// Who changed a file, as an agent asks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Hash of the content that the agent itself made, if no agent has changed the file since.
    pub own: Option<String>,
    /// The last change by another agent.
    pub other: Option<ChangedBy>,
}

/// Why the file of a call holds something that its agent does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stale {
    /// This agent changed it since.
    Changed(ChangedBy),
    /// Something else did: a command, or somebody outside of the run; before that, perhaps this agent.
    Elsewhere(Option<ChangedBy>),
    /// This agent made it, and the agent of the call has never read it.
    Unread(ChangedBy),
}

/// Decides whether a change is stale, from the content that its agent knows, the one that is there, and who changed
/// the file. A file that no other agent of the run wrote may be replaced unread: it was there before.
#[must_use]
pub fn stale(known: Option<&str>, now: Option<&str>, changes: Changes) -> Option<Stale> {
    let Changes { own, other } = changes;
    let now = now?;
    match (known, other) {
        (Some(known), _) if known == now => None,
        (None, None) => None,
        (None, Some(other)) => Some(Stale::Unread(other)),
        // What the agent itself made of it kept the change of the other one.
        (Some(_), Some(other)) if other.after == now || own.as_deref() == Some(now) => {
            Some(Stale::Changed(other))
        }
        (Some(_), other) => Some(Stale::Elsewhere(other)),
    }
}

impl Stale {
    /// Returns who changed the file and when, for a model. `at` puts a time into words.
    #[must_use]
    pub fn words(&self, path: &str, at: impl Fn(i64) -> String) -> String {
        let by = |by: &ChangedBy| format!("@{} at {} (seq {})", by.agent, at(by.ms), by.seq);
        match self {
            Self::Changed(other) => {
                format!("`{path}` was changed by {} since you read it", by(other))
            }
            Self::Unread(other) => {
                format!("`{path}` was written by {}, and you have not read it", by(other))
            }
            Self::Elsewhere(None) => format!(
                "`{path}` was changed since you read it, by a command or from outside of the run"
            ),
            Self::Elsewhere(Some(other)) => format!(
                "`{path}` was changed since you read it, by a command or from outside of the run; the last \
                 agent that wrote it was {}",
                by(other)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(hash: &str) -> FileUse {
        FileUse::read("/w/f".to_owned(), hash.to_owned(), false)
    }

    fn read_on(hash: &str) -> FileUse {
        FileUse::read("/w/f".to_owned(), hash.to_owned(), true)
    }

    fn made(before: Option<&str>, after: &str, in_place: bool) -> FileUse {
        let change = FileChange {
            path: "f".to_owned(),
            place: "/w/f".to_owned(),
            pre: before.map(str::to_owned),
            post: after.to_owned(),
            in_place,
            answer: String::new(),
        };
        FileUse::changed(&change).expect("a place")
    }

    fn known(turns: &[&[FileUse]]) -> KnownFiles {
        let mut files = KnownFiles::default();
        for turn in turns {
            files.turn_started();
            for used in *turn {
                files.note(used);
            }
        }
        files
    }

    #[test]
    fn an_agent_knows_what_it_read_and_what_it_wrote_whole() {
        let none: &[FileUse] = &[];
        for (turns, content) in [
            (&[none][..], None),
            (&[&[read("1")], none], Some("1")),
            // A later part does not show what was changed before it.
            (&[&[read("1")], &[read_on("2")], none], Some("1")),
            (&[&[read_on("1")], none], None),
            (&[&[read("1")], &[read_on("2")], &[read("2")], none], Some("2")),
            (&[&[made(None, "1", false)], none], Some("1")),
            (&[&[made(Some("0"), "1", false)], none], Some("1")),
            // An edit of what it knows.
            (&[&[read("1")], &[made(Some("1"), "2", true)], none], Some("2")),
            // An edit of what somebody else changed, or of what it never read, leaves the rest unknown.
            (&[&[read("1")], &[made(Some("x"), "2", true)], none], Some("1")),
            (&[&[made(Some("x"), "2", true)], none], None),
            (&[&[made(Some("x"), "2", true)], &[read("2")], none], Some("2")),
            // The calls of a turn were made before their results were read, but not before the calls.
            (&[&[read("1")]], None),
            (&[&[made(None, "1", false)]], Some("1")),
            (&[&[read("1")], &[made(Some("1"), "2", true), made(Some("2"), "3", true)]], Some("3")),
            (&[&[read("1")], &[read("2")]], Some("1")),
        ] {
            assert_eq!(known(turns).content("/w/f"), content, "{turns:?}");
            assert_eq!(known(turns).content("/w/g"), None);
        }
    }

    #[test]
    fn a_write_is_stale_over_what_others_made() {
        let other = |after: &str| {
            Some(ChangedBy {
                agent: AgentId::from_text("b"),
                seq: 7,
                ms: 1,
                after: after.to_owned(),
            })
        };
        let told = |known, now, changes| {
            stale(known, now, changes).map(|stale: Stale| stale.words("f", |ms| format!("+{ms}")))
        };
        // The agent itself has changed one place of what the other one made.
        let own = Changes { own: Some("2".to_owned()), other: other("1") };
        let words = told(Some("0"), Some("2"), own);
        assert_eq!(words.as_deref(), Some("`f` was changed by @b at +1 (seq 7) since you read it"));
        for (known, now, other, words) in [
            (None, None, None, None),
            (None, None, other("1"), None),
            (Some("1"), None, other("1"), None),
            (None, Some("1"), None, None),
            (Some("1"), Some("1"), None, None),
            (Some("1"), Some("1"), other("0"), None),
            (
                Some("0"),
                Some("1"),
                other("1"),
                Some("`f` was changed by @b at +1 (seq 7) since you read it"),
            ),
            (
                None,
                Some("1"),
                other("1"),
                Some("`f` was written by @b at +1 (seq 7), and you have not read it"),
            ),
            (
                Some("0"),
                Some("1"),
                None,
                Some("`f` was changed since you read it, by a command or from outside of the run"),
            ),
            (
                Some("0"),
                Some("2"),
                other("1"),
                Some(
                    "`f` was changed since you read it, by a command or from outside of the run; the last agent \
                     that wrote it was @b at +1 (seq 7)",
                ),
            ),
        ] {
            let changes = Changes { own: None, other };
            assert_eq!(told(known, now, changes).as_deref(), words, "{known:?} {now:?}");
        }
    }
}
