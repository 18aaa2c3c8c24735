//! A webhook: one signed POST of a notice to a server of the user.
//!
//! It stands beside the models because only this floor speaks HTTP. The name is resolved here and the address that was
//! checked is the one that is called, so that no server on a private network is reached that was not named. Nothing of
//! the answer is read but its status.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use ring::hmac;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::http::{Key, broken};

/// The most addresses of a name that are tried.
const MOST_ADDRESSES: usize = 8;

/// A server that is told of runs.
pub struct Webhook {
    url: Url,
    secret: Option<Key>,
    allow_private: bool,
    /// The longest time for the name, the connection and the status together.
    deadline: Duration,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its path and query are often a key.
        f.debug_struct("Webhook").field("origin", &self.origin()).finish_non_exhaustive()
    }
}

/// One attempt to post a notice.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    /// Id of the notice, the same in every attempt.
    pub id: &'a str,
    /// Number of the attempt, from 1.
    pub number: u32,
    /// Time of the attempt, in seconds since the Unix epoch.
    pub at_s: i64,
    /// The notice, as JSON.
    pub body: String,
}

/// The reason why a notice was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTaken {
    /// The reason, for people. It names at most the origin of the server.
    pub message: String,
    /// True if the same request would be refused again.
    pub is_final: bool,
}

impl NotTaken {
    fn for_now(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_final: false }
    }

    fn for_good(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_final: true }
    }
}

impl Webhook {
    /// Makes a webhook. Returns `None` if the address is no URL of http or https with a host.
    #[must_use]
    pub fn new(
        url: &str,
        secret: Option<Key>,
        allow_private: bool,
        deadline: Duration,
    ) -> Option<Self> {
        let url = Url::parse(url.trim()).ok()?;
        let fits = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
        fits.then_some(Self { url, secret, allow_private, deadline })
    }

    /// Returns scheme, host and port of the server.
    #[must_use]
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Makes an attempt to post a notice.
    ///
    /// # Errors
    /// Returns an error unless the server answers with a status from 200 to 299 in time.
    pub async fn post(&self, attempt: Attempt<'_>) -> Result<(), NotTaken> {
        let seconds = self.deadline.as_secs_f64();
        let late =
            || NotTaken::for_now(format!("no answer within {seconds} s from {}", self.origin()));
        timeout(self.deadline, self.exchange(attempt)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn exchange(&self, attempt: Attempt<'_>) -> Result<(), NotTaken> {
        let Attempt { id, number, at_s, body } = attempt;
        let addresses = self.addresses().await?;
        let client = self.client(&addresses).map_err(|error| self.failed(&error))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let signature = self.secret.as_ref().map(|secret| signature(secret.expose(), at_s, &body));
        for (name, value) in [
            ("callsheet-notice-id", Some(id.to_owned())),
            ("callsheet-notice-attempt", Some(number.to_string())),
            ("callsheet-signature", signature),
        ] {
            let Some(value) = value else { continue };
            let value = HeaderValue::from_str(&value)
                .map_err(|_| NotTaken::for_good(format!("the header {name} cannot be sent")))?;
            headers.insert(name, value);
        }
        let request = client.post(self.url.clone()).headers(headers).body(body);
        let response = request.send().await.map_err(|error| self.failed(&error))?;
        // The body is not read: whoever answers without end only loses the connection.
        self.judge(response.status())
    }

    fn judge(&self, status: StatusCode) -> Result<(), NotTaken> {
        let message = format!("{} answered {}", self.origin(), status.as_u16());
        if status.is_success() {
            return Ok(());
        }
        if status.is_redirection() {
            let message = format!("{message}, a redirect, which is not followed");
            return Err(NotTaken::for_good(message));
        }
        let may_pass = matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
        // A path that is not there yet comes with the next deployment; a signature that is wrong stays wrong.
        let may_pass = may_pass || status.is_server_error() || status == StatusCode::NOT_FOUND;
        Err(NotTaken { message, is_final: !may_pass })
    }

    /// Returns the addresses of the server, all of which may be called.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, NotTaken> {
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let found: Vec<SocketAddr> = match literal {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => match lookup_host((host, port)).await {
                Ok(found) => found.take(MOST_ADDRESSES).collect(),
                Err(error) => {
                    return Err(NotTaken::for_now(format!(
                        "the name `{host}` is not found: {error}"
                    )));
                }
            },
        };
        let private = found.iter().find(|address| is_private(address.ip()));
        match private {
            _ if found.is_empty() => {
                Err(NotTaken::for_now(format!("the name `{host}` has no address")))
            }
            Some(address) if !self.allow_private => {
                let address = address.ip();
                Err(NotTaken::for_good(format!(
                    "`{host}` is the private address {address}: `allow_private = true` allows it"
                )))
            }
            Some(_) | None => Ok(found),
        }
    }

    /// Makes a client that calls no other address and follows nothing. It has no proxy, which would resolve the name
    /// once more.
    fn client(&self, addresses: &[SocketAddr]) -> Result<Client, reqwest::Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("callsheet/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .redirect(reqwest::redirect::Policy::none());
        if let Some(name) = self.url.domain() {
            builder = builder.resolve_to_addrs(name, addresses);
        }
        if self.url.scheme() == "http" {
            // Without this, certificates are loaded and must exist, although http needs none.
            builder = builder.tls_certs_only([]);
        }
        builder.build()
    }

    fn failed(&self, error: &reqwest::Error) -> NotTaken {
        NotTaken::for_now(broken(&self.origin(), error))
    }
}

/// Returns the signature of a body: HMAC-SHA256 over the time, a full stop and the body, in hexadecimal.
fn signature(secret: &str, at_s: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{at_s}.{body}").as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={at_s},v1={hex}")
}

/// Returns true for an address that is not one of the public internet (IANA special-purpose registries), and for one
/// that a translator would take there.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || a == 0
        || a >= 240
        // Shared by the customers of a provider, protocol assignments, benchmarks.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (18..20).contains(&b))
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let last = |at: usize| {
        let [a, b] = segments[at].to_be_bytes();
        let [c, d] = segments[at + 1].to_be_bytes();
        is_private_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Mapped and compatible addresses, with `::` and `::1`.
        [0, 0, 0, 0, 0, 0xffff | 0, _, _] => address.is_loopback() || last(6),
        // NAT64, and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => last(6),
        [0x64, 0xff9b, ..] => true,
        [0x2002, ..] => last(1),
        // Teredo and the other protocol assignments.
        [0x2001, second, ..] if second < 0x200 => true,
        // Unique local, link-local, site-local and multicast addresses.
        [first, ..] => {
            first & 0xfe00 == 0xfc00 || first & 0xff80 == 0xfe80 || first & 0xff00 == 0xff00
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn webhook(url: &str, allow_private: bool) -> Webhook {
        Webhook::new(url, Some(Key::new("k")), allow_private, Duration::from_secs(2))
            .expect("a URL")
    }

    fn first() -> Attempt<'static> {
        Attempt { id: "id", number: 1, at_s: 0, body: "{}".to_owned() }
    }

    /// Serves one connection: reads the request up to its body and writes this answer. Returns the URL and the
    /// request.
    async fn server(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/hook?token=hidden", listener.local_addr().expect("bound"));
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut read = Vec::new();
            while !read.ends_with(b"}") {
                let mut buffer = [0; 4096];
                let count = stream.read(&mut buffer).await.expect("a request");
                assert!(count > 0, "a whole request");
                read.extend_from_slice(&buffer[..count]);
            }
            stream.write_all(answer.as_bytes()).await.expect("written");
            let _closed = stream.read(&mut [0; 1]).await;
            String::from_utf8(read).expect("text")
        });
        (url, served)
    }

    #[test]
    fn the_signature_is_the_known_one() {
        // `printf '1700000000.{}' | openssl dgst -sha256 -hmac key`
        let known = "9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae";
        let made = signature("key", 1_700_000_000, "{}");
        assert_eq!(made, format!("t=1700000000,v1={known}"));
        assert_ne!(made, signature("key", 1_700_000_001, "{}"));
        assert_ne!(made, signature("kez", 1_700_000_000, "{}"));
        assert_ne!(made, signature("key", 1_700_000_000, "{ }"));
    }

    #[test]
    fn addresses_that_are_not_public_are_known() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd00::1",
            "fec0::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001::1",
        ] {
            assert!(is_private(address.parse().expect("an address")), "{address}");
        }
        for address in [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.2.1",
            "8.8.8.8",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::",
        ] {
            assert!(!is_private(address.parse().expect("an address")), "{address}");
        }
    }

    #[tokio::test]
    async fn a_notice_is_posted_with_its_id_and_signature() {
        let (url, served) = server("HTTP/1.1 204 No Content\r\n\r\n").await;
        let webhook = webhook(&url, true);
        webhook
            .post(Attempt {
                id: "run-question-1",
                number: 3,
                at_s: 1_700_000_000,
                body: "{\"a\":1}".to_owned(),
            })
            .await
            .expect("taken");
        drop(webhook);
        let request = served.await.expect("served").to_lowercase();
        assert!(request.starts_with("post /hook?token=hidden http/1.1\r\n"), "{request}");
        assert!(request.contains("\r\ncallsheet-notice-id: run-question-1\r\n"), "{request}");
        assert!(request.contains("\r\ncallsheet-notice-attempt: 3\r\n"), "{request}");
        let signed = signature("k", 1_700_000_000, "{\"a\":1}");
        assert!(request.contains(&format!("\r\ncallsheet-signature: {signed}\r\n")), "{request}");
        assert!(request.ends_with("\r\n\r\n{\"a\":1}"), "{request}");
    }

    #[tokio::test]
    async fn a_private_address_is_refused_by_number_and_by_name_before_anything_is_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0"] {
            let webhook = webhook(&format!("http://{host}:{port}/"), false);
            let refused = webhook.post(first()).await.expect_err("refused");
            assert!(refused.is_final && refused.message.contains("private address"), "{refused:?}");
        }
        let nobody = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(nobody.is_err(), "nothing was connected to");
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        let target = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let location = target.local_addr().expect("bound");
        let answer =
            format!("HTTP/1.1 307 T\r\nlocation: http://{location}/\r\ncontent-length: 0\r\n\r\n");
        let (url, _served) = server(Box::leak(answer.into_boxed_str())).await;
        let refused = webhook(&url, true).post(first()).await;
        let refused = refused.expect_err("refused");
        assert!(refused.is_final && refused.message.contains("a redirect"), "{refused:?}");
        let nobody = tokio::time::timeout(Duration::from_millis(50), target.accept()).await;
        assert!(nobody.is_err(), "it was not followed");
    }

    #[tokio::test]
    async fn a_status_says_whether_another_attempt_can_help() {
        for (answer, is_final) in [
            ("HTTP/1.1 500 x\r\n\r\n", false),
            ("HTTP/1.1 429 x\r\n\r\n", false),
            ("HTTP/1.1 404 x\r\n\r\n", false),
            ("HTTP/1.1 401 x\r\n\r\n", true),
        ] {
            let (url, _served) = server(answer).await;
            let refused = webhook(&url, true).post(first()).await;
            let refused = refused.expect_err("refused");
            assert_eq!(refused.is_final, is_final, "{refused:?}");
            assert!(!refused.message.contains("hidden"), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_answers_without_end_has_taken_the_notice_and_a_silent_one_has_not() {
        let (url, served) =
            server("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
        webhook(&url, true).post(first()).await.expect("taken");
        served.await.expect("the connection was closed");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let hook = Webhook::new(&url, None, true, Duration::from_millis(200)).expect("a URL");
        let refused = hook.post(first()).await.expect_err("silent");
        assert!(
            !refused.is_final && refused.message.contains("no answer within 0.2 s"),
            "{refused:?}"
        );
        // A head without end has an end for the client.
        let endless = "HTTP/1.1 200 OK\r\n".to_owned() + &"x: y\r\n".repeat(100_000);
        let (url, _served) = server(Box::leak(endless.into_boxed_str())).await;
        assert!(webhook(&url, true).post(first()).await.is_err());
    }

    #[test]
    fn only_http_has_webhooks() {
        for url in ["", "ftp://x/", "/path", "http://", "file:///etc/passwd"] {
            assert!(Webhook::new(url, None, true, Duration::from_secs(1)).is_none(), "{url}");
        }
    }
}
