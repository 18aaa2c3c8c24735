//! Unfinished files: they have a temporary name until they are whole and durable.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Store;
use crate::disk;

/// A file under a temporary name. Dropping it removes the file unless it was kept.
#[derive(Debug)]
pub struct Scratch {
    /// The file, open for writing.
    pub file: File,
    /// Its path, with the temporary name.
    pub path: PathBuf,
}

impl Scratch {
    /// Makes an empty file, which only its owner can read.
    ///
    /// # Errors
    /// Returns an error if the disk refuses it.
    pub fn create(store: &Store) -> io::Result<Self> {
        Self::named(store, &format!("{}.tmp", uuid::Uuid::now_v7().simple()))
    }

    /// Makes one that others can find by its name while it is written. Replaces a file of that name, which a process
    /// that died has left.
    ///
    /// # Errors
    /// Returns an error if the disk refuses it.
    pub fn named(store: &Store, name: &str) -> io::Result<Self> {
        let path = store.scratch.join(name);
        let file = store.patiently(|| {
            make_dir(&store.scratch)?;
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)
        })?;
        Ok(Self { file, path })
    }

    /// Syncs the file and gives it its lasting name. Replaces a file of that name, which has the
    /// same content or is damaged.
    ///
    /// # Errors
    /// Returns an error if the disk refuses it. The file is then gone.
    pub fn keep_as(self, store: &Store, dir: &Path, name: &str) -> io::Result<()> {
        // A sync that failed is not tried again: after a failure the system may drop the unwritten
        // pages and report success the next time.
        disk::sync(&self.file)?;
        store.patiently(|| {
            make_dir(dir)?;
            std::fs::rename(&self.path, dir.join(name))
        })?;
        disk::sync(&File::open(dir)?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After the rename no file has this name. A failure to remove it is ignored: nobody could
        // act on it, and the next start of the run clears the directory.
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// Makes a folder, and those above it, which only their owner can enter.
///
/// # Errors
/// Returns an error if the disk refuses it.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
