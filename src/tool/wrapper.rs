//! The tool wrapper: a process for each command, which keeps the result even when its parent dies,
//! and for each hook, of which nothing has to be kept.
//!
//! It is the program itself, started again in a mode of its own. It leads the process group of the
//! command. It waits until the call is recorded, runs the command, keeps the result durably in the
//! spool, and only then reports it. It holds a pipe from its parent: when that ends, the parent is
//! gone, and the wrapper kills its group and itself with it.
//!
//! Owns what the two say to each other: a line of JSON with the job, `go`, perhaps `cancel`; back
//! comes the result, in the form in which it is kept.

mod parent;
mod serve;
mod version_1;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(super) use self::parent::{call, run_program};
use self::version_1::KeptAnyhow;
use super::command::Order;
use super::process::Program;
use super::{ToolError, ToolOutput};
use crate::id::CallKey;
use crate::redaction::Secrets;
use crate::store::Store;
use crate::tool::spool::Spool;

/// The first argument by which the program is asked to be a wrapper. The others are the workspace
/// root, the spool and the folder of results.
const ASKED: &str = "__tool-call";

/// The line that lets the command begin.
const GO: &str = "go";

/// The line that ends it early.
const CANCEL: &str = "cancel";

/// The form of a kept result; one that is newer is not read.
const VERSION: u32 = 2;

/// Whether this program has announced that it can serve.
static CAN_SERVE: AtomicBool = AtomicBool::new(false);

/// Serves as a tool wrapper and ends the process if it was started for that; else it returns at
/// once. A program that calls this first in `main` can be its own wrapper; one that does not runs
/// commands in its own process, and a crash of it loses their results and may leave them running.
pub fn serve_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(ASKED)) {
        return CAN_SERVE.store(true, Ordering::Relaxed);
    }
    std::process::exit(serve::serve(arguments.map(PathBuf::from).collect()));
}

/// The program that is run as a wrapper, and what it must know.
#[derive(Clone, Debug)]
pub struct Wrapper {
    /// A program that calls [`serve_if_asked`].
    pub program: PathBuf,
    /// What must not be in a result.
    pub secrets: Secrets,
}

impl Wrapper {
    /// This program, if it can serve.
    #[must_use]
    pub fn this_program() -> Option<PathBuf> {
        // By this path it is found even when its file was replaced meanwhile.
        CAN_SERVE.load(Ordering::Relaxed).then(|| PathBuf::from("/proc/self/exe"))
    }
}

/// What a wrapper is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    key: CallKey,
    work: Work,
    grace_period: Duration,
    secrets: Vec<String>,
}

/// What is run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Work {
    /// A command, whose result is kept.
    Command(Order),
    /// A program that works for callsheet itself: it is run again after a crash.
    Program(Program),
}

/// A result as it is kept and told.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    v: u32,
    key: CallKey,
    /// The end of the call, or the reason why it could not be made.
    end: Result<ToolOutput, String>,
    /// The time that it took, in milliseconds.
    took_ms: u64,
}

impl Kept {
    fn read(bytes: &[u8], key: &CallKey) -> io::Result<Self> {
        let kept: Self = match serde_json::from_slice::<KeptAnyhow>(bytes)? {
            KeptAnyhow::Now(kept) => kept,
            KeptAnyhow::Before(kept) => kept.into(),
        };
        if kept.v != VERSION || kept.key != *key {
            return Err(io::Error::other("it is of another version or call"));
        }
        Ok(kept)
    }

    fn result(self) -> Result<ToolOutput, ToolError> {
        self.end.map_err(ToolError::Failed)
    }
}

/// The result that a call left in the spool, and how long it took. Blocks.
///
/// # Errors
/// When there is one that cannot be read.
pub fn spooled(
    store: &Store,
    key: &CallKey,
) -> io::Result<Option<(Result<ToolOutput, ToolError>, Duration)>> {
    let Some(bytes) = Spool::of(store).kept_result(key)? else { return Ok(None) };
    let kept = Kept::read(&bytes, key)?;
    let took = Duration::from_millis(kept.took_ms);
    Ok(Some((kept.result(), took)))
}

/// The arguments of a wrapper.
fn arguments<'a>(root: &'a Path, store: &'a Store) -> [&'a Path; 4] {
    [Path::new(ASKED), root, store.scratch_dir(), store.results_dir()]
}
