//! Makes the parts of git's folders that a command could add later: only what exists can be kept as it is.
//!
//! They are empty, git takes them for what is not there, and they lie in git's own folder, so neither a
//! person nor `git status` sees them. In the workspace itself nothing is made for that purpose.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::spec::run_by_others::{GIT_FOLDER, GIT_MASKED, Named, Shape};
use crate::tool::sandbox::place::resolve;

/// Makes what is missing in the folders of git whose settings are protected. Returns what is there now.
/// What cannot be made cannot be made by a command either: it has no more rights.
pub(super) fn completed(root: &Path, protected: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(workspace) = resolve(root, &[]) else { return Vec::new() };
    let owned: Vec<_> = workspace.place.identity().into_iter().collect();
    let is_of_git = |path: &&PathBuf| {
        let below = path.strip_prefix(root).unwrap_or(Path::new(""));
        path.ends_with("config") && below.iter().any(|part| part == GIT_FOLDER)
    };
    let mut there = Vec::new();
    for settings in protected.iter().filter(is_of_git) {
        let Some(folder) = settings.parent() else { continue };
        let Ok(found) = resolve(folder, &owned) else { continue };
        if !found.is_owned || found.link.is_some() {
            continue;
        }
        for named in GIT_MASKED {
            if make(&found.handle, named).is_ok() {
                there.push(folder.join(named.path));
            }
        }
    }
    there
}

/// Makes one part, unless it is there. Follows no link.
fn make(folder: &OwnedFd, named: &Named) -> io::Result<()> {
    let path = Path::new(named.path);
    let name = path.file_name().unwrap_or_default();
    let inner = match path.parent().and_then(Path::file_name) {
        Some(inner) => {
            unless_there(rustix::fs::mkdirat(folder, inner, Mode::from_raw_mode(0o777)))?;
            &opened(folder, inner)?
        }
        None => folder,
    };
    match named.shape {
        Shape::Folder => unless_there(rustix::fs::mkdirat(inner, name, Mode::from_raw_mode(0o777))),
        Shape::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let made = rustix::fs::openat(inner, name, flags, Mode::from_raw_mode(0o666));
            unless_there(made.map(drop))
        }
    }
}

fn opened(folder: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?)
}

fn unless_there(made: rustix::io::Result<()>) -> io::Result<()> {
    match made {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
