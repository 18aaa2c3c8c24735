//! The proxy through which a command reaches the hosts that it was given, and no others.
//!
//! It runs in the wrapper, outside of the sandbox, for one command. It tunnels (`CONNECT`) and passes
//! plain HTTP on; a host is compared as the command writes it, and resolved only after that.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::spec::sandbox::host_of;

/// The most connections of a command at once: a browser uses fewer, and an attacker gets no more memory.
const MOST: usize = 64;

/// The most bytes of the head of a request, as common servers take.
const HEAD: usize = 16 << 10;

/// Time for the head of a request to arrive and for its host to answer.
const WITHIN: Duration = Duration::from_secs(30);

/// Time for which a refused client may go on sending.
const LINGER: Duration = Duration::from_secs(2);

/// The most bytes that a refused client may send in that time.
const MOST_UNREAD: u64 = 1 << 20;

/// Pause after a connection could not be taken: too many files are open.
const PAUSE: Duration = Duration::from_millis(100);

/// The most hosts of a command that are kept when they are refused: a person reads them in one line.
const MOST_REFUSED: usize = 8;

/// The hosts that were refused, in the form of `network`: no character in it changes a line or a text of TOML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tool) struct Refused {
    /// The first of them, each once, in the order in which they were asked for.
    pub(in crate::tool) hosts: Vec<String>,
    /// True if there were others.
    pub(in crate::tool) has_more: bool,
}

/// Notes the hosts that the proxy of a command refuses.
#[derive(Clone, Debug, Default)]
pub(in crate::tool) struct RefusedHosts(Arc<Mutex<Refused>>);

impl RefusedHosts {
    /// Returns what was refused until now.
    pub(in crate::tool) fn noted(&self) -> Refused {
        self.0.lock().clone()
    }

    fn note(&self, host: String) {
        let mut noted = self.0.lock();
        if noted.hosts.contains(&host) {
            return;
        }
        match noted.hosts.len() {
            MOST_REFUSED.. => noted.has_more = true,
            _ => noted.hosts.push(host),
        }
    }
}

/// Serves the connections of a command until it is dropped, and notes the hosts that it refuses.
pub(super) async fn serve(listener: TcpListener, hosts: Arc<[String]>, refused: RefusedHosts) {
    let permits = Arc::new(Semaphore::new(MOST));
    while let Ok(permit) = permits.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((client, _)) => {
                let (hosts, refused) = (hosts.clone(), refused.clone());
                tokio::spawn(async move {
                    // A connection that breaks is known at both of its ends.
                    let _broken = answer(client, &hosts, &refused).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn answer(mut client: TcpStream, hosts: &[String], refused: &RefusedHosts) -> io::Result<()> {
    let opened = tokio::time::timeout(WITHIN, open(&mut client, hosts)).await;
    match opened.unwrap_or_else(|_| Err(Refusal::new("504 Gateway Timeout", "it took too long"))) {
        Ok(mut server) => {
            tokio::io::copy_bidirectional(&mut client, &mut server).await?;
            Ok(())
        }
        Err(mut refusal) => {
            // Before the answer: the command may end as soon as it has it.
            if let Some(host) = refusal.wanted.take() {
                refused.note(host);
            }
            client.write_all(refusal.text().as_bytes()).await?;
            client.shutdown().await?;
            // A client that is still sending would be cut off by a reset before it reads the refusal.
            let (mut rest, mut nowhere) = (client.take(MOST_UNREAD), tokio::io::sink());
            let read = tokio::io::copy(&mut rest, &mut nowhere);
            tokio::time::timeout(LINGER, read).await.map_or(Ok(()), |read| read.map(drop))
        }
    }
}

/// Reads the head of a request, connects to its host, and begins the exchange.
async fn open(client: &mut TcpStream, hosts: &[String]) -> Result<TcpStream, Refusal> {
    let broken = |error: io::Error| Refusal::new("502 Bad Gateway", &error.to_string());
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if bytes.len() >= HEAD || client.read_buf(&mut bytes).await.map_err(broken)? == 0 {
            return Err(Refusal::malformed());
        }
    };
    let request = Request::read(&bytes[..end]).ok_or_else(Refusal::malformed)?;
    if !hosts.contains(&request.host) {
        return Err(Refusal::denied(&request.host, hosts));
    }
    let found = tokio::net::lookup_host(&request.host).await.map_err(broken)?;
    let (may, mut failed) =
        (|address: &SocketAddr| may_connect(&request.host, *address, hosts), None);
    for address in found {
        if !may(&address) {
            failed.get_or_insert_with(|| Refusal::private(&request.host, address));
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(mut server) => {
                match &request.head {
                    Some(head) => server.write_all(head).await.map_err(broken)?,
                    None => {
                        let opened = b"HTTP/1.1 200 Connection established\r\n\r\n";
                        client.write_all(opened).await.map_err(broken)?;
                    }
                }
                server.write_all(&bytes[end..]).await.map_err(broken)?;
                return Ok(server);
            }
            Err(error) => failed = Some(broken(error)),
        }
    }
    Err(failed.unwrap_or_else(|| Refusal::new("502 Bad Gateway", "the host has no address")))
}

/// Returns true if a connection for this host may go to an address. Whoever owns a name decides where it
/// leads, so a private address must be named itself.
fn may_connect(host: &str, address: SocketAddr, hosts: &[String]) -> bool {
    let is_own = host.starts_with("localhost:") && address.ip().is_loopback();
    is_public(address.ip()) || is_own || hosts.contains(&address.to_string())
}

/// Returns true for an address that belongs to no private network, machine or group.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [first, second, third, _] = ip.octets();
            let is_special = ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || (first == 100 && second & 0xc0 == 64)
                || (first == 192 && second == 0 && third == 0)
                || (first == 198 && second & 0xfe == 18);
            // From 224 on: groups, and what is reserved.
            !is_special && first != 0 && first < 224
        }
        IpAddr::V6(ip) => match (ip.to_ipv4_mapped(), ip.segments()) {
            (Some(ip), _) => is_public(ip.into()),
            // By these a network without IPv4 reaches the machines that have only that.
            (None, [0x64, 0xff9b, 0, 0, 0, 0, high, low]) => {
                let [a, b] = high.to_be_bytes();
                let [c, d] = low.to_be_bytes();
                is_public(IpAddr::from([a, b, c, d]))
            }
            (None, segments) => is_global(ip, segments),
        },
    }
}

/// Returns true for a global address of IPv6 that holds none of IPv4 (6to4, Teredo).
fn is_global(ip: Ipv6Addr, [first, second, ..]: [u16; 8]) -> bool {
    !ip.is_multicast()
        && first & 0xe000 == 0x2000
        && first != 0x2002
        && (first, second) != (0x2001, 0)
}

/// A request to the proxy.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    /// The host with its port, as `network` writes them.
    host: String,
    /// The head for the host; `None` for a tunnel.
    head: Option<Vec<u8>>,
}

impl Request {
    /// Reads a head with its end.
    fn read(head: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        if method == "CONNECT" {
            return Some(Self { host: host_of(target)?, head: None });
        }
        let target = target
            .get(..7)
            .filter(|scheme| scheme.eq_ignore_ascii_case("http://"))
            .and(target.get(7..))?;
        let (authority, path) =
            target.split_at(target.find(['/', '?', '#']).unwrap_or(target.len()));
        let host = host_of(authority).or_else(|| host_of(&format!("{authority}:80")))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let mut own = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {authority}\r\n");
        for line in lines {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            if !OF_THE_PROXY.contains(&name.as_str()) && !line.contains(['\r', '\n']) {
                own.push_str(line);
                own.push_str("\r\n");
            }
        }
        // The next request may be for another host, so it comes by another connection.
        own.push_str("Connection: close\r\n\r\n");
        Some(Self { host, head: Some(own.into_bytes()) })
    }
}

/// Headers that are for the proxy, or that it writes itself.
const OF_THE_PROXY: [&str; 6] =
    ["host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade"];

/// An answer to a request that the proxy does not pass on.
#[derive(Debug)]
struct Refusal {
    status: &'static str,
    reason: String,
    /// What `network` would have to name; `None` if that would not help.
    wanted: Option<String>,
}

impl Refusal {
    fn new(status: &'static str, reason: &str) -> Self {
        Self { status, reason: reason.to_owned(), wanted: None }
    }

    fn malformed() -> Self {
        Self::new("400 Bad Request", "this proxy understands `CONNECT` and `http://` requests only")
    }

    fn denied(host: &str, hosts: &[String]) -> Self {
        let reason = format!(
            "the sandbox of this command does not let it reach {host}, only {}; a person can add it to \
             `network` in `[sandbox]` of agents.toml",
            hosts.join(", ")
        );
        Self { status: DENIED, reason, wanted: Some(host.to_owned()) }
    }

    fn private(host: &str, address: SocketAddr) -> Self {
        let reason = format!(
            "{host} leads to {address}, which is private; a person can add this address to `network` in \
             `[sandbox]` of agents.toml, beside the name"
        );
        Self { status: DENIED, reason, wanted: Some(address.to_string()) }
    }

    fn text(&self) -> String {
        let Self { status, reason, .. } = self;
        let length = reason.len() + 1;
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{reason}\n"
        )
    }
}

/// The status of a host that may not be reached. Programs print these words, and not the text below.
const DENIED: &str = "403 Not in `network` of the sandbox";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_host() {
        let read = |head: &str| Request::read(format!("{head}\r\n\r\n").as_bytes());
        let tunnel = |host: &str| Some(Request { host: host.to_owned(), head: None });
        for (head, expected) in [
            ("CONNECT a.b:443 HTTP/1.1", tunnel("a.b:443")),
            ("CONNECT A.b.:443 HTTP/1.1\r\nHost: other:1", tunnel("a.b:443")),
            ("CONNECT [::1]:5 HTTP/1.0", tunnel("[::1]:5")),
            ("CONNECT a.b HTTP/1.1", None),
            ("CONNECT a.b:443", None),
            ("CONNECT a.b:443 x HTTP/1.1", None),
            ("CONNECT u@a.b:443 HTTP/1.1", None),
            ("CONNECT a.b:0 HTTP/1.1", None),
            ("CONNECT a.b\0:1 HTTP/1.1", None),
            ("GET / HTTP/1.1\r\nHost: a.b", None),
            ("GET https://a.b/ HTTP/1.1", None),
            ("GET http://u:p@a.b/ HTTP/1.1", None),
            ("GET http://", None),
            ("", None),
        ] {
            assert_eq!(read(head), expected, "{head}");
        }
        let plain = read(
            "GET HTTP://A.b:81/x?y HTTP/1.1\r\nHost: other\r\nAccept: */*\r\nProxy-Connection: keep-alive",
        );
        let own = "GET /x?y HTTP/1.1\r\nHost: A.b:81\r\nAccept: */*\r\nConnection: close\r\n\r\n";
        assert_eq!(plain, Some(Request { host: "a.b:81".to_owned(), head: Some(own.into()) }));
        let short = read("GET http://a.b?q HTTP/1.1").and_then(|request| request.head).unwrap();
        assert!(short.starts_with(b"GET /?q HTTP/1.1\r\nHost: a.b\r\n"));
    }

    #[test]
    fn a_few_refused_hosts_are_kept_each_once() {
        let refused = RefusedHosts::default();
        for host in ["a.b:1", "a.b:2", "a.b:1"] {
            refused.note(host.to_owned());
        }
        let two = ["a.b:1", "a.b:2"].map(str::to_owned).to_vec();
        assert_eq!(refused.noted(), Refused { hosts: two.clone(), has_more: false });
        for number in 0..1_000 {
            refused.note(format!("h{number}.b:1"));
        }
        let Refused { hosts, has_more } = refused.noted();
        assert!(has_more && hosts.len() == MOST_REFUSED && hosts.starts_with(&two), "{hosts:?}");
    }

    #[test]
    fn what_is_refused_is_what_the_key_would_have_to_name() {
        let hosts = ["a.b:1".to_owned()];
        let address = "[fd00::2]:443".parse().expect("an address");
        for (refusal, wanted) in [
            (Refusal::denied("c.d:443", &hosts), Some("c.d:443")),
            (Refusal::private("a.b:1", address), Some("[fd00::2]:443")),
            (Refusal::malformed(), None),
            (Refusal::new("504 Gateway Timeout", "it took too long"), None),
        ] {
            assert_eq!(refusal.wanted.as_deref(), wanted, "{refusal:?}");
        }
    }

    #[test]
    fn a_private_address_must_be_named_itself() {
        let hosts = ["a.b:1", "localhost:1", "10.0.0.1:1", "[fd00::1]:1"].map(str::to_owned);
        let may = |host: &str, address: &str| {
            may_connect(host, address.parse().expect("an address"), &hosts)
        };
        for private in [
            "127.0.0.1:1",
            "10.0.0.2:1",
            "10.0.0.1:2",
            "172.16.0.1:1",
            "192.168.0.1:1",
            "169.254.169.254:1",
            "100.64.0.1:1",
            "0.0.0.0:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "[::1]:1",
            "[::]:1",
            "[fe80::1]:1",
            "[fd00::2]:1",
            "[::ffff:10.0.0.2]:1",
            "[64:ff9b::a00:2]:1",
            "[2002:a00:1::]:1",
            "[ff02::1]:1",
        ] {
            assert!(!may("a.b:1", private), "{private}");
        }
        for address in ["93.184.215.14:1", "[2606:2800:21f:cb07::1]:1", "10.0.0.1:1", "[fd00::1]:1"]
        {
            assert!(may("a.b:1", address), "{address}");
        }
        assert!(may("localhost:1", "127.0.0.1:1") && may("localhost:1", "[::1]:1"));
        assert!(!may("localhost:1", "10.0.0.2:1"));
    }
}
