//! The first process of a process namespace: it starts the command, and reaps what that leaves.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::process::Command;

use nix::sys::signal::{self, SigSet, Signal};
use nix::unistd;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};

use crate::tool::process_capacity;

/// Runs the command and ends this process as the command ended. When this process ends, the kernel
/// kills the others of the namespace.
///
/// If the command leaves processes behind, writes the exit code to `left`, and goes on until the
/// last of them has ended. From then on a SIGTERM is for all of them: those that have left the
/// process group hear no other.
///
/// Returns only if the command could not be started.
pub(super) fn run(command: &mut Command, left: Option<File>) -> io::Error {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    match runtime.and_then(|runtime| runtime.block_on(serve(command, left))) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

/// Holds a SIGTERM back until this process handles it. The kernel would drop it: the first process of a
/// namespace gets only signals that it handles.
pub(super) fn hold_back() -> nix::Result<()> {
    SigSet::from(Signal::SIGTERM).thread_block()
}

/// Takes back what [`hold_back`] did.
pub(super) fn let_through() -> nix::Result<()> {
    SigSet::from(Signal::SIGTERM).thread_unblock()
}

async fn serve(command: &mut Command, mut left: Option<File>) -> io::Result<Infallible> {
    // The kernel gives the first process of a namespace only signals that it asks for.
    let mut of_child = signal(SignalKind::child())?;
    let mut of_group = signal(SignalKind::terminate())?;
    // A command with the same user could write the memory of this process otherwise.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Before the command starts: it would inherit the block, and hear no SIGTERM.
    let_through()?;
    let start = process_capacity::start_soon(|| command.spawn());
    let started = tokio::select! {
        started = start => started?.id(),
        // It was told to end before there was room for it.
        _ = of_group.recv() => return Err(io::ErrorKind::Interrupted.into()),
    };
    let (mut ended, mut is_asked) = (None, has_come(&mut of_group).await);
    if is_asked {
        // The command may not have been there when its group got the signal.
        let of_command = i32::try_from(started).map(unistd::Pid::from_raw);
        let _may_have_ended = of_command.map(|command| signal::kill(command, Signal::SIGTERM));
    }
    loop {
        let others = reap(started, &mut ended)?;
        match ended {
            Some(code) if !others => std::process::exit(code),
            Some(code) => {
                if let Some(mut left) = left.take() {
                    // The reader may be gone: then nobody waits for the code.
                    let _ = left.write_all(&code.to_le_bytes());
                }
                if std::mem::take(&mut is_asked) {
                    // All but this process.
                    let _none_left = signal::kill(unistd::Pid::from_raw(-1), Signal::SIGTERM);
                }
            }
            None => {}
        }
        tokio::select! {
            _ = of_child.recv() => {}
            _ = of_group.recv() => is_asked = true,
        }
    }
}

/// Returns true if a signal has come until now.
async fn has_come(signals: &mut tokio::signal::unix::Signal) -> bool {
    // The runtime looks for signals when nothing else is left to do.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        _ = signals.recv() => true,
        () = std::future::ready(()) => false,
    }
}

/// Takes the ends of all processes that have ended; that of the command is kept in `ended`. Returns
/// true if others live.
fn reap(command: u32, ended: &mut Option<i32>) -> io::Result<bool> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if is(pid, command) => *ended = Some(exit_code(status)),
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return Ok(true),
            Err(rustix::io::Errno::CHILD) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is(pid: Pid, number: u32) -> bool {
    u32::try_from(pid.as_raw_nonzero().get()) == Ok(number)
}

/// Returns the exit code of a process, as shells give that of one that a signal ended.
fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(1)
}
