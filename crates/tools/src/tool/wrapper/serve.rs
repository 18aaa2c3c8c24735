//! The wrapper's side of the protocol: one command from its job to its kept result, or one hook,
//! whose result is reported and not kept.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::live::ToParent;
use super::{GO, Job, Kept, NOT_BEGUN, VERSION, Work};
use crate::crash::{self, Point};
use crate::disk;
use crate::redaction::Secrets;
use crate::store::Store;
use crate::tool::command;
use crate::tool::environment::Environment;
use crate::tool::process::group::Group;
use crate::tool::process::{self, ProcessGroup};
use crate::tool::process_capacity;
use crate::tool::sandbox::{self, Namespaces, Policy, Sandbox, Temporary};
use crate::tool::spool::Spool;
use crate::tool::workspace::Workspace;
use crate::tool::{Announce, BoxFuture, ToolContext, ToolError, ToolOutput};
use crate::turn::Process;

/// Exit code of a process that was not started as a wrapper should be: the code for a bug of the
/// program.
const NOT_A_WRAPPER: i32 = 70;

/// Serves one call. Kills the group, and with it this process, when the call has ended.
pub(super) fn serve(arguments: Vec<PathBuf>) -> i32 {
    let leads = rustix::process::getpgrp() == rustix::process::getpid();
    let Ok([namespaces, root, scratch, results]) = <[PathBuf; 4]>::try_from(arguments) else {
        return NOT_A_WRAPPER;
    };
    let Some(namespaces) = namespaces.to_str().and_then(Namespaces::from_argument) else {
        return NOT_A_WRAPPER;
    };
    // This must come first: it needs a process with one thread that may write its own `/proc`.
    let prepared = sandbox::prepare(namespaces);
    // The job that comes holds the secrets that are redacted.
    let _unknown_here = process::hide_memory();
    // A process that does not lead its group must not kill the group: other processes are in it.
    if !leads {
        return NOT_A_WRAPPER;
    }
    // A panic before the command begins is one for want of a thread, and the parent tries again.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if HAS_BEGUN.load(Ordering::SeqCst) {
            tell(panic);
        }
    }));
    // The runtime panics where it finds no room for its first thread, so that one is kept.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::from_secs(u64::from(u32::MAX)))
        .build();
    let serve = || {
        runtime.and_then(|runtime| {
            runtime.block_on(answer(&root, Store::new(scratch, results).waiting(), prepared))
        })
    };
    let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
    let had_room = match &served {
        Ok(Ok(())) => true,
        Ok(Err(error)) => !process_capacity::is_passing(error),
        Err(_panic) => false,
    };
    if !had_room && !HAS_BEGUN.load(Ordering::SeqCst) {
        return NOT_BEGUN;
    }
    let served = served.unwrap_or_else(|_| Err(io::Error::other("a panic")));
    Group::own().kill_all();
    // Not reached: the kill has ended this process.
    i32::from(served.is_err())
}

/// True once the command may have begun.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Signals that a command or the terminal may send to the whole group. TTIN and TTOU are among them
/// because they stop a process that uses a terminal it does not own, and a stopped wrapper could
/// not end the command at its time limit.
const OF_THE_GROUP: [Signal; 9] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
];

/// Keeps this process alive when the signal comes; the processes that it starts are not affected.
fn outlive(of_group: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(of_group.as_raw()))
}

type Control = Lines<BufReader<Receiver>>;

async fn answer(root: &Path, store: Store, prepared: Result<(), String>) -> io::Result<()> {
    // A signal for the command goes to the whole group; this process must survive it to keep the
    // result.
    let _heard: Vec<_> = OF_THE_GROUP.into_iter().map(outlive).collect::<io::Result<_>>()?;
    disk::outlive_file_limits()?;
    // The thread of the runtime, which it does not ask for with care. A process that waited for room here
    // would itself take up the room of another.
    std::thread::Builder::new().spawn(|| ())?;
    tokio::task::spawn_blocking(|| ()).await?;
    let control = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut control = BufReader::new(control).lines();
    let Some(job) = control.next_line().await? else { return Ok(()) };
    let job: Job = serde_json::from_str(&job)?;
    let workspace = Arc::new(Workspace::open(root)?);
    let secrets = Secrets::new(job.secrets.iter().cloned());
    let store = Arc::new(store.redacting(secrets.clone()));
    let is_kept = matches!(job.work, Work::Command(_));
    // Taking the space costs no time: the parent records meanwhile that the command begins.
    let mut room = if is_kept { Spool::of(&store).take_room(&job.key).ok() } else { None };
    let temporary = job.sandbox.as_ref().map(Temporary::new).transpose()?;
    let enclosure = job.sandbox.clone().map(|policy| {
        let temporary = temporary.as_ref().map(|folder| folder.place().clone());
        Sandbox::On(Arc::new(Policy { temporary, ..policy }))
    });
    let (go, gone) = watch::channel(None);
    let context = ToolContext {
        announce: Arc::new(Gone(gone.clone())),
        ..context(&job, workspace, store.clone(), enclosure.unwrap_or_default())
    };
    let work = async {
        let ended = match prepared {
            Ok(()) => work(job.work, &context).await,
            Err(reason) => Err(ToolError::Failed(reason)),
        };
        if let Err(ToolError::Io { source, .. }) = &ended
            && process_capacity::is_passing(source)
            && !HAS_BEGUN.load(Ordering::SeqCst)
        {
            // The parent starts another wrapper when there is room again.
            std::process::exit(NOT_BEGUN);
        }
        // The result of a call must not be kept before the call is recorded.
        context.announce.announce(None).await?;
        ended
    };
    let never_began = || {
        let note = serde_json::to_vec(&job.process).unwrap_or_default();
        // Without the note nobody knows if the command began.
        let _unkept = is_kept.then(|| Spool::of(&store).keep_unbegun(&job.key, &note, room.take()));
    };
    let ended = perform(work, &context, &mut control, &go, never_began).await;
    let began = gone.borrow().unwrap_or_else(Instant::now);
    crash::pass(Point::WrapperAfterEffect);
    crash::pass_parent(Point::ParentAfterEffect);
    let end = match ended {
        Ok(mut output) => {
            // It names hosts, which the command has chosen.
            output.sandbox.iter_mut().for_each(|told| secrets.redact(told));
            Ok(output)
        }
        Err(error) => {
            let mut reason = error.to_string();
            secrets.redact(&mut reason);
            Err(reason)
        }
    };
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let kept = Kept { v: VERSION, key: job.key, end, took_ms };
    let bytes = serde_json::to_vec(&kept)?;
    if is_kept {
        // A result that the spool cannot keep is still reported: the parent may be alive to record
        // it.
        let _unkept = Spool::of(&store).keep_result(&kept.key, &bytes, room);
    }
    crash::pass(Point::WrapperAfterSpool);
    crash::pass_parent(Point::ParentAfterSpool);
    io::stdout().write_all(&bytes)?;
    io::stdout().flush()
}

fn context(
    job: &Job,
    workspace: Arc<Workspace>,
    store: Arc<Store>,
    sandbox: Sandbox,
) -> ToolContext {
    ToolContext {
        workspace,
        store,
        key: job.key.clone(),
        env: Environment::Inherited,
        sandbox,
        read_only: false,
        unseen: Default::default(),
        basis: Default::default(),
        skills: Arc::default(),
        media: Arc::default(),
        timeout: Duration::MAX,
        longest: Duration::MAX,
        grace_period: job.grace_period,
        // The end of a program whose result is not kept is of no use to anybody.
        orphan_grace: match job.work {
            Work::Command(_) => job.orphan_grace,
            Work::Program(_) => Duration::ZERO,
        },
        cancel: CancellationToken::new(),
        announce: Arc::new(()),
        wrapper: None,
        printing: match job.work {
            Work::Command(_) => Some(Arc::new(ToParent::default())),
            Work::Program(_) => None,
        },
    }
}

/// The time at which the parent let the work begin.
#[derive(Debug)]
struct Gone(watch::Receiver<Option<Instant>>);

impl Announce for Gone {
    /// Waits until the parent has recorded the call.
    fn announce(&self, _process: Option<Process>) -> BoxFuture<'_, Result<(), ToolError>> {
        let mut gone = self.0.clone();
        Box::pin(async move {
            let told = gone.wait_for(Option::is_some).await;
            HAS_BEGUN.fetch_or(told.is_ok(), Ordering::SeqCst);
            told.map(|_| ()).map_err(|_| ToolError::Cancelled)
        })
    }
}

async fn work(work: Work, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    match work {
        Work::Command(order) => command::run(order, ProcessGroup::ThisGroup, context).await,
        Work::Program(program) => process::run(program, ProcessGroup::ThisGroup, context).await,
    }
}

/// Does the work and returns its end. Tells `go` when the parent lets it begin. If the parent goes
/// away, work that has begun may still end within the orphan grace, and of work that has not it is told that
/// it never will; then the group is killed, this process included.
async fn perform(
    work: impl Future<Output = Result<ToolOutput, ToolError>>,
    context: &ToolContext,
    control: &mut Control,
    go: &watch::Sender<Option<Instant>>,
    never_began: impl FnOnce(),
) -> Result<ToolOutput, ToolError> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            ended = &mut work => return ended,
            line = control.next_line() => match line {
                Ok(Some(line)) if line == GO => drop(go.send_replace(Some(Instant::now()))),
                Ok(Some(_cancel)) => context.cancel.cancel(),
                Ok(None) | Err(_) => break,
            },
        }
    }
    // Whoever reads what callsheet printed shall not wait for this process.
    let _still_open = std::fs::File::create("/dev/null").map(rustix::stdio::dup2_stderr);
    // Nothing can let the work begin any more: all that was said has been read.
    let has_begun = go.borrow().is_some();
    if !has_begun {
        never_began();
    } else if let Ok(ended) = tokio::time::timeout(context.orphan_grace, work).await {
        return ended;
    }
    // The whole group is killed at once: dropping the work would end its processes one by one.
    Group::own().kill_all();
    // Not reached: the kill has ended this process.
    std::process::abort()
}
