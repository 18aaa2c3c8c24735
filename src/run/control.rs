//! The control socket, by which another process reaches the owner of a live run: the process that
//! drives it.
//!
//! A Unix socket in the run directory, or in the user's runtime directory if its path would be too
//! long. Each connection carries one JSON request and one JSON answer, a line each. After the answer
//! to [`Request::Deltas`] lines follow until the end.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, Lines};
use tokio::net::UnixListener;
use tokio::task::{JoinHandle, JoinSet};

use super::Remote;
use super::delta_feed::{DeltaFeed, DeltaLine};
use crate::id::{AgentId, Name};
use crate::journal::file::RunDir;
use crate::run_machine::CancelTarget;
use crate::turn::question::{PersonsAnswer, Verdict};

/// Maximum length of the path of a Unix socket in bytes: the 108 bytes of its address, less the
/// closing zero.
const LONGEST_PATH: usize = 107;

/// Maximum length of a request line in bytes: space for a focus text of some pages.
const LONGEST_REQUEST: u64 = 64 * 1024;

/// Maximum time for one request, for the client and for the owner.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The most processes that follow the texts of models at a time.
const MOST_FOLLOWERS: usize = 16;

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
    },
    /// Send the texts of models while they arrive, a line of JSON for each part, until the run ends
    /// or the connection is closed.
    Deltas,
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

/// The owner's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// True if the target exists.
    pub found: bool,
    /// The error in the request, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What became of an answer to a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Answer {
    fn found(found: bool) -> Self {
        Self { found, error: None, verdict: None }
    }
}

/// Returns the path of a run's control socket.
#[must_use]
pub fn socket_path(dir: &RunDir) -> PathBuf {
    let path = dir.path().join("control.sock");
    if path.as_os_str().len() <= LONGEST_PATH {
        return path;
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let run = dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    folder.join(format!("callsheet-{run}.sock"))
}

/// Listens for requests on the control socket until it is dropped.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Listener {
    /// Opens the socket of a run.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be bound.
    pub fn open(dir: &RunDir, remote: Remote, deltas: Arc<DeltaFeed>) -> io::Result<Self> {
        let path = socket_path(dir);
        // An earlier owner may have left its socket. It is gone: this process has the run's lock.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let task = tokio::spawn(serve(listener, remote, deltas));
        Ok(Self { path, task })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
        // A socket that is left over is removed by the next owner.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve(listener: UnixListener, remote: Remote, deltas: Arc<DeltaFeed>) {
    // They end with this task, when the listener is dropped.
    let mut followers = JoinSet::new();
    // One request at a time: requests are rare and answered at once, so none has to wait long and
    // none can pile up.
    while let Ok((mut stream, _)) = listener.accept().await {
        while followers.try_join_next().is_some() {}
        let has_space = followers.len() < MOST_FOLLOWERS;
        let answered =
            tokio::time::timeout(ANSWER_WITHIN, answer(&mut stream, &remote, has_space)).await;
        match answered {
            Ok(Ok(Then::Follow)) => {
                let _ = followers.spawn(deltas.clone().write_to(stream));
            }
            Ok(Ok(Then::Close)) | Err(_) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a control connection broke"),
        }
    }
}

/// What happens to a connection after its request was answered.
enum Then {
    Close,
    /// The texts of models are written to it.
    Follow,
}

/// Reads a request and answers it.
async fn answer(
    stream: &mut tokio::net::UnixStream,
    remote: &Remote,
    has_space: bool,
) -> io::Result<Then> {
    use tokio::io::AsyncReadExt;
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(read.take(LONGEST_REQUEST)).read_line(&mut line).await?;
    let refused = |error: String| Answer { error: Some(error), ..Answer::found(false) };
    let request = serde_json::from_str::<Request>(&line);
    let answer = match &request {
        Ok(Request::Deltas) if has_space => Answer::found(true),
        Ok(Request::Deltas) => {
            refused(format!("{MOST_FOLLOWERS} processes follow the texts of this run already"))
        }
        Ok(Request::Answer(answer)) => {
            let verdict = remote.answer(answer.clone()).await;
            Answer { verdict, ..Answer::found(true) }
        }
        Ok(request) => Answer::found(perform(remote, request.clone()).await),
        Err(error) => refused(error.to_string()),
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    write.write_all(text.as_bytes()).await?;
    let follows = has_space && matches!(request, Ok(Request::Deltas));
    Ok(if follows { Then::Follow } else { Then::Close })
}

async fn perform(remote: &Remote, request: Request) -> bool {
    match request {
        // These are answered before.
        Request::Deltas | Request::Answer(_) => true,
        Request::Cancel { task: Some(task), .. } => {
            remote.cancel(CancelTarget::Task(task), "cancelled by a person").await
        }
        Request::Cancel { agent: Some(agent), .. } => {
            remote.cancel(CancelTarget::Agent(agent), "cancelled by a person").await
        }
        Request::Cancel { .. } => remote.cancel(CancelTarget::Run, "cancelled by a person").await,
        Request::Compact { agent, focus } => remote.compact(agent, focus).await,
    }
}

/// Sends a request to the owner of a live run, and blocks until it answers.
///
/// # Errors
/// Returns an error if no process listens, or if the answer does not come within 10 seconds.
pub fn ask(dir: &RunDir, request: &Request) -> io::Result<Answer> {
    ask_at(&socket_path(dir), request)
}

fn ask_at(path: &Path, request: &Request) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// The parts of replies that another process receives from the owner of a live run.
#[derive(Debug)]
pub struct DeltaStream(Lines<tokio::io::BufReader<tokio::net::UnixStream>>);

impl DeltaStream {
    /// Asks the owner of a run for the parts that arrive from now on.
    ///
    /// # Errors
    /// Returns an error if no process drives the run, or if it refuses.
    pub async fn open(dir: &RunDir) -> io::Result<Self> {
        let mut stream = tokio::net::UnixStream::connect(socket_path(dir)).await?;
        let mut request = serde_json::to_string(&Request::Deltas)?;
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
