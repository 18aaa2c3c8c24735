//! The namespaces that a process needs before it can start another one in a sandbox.

use std::fs;
use std::io;
use std::net::TcpListener;

use nix::sched::{CloneFlags, unshare};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::untried::no_namespaces;
use super::{Failure, Namespaces, Policy, way_out};

/// Rights in the user namespace by which a process in it makes the mounts of a sandbox, and then
/// gives up all rights.
const GIVEN: [CapabilitySet; 2] = [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP];

/// Moves this process, which must have one thread, into a user namespace of its own, so that what
/// it starts can make the other namespaces of a sandbox.
pub(super) fn own_user() -> Result<(), Failure> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(no_namespaces)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    let now = rustix::thread::capabilities(None)?;
    let given = GIVEN.into_iter().fold(CapabilitySet::empty(), |all, one| all | one);
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable: given, ..now })?;
    for right in GIVEN {
        // Another program than that of root would lose it otherwise.
        rustix::thread::configure_capability_in_ambient_set(right, true)?;
    }
    Ok(())
}

/// Starts a process in the namespaces that only its parent can make for it. In a process namespace it
/// is the first one: when it ends, the kernel ends all that were started below it. If the policy names
/// hosts, `start` is given the listener on the loopback of its network, and it is returned.
pub(super) fn apart<T: Send>(
    policy: &Policy,
    start: impl FnOnce(Option<&TcpListener>) -> io::Result<T> + Send,
) -> io::Result<(T, Option<TcpListener>)> {
    // A process that has done this cannot make threads any more, so a thread does it. The other threads
    // stay in the network of the machine.
    let started = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            let listener = (!policy.hosts.is_empty()).then(way_out::open).transpose()?;
            if policy.namespaces == Namespaces::Processes {
                unshare(CloneFlags::CLONE_NEWPID).map_err(no_namespaces)?;
            }
            Ok((start(listener.as_ref())?, listener))
        });
        match thread {
            Ok(thread) => thread.join(),
            Err(error) => Ok(Err(error)),
        }
    });
    started.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it has panicked")))
}
