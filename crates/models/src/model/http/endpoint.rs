//! The settings of a connection to a provider, and the HTTP client made from them.
//!
//! Owns the rule of which settings may be printed: keys and header values never are.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};

use crate::redaction::{Secrets, texts_of_address, texts_of_header, without_keys};

/// A provider's key; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<str>);

impl Key {
    /// Creates a key from a text, without the white space around it that a file may have.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().into())
    }

    /// Returns the key itself, for a header.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The address of a provider, its headers, its key and its time limits.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The base URL: the origin for Anthropic, with `/v1` for OpenAI-compatible servers.
    pub url: String,
    /// Additional headers of every request; they replace ours of the same name.
    pub headers: Vec<(String, String)>,
    /// Additional headers whose values are secret; they replace those in `headers`.
    pub secret_headers: Vec<(String, Key)>,
    /// The key, if the provider needs one.
    pub key: Option<Key>,
    /// The longest time that opening a connection may take.
    pub connect_timeout: Duration,
    /// The longest time from the start of a call to the first byte of the response's body.
    pub first_byte_timeout: Duration,
    /// The longest time without data after the first byte.
    pub idle_timeout: Duration,
    /// The longest time in which nothing is added to the reply, though the stream is alive; absent for no
    /// limit.
    pub request_timeout: Option<Duration>,
}

impl Endpoint {
    /// Creates an endpoint without a key and with the default time limits.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            secret_headers: Vec::new(),
            key: None,
            // The same value as the default in the configuration.
            connect_timeout: Duration::from_secs(10),
            // A provider may read a long prompt for more than a minute before the first token.
            first_byte_timeout: Duration::from_secs(120),
            // Providers send a ping every few seconds while a model thinks.
            idle_timeout: Duration::from_secs(60),
            request_timeout: None,
        }
    }

    /// Returns all additional headers, the secret ones last.
    pub(crate) fn all_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let plain = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let secret =
            self.secret_headers.iter().map(|(name, value)| (name.as_str(), value.expose()));
        plain.chain(secret)
    }

    /// Returns what the endpoint sends and nobody else may read: the key, secret headers and the keys in
    /// its address.
    pub(super) fn secrets(&self) -> Secrets {
        let key = self.key.iter().map(|key| key.expose().to_owned());
        let headers = self.secret_headers.iter();
        let headers = headers.flat_map(|(_, value)| texts_of_header(value.expose()));
        Secrets::new(key.chain(headers).chain(texts_of_address(&self.url)))
    }

    /// Returns the endpoint with this key.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = Some(Key::new(key));
        self
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values of headers may be credentials.
        let names = self.headers.iter().map(|(name, _)| name.as_str());
        let secret = self.secret_headers.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = names.chain(secret).collect();
        f.debug_struct("Endpoint")
            .field("url", &without_keys(&self.url))
            .field("headers", &names)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// The reason why no client can be made for an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The base URL, told without its keys, is not a URL, or not one of http or https.
    #[error("`{0}` is not an http or https URL")]
    Url(String),
    /// A header's name or value cannot be sent; the value is not shown, as it may be secret.
    #[error("header `{0}` cannot be sent as it is")]
    Header(String),
    /// The client cannot be set up: for https, usually because the system has no certificates.
    #[error("no client for {origin}")]
    Client {
        /// The provider's origin.
        origin: String,
        /// The cause.
        source: reqwest::Error,
    },
}

/// What a header decides beside the content of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderRole {
    /// Where a request begins, ends and how it is packed: one that lies splits it into two. No endpoint has such
    /// a header.
    Framing,
    /// Where a request goes, or who is said to send it; or nobody knows what.
    Address,
    /// Nothing of both.
    Content,
}

/// The headers that frame a message (RFC 9110, sections 6.4, 7.6 and 10.1; RFC 9112, section 6; RFC 7540, section 3.2.1).
const FRAMING: [&str; 11] = [
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that say nothing of where a request goes: keys, versions and features of services, and what a client
/// tells of itself. A name that ends in `-` stands for all that begin so. Servers and gateways invent headers
/// that choose the next server (`x-portkey-custom-host`, `x-baseurl`, `x-http-method-override`), so that no list
/// of those would be whole: what is not here may be one.
const CONTENT: [&str; 22] = [
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "anthropic-dangerous-direct-browser-access",
    "api-key",
    "api-version",
    "authorization",
    "cf-aig-authorization",
    "http-referer",
    "idempotency-key",
    "openai-",
    "referer",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-api-key",
    "x-api-version",
    "x-goog-api-key",
    "x-request-id",
    "x-stainless-",
    "x-title",
];

impl HeaderRole {
    /// Returns the role that a header has by its name. Servers take `_` for `-`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
        if FRAMING.contains(&name.as_str()) {
            Self::Framing
        } else if CONTENT.iter().any(|known| match known.ends_with('-') {
            true => name.starts_with(known),
            false => name == *known,
        }) {
            Self::Content
        } else {
            Self::Address
        }
    }
}

/// Builds the headers of every request; a later header replaces an earlier one of the same name.
pub(super) fn headers<'a>(
    all: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<HeaderMap, EndpointError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    // Packing a stream holds its events back. What comes packed all the same is unpacked.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, value) in all {
        let bad = || EndpointError::Header(name.to_owned());
        if HeaderRole::of(name) == HeaderRole::Framing {
            return Err(bad());
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        // Keeps the value out of the debug output of the HTTP client.
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, value);
    }
    Ok(headers)
}

/// Returns true if a base URL leads to this machine, and nothing that is sent to it leaves.
#[must_use]
pub fn is_loopback(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| leads_here(&url))
}

fn leads_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Builds a client for the URL's origin that sends these headers with every request.
pub(super) fn client(
    url: &Url,
    headers: HeaderMap,
    connect: Duration,
) -> Result<Client, reqwest::Error> {
    // The first call in the process installs the provider; one that is already installed serves as
    // well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .default_headers(headers)
        .user_agent(concat!("callsheet/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect)
        .tcp_nodelay(true)
        // One connection a stream: HTTP/2 would put hundreds of streams behind one connection's
        // stream limit (commonly 100) and let one lost packet hold up all of them.
        .http1_only()
        // A redirect would carry the key to another host, and a streamed body cannot be sent twice.
        .redirect(reqwest::redirect::Policy::none());
    if url.scheme() == "http" {
        // Without this, certificates are loaded and must exist, although http needs none.
        builder = builder.tls_certs_only([]);
    }
    // A local server must not be reached through the proxy of the environment.
    if leads_here(url) {
        builder = builder.no_proxy();
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::http::Transport;

    #[test]
    fn bad_endpoints_are_refused() {
        for url in ["", "api.example.com", "ftp://example.com", "http://", "/v1"] {
            let made = Transport::new(Endpoint::new(url), "/v1", &[]);
            assert!(matches!(made, Err(EndpointError::Url(_))), "{url}");
        }
        let mut endpoint = Endpoint::new("http://example.com/");
        endpoint.headers.push(("bad name".to_owned(), "x".to_owned()));
        let made = Transport::new(endpoint, "/v1", &[]);
        assert!(matches!(made, Err(EndpointError::Header(name)) if name == "bad name"));
        let mut endpoint = Endpoint::new("http://example.com/");
        endpoint.secret_headers.push(("Transfer_Encoding".to_owned(), Key::new("chunked")));
        let made = Transport::new(endpoint, "/v1", &[]);
        assert!(matches!(made, Err(EndpointError::Header(_))));
    }

    #[test]
    fn a_header_has_a_role_by_its_name() {
        use HeaderRole::{Address, Content, Framing};
        for (name, role) in [
            ("Host", Address),
            ("X-Forwarded-Host", Address),
            ("x_forwarded_for", Address),
            ("Forwarded", Address),
            ("via", Address),
            ("Proxy-Authorization", Address),
            ("x-real-ip", Address),
            ("x-original-url", Address),
            ("helicone-target-url", Address),
            ("x-portkey-custom-host", Address),
            ("Content-Length", Framing),
            ("transfer-encoding", Framing),
            ("Connection", Framing),
            ("proxy-connection", Framing),
            ("upgrade", Framing),
            ("anthropic-beta", Content),
            ("openai-organization", Content),
            ("http-referer", Content),
            ("x-title", Content),
            ("authorization", Content),
            ("x-stainless-lang", Content),
            ("x-api-key", Content),
            ("x-ghost", Address),
            ("x-hostname", Address),
            ("x-baseurl", Address),
            ("x-forwardedhost", Address),
            ("x-rewriteurl", Address),
            ("x-portkey-config", Address),
            ("x-http-method-override", Address),
            ("x-api-key-host", Address),
            ("HTTP2-Settings", Framing),
        ] {
            assert_eq!(HeaderRole::of(name), role, "{name}");
        }
    }
}
