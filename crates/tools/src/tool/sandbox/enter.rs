//! Restricts this process and makes it the command.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::mounts;
use super::place::{self, Identity, Place};
use super::untried::about;
use super::{
    ALLOCATOR, Failure, LEFT, Namespaces, Policy, Unbuffered, Work, filter, granted, init, probe,
};
use crate::spec::sandbox::CommandLimits;
use crate::tool::environment;

/// Devices that hold nothing and change nothing.
///
/// The terminal is not among them: a command could read what the person types. It has terminals of its own.
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

/// Restricts this process and does its work. Returns only if that fails.
pub(super) fn become_command(arguments: Vec<OsString>) -> Failure {
    let [work, program, arguments @ ..] = arguments.as_slice() else {
        return "no work and no command".into();
    };
    let Some(work) = Work::from_argument(work) else { return "an unknown work".into() };
    match entered() {
        Ok((entered, policy)) => {
            let error = match begun(work, program, arguments, entered, &policy) {
                Ok(never) => match never {},
                Err(error) => error,
            };
            about(format!("`{}` could not be executed", program.to_string_lossy()), error)
        }
        Err(error) => error,
    }
}

/// Reads the policy and enters.
fn entered() -> Result<(Entered, Policy), Failure> {
    // Before anything else: the kernel would drop a signal to the first process of a namespace.
    init::hold_back()?;
    let policy = Policy::heard(Unbuffered)?;
    if policy.namespaces != Namespaces::Processes {
        init::let_through()?;
    }
    Ok((enter(&policy)?, policy))
}

/// Does the work when the process is told to begin.
fn begun(
    work: Work,
    program: &OsString,
    arguments: &[OsString],
    entered: Entered,
    policy: &Policy,
) -> Result<Infallible, Failure> {
    let Entered { temporary, mut left } = entered;
    if let Some(left) = &mut left {
        let told = left.write_all(&[READY]);
        told.map_err(|error| about("the word that the sandbox is ready cannot be sent", error))?;
    }
    let gone = |_| "whoever started it is gone";
    Unbuffered.read_exact(&mut [0]).map_err(gone)?;
    if work == Work::Probe {
        std::process::exit(probe::answer(program, temporary.as_deref()));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    if work == Work::WithoutInput {
        command.stdin(Stdio::null());
    }
    command.env_remove(ALLOCATOR.0);
    environment::restore(&mut command);
    // Git would take settings, which can name commands, from any folder that looks like a
    // repository without a work tree.
    let git = [("COUNT", "1"), ("KEY_0", "safe.bareRepository"), ("VALUE_0", "explicit")];
    if std::env::var_os("GIT_CONFIG_COUNT").is_none() {
        command.envs(git.map(|(name, value)| (format!("GIT_CONFIG_{name}"), value)));
    }
    if let Some(folder) = temporary {
        let cache = policy.cache.as_ref().filter(|folder| policy.write.contains(folder));
        let cache = cache.map_or_else(|| folder.join("cache"), |cache| cache.path().to_owned());
        command.envs(CACHES.map(|(variable, below)| (variable, cache.join(below))));
        command.env("TMPDIR", folder);
    }
    Err(match policy.namespaces {
        Namespaces::Processes => init::run(&mut command, left).into(),
        Namespaces::None | Namespaces::Mounts => command.exec().into(),
    })
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
    let left = policy.temporary.as_ref().map(|folder| folder.path().join(LEFT));
    let left = left.filter(|path| path.exists()).map(|path| {
        let opened = File::options().write(true).open(&path)?;
        // The command must not find it.
        fs::remove_file(&path)?;
        io::Result::Ok(opened)
    });
    let left = left.transpose()?;
    rustix::thread::set_no_new_privs(true)?;
    limit(&policy.limits)?;
    let here = Here::now(policy)?;
    let own = match policy.namespaces {
        Namespaces::None => Vec::new(),
        Namespaces::Mounts | Namespaces::Processes => mounts::separate(policy)?,
    };
    here.enter()?;
    drop_capabilities()?;
    let temporary = policy.temporary.as_ref();
    let temporary = temporary.map(|folder| mounts::temporary_among(&own, folder.path()));
    confine(policy, &own)?;
    filter::install(policy)?;
    Ok(Entered { temporary, left })
}

/// The directory of this process: the workspace, or a folder below it. When mounts are made it is below
/// them, and has to be entered again.
struct Here(Place);

impl Here {
    fn now(policy: &Policy) -> Result<Self, Failure> {
        let root = policy.root.as_ref().ok_or("a command needs a workspace to begin in")?;
        // A workspace that was moved away ends the command.
        root.open()?;
        let path = std::env::current_dir()?;
        let found = place::resolve(&path, &[])?.place;
        let is_same = Some(Identity::of(rustix::fs::open(".", OFlags::PATH, Mode::empty())?)?)
            == found.identity();
        if is_same && found.path().starts_with(root.path()) {
            return Ok(Self(found));
        }
        Err(format!("{}: it is not below {}", path.display(), root.path().display()).into())
    }

    fn enter(self) -> Result<(), Failure> {
        Ok(rustix::process::fchdir(self.0.open()?)?)
    }
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
fn confine(policy: &Policy, own: &[PathBuf]) -> Result<(), Failure> {
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
    let mut created = rules.create()?;
    let mut allow = |handle: OwnedFd, access: BitFlags<AccessFs>| -> Result<(), Failure> {
        // A rule about a file may not name what can be done in folders.
        let access = match place::kind(&handle)? {
            FileType::Directory => access,
            _ => access & AccessFs::from_file(ABI::V5),
        };
        (&mut created).add_rule(PathBeneath::new(handle, access))?;
        Ok(())
    };
    granted::system(policy, &mut |handle| allow(handle, read))?;
    for path in DEVICES {
        // A machine need not have all of them.
        if let Ok(device) = Place::from(path).open() {
            allow(device, write)?;
        }
    }
    for place in &policy.read {
        // What was moved away is given no more. No command can put another in its place.
        if let Ok(handle) = place.open() {
            allow(handle, read)?;
        }
    }
    for path in own {
        allow(Place::from(path.as_path()).open()?, write)?;
    }
    granted::written(policy, own, &mut |handle| allow(handle, write))?;
    for place in &policy.write {
        allow(place.open()?, read)?;
    }
    created.restrict_self()?;
    Ok(())
}
