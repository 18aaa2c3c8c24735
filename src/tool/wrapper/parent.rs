//! The parent's side: starts a wrapper, records it, lets it go, and takes its result.

use std::io;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{CANCEL, GO, Job, Kept, Wrapper, arguments, spooled};
use crate::crash::{self, Point};
use crate::tool::bash::Order;
use crate::tool::bash::group::{self, Group};
use crate::tool::bash::process;
use crate::tool::{ToolContext, ToolError, ToolOutput};
use crate::turn::Process;

/// Has a wrapper run a command. The call is announced between the start of the wrapper and that of
/// the command, so that a command that was not announced has not run. When this returns or is
/// dropped, no process of the group lives.
pub(in crate::tool) async fn call(
    wrapper: &Wrapper,
    order: &Order,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let starting = |source| ToolError::Io { what: "start the command".to_owned(), source };
    let mut started = Started::new(wrapper, context).map_err(starting)?;
    started.tell(&job(wrapper, order, context)?).await.map_err(starting)?;
    crash::pass(Point::AfterSpawn);
    context.announce.announce(Some(started.process)).await?;
    // One that is gone by now reports nothing, which says it all.
    let _ = started.tell(GO).await;
    crash::pass(Point::AfterGo);
    let told = started.report(context).await;
    let Started { mut child, group, control, .. } = started;
    // Before the wait: after it, the number of the group might be another's.
    drop(group);
    drop(control);
    child.wait().await.map_err(starting)?;
    match told.and_then(|bytes| Kept::read(&bytes, &context.key)) {
        Ok(kept) => kept.report.into_result(),
        Err(error) => {
            tracing::warn!(key = %context.key, %error, "a wrapper ended without a report");
            kept_result(context).await
        }
    }
}

fn job(wrapper: &Wrapper, order: &Order, context: &ToolContext) -> Result<String, ToolError> {
    let job = Job {
        key: context.key.clone(),
        order: order.clone(),
        grace_period: context.grace_period,
        secrets: wrapper.secrets.texts().to_vec(),
    };
    serde_json::to_string(&job).map_err(|error| ToolError::Failed(error.to_string()))
}

/// What a wrapper has left that was ended from outside.
async fn kept_result(context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let (spool, key) = (context.spool.clone(), context.key.clone());
    let kept = tokio::task::spawn_blocking(move || spooled(&spool, &key)).await;
    match kept.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(Some((result, _))) => result,
        Ok(None) | Err(_) => Err(ToolError::Lost),
    }
}

/// A wrapper at work.
struct Started {
    child: Child,
    group: Group,
    control: ChildStdin,
    reports: ChildStdout,
    process: Process,
}

impl Started {
    fn new(wrapper: &Wrapper, context: &ToolContext) -> io::Result<Self> {
        let mut command = Command::new(&wrapper.program);
        process::set_environment(&mut command, context);
        if let Some((variable, value)) = crash::for_wrapper() {
            command.env_remove(variable).envs(value.map(|value| (variable, value)));
        }
        command.args(arguments(context.workspace.root_path(), &context.spool));
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

    /// Everything that the wrapper reports; tells it when the call is cancelled.
    async fn report(&mut self, context: &ToolContext) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut told = false;
        loop {
            tokio::select! {
                read = self.reports.read_buf(&mut bytes) => {
                    if read? == 0 {
                        return Ok(bytes);
                    }
                }
                () = context.cancel.cancelled(), if !told => {
                    told = true;
                    let line = format!("{CANCEL}\n");
                    // One that is gone needs not be told.
                    let _ = self.control.write_all(line.as_bytes()).await;
                }
            }
        }
    }
}
