//! Who is at the other end of a control connection, as the kernel tells it.
//!
//! Only this user and root are heard, and no process that a run has started: a command must not answer
//! the questions of its own run. A command is known by what it cannot put off: the processes that it
//! descends from, its namespaces, and the restrictions of its sandbox.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

/// The most processes between one and the first of the system. Longer lines are refused.
const LONGEST_LINE: usize = 4096;

/// The namespaces in which a command of a sandbox may be apart from this process.
const NAMESPACES: [&str; 3] = ["user", "pid", "mnt"];

/// How often a line of processes is read again that changed meanwhile.
const LOOKS: usize = 3;

/// A process that may speak for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    uid: u32,
    pid: u32,
    /// When the process began, so that another process of the same number is not taken for it.
    began: u64,
}

impl Peer {
    /// Finds out who has connected.
    ///
    /// # Errors
    /// Returns the reason why nothing is done for that process.
    pub(super) fn of(stream: &UnixStream) -> Result<Self, String> {
        let credentials = stream.peer_cred().map_err(|error| error.to_string())?;
        let (own, uid) = (rustix::process::geteuid().as_raw(), credentials.uid());
        if uid != own && uid != 0 {
            return Err(format!("the run is not of the user with the id {uid}"));
        }
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        let Some(pid) = pid else { return Err(apart("pid")) };
        examine(pid, uid)
    }

    /// Returns true if it is still the process that connected.
    pub(super) fn is_same(&self) -> bool {
        Process::read(self.pid).is_ok_and(|now| now.began == self.began)
    }

    /// Returns the name under which an answer of it is recorded.
    pub(super) fn name(&self) -> String {
        name(self.uid, self.pid)
    }
}

/// Returns the name under which answers of this process are recorded: `user@host/pid`.
#[must_use]
pub fn this_process() -> String {
    name(rustix::process::geteuid().as_raw(), std::process::id())
}

fn name(uid: u32, pid: u32) -> String {
    format!("{}/{pid}", user(uid))
}

/// Returns the name of a user on this host: `user@host`.
#[must_use]
pub fn user(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = user_in(&users, uid).unwrap_or_else(|| uid.to_string());
    let host = fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.unwrap_or_else(|_| "localhost".to_owned());
    format!("{user}@{}", host.trim())
}

/// Returns the name of a user in the text of `/etc/passwd`.
fn user_in(users: &str, uid: u32) -> Option<String> {
    let number = uid.to_string();
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = lines.find(|fields| fields.get(2) == Some(&number.as_str()))?;
    found.first().filter(|name| !name.is_empty()).map(|name| (*name).to_owned())
}

/// Examines the process that the kernel named.
fn examine(pid: u32, uid: u32) -> Result<Peer, String> {
    let own = std::process::id();
    let is_shown =
        fs::read_link("/proc/self").is_ok_and(|link| link == Path::new(&own.to_string()));
    if !is_shown {
        return Err("`/proc` does not show the processes of this system".to_owned());
    }
    let peer = Process::read(pid)?;
    let found = Peer { uid, pid, began: peer.began };
    if pid == own {
        return Ok(found);
    }
    peer.is_as_free_as(&Process::read(own)?)?;
    for kind in NAMESPACES {
        match (namespace(own, kind), namespace(pid, kind)) {
            (Some(here), Some(there)) if here != there => return Err(apart(kind)),
            // A process that hides its memory hides these too, as this program does; what was compared
            // before stands in any case.
            _ => {}
        }
    }
    match (0..LOOKS).find_map(|_| descends(pid, own, &|pid| Process::read(pid).ok())) {
        Some(false) if Process::read(pid)?.began == found.began => Ok(found),
        Some(true) => Err("a process that a run started does not speak for a person".to_owned()),
        Some(false) | None => Err("the process that asked has gone".to_owned()),
    }
}

fn apart(kind: &str) -> String {
    format!("the process is in another {kind} namespace than the run: use the shell of the person")
}

fn namespace(pid: u32, kind: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()
}

/// Returns true if a process descends from another one, or `None` if the line cannot be read.
fn descends(pid: u32, from: u32, read: &dyn Fn(u32) -> Option<Process>) -> Option<bool> {
    let mut at = pid;
    for _ in 0..LONGEST_LINE {
        match read(at)?.parent {
            parent if parent == from => return Some(true),
            // The kernel, or a process outside of this system.
            0 => return Some(false),
            parent => at = parent,
        }
    }
    None
}

/// What the kernel tells of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// Ticks since the start of the system.
    began: u64,
    /// The process namespaces that it is in, counted from that of `/proc`.
    depth: usize,
    /// True if programs give it no more rights.
    no_new_privileges: bool,
    /// The filters of system calls that it runs under.
    filters: u32,
}

impl Process {
    fn read(pid: u32) -> Result<Self, String> {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}"));
        let texts = read("status").and_then(|status| Ok((status, read("stat")?)));
        let (status, stat) = texts.map_err(|_| "the process that asked has gone".to_owned())?;
        let (status, stat) = (String::from_utf8_lossy(&status), String::from_utf8_lossy(&stat));
        let unread = || "the system does not tell who the process is".to_owned();
        Self::parse(&status, &stat).ok_or_else(unread)
    }

    /// Reads `/proc/PID/status` and `/proc/PID/stat`. A name of a process stands in both: in the first
    /// one line ends it, in the second the last bracket.
    fn parse(status: &str, stat: &str) -> Option<Self> {
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        let filters = match field("Seccomp_filters") {
            Some(count) => count.parse().ok()?,
            // Linux before 5.9 tells only if there are any.
            None => u32::from(field("Seccomp")? != "0"),
        };
        let (_, after) = stat.rsplit_once(')')?;
        Some(Self {
            parent: field("PPid")?.parse().ok()?,
            // The 22nd field; the third comes first after the name.
            began: after.split_whitespace().nth(19)?.parse().ok()?,
            depth: field("NSpid")?.split_whitespace().count(),
            no_new_privileges: field("NoNewPrivs")? != "0",
            filters,
        })
    }

    /// Checks that a process is under no restriction that another one is not under. They can never be
    /// put off, and every sandbox of a command has them.
    fn is_as_free_as(&self, other: &Self) -> Result<(), String> {
        if self.depth > other.depth {
            return Err(apart("pid"));
        }
        let is_bound = self.no_new_privileges && !other.no_new_privileges;
        if is_bound || self.filters > other.filters {
            return Err("a process in a sandbox does not speak for a person".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::process::{Command, Stdio};

    use super::*;

    const STATUS: &str = "Name:\tx\\nPPid:\\t1\nPPid:\t7\nNSpid:\t12\t3\nNoNewPrivs:\t1\n\
                          Seccomp:\t2\nSeccomp_filters:\t4\n";
    const STAT: &str = "12 (a) S 1 (b)) S 7 12 12 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0";

    #[test]
    fn what_the_kernel_tells_of_a_process_is_read() {
        let read = Process::parse(STATUS, STAT).unwrap();
        let known =
            Process { parent: 7, began: 777, depth: 2, no_new_privileges: true, filters: 4 };
        assert_eq!(read, known);
        let old = STATUS.replace("Seccomp_filters:\t4\n", "");
        assert_eq!(Process::parse(&old, STAT).unwrap().filters, 1);
        for missing in ["PPid:\t7\n", "NSpid:\t12\t3\n", "NoNewPrivs:\t1\n"] {
            assert_eq!(Process::parse(&STATUS.replace(missing, ""), STAT), None, "{missing}");
        }
        assert_eq!(Process::parse(STATUS, "12 (a"), None);
    }

    #[test]
    fn restrictions_that_this_process_does_not_have_are_those_of_a_command() {
        let own = Process { depth: 1, filters: 1, ..Process::default() };
        let bound = |change: &dyn Fn(&mut Process)| {
            let mut peer = own.clone();
            change(&mut peer);
            peer.is_as_free_as(&own).is_err()
        };
        assert!(!bound(&|_| {}));
        assert!(!bound(&|peer| peer.filters = 0));
        assert!(bound(&|peer| peer.filters = 2));
        assert!(bound(&|peer| peer.no_new_privileges = true));
        assert!(bound(&|peer| peer.depth = 2));
    }

    #[test]
    fn a_line_of_processes_ends_somewhere() {
        let line = |parents: &[(u32, u32)]| {
            let known: HashMap<_, _> = parents.iter().copied().collect();
            move |pid: u32| {
                known.get(&pid).map(|parent| Process { parent: *parent, ..Process::default() })
            }
        };
        assert_eq!(descends(9, 5, &line(&[(9, 7), (7, 5), (5, 1)])), Some(true));
        assert_eq!(descends(9, 5, &line(&[(9, 7), (7, 1), (1, 0)])), Some(false));
        assert_eq!(descends(9, 5, &line(&[(9, 7)])), None, "one has gone");
        assert_eq!(descends(9, 5, &line(&[(9, 8), (8, 9)])), None, "a circle");
    }

    #[test]
    fn a_child_does_not_speak_for_a_person_and_this_process_does() {
        let uid = rustix::process::geteuid().as_raw();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let refused = examine(child.id(), uid).unwrap_err();
        assert!(refused.contains("does not speak for a person"), "{refused}");
        let id = child.id();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(examine(id, uid).is_err());
        let own = examine(std::process::id(), uid).unwrap();
        assert!(own.is_same());
        assert!(!Peer { began: own.began + 1, ..own.clone() }.is_same());
        assert_eq!(own.name(), this_process());
    }

    #[test]
    fn a_user_has_the_name_that_the_system_knows() {
        let users =
            "root:x:0:0::/root:/bin/sh\nbad\nalice:x:1000:1000::/home/alice:/bin/sh\n:x:7:7\n";
        assert_eq!(user_in(users, 1000).as_deref(), Some("alice"));
        assert_eq!(user_in(users, 0).as_deref(), Some("root"));
        assert_eq!((user_in(users, 1), user_in(users, 7)), (None, None));
    }
}
