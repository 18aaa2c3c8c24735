//! A server that sends any bytes: it reads a request and writes what its case says.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The protocol of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Anthropic,
    OpenAi,
}

impl Kind {
    pub(super) const BOTH: [Self; 2] = [Self::Anthropic, Self::OpenAi];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
        }
    }
}

/// One part of what is written to the socket.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Bytes(Vec<u8>),
    /// These bytes so many times.
    Repeat(Vec<u8>, usize),
    /// These bytes every few milliseconds until the client leaves.
    Drip(Vec<u8>),
    /// Nothing, until the client leaves.
    Stall,
}

/// What a case answers first, and whether a plain reply follows a request that has its results.
type Script = (Vec<Part>, bool);

/// The path of a case.
pub(super) fn key(kind: Kind, case: &str) -> String {
    format!("/{}/{}", kind.word(), case.replace(' ', "-"))
}

/// A server at work; its threads end with the process.
pub(super) struct Server {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) fn start(scripts: HashMap<String, Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (scripts, heads) = (Arc::new(scripts), Arc::<Mutex<Vec<String>>>::default());
        let server = Self { address, heads: heads.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (scripts, heads) = (scripts.clone(), heads.clone());
                std::thread::spawn(move || serve(stream, &scripts, &heads));
            }
        });
        server
    }

    pub(super) fn base_url(&self, kind: Kind, case: &str) -> String {
        let version = if kind == Kind::OpenAi { "/v1" } else { "" };
        format!("http://{}{}{version}", self.address, key(kind, case))
    }

    /// The heads of all requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

fn serve(mut stream: TcpStream, scripts: &HashMap<String, Script>, heads: &Mutex<Vec<String>>) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let Some((head, body)) = request(&mut stream) else { return };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    heads.lock().expect("no panic").push(head.clone());
    let kind = if path.ends_with("/messages") { Kind::Anthropic } else { Kind::OpenAi };
    let case = scripts.iter().find(|(key, _)| path.starts_with(&format!("{key}/v1/")));
    let answered = body.contains("tool_result") || body.contains("tool_call_id");
    let parts = match case {
        Some((_, (_, true))) if answered => super::replies::done(kind),
        Some((_, (first, _))) => first.clone(),
        None => super::replies::done(kind),
    };
    for part in parts {
        if !write(&mut stream, part, &head) {
            return;
        }
    }
}

/// Writes a part; returns false if the client has left. `ECHO` stands for the request's own head.
fn write(stream: &mut TcpStream, part: Part, head: &str) -> bool {
    match part {
        Part::Bytes(bytes) => {
            let echo = || head.replace("\r\n", " | ").replace('"', "'");
            let bytes = match bytes.windows(6).any(|window| window == b"<ECHO>") {
                true => String::from_utf8_lossy(&bytes).replace("<ECHO>", &echo()).into_bytes(),
                false => bytes,
            };
            stream.write_all(&bytes).is_ok()
        }
        Part::Repeat(bytes, times) => {
            // Written in large pieces, so that a flood is as fast as the client reads.
            let each = (64 * 1024 / bytes.len()).clamp(1, times);
            let block = bytes.repeat(each);
            (0..times / each).all(|_| stream.write_all(&block).is_ok())
                && stream.write_all(&bytes.repeat(times % each)).is_ok()
        }
        Part::Drip(bytes) => {
            while stream.write_all(&bytes).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
            false
        }
        Part::Stall => {
            let _ = stream.read(&mut [0; 64]);
            false
        }
    }
}

/// Reads a request: its head, and its body as text.
fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_lowercase();
        let length = length.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        if body.len() >= length {
            return Some((head.to_owned(), body.to_owned()));
        }
    }
}
