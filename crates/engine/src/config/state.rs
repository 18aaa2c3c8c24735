//! The folder of the run directories, as a file that need not be valid names it.

use std::path::{Path, PathBuf};

use super::diagnostic::{Place, Problems};
use super::raw::{Header, Settings};
use super::shape::Section;
use super::tree::Places;
use super::{Sources, concern, files, layered, layers, named, root};

/// Returns the directory in which run directories are made. For commands that only look at runs:
/// the configuration need not be valid, and the file need not exist.
#[must_use]
pub fn state_dir(sources: &Sources) -> PathBuf {
    with_settings(sources, |raw, root| layers::state_dir(raw, root, sources))
}

/// Returns that directory if the file chose it and it lies outside the file's own folder: the records there may
/// be those of another project. It need not exist.
#[must_use]
pub fn records_outside(sources: &Sources) -> Option<PathBuf> {
    with_settings(sources, |raw, root| {
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        concern::records_outside(raw, &root, sources).map(|(_, path)| path)
    })
}

/// Returns true if a file may set the folder: by its table, which an escape may spell, or by a file that it
/// includes.
fn may_set(text: &str) -> bool {
    ["state", "include", "\\"].iter().any(|word| text.contains(word))
}

/// Reads the settings of a file that need not be valid or exist.
fn with_settings<T>(sources: &Sources, read: impl FnOnce(&Settings, &Path) -> T) -> T {
    let text = files::text_of(&sources.file).unwrap_or_default();
    // A long file that cannot set the folder is not parsed for it.
    let text = named(sources, if may_set(&text) { text } else { String::new() });
    let (mut places, ignored) = (Places::default(), Problems::default());
    let tree = places.parse(&text).unwrap_or_default();
    let header = Header::read_keys(&tree, &places);
    let (merged, _) = layered(tree, &header, sources, &mut places, &Place::start(&text), &ignored);
    read(&Settings::read_keys(&merged, &places), &root(&sources.file))
}
