//! The parent's side of the protocol: starts a wrapper, records it, lets it begin, and reads its
//! result.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::live;
use super::{CANCEL, GO, Job, Kept, NOT_BEGUN, Work, Wrapper, arguments, spooled};
use crate::crash::{self, Point};
use crate::tool::command::Order;
use crate::tool::process::group::{self, Group};
use crate::tool::process::{self, Program};
use crate::tool::process_capacity;
use crate::tool::so_far;
use crate::tool::{ToolContext, ToolError, ToolOutput};
use crate::turn::Process;

/// Time for a wrapper to report after the time limit and the grace period of its work: one wait for
/// the last output of ended processes, and a few syncs of a slow disk.
const TO_REPORT: Duration = Duration::from_secs(10);

/// Most wrappers that are started for one command on a machine that has no room for it: half an hour's.
const MOST_STARTS: usize = 1_800;

/// Number of starts in vain after which the log says so.
const STARTS_BEFORE_WARNING: usize = 8;

/// Most starts after which a wrapper that does not read its job is taken for another program.
const MOST_BROKEN: usize = 20;

/// Runs a command in a wrapper. Announces the call between the start of the wrapper and the start
/// of the command, so that a command that was not announced has not run. When this returns or is
/// dropped, no process of the group lives.
pub(in crate::tool) async fn call(
    wrapper: &Wrapper,
    order: Order,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let limit = order.program.timeout;
    for (starts, pause) in process_capacity::pauses().take(MOST_STARTS).enumerate() {
        if starts == STARTS_BEFORE_WARNING {
            tracing::warn!(key = %context.key, "a command finds no room for its processes: waiting");
        }
        let work = Work::Command(order.clone());
        match Started::new(wrapper, work, context).await {
            Ok(started) => {
                crash::pass(Point::AfterSpawn);
                context.announce.announce(Some(started.process)).await?;
                match started.report(limit, context).await {
                    Ended::Reported(kept) => return kept.result(),
                    Ended::Lost => return kept_result(context).await,
                    Ended::NotBegun => {}
                }
            }
            // It ended before it read its job, and nobody has let it begin.
            Err(ToolError::Io { source, .. })
                if source.kind() == io::ErrorKind::BrokenPipe && starts < MOST_BROKEN => {}
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = context.cancel.cancelled() => return Err(ToolError::Cancelled),
            () = tokio::time::sleep(pause) => {}
        }
    }
    let reason = "the command was not started: the machine has no room for its processes";
    Err(ToolError::Failed(reason.to_owned()))
}

/// How a wrapper ended.
enum Ended {
    /// With a report.
    Reported(Box<Kept>),
    /// Without one: it was ended from outside, or was stopped and so could not keep to the limit.
    Lost,
    /// Before its command began: it can be started again.
    NotBegun,
}

/// Runs a program in a wrapper; nothing of it is recorded or kept.
pub(in crate::tool) async fn run_program(
    wrapper: &Wrapper,
    program: Program,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let limit = program.timeout;
    let started = Started::new(wrapper, Work::Program(program), context).await?;
    match started.report(limit, context).await {
        Ended::Reported(kept) => kept.result(),
        Ended::Lost | Ended::NotBegun => Err(ToolError::Lost(None)),
    }
}

/// Returns the result that a wrapper kept before it was ended from outside.
async fn kept_result(context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let (store, key) = (context.store.clone(), context.key.clone());
    let look = move || match spooled(&store, &key) {
        Ok(Some((result, _))) => result,
        Ok(None) | Err(_) => Err(ToolError::Lost(so_far::left(&store, &key).map(Box::new))),
    };
    tokio::task::spawn_blocking(look).await.unwrap_or(Err(ToolError::Lost(None)))
}

/// A running wrapper with its pipes.
struct Started {
    child: Child,
    group: Group,
    control: ChildStdin,
    reports: ChildStdout,
    process: Process,
}

impl Started {
    /// Starts a wrapper and sends it the job.
    async fn new(wrapper: &Wrapper, work: Work, context: &ToolContext) -> Result<Self, ToolError> {
        let job = |process| Job {
            key: context.key.clone(),
            process,
            work,
            grace_period: context.grace_period,
            orphan_grace: context.orphan_grace,
            sandbox: context.sandbox.policy().cloned(),
            secrets: wrapper.secrets.texts().to_vec(),
        };
        let start = async {
            let spawn = || Self::spawn(wrapper, context);
            let mut started = process_capacity::start(&context.cancel, spawn).await?;
            started.tell(&serde_json::to_string(&job(started.process))?).await?;
            Ok(started)
        };
        let what = || "start the wrapper of a command".to_owned();
        start.await.map_err(|source| ToolError::Io { what: what(), source })
    }

    fn spawn(wrapper: &Wrapper, context: &ToolContext) -> io::Result<Self> {
        let mut command = Command::new(&wrapper.program);
        process::set_environment(&mut command, context);
        if let Some((variable, value)) = crash::for_wrapper() {
            command.env_remove(variable).envs(value.map(|value| (variable, value)));
        }
        command.args(arguments(context));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let (mut child, group) = process::spawn_leader(&mut command)?;
        let (Some(control), Some(reports)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the wrapper has no pipes"));
        };
        let starttime = group::start_of(&group);
        let starttime = starttime.ok_or_else(|| io::Error::other("the wrapper has ended"))?;
        let process = Process { pgid: group.number(), starttime };
        Ok(Self { child, group, control, reports, process })
    }

    async fn tell(&mut self, line: &str) -> io::Result<()> {
        self.control.write_all(format!("{line}\n").as_bytes()).await
    }

    /// Lets the work begin, and returns the report of the wrapper.
    async fn report(mut self, limit: Duration, context: &ToolContext) -> Ended {
        // A write to a wrapper that is gone fails; its missing report shows that below.
        let _ = self.tell(GO).await;
        crash::pass(Point::AfterGo);
        let limit = limit.saturating_add(context.grace_period).saturating_add(TO_REPORT);
        let told = tokio::time::timeout(limit, self.everything(context)).await;
        let Self { mut child, group, .. } = self;
        // The group is dropped before the wait: after the wait, the system may give its number to
        // another group.
        drop(group);
        let ended = child.wait().await;
        let told = told.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if ended.as_ref().is_ok_and(|status| status.code() == Some(NOT_BEGUN)) {
            return Ended::NotBegun;
        }
        let kept = ended.and(told).and_then(|bytes| Kept::read(&bytes, &context.key));
        if let Err(error) = &kept {
            tracing::warn!(key = %context.key, %error, "a wrapper ended without a report");
        }
        kept.map_or(Ended::Lost, |kept| Ended::Reported(Box::new(kept)))
    }

    /// Reads everything that the wrapper writes, passes on what its command prints, and sends it a line when the call is cancelled.
    async fn everything(&mut self, context: &ToolContext) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut told = false;
        loop {
            tokio::select! {
                read = self.reports.read_buf(&mut bytes) => {
                    if read? == 0 {
                        return Ok(bytes);
                    }
                    live::take_lines(&mut bytes, context.printing.as_deref());
                }
                () = context.cancel.cancelled(), if !told => {
                    told = true;
                    let line = format!("{CANCEL}\n");
                    // A wrapper that is gone has nothing to cancel.
                    let _ = self.control.write_all(line.as_bytes()).await;
                }
            }
        }
    }
}
