//! The one way out of the empty network of a command: a listener on its loopback interface, which
//! belongs to a process outside.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use nix::sched::{CloneFlags, unshare};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, sendto, socket};

/// The request to the kernel to bring an interface up: `RTM_NEWLINK` with `NLM_F_REQUEST` and
/// `NLM_F_ACK`, for the interface with the number 1, which is the loopback of every network, with the
/// flag `IFF_UP`.
const NEW_LINK: u16 = 16;
const REQUEST_AND_ACKNOWLEDGE: u16 = 0x5;
const LOOPBACK: i32 = 1;
const UP: u32 = 1;

/// The type of the answer, which holds an error number or 0 after its head.
const ANSWER: u16 = 2;

/// Length in bytes of the head of a message.
const HEAD: usize = 16;

/// Variables by which programs find a proxy.
const PROXY: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Names of the command's own loopback interface.
const OWN: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Moves this thread into a new network that holds nothing but a loopback interface, and listens there.
/// What the thread starts from then on is in that network; the listener stays usable by the other threads.
///
/// # Errors
/// Returns an error if the kernel refuses.
pub(super) fn open() -> io::Result<TcpListener> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(super::untried::no_namespaces)?;
    bring_up()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the variables by which the programs of a command find the listener.
pub(super) fn variables(
    listener: &TcpListener,
    hosts: &[String],
) -> io::Result<Vec<(&'static str, String)>> {
    let proxy = format!("http://{}", listener.local_addr()?);
    let name = |host: &str| host.rsplit_once(':').map(|(name, _)| name.replace(['[', ']'], ""));
    let is_named = |own: &&str| hosts.iter().any(|host| name(host).as_deref() == Some(*own));
    // A server of the command itself is reached without the proxy.
    let direct: Vec<&str> = OWN.into_iter().filter(|own| !is_named(own)).collect();
    let mut found = PROXY.map(|name| (name, proxy.clone())).to_vec();
    found.extend(["NO_PROXY", "no_proxy"].map(|name| (name, direct.join(","))));
    // Node looks at the others only with this one.
    found.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    Ok(found)
}

fn bring_up() -> io::Result<()> {
    let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let mut request = Vec::new();
    request.extend(32_u32.to_ne_bytes());
    request.extend(NEW_LINK.to_ne_bytes());
    request.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    // Its number, and that of the sender, which the kernel knows.
    request.extend([0; 8]);
    // The family and the type of the interface: any.
    request.extend([0; 4]);
    request.extend(LOOPBACK.to_ne_bytes());
    // The flags, and those of them that change.
    request.extend(UP.to_ne_bytes());
    request.extend(UP.to_ne_bytes());
    sendto(&kernel, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 256];
    let (length, _) = recv(&kernel, &mut answer, RecvFlags::empty())?;
    let malformed = || io::Error::other("the kernel answers in an unknown way");
    let answer = answer.get(..length).ok_or_else(malformed)?;
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(HEAD..HEAD + 4).and_then(|bytes| bytes.try_into().ok());
    match (kind, error.map(i32::from_ne_bytes)) {
        (Some(ANSWER), Some(0)) => Ok(()),
        (Some(ANSWER), Some(error)) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_own_servers_need_no_proxy_unless_their_name_is_a_host() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for (hosts, direct) in [
            (&["a.b:443", "localhost.a.b:443"][..], "localhost,127.0.0.1,::1"),
            (&["localhost:1", "[::1]:2"], "127.0.0.1"),
        ] {
            let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
            let found = variables(&listener, &hosts).unwrap();
            assert!(found.contains(&("no_proxy", direct.to_owned())), "{found:?}");
            let proxy = format!("http://{}", listener.local_addr().unwrap());
            assert!(found.contains(&("HTTPS_PROXY", proxy)), "{found:?}");
        }
    }
}
