//! The proof of a sandbox: a process in it tries to get out, and says what it could do.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

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

/// Why there can be no sandbox, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSandbox {
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
    super::remove_left(policy);
    let mut reason = String::new();
    let hosts = !policy.hosts.is_empty();
    for namespaces in Namespaces::ALL.into_iter().filter(|own| !hosts || *own != Namespaces::None) {
        let one = |policy: &Policy| tried(this_program, &Policy { namespaces, ..policy.clone() });
        let all = || -> Result<Probed, String> {
            let probed = one(policy)?;
            for policy in within {
                one(policy).map_err(|error| format!("for work that is kept from more: {error}"))?;
            }
            Ok(probed)
        };
        match all() {
            Ok(probed) => return Ok(Probed { namespaces, ..probed }),
            // This machine has such namespaces: what fails is of this workspace, and a command may have
            // made it so that the next one has fewer.
            Err(error)
                if std::iter::once(policy)
                    .chain(within)
                    .all(|policy| works(this_program, policy, namespaces)) =>
            {
                return Err(NoSandbox::Workspace(error));
            }
            Err(error) => reason = error,
        }
    }
    if hosts {
        reason = format!("single hosts in `network` need an empty network, and: {reason}");
    }
    Err(NoSandbox::Machine(reason))
}

/// Returns true if a sandbox with these namespaces holds on this machine, around a folder that no command
/// has touched.
fn works(this_program: &Path, policy: &Policy, namespaces: Namespaces) -> bool {
    let Ok(empty) = super::Temporary::new(policy) else { return false };
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
    tried(this_program, &bare).is_ok()
}

fn tried(this_program: &Path, policy: &Policy) -> Result<Probed, String> {
    let failed = |error: io::Error| format!("the probe could not be made: {error}");
    let mut canaries = Vec::new();
    for folder in ungranted(policy) {
        let canary = tempfile::Builder::new().prefix(".callsheet-probe-").tempfile_in(&folder);
        let canary = canary.map_err(failed)?;
        fs::write(canary.path(), "a canary").map_err(failed)?;
        canaries.push(canary);
    }
    if canaries.is_empty() {
        return Err("there is no folder outside the sandbox to probe".to_owned());
    }
    let temporary = super::Temporary::new(policy).map_err(failed)?;
    // Its links are not resolved: that of the running program finds it after its file was replaced.
    let program = std::path::absolute(this_program).map_err(failed)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
    let policy = Policy { temporary: Some(temporary.place().clone()), ..policy.clone() };
    let paths = || canaries.iter().map(|canary| canary.path().to_owned());
    let targets = Targets {
        canaries: paths().collect(),
        outside: paths().map(|path| path.with_extension("made")).collect(),
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        network: policy.network,
        listening: listener.local_addr().map_err(failed)?,
        processes: policy.namespaces == Namespaces::Processes,
    };
    let mut command = Command::new(&program);
    command.arg(ASKED).arg(serde_json::to_string(&targets).unwrap_or_default());
    let root = policy.root.as_ref().ok_or("there is no workspace to probe")?;
    command.current_dir(root.path());
    let output = finished(&mut command, &policy.encoded()).map_err(failed)?;
    // A process in the sandbox may have folders of its own in the place of shared ones, so that only
    // this one sees where a file was made.
    let got_out = targets.outside.iter().filter(|path| fs::remove_file(path).is_ok()).count() > 0;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NOT_ENTERED) {
        return Err(said.trim().trim_start_matches("callsheet: ").to_owned());
    }
    let mut probed: Probed = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("the probe ended with {}: {}", output.status, said.trim()))?;
    let list = if got_out { &mut probed.open } else { &mut probed.kept };
    list.push("write outside".to_owned());
    match probed.open.iter().find(|open| !MAY_BE_OPEN.contains(&open.as_str())) {
        Some(open) => Err(format!("the sandbox does not hold: {open}")),
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

/// Returns folders of the user in which files can be made and that the policy does not give: homes and
/// folders of temporary files.
fn ungranted(policy: &Policy) -> Vec<PathBuf> {
    let homes = policy.homes.iter().map(|home| home.path().to_owned());
    let temporary = policy.temporary_root.iter().map(|folder| folder.path().to_owned());
    let is_given = |folder: &Path| {
        let given = policy.read.iter().chain(&policy.write);
        given.filter(|place| place.path().is_dir()).any(|place| folder.starts_with(place.path()))
    };
    let usable = |folder: &PathBuf| !is_given(folder) && tempfile::tempfile_in(folder).is_ok();
    let found = homes.chain([PathBuf::from("/var/tmp")]).chain(temporary);
    let found = found.filter_map(|folder| folder.canonicalize().ok()).filter(usable);
    found.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Starts the probe in its sandbox. Returns the exit code of the process.
pub(super) fn start(arguments: &[OsString]) -> i32 {
    let [targets] = arguments else { return NOT_ENTERED };
    let started = || -> Result<Option<i32>, Failure> {
        let policy = Policy::heard(Unbuffered)?;
        super::prepare(policy.namespaces)?;
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
        Ok(child.wait()?.code())
    };
    match started() {
        Ok(code) => code.unwrap_or(1),
        Err(error) => {
            let _unread = writeln!(io::stderr(), "callsheet: {error}");
            NOT_ENTERED
        }
    }
}

/// Tries to get out, and prints what could be done. Returns the exit code of the process.
pub(super) fn answer(targets: &OsStr, temporary: Option<&Path>) -> i32 {
    let Ok(targets) = serde_json::from_slice(targets.as_bytes()) else { return NOT_ENTERED };
    let probed = attempt(&targets, temporary);
    let text = serde_json::to_string(&probed).unwrap_or_default();
    let printed = io::stdout().write_all(text.as_bytes());
    i32::from(printed.is_err())
}

fn attempt(targets: &Targets, temporary: Option<&Path>) -> Probed {
    let parent = |file: &str| fs::read(format!("/proc/{}/{file}", targets.parent));
    let mut probed = Probed::default();
    let mut expect = |what: &str, is_kept: bool| {
        let list = if is_kept { &mut probed.kept } else { &mut probed.open };
        list.push(what.to_owned());
    };
    let made = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    // The parent looks whether it is there.
    for path in &targets.outside {
        let _ = made(path);
    }
    expect("read outside", targets.canaries.iter().all(|path| fs::read(path).is_err()));
    expect("environment", parent("environ").is_err());
    let memory = OpenOptions::new().read(true).open(format!("/proc/{}/mem", targets.parent));
    expect("memory", memory.is_err());
    let pid = Pid::from_raw(targets.parent);
    expect("signal", pid.is_none_or(|pid| rustix::process::test_kill_process(pid).is_err()));
    if targets.processes {
        // The kernel gives the first process of a namespace no signal of another one in it.
        expect("processes", parent("stat").is_err() || pid.is_none_or(|pid| pid.is_init()));
    }
    if !targets.network {
        let refused = |error: io::Error| error.kind() == ErrorKind::PermissionDenied;
        let tcp = TcpStream::connect_timeout(&targets.listening, Duration::from_secs(1));
        expect("tcp", tcp.is_err());
        expect("udp", UdpSocket::bind(("127.0.0.1", 0)).err().is_some_and(refused));
    }
    let namespaces = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER);
    expect("namespaces", namespaces.is_err());
    let root = OsStr::new("/");
    expect("mounts", rustix::mount::mount_bind(root, root).is_err());
    expect("write inside", temporary.is_some_and(|folder| made(&folder.join("probe")).is_ok()));
    probed
}
