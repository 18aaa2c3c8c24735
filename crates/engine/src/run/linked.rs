//! Finds the links in protected folders: a hook of git that is a link runs what the link leads to.

use std::fs;
use std::path::{Path, PathBuf};

/// The most entries of protected folders that are looked at: no folder that people write has so many.
const MOST: usize = 20_000;

/// Returns the links in folders, at any depth. Follows none.
pub(super) fn links_in<'a>(folders: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut open: Vec<PathBuf> = folders.map(Path::to_owned).collect();
    let (mut links, mut left) = (Vec::new(), MOST);
    while let Some(folder) = open.pop() {
        // What is no folder, or cannot be read, has none.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if left == 0 {
                tracing::warn!(
                    "not all links in protected folders were followed: they hold more than {MOST} entries"
                );
                return links;
            }
            left -= 1;
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => links.push(entry.path()),
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(_) | Err(_) => {}
            }
        }
    }
    links
}
