//! The temporary folders of commands and the canaries of probes, and what killed processes left of both.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use tempfile::NamedTempFile;

use super::Policy;
use super::place::Place;

/// Beginning of the names of the temporary folders of commands: one that nobody gives to a folder of
/// another purpose, since those that are not locked are removed.
const TEMPORARY: &str = ".callsheet-command-";

/// Age from which on a folder that is in use is locked: a younger one may have been made just now.
const SETTLED: Duration = Duration::from_secs(60);

/// The temporary folder of a command. It is removed when this is dropped, or by a later run if this
/// process is killed.
#[derive(Debug)]
pub(in crate::tool) struct Temporary {
    path: PathBuf,
    place: Place,
    /// The folder, locked until this process ends.
    _lock: File,
}

impl Temporary {
    /// Makes a folder.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub(in crate::tool) fn new(policy: &Policy) -> io::Result<Self> {
        let root = policy.temporary_root.as_ref().map_or(Path::new("/tmp"), Place::path);
        let mut folder = tempfile::Builder::new();
        // No other user reads what a command puts there.
        let folder = folder.prefix(TEMPORARY).permissions(Permissions::from_mode(0o700));
        let folder = folder.tempdir_in(root)?;
        let lock = File::open(folder.path())?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let place = super::place::resolve(folder.path(), &[])?.place;
        Ok(Self { path: folder.keep(), place, _lock: lock })
    }

    /// Returns the place of the folder.
    pub(in crate::tool) fn place(&self) -> &Place {
        &self.place
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A later run removes what stays.
        let _stays = super::removal::remove(&self.path);
    }
}

/// Beginning of the names of canaries, and of what a probe makes beside them.
const CANARY: &str = ".callsheet-probe-";

/// A file outside of the sandbox that a probe tries to read. It is removed when this is dropped, or by a
/// later run if this process is killed.
#[derive(Debug)]
pub(super) struct Canary(NamedTempFile);

impl Canary {
    /// Makes a canary in a folder, locked until this process ends.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let mut file = tempfile::Builder::new().prefix(CANARY).tempfile_in(folder)?;
        file.write_all(b"a canary")?;
        // Some network disks have no locks, and a probe ends before its canary counts as left.
        let _unlocked = rustix::fs::flock(file.as_file(), FlockOperation::NonBlockingLockExclusive);
        Ok(Self(file))
    }

    /// Returns the path of the canary.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Returns the folders of the user in which a canary can lie: homes and folders of temporary files.
pub(super) fn folders(policy: &Policy) -> BTreeSet<PathBuf> {
    let homes = policy.homes.iter().map(|home| home.path().to_owned());
    let temporary = policy.temporary_root.iter().map(|folder| folder.path().to_owned());
    let found = homes.chain([PathBuf::from("/var/tmp")]).chain(temporary);
    found.filter_map(|folder| folder.canonicalize().ok()).collect()
}

/// Removes the temporary folders and the canaries of processes that were killed: those of this user that
/// are not locked.
pub(super) fn remove_left(policy: &Policy) {
    for folder in folders(policy) {
        remove_left_in(&folder, CANARY);
    }
    if let Some(root) = &policy.temporary_root {
        remove_left_in(root.path(), TEMPORARY);
    }
}

fn remove_left_in(folder: &Path, prefix: &str) {
    let own = |found: &Metadata| found.uid() == rustix::process::getuid().as_raw();
    let is_kind = |found: &Metadata| match prefix {
        CANARY => found.is_file(),
        _ => found.is_dir(),
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let fits = |found: &Metadata| is_kind(found) && own(found);
        let is_named = OsStr::as_bytes(&name).starts_with(prefix.as_bytes());
        if !is_named || !path.symlink_metadata().is_ok_and(|found| fits(&found)) {
            continue;
        }
        // Another one may stand there by now: no link is followed, and no pipe is waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, &path, flags, Mode::empty());
        let Ok(left) = opened.map(File::from) else { continue };
        let Ok(found) = left.metadata() else { continue };
        let age = found.modified().map(|made| made.elapsed());
        if !fits(&found) || !age.is_ok_and(|age| age.is_ok_and(|age| age > SETTLED)) {
            continue;
        }
        if rustix::fs::flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // What cannot be removed stays.
            let _stays = match found.is_dir() {
                true => super::removal::remove(&path),
                false => fs::remove_file(&path),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn old_canaries_that_nobody_holds_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let old = SystemTime::now() - SETTLED * 2;
        let set_old = |path: &Path| File::open(path).unwrap().set_modified(old).unwrap();
        for name in [".callsheet-probe-old", ".callsheet-probe-old.made", ".callsheet-other", "x"] {
            fs::write(at(name), "").unwrap();
            set_old(&at(name));
        }
        fs::write(at(".callsheet-probe-new"), "").unwrap();
        fs::create_dir(at(".callsheet-probe-folder")).unwrap();
        fs::create_dir(at(".callsheet-command-old")).unwrap();
        fs::write(at(".callsheet-command-old/file"), "").unwrap();
        for name in [".callsheet-probe-folder", ".callsheet-command-old"] {
            set_old(&at(name));
        }
        let kept = outside.path().join("kept");
        fs::write(&kept, "").unwrap();
        set_old(&kept);
        symlink(&kept, at(".callsheet-probe-link")).unwrap();
        symlink(outside.path(), at(".callsheet-command-link")).unwrap();
        let held = Canary::new(folder.path()).unwrap();
        set_old(held.path());
        let policy = Policy {
            temporary_root: Some(folder.path().canonicalize().unwrap().into()),
            ..Policy::default()
        };
        remove_left(&policy);
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let held = held.path().file_name().unwrap().to_str().unwrap();
        let mut wanted = vec![
            held,
            ".callsheet-command-link",
            ".callsheet-other",
            ".callsheet-probe-folder",
            ".callsheet-probe-link",
            ".callsheet-probe-new",
            "x",
        ];
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        assert!(kept.exists());
    }
}
