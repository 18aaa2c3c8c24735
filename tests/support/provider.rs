//! A model provider on the loopback interface. It speaks HTTP/1.1 without a library, so that it
//! costs next to nothing.
//!
//! Owns the sockets and the list of received requests. The responder decides the answer, and
//! `render` its form on the wire.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::answer::Answer;
use super::asked::{Asked, Wire};
use super::render::{Step, render, whole};

/// Decides the answer to a request.
pub(crate) trait Responder: Send + Sync + 'static {
    /// The answer to this request.
    fn answer(&self, asked: &Asked) -> Answer;
}

impl<F: Fn(&Asked) -> Answer + Send + Sync + 'static> Responder for F {
    fn answer(&self, asked: &Asked) -> Answer {
        self(asked)
    }
}

/// A provider at work; it stops when it is dropped.
pub(crate) struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    responder: Box<dyn Responder>,
    asked: Mutex<Vec<Asked>>,
    model: Mutex<Option<Value>>,
    keeps: AtomicBool,
    count: AtomicUsize,
    connections: AtomicUsize,
}

impl Provider {
    /// Starts a provider on a free port.
    pub(crate) async fn start(responder: impl Responder) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            responder: Box::new(responder),
            asked: Mutex::new(Vec::new()),
            model: Mutex::new(None),
            keeps: AtomicBool::new(true),
            count: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Self { address, shared, accepting }
    }

    /// Starts a provider that gives these answers in turn, and then repeats the last one.
    pub(crate) async fn script(answers: Vec<Answer>) -> Self {
        let last = answers.len().checked_sub(1).expect("at least one answer");
        Self::start(move |asked: &Asked| answers[last.min(asked.count - 1)].clone()).await
    }

    /// Sets the answer to questions about a model.
    pub(crate) fn describe(&self, model: Value) {
        *self.shared.model.lock() = Some(model);
    }

    /// Stops keeping requests: a benchmark makes too many.
    pub(crate) fn forget_requests(&self) {
        self.shared.keeps.store(false, Ordering::Relaxed);
    }

    /// The origin, which is the base URL of kind `anthropic`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The base URL for this wire.
    pub(crate) fn url_for(&self, wire: Wire) -> String {
        match wire {
            Wire::Anthropic => self.base_url(),
            Wire::OpenAi => format!("{}/v1", self.base_url()),
        }
    }

    /// The requests so far, in the order in which they were read.
    pub(crate) fn requests(&self) -> Vec<Asked> {
        self.shared.asked.lock().clone()
    }

    /// Returns the number of requests so far.
    pub(crate) fn count(&self) -> usize {
        self.shared.count.load(Ordering::Relaxed)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // The connections live in the accepting task's set and end with it.
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
                connections.spawn(serve(stream, Arc::clone(&shared), number));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection until the peer closes it or an answer says so.
async fn serve(mut stream: TcpStream, shared: Arc<Shared>, connection: usize) {
    let _ = stream.set_nodelay(true);
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    while let Some(head) = read_head(&mut stream, &mut buffer).await {
        let Some(body) = read_body(&mut stream, &mut buffer, head.length).await else { return };
        let wire = match head.path.split('?').next().unwrap_or_default() {
            path if path.ends_with("/v1/messages") => Wire::Anthropic,
            // The test of the third protocol writes its own streams.
            path if path.ends_with("/responses") => Wire::OpenAi,
            path if path.ends_with("/chat/completions") => Wire::OpenAi,
            path => {
                let known = shared.model.lock().clone().filter(|_| path.contains("/v1/models/"));
                if let Some(model) = known {
                    let answer = whole(200, &[], &model.to_string());
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                    continue;
                }
                let missing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
                if stream.write_all(missing).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let count = shared.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (path, headers, at) = (head.path, head.headers, Instant::now());
        let asked = Asked { wire, count, connection, path, headers, body, at };
        let answer = shared.responder.answer(&asked);
        let steps = render(&asked, &answer);
        if shared.keeps.load(Ordering::Relaxed) {
            shared.asked.lock().push(asked);
        }
        if !play(&mut stream, steps).await {
            return;
        }
    }
}

/// Performs the steps; returns true if the connection can be used again.
async fn play(stream: &mut TcpStream, steps: Vec<Step>) -> bool {
    for step in steps {
        match step {
            Step::Write(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return false;
                }
            }
            Step::Pause(pause) => tokio::time::sleep(pause).await,
            Step::Gate(barrier) => {
                barrier.wait().await;
            }
            Step::Stall => {
                // Until the client gives up and closes.
                let mut rest = [0; 64];
                while matches!(stream.read(&mut rest).await, Ok(1..)) {}
                return false;
            }
            Step::Cut => return false,
        }
    }
    true
}

struct RequestHead {
    path: String,
    headers: Vec<(String, String)>,
    length: usize,
}

async fn read_head(stream: &mut TcpStream, buffer: &mut BytesMut) -> Option<RequestHead> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let text = std::str::from_utf8(&buffer[..end]).ok()?;
    let mut lines = text.split("\r\n");
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: Vec<(String, String)> = lines.filter_map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(Some(0), |(_, value)| value.parse().ok())?;
    buffer.advance(end + 4);
    Some(RequestHead { path, headers, length })
}

async fn read_body(stream: &mut TcpStream, buffer: &mut BytesMut, length: usize) -> Option<Bytes> {
    buffer.reserve(length.saturating_sub(buffer.len()));
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    Some(buffer.split_to(length).freeze())
}
