//! Reads stored results. A result whose content is not what was recorded is an error.
//!
//! Owns the comparison of a content with the hash in its file name.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{MAX_STORED_BYTES, StoreError};
use crate::disk;
use crate::output::{Output, Stored, Text};
use crate::turn::Program;

/// Returns true if a text has the form of a hash. No other text may become part of a path.
#[must_use]
pub fn is_hash(text: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == blake3::OUT_LEN * 2 && text.bytes().all(is_hex)
}

/// The stored results of a run, which are read by their hash.
pub trait StoredResults {
    /// Opens the stored result with this hash.
    ///
    /// # Errors
    /// Returns an error if the text is not a hash, or if the result is not there or cannot be opened.
    fn open(&self, hash: &str) -> Result<Checked, StoreError>;
}

/// A folder of results, each a file with its hash for a name.
impl StoredResults for Path {
    fn open(&self, hash: &str) -> Result<Checked, StoreError> {
        if !is_hash(hash) {
            let reason = format!("{hash:?} is not a hash");
            return Err(StoreError { path: self.to_owned(), reason });
        }
        let path = self.join(hash);
        match disk::open(&path) {
            Ok(file) => {
                let length = file.metadata().map_or(0, |metadata| metadata.len());
                Ok(Checked::new(path, length, Box::new(file)))
            }
            Err(error) => Err(unreadable(path, &error)),
        }
    }
}

impl StoredResults for PathBuf {
    fn open(&self, hash: &str) -> Result<Checked, StoreError> {
        self.as_path().open(hash)
    }
}

impl<R: StoredResults + ?Sized> StoredResults for Arc<R> {
    fn open(&self, hash: &str) -> Result<Checked, StoreError> {
        (**self).open(hash)
    }
}

/// Checks that a stored result is what was recorded. Blocks.
///
/// # Errors
/// Returns an error if the result is not there, cannot be read, or is not what was stored.
pub fn check<R: StoredResults + ?Sized>(results: &R, hash: &str) -> Result<(), StoreError> {
    results.open(hash)?.finish()
}

/// Returns the content of a stored result. Blocks.
///
/// # Errors
/// Returns an error if the result is not there, cannot be read, or is not what was stored.
pub fn read<R: StoredResults + ?Sized>(
    results: &R,
    stored: &Stored,
) -> Result<Vec<u8>, StoreError> {
    let mut result = results.open(&stored.hash)?;
    let length = result.length;
    if length > stored.bytes || length > MAX_STORED_BYTES {
        let reason =
            format!("it is damaged: it has {length} bytes, and {} were stored", stored.bytes);
        return Err(StoreError { path: result.path, reason });
    }
    let mut bytes = Vec::new();
    result
        .by_ref()
        .take(MAX_STORED_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| result.refused(&error))?;
    result.finish()?;
    Ok(bytes)
}

/// Returns the whole text of an output. Blocks.
///
/// # Errors
/// Returns an error if the output is stored, and the stored result is missing or damaged.
pub fn whole_text<R: StoredResults + ?Sized>(
    results: &R,
    output: &Output,
) -> Result<String, StoreError> {
    let Some(stored) = &output.stored else { return Ok(output.text.clone()) };
    let bytes = read(results, stored)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into()))
}

/// Returns a program with its stored texts read back; `None` if it has none. Blocks.
///
/// # Errors
/// Returns an error if a stored text is missing or damaged.
pub fn whole_program<R: StoredResults + ?Sized>(
    results: &R,
    program: &Program,
) -> Result<Option<Program>, StoreError> {
    if program.texts().all(|text| text.stored().is_none()) {
        return Ok(None);
    }
    let mut program = program.clone();
    for text in program.texts_mut() {
        if let Text::Stored(output) = text {
            *text = Text::Whole(whole_text(results, output)?);
        }
    }
    Ok(Some(program))
}

/// A stored result that is being read. Its bytes are to be trusted only after [`Checked::finish`]
/// succeeds.
pub struct Checked {
    content: Box<dyn Read + Send>,
    length: u64,
    path: PathBuf,
    hasher: blake3::Hasher,
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

impl Checked {
    /// Checks a content of `length` bytes while it is read. The name of the file of `path` is the hash that it must
    /// have.
    #[must_use]
    pub fn new(path: PathBuf, length: u64, content: Box<dyn Read + Send>) -> Self {
        Self { content, length, path, hasher: blake3::Hasher::new() }
    }

    /// Returns where the content is, for a person.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the rest, and compares the hash of the whole with the file name.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has another content.
    pub fn finish(mut self) -> Result<(), StoreError> {
        io::copy(&mut self, &mut io::sink()).map_err(|error| self.refused(&error))?;
        let found = self.hasher.finalize().to_hex();
        if self.path.file_name().is_some_and(|name| name == found.as_str()) {
            return Ok(());
        }
        let reason = format!("it is damaged: its content has the hash {found}");
        Err(StoreError { path: self.path, reason })
    }

    /// Converts an error of a read.
    #[must_use]
    pub fn refused(&self, error: &io::Error) -> StoreError {
        unreadable(self.path.clone(), error)
    }
}

fn unreadable(path: PathBuf, error: &io::Error) -> StoreError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "it is missing".to_owned(),
        _ => error.to_string(),
    };
    StoreError { path, reason }
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
        let stored = Stored { hash, bytes: 270_000, dropped: 0 };
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
            assert!(error.to_string().contains("it is damaged"), "{error}");
            assert!(error.to_string().contains(&stored.hash), "{error}");
            // Whoever reads a part of it hears the same.
            let mut result = folder.open(&stored.hash).unwrap();
            let _ = result.read(&mut [0; 8]).unwrap();
            assert_eq!(result.finish().unwrap_err(), error);
        }
        std::fs::remove_file(&path).unwrap();
        let error = read(folder, &stored).unwrap_err();
        assert!(error.to_string().ends_with("it is missing"), "{error}");
    }

    #[test]
    fn nothing_but_a_hash_becomes_part_of_a_path() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("results");
        std::fs::create_dir(&folder).unwrap();
        let hash = blake3::hash(b"").to_hex().to_string();
        std::fs::write(root.path().join(&hash), "").unwrap();
        std::fs::write(folder.join(&hash), "").unwrap();
        check(&folder, &hash).unwrap();
        let (outside, upper) = (format!("../{hash}"), hash.to_uppercase());
        std::fs::write(folder.join(&upper), "").unwrap();
        for other in ["", "..", "/dev/zero", &outside, &upper, &hash[1..]] {
            let error = folder.open(other).unwrap_err().to_string();
            assert!(error.ends_with(&format!("{other:?} is not a hash")), "{error}");
        }
    }
}
