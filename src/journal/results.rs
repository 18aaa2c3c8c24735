//! Stored results, read back: one whose content is not what was recorded is given to nobody.
//!
//! Owns the check of a content against its name, and the search for what made it. Writing them is
//! the spool's business.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::event::Event;
use crate::id::Name;
use crate::journal::JournalError;
use crate::journal::file::RunDir;
use crate::journal::line::Position;
use crate::journal::walk;
use crate::output::{Output, Stored};

/// Opens the stored result of that hash in a folder of results.
///
/// # Errors
/// When it is not there or cannot be opened.
pub fn open(folder: &Path, hash: &str) -> Result<Checked, JournalError> {
    let path = folder.join(hash);
    match File::open(&path) {
        Ok(file) => Ok(Checked { file, path, hasher: blake3::Hasher::new() }),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Looks whether a stored result is what was recorded. Blocks.
///
/// # Errors
/// When it is not there, cannot be read, or is not what was stored.
pub fn check(folder: &Path, hash: &str) -> Result<(), JournalError> {
    open(folder, hash)?.finish()
}

/// The content of a stored result. Blocks.
///
/// # Errors
/// When it is not there, cannot be read, or is not what was stored.
pub fn read(folder: &Path, stored: &Stored) -> Result<Vec<u8>, JournalError> {
    let mut result = open(folder, &stored.hash)?;
    let mut bytes = Vec::new();
    result.read_to_end(&mut bytes).map_err(|error| result.refused(&error))?;
    result.finish()?;
    Ok(bytes)
}

/// The whole text of an output. Blocks.
///
/// # Errors
/// When it is stored, and not there or damaged.
pub fn whole_text(folder: &Path, output: &Output) -> Result<String, JournalError> {
    let Some(stored) = &output.stored else { return Ok(output.text.clone()) };
    let bytes = read(folder, stored)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into()))
}

/// A stored result that is being read. What it gives counts once [`Checked::finish`] says so.
#[derive(Debug)]
pub struct Checked {
    file: File,
    path: PathBuf,
    hasher: blake3::Hasher,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

impl Checked {
    /// Reads what is left, and compares the whole with what was stored.
    ///
    /// # Errors
    /// When it cannot be read or is another.
    pub fn finish(mut self) -> Result<(), JournalError> {
        io::copy(&mut self, &mut io::sink()).map_err(|error| self.refused(&error))?;
        let found = self.hasher.finalize().to_hex();
        if self.path.file_name().is_some_and(|name| name == found.as_str()) {
            return Ok(());
        }
        let reason = format!("it is damaged: its content has the hash {found}");
        Err(JournalError::BadResult { path: self.path, reason })
    }

    /// What a read that was refused means.
    #[must_use]
    pub fn refused(&self, error: &io::Error) -> JournalError {
        unreadable(self.path.clone(), error)
    }
}

fn unreadable(path: PathBuf, error: &io::Error) -> JournalError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "it is missing".to_owned(),
        _ => error.to_string(),
    };
    JournalError::BadResult { path, reason }
}

/// Whether the folder of a run's stored results is there. Blocks.
///
/// # Errors
/// When it is not, and results are recorded that it held.
pub fn has_folder(dir: &RunDir) -> Result<bool, JournalError> {
    if dir.results().is_dir() {
        return Ok(true);
    }
    match first(dir, |_| true)? {
        Some((hash, _)) => open(&dir.results(), &hash).map(|_| true),
        None => Ok(false),
    }
}

/// What made a stored result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The task whose agent did.
    pub task: Option<Name>,
    /// The last record before it began to.
    pub before: u64,
    /// The first record that names it.
    pub named: u64,
}

/// What made the stored result at `path`; `None` when no record of its run names it. Reads the
/// journal of the run. Blocks.
///
/// # Errors
/// When the journal cannot be read.
pub fn origin(path: &Path) -> Result<Option<Origin>, JournalError> {
    let run = path.parent().and_then(Path::parent);
    let (Some(run), Some(wanted)) = (run, path.file_name().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    let found = first(&RunDir::at(run), |hash| hash == wanted)?;
    Ok(found.map(|(_, origin)| origin))
}

/// The first result that a record names and that is wanted, with its hash.
fn first(
    dir: &RunDir,
    wanted: impl Fn(&str) -> bool,
) -> Result<Option<(String, Origin)>, JournalError> {
    let mut reader = walk::open(dir, Position::START)?;
    // The calls at work, and when they began.
    let mut begun = HashMap::new();
    while let Some(records) = reader.next_batch()? {
        for record in &records {
            let mut began = None;
            match &record.event {
                Event::ToolStarted(started) => drop(begun.insert(started.key.clone(), record.seq)),
                Event::ToolFinished(finished) => began = begun.remove(&finished.key),
                _ => {}
            }
            if let Some(hash) = named_by(&record.event).find(|hash| wanted(hash)) {
                let (task, before) = (record.task.clone(), began.unwrap_or(record.seq) - 1);
                return Ok(Some((hash, Origin { task, before, named: record.seq })));
            }
        }
    }
    Ok(None)
}

/// The hashes of the stored results that an event names in place of holding them.
pub fn named_by(event: &Event) -> impl Iterator<Item = String> {
    let data = event.data();
    let hashes: Vec<_> = named(data.as_str()).map(str::to_owned).collect();
    hashes.into_iter()
}

/// The hashes of the stored results that a payload names. In a text within it every quote has a
/// backslash before it.
fn named(payload: &str) -> impl Iterator<Item = &str> {
    const BEFORE: &str = "\"stored\":{\"hash\":\"";
    let after = payload.match_indices(BEFORE).map(|(at, _)| &payload[at + BEFORE.len()..]);
    after.filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_stored_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let bytes = "content, ".repeat(30_000).into_bytes();
        let hash = blake3::hash(&bytes).to_hex().to_string();
        let stored = Stored { hash, bytes: 270_000 };
        let path = folder.join(&stored.hash);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(folder, &stored).unwrap(), bytes);
        let output = Output { text: "cont".to_owned(), stored: Some(stored.clone()) };
        assert_eq!(whole_text(folder, &output).unwrap().into_bytes(), bytes);
        assert_eq!(whole_text(folder, &Output::whole("x")).unwrap(), "x");

        let mut wrong = bytes.clone();
        *wrong.last_mut().unwrap() ^= 1;
        for content in [&wrong[..], &bytes[1..], b""] {
            std::fs::write(&path, content).unwrap();
            let error = whole_text(folder, &output).unwrap_err();
            assert!(error.is_disk() && error.to_string().contains("it is damaged"), "{error}");
            assert!(error.to_string().contains(&stored.hash), "{error}");
            // Whoever reads a part of it hears the same.
            let mut result = open(folder, &stored.hash).unwrap();
            let _ = result.read(&mut [0; 8]).unwrap();
            assert_eq!(result.finish().unwrap_err(), error);
        }
        std::fs::remove_file(&path).unwrap();
        let error = read(folder, &stored).unwrap_err();
        assert!(error.to_string().ends_with("it is missing"), "{error}");
    }

    #[test]
    fn a_payload_names_what_it_stored_and_not_what_it_talks_of() {
        let stored = Stored { hash: "ab".repeat(32), bytes: 7 };
        let output =
            Output { text: "\"stored\":{\"hash\":\"cd\"}".to_owned(), stored: Some(stored) };
        let payload = serde_json::to_string(&[&output, &Output::whole("x"), &output]).unwrap();
        assert_eq!(named(&payload).collect::<Vec<_>>(), ["ab".repeat(32), "ab".repeat(32)]);
    }
}
