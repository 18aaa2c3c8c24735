//! The wrapper's side: one command from the job to the kept result.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{GO, Job, Kept, Report, VERSION};
use crate::crash::{self, Point};
use crate::redaction::Secrets;
use crate::tool::bash;
use crate::tool::bash::group::Group;
use crate::tool::bash::process::Place;
use crate::tool::spool::Spool;
use crate::tool::workspace::Workspace;
use crate::tool::{ToolContext, ToolOutput};

/// What the wrapper ends with when it was not started as one: as the program does for a bug.
const NOT_A_WRAPPER: i32 = 70;

/// Serves one call. The group ends with the call, and this process with the group.
pub(super) fn serve(arguments: Vec<PathBuf>) -> i32 {
    let leads = rustix::process::getpgrp() == rustix::process::getpid();
    let Ok([root, scratch, results]) = <[PathBuf; 3]>::try_from(arguments) else {
        return NOT_A_WRAPPER;
    };
    // What is not the leader of a group must not end the group.
    if !leads {
        return NOT_A_WRAPPER;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.and_then(|runtime| {
        runtime.block_on(answer(&root, Arc::new(Spool::new(scratch, results))))
    });
    Group::own().kill_all();
    // Not reached: the kill has ended this process.
    i32::from(served.is_err())
}

type Control = Lines<BufReader<Receiver>>;

async fn answer(root: &Path, spool: Arc<Spool>) -> io::Result<()> {
    // The polite signal goes to the whole group; this process has a result to see to.
    let _polite = signal(SignalKind::terminate())?;
    let control = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut control = BufReader::new(control).lines();
    let Some(job) = control.next_line().await? else { return Ok(()) };
    let job: Job = serde_json::from_str(&job)?;
    let workspace = Arc::new(Workspace::open(root)?);
    if control.next_line().await?.as_deref() != Some(GO) {
        return Ok(());
    }
    let began = Instant::now();
    let mut report = perform(&job, workspace, spool.clone(), &mut control).await;
    crash::pass(Point::WrapperAfterEffect);
    crash::pass_parent(Point::ParentAfterEffect);
    match &mut report {
        Report::Done(ToolOutput { text, .. }) | Report::Failed(text) => {
            Secrets::new(job.secrets).redact(text);
        }
        Report::Cancelled => {}
    }
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let kept = Kept { v: VERSION, key: job.key, report, took_ms };
    let bytes = serde_json::to_vec(&kept)?;
    // A result that cannot be kept is still a result: the parent may live to record it.
    let _unkept = spool.keep_result(&kept.key, &bytes);
    crash::pass(Point::WrapperAfterSpool);
    crash::pass_parent(Point::ParentAfterSpool);
    io::stdout().write_all(&bytes)?;
    io::stdout().flush()
}

/// Runs the command until it ends. When the parent is gone before, so is this process.
async fn perform(
    job: &Job,
    workspace: Arc<Workspace>,
    spool: Arc<Spool>,
    control: &mut Control,
) -> Report {
    let cancel = CancellationToken::new();
    let context = ToolContext {
        workspace,
        spool,
        key: job.key.clone(),
        // This process was given the environment that the command is to have.
        env: Arc::default(),
        hidden_env: Arc::default(),
        skills: Arc::default(),
        timeout: Duration::MAX,
        grace_period: job.grace_period,
        cancel: cancel.clone(),
        announce: Arc::new(()),
        wrapper: None,
    };
    let mut work = pin!(bash::run(&job.order, Place::ThisGroup, &context));
    loop {
        tokio::select! {
            result = &mut work => return result.into(),
            line = control.next_line() => match line {
                Ok(Some(_cancel)) => cancel.cancel(),
                // The group is killed before the drop of the work could end it one by one.
                Ok(None) | Err(_) => Group::own().kill_all(),
            },
        }
    }
}
