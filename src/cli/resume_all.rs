//! `resume --all`: every run of a folder that was stopped before its end, several at once, each in a process
//! of its own.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use super::detach::{NAME, THIS_PROGRAM};
use super::locate::Project;
use super::short_id::ShortIds;
use super::stream::Stream;
use super::{complain, refusal, runtime};
use crate::exit::Exit;
use crate::journal::JournalError;
use crate::journal::source::RecordedRun;
use crate::report;

/// The most runs that are resumed at the same time: each may have many agents and commands.
const AT_ONCE: usize = 4;

/// Returns those of the runs that were stopped before their end, and the exit code of those that cannot
/// be resumed as they are. The newest is given first, and returned last.
pub(super) fn stopped(project: &Project, runs: Vec<RecordedRun>) -> (Vec<RecordedRun>, Exit) {
    let (mut found, mut exit) = (Vec::new(), Exit::Done);
    for run in runs.into_iter().rev() {
        let live = run.is_live();
        let (state, read) = run.state(|_| {});
        let sound = read.and_then(|()| if live { Ok(()) } else { run.refuse_unsound(&state) });
        match (state, sound) {
            (state, Ok(())) if state.created().is_some() && report::is_resumable(&state, live) => {
                found.push(run);
            }
            (_, Ok(()) | Err(JournalError::NeverBegan)) => {}
            // A run that cannot be read does not hold the others up.
            (_, Err(error)) => {
                exit = exit.or(refusal::refused(&project.flags(), Some(&run), &error));
            }
        }
    }
    (found, exit)
}

/// Resumes the runs. Returns the exit code that comes first by precedence.
pub(super) fn run(project: &Project, dirs: &[RecordedRun], json: bool) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let ids = ShortIds::of_runs(project.runs().iter().map(|run| run.name()));
    let ended = runtime.block_on(all(dirs, &ids, json));
    // A blocking call that hangs must not keep the program from ending.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended.unwrap_or_else(|error| {
        complain(&format!("error: the runs could not be resumed: {error}"));
        Exit::Bug
    })
}

async fn all(dirs: &[RecordedRun], ids: &ShortIds, json: bool) -> io::Result<Exit> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [mut interrupt, mut terminate, mut hangup] =
        [signal(kinds[0])?, signal(kinds[1])?, signal(kinds[2])?];
    let (mut waiting, mut running) = (dirs.iter(), JoinSet::new());
    let (mut pids, mut worst, mut is_over) = (Vec::new(), Exit::Done, false);
    loop {
        while !is_over && running.len() < AT_ONCE {
            let Some(run) = waiting.next() else { break };
            let id = run.name();
            let child = start(&id)?;
            pids.extend(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
            let name = if json { id.clone() } else { ids.of(&id) };
            running.spawn(follow(child, name, json));
        }
        let told = tokio::select! {
            ended = running.join_next() => match ended {
                None => return Ok(worst),
                Some(ended) => {
                    worst = worst.or(ended.ok().and_then(Result::ok).unwrap_or(Exit::Bug));
                    continue;
                }
            },
            _ = interrupt.recv() => Signal::INT,
            _ = terminate.recv() => Signal::TERM,
            _ = hangup.recv() => Signal::HUP,
        };
        // The others stay stopped; those at work stop as they do alone.
        is_over = true;
        for pid in &pids {
            // Most have ended by then.
            let _ = rustix::process::kill_process(*pid, told);
        }
    }
}

/// Starts this program again for one run, with the same flags.
fn start(id: &str) -> io::Result<Child> {
    let given = std::env::args_os().skip(1).filter(|argument| argument != "--all");
    let arguments: Vec<OsString> = given.chain([OsString::from(id)]).collect();
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0(NAME);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: the terminal's signals come here, and are passed on once.
    command.process_group(0).spawn()
}

/// Prints what a run says, each line behind its name, and returns its exit code.
async fn follow(mut child: Child, name: String, json: bool) -> io::Result<Exit> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let printed =
        tokio::join!(print(out, Stream::Out, &name, json), print(err, Stream::Err, &name, false),);
    // An output that nobody reads is no reason to leave the run.
    let _unread = printed;
    let status = child.wait().await?;
    Ok(status.code().and_then(Exit::of_code).unwrap_or(Exit::Bug))
}

async fn print(
    from: Option<impl AsyncRead + Unpin>,
    to: Stream,
    name: &str,
    json: bool,
) -> io::Result<()> {
    let Some(from) = from else { return Ok(()) };
    let mut lines = BufReader::new(from).lines();
    let mut printed = Ok(());
    while let Some(line) = lines.next_line().await? {
        // The pipe is read to its end in any case: a run must not wait for who reads it.
        printed = printed.and_then(|()| match (json, line.strip_prefix('{')) {
            (true, Some(rest)) => to.print_json(&format!("{{\"run\":\"{name}\",{rest}\n")),
            _ => to.print(&format!("{name}  {line}\n")),
        });
    }
    printed
}
