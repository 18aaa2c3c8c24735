//! What a command sees of the file system: protected paths read-only, shared folders and processes
//! of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{FileType, StatVfsMountFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

use super::place::{self, Place};
use super::untried::{about, no_namespaces};
use super::{Failure, Namespaces, Policy};

/// Folders in which other programs have their sockets and temporary files. A command sees its own
/// temporary folder there.
const SHARED: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// The folder of temporary files that programs know by name.
const TEMPORARY: &str = "/tmp";

/// The file system of processes.
const PROCESSES: &str = "/proc";

/// Links of the system in these folders that lead to programs, on NixOS.
const LINKS: [&str; 1] = ["/run/current-system"];

/// A mount that was made here, with the path at which it is.
struct Own {
    path: PathBuf,
    tree: OwnedFd,
}

/// What the kernel means when it has no space for a mount.
const MOUNTS: &str = ": more protected files, in deeper folders, than the kernel mounts (`sysctl fs.mount-max`); remove \
    some of them";

/// The folder of terminals, and the device that makes one.
const TERMINALS: &str = "/dev/pts";
const TERMINAL_MAKER: &str = "/dev/ptmx";

/// Moves into namespaces of mounts, of System V objects and, unless the network may be used, of an
/// empty network. Makes the protected paths read-only there, and hides the shared folders and the
/// processes outside.
///
/// Every place is opened once in the new namespace, without links, and is used by that handle. Returns
/// the folders and devices that are the command's own now.
pub(super) fn separate(policy: &Policy) -> Result<Vec<PathBuf>, Failure> {
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    // For single hosts, whoever started this process has made the network.
    if !policy.network && policy.hosts.is_empty() {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    unshare(flags).map_err(no_namespaces)?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private)?;
    // A mount of its own stays writable when the one around it is not.
    let mut writable = Vec::new();
    for place in policy.write.iter().chain(&policy.temporary) {
        let tree = bind(&place.open()?)
            .map_err(|error| about(place.path().display().to_string(), error))?;
        writable.push(Own { path: place.path().to_owned(), tree });
    }
    let Hidden { folders: hidden, given } = hide_shared(policy, &mut writable)?;
    protect(policy, &writable)?;
    if policy.namespaces == Namespaces::Processes {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let made = rustix::mount::mount("proc", PROCESSES, "proc", flags, None);
        made.map_err(|error| about("no `/proc` of its own", error))?;
    }
    freeze(policy, &hidden, &given)?;
    // Where the kernel makes none, a command has no terminal.
    let terminals = own_terminals().unwrap_or_default();
    Ok(hidden.into_iter().chain(terminals).collect())
}

/// Makes terminals of the command's own, as programs ask for that run others in one. It has none of those
/// outside: it could read what people type.
fn own_terminals() -> io::Result<Vec<PathBuf>> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=0620";
    rustix::mount::mount("devpts", TERMINALS, "devpts", flags, options)?;
    let mut own = vec![PathBuf::from(TERMINALS)];
    // A link leads to the maker in the folder.
    if !Path::new(TERMINAL_MAKER).is_symlink() {
        let maker = Place::from(Path::new(TERMINALS).join("ptmx")).open()?;
        mount_on(&Place::from(TERMINAL_MAKER).open()?, &cloned(&maker)?)?;
        own.push(TERMINAL_MAKER.into());
    }
    Ok(own)
}

/// Makes every mount read-only that holds nothing which the command may write: Landlock does not
/// keep it from changing modes, times and attributes.
fn freeze(policy: &Policy, hidden: &[PathBuf], given: &[PathBuf]) -> Result<(), Failure> {
    let written = policy.write.iter().chain(&policy.temporary).map(Place::path);
    let written = written.chain(hidden.iter().map(PathBuf::as_path)).map(|path| (path, true));
    let places: Vec<(&Path, bool)> =
        written.chain(given.iter().map(|path| (path.as_path(), false))).collect();
    // The innermost place decides: what is only read can lie in a folder that is written. Outside of all
    // of them there is no answer.
    let is_written = |point: &Path| {
        let around = places.iter().filter(|(path, _)| point.starts_with(path));
        around.max_by_key(|(path, _)| path.as_os_str().len()).map(|(_, written)| *written)
    };
    let mounts = fs::read("/proc/self/mountinfo")?;
    let lines = mounts.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescaped);
    let frozen: BTreeSet<PathBuf> =
        points.filter(|point| is_written(point) != Some(true)).collect();
    for point in frozen {
        // A mount below another one cannot be reached, and some of the system refuse: they are of
        // root. The mount of the user's files must not, nor what the command was given.
        let opened = Place::from(point.as_path()).open();
        let is_reached = opened.is_ok();
        let made = opened.map_err(Failure::from).and_then(|handle| set_read_only(&handle));
        if point == Path::new("/") || (is_written(&point).is_some() && is_reached) {
            made?;
        }
    }
    Ok(())
}

/// Reads a path of `mountinfo`, in which blanks and backslashes are octal numbers.
fn unescaped(mut rest: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, number) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// Makes the object a mount of its own, at its place, with the mounts below it. Returns the mount.
fn bind(object: &OwnedFd) -> io::Result<OwnedFd> {
    mount_on(object, &cloned(object)?)
}

/// Returns a mount of the object that is nowhere yet.
fn cloned(object: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    Ok(rustix::mount::open_tree(object, "", flags)?)
}

/// Puts a mount at the place of an object.
fn mount_on(object: &OwnedFd, tree: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", object, "", flags)?;
    tree.try_clone()
}

/// Makes the protected paths read-only that lie in what may be written, and keeps the pinned ones at their
/// place. Then looks at each of them from the root, as the command will: no mount may hide another one.
fn protect(policy: &Policy, writable: &[Own]) -> Result<(), Failure> {
    let mut kept: HashMap<PathBuf, OwnedFd> = HashMap::new();
    let mut done: BTreeSet<&Path> = BTreeSet::new();
    let mut closed: Vec<PathBuf> = Vec::new();
    let pinned = policy.pinned.iter().map(|place| (place.path(), false));
    let protected = policy.protected.iter().map(|place| (place.path(), true));
    for (path, is_protected) in pinned.chain(protected).collect::<BTreeMap<_, _>>() {
        let named = |error: Failure| {
            let system = error.downcast_ref::<io::Error>();
            // That so many cannot be mounted says something about them, and not that the disk is full.
            match system.is_some_and(|error| error.kind() == io::ErrorKind::StorageFull) {
                true => Failure::from(format!("{}: {error}{MOUNTS}", path.display())),
                false => about(path.display().to_string(), error),
            }
        };
        // The innermost of the folders that may be written: its mount is the one that is seen.
        let around = writable.iter().filter(|own| path != own.path && path.starts_with(&own.path));
        let Some(root) = around.max_by_key(|own| own.path.as_os_str().len()) else { continue };
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(named("a protected path has `..`".into()));
        }
        if path.ancestors().skip(1).any(|above| done.contains(above)) {
            continue;
        }
        // The paths are sorted: no later one lies in a folder that was left. Open files are few.
        kept.retain(|folder, _| path.starts_with(folder));
        match hold(path, is_protected, root, &mut kept).map_err(named)? {
            Hold::Nothing => {}
            Hold::Place => drop(is_protected && done.insert(path)),
            Hold::Closed(at) => {
                done.insert(path);
                closed.push(at);
            }
        }
    }
    for path in closed {
        let seen = place::without_links(&path);
        let flags = seen.and_then(|seen| Ok(rustix::fs::fstatvfs(seen)?.f_flag));
        if !flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::RDONLY)) {
            return Err(format!("{} could not be made read-only", path.display()).into());
        }
    }
    Ok(())
}

/// How a path is kept.
enum Hold {
    /// Nothing is there.
    Nothing,
    /// It stays at its place.
    Place,
    /// This path, or the folder around it that nobody may enter, is read-only.
    Closed(PathBuf),
}

/// Keeps a path at its place, and makes it read-only if it is protected.
///
/// The folders on the way to it become places of mounts: they could be renamed otherwise, and others put
/// in their place. So does a link: it could be removed. What it leads to is protected by itself if it
/// has to be.
fn hold(
    path: &Path,
    is_protected: bool,
    root: &Own,
    kept: &mut HashMap<PathBuf, OwnedFd>,
) -> Result<Hold, Failure> {
    let Some((objects, is_whole)) = objects(path, root)? else { return Ok(Hold::Nothing) };
    let mut at = root.path.clone();
    let last = objects.len().saturating_sub(1);
    for (number, name) in objects.into_iter().enumerate() {
        let folder = kept.get(&at).unwrap_or(&root.tree);
        let object = match place::beneath(folder.as_fd(), &name) {
            Ok(object) => object,
            // It was there a moment ago.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Hold::Nothing),
            Err(error) => return Err(error.into()),
        };
        at.push(name);
        // The mount of a link does not keep more than that it cannot be removed.
        if number == last && is_protected && is_whole && !place::is_link(&object)? {
            set_read_only(&bind(&object)?)?;
            return Ok(Hold::Closed(at));
        }
        if !kept.contains_key(&at) {
            kept.insert(at.clone(), bind(&object)?);
        }
    }
    Ok(Hold::Place)
}

/// Returns the names on the way to a path, up to the first link, and true if they are all of it; `None`
/// if nothing is there.
fn objects(path: &Path, root: &Own) -> Result<Option<(Vec<OsString>, bool)>, Failure> {
    let names: Vec<_> = path.strip_prefix(&root.path)?.iter().map(OsStr::to_owned).collect();
    let mut at = root.tree.try_clone()?;
    for (number, name) in names.iter().enumerate() {
        at = match place::beneath(at.as_fd(), name) {
            Ok(object) => object,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            // A folder that its user may not enter is kept as it is: a command could let itself in.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && number > 0 => {
                return Ok(Some((names.into_iter().take(number).collect(), true)));
            }
            Err(error) => return Err(error.into()),
        };
        if place::is_link(&at)? {
            let way = names.iter().take(number + 1).cloned().collect();
            return Ok(Some((way, number + 1 == names.len())));
        }
    }
    Ok(Some((names, true)))
}

/// Makes a mount read-only.
fn set_read_only(mount: &OwnedFd) -> Result<(), Failure> {
    // A mount of another user namespace keeps its restrictions.
    let now = rustix::fs::fstatvfs(mount)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let kept = kept.into_iter().filter(|(flag, _)| now.contains(*flag)).map(|(_, flag)| flag);
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, flag| all | flag);
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    Ok(rustix::mount::mount_remount(path, flags, "")?)
}

/// What was put in the place of the shared folders.
#[derive(Default)]
struct Hidden {
    /// The shared folders that show the temporary folder of the command.
    folders: Vec<PathBuf>,
    /// The places in them that the command may only read.
    given: Vec<PathBuf>,
}

/// A place in a shared folder that a command was given.
struct Given {
    path: PathBuf,
    /// The object, mounted nowhere yet.
    tree: OwnedFd,
    is_folder: bool,
    /// Its number among the places that may be written; `None` if it may only be read.
    written: Option<usize>,
}

/// Puts the temporary folder of the command in the place of the folders that it would share with
/// other programs, and what it was given there back at its place. A folder that it was given whole is
/// shared.
fn hide_shared(policy: &Policy, writable: &mut [Own]) -> Result<Hidden, Failure> {
    let Some(temporary) = &policy.temporary else { return Ok(Hidden::default()) };
    let own = writable.iter().find(|own| own.path == temporary.path());
    let Some(own) = own else { return Ok(Hidden::default()) };
    let tree = own.tree.try_clone()?;
    let is_whole =
        |shared: &Path| policy.read.iter().chain(&policy.write).any(|place| place.path() == shared);
    let is_hidden = |shared: &&Path| shared.is_dir() && !shared.is_symlink() && !is_whole(shared);
    let folders: Vec<_> = SHARED.into_iter().map(Path::new).filter(is_hidden).collect();
    let mut all = Vec::new();
    for shared in &folders {
        all.append(&mut given_in(shared, policy, writable)?);
        keep_resolver(shared, temporary.path())?;
        keep_links(shared, temporary.path())?;
    }
    for shared in &folders {
        mount_on(&Place::from(*shared).open()?, &cloned(&tree)?)?;
    }
    // One may lie in another.
    all.sort_by_key(|given| given.path.as_os_str().len());
    let mut hidden = Hidden::default();
    for given in all {
        let named = |error: io::Error| about(given.path.display().to_string(), error);
        let mount = put_back(&given).map_err(named)?;
        match given.written.and_then(|number| writable.get_mut(number)) {
            Some(own) => own.tree = mount,
            None => {
                set_read_only(&mount)?;
                hidden.given.push(given.path);
            }
        }
    }
    hidden.folders = folders.into_iter().map(Path::to_owned).collect();
    Ok(hidden)
}

/// Returns the places in a shared folder that a command was given.
fn given_in(shared: &Path, policy: &Policy, writable: &[Own]) -> Result<Vec<Given>, Failure> {
    let temporary = policy.temporary.as_ref().map(Place::path);
    let mut all = Vec::new();
    for (number, own) in writable.iter().enumerate() {
        if own.path.starts_with(shared) && Some(own.path.as_path()) != temporary {
            all.push(Given {
                path: own.path.clone(),
                tree: cloned(&own.tree)?,
                is_folder: place::kind(&own.tree)? == FileType::Directory,
                written: Some(number),
            });
        }
    }
    for place in policy.read.iter().filter(|place| place.path().starts_with(shared)) {
        // What was moved away is given no more.
        let Ok(handle) = place.open() else { continue };
        all.push(Given {
            path: place.path().to_owned(),
            tree: cloned(&handle)?,
            is_folder: place::kind(&handle)? == FileType::Directory,
            written: None,
        });
    }
    Ok(all)
}

/// Mounts what a command was given at its place in a folder that is hidden.
fn put_back(given: &Given) -> io::Result<OwnedFd> {
    let place = Place::from(given.path.as_path());
    let at = match place.open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = given.path.parent().filter(|_| !given.is_folder);
            fs::create_dir_all(folder.unwrap_or(&given.path))?;
            if !given.is_folder {
                fs::File::create_new(&given.path)?;
            }
            place.open()?
        }
        opened => opened?,
    };
    mount_on(&at, &given.tree)
}

/// Returns where a command sees its temporary folder: that of a shared folder that is hidden shows it.
pub(super) fn temporary_among(own: &[PathBuf], temporary: &Path) -> PathBuf {
    let by_name = own.iter().find(|folder| folder.as_path() == Path::new(TEMPORARY));
    let around = || own.iter().find(|folder| temporary.starts_with(folder));
    by_name.or_else(around).map_or(temporary, PathBuf::as_path).to_owned()
}

/// Copies the settings of the name resolver if they lie in a folder that is about to be hidden.
fn keep_resolver(shared: &Path, own: &Path) -> Result<(), Failure> {
    let Ok(real) = Path::new("/etc/resolv.conf").canonicalize() else { return Ok(()) };
    let Ok(below) = real.strip_prefix(shared) else { return Ok(()) };
    let copy = own.join(below);
    fs::create_dir_all(copy.parent().unwrap_or(own))?;
    fs::copy(&real, &copy)?;
    Ok(())
}

/// Makes the links to programs of the system that lie in a folder that is about to be hidden.
fn keep_links(shared: &Path, own: &Path) -> Result<(), Failure> {
    for link in LINKS.map(Path::new) {
        let (Ok(below), Ok(to)) = (link.strip_prefix(shared), fs::read_link(link)) else {
            continue;
        };
        std::os::unix::fs::symlink(to, own.join(below))?;
    }
    Ok(())
}
