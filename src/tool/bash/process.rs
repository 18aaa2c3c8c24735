//! One shell command: started, drained and ended, with everything that it started.
//!
//! Owns processes, not wording. Memory stays bounded whatever the command prints.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::group::Group;
use crate::output::Output;
use crate::tool::spool::{INLINE_CHARS, INLINE_CHARS_FAILED, MEMORY_BYTES, SpoolWriter};
use crate::tool::{ToolContext, ToolError};

/// How long the output is still read after the command has ended while something keeps it open,
/// and how long what a command left behind may take to end.
const LINGER: Duration = Duration::from_secs(1);

/// The environment variable that holds the call's idempotency key, for commands that can use one.
const KEY_VARIABLE: &str = "CALLSHEET_CALL_KEY";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By itself, with this exit code; 128 + n when signal n ended it.
    Exited(i32),
    /// It took too long.
    TimedOut,
    /// The call was cancelled.
    Cancelled,
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    /// How.
    pub(super) ending: Ending,
    /// What it printed.
    pub(super) output: Output,
    /// Whether processes were left behind and had to be ended.
    pub(super) left_behind: bool,
}

/// Runs `sh -c command` in the workspace root, in a process group of its own. When this returns
/// or is dropped, no process of the group lives.
pub(super) async fn run(
    command: &str,
    timeout: Duration,
    context: &ToolContext,
) -> Result<Finished, ToolError> {
    let started = start(command, context);
    let (child, group, pipe) = started.map_err(|source| io_error("start the command", source))?;
    let ended = CancellationToken::new();
    let closed = CancellationToken::new();
    let writer = context.spool.writer();
    let ((ending, left_behind), drained) = tokio::join!(
        async {
            let result = watch(child, group, timeout, context, &closed).await;
            ended.cancel();
            result
        },
        drain(pipe, writer, &ended, &closed),
    );
    let ending = ending.map_err(|source| io_error("wait for the command", source))?;
    let inline = match ending {
        Ending::Cancelled => return Err(ToolError::Cancelled),
        Ending::Exited(0) => INLINE_CHARS,
        Ending::Exited(_) | Ending::TimedOut => INLINE_CHARS_FAILED,
    };
    let finish = move || drained?.finish(inline);
    let output = tokio::task::spawn_blocking(finish).await.map_err(io::Error::other);
    let output = output.and_then(|output| output);
    let output = output.map_err(|source| io_error("store the output", source))?;
    Ok(Finished { ending, output, left_behind })
}

fn io_error(what: &str, source: io::Error) -> ToolError {
    ToolError::Io { what: what.to_owned(), source }
}

fn start(command: &str, context: &ToolContext) -> io::Result<(Child, Group, Receiver)> {
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    for name in context.hidden_env.iter() {
        shell.env_remove(name);
    }
    let child = shell
        .arg("-c")
        .arg(command)
        .current_dir(context.workspace.root_path())
        .env(KEY_VARIABLE, context.key.as_str())
        .envs(context.env.iter())
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = child.id().and_then(Group::led_by);
    let group = group.ok_or_else(|| io::Error::other("the process has no id"))?;
    let pipe = Receiver::from_owned_fd(OwnedFd::from(reader))?;
    Ok((child, group, pipe))
}

/// Waits until the command and its group have ended, and makes them end where they have to. Says
/// whether something was left behind.
async fn watch(
    mut child: Child,
    mut group: Group,
    timeout: Duration,
    context: &ToolContext,
    closed: &CancellationToken,
) -> (io::Result<Ending>, bool) {
    let ending = tokio::select! {
        status = child.wait() => status.map(|status| Ending::Exited(exit_code(status))),
        () = context.cancel.cancelled() => Ok(Ending::Cancelled),
        () = tokio::time::sleep(timeout) => Ok(Ending::TimedOut),
    };
    let mut left_behind = false;
    match ending {
        Ok(Ending::Exited(_)) => {
            wait_briefly(closed).await;
            if group.is_alive().await {
                left_behind = true;
                group.end(context.grace_period.min(LINGER)).await;
            }
        }
        Ok(Ending::TimedOut | Ending::Cancelled) | Err(_) => {
            let reaped = tokio::join!(group.end(context.grace_period), child.wait()).1;
            if let Err(error) = reaped {
                return (Err(error), false);
            }
        }
    }
    // What the dead have printed; a process that left the group may keep the pipe open for ever.
    if !wait_briefly(closed).await {
        left_behind = true;
    }
    (ending, left_behind)
}

/// Waits a short time until the output is closed, and says whether it is.
async fn wait_briefly(closed: &CancellationToken) -> bool {
    tokio::time::timeout(LINGER, closed.cancelled()).await.is_ok()
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Reads the output until it is closed or the command has `ended`. When the disk refuses, the
/// rest is read and dropped, so that the command is not blocked; the error is told at its end.
async fn drain(
    mut pipe: Receiver,
    writer: SpoolWriter,
    ended: &CancellationToken,
    closed: &CancellationToken,
) -> io::Result<SpoolWriter> {
    let mut writer = Ok(writer);
    let mut buffer = Vec::with_capacity(MEMORY_BYTES);
    loop {
        let read = tokio::select! {
            biased;
            () = ended.cancelled() => return writer,
            read = pipe.read_buf(&mut buffer) => read,
        };
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                writer = Err(error);
                break;
            }
        }
        if let Ok(spool) = writer {
            (writer, buffer) = write(spool, buffer).await;
        }
        buffer.clear();
    }
    closed.cancel();
    writer
}

async fn write(spool: SpoolWriter, bytes: Vec<u8>) -> (io::Result<SpoolWriter>, Vec<u8>) {
    if spool.stays_in_memory(bytes.len()) {
        return (spool.write(&bytes), bytes);
    }
    let write = move || (spool.write(&bytes), bytes);
    let written = tokio::task::spawn_blocking(write).await;
    written.unwrap_or_else(|error| (Err(io::Error::other(error)), Vec::new()))
}
