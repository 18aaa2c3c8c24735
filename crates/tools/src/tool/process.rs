//! Runs one command: starts it, feeds it, reads its output, and ends it with everything it started.
//!
//! Owns processes, not the wording of results. Memory stays bounded whatever the command prints.

pub(super) mod group;
mod writing;

use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::group::{Group, KEY_VARIABLE};
pub use self::group::{Remains, end_remains, has_wrapper, kill_all_groups, killed_groups_are_gone};
use self::writing::Writing;
use crate::output::Output;
use crate::store::{INLINE_CHARS_FAILED, MEMORY_BYTES, OpenLine, StoreWriter};
use crate::tool::environment::{self, Environment};
use crate::tool::printing::Lines;
use crate::tool::process_capacity;
use crate::tool::sandbox::{self, Input, LeftBehind, Policy, RefusedHosts};
use crate::tool::so_far;
use crate::tool::spool::SoFar;
use crate::tool::{Ending, ToolContext, ToolError, ToolOutput};

/// Time for which the output is still read after the command has ended while a process keeps it
/// open; also the longest time that processes which the command left behind have to end.
const LINGER: Duration = Duration::from_secs(1);

/// The most turns for which one stream waits until the other is read.
const TURNS: usize = 50;

/// Keeps other processes of the user from reading the memory and the environment of this process,
/// which hold keys, and from writing them to a core file.
///
/// # Errors
/// Returns an error where the system does not know this.
pub fn hide_memory() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// Process group in which a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tool) enum ProcessGroup {
    /// A new process group.
    OwnGroup,
    /// The group that this process leads and that holds only this process.
    ThisGroup,
}

/// Treatment of a program's stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::tool) enum Errors {
    /// It is a part of the output.
    Joined,
    /// It is kept apart from the output.
    Apart,
}

/// A program to run, with its input and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tool) struct Program {
    /// Name and arguments. A path is relative to the workspace root; a bare name is searched for in
    /// `PATH`.
    pub(in crate::tool) argv: Vec<String>,
    /// Folder in which the program runs, relative to the workspace root; empty for the root.
    pub(in crate::tool) folder: PathBuf,
    /// Text for the stdin of the program; absent if it has none.
    pub(in crate::tool) input: Option<String>,
    /// Treatment of its stderr.
    pub(in crate::tool) errors: Errors,
    /// Time limit of the program.
    pub(in crate::tool) timeout: Duration,
    /// Longest output that is given whole, in characters.
    pub(in crate::tool) inline_chars: usize,
}

/// Runs a program. When this returns or is dropped, no process of its group lives, except this
/// process where it is a member.
pub(super) async fn run(
    program: Program,
    place: ProcessGroup,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    run_noting(program, place, context, &RefusedHosts::default()).await
}

/// Does the same, and notes the hosts that the sandbox refuses to the program.
pub(super) async fn run_noting(
    program: Program,
    place: ProcessGroup,
    context: &ToolContext,
    refused: &RefusedHosts,
) -> Result<ToolOutput, ToolError> {
    let Program { argv, folder, input, errors, timeout, inline_chars } = program;
    let (name, arguments) = match argv.split_first() {
        Some((name, rest)) => (name.as_str(), rest),
        None => ("", argv.as_slice()),
    };
    let start = async {
        let root = context.workspace.root_path();
        let is_path = name.contains('/');
        let found = if is_path { root.join(name).into() } else { name.into() };
        let argv: Vec<_> = std::iter::once(found).chain(arguments.iter().map(Into::into)).collect();
        let (output, writer) = io::pipe()?;
        let stdin = if input.is_some() { Input::Pipe } else { Input::None };
        let mut command = enclosed(stdin, &argv, context);
        let errors = match errors {
            Errors::Joined => {
                command.stdout(writer.try_clone()?).stderr(writer);
                None
            }
            Errors::Apart => {
                let (errors, error_writer) = io::pipe()?;
                command.stdout(writer).stderr(error_writer);
                Some(errors)
            }
        };
        command.current_dir(root.join(folder));
        started(command, output, errors, place, context, refused).await
    };
    let started = start.await.map_err(|source| io_error(&format!("start `{name}`"), source))?;
    let input = input.unwrap_or_default().into_bytes();
    finished(started, input, timeout, inline_chars, context).await
}

fn io_error(what: &str, source: io::Error) -> ToolError {
    ToolError::Io { what: what.to_owned(), source }
}

/// Returns the command for a program, in the sandbox if there is one.
fn enclosed(input: Input, argv: &[OsString], context: &ToolContext) -> Command {
    if context.sandbox.policy().is_some() {
        return Policy::enclosed(input, argv);
    }
    let mut command = Command::new(argv.first().map_or("".as_ref(), OsString::as_os_str));
    command.args(argv.iter().skip(1)).stdin(match input {
        Input::None => Stdio::null(),
        Input::Pipe => Stdio::piped(),
    });
    command
}

/// A running command with its process group and its pipes.
struct Started {
    child: Child,
    left: Option<LeftBehind>,
    group: Group,
    output: Receiver,
    errors: Option<Receiver>,
}

async fn started(
    mut command: Command,
    output: PipeReader,
    errors: Option<PipeReader>,
    place: ProcessGroup,
    context: &ToolContext,
    refused: &RefusedHosts,
) -> io::Result<Started> {
    set_environment(&mut command, context);
    command.kill_on_drop(true);
    let (child, group, left) = match (place, context.sandbox.policy()) {
        (ProcessGroup::OwnGroup, _) => {
            let (child, group) =
                process_capacity::start(&context.cancel, || spawn_leader(&mut command)).await?;
            (child, group, None)
        }
        (ProcessGroup::ThisGroup, Some(policy)) => {
            // Entering the sandbox takes no time of the call: the parent records meanwhile that the
            // command begins.
            let (mut child, mut left) = sandbox::start(policy, &mut command, refused)?;
            context.announce.announce(None).await.map_err(io::Error::other)?;
            sandbox::begin(policy, &mut child, left.as_mut()).await;
            (child, Group::own(), left)
        }
        (ProcessGroup::ThisGroup, None) => {
            context.announce.announce(None).await.map_err(io::Error::other)?;
            (process_capacity::start_soon(|| command.spawn()).await?, Group::own(), None)
        }
    };
    let receiver = |pipe: PipeReader| Receiver::from_owned_fd(OwnedFd::from(pipe));
    let errors = errors.map(receiver).transpose()?;
    Ok(Started { child, left, group, output: receiver(output)?, errors })
}

/// Sets the environment of the call on a command.
pub(in crate::tool) fn set_environment(command: &mut Command, context: &ToolContext) {
    match &context.env {
        Environment::Only(variables) if context.wrapper.is_some() => {
            environment::hold(command.env_clear(), variables);
        }
        Environment::Only(variables) => drop(command.env_clear().envs(variables.iter())),
        // The process that enters the sandbox restores them at the end.
        Environment::Inherited if context.sandbox.policy().is_some() => {}
        Environment::Inherited => environment::restore(command.as_std_mut()),
    }
    command.env(KEY_VARIABLE, context.key.as_str());
}

/// Starts a command as the leader of a process group.
pub(in crate::tool) fn spawn_leader(command: &mut Command) -> io::Result<(Child, Group)> {
    let child = command.process_group(0).spawn()?;
    let group = child.id().and_then(Group::led_by);
    let group = group.ok_or_else(|| io::Error::other("the process has no id"))?;
    Ok((child, group))
}

async fn finished(
    started: Started,
    input: Vec<u8>,
    timeout: Duration,
    inline_chars: usize,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let Started { mut child, left, group, output, errors } = started;
    let (ended, closed) = (CancellationToken::new(), CancellationToken::new());
    let stdin = child.stdin.take();
    let (is_apart, printing) = (errors.is_some(), context.printing.as_deref());
    let lines =
        (is_apart || printing.is_some()).then(|| Lines::new(&context.store, printing.is_some()));
    let lines = lines.as_ref();
    let passing = lines.and_then(Lines::waiting).zip(printing);
    let pass_on = async {
        if let Some((waiting, printing)) = passing {
            waiting.pass_on(printing, &ended).await;
        }
    };
    let keep_last_lines = async {
        if let Some(lines) = lines.filter(|_| is_apart && printing.is_some()) {
            so_far::keep_last_lines(lines, context, &ended).await;
        }
    };
    let ((ending, left_behind), (output, errors), (), (), ()) = tokio::join!(
        async {
            let result = watch(child, left, group, timeout, context, &closed).await;
            ended.cancel();
            result
        },
        async {
            let into = |stream, first| {
                let writer = so_far::writer(context, stream);
                Drain { writer, first, lines, ended: &ended }
            };
            let first = errors.as_ref().and_then(|_| output.as_fd().try_clone_to_owned().ok());
            let output = into(SoFar::Stdout, None).all_of(Some(output));
            let drained = tokio::join!(output, into(SoFar::Stderr, first).all_of(errors));
            closed.cancel();
            drained
        },
        feed(stdin, &input, &ended),
        pass_on,
        keep_last_lines,
    );
    if let Some((waiting, printing)) = passing {
        waiting.flush(printing);
    }
    let ending = ending.map_err(|source| io_error("wait for the command", source))?;
    let inline = match ending {
        Ending::Exited(0) => inline_chars,
        _ => inline_chars.min(INLINE_CHARS_FAILED),
    };
    let inline_errors = inline.min(INLINE_CHARS_FAILED);
    let finish = move || Ok((output?.finish(inline)?, errors?.finish(inline_errors)?));
    let printed = tokio::task::spawn_blocking(finish).await.map_err(io::Error::other);
    let printed = printed.and_then(|printed| printed);
    let (output, errors) = printed.map_err(|source| io_error("store the output", source))?;
    let Output { text, stored } = output;
    let Output { text: errors, stored: errors_stored } = errors;
    let last_lines = lines.filter(|_| is_apart).map(Lines::finish);
    Ok(ToolOutput {
        text,
        stored,
        ending,
        errors,
        errors_stored,
        last_lines: last_lines.unwrap_or_default(),
        sandbox: None,
        left_behind,
        attached: None,
        file: None,
    })
}

/// Writes the input to the command, which need not read it.
async fn feed(stdin: Option<ChildStdin>, input: &[u8], ended: &CancellationToken) {
    let Some(mut stdin) = stdin else { return };
    tokio::select! {
        () = ended.cancelled() => {}
        _unread = stdin.write_all(input) => {}
    }
}

/// Waits until the command and its group have ended, and ends them on cancellation or at the time
/// limit. Returns the ending, and true if processes were left behind.
async fn watch(
    mut child: Child,
    mut left: Option<LeftBehind>,
    mut group: Group,
    timeout: Duration,
    context: &ToolContext,
    closed: &CancellationToken,
) -> (io::Result<Ending>, bool) {
    let told: fn(Option<i32>) -> Ending = tokio::select! {
        // A command that has already ended counts as ended, even if the call was cancelled at the
        // same moment.
        biased;
        code = code(&mut child, &mut left) => {
            // The group is checked only after this wait: a process that is about to end, such as
            // one of a pipeline, does not count as left behind.
            wait_briefly(closed).await;
            let left_behind = group.is_alive().await;
            if left_behind {
                group.end(context.grace_period.min(LINGER)).await;
            }
            let ending = code.map(Ending::Exited);
            return (ending, !wait_briefly(closed).await || left_behind);
        }
        () = context.cancel.cancelled() => Ending::Cancelled,
        () = tokio::time::sleep(timeout) => Ending::TimedOut,
    };
    let (by_itself, status) = tokio::join!(group.end(context.grace_period), child.wait());
    let ending = status.map(|status| told(by_itself.then(|| exit_code(status))));
    (ending, !wait_briefly(closed).await)
}

/// Waits until the command has ended, and returns its exit code. In a process namespace, the process
/// that was started lives as long as what the command left behind.
async fn code(child: &mut Child, left: &mut Option<LeftBehind>) -> io::Result<i32> {
    tokio::select! {
        biased;
        status = child.wait() => status.map(exit_code),
        Some(code) = async { Some(left.as_mut()?.code().await) } => Ok(code),
    }
}

/// Waits up to [`LINGER`] until the output is closed, so that the last lines of ended processes are
/// read. Returns true if it is closed; a process that left the group may keep it open for ever.
async fn wait_briefly(closed: &CancellationToken) -> bool {
    tokio::time::timeout(LINGER, closed.cancelled()).await.is_ok()
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Where the bytes of a stream go.
struct Drain<'a> {
    writer: StoreWriter,
    /// The stream whose bytes come first, where both have some: which were written first, nobody can tell.
    first: Option<OwnedFd>,
    /// The lines of this stream and of the other, if anybody wants them.
    lines: Option<&'a Lines>,
    ended: &'a CancellationToken,
}

impl Drain<'_> {
    /// Reads a stream until it is closed or the command has `ended`. If the disk refuses the output,
    /// this reads on and drops the rest, so that the command is not blocked, and returns the error at
    /// the end.
    async fn all_of(self, pipe: Option<Receiver>) -> io::Result<StoreWriter> {
        let Self { writer, first, lines, ended } = self;
        let is_error = first.is_some();
        let Some(mut pipe) = pipe else { return Ok(writer) };
        let (mut buffer, mut line) = (Vec::with_capacity(MEMORY_BYTES), OpenLine::default());
        let mut writing = Writing::new(writer);
        // When others can read what they cannot yet.
        let mut due: Option<Instant> = None;
        let end = loop {
            let is_due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let (before, is_under_way) = (buffer.len(), writing.is_under_way());
            let read = tokio::select! {
                biased;
                () = ended.cancelled() => break Ok(()),
                // These two come before the read, which may be ready again and again.
                () = writing.done(), if is_under_way => None,
                () = is_due, if !is_under_way => None,
                // Also while a write is under way: a line that waits in the pipe is overtaken by one of the other
                // stream, and a pipe that is full blocks the command.
                read = pipe.read_buf(&mut buffer), if before < MEMORY_BYTES => Some(read),
            };
            let Some(read) = read else {
                if due.is_some_and(|due| due <= Instant::now()) {
                    due = None;
                    writing.lay_open();
                }
                writing.write(&mut buffer);
                continue;
            };
            match read {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
            if let Some(first) = &first {
                until_read(first).await;
            }
            due.get_or_insert_with(|| Instant::now() + so_far::PAUSE);
            if let Some(lines) = lines {
                lines.take(&mut line, &buffer[before..], is_error);
            }
            writing.write(&mut buffer);
        };
        if let Some(lines) = lines {
            lines.end(line, is_error);
        }
        let written = writing.finish(buffer).await;
        end.and(written)
    }
}

/// Lets the reader of a stream take what is there. It runs beside this and needs no more than a turn, unless the disk
/// makes it wait.
async fn until_read(stream: &OwnedFd) {
    for _ in 0..TURNS {
        let mut ends = [PollFd::new(stream, PollFlags::IN)];
        let is_read = poll(&mut ends, Some(&Timespec::default()));
        if !is_read.is_ok_and(|ready| ready > 0) || !ends[0].revents().contains(PollFlags::IN) {
            return;
        }
        tokio::task::yield_now().await;
    }
}
