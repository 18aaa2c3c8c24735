//! The key by which a person's answers that lie in the folders of runs are known: a text there may have been
//! written by anybody, and only this user can make its proof. The key is a file beside the store of trust,
//! which no command reads unless the workspace holds it, as the home itself does.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use super::{Store, StoreError, of_this_user};
use crate::disk;

/// The name of the file in the folder of the store.
const FILE: &str = "answers.key";

/// The size of the key in bytes, as BLAKE3 takes it.
const BYTES: usize = blake3::KEY_LEN;

/// Where the system gives out random bytes.
const RANDOM: &str = "/dev/urandom";

/// The key of a user.
pub struct Key([u8; BYTES]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Returns the proof that this user left a text for what `about` names.
    #[must_use]
    pub fn proof(&self, about: &str, text: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        // The length keeps the end of one part from being the beginning of the other.
        hasher.update(&(about.len() as u64).to_le_bytes()).update(about.as_bytes()).update(text);
        hasher.finalize()
    }
}

impl Store {
    /// Returns the key of the user; `None` if none was made yet: then this user has proven nothing.
    ///
    /// # Errors
    /// Returns an error if the store cannot be used, or if somebody else may know the key.
    pub fn key(&self) -> Result<Option<Key>, StoreError> {
        read(&self.folder.as_deref().ok_or(StoreError::Nowhere)?.join(FILE))
    }

    /// Returns the key of the user, and makes it the first time.
    ///
    /// # Errors
    /// Returns an error if the store cannot be used or written, or if somebody else may know the key.
    pub fn make_key(&self) -> Result<Key, StoreError> {
        let folder = self.folder.as_deref().ok_or(StoreError::Nowhere)?;
        let file = folder.join(FILE);
        if let Some(key) = read(&file)? {
            return Ok(key);
        }
        make(folder, &file).map_err(|source| StoreError::Io { file: file.clone(), source })?;
        // Another process may have been quicker: its key is the one.
        read(&file)?.ok_or_else(|| StoreError::Io { file, source: ErrorKind::NotFound.into() })
    }
}

fn make(folder: &Path, file: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut key = [0; BYTES];
    File::open(RANDOM)?.read_exact(&mut key)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.as_file().set_permissions(Permissions::from_mode(0o600))?;
    disk::write_all(&mut new, &key)?;
    disk::sync(new.as_file())?;
    match new.persist_noclobber(file) {
        Err(failed) if failed.error.kind() != ErrorKind::AlreadyExists => Err(failed.error),
        _ => disk::sync(&File::open(folder)?),
    }
}

fn read(path: &Path) -> Result<Option<Key>, StoreError> {
    let failed = |source: io::Error| StoreError::Io { file: path.to_owned(), source };
    let unusable =
        |reason: &str| StoreError::Unusable { file: path.to_owned(), reason: reason.to_owned() };
    // The person may have put the folder on another disk.
    let folder = path.parent().unwrap_or(path).canonicalize();
    let mut file = match folder.and_then(|folder| disk::open(&folder.join(FILE))) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    of_this_user(path.parent().unwrap_or(path))?;
    let found = file.metadata().map_err(failed)?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(unusable("others can read it: remove it, and give open answers again"));
    }
    let mut key = [0; BYTES];
    match found.len() == BYTES as u64 && file.read_exact(&mut key).is_ok() {
        true => Ok(Some(Key(key))),
        false => Err(unusable("it is damaged: remove it, and give open answers again")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_proof_is_of_one_user_one_matter_and_one_text() {
        let root = tempfile::tempdir().expect("a folder");
        let [mine, other] = ["mine", "other"].map(|name| Store::at(root.path().join(name)));
        assert!(mine.key().expect("none").is_none());
        let key = mine.make_key().expect("made");
        let again = mine.key().expect("read").expect("there");
        let proof = |key: &Key| key.proof("run", b"text");
        assert_eq!(proof(&key), proof(&again));
        assert_eq!(proof(&key), proof(&mine.make_key().expect("kept")));
        assert_ne!(proof(&key), proof(&other.make_key().expect("made")));
        assert_ne!(proof(&key), key.proof("runt", b"ext"));
        assert_ne!(proof(&key), key.proof("run", b"texts"));
        let file = root.path().join("mine").join(FILE);
        assert_eq!(file.metadata().expect("there").mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_others_may_know_is_none() {
        let root = tempfile::tempdir().expect("a folder");
        let (store, file) = (Store::at(root.path()), root.path().join(FILE));
        store.make_key().expect("made");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("changed");
        let told = |store: &Store| store.make_key().expect_err("refused").to_string();
        assert!(told(&store).contains("others can read it"), "{}", told(&store));
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("changed");
        fs::write(&file, "short").expect("written");
        assert!(told(&store).contains("it is damaged"), "{}", told(&store));
        fs::rename(&file, root.path().join("real")).expect("moved");
        std::os::unix::fs::symlink(root.path().join("real"), &file).expect("a link");
        assert!(told(&store).contains("it is a link"), "{}", told(&store));
        assert!(Store { folder: None }.key().is_err());
    }
}
