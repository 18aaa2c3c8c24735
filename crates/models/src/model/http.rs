//! The HTTP transport that both protocols share: one streamed POST, its time limits and its errors.
//!
//! Owns the connections, the endpoint's settings and the reading loop. Knows no provider's message
//! format, and makes one attempt only: `call_machine` decides about retries.

mod allowance;
mod answer;
mod answer_schema;
mod arguments;
mod body;
mod bounds;
mod classify;
mod endpoint;
mod intake;
mod values;
mod waits;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use self::answer::{Asked, beginning, is_page, refused, with_waits};
pub(crate) use self::answer_schema::{Optional, is_closed, judge_schema};
pub(crate) use self::arguments::{Arguments, received_input, sendable_input};
use self::body::PartsBody;
pub(crate) use self::bounds::{BLOCKS, Bounds, TOKENS, shorten};
pub(crate) use self::classify::Refusal;
pub use self::endpoint::{Endpoint, EndpointError, HeaderRole, Key, is_loopback};
use self::endpoint::{client, headers};
pub(crate) use self::intake::{Assembly, Intake, Progress};
pub(crate) use self::values::{count, is_recordable, lenient, tree, with_extra};
use crate::model::{Delta, DeltaSink, ErrorClass, ModelError, Reply, sse};
use crate::redaction::{Secrets, without_keys};

/// The most bytes that are read of a document: a model's description has a few thousand.
const DOCUMENT_BYTES: usize = 1024 * 1024;
/// Time limit for the response to a request of a document, and again for its body. It is short,
/// because the beginning of a run waits for it.
const DOCUMENT_WAIT: Duration = Duration::from_secs(10);
/// Time that the end of a body may take after its last event, so that the connection can be used
/// again. The end usually arrives with the last event.
const TRAILER_WAIT: Duration = Duration::from_millis(10);

/// The HTTP client of one provider, with its connections and time limits.
pub(crate) struct Transport {
    client: Client,
    url: Url,
    /// The path below `base_url`.
    path: &'static str,
    origin: String,
    key: Option<Key>,
    /// The key and the secret headers, which no error may repeat.
    secrets: Secrets,
    first_byte_timeout: Duration,
    idle_timeout: Duration,
    request_timeout: Option<Duration>,
    /// True once the server has answered anything.
    has_answered: AtomicBool,
}

/// The most attempts to connect to a server that has not answered yet: a wrong address or a server
/// that was not started is told within seconds, while the person who started the run is still there.
const FIRST_CONNECTS: u32 = 3;

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Transport {
    /// Sets up a client that posts to `path` below the endpoint's URL, with the protocol's own
    /// headers.
    ///
    /// # Errors
    /// Returns an error if the endpoint cannot be used, see [`EndpointError`]; a plain http
    /// endpoint needs no certificates.
    pub(crate) fn new(
        endpoint: Endpoint,
        path: &'static str,
        own: &[(&str, String)],
    ) -> Result<Self, EndpointError> {
        let bad_url = || EndpointError::Url(without_keys(&endpoint.url));
        // Some services want a query, as `?api-version=...`: the path goes before it.
        let (base, query) = endpoint.url.trim().split_once('?').unwrap_or((&endpoint.url, ""));
        let base = base.trim().trim_end_matches('/');
        // The base is parsed alone first: with the path appended, `http://` would have a host.
        let url = Url::parse(base).and_then(|_| Url::parse(&format!("{base}{path}")));
        let mut url = url.map_err(|_| bad_url())?;
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(bad_url());
        }
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let headers = headers(own.chain(endpoint.all_headers()))?;
        let origin = url.origin().ascii_serialization();
        let client = client(&url, headers, endpoint.connect_timeout)
            .map_err(|source| EndpointError::Client { origin: origin.clone(), source })?;
        Ok(Self {
            client,
            url,
            path,
            origin,
            secrets: endpoint.secrets(),
            key: endpoint.key,
            first_byte_timeout: endpoint.first_byte_timeout,
            idle_timeout: endpoint.idle_timeout,
            request_timeout: endpoint.request_timeout,
            has_answered: AtomicBool::new(false),
        })
    }

    /// Posts the parts as one body, with these headers beside the usual ones, and reads the stream
    /// of the reply.
    pub(crate) async fn exchange<A: Assembly>(
        &self,
        parts: Vec<Bytes>,
        headers: HeaderMap,
        assembly: A,
        deltas: DeltaSink<'_>,
    ) -> Result<Reply, ModelError> {
        let start = Instant::now();
        let first_byte = sooner(start + self.first_byte_timeout, self.headway(start));
        let mut response =
            self.open(parts, headers, first_byte).await.map_err(|error| self.redacted(error))?;
        let told = allowance::allowance(response.headers(), now_ms());
        // A document may be an error: then the provider has not taken the request.
        let is_stream = !is_json(&response);
        if is_stream {
            deltas(Delta::Taken(told));
        }
        let mut intake = Intake::new(assembly);
        let read = self.read(&mut response, start, first_byte, &mut intake, deltas).await;
        let read = match read {
            Err(error) if intake.is_document() => {
                Err(with_waits(self.placed(error), response.headers()))
            }
            read => read,
        };
        if !is_stream && read.is_ok() {
            deltas(Delta::Taken(told));
        }
        if read.is_ok() {
            drain(response).await;
        }
        intake.close(read.map_err(|error| self.redacted(error)))
    }

    /// Sends the request, and returns the response if its status and type show that a reply
    /// follows: a stream, or a JSON document.
    async fn open(
        &self,
        parts: Vec<Bytes>,
        headers: HeaderMap,
        until: Instant,
    ) -> Result<Response, ModelError> {
        let body = reqwest::Body::wrap(PartsBody::new(parts));
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        let response = self.send(request, until).await?;
        let status = response.status();
        if status == StatusCode::OK && !is_page(response.headers(), &[]) {
            return Ok(response);
        }
        let asked = Asked::new("POST", &self.url, self.path);
        Err(refused(response, self.idle_timeout, &asked).await)
    }

    /// Gets a JSON document from an address beside the URL: `path` replaces its last segment.
    pub(crate) async fn document(
        &self,
        path: [&str; 2],
        headers: HeaderMap,
    ) -> Result<serde_json::Value, ModelError> {
        self.fetch(path, headers).await.map_err(|error| self.redacted(error))
    }

    async fn fetch(
        &self,
        path: [&str; 2],
        headers: HeaderMap,
    ) -> Result<serde_json::Value, ModelError> {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop().extend(path);
        }
        let asked = Asked::new("GET", &url, self.path);
        let request = self.client.get(url).headers(headers).header(ACCEPT, "application/json");
        let mut response = self.send(request, Instant::now() + DOCUMENT_WAIT).await?;
        if response.status() != StatusCode::OK {
            return Err(refused(response, DOCUMENT_WAIT, &asked).await);
        }
        let body = beginning(&mut response, DOCUMENT_BYTES, DOCUMENT_WAIT).await;
        tree(&body).ok_or_else(|| malformed("the model's description cannot be read"))
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        until: Instant,
    ) -> Result<Response, ModelError> {
        match timeout_at(until, request.send()).await {
            Err(_) => Err(self.silence("no answer in time")),
            Ok(Err(error)) => Err(self.disconnected(&error)),
            Ok(Ok(response)) => {
                self.has_answered.store(true, Ordering::Relaxed);
                Ok(response)
            }
        }
    }

    async fn read<A: Assembly>(
        &self,
        response: &mut Response,
        start: Instant,
        first_byte: Instant,
        intake: &mut Intake<A>,
        deltas: DeltaSink<'_>,
    ) -> Result<(), ModelError> {
        let mut watch = Watch::new(first_byte);
        // The time at which the reply last became longer.
        let (mut written, mut since) = (0, start);
        let mut is_first = true;
        loop {
            let Some(chunk) = watch.guard(response.chunk()).await else {
                let what = match (is_first, self.headway(since)) {
                    (true, _) => "no answer in time",
                    (false, Some(end)) if end <= watch.limit => {
                        "the stream is alive, but nothing was added to the reply within \
                         `request_timeout`,"
                    }
                    (false, _) => "silence",
                };
                return Err(self.silence(what));
            };
            let Some(chunk) = chunk.map_err(|error| self.disconnected(&error))? else {
                return intake.end(deltas);
            };
            // No stream and no document begins like that, whatever its type says.
            if is_first && is_page(&HeaderMap::new(), &chunk) {
                let asked = Asked::new("POST", &self.url, self.path);
                return Err(answer::page(&chunk, response, self.idle_timeout, &asked).await);
            }
            let fed = intake.feed(&chunk, deltas);
            deltas(Delta::Spent(intake.spent()));
            if fed? == 0 {
                deltas(Delta::Alive);
            }
            if intake.is_done() {
                return Ok(());
            }
            is_first = false;
            let now = Instant::now();
            if intake.written() > written {
                (written, since) = (intake.written(), now);
            }
            watch.limit = sooner(now + self.idle_timeout, self.headway(since));
        }
    }

    /// Returns the time until which a reply must become longer that last did so at this time.
    fn headway(&self, since: Instant) -> Option<Instant> {
        self.request_timeout.map(|limit| since + limit)
    }

    /// Returns an error with the address, if that may be the cause.
    fn placed(&self, error: ModelError) -> ModelError {
        if !matches!(error.class, ErrorClass::Fatal | ErrorClass::NotFound) {
            return error;
        }
        let asked = Asked::new("POST", &self.url, self.path);
        ModelError { message: format!("{} (200 from {asked})", error.message), ..error }
    }

    fn silence(&self, what: &str) -> ModelError {
        ModelError::new(ErrorClass::IdleTimeout, format!("{what} from {}", self.origin))
    }

    fn disconnected(&self, error: &reqwest::Error) -> ModelError {
        let error_is_connect = error.is_connect();
        let is_first = error_is_connect && !self.has_answered.load(Ordering::Relaxed);
        // A certificate that was refused once is refused again.
        let certificate = is_certificate_error(error);
        let error = ModelError::new(ErrorClass::Connection, broken(&self.origin, error));
        ModelError {
            should_retry: certificate.then_some(false),
            most_attempts: is_first.then_some(FIRST_CONNECTS),
            never_sent: error_is_connect,
            ..error
        }
    }

    /// Returns an error as it may be told: without the key and secret headers, which some providers
    /// repeat in it, and with a message of bounded length.
    fn redacted(&self, mut error: ModelError) -> ModelError {
        self.secrets.redact(&mut error.message);
        // A key that is too short to be looked for everywhere is one here.
        let key = self.key.as_ref().map_or("", Key::expose);
        if !key.is_empty() && error.message.contains(key) {
            error.message = error.message.replace(key, "[redacted]");
        }
        ModelError { message: shorten(&error.message), ..error }
    }
}

/// Creates the error for a stream that cannot be understood. It is the provider's fault and can be
/// retried.
pub(crate) fn malformed(message: impl Into<String>) -> ModelError {
    ModelError { status: Some(200), ..ModelError::new(ErrorClass::ServerError, message) }
}

impl From<sse::TooLong> for ModelError {
    fn from(error: sse::TooLong) -> Self {
        bounds::refused(error)
    }
}

/// A time limit that moves with every chunk that arrives. The timer is reset only when it fires, so
/// that a chunk costs no timer operation.
struct Watch {
    limit: Instant,
    sleep: std::pin::Pin<Box<Sleep>>,
}

impl Watch {
    fn new(limit: Instant) -> Self {
        Self { limit, sleep: Box::pin(sleep_until(limit)) }
    }

    /// Returns the future's value, or `None` if the limit passes first.
    async fn guard<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        if self.sleep.deadline() > self.limit {
            self.sleep.as_mut().reset(self.limit);
        }
        loop {
            tokio::select! {
                // Data that has arrived counts, even if the limit passes at the same time.
                biased;
                output = &mut future => return Some(output),
                () = &mut self.sleep => {
                    if self.sleep.deadline() >= self.limit {
                        return None;
                    }
                    self.sleep.as_mut().reset(self.limit);
                }
            }
        }
    }
}

fn sooner(limit: Instant, end: Option<Instant>) -> Instant {
    end.map_or(limit, |end| end.min(limit))
}

/// Reads the end of the body, so that the connection can be used again.
async fn drain(mut response: Response) {
    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
    let mut rest = std::pin::pin!(rest);
    if rest.as_mut().now_or_never().is_none() {
        // If the provider keeps the stream open, the connection is dropped instead.
        let _ = timeout(TRAILER_WAIT, rest).await;
    }
}

fn is_json(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Says that the connection to a server could not be made or broke, with all causes. The error itself would name the
/// whole address, which may hold a key.
pub(super) fn broken(origin: &str, error: &reqwest::Error) -> String {
    let what = if error.is_connect() { "no connection to" } else { "the connection broke to" };
    let mut message = format!("{what} {origin}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.ends_with(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

/// Returns true if the server's certificate was refused. The libraries wrap the error that says so in
/// several I/O errors, whose sources leave out the error that they wrap.
fn is_certificate_error(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return matches!(found, rustls::Error::InvalidCertificate(_));
    }
    let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    match (wrapped, error.source()) {
        (Some(wrapped), _) => is_certificate_error(wrapped),
        (None, Some(source)) => is_certificate_error(source),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        let mut endpoint = Endpoint::new("http://127.0.0.1:1").with_key(" sk-secret\n");
        endpoint.headers.push(("x-team".to_owned(), "hush".to_owned()));
        endpoint.secret_headers.push(("x-token".to_owned(), Key::new("hush-hush-hush")));
        let shown = format!("{endpoint:?}");
        assert!(!shown.contains("secret") && !shown.contains("hush"), "{shown}");
        let transport = Transport::new(endpoint, "/v1", &[]).unwrap();
        let error = transport.redacted(malformed("bad key sk-secret or hush-hush-hush"));
        assert_eq!(error.message, "bad key [redacted] or [redacted]");
        let long = "x".repeat(bounds::WORDS_CHARS - 4) + "sk-secret";
        let error = transport.redacted(malformed(long));
        assert!(error.message.ends_with("x[red..."), "{}", error.message);
    }

    #[test]
    fn a_refused_certificate_is_found_however_deep_it_is_wrapped() {
        use std::io::Error;
        let refused = |why| rustls::Error::InvalidCertificate(why);
        let bad = || refused(rustls::CertificateError::UnknownIssuer);
        let other = || rustls::Error::HandshakeNotComplete;
        assert!(is_certificate_error(&bad()));
        assert!(is_certificate_error(&Error::other(bad())));
        assert!(is_certificate_error(&Error::other(Error::other(Error::other(bad())))));
        assert!(!is_certificate_error(&Error::other(Error::other(other()))));
        assert!(!is_certificate_error(&Error::from_raw_os_error(111)));
    }
}
