//! The proof of a sandbox: a process in it tries to get out, and says what it could do.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::temporary::{self, Canary};
use super::untried::{self, UNTRIED, Unproved, Untried, is_refused};
use super::{BEGIN, Failure, NOT_ENTERED, Namespaces, Policy, Unbuffered, Work, namespaces};

/// First argument of a process that is to start the probe. Then follow the targets as JSON. The process
/// reads the policy from its stdin, as the one that enters the sandbox does.
pub(super) const ASKED: &str = "__sandbox-probe";

/// Time for a probe: it does a dozen system calls.
const WITHIN: Duration = Duration::from_secs(20);

/// The targets of a probe.
#[derive(Debug, Serialize, Deserialize)]
struct Targets {
    /// Files that may not be read.
    canaries: Vec<PathBuf>,
    /// Paths at which no file may be made.
    outside: Vec<PathBuf>,
    /// The process that started the run.
    parent: i32,
    network: bool,
    /// An address at which the process that started the run listens.
    listening: SocketAddr,
    processes: bool,
}

/// What a sandbox keeps here, as a process in it found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Namespaces that a command gets here.
    pub namespaces: Namespaces,
    /// What could not be done in the sandbox.
    pub kept: Vec<String>,
    /// What could be done although it should not be, or could not although it should.
    pub open: Vec<String>,
}

/// Why no sandbox was proved, in words for a person.
#[derive(Debug, thiserror::Error)]
pub enum NoSandbox {
    /// It could not be tried: that says nothing about this machine, and is no reason to go without.
    #[error("it could not be tried: {0}")]
    Untried(#[from] Untried),
    /// This machine has none.
    #[error("{0}")]
    Machine(String),
    /// This machine has one, but not around this workspace.
    #[error("{0}")]
    Workspace(String),
}

/// What this version of Linux may leave open: processes outside can be signalled before Linux 6.12.
const MAY_BE_OPEN: [&str; 1] = ["signal"];

/// Tries a sandbox with exactly this policy, with namespaces if they work here. Blocks for some
/// milliseconds.
///
/// # Errors
/// Returns why there can be no sandbox here.
pub fn probe(this_program: &Path, policy: &Policy) -> Result<Probed, NoSandbox> {
    probe_all(this_program, policy, &[])
}

/// Tries a sandbox with exactly this policy, and one with each of those of work that is kept from more:
/// all of them have the namespaces with which all of them hold. Blocks for some milliseconds.
///
/// # Errors
/// Returns why there can be no sandbox here.
pub fn probe_all(
    this_program: &Path,
    policy: &Policy,
    within: &[Policy],
) -> Result<Probed, NoSandbox> {
    temporary::remove_left(policy);
    let mut reason = String::new();
    let hosts = !policy.hosts.is_empty();
    for namespaces in Namespaces::ALL.into_iter().filter(|own| !hosts || *own != Namespaces::None) {
        let one = |policy: &Policy| tried(this_program, &Policy { namespaces, ..policy.clone() });
        let all = || -> Result<Probed, Unproved> {
            let probed = one(policy)?;
            for policy in within {
                one(policy).map_err(|unproved| match unproved {
                    Unproved::Wall(reason) => {
                        Unproved::Wall(format!("for work that is kept from more: {reason}"))
                    }
                    untried @ Unproved::Untried(_) => untried,
                })?;
            }
            Ok(probed)
        };
        let error = match all() {
            Ok(probed) => return Ok(Probed { namespaces, ..probed }),
            Err(Unproved::Untried(untried)) => return Err(untried.into()),
            Err(Unproved::Wall(error)) => error,
        };
        let mut has_such = true;
        for policy in std::iter::once(policy).chain(within) {
            has_such = has_such && works(this_program, policy, namespaces)?;
        }
        // This machine has such namespaces: what fails is of this workspace, and a command may have
        // made it so that the next one has fewer.
        if has_such {
            return Err(NoSandbox::Workspace(error));
        }
        reason = error;
    }
    if hosts {
        reason = format!("single hosts in `network` need an empty network, and: {reason}");
    }
    Err(NoSandbox::Machine(reason))
}

/// Returns true if a sandbox with these namespaces holds on this machine, around a folder that no command
/// has touched.
fn works(this_program: &Path, policy: &Policy, namespaces: Namespaces) -> Result<bool, Untried> {
    let empty = temporary(policy)?;
    let root = empty.place().clone();
    let bare = Policy {
        root: Some(root.clone()),
        write: vec![root],
        homes: policy.homes.clone(),
        network: policy.network,
        namespaces,
        temporary_root: policy.temporary_root.clone(),
        limits: policy.limits.clone(),
        ..Policy::default()
    };
    match tried(this_program, &bare) {
        Ok(_) => Ok(true),
        Err(Unproved::Wall(_)) => Ok(false),
        Err(Unproved::Untried(untried)) => Err(untried),
    }
}

/// Makes a temporary folder.
fn temporary(policy: &Policy) -> Result<super::Temporary, Untried> {
    let root = policy.temporary_root.as_ref().map_or(Path::new("/tmp"), |root| root.path());
    super::Temporary::new(policy).map_err(|error| Untried::at(root, error))
}

fn tried(this_program: &Path, policy: &Policy) -> Result<Probed, Unproved> {
    let canaries = canaries(policy)?;
    let temporary = temporary(policy).map_err(Unproved::Untried)?;
    // Its links are not resolved: that of the running program finds it after its file was replaced.
    let program = std::path::absolute(this_program)?;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let policy = Policy { temporary: Some(temporary.place().clone()), ..policy.clone() };
    let paths = || canaries.iter().map(|canary| canary.path().to_owned());
    let targets = Targets {
        canaries: paths().collect(),
        outside: paths().map(|path| path.with_extension("made")).collect(),
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        network: policy.network,
        listening: listener.local_addr()?,
        processes: policy.namespaces == Namespaces::Processes,
    };
    let mut command = Command::new(&program);
    command.arg(ASKED).arg(serde_json::to_string(&targets).unwrap_or_default());
    let none = || Unproved::Wall("there is no workspace to probe".to_owned());
    command.current_dir(policy.root.as_ref().ok_or_else(none)?.path());
    let output = finished(&mut command, &policy.encoded())?;
    // A process in the sandbox may have folders of its own in the place of shared ones, so that only
    // this one sees where a file was made.
    let got_out = targets.outside.iter().filter(|path| fs::remove_file(path).is_ok()).count() > 0;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("callsheet: ");
    match output.status.code() {
        Some(NOT_ENTERED) => return Err(Unproved::Wall(said.to_owned())),
        Some(UNTRIED) => {
            let root = policy.temporary_root.as_ref().map(|root| root.path());
            return Err(Unproved::Untried(untried::heard(&output.stdout, said, root)));
        }
        _ => {}
    }
    let mut probed: Probed = serde_json::from_slice(&output.stdout).map_err(|_| {
        let reason = format!("the probe ended with {}: {said}", output.status);
        match ended_by(output.status) {
            // A filter around this program ends it at a call that the sandbox needs.
            BAD_CALL => Unproved::Wall(reason),
            _ => io::Error::other(reason).into(),
        }
    })?;
    let list = if got_out { &mut probed.open } else { &mut probed.kept };
    list.push("write outside".to_owned());
    match probed.open.iter().find(|open| !MAY_BE_OPEN.contains(&open.as_str())) {
        Some(open) => Err(Unproved::Wall(format!("the sandbox does not hold: {open}"))),
        None => Ok(probed),
    }
}

/// Runs a command to its end, or ends it when its time is over.
fn finished(command: &mut Command, input: &[u8]) -> io::Result<Output> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that could not start reads nothing, and its end says so.
        let _ = stdin.write_all(input);
    }
    let began = std::time::Instant::now();
    // Its output is far below the size of a pipe.
    while child.try_wait()?.is_none() {
        if began.elapsed() > WITHIN {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output()
}

/// Exit code of a process that SIGSYS has ended, as shells give it.
const BAD_CALL: i32 = 128 + 31;

/// Returns the exit code of a process, as shells give that of one that a signal ended.
fn ended_by(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Makes canaries in the folders of the user that the policy does not give, as far as they can be written.
///
/// # Errors
/// Returns an error if there is no such folder, or none of them can be written.
fn canaries(policy: &Policy) -> Result<Vec<Canary>, Unproved> {
    let is_given = |folder: &Path| {
        let given = policy.read.iter().chain(&policy.write);
        given.filter(|place| place.path().is_dir()).any(|place| folder.starts_with(place.path()))
    };
    let (mut made, mut refused) = (Vec::new(), None);
    for folder in temporary::folders(policy).into_iter().filter(|folder| !is_given(folder)) {
        match Canary::new(&folder).map_err(|error| Untried::at(&folder, error)) {
            Ok(canary) => made.push(canary),
            // A folder that is full now tells more than one that this user never writes.
            Err(untried) if refused.is_none() || untried.may_pass() => refused = Some(untried),
            Err(_) => {}
        }
    }
    match refused {
        _ if !made.is_empty() => Ok(made),
        Some(untried) => Err(Unproved::Untried(untried)),
        None => Err(Unproved::Wall("there is no folder outside the sandbox to probe".to_owned())),
    }
}

/// Starts the probe in its sandbox. Returns the exit code of the process.
pub(super) fn start(arguments: &[OsString]) -> i32 {
    let [targets] = arguments else { return NOT_ENTERED };
    let started = || -> Result<i32, Failure> {
        let policy = Policy::heard(Unbuffered)?;
        if policy.namespaces != Namespaces::None {
            namespaces::own_user().map_err(|error| untried::about("the sandbox", error))?;
        }
        let mut command = Command::new("/proc/self/exe");
        command.arg(super::ASKED).arg(Work::Probe.argument()).arg(targets);
        command.stdin(Stdio::piped());
        let mut child = match policy.namespaces {
            Namespaces::None => command.spawn()?,
            Namespaces::Mounts | Namespaces::Processes => {
                namespaces::apart(&policy, |_| command.spawn())?.0
            }
        };
        if let Some(mut stdin) = child.stdin.take() {
            // A process that could not enter has ended already, and its exit code says so.
            let _ = stdin.write_all(&policy.encoded()).and_then(|()| stdin.write_all(&[BEGIN]));
        }
        Ok(ended_by(child.wait()?))
    };
    match started() {
        Ok(code) => code,
        Err(error) => failed(&*error),
    }
}

/// Tells why the probe could not be made. Returns the exit code of the process.
fn failed(error: &(dyn Error + 'static)) -> i32 {
    // Whoever started it may be gone.
    let _unread = writeln!(io::stderr(), "callsheet: {error}");
    exit_code(error)
}

/// Returns the exit code of a probe that ends with this error. Prints its number if the sandbox could not be tried.
pub(super) fn exit_code(error: &(dyn Error + 'static)) -> i32 {
    let Some(cause) = untried::untried(error) else { return NOT_ENTERED };
    // Whoever started it may be gone.
    let _unread = writeln!(io::stdout(), "{}", cause.raw_os_error().unwrap_or_default());
    UNTRIED
}

/// Tries to get out, and prints what could be done. Returns the exit code of the process.
pub(super) fn answer(targets: &OsStr, temporary: Option<&Path>) -> i32 {
    let Ok(targets) = serde_json::from_slice(targets.as_bytes()) else { return NOT_ENTERED };
    let text = match attempt(&targets, temporary) {
        Ok(probed) => serde_json::to_string(&probed).unwrap_or_default(),
        Err(error) => return failed(&error),
    };
    let printed = io::stdout().write_all(text.as_bytes());
    i32::from(printed.is_err())
}

/// Tries to get out.
///
/// # Errors
/// Returns the error of an attempt that says nothing about the wall.
fn attempt(targets: &Targets, temporary: Option<&Path>) -> io::Result<Probed> {
    let parent = |file: &str| fs::read(format!("/proc/{}/{file}", targets.parent));
    let mut probed = Probed::default();
    let mut expect = |what: &str, is_kept: bool| {
        let list = if is_kept { &mut probed.kept } else { &mut probed.open };
        list.push(what.to_owned());
    };
    let made = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    // The parent looks whether it is there.
    for path in &targets.outside {
        is_refused(made(path))?;
    }
    let mut is_unread = true;
    for path in &targets.canaries {
        is_unread &= is_refused(fs::read(path))?;
    }
    expect("read outside", is_unread);
    expect("environment", is_refused(parent("environ"))?);
    let memory = OpenOptions::new().read(true).open(format!("/proc/{}/mem", targets.parent));
    expect("memory", is_refused(memory)?);
    let pid = Pid::from_raw(targets.parent);
    let signal = |pid| Ok(rustix::process::test_kill_process(pid)?);
    expect("signal", pid.map_or(Ok(true), |pid| is_refused(signal(pid)))?);
    if targets.processes {
        // The kernel gives the first process of a namespace no signal of another one in it.
        let is_first = pid.is_none_or(|pid| pid.is_init());
        expect("processes", is_first || is_refused(parent("stat"))?);
    }
    if !targets.network {
        let tcp = TcpStream::connect_timeout(&targets.listening, Duration::from_secs(1));
        expect("tcp", is_refused(tcp)?);
        let udp = UdpSocket::bind(("127.0.0.1", 0));
        let is_denied =
            udp.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        expect("udp", is_refused(udp)? && is_denied);
    }
    let namespaces = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER);
    expect("namespaces", is_refused(namespaces.map_err(io::Error::from))?);
    let root = OsStr::new("/");
    let mounted = rustix::mount::mount_bind(root, root).map_err(io::Error::from);
    expect("mounts", is_refused(mounted)?);
    let own = temporary.map(|folder| is_refused(made(&folder.join("probe")))).transpose()?;
    expect("write inside", own == Some(false));
    Ok(probed)
}
