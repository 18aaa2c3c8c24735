//! The files that a command is given by folders that are not given whole: those of the system, without the
//! homes of people, and those of a workspace whose protected paths could not be mounted read-only.
//!
//! Landlock has no rule that takes away, so a folder that holds what is kept back is given by its other
//! entries.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use super::place::{self, Place};
use super::{Failure, Namespaces, Policy};

/// Files of the system that every program needs.
const SYSTEM: [&str; 16] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/snap",
    "/proc",
    "/sys",
    "/var/lib",
    "/run/current-system",
    "/home/linuxbrew",
];

/// Takes an object that is given.
type Give<'a> = &'a mut dyn FnMut(OwnedFd) -> Result<(), Failure>;

/// Gives what a command reads of the system. A home below one of its folders is kept back, as service
/// users have them (`/var/lib/jenkins`).
pub(super) fn system(policy: &Policy, give: Give<'_>) -> Result<(), Failure> {
    let homes: Vec<&Path> = policy.homes.iter().map(Place::path).collect();
    let kept = Kept { back: homes.clone(), in_place: Vec::new() };
    for path in SYSTEM.map(Path::new) {
        // Some of them are links on some machines, and only root changes them.
        let Ok(resolved) = place::resolve(path, &[]) else { continue };
        let real = resolved.place.path().to_owned();
        if homes.iter().any(|home| real.starts_with(home)) {
            continue;
        }
        without(resolved.handle, real, &kept, give)?;
    }
    Ok(())
}

/// Gives what a command may write. Where protected paths could not be mounted read-only, a folder that
/// holds one is given by its other entries. A temporary folder in one of the folders that are the command's
/// `own` is seen there.
pub(super) fn written<'a>(
    policy: &'a Policy,
    own: &[PathBuf],
    give: Give<'_>,
) -> Result<(), Failure> {
    let of = |places: &'a [Place]| places.iter().map(Place::path).collect();
    let kept = match policy.namespaces {
        Namespaces::None => Kept { back: of(&policy.protected), in_place: of(&policy.pinned) },
        Namespaces::Mounts | Namespaces::Processes => Kept::default(),
    };
    let is_seen = |place: &&Place| !own.iter().any(|own| place.path().starts_with(own));
    for place in policy.write.iter().chain(policy.temporary.iter().filter(is_seen)) {
        // The folder of caches lies in the records, which are protected.
        let is_own = policy.cache.as_ref() == Some(place);
        let kept = if is_own { &Kept::default() } else { &kept };
        without(place.open()?, place.path().to_owned(), kept, give)?;
    }
    Ok(())
}

/// What keeps a folder from being given whole.
#[derive(Clone, Debug, Default)]
struct Kept<'a> {
    /// Paths that are not given.
    back: Vec<&'a Path>,
    /// Folders that could be exchanged if the one around them were given.
    in_place: Vec<&'a Path>,
}

impl<'a> Kept<'a> {
    /// Returns what of it lies in a folder.
    fn below(&self, folder: &Path) -> Self {
        let of = |paths: &[&'a Path]| -> Vec<&'a Path> {
            paths
                .iter()
                .copied()
                .filter(|path| path.starts_with(folder) && *path != folder)
                .collect()
        };
        Self { back: of(&self.back), in_place: of(&self.in_place) }
    }
}

/// Gives an object, or, if it is a folder that holds something which is kept, its other entries.
/// A link is not followed: what it leads to is given by itself, or is not.
fn without(object: OwnedFd, path: PathBuf, kept: &Kept<'_>, give: Give<'_>) -> Result<(), Failure> {
    if kept.back.contains(&path.as_path()) {
        return Ok(());
    }
    let kept = kept.below(&path);
    if kept.back.is_empty() && kept.in_place.is_empty() {
        return give(object);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // What cannot be listed is not given.
    let Ok(listed) = rustix::fs::openat(&object, ".", flags, Mode::empty()) else { return Ok(()) };
    for entry in rustix::fs::Dir::read_from(&listed)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        // An entry can be gone again.
        let Ok(object) = place::beneath(listed.as_fd(), name) else { continue };
        if place::kind(&object)? != FileType::Symlink {
            without(object, path.join(name), &kept, give)?;
        }
    }
    Ok(())
}
