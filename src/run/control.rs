//! The control socket, by which another process reaches the owner of a live run: the process that
//! drives it.
//!
//! A Unix socket in the run directory, or in the user's runtime directory if its path would be too
//! long. Each connection carries one JSON request and one JSON answer, a line each.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use super::Remote;
use crate::id::{AgentId, Name};
use crate::journal::file::RunDir;
use crate::run_machine::CancelTarget;

/// Maximum length of the path of a Unix socket in bytes: the 108 bytes of its address, less the
/// closing zero.
const LONGEST_PATH: usize = 107;

/// Maximum length of a request line in bytes: space for a focus text of some pages.
const LONGEST_REQUEST: u64 = 64 * 1024;

/// Maximum time for one request, for the client and for the owner.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

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
    pub fn open(dir: &RunDir, remote: Remote) -> io::Result<Self> {
        let path = socket_path(dir);
        // An earlier owner may have left its socket. It is gone: this process has the run's lock.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let task = tokio::spawn(serve(listener, remote));
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

async fn serve(listener: UnixListener, remote: Remote) {
    // One connection at a time: requests are rare and answered at once, so none has to wait long
    // and none can pile up.
    while let Ok((stream, _)) = listener.accept().await {
        let remote = remote.clone();
        let answered = tokio::time::timeout(ANSWER_WITHIN, answer(stream, remote)).await;
        if let Ok(Err(error)) = answered {
            tracing::debug!(%error, "a control connection broke");
        }
    }
}

async fn answer(stream: tokio::net::UnixStream, remote: Remote) -> io::Result<()> {
    use tokio::io::AsyncReadExt;
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    tokio::io::BufReader::new(read.take(LONGEST_REQUEST)).read_line(&mut line).await?;
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) => Answer { found: perform(&remote, request).await, error: None },
        Err(error) => Answer { found: false, error: Some(error.to_string()) },
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    write.write_all(text.as_bytes()).await
}

async fn perform(remote: &Remote, request: Request) -> bool {
    match request {
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
