//! The sandbox of commands: the kernel keeps a command from what it was not given.
//!
//! A command is started through this program in a mode of its own, which restricts itself and then
//! executes the command: no new privileges, no capabilities, a mount namespace in which protected
//! paths are read-only, a process namespace that ends with the command, an empty network, Landlock
//! for files and signals, seccomp for the system calls that could undo the rest. A part that is
//! promised and cannot be had is an error, and the command does not run.
//!
//! Owns the policy of a command and the protocol of that mode. `place` finds what a policy names;
//! `namespaces` prepares the process that starts a command; `enter` restricts, with `mounts` and
//! `filter`, what the policy says (`granted`); `init` waits for the command;
//! `way_out` and `proxy` let it reach single hosts;
//! `probe` tries to get out, and `untried` says when that tells nothing; `temporary` has the folders of commands;
//! `toolchains` finds what commands need to read.

mod enter;
mod filter;
mod granted;
mod init;
mod mounts;
mod namespaces;
pub mod place;
mod probe;
mod proxy;
mod removal;
mod temporary;
pub mod toolchains;
mod untried;
mod way_out;

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use rustix::fs::{CWD, Mode};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{self, Receiver};
use tokio::process::{Child, Command};

use self::place::{Held, Place};
pub use self::probe::{NoSandbox, Probed, probe, probe_all};
pub(super) use self::proxy::{Refused, RefusedHosts};
pub(super) use self::temporary::Temporary;
pub use self::untried::Untried;
use crate::spec::sandbox::{CommandLimits, Confinement};

/// First argument of a process that is to enter a sandbox. Then follow a [`Work`], and the program with
/// its arguments, or the targets of a probe.
///
/// The process reads the policy from its stdin ([`Policy::told`]) and enters. It starts the program when
/// it then reads [`BEGIN`]. What follows there is the input of the program.
const ASKED: &str = "__sandboxed";

/// Byte that lets the program begin.
const BEGIN: u8 = b'\n';

/// Exit code of a process that could not enter the sandbox: that of `env` and `timeout` for a
/// failure of their own.
const NOT_ENTERED: i32 = 125;

/// The sandbox of the commands of a run.
#[derive(Clone, Debug, Default)]
pub enum Sandbox {
    /// None is wanted.
    #[default]
    Off,
    /// Commands run in it.
    On(Arc<Policy>),
    /// It is wanted and cannot be had, for this reason.
    Missing(Arc<str>),
}

impl Sandbox {
    /// Returns the policy of a command; `None` if it runs without a sandbox.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        match self {
            Self::On(policy) => Some(policy),
            Self::Off | Self::Missing(_) => None,
        }
    }

    /// Returns the sandbox for work that is kept from more.
    #[must_use]
    pub fn within(&self, confinement: Confinement) -> Self {
        match self {
            Self::On(policy) if confinement != Confinement::default() => {
                Self::On(Arc::new(policy.within(confinement)))
            }
            Self::On(_) | Self::Off | Self::Missing(_) => self.clone(),
        }
    }

    /// Returns why a command that a model wrote may not run here; `None` if it may.
    #[must_use]
    pub fn denial(&self) -> Option<String> {
        let Self::Missing(reason) = self else { return None };
        Some(format!(
            "Permission denied: commands run only in a sandbox, and there is none here: {reason}. A \
             person can start the run with `--sandbox danger-full-access`."
        ))
    }
}

/// What a command may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The workspace, in which commands begin.
    pub root: Option<Place>,
    /// Files and folders that may be read and executed, beside those of the system. None of them lies in
    /// one of `write`, so that no command can put another in its place.
    pub read: Vec<Place>,
    /// Files and folders that may be written. One lies in another only if that is a root around the
    /// workspace, or as the folder of caches does in the records, which are protected.
    pub write: Vec<Place>,
    /// Paths in `write` that stay read-only, without `..`.
    pub protected: Vec<Place>,
    /// Folders in `write` that stay at their place, without `..`: what is in them may be written.
    pub pinned: Vec<Place>,
    /// Folders of people, which are not read although the folder of the system in which they lie is.
    pub homes: Vec<Place>,
    /// True if the whole network may be used.
    pub network: bool,
    /// The hosts that may be reached otherwise, as [`host_of`](crate::spec::sandbox::host_of) writes
    /// them. They need namespaces.
    pub hosts: Vec<String>,
    /// True if the network that the run gives to commands was taken from these.
    #[serde(default)]
    pub is_kept_offline: bool,
    /// Namespaces that the command gets. Without any, only the entries of a folder in `write` that
    /// hold no protected path can be written.
    pub namespaces: Namespaces,
    /// The temporary folder of the command.
    pub temporary: Option<Place>,
    /// The folder in which temporary folders are made: none in which a command can write.
    pub temporary_root: Option<Place>,
    /// The folder for the caches of tools, which later commands use too. It takes effect if it may be
    /// written.
    pub cache: Option<Place>,
    /// What each process of the command may use.
    pub limits: CommandLimits,
    /// The objects of the places. A process that enters a sandbox has none of them.
    #[serde(skip)]
    pub held: Held,
}

/// Namespaces that a command gets, as far as this machine lets a user make them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespaces {
    /// None.
    #[default]
    None,
    /// Of users, mounts, System V objects and an empty network.
    Mounts,
    /// These, and of processes: what the command starts cannot outlive its call.
    Processes,
}

impl Namespaces {
    /// All values, from the most to the least.
    const ALL: [Self; 3] = [Self::Processes, Self::Mounts, Self::None];

    /// Returns the value as the argument of a process.
    #[must_use]
    pub(super) fn argument(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Mounts => "mounts",
            Self::Processes => "processes",
        }
    }

    /// Reads the argument of a process.
    pub(super) fn from_argument(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|namespaces| namespaces.argument() == text)
    }
}

type Failure = Box<dyn Error>;

/// Name of the pipe in the temporary folder by which the first process of a process namespace tells that
/// it is ready, and the exit code of a command that has left processes behind.
const LEFT: &str = ".callsheet-left";

/// Enters the sandbox and becomes the command, if the process was started for that; else returns
/// at once.
pub(super) fn enter_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    let asked = arguments.next();
    match asked.as_deref().and_then(OsStr::to_str) {
        Some(ASKED) => {}
        Some(probe::ASKED) => std::process::exit(probe::start(&arguments.collect::<Vec<_>>())),
        _ => return,
    }
    let arguments: Vec<_> = arguments.collect();
    let work = arguments.first().and_then(|work| Work::from_argument(work));
    let refused = enter::become_command(arguments);
    let _ = std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("callsheet: the sandbox: {refused}\n").as_bytes(),
    );
    std::process::exit(match work {
        Some(Work::Probe) => probe::exit_code(&*refused),
        Some(Work::WithoutInput | Work::WithInput) | None => NOT_ENTERED,
    });
}

/// Where the first process of a process namespace tells of processes that its command left behind.
#[derive(Debug)]
pub(super) struct LeftBehind(Receiver);

impl LeftBehind {
    /// Makes the pipe in the temporary folder of the command.
    fn new(temporary: &Path) -> io::Result<Self> {
        let path = temporary.join(LEFT);
        // A start for which there was no room left it.
        let _none = std::fs::remove_file(&path);
        rustix::fs::mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
        // Without a writer of its own, the end of this pipe would be told before its beginning.
        Ok(Self(pipe::OpenOptions::new().read_write(true).open_receiver(path)?))
    }

    /// Waits until the first process holds signals back for the command.
    async fn ready(&mut self) {
        if self.0.read_exact(&mut [0]).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns the exit code of the command when it has ended and left processes behind; never
    /// otherwise.
    pub(super) async fn code(&mut self) -> i32 {
        let mut code = [0; 4];
        match self.0.read_exact(&mut code).await {
            Ok(_) => i32::from_le_bytes(code),
            Err(_) => std::future::pending().await,
        }
    }
}

/// Moves this process, which must have one thread, into the namespaces that it needs to start
/// others in a sandbox.
///
/// # Errors
/// Returns why the system refuses.
pub(super) fn prepare(namespaces: Namespaces) -> Result<(), String> {
    match namespaces {
        Namespaces::None => Ok(()),
        Namespaces::Mounts | Namespaces::Processes => {
            namespaces::own_user().map_err(|error| format!("the sandbox: {error}"))
        }
    }
}

/// Starts a command that [`Policy::command`] returned, from a process that has called [`prepare`].
/// It waits in its sandbox until [`begin`] is called. What its proxy refuses is noted in `refused`.
pub(super) fn start(
    policy: &Policy,
    command: &mut Command,
    refused: &RefusedHosts,
) -> io::Result<(Child, Option<LeftBehind>)> {
    command.stdin(Stdio::piped());
    if policy.namespaces == Namespaces::None {
        return Ok((command.spawn()?, None));
    }
    let in_processes =
        policy.temporary.as_ref().filter(|_| policy.namespaces == Namespaces::Processes);
    let left = in_processes.map(|folder| LeftBehind::new(folder.path())).transpose()?;
    let runtime = tokio::runtime::Handle::current();
    let (child, listener) = namespaces::apart(policy, |listener| {
        let _runtime = runtime.enter();
        if let Some(listener) = listener {
            command.envs(way_out::variables(listener, &policy.hosts)?);
        }
        command.spawn()
    })?;
    if let Some(listener) = listener {
        // It ends with this process, which is there for one command.
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(proxy::serve(listener, policy.hosts.clone().into(), refused.clone()));
    }
    Ok((child, left))
}

/// Lets a command begin that was started in a sandbox, once the sandbox is ready.
pub(super) async fn begin(policy: &Policy, child: &mut Child, left: Option<&mut LeftBehind>) {
    // A wait for the child closes its input.
    let Some(mut stdin) = child.stdin.take() else { return };
    // A process that ended reads nothing.
    let _ = stdin.write_all(&policy.encoded()).await;
    if let Some(left) = left {
        tokio::select! {
            () = left.ready() => {}
            // It could not enter, and its exit code says so.
            _ = child.wait() => {}
        }
    }
    // A process that could not enter reads nothing.
    let _ = stdin.write_all(&[BEGIN]).await;
    child.stdin = Some(stdin);
}

/// The variable by which the allocator reserves nothing ahead. It would take 1 GiB of addresses otherwise,
/// which count against the limit of memory that this process sets on itself.
const ALLOCATOR: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "0");

/// The most bytes of a policy: those of a million paths of usual length.
const MOST_OF_A_POLICY: u64 = 256 << 20;

impl Policy {
    /// Returns the policy of work that is kept from more.
    #[must_use]
    pub fn within(&self, confinement: Confinement) -> Self {
        let Confinement { read_only, offline } = confinement;
        let mut policy = self.clone();
        if offline {
            policy.is_kept_offline |= policy.network || !policy.hosts.is_empty();
            policy.network = false;
            policy.hosts.clear();
        }
        if read_only {
            policy.read.append(&mut policy.write);
        }
        policy
    }

    /// Returns the policy as a process that enters a sandbox reads it: the number of its bytes, and JSON.
    ///
    /// It goes through a pipe: the arguments of a process have a bound that a project could reach.
    fn encoded(&self) -> Vec<u8> {
        // What does not encode is no policy: the process then refuses to enter, and nothing runs.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let mut told = (text.len() as u64).to_le_bytes().to_vec();
        told.extend(text);
        told
    }

    /// Reads a policy, and not one byte more.
    fn heard(mut input: impl Read) -> Result<Self, Failure> {
        let mut length = [0; 8];
        input.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        if length > MOST_OF_A_POLICY {
            return Err(format!("a policy of {length} bytes, over {MOST_OF_A_POLICY}").into());
        }
        let mut text = Vec::new();
        input.take(length).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Returns the command that runs a program in the sandbox, for [`start`].
    #[must_use]
    pub(super) fn enclosed(input: Input, program: &[OsString]) -> Command {
        let work = match input {
            Input::None => Work::WithoutInput,
            Input::Pipe => Work::WithInput,
        };
        let mut command = Command::new("/proc/self/exe");
        command.arg(ASKED).arg(work.argument()).args(program);
        command.env(ALLOCATOR.0, ALLOCATOR.1);
        command
    }
}

/// Stdin as it is, without a buffer: what is not read from it stays for the program that follows.
struct Unbuffered;

impl Read for Unbuffered {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(rustix::stdio::stdin(), &mut *bytes))?)
    }
}

/// The stdin of a command in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Nothing can be read: `/dev/null`, since some programs read a pipe without being asked.
    None,
    /// What its parent writes.
    Pipe,
}

/// What a process does once it is in its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// It runs a program without input.
    WithoutInput,
    /// It runs a program that reads what follows on stdin.
    WithInput,
    /// It tries to get out.
    Probe,
}

impl Work {
    const ALL: [Self; 3] = [Self::WithoutInput, Self::WithInput, Self::Probe];

    fn argument(self) -> &'static str {
        match self {
            Self::WithoutInput => "no-input",
            Self::WithInput => "input",
            Self::Probe => "probe",
        }
    }

    fn from_argument(text: &OsStr) -> Option<Self> {
        Self::ALL.into_iter().find(|work| text == work.argument())
    }
}
