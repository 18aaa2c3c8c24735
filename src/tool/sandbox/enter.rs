//! Restricts this process and makes it the command.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, path_beneath_rules,
};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Policy, filter};
use crate::tool::environment;

type Failure = Box<dyn Error>;

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

/// Devices that hold nothing and change nothing.
///
/// The terminal is not among them: a command could read what the person types.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Folders in which other programs have their sockets and temporary files. A command sees its own
/// temporary folder there.
const SHARED: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// The folder of temporary files that programs know by name.
const TEMPORARY: &str = "/tmp";

/// The least version of Landlock that keeps what is promised: from version 3 on (Linux 6.2) it also
/// stops a command from cutting files that it may not write.
const LEAST: ABI = ABI::V3;

/// The most processes and threads of the user while the command runs: a fork bomb ends, the tests
/// of a large project do not reach it.
const MOST_PROCESSES: u64 = 16_384;

/// Restricts this process and executes the command. Returns only if that fails.
pub(super) fn become_command(arguments: Vec<OsString>) -> Failure {
    let mut arguments = arguments.into_iter();
    let (Some(policy), Some(program)) = (arguments.next(), arguments.next()) else {
        return "no policy and no command".into();
    };
    let policy = policy.to_string_lossy();
    let entered = serde_json::from_str(&policy).map_err(Failure::from);
    match entered.and_then(|policy: Policy| enter(&policy)) {
        Ok(temporary) => {
            let mut command = Command::new(&program);
            command.args(arguments);
            environment::restore(&mut command);
            // Git would take settings, which can name commands, from any folder that looks like a
            // repository without a work tree.
            let git = [("COUNT", "1"), ("KEY_0", "safe.bareRepository"), ("VALUE_0", "explicit")];
            if std::env::var_os("GIT_CONFIG_COUNT").is_none() {
                command.envs(git.map(|(name, value)| (format!("GIT_CONFIG_{name}"), value)));
            }
            if let Some(folder) = temporary {
                command.envs(CACHES.map(|(variable, below)| (variable, folder.join(below))));
                command.env("TMPDIR", folder);
            }
            let error = command.exec();
            format!("`{}` could not be executed: {error}", program.to_string_lossy()).into()
        }
        Err(error) => error,
    }
}

/// Variables by which tools find the folder of their cache, which is outside the sandbox.
const CACHES: [(&str, &str); 4] = [
    ("XDG_CACHE_HOME", "cache"),
    ("GOCACHE", "cache/go-build"),
    ("npm_config_cache", "cache/npm"),
    ("PIP_CACHE_DIR", "cache/pip"),
];

/// Restricts this process, which must have one thread. Returns its temporary folder.
fn enter(policy: &Policy) -> Result<Option<PathBuf>, Failure> {
    close_inherited()?;
    rustix::thread::set_no_new_privs(true)?;
    limit()?;
    let own = if policy.namespaces { separate(policy)? } else { Vec::new() };
    drop_capabilities()?;
    let temporary = match own.iter().find(|folder| folder.as_path() == Path::new(TEMPORARY)) {
        Some(folder) => Some(folder.clone()),
        None => policy.temporary.clone(),
    };
    confine(policy, own)?;
    filter::install(policy.network, policy.namespaces)?;
    Ok(temporary)
}

/// Closes what another program left open for this one: a file that is open needs no permission.
fn close_inherited() -> Result<(), Failure> {
    let open = fs::read_dir("/proc/self/fd")?.flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.collect::<Vec<_>>() {
        if number > 2 {
            // One of them was that of the directory, which is closed already.
            let _ = nix::unistd::close(number);
        }
    }
    Ok(())
}

fn limit() -> Result<(), Failure> {
    let lower = |resource: Resource, most: u64| {
        let now = rustix::process::getrlimit(resource);
        let at_most = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        setrlimit(resource, Rlimit { current: at_most(now.current), maximum: at_most(now.maximum) })
    };
    // A core file would hold what the command had read.
    lower(Resource::Core, 0)?;
    lower(Resource::Nproc, MOST_PROCESSES)?;
    Ok(())
}

/// Moves into namespaces of mounts, of System V objects and, unless the network may be used, of an
/// empty network. Makes the protected paths read-only there, and hides the shared folders.
///
/// Returns the shared folders that are the command's own now.
fn separate(policy: &Policy) -> Result<Vec<PathBuf>, Failure> {
    let here = std::env::current_dir()?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let mut flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    if !policy.network {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    unshare(flags).map_err(|error| format!("no namespaces: {error}"))?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
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

/// Puts folders of the command's own in the place of those that it would share with other programs,
/// unless something that it was given lies there. Returns these.
fn hide_shared(policy: &Policy) -> Result<Vec<PathBuf>, Failure> {
    let Some(temporary) = &policy.temporary else { return Ok(Vec::new()) };
    let given = |shared: &Path| {
        policy.read.iter().chain(&policy.write).any(|path| path.starts_with(shared))
    };
    let mut hidden = Vec::new();
    for shared in SHARED.map(Path::new) {
        if !shared.is_dir() || shared.is_symlink() || given(shared) {
            continue;
        }
        let own = temporary.join(shared.strip_prefix("/").unwrap_or(shared));
        fs::create_dir_all(&own)?;
        keep_resolver(shared, &own)?;
        hidden.push((own, shared));
    }
    // The own folders may lie below one of the shared ones, so they are opened before any is hidden.
    let opened =
        hidden.iter().map(|(own, _)| fs::File::open(own)).collect::<Result<Vec<_>, _>>()?;
    for (own, (_, shared)) in opened.iter().zip(&hidden) {
        use std::os::fd::AsRawFd;
        rustix::mount::mount_bind(format!("/proc/self/fd/{}", own.as_raw_fd()), *shared)?;
    }
    Ok(hidden.into_iter().map(|(_, shared)| shared.to_owned()).collect())
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

fn drop_capabilities() -> Result<(), Failure> {
    for capability in CapabilitySet::all().iter() {
        // A capability that this kernel does not know is no longer in the set.
        let _unknown = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, none)?)
}

/// Leaves only the files that the policy names, and no signals to other processes.
fn confine(policy: &Policy, own: Vec<PathBuf>) -> Result<(), Failure> {
    let read = AccessFs::from_read(LEAST);
    let write = AccessFs::from_all(ABI::V5);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(write)?
        .scope(Scope::AbstractUnixSocket)?
        .scope(Scope::Signal)?;
    if !policy.network {
        // Seccomp forbids all sockets; this also holds for one that was inherited.
        rules = rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let created = rules
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(DEVICES, write))?
        .add_rules(path_beneath_rules(&policy.read, read))?
        .add_rules(path_beneath_rules(written(policy), write))?
        .add_rules(path_beneath_rules(own, write))?
        .add_rules(path_beneath_rules(&policy.write, read))?;
    created.restrict_self()?;
    Ok(())
}

/// Returns the paths that may be written. Where the protected paths could not be mounted read-only,
/// a folder that holds one is given by its other entries.
fn written(policy: &Policy) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = policy.temporary.iter().cloned().collect();
    let mut open = policy.write.clone();
    while let Some(path) = open.pop() {
        let holds_one = policy.protected.iter().any(|protected| protected.starts_with(&path));
        if policy.namespaces || !holds_one {
            found.push(path);
            continue;
        }
        if policy.protected.contains(&path) {
            continue;
        }
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        open.extend(entries.map(|entry| entry.path()));
    }
    found
}
