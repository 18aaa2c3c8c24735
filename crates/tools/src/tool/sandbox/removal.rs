//! Removes a folder that a command filled, however deep: a command nests tens of thousands of folders in a second,
//! and a removal that calls itself for each would overflow the stack of every later run. Blocks.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a folder and what is in it. Follows no link. What cannot be removed stays.
///
/// Folders are moved up to the first one before they are emptied: so no path is long, no call waits in another,
/// and each folder is moved once.
///
/// # Errors
/// Returns an error if something stays.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let top = rustix::fs::open(path, FOLDER, Mode::empty())?;
    let mut moved = 0_u64;
    let mut open = take_out(top.as_fd(), &top, &mut moved)?;
    while let Some(name) = open.pop() {
        if let Ok(folder) = rustix::fs::openat(&top, &name, FOLDER, Mode::empty()) {
            open.extend(take_out(folder.as_fd(), &top, &mut moved)?);
        }
        // What stays in it keeps it, and then the first one: that is the error.
        let _stays = rustix::fs::unlinkat(&top, &name, AtFlags::REMOVEDIR);
    }
    Ok(rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)?)
}

/// Removes the files and empty folders of a folder, and moves its other folders to `top`. Returns the names that these
/// have there.
fn take_out(folder: impl AsFd, top: &OwnedFd, moved: &mut u64) -> io::Result<Vec<CString>> {
    // Without these bits nothing is listed or removed; the command may have taken them away.
    let _refused = rustix::fs::fchmod(&folder, Mode::RWXU);
    let mut names = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    let mut open = Vec::new();
    for name in names {
        match rustix::fs::unlinkat(&folder, &name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            _ => continue,
        }
        if rustix::fs::unlinkat(&folder, &name, AtFlags::REMOVEDIR).is_ok() {
            continue;
        }
        open.extend(move_up(&folder, &name, top, moved));
    }
    Ok(open)
}

/// Moves a folder to `top` under a name of its own.
fn move_up(folder: impl AsFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> Option<CString> {
    // A folder that is moved has its entry `..` written.
    if let Ok(inner) = rustix::fs::openat(&folder, name, FOLDER | OFlags::PATH, Mode::empty()) {
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&inner));
        let _refused = rustix::fs::chmod(own, Mode::RWXU);
    }
    // A name that the command has used already is passed over.
    for _ in 0..64 {
        *moved += 1;
        let new = CString::new(format!(".{moved}")).ok()?;
        match rustix::fs::renameat_with(&folder, name, top, &new, RenameFlags::NOREPLACE) {
            Ok(()) => return Some(new),
            Err(Errno::EXIST) => {}
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_is_removed_however_deep_and_closed_it_is() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let mut here = rustix::fs::open(&folder, FOLDER, Mode::empty()).unwrap();
        for _ in 0..30_000 {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, "d", FOLDER, Mode::empty()).unwrap();
        }
        for name in 0..100 {
            let wide = folder.join(format!("w{name}/x/y"));
            fs::create_dir_all(&wide).unwrap();
            fs::write(wide.join("f"), "").unwrap();
        }
        // Names that the removal itself would give.
        fs::create_dir_all(folder.join(".1/.2")).unwrap();
        symlink(outside.path(), folder.join("link")).unwrap();
        symlink(outside.path(), folder.join("w1/x/link")).unwrap();
        fs::set_permissions(folder.join("w2/x"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(folder.join("w3"), fs::Permissions::from_mode(0o500)).unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists() && outside.path().join("kept").exists());
    }

    #[test]
    fn a_link_is_no_folder_to_remove() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("kept")).unwrap();
        symlink("kept", parent.path().join("link")).unwrap();
        assert!(remove(&parent.path().join("link")).is_err());
        assert!(parent.path().join("kept").exists());
    }
}
