//! What the folders of a workspace held when they were last read, so that a later walk reads only those
//! in which something was made, removed or renamed. A walk of a large workspace then asks for the times
//! of its folders and reads none of them. Blocks.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time that a folder must have been at rest to be known by its times. The kernel's clock of files
/// goes in steps of up to 10 ms (`CONFIG_HZ=100`), some network file systems' in steps of two seconds: a
/// change within the step in which the folder was read shows in no time.
pub(super) const AT_REST: Duration = Duration::from_secs(2);

/// Folders by path, relative to the root of the workspace.
#[derive(Debug, Default)]
pub(super) struct Listings(HashMap<PathBuf, Listing>);

/// A folder as it was read.
#[derive(Debug)]
pub(super) struct Listing {
    stamp: Stamp,
    /// Folders, and the names that a walk looks for.
    pub entries: Vec<(OsString, FileType)>,
    /// Number of all entries.
    pub count: usize,
    /// True if there were more than could be read.
    pub is_cut: bool,
    /// False if the folder was changed just before it was read.
    is_at_rest: bool,
}

/// What tells a folder and its state from another. The time of the last change of its inode cannot be
/// set by a program, unlike that of its last modification.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed_ns: i128,
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        let changed_ns = i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec());
        Self { device: meta.dev(), inode: meta.ino(), changed_ns }
    }

    /// Returns true if the last change is long enough ago. A time to come proves nothing.
    fn is_at_rest(self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let age = i128::try_from(now).unwrap_or(0) - self.changed_ns;
        age > i128::try_from(AT_REST.as_nanos()).unwrap_or(i128::MAX)
    }
}

impl Listings {
    /// Takes out what a folder holds, if nothing was made, removed or renamed in it since it was read;
    /// else reads it, at most `most` entries, and keeps folders and those that `is_sought` names.
    ///
    /// # Errors
    /// Returns an error if it is no folder or cannot be read.
    pub(super) fn take(
        &mut self,
        root: &Path,
        folder: &Path,
        most: usize,
        is_sought: impl Fn(&OsStr) -> bool,
    ) -> io::Result<Listing> {
        let absolute = root.join(folder);
        let meta = absolute.symlink_metadata()?;
        // The root may be a link: the person chose it.
        let meta = if folder.as_os_str().is_empty() { fs::metadata(&absolute)? } else { meta };
        let stamp = Stamp::of(&meta);
        let known = self.0.remove(folder);
        if let Some(known) = known.filter(|known| known.is_at_rest && known.stamp == stamp) {
            return Ok(known);
        }
        let is_at_rest = stamp.is_at_rest();
        let (mut entries, mut count, mut is_cut) = (Vec::new(), 0, false);
        for entry in fs::read_dir(&absolute)?.flatten() {
            if count >= most {
                is_cut = true;
                break;
            }
            count += 1;
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            if kind.is_dir() || is_sought(&name) {
                entries.push((name, kind));
            }
        }
        Ok(Listing { stamp, entries, count, is_cut, is_at_rest: is_at_rest && !is_cut })
    }

    /// Keeps what a folder holds for the next walk.
    pub(super) fn keep(&mut self, folder: PathBuf, listing: Listing) {
        self.0.insert(folder, listing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(listings: &mut Listings, root: &Path) -> Vec<String> {
        let listing = listings.take(root, Path::new(""), 100, |name| name == "Makefile").unwrap();
        let mut names: Vec<_> =
            listing.entries.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        names.sort();
        listings.keep(PathBuf::new(), listing);
        names
    }

    /// Makes what is known of the folder look as if it had been read long after its last change.
    fn rest(listings: &mut Listings) {
        for listing in listings.0.values_mut() {
            listing.is_at_rest = true;
        }
    }

    #[test]
    fn a_change_of_a_folder_is_seen_and_a_folder_at_rest_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let mut listings = Listings::default();
        fs::write(root.join("other"), "").unwrap();
        assert!(names(&mut listings, root).is_empty());
        rest(&mut listings);
        // A name that is not really there shows that the folder is not read.
        let kind = fs::metadata(root.join("other")).unwrap().file_type();
        listings.0.get_mut(Path::new("")).unwrap().entries.push(("Makefile".into(), kind));
        assert_eq!(names(&mut listings, root), ["Makefile"]);
        fs::create_dir(root.join("inner")).unwrap();
        assert_eq!(names(&mut listings, root), ["inner"]);
        rest(&mut listings);
        // A removal, a renaming, and a time that is set back are changes too.
        fs::rename(root.join("inner"), root.join("renamed")).unwrap();
        let opened = fs::File::open(root).unwrap();
        opened.set_modified(UNIX_EPOCH).unwrap();
        assert_eq!(names(&mut listings, root), ["renamed"]);
        rest(&mut listings);
        fs::remove_dir(root.join("renamed")).unwrap();
        assert!(names(&mut listings, root).is_empty());
    }

    #[test]
    fn a_folder_that_was_just_changed_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut listings = Listings::default();
        names(&mut listings, folder.path());
        let known = listings.0.get(Path::new("")).unwrap();
        assert!(!known.is_at_rest);
    }

    #[test]
    fn what_is_cut_is_not_kept_for_the_next_walk() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..5 {
            fs::write(folder.path().join(name.to_string()), "").unwrap();
        }
        let listing = Listings::default().take(folder.path(), Path::new(""), 3, |_| true).unwrap();
        assert_eq!((listing.count, listing.is_cut, listing.is_at_rest), (3, true, false));
    }
}
