//! The tool wrapper: a process for each command, which keeps the result even if its parent dies. A
//! hook runs in a wrapper too, but its result is not kept.
//!
//! The wrapper is this program, started again in a mode of its own, as the leader of the process
//! group of the command. It waits until the call is recorded, runs the command, keeps the result
//! durably in the spool, and only then reports it. Its stdin is a pipe from the parent: when the
//! pipe ends, the parent is gone. The wrapper then gives its command a grace to end, keeps the
//! result for the next owner of the run, and kills its group and itself. If the command had not begun, it
//! keeps a note of that instead: it may then begin as if for the first time.
//!
//! Owns the protocol between the two. The parent sends a line of JSON with the job, then `go`, and
//! `cancel` if the call is cancelled; the wrapper answers with what the command prints, a line of JSON at a time
//! (`wrapper/live.rs`), and at the end with the result in the form in which it is kept.

mod live;
mod parent;
mod serve;
mod version_1;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(super) use self::parent::run_program;
use self::version_1::KeptAnyhow;
use super::command::{self, Order};
use super::process::{ProcessGroup, Program};
use super::sandbox::{self, Namespaces, Policy};
use super::{ToolContext, ToolError, ToolOutput};
use crate::id::CallKey;
use crate::redaction::Secrets;
use crate::store::Store;
use crate::tool::spool::Spool;
use crate::turn::Process;

/// First argument of a process that is to serve as a wrapper. The other arguments are the namespaces
/// of its command, the workspace root, the scratch directory with the spool, and the folder of
/// stored results.
const ASKED: &str = "__tool-call";

/// Line by which the parent lets the command begin.
const GO: &str = "go";

/// Line by which the parent ends the command early.
const CANCEL: &str = "cancel";

/// Version of the form of a kept result; a newer version is not read.
const VERSION: u32 = 2;

/// Exit code of a wrapper that ended before its command began, such as for want of a thread: the code for a
/// passing failure (EX_TEMPFAIL).
const NOT_BEGUN: i32 = 75;

/// True once this program has called [`serve_if_asked`], so that it can be its own wrapper.
static CAN_SERVE: AtomicBool = AtomicBool::new(false);

/// Serves as a tool wrapper and ends the process, if the process was started for that; else returns
/// at once. A program that calls this first in `main` can be its own wrapper. A program that does
/// not call it runs commands in its own process: if it crashes, their results are lost and they may
/// keep running.
pub fn serve_if_asked() {
    sandbox::enter_if_asked();
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(ASKED)) {
        return CAN_SERVE.store(true, Ordering::Relaxed);
    }
    std::process::exit(serve::serve(arguments.map(PathBuf::from).collect()));
}

/// The program that runs as a wrapper, and the secrets that it removes from results.
#[derive(Clone, Debug)]
pub struct Wrapper {
    /// A program that calls [`serve_if_asked`].
    pub program: PathBuf,
    /// Secrets that must not be in a result.
    pub secrets: Secrets,
}

impl Wrapper {
    /// Returns the path of this program if it can serve as a wrapper.
    #[must_use]
    pub fn this_program() -> Option<PathBuf> {
        // This path finds the running program even after its file was replaced.
        CAN_SERVE.load(Ordering::Relaxed).then(|| PathBuf::from("/proc/self/exe"))
    }
}

/// Announces the call and runs its command, in a wrapper if the context has one.
pub(super) async fn perform(order: Order, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    match &context.wrapper {
        Some(program) => parent::call(program, order, context).await,
        None => {
            context.announce.announce(None).await?;
            command::run(order, ProcessGroup::OwnGroup, context).await
        }
    }
}

/// Job of a wrapper.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    key: CallKey,
    /// This wrapper, as the beginning of the call is recorded.
    process: Process,
    work: Work,
    grace_period: Duration,
    /// Time for which a command may still run when the parent is gone.
    orphan_grace: Duration,
    sandbox: Option<Policy>,
    secrets: Vec<String>,
}

/// The work of a job.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Work {
    /// A command, whose result is kept in the spool.
    Command(Order),
    /// A program that works for callsheet itself, such as a hook. Its result is not kept: it runs
    /// again after a crash.
    Program(Program),
}

/// A result in the form in which the spool keeps it and the wrapper reports it.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    v: u32,
    key: CallKey,
    /// Output of the call, or the reason why the call could not be made.
    end: Result<ToolOutput, String>,
    /// Duration of the call in milliseconds.
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

/// Returns the result that a call left in the spool, with the duration of the call. Blocks.
///
/// # Errors
/// Returns an error if there is a result that cannot be read.
pub fn spooled(
    store: &Store,
    key: &CallKey,
) -> io::Result<Option<(Result<ToolOutput, ToolError>, Duration)>> {
    let Some(bytes) = Spool::of(store).kept_result(key)? else { return Ok(None) };
    let kept = Kept::read(&bytes, key)?;
    let took = Duration::from_millis(kept.took_ms);
    Ok(Some((kept.result(), took)))
}

/// Returns true if the wrapper that was to make a call noted that its command never began: its parent was gone
/// before it said so. Only the note of the wrapper whose process is recorded counts, because an earlier process
/// of the run may have left one for the same call. Blocks.
#[must_use]
pub fn never_began(store: &Store, key: &CallKey, process: Process) -> bool {
    let noted = Spool::of(store).kept_unbegun(key).unwrap_or_else(|error| {
        tracing::warn!(%key, %error, "a note about a call cannot be read");
        None
    });
    let noted = noted.and_then(|bytes| serde_json::from_slice::<Process>(&bytes).ok());
    noted == Some(process)
}

/// Returns the arguments for a wrapper process.
fn arguments(context: &ToolContext) -> [&Path; 5] {
    let (root, store) = (context.workspace.root_path(), &context.store);
    let policy = context.sandbox.policy();
    let namespaces = policy.map_or(Namespaces::None, |policy| policy.namespaces).argument();
    [ASKED.as_ref(), namespaces.as_ref(), root, store.scratch_dir(), store.results_dir()]
}
