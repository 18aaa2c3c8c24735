//! The control socket, by which another process reaches the owner of a live run: the process that
//! drives it.
//!
//! A Unix socket in a folder of the user (`control/place.rs`), which hears only this user and root and
//! no process that a run started (`control/peer.rs`). Each connection carries one JSON request and one
//! JSON answer, a line each. After the answer to [`Request::Deltas`] lines follow until the end.

mod peer;
mod place;

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, Lines};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use self::peer::Peer;
pub use self::peer::{this_process, user};
use self::place::Folder;
pub use self::place::folders;
use super::Remote;
use super::delta_feed::{DeltaFeed, DeltaLine, Parts};
use crate::id::{AgentId, Name};
use crate::journal::source::{RunSource, drivable};
use crate::run_machine::CancelTarget;
use crate::turn::question::{AnswerOutcome, PersonsAnswer};

/// Maximum length of a request line in bytes: a message of a person whose characters are all escaped twice.
const LONGEST_REQUEST: u64 = 128 * 1024;

/// Maximum time for one request, for the client and for the owner.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Time after which whoever asks is told with what the supervisor is busy.
const BUSY_AFTER: Duration = Duration::from_secs(2);

/// Time for which `ps` waits for an answer, and after which it says that a supervisor is busy.
const PULSE_WITHIN: Duration = Duration::from_secs(1);

/// The most processes that follow the texts of models or the lines of commands at a time.
const MOST_FOLLOWERS: usize = 16;

/// The most connections at a time, with those of [`MOST_FOLLOWERS`]: requests are rare and answered at
/// once, so that only processes of the person that hang could use them up, for 10 seconds.
const MOST_CONNECTIONS: usize = 48;

/// The most connections at a time of processes that are refused. Others are closed without a word, so
/// that they cannot keep those of the person waiting.
const MOST_REFUSED: usize = 8;

/// The reason of a cancellation for which none is given.
pub const CANCELLED: &str = "cancelled by a person";

/// A request to the owner of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Stop the run, a task or an agent.
    Cancel {
        /// The task, if a task is to be stopped.
        #[serde(default)]
        task: Option<Name>,
        /// The agent, if an agent is to be stopped.
        #[serde(default)]
        agent: Option<AgentId>,
        /// The reason that is recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Stop the run so that it can be resumed.
    Interrupt,
    /// Send the texts of models and the lines of commands while they arrive, a line of JSON for each part, until the
    /// run ends or the connection is closed.
    Deltas {
        /// Which of them.
        #[serde(default = "all")]
        which: Parts,
    },
    /// Say with what the supervisor is busy.
    Pulse,
    /// Answer a question of the run.
    Answer(PersonsAnswer),
    /// Compact an agent.
    Compact {
        /// The agent.
        agent: AgentId,
        /// What the summary should preserve.
        #[serde(default)]
        focus: Option<String>,
    },
}

fn all() -> Parts {
    Parts::All
}

/// The owner's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// True if the target exists.
    pub found: bool,
    /// The error in the request, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What became of an answer to a question.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "verdict")]
    pub outcome: Option<AnswerOutcome>,
    /// With what the supervisor is busy, if it did not answer at once: `busy for 12 s with f[17]`. It does
    /// what was asked once it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<String>,
}

impl Answer {
    fn found(found: bool) -> Self {
        Self { found, error: None, outcome: None, busy: None }
    }

    fn busy(remote: &Remote) -> Self {
        let busy = remote.busy().filter(|busy| busy.since >= PULSE_WITHIN);
        Self { busy: busy.map(|busy| busy.to_string()), ..Self::found(true) }
    }

    fn refused(error: String) -> Self {
        Self { error: Some(error), ..Self::found(false) }
    }
}

/// Listens for requests on the control socket until it is dropped.
#[derive(Debug)]
pub struct Listener {
    folder: Folder,
    socket: String,
    task: JoinHandle<()>,
}

impl Listener {
    /// Opens the socket of the run in this directory, whose commands may write below the paths `written`.
    ///
    /// # Errors
    /// Returns an error if there is no folder for the socket, or if it cannot be bound.
    pub fn open(
        run: &Path,
        written: &[PathBuf],
        remote: Remote,
        deltas: Arc<DeltaFeed>,
    ) -> io::Result<Self> {
        place::remove_former(run);
        let (folder, socket) = (Folder::own(written)?, place::socket_name(run)?);
        // An earlier owner may have left its socket. It is gone: this process has the run's lock.
        folder.remove(&socket)?;
        let listener = UnixListener::bind(folder.address(&socket))?;
        folder.restrict(&socket)?;
        let task = tokio::spawn(serve(listener, remote, deltas));
        Ok(Self { folder, socket, task })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
        // A socket that is left over is removed by the next owner.
        let _ = self.folder.remove(&self.socket);
    }
}

async fn serve(listener: UnixListener, remote: Remote, deltas: Arc<DeltaFeed>) {
    // They end with this task, when the listener is dropped.
    let (mut heard, mut refused) = (JoinSet::new(), JoinSet::new());
    let space = Arc::new(Semaphore::new(MOST_FOLLOWERS));
    let mut refusals = 0u64;
    while let Ok((stream, _)) = listener.accept().await {
        // At once: whoever connected is still there, or is not heard.
        let peer = Peer::of(&stream);
        while refused.try_join_next().is_some() || heard.try_join_next().is_some() {}
        match peer {
            Ok(peer) => {
                if heard.len() >= MOST_CONNECTIONS {
                    let _ = heard.join_next().await;
                }
                let (remote, deltas) = (remote.clone(), deltas.clone());
                drop(heard.spawn(hear(stream, peer, remote, deltas, space.clone())));
            }
            Err(reason) => {
                refusals += 1;
                // A process that tries for ever does not fill the log.
                if refusals.is_power_of_two() {
                    tracing::warn!(
                        reason,
                        refusals,
                        "a process that asked something of the run was refused"
                    );
                }
                if refused.len() < MOST_REFUSED {
                    let _ =
                        refused.spawn(tokio::time::timeout(ANSWER_WITHIN, refuse(stream, reason)));
                }
            }
        }
    }
}

/// Tells a process that nothing is done for it.
async fn refuse(mut stream: UnixStream, reason: String) -> io::Result<()> {
    let _ = request(&mut stream).await?;
    reply(&mut stream, &Answer::refused(reason)).await
}

/// Answers a request, and sends the texts of models and the lines of commands if it asks for them.
async fn hear(
    mut stream: UnixStream,
    peer: Peer,
    remote: Remote,
    deltas: Arc<DeltaFeed>,
    space: Arc<Semaphore>,
) {
    let answered = tokio::time::timeout(ANSWER_WITHIN, async {
        let line = request(&mut stream).await?;
        let mut permit = None;
        let answer = match serde_json::from_str::<Request>(&line) {
            _ if !peer.is_same() => Answer::refused("the process that asked has gone".to_owned()),
            Ok(Request::Deltas { which }) => match space.try_acquire_owned() {
                Ok(granted) => {
                    permit = Some((granted, which));
                    Answer::found(true)
                }
                Err(_) => Answer::refused(format!(
                    "{MOST_FOLLOWERS} processes follow the texts and lines of this run already"
                )),
            },
            Ok(Request::Answer(answer)) => {
                // Whoever answers is who the kernel says, not who they say.
                let answer = PersonsAnswer { by: peer.name(), ..answer };
                // Whoever asks tries again: until then others are served.
                let outcome = async {
                    Answer { outcome: remote.answer_once(answer).await, ..Answer::found(true) }
                };
                unless_busy(&remote, outcome).await
            }
            Ok(Request::Pulse) => Answer::busy(&remote),
            Ok(Request::Interrupt) => {
                Answer::found(remote.interrupt(&format!("interrupted by {}", peer.name())))
            }
            Ok(request) => {
                let performed = async { Answer::found(perform(&remote, request).await) };
                unless_busy(&remote, performed).await
            }
            Err(error) => Answer::refused(error.to_string()),
        };
        reply(&mut stream, &answer).await?;
        Ok::<_, io::Error>(permit)
    });
    let followed = match answered.await {
        Ok(Ok(Some((_permit, which)))) => deltas.write_to(stream, which).await,
        Ok(Ok(None)) | Err(_) => return,
        Ok(Err(error)) => Err(error),
    };
    if let Err(error) = followed {
        tracing::debug!(%error, "a control connection broke");
    }
}

/// Reads the line of a request.
async fn request(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = String::new();
    tokio::io::BufReader::new(stream.take(LONGEST_REQUEST)).read_line(&mut line).await?;
    Ok(line)
}

async fn reply(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let mut text = serde_json::to_string(answer)?;
    text.push('\n');
    stream.write_all(text.as_bytes()).await
}

/// Waits for the supervisor's answer, or says with what it is busy meanwhile.
async fn unless_busy(remote: &Remote, answer: impl Future<Output = Answer>) -> Answer {
    let mut answer = std::pin::pin!(answer);
    loop {
        if let Ok(answer) = tokio::time::timeout(BUSY_AFTER, &mut answer).await {
            return answer;
        }
        if remote.busy().is_some_and(|busy| busy.since >= BUSY_AFTER) {
            return Answer::busy(remote);
        }
    }
}

async fn perform(remote: &Remote, request: Request) -> bool {
    match request {
        // These are answered before.
        Request::Deltas { .. } | Request::Answer(_) | Request::Pulse | Request::Interrupt => true,
        Request::Cancel { task, agent, reason } => {
            let target = match (task, agent) {
                (Some(task), _) => CancelTarget::Task(task),
                (None, Some(agent)) => CancelTarget::Agent(agent),
                (None, None) => CancelTarget::Run,
            };
            remote.cancel(target, reason.as_deref().unwrap_or(CANCELLED)).await
        }
        Request::Compact { agent, focus } => remote.compact(agent, focus).await,
    }
}

/// Sends a request to the owner of a live run, and blocks until it answers.
///
/// # Errors
/// Returns an error if no process listens, or if the answer does not come within 10 seconds.
pub fn ask(run: &dyn RunSource, request: &Request) -> io::Result<Answer> {
    ask_within(run, request, ANSWER_WITHIN)
}

/// Returns with what the process that drives a run is busy, if it is for longer than a second; also if it
/// does not even say so.
#[must_use]
pub fn busy(run: &dyn RunSource) -> Option<String> {
    match ask_within(run, &Request::Pulse, PULSE_WITHIN) {
        Ok(answer) => answer.busy,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Some(error.to_string()),
        // A process of an earlier version, or one that begins or ends.
        Err(_) => None,
    }
}

fn ask_within(run: &dyn RunSource, request: &Request, within: Duration) -> io::Result<Answer> {
    let mut stream = connect(run)?;
    stream.set_read_timeout(Some(within))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    let late = || {
        let message = format!("it gives no answer within {} s", within.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, message)
    };
    match BufReader::new(stream).read_line(&mut line) {
        // The owner closes a connection that it could not answer in time.
        Ok(0) => Err(late()),
        Ok(_) => Ok(serde_json::from_str(&line)?),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(late()),
        Err(error) => Err(error),
    }
}

/// Connects to the socket of a run, in whichever folder it is.
fn connect(run: &dyn RunSource) -> io::Result<net::UnixStream> {
    let dir = drivable(run).map_err(io::Error::other)?.folder();
    let socket = place::socket_name(dir)?;
    let is_dead = |error: &io::Error| {
        [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind())
    };
    for folder in Folder::of(dir) {
        match net::UnixStream::connect(folder.address(&socket)) {
            Err(error) if is_dead(&error) => {}
            connected => return connected,
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "no socket of the run is in a folder of this user; the process may be of another user or in \
         another container, or be about to begin or to end",
    ))
}

/// The parts of replies that another process receives from the owner of a live run.
#[derive(Debug)]
pub struct DeltaStream(Lines<tokio::io::BufReader<UnixStream>>);

impl DeltaStream {
    /// Asks the owner of a run for the parts that arrive from now on.
    ///
    /// # Errors
    /// Returns an error if no process drives the run, or if it refuses.
    pub async fn open(run: &dyn RunSource, which: Parts) -> io::Result<Self> {
        let stream = connect(run)?;
        stream.set_nonblocking(true)?;
        let mut stream = UnixStream::from_std(stream)?;
        let mut request = serde_json::to_string(&Request::Deltas { which })?;
        request.push('\n');
        stream.write_all(request.as_bytes()).await?;
        let mut lines = tokio::io::BufReader::new(stream).lines();
        let answer = lines.next_line().await?.unwrap_or_default();
        match serde_json::from_str::<Answer>(&answer)? {
            Answer { found: true, .. } => Ok(Self(lines)),
            Answer { error, .. } => Err(io::Error::other(error.unwrap_or_default())),
        }
    }

    /// Returns the next part, or `None` when the owner of the run has gone away.
    ///
    /// # Errors
    /// Returns an error if the stream breaks or holds anything else.
    pub async fn next(&mut self) -> io::Result<Option<DeltaLine>> {
        let line = self.0.next_line().await?;
        line.map(|line| Ok(serde_json::from_str(&line)?)).transpose()
    }
}
