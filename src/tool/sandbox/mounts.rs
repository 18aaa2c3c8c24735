//! What a command sees of the file system: protected paths read-only, shared folders and processes
//! of its own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, MountPropagationFlags};

use super::{Failure, Namespaces, Policy};

/// Folders in which other programs have their sockets and temporary files. A command sees its own
/// temporary folder there.
const SHARED: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// The folder of temporary files that programs know by name.
pub(super) const TEMPORARY: &str = "/tmp";

/// The file system of processes.
const PROCESSES: &str = "/proc";

/// Moves into namespaces of mounts, of System V objects and, unless the network may be used, of an
/// empty network. Makes the protected paths read-only there, and hides the shared folders and the
/// processes outside.
///
/// Returns the shared folders that are the command's own now.
pub(super) fn separate(policy: &Policy) -> Result<Vec<PathBuf>, Failure> {
    let here = std::env::current_dir()?;
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    // For single hosts, whoever started this process has made the network.
    if !policy.network && policy.hosts.is_empty() {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    unshare(flags).map_err(|error| format!("no namespaces: {error}"))?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private)?;
    // A mount of its own stays writable when the one around it is not.
    for path in policy.write.iter().chain(&policy.temporary).filter(|path| path.exists()) {
        rustix::mount::mount_bind_recursive(path, path)?;
    }
    let hidden = hide_shared(policy)?;
    let mut kept = BTreeSet::new();
    for path in &policy.protected {
        if path.symlink_metadata().is_ok() {
            keep_in_place(path, policy, &mut kept)?;
            make_read_only(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    if policy.namespaces == Namespaces::Processes {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let made = rustix::mount::mount("proc", PROCESSES, "proc", flags, None);
        made.map_err(|error| format!("no `/proc` of its own: {error}"))?;
    }
    freeze(policy, &hidden)?;
    // The directory so far is below the mounts.
    std::env::set_current_dir(here)?;
    Ok(hidden)
}

/// Makes every mount read-only that holds nothing which the command may write: Landlock does not
/// keep it from changing modes, times and attributes.
fn freeze(policy: &Policy, hidden: &[PathBuf]) -> Result<(), Failure> {
    let writable = || policy.write.iter().chain(hidden).chain(&policy.temporary);
    let mounts = fs::read("/proc/self/mountinfo")?;
    let lines = mounts.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescaped);
    let frozen: BTreeSet<PathBuf> =
        points.filter(|point| !writable().any(|path| point.starts_with(path))).collect();
    for point in frozen {
        // A mount below another one cannot be reached, and some of the system refuse: they are of
        // root. The mount of the user's files must not.
        let made = set_read_only(&point);
        if point == Path::new("/") {
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

/// Makes the folders between a folder that may be written and this path places of mounts: they
/// could be renamed otherwise, and others put in their place.
fn keep_in_place(
    path: &Path,
    policy: &Policy,
    kept: &mut BTreeSet<PathBuf>,
) -> Result<(), Failure> {
    let roots = || policy.write.iter();
    for above in path.ancestors().skip(1) {
        if roots().any(|root| root == above) || !roots().any(|root| above.starts_with(root)) {
            return Ok(());
        }
        if kept.insert(above.to_owned()) {
            rustix::mount::mount_bind_recursive(above, above)?;
        }
    }
    Ok(())
}

fn make_read_only(path: &Path) -> Result<(), Failure> {
    // A link is no place for a mount: what it leads to is protected by itself if it has to be.
    if path.is_symlink() {
        return Ok(());
    }
    rustix::mount::mount_bind_recursive(path, path)?;
    set_read_only(path)
}

fn set_read_only(path: &Path) -> Result<(), Failure> {
    // A mount of another user namespace keeps its restrictions.
    let now = rustix::fs::statvfs(path)?.f_flag;
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
    Ok(rustix::mount::mount_remount(path, flags, "")?)
}

/// Puts the temporary folder of the command in the place of the folders that it would share with
/// other programs, unless something that it was given lies there. Returns these.
fn hide_shared(policy: &Policy) -> Result<Vec<PathBuf>, Failure> {
    let Some(temporary) = &policy.temporary else { return Ok(Vec::new()) };
    // The folder may lie below one of the shared ones, so it is opened before any is hidden.
    let opened = fs::File::open(temporary)?;
    let own = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let given = |shared: &Path| {
        policy.read.iter().chain(&policy.write).any(|path| path.starts_with(shared))
    };
    let is_hidden = |shared: &&Path| shared.is_dir() && !shared.is_symlink() && !given(shared);
    let hidden: Vec<_> = SHARED.into_iter().map(Path::new).filter(is_hidden).collect();
    for shared in &hidden {
        keep_resolver(shared, temporary)?;
    }
    for shared in &hidden {
        rustix::mount::mount_bind(&own, *shared)?;
    }
    Ok(hidden.into_iter().map(Path::to_owned).collect())
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
