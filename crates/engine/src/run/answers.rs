//! The answers of people that were given while no process drove the run: one file for each
//! question, which the next process takes up.
//!
//! A file is made whole and only if there is none yet, so the first answer is the one that stays.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::control::user;
use crate::disk;
use crate::journal::file::RunDir;
use crate::run_state::RunState;
use crate::turn::question::PersonsAnswer;

/// The most bytes of a file that is read: an answer with its escapes fits many times.
const MOST_BYTES: u64 = 256 * 1024;

/// An answer that was left for the next process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftAnswer {
    /// The answer.
    pub answer: PersonsAnswer,
    /// When it was given, in milliseconds since the Unix epoch.
    pub at_ms: i64,
}

/// Leaves an answer for the next process. Returns the answer that was left before, if there is one:
/// then that one stays. When this returns, the answer survives a power cut. The caller has looked at the
/// directory ([`RunDir::refuse_unsafe`]).
///
/// # Errors
/// Returns an error if the file cannot be made.
pub fn leave(dir: &RunDir, left: &LeftAnswer) -> io::Result<Option<LeftAnswer>> {
    let folder = dir.answers();
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
        Ok(()) => disk::sync(&File::open(dir.path())?)?,
    }
    let path = file(dir, &left.answer.id)?;
    let written = path.with_extension(format!("{}.new", std::process::id()));
    // A process of this number left it half-written and is gone.
    match fs::remove_file(&written) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut new = OpenOptions::new();
    let mut new = new.write(true).create_new(true).mode(0o600).open(&written)?;
    disk::write_all(&mut new, serde_json::to_string(left)?.as_bytes())?;
    disk::sync(&new)?;
    // A link is made only if the name is free, and the file it names is complete.
    let linked = fs::hard_link(&written, &path);
    fs::remove_file(&written)?;
    match linked {
        Ok(()) => {
            disk::sync(&File::open(&folder)?)?;
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(&path).map(Some),
        Err(error) => Err(error),
    }
}

/// Returns the answer that was left for a question, if there is one.
#[must_use]
pub fn left_for(dir: &RunDir, id: &str) -> Option<LeftAnswer> {
    read(&file(dir, id).ok()?).ok()
}

/// Removes the answer that was left for a question.
///
/// # Errors
/// Returns an error if the file is there and cannot be removed.
pub fn remove(dir: &RunDir, id: &str) -> io::Result<()> {
    match fs::remove_file(file(dir, id)?) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns the answers that were left for the open questions of a run, and removes those that
/// nobody waits for any more. The caller holds the run.
pub(super) fn take_up(dir: &RunDir, state: &RunState) -> Vec<PersonsAnswer> {
    let entries = fs::read_dir(dir.answers()).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.path();
        let id = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if path.extension().is_none_or(|extension| extension != "json") {
            // A half-written file of somebody who has died, or one that is being written: its
            // writer then fails to link it, and tries again.
            continue;
        }
        if state.questions().get(id).is_none() {
            // A file that stays is looked at again by the next process.
            let _ = fs::remove_file(&path);
            continue;
        }
        match read(&path) {
            Ok(left) if left.answer.id == id => found.push(left),
            Ok(_) | Err(_) => {
                tracing::warn!(file = %path.display(), "not the answer of a question");
            }
        }
    }
    found.sort_by_key(|left| left.at_ms);
    found.into_iter().map(|left| left.answer).collect()
}

fn file(dir: &RunDir, id: &str) -> io::Result<PathBuf> {
    let is_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    match is_id {
        true => Ok(dir.answers().join(format!("{id}.json"))),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "not the id of a question")),
    }
}

/// Reads an answer that was left. Who gave it is the owner of the file, whatever its text says; one of
/// another user than this one and root is none.
fn read(path: &Path) -> io::Result<LeftAnswer> {
    let (file, mut text) = (disk::open(path)?, String::new());
    let owner = file.metadata()?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        let reason = format!("it is a file of {}, who may not answer", user(owner));
        return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
    }
    file.take(MOST_BYTES).read_to_string(&mut text)?;
    let mut left: LeftAnswer = serde_json::from_str(&text)?;
    // The number tells processes of a user apart, and says nothing of who it is.
    let number = left.answer.by.rsplit_once('/').map(|(_, number)| number);
    let number = number.and_then(|number| number.parse::<u32>().ok());
    left.answer.by = number.map_or_else(|| user(owner), |pid| format!("{}/{pid}", user(owner)));
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = RunDir::at(folder.path());
        let left_by = |by: &str, at_ms| {
            let (id, by) = ("abc-2".to_owned(), by.to_owned());
            LeftAnswer { answer: PersonsAnswer { id, allowed: true, text: None, by }, at_ms }
        };
        // Whatever a file says, it is the answer of its owner.
        let this = user(rustix::process::geteuid().as_raw());
        let left = |at_ms| left_by(&this, at_ms);
        assert_eq!(left_for(&dir, "abc-2"), None);
        assert_eq!(leave(&dir, &left_by("one", 1)).expect("left"), None);
        assert_eq!(leave(&dir, &left_by("two", 2)).expect("left"), Some(left(1)));
        assert_eq!(left_for(&dir, "abc-2"), Some(left(1)));
        assert!(this.contains('@') && !this.contains('/'), "{this}");
        if rustix::process::geteuid().is_root() {
            let path = file(&dir, "abc-2").expect("a path");
            std::os::unix::fs::chown(&path, Some(65_534), None).expect("root");
            assert_eq!(left_for(&dir, "abc-2"), None, "of another user");
            std::os::unix::fs::chown(&path, Some(0), None).expect("root");
            assert_eq!(left_for(&dir, "abc-2"), Some(left(1)));
        }
        let path = file(&dir, "abc-2").expect("a path");
        fs::remove_file(&path).expect("removed");
        assert_eq!(leave(&dir, &left_by("alice@desk/42", 2)).expect("left"), None);
        let by = left_for(&dir, "abc-2").map(|left| left.answer.by);
        assert_eq!(by, Some(format!("{this}/42")));
        // Nobody waits for it in a run without questions.
        assert_eq!(take_up(&dir, &RunState::default()), []);
        assert_eq!(left_for(&dir, "abc-2"), None);
        let outside = PersonsAnswer { id: "../x".to_owned(), ..left(1).answer };
        assert!(leave(&dir, &LeftAnswer { answer: outside, at_ms: 1 }).is_err());
    }
}
