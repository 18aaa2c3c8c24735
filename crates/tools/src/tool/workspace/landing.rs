//! Where a write lands: a folder that is open, and a name in it.
//!
//! A path is looked up once. What is judged is the place at which the kernel says that the open folder lies,
//! and what is written is written in that folder. So a command of another agent that exchanges folders and
//! links between the two wins nothing.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt};
use rustix::fs::{Mode, OFlags};

use super::{ToolError, Workspace, WorkspacePath};
use crate::disk;
use crate::tool::basis::{Basis, Before};

/// The most links that the last part of a path may lead through.
const MOST_LINKS: usize = 16;

/// The most folders that one write makes. Each is judged where it lies, which takes longer the deeper it is, while
/// other writes wait.
const MOST_FOLDERS: usize = 64;

/// An open folder, and what lies in it.
#[derive(Debug)]
pub(super) struct Landing {
    folder: Dir,
    /// What is missing on the way to the file, then its name.
    rest: Vec<OsString>,
}

impl Landing {
    /// Finds where a path leads. Every open folder on the way is judged before one is made in it.
    pub(super) fn find(
        place: &WorkspacePath<'_>,
        workspace: &Workspace,
    ) -> Result<Self, ToolError> {
        let refused = |error| place.refused("write", error);
        let mut path = place.relative.clone();
        for _ in 0..MOST_LINKS {
            let Some(name) = file_name(&path) else {
                return Err(ToolError::Failed(format!("`{}` is a directory", place.text)));
            };
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            let above = above.unwrap_or(Path::new(".")).to_owned();
            let (folder, mut rest) = deepest(&place.root.dir, &above).map_err(refused)?;
            rest.push(name);
            if rest.len() > MOST_FOLDERS + 1 {
                let reason = format!("it would make more than {MOST_FOLDERS} folders");
                return Err(ToolError::Failed(format!("`{}`: {reason}", place.text)));
            }
            let landing = Self { folder, rest };
            landing.judge(place, workspace)?;
            if let Some(target) = landing.link().map_err(refused)? {
                let real = landing.real(workspace).map_err(refused)?;
                // It may lead above the folder, but not out of the root: opening it finds that out.
                path = real.parent().unwrap_or(Path::new("")).join(target);
                continue;
            }
            return Ok(landing);
        }
        Err(refused(rustix::io::Errno::LOOP.into()))
    }

    /// Makes the folders that are missing, each in the one before. Nobody can lead the way elsewhere.
    pub(super) fn make(
        &mut self,
        place: &WorkspacePath<'_>,
        workspace: &Workspace,
    ) -> Result<(), ToolError> {
        let refused = |error| place.refused("write", error);
        while self.rest.len() > 1 {
            let name = self.rest.remove(0);
            match self.folder.create_dir(&name) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(refused(error));
                }
                _ => {}
            }
            self.folder = self.folder.open_dir(&name).map_err(refused)?;
            // Another may have been put there.
            self.judge(place, workspace)?;
        }
        Ok(())
    }

    /// Returns the target of the link that the name is; `None` if it is none, or leads to nothing.
    fn link(&self) -> io::Result<Option<PathBuf>> {
        let [name] = self.rest.as_slice() else { return Ok(None) };
        match self.folder.symlink_metadata(name) {
            Ok(found) if found.is_symlink() => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        match self.folder.metadata(name) {
            Ok(_) => self.folder.read_link(name).map(Some),
            // A link that leads nowhere is replaced by the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the file that lies there, without following a link.
    pub(super) fn open(&self, place: &WorkspacePath<'_>) -> Result<File, ToolError> {
        let refused = |error| place.refused("read", error);
        let [name] = self.rest.as_slice() else {
            return Err(refused(io::ErrorKind::NotFound.into()));
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::openat(&self.folder, name, flags | OFlags::CLOEXEC, Mode::empty());
        let file = opened.map_err(|error| refused(error.into()))?;
        let file = cap_std::fs::File::from_std(File::from(file));
        place.regular(&file.metadata().map_err(refused)?)?;
        Ok(file.into_std())
    }

    /// Returns where the file lies or will lie, relative to the root of the workspace, as the kernel knows
    /// the open folder.
    pub(super) fn real(&self, workspace: &Workspace) -> io::Result<PathBuf> {
        let real = |dir: &Dir| real_path(dir.as_fd());
        let (root, folder) = (real(&workspace.root.dir)?, real(&self.folder)?);
        // cap-std reports what leads out in the same way.
        let outside = || io::Error::new(io::ErrorKind::PermissionDenied, "it leads out");
        let below = folder.strip_prefix(root).map_err(|_| outside())?;
        Ok(self.rest.iter().fold(below.to_owned(), |path, name| path.join(name)))
    }

    /// Refuses a place that is not the one that was decided on.
    pub(super) fn agree(
        &self,
        place: &WorkspacePath<'_>,
        workspace: &Workspace,
        basis: &Basis,
    ) -> Result<(), ToolError> {
        if basis.place.is_none() {
            return Ok(());
        }
        let real = self.real(workspace).map_err(|error| place.refused("write", error))?;
        basis.agree(&place.text, &workspace.named(&workspace.root.path.join(real)))
    }

    /// Refuses to replace another content than the one that a person was shown.
    fn unchanged(&self, place: &WorkspacePath<'_>, basis: &Basis) -> Result<(), ToolError> {
        if basis.before == Before::Any {
            return Ok(());
        }
        let found = match self.open(place) {
            Ok(file) => {
                let mut hash = blake3::Hasher::new();
                let read = hash.update_reader(file);
                read.map_err(|error| place.refused("read", error))?;
                Before::Hash(hash.finalize().to_hex().to_string())
            }
            Err(ToolError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Before::Absent
            }
            // A link that leads nowhere is no file.
            Err(ToolError::Io { source, .. })
                if source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) =>
            {
                Before::Absent
            }
            Err(error) => return Err(error),
        };
        basis.before.agree(&place.text, &found)
    }

    fn judge(&self, place: &WorkspacePath<'_>, workspace: &Workspace) -> Result<(), ToolError> {
        let real = self.real(workspace).map_err(|error| place.refused("write", error))?;
        match workspace.objection(&real) {
            Some(why) => Err(ToolError::Failed(format!("`{}` {why}", place.text))),
            None => Ok(()),
        }
    }

    /// Puts a file there. Readers see the old or the new content, never a part.
    pub(super) fn replace(
        &self,
        place: &WorkspacePath<'_>,
        workspace: &Workspace,
        basis: &Basis,
        content: &[u8],
    ) -> Result<(), ToolError> {
        let refused = |error| place.refused("write", error);
        let [name] = self.rest.as_slice() else {
            return Err(refused(io::ErrorKind::NotFound.into()));
        };
        let permissions = match self.folder.symlink_metadata(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(refused(error)),
            Ok(found) if found.is_symlink() => None,
            Ok(found) => {
                place.regular(&found)?;
                // The rename below would replace a read-only file without an error.
                if found.permissions().readonly() {
                    return Err(ToolError::Failed(format!("`{}` is read-only", place.text)));
                }
                Some(found.permissions())
            }
        };
        let temporary = format!(".{}.tmp", uuid::Uuid::now_v7().simple());
        let written = fill(&self.folder, &temporary, permissions, content);
        // The folder may have been moved meanwhile, and the file may have been written.
        let judged = written.map_err(refused).and_then(|()| self.judge(place, workspace));
        let agreed = judged.and_then(|()| self.agree(place, workspace, basis));
        let done = agreed
            .and_then(|()| self.unchanged(place, basis))
            .and_then(|()| self.folder.rename(&temporary, &self.folder, name).map_err(refused));
        if done.is_err() {
            // The first error is the one to return; the temporary file may not even exist.
            let _gone = self.folder.remove_file(&temporary);
        }
        done?;
        self.folder.open(".").and_then(|folder| disk::sync(&folder)).map_err(refused)
    }
}

/// Opens the deepest folder on a path that exists. Returns it with what is missing.
fn deepest(root: &Dir, path: &Path) -> io::Result<(Dir, Vec<OsString>)> {
    let (mut existing, mut missing) = (path, Vec::new());
    loop {
        match (root.open_dir(existing), existing.components().next_back(), existing.parent()) {
            (Ok(folder), _, _) => {
                missing.reverse();
                return Ok((folder, missing));
            }
            (Err(error), Some(Component::Normal(name)), Some(above))
                if error.kind() == io::ErrorKind::NotFound =>
            {
                missing.push(name.to_owned());
                existing = match above.as_os_str().is_empty() {
                    true => Path::new("."),
                    false => above,
                };
            }
            (Err(error), _, _) => return Err(error),
        }
    }
}

/// Returns the last part of a path, if it is a name.
fn file_name(path: &Path) -> Option<OsString> {
    match path.components().next_back() {
        Some(Component::Normal(name)) => Some(name.to_owned()),
        _ => None,
    }
}

/// Returns the path at which the kernel knows an open folder or file.
#[cfg(target_os = "linux")]
fn real_path(open: BorrowedFd<'_>) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()))
}

/// Returns the path at which the kernel knows an open folder or file.
#[cfg(not(target_os = "linux"))]
fn real_path(open: BorrowedFd<'_>) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let path = rustix::fs::getpath(open)?;
    Ok(OsString::from_vec(path.into_bytes()).into())
}

/// Returns where an open file lies, relative to this folder. A file that was replaced after it was opened
/// lies where it lay.
pub(super) fn below(root: &Dir, file: &File) -> io::Result<PathBuf> {
    let (root, path) = (real_path(root.as_fd())?, real_path(file.as_fd())?);
    let outside = || io::Error::new(io::ErrorKind::PermissionDenied, "it leads out");
    let below = path.strip_prefix(root).map_err(|_| outside())?;
    let name = below.file_name().unwrap_or_default().as_encoded_bytes();
    match name.strip_suffix(b" (deleted)") {
        Some(name) if file.metadata()?.nlink() == 0 => {
            Ok(below.with_file_name(OsStr::from_bytes(name)))
        }
        _ => Ok(below.to_owned()),
    }
}

/// The bits of a mode that say who may read, write and run a file. Those that give a program the rights of
/// its owner were given to other content.
const ACCESS_BITS: u32 = 0o777;

/// Makes a new file with the permissions of the file that it will replace.
fn fill(
    dir: &Dir,
    name: impl AsRef<OsStr>,
    permissions: Option<Permissions>,
    content: &[u8],
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if permissions.is_some() {
        // Nobody else opens it before it has the bits of the file that it replaces.
        options.mode(0o600);
    }
    let mut file = dir.open_with(name.as_ref(), &options)?;
    disk::write_all(&mut file, content)?;
    if let Some(permissions) = permissions {
        file.set_permissions(Permissions::from_mode(permissions.mode() & ACCESS_BITS))?;
    }
    disk::sync(file)
}

impl Workspace {
    /// Returns the absolute path, without links, of the file that a write to this path would make or replace.
    ///
    /// # Errors
    /// Returns an error if no write can land there.
    pub fn lands(&self, text: &str) -> Result<String, ToolError> {
        let place = self.place(text)?;
        let real =
            self.landing(&place)?.real(self).map_err(|error| place.refused("write", error))?;
        Ok(self.root.path.join(real).display().to_string())
    }
}
