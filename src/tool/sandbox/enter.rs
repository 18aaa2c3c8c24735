//! Restricts this process and makes it the command.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::mounts::{self, TEMPORARY};
use super::{Failure, Input, LEFT, Namespaces, Policy, filter, init};
use crate::spec::sandbox::CommandLimits;
use crate::tool::environment;

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

/// The least version of Landlock that keeps what is promised: from version 3 on (Linux 6.2) it also
/// stops a command from cutting files that it may not write.
const LEAST: ABI = ABI::V3;

/// Time in seconds between the signal that a command has used its processor time, which it can handle,
/// and its end.
const TO_END: u64 = 5;

/// How much sooner than others the kernel ends a command when memory runs out: as if it used so many
/// thousandths of all memory more. Otherwise it may end callsheet, or an editor with unsaved work.
const END_SOONER: &str = "500";

/// Tells that the first process of a process namespace holds signals back for the command.
const READY: u8 = 1;

/// Restricts this process and executes the command. Returns only if that fails.
pub(super) fn become_command(arguments: Vec<OsString>) -> Failure {
    let [policy, input, program, arguments @ ..] = arguments.as_slice() else {
        return "no policy and no command".into();
    };
    let policy = policy.to_string_lossy();
    let entered = serde_json::from_str(&policy).map_err(Failure::from);
    let entered = entered.and_then(|policy: Policy| {
        if policy.namespaces == Namespaces::Processes {
            init::hold_back()?;
        }
        Ok((enter(&policy)?, policy))
    });
    match entered {
        Ok((Entered { temporary, mut left }, Policy { namespaces, write, cache, .. })) => {
            let cache = cache.filter(|folder| write.contains(folder));
            if let Some(Err(error)) = left.as_mut().map(|left| left.write_all(&[READY])) {
                return format!("it cannot be told that the sandbox is ready: {error}").into();
            }
            let mut byte = [0];
            if rustix::io::read(io::stdin(), &mut byte).ok() != Some(1) {
                return "whoever started it is gone".into();
            }
            let mut command = Command::new(program);
            command.args(arguments);
            if *input != *Input::Pipe.argument() {
                command.stdin(Stdio::null());
            }
            environment::restore(&mut command);
            // Git would take settings, which can name commands, from any folder that looks like a
            // repository without a work tree.
            let git = [("COUNT", "1"), ("KEY_0", "safe.bareRepository"), ("VALUE_0", "explicit")];
            if std::env::var_os("GIT_CONFIG_COUNT").is_none() {
                command.envs(git.map(|(name, value)| (format!("GIT_CONFIG_{name}"), value)));
            }
            if let Some(folder) = temporary {
                let cache = cache.unwrap_or_else(|| folder.join("cache"));
                command.envs(CACHES.map(|(variable, below)| (variable, cache.join(below))));
                command.env("TMPDIR", folder);
            }
            let error = match namespaces {
                Namespaces::Processes => init::run(&mut command, left),
                Namespaces::None | Namespaces::Mounts => command.exec(),
            };
            format!("`{}` could not be executed: {error}", program.to_string_lossy()).into()
        }
        Err(error) => error,
    }
}

/// Variables by which tools find the folder of their cache, which is outside the sandbox.
const CACHES: [(&str, &str); 4] = [
    ("XDG_CACHE_HOME", ""),
    ("GOCACHE", "go-build"),
    ("npm_config_cache", "npm"),
    ("PIP_CACHE_DIR", "pip"),
];

/// What a process has of its own in the sandbox.
struct Entered {
    temporary: Option<PathBuf>,
    /// Where it tells that its command has left processes behind.
    left: Option<File>,
}

/// Restricts this process, which must have one thread.
fn enter(policy: &Policy) -> Result<Entered, Failure> {
    close_inherited()?;
    let left = policy.temporary.as_ref().map(|folder| folder.join(LEFT));
    let left = left.filter(|path| path.exists()).map(|path| {
        let opened = File::options().write(true).open(&path)?;
        // The command must not find it.
        fs::remove_file(&path)?;
        io::Result::Ok(opened)
    });
    let left = left.transpose()?;
    rustix::thread::set_no_new_privs(true)?;
    limit(&policy.limits)?;
    let own = match policy.namespaces {
        Namespaces::None => Vec::new(),
        Namespaces::Mounts | Namespaces::Processes => mounts::separate(policy)?,
    };
    drop_capabilities()?;
    let temporary = match own.iter().find(|folder| folder.as_path() == Path::new(TEMPORARY)) {
        Some(folder) => Some(folder.clone()),
        None => policy.temporary.clone(),
    };
    confine(policy, own)?;
    filter::install(policy)?;
    Ok(Entered { temporary, left })
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

/// Lowers the limits of this process, which hold for all that it starts.
fn limit(limits: &CommandLimits) -> Result<(), Failure> {
    let lower = |resource: Resource, most: u64, grace: u64| {
        let now = rustix::process::getrlimit(resource);
        let at_most = |limit: Option<u64>, most: u64| Some(limit.map_or(most, |now| now.min(most)));
        let maximum = at_most(now.maximum, most.saturating_add(grace));
        setrlimit(resource, Rlimit { current: at_most(now.current, most), maximum })
    };
    // A core file would hold what the command had read.
    lower(Resource::Core, 0, 0)?;
    lower(Resource::Nproc, limits.processes, 0)?;
    lower(Resource::Fsize, limits.file_size, 0)?;
    lower(Resource::Nofile, limits.open_files, 0)?;
    // The kernel counts whole seconds, and ends a process at the maximum without a word.
    lower(Resource::Cpu, limits.cpu_time.as_secs().max(1), TO_END)?;
    if let Some(memory) = limits.memory {
        lower(Resource::Data, memory, 0)?;
    }
    // Where it is higher already, the kernel refuses.
    let _stays = fs::write("/proc/self/oom_score_adj", END_SOONER);
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
    if !policy.network && policy.hosts.is_empty() {
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
        if policy.namespaces != Namespaces::None || !holds_one {
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
