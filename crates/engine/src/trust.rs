//! The store of what a person trusts: for each directory and content of a configuration, the things
//! that it may do although nobody would expect them.
//!
//! The store is one file of the user, outside of every project. A store that lies in the directory that
//! is judged does not count, because a command in that workspace could have written it.

pub(crate) mod others;
pub mod proof;

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use self::others::who_replaces;
use crate::disk;

/// The name of the file in the folder of the store.
const FILE: &str = "trust.json";

/// The version of the format of the file.
const VERSION: u32 = 1;

/// The most bytes of the file that are read: thousands of entries.
const MOST_BYTES: u64 = 16 << 20;

/// The most entries that are kept; the oldest are forgotten, and asked about again.
const MOST_ENTRIES: usize = 1_000;

/// The most characters of a thing that are kept for people to read.
const SHOWN: usize = 300;

/// The things that one content of a configuration may do in one directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The directory of the configuration, without links.
    pub directory: PathBuf,
    /// The hash of the configuration and of the files that it includes.
    pub content: String,
    /// The things, by the hash of their whole text.
    pub things: BTreeMap<String, String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    version: u32,
    trusted: Vec<Entry>,
    /// True if commands of files run on this machine where it has no sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    without_sandbox: bool,
}

/// The store of a user.
#[derive(Clone, Debug)]
pub struct Store {
    folder: Option<PathBuf>,
}

/// Reasons why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No variable says where it lies.
    #[error("neither XDG_STATE_HOME nor HOME is set")]
    Nowhere,
    /// It lies in the directory that is judged.
    #[error("{} lies in the directory itself, where commands can write it: set XDG_STATE_HOME", .0.display())]
    Inside(PathBuf),
    /// It may have been written by somebody else, or is none.
    #[error("{}: {reason}", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The reason, as a fragment.
        reason: String,
    },
    /// The disk failed.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file or the folder.
        file: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
}

/// Returns the folder of the store: `callsheet` in `$XDG_STATE_HOME`, by default in
/// `~/.local/state`. `None` if no variable names an absolute path.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = variable("XDG_STATE_HOME").filter(absolute);
    let state = state.or_else(|| Some(variable("HOME").filter(absolute)?.join(".local/state")));
    state.map(|state| state.join("callsheet"))
}

/// Returns where the folder of the store is, or would be made, without links as far as it exists.
#[must_use]
pub fn real_folder() -> Option<PathBuf> {
    let folder = folder()?;
    let real =
        |above: &Path| Some(above.canonicalize().ok()?.join(folder.strip_prefix(above).ok()?));
    folder.ancestors().find_map(real)
}

impl Store {
    /// Returns the store of the user of this process.
    #[must_use]
    pub fn of_user() -> Self {
        // The tests of this crate leave nothing with the person who runs them, and share one folder.
        #[cfg(test)]
        return Self::at(
            std::env::temp_dir()
                .join(format!("callsheet-tests-of-{}", rustix::process::getuid().as_raw())),
        );
        #[cfg(not(test))]
        Self { folder: folder() }
    }

    /// Returns the store in a folder.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// Returns true if all things are trusted for this content in this directory.
    ///
    /// # Errors
    /// Returns an error if the store cannot be used; nothing is trusted then.
    pub fn trusts<'a>(
        &self,
        directory: &Path,
        content: &str,
        things: impl IntoIterator<Item = &'a str>,
    ) -> Result<bool, StoreError> {
        let entries = self.usable(directory).and_then(|folder| read(&folder.join(FILE)))?;
        let entry = entries.trusted.iter().find(|entry| entry.is_for(directory, content));
        let knows = |thing| entry.is_some_and(|entry| entry.things.contains_key(&id(thing)));
        Ok(things.into_iter().all(knows))
    }

    /// Adds things that are trusted for this content in this directory.
    ///
    /// # Errors
    /// Returns an error if the store cannot be used or written.
    pub fn remember<'a>(
        &self,
        directory: &Path,
        content: &str,
        things: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), StoreError> {
        let shown = |thing: &str| (id(thing), thing.chars().take(SHOWN).collect());
        self.usable(directory)?;
        self.change(|entries| {
            let known = entries.iter().position(|entry| entry.is_for(directory, content));
            let mut entry = known.map(|at| entries.remove(at)).unwrap_or_else(|| Entry {
                directory: directory.to_owned(),
                content: content.to_owned(),
                things: BTreeMap::new(),
            });
            entry.things.extend(things.into_iter().map(shown));
            entries.push(entry);
            entries.drain(..entries.len().saturating_sub(MOST_ENTRIES));
        })
    }

    /// Forgets everything about a directory, and returns the number of entries that it had.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read or written.
    pub fn revoke(&self, directory: &Path) -> Result<usize, StoreError> {
        let before = self.entries()?.len();
        if before == 0 {
            return Ok(0);
        }
        self.change(|entries| entries.retain(|entry| entry.directory != directory))?;
        Ok(before.saturating_sub(self.entries()?.len()))
    }

    /// Returns all entries, the oldest first.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        Ok(read(&self.folder.as_ref().ok_or(StoreError::Nowhere)?.join(FILE))?.trusted)
    }

    /// Returns true if the user has said that commands of files run where this machine has no sandbox.
    /// A store in `directory`, where commands could write it, does not count.
    #[must_use]
    pub fn allows_no_sandbox(&self, directory: &Path) -> bool {
        self.usable(directory).is_ok() && self.goes_without_sandbox()
    }

    /// Returns true if the user has said that commands of files run where this machine has no sandbox.
    #[must_use]
    pub fn goes_without_sandbox(&self) -> bool {
        let file = self.folder.as_ref().map(|folder| folder.join(FILE));
        file.is_some_and(|file| read(&file).is_ok_and(|content| content.without_sandbox))
    }

    /// Remembers whether commands of files run where this machine has no sandbox.
    ///
    /// # Errors
    /// Returns an error if the store cannot be used or the disk refuses.
    pub fn allow_no_sandbox(&self, allowed: bool) -> Result<(), StoreError> {
        self.change_all(|content| content.without_sandbox = allowed)
    }

    /// Returns the folder, unless it lies in `directory`.
    fn usable(&self, directory: &Path) -> Result<&Path, StoreError> {
        let folder = self.folder.as_deref().ok_or(StoreError::Nowhere)?;
        // The folder may not exist yet: then the nearest one above it tells where it will lie.
        let real = folder.ancestors().find_map(|above| above.canonicalize().ok());
        match real.is_none_or(|real| real.starts_with(directory)) {
            true => Err(StoreError::Inside(folder.to_owned())),
            false => Ok(folder),
        }
    }

    /// Changes the entries. Another process waits until that is done, and a reader sees the file as it
    /// was or as it will be.
    fn change(&self, change: impl FnOnce(&mut Vec<Entry>)) -> Result<(), StoreError> {
        self.change_all(|content| change(&mut content.trusted))
    }

    fn change_all(&self, change: impl FnOnce(&mut Content)) -> Result<(), StoreError> {
        let folder = self.folder.as_deref().ok_or(StoreError::Nowhere)?;
        let failed = |source: io::Error| StoreError::Io { file: folder.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        of_this_user(folder)?;
        let held = File::open(folder).map_err(failed)?;
        rustix::fs::flock(&held, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        let file = folder.join(FILE);
        let mut content = Content { version: VERSION, ..read(&file)? };
        change(&mut content);
        let write = || -> io::Result<()> {
            let mut new = tempfile::NamedTempFile::new_in(folder)?;
            new.as_file().set_permissions(Permissions::from_mode(0o600))?;
            disk::write_all(&mut new, &serde_json::to_vec_pretty(&content)?)?;
            disk::sync(new.as_file())?;
            new.persist(&file)?;
            disk::sync(&held)
        };
        write().map_err(failed)
    }
}

impl Entry {
    fn is_for(&self, directory: &Path, content: &str) -> bool {
        self.directory == directory && self.content == content
    }
}

fn id(thing: &str) -> String {
    blake3::hash(thing.as_bytes()).to_hex().to_string()
}

/// Refuses a folder in which somebody else can put a store that was in force before, or one of their own, in the place
/// of this one; also one that lies in such a folder.
fn of_this_user(folder: &Path) -> Result<(), StoreError> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    for place in [Some(folder), folder.parent()].into_iter().flatten() {
        let failed = |source| StoreError::Io { file: place.to_owned(), source };
        let stat = rustix::fs::stat(place).map_err(|error| failed(error.into()))?;
        if who_replaces(&stat, user.as_raw(), Some(group.as_raw())).is_some() {
            let reason =
                "somebody else can put files into it: set XDG_STATE_HOME to a folder of yours";
            return Err(StoreError::Unusable { file: place.to_owned(), reason: reason.to_owned() });
        }
    }
    Ok(())
}

/// Reads a store; an empty one if there is no file.
fn read(path: &Path) -> Result<Content, StoreError> {
    let unusable = |reason: String| StoreError::Unusable { file: path.to_owned(), reason };
    let failed = |source: io::Error| StoreError::Io { file: path.to_owned(), source };
    // A pipe in its place would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
    let file = match opened.map_err(io::Error::from) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::default()),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(unusable("it is no file: remove it".to_owned()));
    }
    if let Some(folder) = path.parent() {
        of_this_user(folder)?;
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(unusable("others can write it: remove it".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    let content = serde_json::from_slice::<Content>(&bytes);
    match content {
        Ok(content) if content.version == VERSION => Ok(content),
        Ok(content) => Err(unusable(format!("it has version {}", content.version))),
        Err(_) => Err(unusable("it is damaged: remove it".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_trusted_for_one_content_in_one_directory() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::at(dir.path().join("state/callsheet"));
        let (here, there) = (Path::new("/here"), Path::new("/there"));
        let trusts = |directory, content, things: &[&str]| {
            store.trusts(directory, content, things.iter().copied()).expect("a store")
        };
        assert!(!trusts(here, "1", &["key"]));
        assert!(trusts(here, "1", &[]));
        store.remember(here, "1", ["key"]).expect("written");
        store.remember(here, "1", ["file"]).expect("written");
        assert!(trusts(here, "1", &["key", "file"]) && trusts(here, "1", &["file"]));
        assert!(!trusts(here, "1", &["key", "network"]));
        assert!(!trusts(here, "2", &["key"]) && !trusts(there, "1", &["key"]));
        assert_eq!(store.entries().expect("read").len(), 1);
        let mode = |path: &str| {
            dir.path().join("state/callsheet").join(path).metadata().expect("there").mode() & 0o777
        };
        assert_eq!((mode(FILE), mode(".")), (0o600, 0o700));
        assert_eq!(store.revoke(there).expect("written"), 0);
        assert_eq!(store.revoke(here).expect("written"), 1);
        assert!(!trusts(here, "1", &["key"]));
    }

    #[test]
    fn a_store_that_others_could_write_does_not_count() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("a path");
        let (store, file) = (Store::at(&root), root.join(FILE));
        store.remember(Path::new("/here"), "1", ["key"]).expect("written");
        let trusts = |directory: &Path| store.trusts(directory, "1", ["key"]);
        assert!(trusts(Path::new("/here")).expect("a store"));
        assert!(matches!(trusts(&root), Err(StoreError::Inside(_))));
        assert!(matches!(store.remember(&root, "1", ["key"]), Err(StoreError::Inside(_))));
        let inner = Store::at(root.join("not/there/yet"));
        assert!(matches!(inner.trusts(&root, "1", ["key"]), Err(StoreError::Inside(_))));
        fs::set_permissions(&file, Permissions::from_mode(0o622)).expect("set");
        assert!(matches!(trusts(Path::new("/here")), Err(StoreError::Unusable { .. })));
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set");
        fs::write(&file, "{").expect("written");
        assert!(matches!(trusts(Path::new("/here")), Err(StoreError::Unusable { .. })));
        // What cannot be read is not replaced either.
        assert!(store.remember(Path::new("/here"), "1", ["key"]).is_err());
    }

    #[test]
    fn two_writers_lose_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::at(dir.path());
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let store = &store;
                scope.spawn(move || {
                    let thing = writer.to_string();
                    store.remember(Path::new("/here"), "1", [thing.as_str()]).expect("written");
                });
            }
        });
        assert_eq!(store.entries().expect("read")[0].things.len(), 8);
    }
}
