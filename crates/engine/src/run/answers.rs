//! The answers of people that were given while no process drove the run: one file for each
//! question, which the next process takes up.
//!
//! A file is made whole and only if there is none yet, so the first answer is the one that stays.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::disk;
use crate::journal::JournalError;
use crate::journal::source::{RunSource, drivable};
use crate::run_machine::Errand;
use crate::run_state::RunState;
use crate::trust::Store;
use crate::trust::proof::Key;
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

/// The file of an answer.
#[derive(Serialize, Deserialize)]
struct Proven {
    #[serde(flatten)]
    left: LeftAnswer,
    /// What only the user who drives the run can make: the file may have been written by a command, or have come
    /// with a repository.
    #[serde(default)]
    proof: String,
}

/// Returns the proof of an answer. It holds in one run: a fork has the same questions.
fn proof(run: &dyn RunSource, left: &LeftAnswer, key: &Key) -> io::Result<blake3::Hash> {
    Ok(key.proof(&run.name(), &serde_json::to_vec(left)?))
}

/// Returns the folder of the answers that were left.
fn folder(run: &dyn RunSource) -> io::Result<PathBuf> {
    Ok(drivable(run).map_err(io::Error::other)?.answers())
}

/// Refuses a run whose files may not be written: its directory is odd, or on another machine.
///
/// # Errors
/// Returns an error that says why.
pub(crate) fn refuse_unsafe(run: &dyn RunSource) -> Result<(), JournalError> {
    drivable(run)?.refuse_unsafe()
}

/// Leaves an answer for the next process. Returns the answer that was left before, if there is one:
/// then that one stays. When this returns, the answer survives a power cut. The caller has looked at the
/// directory (`refuse_unsafe`).
///
/// # Errors
/// Returns an error if the file or the key that proves it cannot be made.
pub fn leave(
    run: &dyn RunSource,
    left: &LeftAnswer,
    store: &Store,
) -> io::Result<Option<LeftAnswer>> {
    let folder = folder(run)?;
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
        Ok(()) => disk::sync(&File::open(run.place())?)?,
    }
    let key = store.make_key().map_err(io::Error::other)?;
    let path = file(run, &left.answer.id)?;
    let before = read(run, &path, Some(&key));
    if before.is_err_and(|reason| reason.kind() != ErrorKind::NotFound) {
        // Nobody takes it up, so it must not keep a person from answering.
        fs::remove_file(&path)?;
    }
    let proof = proof(run, left, &key)?.to_hex().to_string();
    let text = serde_json::to_string(&Proven { left: left.clone(), proof })?;
    // A process of this number may have left it half-written and is gone.
    let written = path.with_extension(format!("{}.new", std::process::id()));
    let mut new = disk::make_anew(&written)?;
    disk::write_all(&mut new, text.as_bytes())?;
    disk::sync(&new)?;
    // A link is made only if the name is free, and the file it names is complete.
    let linked = fs::hard_link(&written, &path);
    fs::remove_file(&written)?;
    match linked {
        Ok(()) => {
            disk::sync(&File::open(&folder)?)?;
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            read(run, &path, Some(&key)).map(Some)
        }
        Err(error) => Err(error),
    }
}

/// Returns the answer that was left for a question, if there is one.
#[must_use]
pub fn left_for(run: &dyn RunSource, id: &str, store: &Store) -> Option<LeftAnswer> {
    read(run, &file(run, id).ok()?, store.key().ok()?.as_ref()).ok()
}

/// Removes the answer that was left for a question.
///
/// # Errors
/// Returns an error if the file is there and cannot be removed.
pub fn remove(run: &dyn RunSource, id: &str) -> io::Result<()> {
    match fs::remove_file(file(run, id)?) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns the answers that were left for the open questions of a run, and removes those that
/// nobody waits for any more. The caller holds the run.
pub(super) fn take_up(run: &dyn RunSource, state: &RunState, store: &Store) -> Vec<PersonsAnswer> {
    let key = store.key().unwrap_or_else(|error| {
        tracing::warn!("answers that were left are not taken up: {error}");
        None
    });
    let entries = folder(run).and_then(fs::read_dir).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.path();
        let id = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if path.extension().is_none_or(|extension| extension != "json") {
            // A half-written file of somebody who has died, or one that is being written: its
            // writer then fails to link it, and tries again.
            continue;
        }
        if Errand::of(id) == Errand::Answer && state.questions().get(id).is_none() {
            // A file that stays is looked at again by the next process.
            let _ = fs::remove_file(&path);
            continue;
        }
        match read(run, &path, key.as_ref()) {
            // One that is recorded already must not undo what came after it.
            Ok(left) if Errand::is_done(&left.answer, left.at_ms, state) => {
                drop(fs::remove_file(&path));
            }
            Ok(left) if left.answer.id == id => found.push(left),
            Ok(_) => tracing::warn!(file = %path.display(), "it answers another question"),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "this answer is not taken up");
            }
        }
    }
    found.sort_by_key(|left| left.at_ms);
    found.into_iter().map(|left| left.answer).collect()
}

fn file(run: &dyn RunSource, id: &str) -> io::Result<PathBuf> {
    let is_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    match is_id {
        true => Ok(folder(run)?.join(format!("{id}.json"))),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "not the id of a question")),
    }
}

/// Reads an answer that was left. One without a proof of this user is none.
fn read(run: &dyn RunSource, path: &Path, key: Option<&Key>) -> io::Result<LeftAnswer> {
    let mut text = String::new();
    disk::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    let Proven { left, proof: given } = serde_json::from_str(&text)?;
    let made = key.map(|key| proof(run, &left, key)).transpose()?;
    // Hashes compare in constant time.
    match blake3::Hash::from_hex(given).is_ok_and(|given| made == Some(given)) {
        true => Ok(left),
        false => Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "you did not give it here; answer again",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::local::run_at;

    #[test]
    fn the_first_answer_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = &*run_at(folder.path());
        let left_by = |by: &str, at_ms| {
            let (id, by) = ("abc-2".to_owned(), by.to_owned());
            LeftAnswer { answer: PersonsAnswer { id, allowed: true, text: None, by }, at_ms }
        };
        let root = tempfile::tempdir().expect("a folder");
        let [mine, other] = ["mine", "other"].map(|name| Store::at(root.path().join(name)));
        assert_eq!(left_for(dir, "abc-2", &mine), None);
        assert_eq!(leave(dir, &left_by("one", 1), &mine).expect("left"), None);
        assert_eq!(leave(dir, &left_by("two", 2), &mine).expect("left"), Some(left_by("one", 1)));
        assert_eq!(left_for(dir, "abc-2", &mine), Some(left_by("one", 1)));
        // Nobody else has left it, and whoever changes or moves it, leaves none.
        assert_eq!(left_for(dir, "abc-2", &other), None);
        other.make_key().expect("made");
        assert_eq!(left_for(dir, "abc-2", &other), None);
        let path = file(dir, "abc-2").expect("a path");
        let text = fs::read_to_string(&path).expect("a file");
        fs::write(&path, text.replace("one", "two")).expect("written");
        assert_eq!(left_for(dir, "abc-2", &mine), None);
        let unproven = serde_json::to_string(&left_by("x", 1)).expect("encoded");
        fs::write(&path, unproven).expect("written");
        assert_eq!(left_for(dir, "abc-2", &mine), None);
        let fork = &*run_at(root.path().join("fork"));
        fs::create_dir_all(super::folder(fork).expect("a path")).expect("made");
        fs::write(file(fork, "abc-2").expect("a path"), text).expect("written");
        assert_eq!(left_for(fork, "abc-2", &mine), None);
        // What is no answer keeps nobody from giving one.
        assert_eq!(leave(dir, &left_by("two", 2), &mine).expect("left"), None);
        assert_eq!(left_for(dir, "abc-2", &mine), Some(left_by("two", 2)));
        // Nobody waits for it in a run without questions.
        assert_eq!(take_up(dir, &RunState::default(), &mine), []);
        assert_eq!(left_for(dir, "abc-2", &mine), None);
        let outside = PersonsAnswer { id: "../x".to_owned(), ..left_by("x", 1).answer };
        assert!(leave(dir, &LeftAnswer { answer: outside, at_ms: 1 }, &mine).is_err());
    }
}
