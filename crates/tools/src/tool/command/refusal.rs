//! What the sandbox refused a command that failed, and the key that would allow it, in words.
//!
//! What a layer saw is said as a fact. What the last lines of stderr only look like is said with "may".

use rustix::process::{Resource, getrlimit};

use super::shapes::{self, Shape};
use crate::spec::sandbox::CommandLimits;
use crate::tool::sandbox::{Namespaces, Policy, Refused};

/// The limits of the sandbox that are those of a command: a lower one of this process holds in their place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Binding {
    memory: bool,
    file_size: bool,
    open_files: bool,
    processes: bool,
}

impl Binding {
    /// Returns those of the commands of this process.
    pub(super) fn of(limits: &CommandLimits) -> Self {
        let is_lower = |resource: Resource, most: u64| {
            getrlimit(resource).current.is_none_or(|current| most <= current)
        };
        // The kernel does not count the processes of root.
        let is_root = rustix::process::geteuid().is_root();
        Self {
            memory: limits.memory.is_some_and(|most| is_lower(Resource::Data, most)),
            file_size: is_lower(Resource::Fsize, limits.file_size),
            open_files: is_lower(Resource::Nofile, limits.open_files),
            processes: !is_root && is_lower(Resource::Nproc, limits.processes),
        }
    }
}

/// Returns what the sandbox refused, or may have refused, a command that failed; `None` if it did not, as far as one
/// can know.
pub(super) fn told(
    refused: &Refused,
    stderr: &str,
    policy: &Policy,
    binding: Binding,
) -> Option<String> {
    let known = (!refused.hosts.is_empty()).then(|| known(refused, policy));
    let is_known = known.is_some();
    // What the proxy saw is not guessed as well.
    let is_told = |shape: &Shape| is_known && matches!(shape, Shape::Network(_));
    let mut shapes = shapes::of(stderr).into_iter().filter(|shape| !is_told(shape));
    let likely = shapes.find_map(|shape| likely(shape, policy, binding));
    let likely = likely.map(|why| format!("the sandbox may be the cause: {why}"));
    match (known, likely) {
        (Some(known), Some(likely)) => Some(format!("{known}; {likely}")),
        (known, likely) => known.or(likely),
    }
}

/// Returns what the proxy refused.
fn known(refused: &Refused, policy: &Policy) -> String {
    let Refused { hosts, has_more } = refused;
    let more = if *has_more { " and others" } else { "" };
    format!(
        "the sandbox refused {}{more}: commands reach only {}; beside these, {} allows more",
        hosts.join(", "),
        policy.hosts.join(", "),
        network(hosts)
    )
}

/// Returns the line of `[sandbox]` that names hosts.
fn network(hosts: &[String]) -> String {
    let hosts: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
    format!("`[sandbox] network = [{}]`", hosts.join(", "))
}

/// Returns what the sandbox may have refused a command whose output looks like this, and the key that would allow it;
/// `None` if it refuses no such thing.
fn likely(shape: Shape, policy: &Policy, binding: Binding) -> Option<String> {
    let limit = |is_binding: bool, key: &str| {
        is_binding
            .then(|| format!("a process gets no more than `{key}` in `[sandbox.limits]` allows"))
    };
    match shape {
        Shape::Network(_) | Shape::Direct | Shape::Socket if policy.network => None,
        Shape::Network(_) | Shape::Direct | Shape::Socket if policy.is_kept_offline => {
            Some(OFFLINE.to_owned())
        }
        Shape::Network(host) => unreached(host, policy),
        Shape::Direct => Some(
            "commands have no network of their own, and `[sandbox] network = true` allows one: single hosts are \
             reached by HTTP only"
                .to_owned(),
        ),
        Shape::Socket => Some(no_socket(policy)),
        Shape::System => Some(NEVER.to_owned()),
        Shape::Call if policy.network => Some(NEVER.to_owned()),
        Shape::Call => Some(format!(
            "commands make only the sockets that `network` of `[sandbox]` allows, and {NEVER}"
        )),
        Shape::ReadOnly => Some(unwritten(policy, false)),
        Shape::File => Some(unwritten(policy, true)),
        Shape::Memory => limit(binding.memory, "memory"),
        Shape::OpenFiles => limit(binding.open_files, "open_files"),
        Shape::FileSize => limit(binding.file_size, "file_size"),
        Shape::Processes => limit(binding.processes, "processes"),
    }
}

/// What is said of work that has no network although the run has one.
const OFFLINE: &str = "commands of this task or agent have no network, because its own `sandbox` says \
    `network = false`";

/// What no command may do.
const NEVER: &str = "commands make no namespaces, mounts, devices and raw sockets, and change no owners and no \
    other processes: no key of `[sandbox]` allows that";

/// Returns what is said where a host was not reached; `None` if it is the command's own machine, which it reaches
/// where it has sockets at all.
fn unreached(host: Option<String>, policy: &Policy) -> Option<String> {
    if policy.namespaces == Namespaces::None {
        return Some(
            "commands have no network, and `[sandbox] network = true` allows it".to_owned(),
        );
    }
    let is_own =
        |host: &String| ["localhost:", "127.", "[::1]:"].iter().any(|own| host.starts_with(*own));
    if !policy.hosts.is_empty() && host.as_ref().is_some_and(is_own) {
        return None;
    }
    let wanted = host.filter(|host| !policy.hosts.contains(host));
    let key = network(&[wanted.unwrap_or_else(|| "HOST:PORT".to_owned())]);
    Some(match policy.hosts.as_slice() {
        [] => format!("commands have no network, and {key} allows a host"),
        hosts => format!(
            "commands reach only {}, through the proxy of `HTTPS_PROXY`; beside these, {key} allows more",
            hosts.join(", ")
        ),
    })
}

/// Returns what is said of sockets of this machine.
fn no_socket(policy: &Policy) -> String {
    let now = match (policy.namespaces, policy.hosts.as_slice()) {
        (Namespaces::Mounts | Namespaces::Processes, []) => {
            "commands connect to no sockets of other programs (AF_UNIX)"
        }
        _ => "commands make no sockets of this machine (AF_UNIX)",
    };
    format!(
        "{now}; `[sandbox] network = true` allows them, and for one in a folder that programs share, such as `/run`, \
         `readable_roots` must name it too"
    )
}

/// Returns what is said of files that were not written, and perhaps not read either.
fn unwritten(policy: &Policy, is_read: bool) -> String {
    let (now, key) = match policy.write.is_empty() {
        true => (
            "only temporary files",
            "`mode = \"workspace-write\"`, in `[sandbox]` and in the `sandbox` of the task or agent, allows more",
        ),
        false => (
            "only the workspace, without its protected files, and temporary files",
            "`writable_roots` of `[sandbox]` allows more",
        ),
    };
    let (read, key_to_read) = match is_read {
        true => (
            ", and read no private files of yours",
            "; to read more, `readable_roots` of `[sandbox]`",
        ),
        false => ("", ""),
    };
    format!("commands write {now}{read}; {key}{key_to_read}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::sandbox::Confinement;

    fn hosts<const N: usize>(hosts: [&str; N]) -> Vec<String> {
        hosts.map(str::to_owned).to_vec()
    }

    /// A policy that gives the workspace and no network.
    fn closed() -> Policy {
        let namespaces = Namespaces::Processes;
        Policy { write: vec!["/w".into()], namespaces, ..Policy::default() }
    }

    fn guessed(stderr: &str, policy: &Policy, binding: Binding) -> Option<String> {
        told(&Refused::default(), stderr, policy, binding)
    }

    #[test]
    fn a_host_that_the_proxy_refused_is_named_with_its_key_and_without_a_may() {
        let policy = Policy { hosts: hosts(["a.b:1"]), ..closed() };
        let refused = Refused { hosts: hosts(["c.d:443", "e.f:80"]), has_more: false };
        let printed = "curl: (6) Could not resolve host: c.d";
        let told_once = "the sandbox refused c.d:443, e.f:80: commands reach only a.b:1; beside these, \
                         `[sandbox] network = [\"c.d:443\", \"e.f:80\"]` allows more";
        assert_eq!(told(&refused, "", &policy, Binding::default()).as_deref(), Some(told_once));
        assert_eq!(
            told(&refused, printed, &policy, Binding::default()).as_deref(),
            Some(told_once),
            "what is known is not guessed as well"
        );
        let more = Refused { has_more: true, ..refused };
        let both = told(&more, "touch: /etc/x: Read-only file system", &policy, Binding::default());
        let both = both.expect("it is told");
        assert!(both.contains("refused c.d:443, e.f:80 and others: "), "{both}");
        assert!(both.contains("; the sandbox may be the cause: commands write only"), "{both}");
    }

    #[test]
    fn what_is_guessed_has_a_may_and_the_key_that_would_allow_it() {
        let some = Policy { hosts: hosts(["a.b:1", "c.d:2"]), ..closed() };
        let open = Policy { network: true, write: Vec::new(), ..closed() };
        let bare = Policy { namespaces: Namespaces::None, ..closed() };
        let kept = Policy { is_kept_offline: true, ..closed() };
        let lookup = "curl: (6) Could not resolve host: x.y";
        let socket = "Error: dial unix /run/x.sock: connect: operation not permitted";
        let read_only = "touch: /etc/x: Read-only file system";
        let denied = "cat: /root/.ssh/id: Permission denied";
        let namespace = "unshare: unshare failed: Operation not permitted";
        let unknown = "PermissionError: [Errno 1] Operation not permitted";
        for (stderr, policy, named) in [
            (lookup, &closed(), Some("have no network, and `[sandbox] network = [\"x.y:443\"]`")),
            ("npm error code EAI_AGAIN", &closed(), Some("`[sandbox] network = [\"HOST:PORT\"]`")),
            (lookup, &some, Some("only a.b:1, c.d:2, through the proxy of `HTTPS_PROXY`")),
            ("curl: (7) Failed to connect to localhost port 8080", &some, None),
            (
                "curl: (7) Failed to connect to localhost port 80",
                &closed(),
                Some("\"localhost:80\""),
            ),
            (lookup, &open, None),
            (lookup, &bare, Some("`[sandbox] network = true` allows it")),
            (lookup, &kept, Some("its own `sandbox` says `network = false`")),
            (
                "ssh: connect to host a.b port 22: Operation not permitted",
                &some,
                Some("by HTTP only"),
            ),
            (socket, &closed(), Some("connect to no sockets of other programs (AF_UNIX)")),
            (socket, &some, Some("make no sockets of this machine (AF_UNIX)")),
            (socket, &closed(), Some("`[sandbox] network = true` allows them")),
            (socket, &kept, Some("its own `sandbox`")),
            (socket, &open, None),
            (namespace, &closed(), Some("no key of `[sandbox]` allows that")),
            (namespace, &open, Some("no key of `[sandbox]` allows that")),
            (
                unknown,
                &closed(),
                Some("only the sockets that `network` of `[sandbox]` allows, and"),
            ),
            (unknown, &open, Some("the cause: commands make no namespaces")),
            (read_only, &closed(), Some("`writable_roots` of `[sandbox]` allows more")),
            (read_only, &open, Some("only temporary files; `mode = \"workspace-write\"`")),
            (denied, &closed(), Some("to read more, `readable_roots` of `[sandbox]`")),
            ("2 tests failed", &closed(), None),
        ] {
            let found = guessed(stderr, policy, Binding::default());
            let Some(named) = named else {
                assert_eq!(found, None, "{stderr}");
                continue;
            };
            let found = found.unwrap_or_else(|| panic!("nothing is told of {stderr}"));
            assert!(found.starts_with("the sandbox may be the cause: "), "{found}");
            assert!(found.contains(named), "{named}: {found}");
        }
        let found = guessed(read_only, &closed(), Binding::default()).expect("it is told");
        assert!(!found.contains("readable_roots"), "{found}");
    }

    #[test]
    fn the_key_of_a_task_is_named_only_where_the_run_has_a_network() {
        let offline = Confinement { offline: true, ..Confinement::default() };
        let lookup = "npm error code EAI_AGAIN";
        let some = Policy { hosts: hosts(["a.b:1"]), ..closed() };
        let open = Policy { network: true, ..closed() };
        for run in [&some, &open] {
            let found = guessed(lookup, &run.within(offline), Binding::default());
            let found = found.unwrap_or_default();
            assert!(found.contains("its own `sandbox` says `network = false`"), "{found}");
        }
        let same = closed();
        assert_eq!(same.within(offline), same, "nothing is taken from it");
    }

    #[test]
    fn a_limit_is_named_only_where_it_is_the_one_that_holds() {
        let all = Binding { memory: true, file_size: true, open_files: true, processes: true };
        for (stderr, key) in [
            ("head: Cannot allocate memory", "memory"),
            ("OSError: [Errno 24] Too many open files: '/x'", "open_files"),
            ("OSError: [Errno 27] File too large", "file_size"),
            ("sh: 1: Cannot fork", "processes"),
        ] {
            let found = guessed(stderr, &closed(), all).unwrap_or_default();
            assert!(found.contains(&format!("`{key}` in `[sandbox.limits]`")), "{stderr}: {found}");
            assert_eq!(guessed(stderr, &closed(), Binding::default()), None, "{stderr}");
        }
    }

    #[test]
    fn a_limit_that_is_higher_than_that_of_the_machine_does_not_hold() {
        let highest = CommandLimits {
            memory: None,
            file_size: u64::MAX,
            open_files: u64::MAX,
            processes: u64::MAX,
            ..CommandLimits::default()
        };
        let now = getrlimit(Resource::Nofile).current;
        let binding = Binding::of(&highest);
        assert!(!binding.memory && binding.open_files == now.is_none(), "{binding:?}");
        let lowest = CommandLimits { memory: Some(0), open_files: 0, ..highest };
        let binding = Binding::of(&lowest);
        assert!(binding.memory && binding.open_files, "{binding:?}");
    }
}
