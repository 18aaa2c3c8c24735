//! The sandbox of commands: the kernel keeps a command from what it was not given.
//!
//! A command is started through this program in a mode of its own, which restricts itself and then
//! executes the command: no new privileges, no capabilities, a mount namespace in which protected
//! paths are read-only, an empty network, Landlock for files and signals, seccomp for the system
//! calls that could undo the rest. A part that is promised and cannot be had is an error, and the
//! command does not run.
//!
//! Owns the policy of a command and the protocol of that mode. `enter` restricts, `probe` tries to
//! get out, `toolchains` finds what commands need to read.

mod enter;
mod filter;
mod probe;
pub mod toolchains;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::process::Command;

pub use self::probe::{Probed, probe};

/// First argument of a process that is to enter a sandbox. Then follow the policy as JSON, and the
/// program with its arguments.
const ASKED: &str = "__sandboxed";

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
    /// Files and folders that may be read and executed, beside those of the system.
    pub read: Vec<PathBuf>,
    /// Files and folders that may be written.
    pub write: Vec<PathBuf>,
    /// Paths in `write` that stay read-only.
    pub protected: Vec<PathBuf>,
    /// True if the network may be used.
    pub network: bool,
    /// True if mount namespaces work here. Otherwise only the entries of a folder in `write` that
    /// hold no protected path can be written.
    pub namespaces: bool,
    /// The temporary folder of the command.
    pub temporary: Option<PathBuf>,
}

/// Beginning of the names of the temporary folders of commands.
const TEMPORARY: &str = "callsheet-";

/// Name of the file in such a folder that is locked while it is in use.
const MARK: &str = ".callsheet-in-use";

/// Age from which on a folder that is in use is locked: a younger one may have been made just now.
const SETTLED: Duration = Duration::from_secs(60);

/// The temporary folder of a command. It is removed when this is dropped, or by a later run if this
/// process is killed.
#[derive(Debug)]
pub(super) struct Temporary {
    folder: TempDir,
    /// Locked until this process ends.
    _mark: File,
}

impl Temporary {
    /// Makes a folder.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub(super) fn new() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(temporary_root())?;
        let mark = File::create_new(folder.path().join(MARK))?;
        rustix::fs::flock(&mark, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { folder, _mark: mark })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Returns the folder for temporary folders: `TMPDIR` if it exists.
fn temporary_root() -> PathBuf {
    let named = std::env::temp_dir();
    if named.is_absolute() && named.is_dir() { named } else { PathBuf::from("/tmp") }
}

/// Removes the temporary folders of processes that were killed: those of this user whose mark is not
/// locked.
fn remove_left() {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(temporary_root()).into_iter().flatten().flatten();
    for entry in entries {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(TEMPORARY));
        let path = entry.path();
        let own = path
            .symlink_metadata()
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::getuid().as_raw());
        if !is_named || !own {
            continue;
        }
        let Ok(mark) = File::open(path.join(MARK)) else { continue };
        let age = mark.metadata().and_then(|found| found.modified()).map(|made| made.elapsed());
        if !age.is_ok_and(|age| age.is_ok_and(|age| age > SETTLED)) {
            continue;
        }
        if rustix::fs::flock(&mark, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // What cannot be removed stays.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// Enters the sandbox and becomes the command, if the process was started for that; else returns
/// at once.
pub(super) fn enter_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    let asked = arguments.next();
    if asked.as_deref() == Some(OsStr::new(probe::ASKED)) {
        std::process::exit(probe::answer(arguments.collect()));
    }
    if asked.as_deref() != Some(OsStr::new(ASKED)) {
        return;
    }
    let refused = enter::become_command(arguments.collect());
    let _ = std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("callsheet: the sandbox: {refused}\n").as_bytes(),
    );
    std::process::exit(NOT_ENTERED);
}

impl Policy {
    /// Returns the command that runs a program in the sandbox. `this_program` calls
    /// [`enter_if_asked`] before anything else.
    #[must_use]
    pub fn command(&self, this_program: &Path, program: &OsStr, arguments: &[OsString]) -> Command {
        let mut command = Command::new(this_program);
        // A path that is not UTF-8 does not encode: the process then refuses to enter, and nothing
        // runs.
        let policy = serde_json::to_string(self).unwrap_or_default();
        command.arg(ASKED).arg(policy).arg(program).args(arguments);
        command
    }
}
