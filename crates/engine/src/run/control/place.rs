//! The folder of the control sockets: one for each user, outside of every workspace, in which nobody
//! else can look or write.
//!
//! A folder is opened once, checked, and used by its descriptor: what was checked is what is used.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};

use crate::trust::others::who_replaces;

/// The permissions of others than the owner.
const OF_OTHERS: u32 = 0o077;

/// A checked folder of sockets.
#[derive(Debug)]
pub(super) struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Makes or opens the folder for the sockets of this process: the first that can be used, and that
    /// does not lie below one of these paths.
    ///
    /// # Errors
    /// Returns an error that says of each folder why it cannot be used.
    pub(super) fn own(outside: &[PathBuf]) -> io::Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let mut reasons = Vec::new();
        for (parent, name) in candidates(uid) {
            let found = Self::open(&parent, &name, uid, Missing::Make);
            let problem = match found {
                Ok(folder) => match outside.iter().find(|root| folder.path.starts_with(root)) {
                    None => return Ok(folder),
                    Some(root) => format!("commands may write `{}`", root.display()),
                },
                Err(error) => error.to_string(),
            };
            reasons.push(format!("{}: {problem}", parent.join(name).display()));
        }
        Err(io::Error::other(reasons.join("; ")))
    }

    /// Returns the folders in which the process that drives a run may have its socket.
    pub(super) fn of(run: &Path) -> Vec<Self> {
        let own = rustix::process::geteuid().as_raw();
        let mut users = vec![own];
        // Root reaches the runs of others.
        let owner = std::fs::metadata(run).map(|run| run.uid());
        users.extend(owner.ok().filter(|owner| own == 0 && *owner != own));
        Self::existing(&users)
    }

    /// Returns the folders of these users that are there and can be used.
    fn existing(users: &[u32]) -> Vec<Self> {
        let of_user = |uid: &u32| {
            let uid = *uid;
            candidates(uid).into_iter().filter_map(move |(parent, name)| {
                Self::open(&parent, &name, uid, Missing::Refuse).ok()
            })
        };
        users.iter().flat_map(of_user).collect()
    }

    /// Opens a folder of a user, and checks it.
    fn open(parent: &Path, name: &str, uid: u32, missing: Missing) -> io::Result<Self> {
        // The folder above may be reached by a link: it is checked as what it is.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let above = rustix::fs::openat(CWD, parent, flags, Mode::empty())?;
        check_parent(&rustix::fs::fstat(&above)?, uid)?;
        let is_made = match missing {
            Missing::Refuse => false,
            Missing::Make => match rustix::fs::mkdirat(&above, name, Mode::RWXU) {
                Ok(()) => true,
                Err(rustix::io::Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            },
        };
        let opened = rustix::fs::openat(&above, name, flags | OFlags::NOFOLLOW, Mode::empty());
        let handle = opened.map_err(|error| match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
                io::Error::other("it is a link or no folder: remove it")
            }
            error => error.into(),
        })?;
        if is_made {
            // The umask may have taken rights of the owner away.
            rustix::fs::fchmod(&handle, Mode::RWXU)?;
        }
        check(&rustix::fs::fstat(&handle)?, uid)?;
        let path = std::fs::read_link(by_handle(&handle))?;
        Ok(Self { handle, path })
    }

    /// Returns the address of a socket: through the descriptor, so that the address is short and leads
    /// into the folder that was checked.
    pub(super) fn address(&self, socket: &str) -> PathBuf {
        by_handle(&self.handle).join(socket)
    }

    /// Keeps others from a socket that was just made. The folder keeps them out already.
    pub(super) fn restrict(&self, socket: &str) -> io::Result<()> {
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::chmodat(&self.handle, socket, mode, AtFlags::empty())?)
    }

    /// Removes a socket, if it is there.
    pub(super) fn remove(&self, socket: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.handle, socket, AtFlags::empty()) {
            Err(error) if error != rustix::io::Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Returns the folders of control sockets of this user that are there: no command should see them.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    Folder::existing(&[uid]).into_iter().map(|folder| folder.path).collect()
}

/// What happens where there is no folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Make,
    Refuse,
}

/// Returns the folders in which a user's folder of sockets may lie, with its name there, in the order
/// in which they are tried.
fn candidates(uid: u32) -> Vec<(PathBuf, String)> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_login = runtime.filter(|path| path.is_absolute());
    let of_system = PathBuf::from(format!("/run/user/{uid}"));
    let mut found: Vec<_> =
        of_login.into_iter().map(|path| (path, "callsheet".to_owned())).collect();
    if found.iter().all(|(path, _)| *path != of_system) {
        found.push((of_system, "callsheet".to_owned()));
    }
    found.push((PathBuf::from("/tmp"), format!("callsheet-{uid}")));
    found
}

fn by_handle(handle: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// Checks that no other user can replace a folder in this one.
fn check_parent(stat: &Stat, uid: u32) -> io::Result<()> {
    match who_replaces(stat, uid, None) {
        Some(_) => Err(io::Error::other("another user may write the folder above it")),
        None => Ok(()),
    }
}

/// Checks that a folder is of this user alone.
fn check(stat: &Stat, uid: u32) -> io::Result<()> {
    if stat.st_uid != uid {
        let owner = stat.st_uid;
        return Err(io::Error::other(format!("it belongs to the user with the id {owner}")));
    }
    if stat.st_mode & OF_OTHERS != 0 {
        let mode = stat.st_mode & 0o777;
        return Err(io::Error::other(format!("others may use it (mode {mode:o}): `chmod 700` it")));
    }
    Ok(())
}

/// Returns the name of a run's socket: the name of the run directory, which is the id of the run, and
/// a hash of what the directory is, so that copies of one run do not meet.
///
/// # Errors
/// Returns an error if the directory cannot be looked at.
pub(super) fn socket_name(run: &Path) -> io::Result<String> {
    let found = std::fs::metadata(run)?;
    let hash = blake3::hash(format!("{}:{}", found.dev(), found.ino()).as_bytes()).to_hex();
    let name = run.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // Only the name of a run may become part of an address of limited length.
    let id = uuid::Uuid::try_parse(name).unwrap_or_default().simple();
    Ok(format!("{id}-{}.sock", &hash[..12]))
}

/// Removes the socket that earlier versions had in the run directory, where commands could reach it.
pub(super) fn remove_former(run: &Path) {
    let former = run.join("control.sock");
    if former.symlink_metadata().is_ok_and(|file| file.file_type().is_socket()) {
        // What stays is of no use to anybody: nobody listens there.
        let _ = std::fs::remove_file(former);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn made(parent: &Path) -> io::Result<Folder> {
        let uid = rustix::process::geteuid().as_raw();
        Folder::open(parent, "callsheet", uid, Missing::Make)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_is_made_for_its_owner_alone_and_found_again() {
        let parent = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert!(Folder::open(parent.path(), "callsheet", uid, Missing::Refuse).is_err());
        let folder = made(parent.path()).unwrap();
        assert_eq!(folder.path, parent.path().canonicalize().unwrap().join("callsheet"));
        assert_eq!(fs::metadata(&folder.path).unwrap().mode() & 0o777, 0o700);
        assert!(Folder::open(parent.path(), "callsheet", uid, Missing::Refuse).is_ok());

        let listener = std::os::unix::net::UnixListener::bind(folder.address("a.sock")).unwrap();
        folder.restrict("a.sock").unwrap();
        let socket = folder.path.join("a.sock");
        assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
        std::os::unix::net::UnixStream::connect(folder.address("a.sock")).unwrap();
        drop(listener);
        folder.remove("a.sock").unwrap();
        folder.remove("a.sock").unwrap();
        assert!(!socket.exists());
    }

    #[test]
    fn a_folder_that_others_could_use_or_replace_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let own = parent.path().join("callsheet");
        fs::create_dir(&own).unwrap();
        for mode in [0o701, 0o710, 0o720, 0o755, 0o777] {
            set_mode(&own, mode);
            let error = made(parent.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("mode {mode:o}")), "{error}");
        }
        set_mode(&own, 0o700);
        assert!(made(parent.path()).is_ok());
        let uid = rustix::process::geteuid().as_raw() + 1;
        assert!(Folder::open(parent.path(), "callsheet", uid, Missing::Make).is_err());

        fs::remove_dir(&own).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), &own).unwrap();
        let error = made(parent.path()).unwrap_err().to_string();
        assert!(error.contains("it is a link"), "{error}");
        fs::remove_file(&own).unwrap();
        fs::write(&own, "").unwrap();
        assert!(made(parent.path()).is_err());
        fs::remove_file(&own).unwrap();

        set_mode(parent.path(), 0o777);
        let error = made(parent.path()).unwrap_err().to_string();
        assert!(error.contains("the folder above it"), "{error}");
        set_mode(parent.path(), 0o1777);
        assert!(made(parent.path()).is_ok());
    }

    #[test]
    fn no_folder_lies_where_commands_write() {
        let error = Folder::own(&[PathBuf::from("/")]).unwrap_err().to_string();
        assert!(error.contains("commands may write `/`"), "{error}");
    }

    #[test]
    fn copies_of_a_run_have_sockets_of_their_own_and_names_are_short() {
        let root = tempfile::tempdir().unwrap();
        let id = uuid::Uuid::now_v7().to_string();
        let dir = |above: &str| {
            let path = root.path().join(above).join(&id);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let names = [dir("a"), dir("b"), dir("c")].map(|dir| socket_name(&dir).unwrap());
        assert!(names.iter().all(|name| name.len() == 50), "{names:?}");
        assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
        fs::rename(root.path().join("a"), root.path().join("moved")).unwrap();
        assert_eq!(socket_name(&dir("moved")).unwrap(), names[0]);
        assert!(socket_name(&root.path().join("none")).is_err());
    }
}
