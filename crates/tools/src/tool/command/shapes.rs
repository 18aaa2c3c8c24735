//! The shapes in which programs print what the kernel refused them.
//!
//! Only the last lines of stderr are looked at, and only well-known shapes count: an error text of the C library at the
//! end of a line, what it says of names that it cannot resolve, and the error codes of a few programs. A word in
//! passing, or the title of a test, is none.

use crate::spec::sandbox::host_of;

/// The most lines that are looked at: as many as a failure shows.
const LAST: usize = 20;

/// The most bytes of a line that are looked at: its beginning.
const LONGEST: usize = 2_000;

/// Number of lines before and after a line that may say what it is about, as a traceback does.
const AROUND: usize = 4;

/// What a line looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// There is no network. It has the host that was wanted, as `network` writes it, where a line names one.
    Network(Option<String>),
    /// There is no network for a program that makes no HTTP, so that no proxy would help it.
    Direct,
    /// A socket of a program of this machine is out of reach.
    Socket,
    /// A call that changes namespaces, mounts, owners or other processes is not permitted.
    System,
    /// A call is not permitted, and nothing says which.
    Call,
    /// A file system is read-only.
    ReadOnly,
    /// Access to a file is denied.
    File,
    /// There is no memory.
    Memory,
    /// Too many files are open.
    OpenFiles,
    /// A file is too large.
    FileSize,
    /// No process and no thread can be started.
    Processes,
}

/// Returns what the last lines look like, the last of them first.
pub(super) fn of(stderr: &str) -> Vec<Shape> {
    let cut = |line: &str| line.get(..line.floor_char_boundary(LONGEST)).map(str::to_lowercase);
    let mut lines: Vec<String> = stderr.lines().rev().take(LAST).filter_map(cut).collect();
    lines.reverse();
    let around =
        |at: usize| lines[at.saturating_sub(AROUND)..(at + AROUND + 1).min(lines.len())].join("\n");
    let found = lines.iter().enumerate().rev();
    let mut found: Vec<Shape> =
        found.filter_map(|(at, line)| shape(line.trim(), || around(at))).collect();
    let host = found.iter().find_map(|shape| match shape {
        Shape::Network(host) => host.clone(),
        _ => None,
    });
    for shape in &mut found {
        if let Shape::Network(wanted @ None) = shape {
            wanted.clone_from(&host);
        }
    }
    found
}

/// Beginnings of lines that are titles of tests.
const TITLES: [&str; 9] = ["test ", "ok ", "not ok ", "--- ", "=== ", "✓", "✔", "✗", "✖"];

/// Returns what a line, in lower case, looks like.
fn shape(line: &str, around: impl Fn() -> String) -> Option<Shape> {
    if TITLES.iter().any(|title| line.starts_with(*title)) {
        return None;
    }
    if is_unresolved(line) {
        return Some(if any(line, &DIRECT) { Shape::Direct } else { Shape::Network(host(line)) });
    }
    if any(line, &OF_SYSTEM) {
        return Some(Shape::System);
    }
    if any(line, &OF_SOCKETS) {
        return Some(Shape::Socket);
    }
    if is_out_of_memory(line) {
        return Some(Shape::Memory);
    }
    if any(line, &["can't start new thread", "cannot fork"]) {
        return Some(Shape::Processes);
    }
    let found = ERRORS.iter().find(|(text, code, _)| says(line, text) || has_code(line, code));
    match found?.2 {
        Errno::NotPermitted => Some(not_permitted(line, &around())),
        Errno::Denied => denied(line),
        Errno::ReadOnly => Some(Shape::ReadOnly),
        Errno::Unreachable => Some(Shape::Network(host(line))),
        Errno::NoMemory => Some(Shape::Memory),
        Errno::OpenFiles => Some(Shape::OpenFiles),
        Errno::TooLarge => Some(Shape::FileSize),
        Errno::Again => {
            let is_start = any(line, &STARTING) || any(&around(), &["os.fork", "posix_spawn"]);
            is_start.then_some(Shape::Processes)
        }
    }
}

fn any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// An error number of the kernel.
#[derive(Clone, Copy, Debug)]
enum Errno {
    NotPermitted,
    Denied,
    ReadOnly,
    Unreachable,
    NoMemory,
    OpenFiles,
    TooLarge,
    Again,
}

/// The texts of the C library for error numbers, with their names.
const ERRORS: [(&str, &str, Errno); 8] = [
    ("operation not permitted", "eperm", Errno::NotPermitted),
    ("permission denied", "eacces", Errno::Denied),
    ("read-only file system", "erofs", Errno::ReadOnly),
    ("network is unreachable", "enetunreach", Errno::Unreachable),
    ("cannot allocate memory", "enomem", Errno::NoMemory),
    ("too many open files", "emfile", Errno::OpenFiles),
    ("file too large", "efbig", Errno::TooLarge),
    ("resource temporarily unavailable", "eagain", Errno::Again),
];

/// What stands before a text of the C library: the end of a prefix, or the number of the error.
const BEFORE: [&str; 6] = [": ", "] ", "(", ") - ", "= ", "message: \""];

/// What stands behind one that does not end its line: the number as Rust prints it, the path as Python and Ruby do.
const BEHIND: [&str; 6] = [" (os error ", ": '", ": \"", ": b'", "')", " @ "];

/// Closing marks at the end of a line.
const CLOSING: [char; 9] = ['.', ')', '\'', '"', ']', '}', '>', ',', ' '];

/// Returns true if a line ends with a text of the C library, or has it where programs put it.
fn says(line: &str, text: &str) -> bool {
    line.match_indices(text).any(|(at, _)| {
        let (before, behind) = (&line[..at], &line[at + text.len()..]);
        // Perl adds the place.
        let is_place = behind.starts_with(" at ") && behind.contains(" line ");
        // Node puts the name of the number before the text, and the call behind it.
        let is_named = ERRORS.iter().any(|(_, code, _)| {
            before.strip_suffix(": ").is_some_and(|before| before.ends_with(*code))
        });
        let ends = behind.trim_end_matches(CLOSING).is_empty()
            || BEHIND.iter().any(|start| behind.starts_with(*start))
            || is_place
            || is_named;
        ends && BEFORE.iter().any(|end| before.ends_with(*end))
    })
}

/// Returns true if a line is that of Node or npm that has the name of an error number.
fn has_code(line: &str, code: &str) -> bool {
    let value = line.strip_prefix("code: '").and_then(|rest| rest.strip_prefix(code));
    let value = value.map(|rest| rest.trim_end_matches(','));
    let is_npm = |start: &str| line.strip_prefix(start) == Some(code);
    value == Some("'")
        || is_npm("npm error code ")
        || is_npm("npm err! code ")
        || line.contains(&format!("error: connect {code} "))
}

/// What the C libraries say of names that they cannot resolve.
const UNRESOLVED: [&str; 5] = [
    "temporary failure in name resolution",
    "name or service not known",
    "no address associated with hostname",
    "name does not resolve",
    "no such host",
];

/// What programs say of a host that they cannot resolve or reach, before its name, and the port that they use if
/// nothing else names one.
const BEFORE_HOSTS: [(&str, u16); 10] = [
    ("could not resolve host: ", 443),
    ("couldn't resolve host '", 443),
    ("unable to resolve host address ‘", 443),
    ("unable to resolve host address '", 443),
    ("temporary failure resolving '", 80),
    ("failed to resolve '", 443),
    ("getaddrinfo eai_again ", 443),
    ("getaddrinfo enotfound ", 443),
    ("dial tcp: lookup ", 443),
    ("unknownhostexception: ", 443),
];

/// What curl and what is built with it say of a host that they cannot connect to, before its name.
const UNCONNECTED: &str = "failed to connect to ";

/// Words of programs that speak no HTTP.
const DIRECT: [&str; 3] = ["ssh: ", "psql: ", "could not translate host name "];

/// Other words of programs that cannot resolve or reach a host.
const NO_HOST: [&str; 5] =
    ["could not resolve proxy: ", "(eai_again)", "(enotfound)", "curl: (6) ", "curl: (7) "];

fn is_unresolved(line: &str) -> bool {
    let is_connecting = line.contains(UNCONNECTED) && line.contains(" port ");
    is_connecting
        || UNRESOLVED.iter().any(|text| says(line, text))
        || BEFORE_HOSTS.iter().any(|(before, _)| line.contains(before))
        || any(line, &NO_HOST)
        || ["eai_again", "enotfound"].iter().any(|code| has_code(line, code))
}

/// Returns the host with its port that a line names, in the form of `network`.
fn host(line: &str) -> Option<String> {
    let named = |(before, port): &(&str, u16)| {
        let (_, rest) = line.split_once(*before)?;
        host_of(&format!("{}:{port}", word(rest)))
    };
    url(line).or_else(|| pair(line)).or_else(|| connected(line)).or_else(|| {
        // A form that stands behind another has the host, as with cargo.
        BEFORE_HOSTS.iter().find_map(named)
    })
}

/// Returns the name at the beginning of a text.
fn word(text: &str) -> &str {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.split(|c| !is_name(c)).next().unwrap_or_default()
}

/// Returns the host of the first address of the web.
fn url(line: &str) -> Option<String> {
    let (scheme, rest) = line.split_once("://")?;
    let port = match scheme {
        scheme if scheme.ends_with("https") => 443,
        scheme if scheme.ends_with("http") => 80,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#', '\'', '"', ' ']).next()?;
    let authority = authority.rsplit('@').next()?;
    host_of(authority).or_else(|| host_of(&format!("{authority}:{port}")))
}

/// Returns the host in the form of urllib3, with which pip and requests work: `host='a.b', port=443`.
fn pair(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("(host='")?;
    let (host, rest) = rest.split_once("', port=")?;
    host_of(&format!("{host}:{}", word(rest)))
}

/// Returns the host in the form of curl: `failed to connect to a.b port 443`.
fn connected(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(UNCONNECTED)?;
    let (host, rest) = rest.split_once(" port ")?;
    host_of(&format!("{host}:{}", word(rest)))
}

/// What programs say that need rights of the system, without a text of the C library.
const OF_SYSTEM: [&str; 3] = [
    "bwrap: no permissions to create new namespace",
    "the \"no new privileges\" flag is set",
    "no usable sandbox!",
];

/// What programs say that do not reach a socket, without a text of the C library.
const OF_SOCKETS: [&str; 2] = [
    "permission denied while trying to connect to the docker daemon socket",
    "permission denied while trying to connect to the docker api at unix:",
];

/// Words of a line about a call that changes namespaces, mounts, owners or other processes.
const SYSTEM: [&str; 21] = [
    "unshare",
    "namespace",
    "cannot clone",
    "chroot",
    "root directory to",
    "mount",
    "ptrace",
    "setns",
    "ownership",
    "changing permissions",
    "kill:",
    "priority",
    "affinity",
    "mknod",
    "setgroups",
    "set groups",
    "capabilit",
    "io_uring",
    "perf_event",
    "sock_raw",
    "ping: socket",
];

/// Words of a line about a socket of a program of this machine.
const UNIX: [&str; 9] = [
    "unix:",
    "dial unix",
    "on socket \"/",
    ".sock:",
    ".sock'",
    ".sock\"",
    ".sock ",
    "af_unix",
    "socketpair",
];

/// Words of a line about the network.
const NETWORK: [&str; 9] = [
    "socket",
    "connect",
    "dial tcp",
    "dial udp",
    "/dev/tcp/",
    "/dev/udp/",
    "getaddrinfo",
    "listen",
    "bind(",
];

/// Returns what a call is that was not permitted: by its own line, else by the lines around.
fn not_permitted(line: &str, around: &str) -> Shape {
    let find = |text: &str| {
        let kinds: [(&[&str], Shape); 3] =
            [(&SYSTEM, Shape::System), (&UNIX, Shape::Socket), (&NETWORK, Shape::Network(None))];
        kinds.into_iter().find(|(words, _)| any(text, words)).map(|(_, shape)| shape)
    };
    match find(line).or_else(|| find(around)).unwrap_or(Shape::Call) {
        Shape::Network(_) if any(around, &DIRECT) => Shape::Direct,
        found => found,
    }
}

/// Returns what was denied: the sandbox denies files in this way, and no sockets.
fn denied(line: &str) -> Option<Shape> {
    if line.starts_with("mount: ") || line.starts_with("umount: ") {
        return Some(Shape::System);
    }
    (!any(line, &UNIX)).then_some(Shape::File)
}

/// Words of a line about the start of a process or a thread.
const STARTING: [&str; 4] = ["fork", "thread", "clone", "spawn"];

/// Returns true if a program says that it got no memory, without the text of the C library. A bound of its own, such
/// as the heap of Node or Java, is none.
fn is_out_of_memory(line: &str) -> bool {
    let starts = ["memoryerror", "out of memory", "fatal error: runtime: out of memory"];
    let ends = ["std::bad_alloc", "memory exhausted"];
    let is_rust = line.starts_with("memory allocation of ") && line.ends_with(" bytes failed");
    let is_shell = line.contains("alloc: cannot allocate ") && line.contains(" bytes");
    let is_java = line.contains("insufficient memory for the java runtime");
    starts.iter().any(|start| line.starts_with(*start))
        || ends.iter().any(|end| line.ends_with(*end))
        || (is_rust || is_shell || is_java)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(host: &str) -> Shape {
        Shape::Network(Some(host.to_owned()))
    }

    /// What programs print, and what their last lines look like. Most were printed by these programs under a filter of
    /// calls as the sandbox has it; those of cargo, go, ruby, podman and bubblewrap are written as their sources do.
    fn refusals() -> Vec<(&'static str, Shape)> {
        let nowhere = Shape::Network(None);
        vec![
            // No network: names are not resolved, and nothing connects.
            ("curl: (6) Could not resolve host: registry.example", to("registry.example:443")),
            (
                "curl: (7) Failed to connect to 10.0.0.1 port 80 after 0 ms: Couldn't connect to server",
                to("10.0.0.1:80"),
            ),
            (
                "Cloning into 'x'...\nfatal: unable to access 'https://git.example/x.git/': Could not resolve host: git.example",
                to("git.example:443"),
            ),
            (
                "ssh: Could not resolve hostname git.example: Temporary failure in name resolution\nfatal: Could not read from \
                 remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.",
                Shape::Direct,
            ),
            (
                "socket: Operation not permitted\nssh: connect to host 10.0.0.1 port 22: failure",
                Shape::Direct,
            ),
            (
                "Resolving a.example (a.example)... failed: Temporary failure in name resolution.\nwget: unable to resolve \
                 host address ‘a.example’",
                to("a.example:443"),
            ),
            (
                "Connecting to 10.0.0.1:443... failed: Operation not permitted.\nRetrying.\n",
                nowhere.clone(),
            ),
            (
                "npm error code EAI_AGAIN\nnpm error syscall getaddrinfo\nnpm error errno EAI_AGAIN\nnpm error request to \
                 https://registry.npmjs.org/left-pad failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org\nnpm error A \
                 complete log of this run can be found in: /tmp/c/_logs/debug-0.log",
                to("registry.npmjs.org:443"),
            ),
            (
                "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection \
                 broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f325dc06950>: \
                 Failed to establish a new connection: [Errno -2] Name or service not known')': /simple/requestsx/\nERROR: \
                 Could not find a version that satisfies the requirement requestsx (from versions: none)\nERROR: No matching \
                 distribution found for requestsx",
                nowhere.clone(),
            ),
            (
                "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.example', port=8443): Max retries exceeded \
                 with url: /x (Caused by NameResolutionError(\"HTTPSConnection(host='api.example', port=8443): Failed to \
                 resolve 'api.example' ([Errno -2] Name or service not known)\"))",
                to("api.example:8443"),
            ),
            (
                "    raise URLError(err)\nurllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
                nowhere.clone(),
            ),
            (
                "  File \"/usr/lib/python3.11/socket.py\", line 232, in __init__\n    _socket.socket.__init__(self, family, \
                 type, proto, fileno)\nPermissionError: [Errno 1] Operation not permitted",
                nowhere.clone(),
            ),
            (
                "TypeError: fetch failed\n  [cause]: Error: getaddrinfo EAI_AGAIN api.example\n      at \
                 GetAddrInfoReqWrap.onlookupall [as oncomplete] (node:dns:122:26) {\n    errno: -3001,\n    code: \
                 'EAI_AGAIN',\n    syscall: 'getaddrinfo',\n    hostname: 'api.example'\n  }\n}\n\nNode.js v20.20.2",
                to("api.example:443"),
            ),
            (
                "  errno: -1,\n  code: 'EPERM',\n  syscall: 'connect',\n  address: '10.0.0.1',\n  port: 80\n}\n\nNode.js v20.20.2",
                nowhere.clone(),
            ),
            ("Error: listen EPERM: operation not permitted 0.0.0.0:8080", nowhere.clone()),
            (
                "Caused by:\n  failed to download from `https://index.crates.io/config.json`\n\nCaused by:\n  [6] Could not \
                 resolve hostname (Could not resolve host: index.crates.io)",
                to("index.crates.io:443"),
            ),
            (
                "go: example.org/x@v1.0.0: Get \"https://proxy.golang.org/example.org/x/@v/v1.0.0.mod\": dial tcp: lookup \
                 proxy.golang.org on 10.0.0.2:53: dial udp 10.0.0.2:53: socket: operation not permitted",
                to("proxy.golang.org:443"),
            ),
            (
                "psql: error: could not translate host name \"db.example\" to address: Temporary failure in name resolution",
                Shape::Direct,
            ),
            (
                "psql: error: connection to server at \"10.0.0.1\", port 5432 failed: could not create socket: Operation not \
                 permitted",
                Shape::Direct,
            ),
            ("bash: connect: Network is unreachable", nowhere.clone()),
            ("bash: line 1: /dev/tcp/10.0.0.1/80: Operation not permitted", nowhere.clone()),
            ("socket: Operation not permitted at -e line 1.", nowhere),
            // Sockets of this machine.
            (
                "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get \
                 \"http://%2Fvar%2Frun%2Fdocker.sock/v1.50/containers/json\": dial unix /var/run/docker.sock: connect: operation \
                 not permitted",
                Shape::Socket,
            ),
            (
                "psql: error: connection to server on socket \"/tmp/.s.PGSQL.5432\" failed: Operation not permitted\n\tIs the \
                 server running locally and accepting connections on that socket?",
                Shape::Socket,
            ),
            (
                "    s.connect(\"/run/docker.sock\")\nPermissionError: [Errno 1] Operation not permitted",
                Shape::Socket,
            ),
            // Rights of the system.
            ("unshare: unshare failed: Operation not permitted", Shape::System),
            ("chroot: cannot change root directory to '.': Operation not permitted", Shape::System),
            (
                "mount: /w: permission denied.\n       dmesg(1) may have more information after failed mount system call.",
                Shape::System,
            ),
            ("strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted", Shape::System),
            ("cannot clone: Operation not permitted\nError: cannot re-exec process", Shape::System),
            (
                "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user \
                 namespaces.",
                Shape::System,
            ),
            (
                "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.",
                Shape::System,
            ),
            ("bash: line 1: kill: (1) - Operation not permitted", Shape::System),
            ("chown: changing ownership of 'x': Operation not permitted", Shape::System),
            ("ping: socktype: SOCK_RAW\nping: socket: Operation not permitted", Shape::System),
            (
                "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nPermissionError: [Errno 1] Operation \
                 not permitted",
                Shape::Call,
            ),
            // Files.
            ("touch: cannot touch 'ro/x': Read-only file system", Shape::ReadOnly),
            ("fatal: cannot mkdir ro/x: Read-only file system", Shape::ReadOnly),
            ("OSError: [Errno 30] Read-only file system: 'ro/x'", Shape::ReadOnly),
            (
                "  errno: -30,\n  code: 'EROFS',\n  syscall: 'open',\n  path: 'ro/x'\n}",
                Shape::ReadOnly,
            ),
            (
                "npm error code EROFS\nnpm error syscall open\nnpm error path /w/package.json\nnpm error errno -30\nnpm error rofs \
                 EROFS: read-only file system, open '/w/package.json'\nnpm error rofs Often virtualized file systems, or other \
                 file systems that don't support symlinks, give this error.",
                Shape::ReadOnly,
            ),
            (
                "Warning: Failed to open the file ro/x: Read-only file system\ncurl: (23) Failure writing output to destination",
                Shape::ReadOnly,
            ),
            ("bash: line 1: /etc/x: Permission denied", Shape::File),
            ("PermissionError: [Errno 13] Permission denied: '/etc/x'", Shape::File),
            ("cannot open denied: Permission denied at -e line 1.", Shape::File),
            (
                "tar: /etc/x.tar: Cannot open: Permission denied\ntar: Error is not recoverable: exiting now",
                Shape::File,
            ),
            (
                "error: failed to write `/x/Cargo.lock`: Permission denied (os error 13)",
                Shape::File,
            ),
            (
                "called `Result::unwrap()` on an `Err` value: Os { code: 13, kind: PermissionDenied, message: \"Permission \
                 denied\" }",
                Shape::File,
            ),
            (
                "-e:1:in `initialize': Permission denied @ rb_sysopen - /etc/x (Errno::EACCES)",
                Shape::File,
            ),
            ("java.io.FileNotFoundException: /etc/x (Permission denied)", Shape::File),
            // Limits.
            ("  File \"<string>\", line 1, in <module>\nMemoryError", Shape::Memory),
            ("tail: memory exhausted", Shape::Memory),
            (
                "terminate called after throwing an instance of 'St9bad_alloc'\n  what():  std::bad_alloc",
                Shape::Memory,
            ),
            (
                "Out of memory!\npanic: fold_constants JMPENV_PUSH returned 2 at -e line 1.",
                Shape::Memory,
            ),
            (
                "# There is insufficient memory for the Java Runtime Environment to continue.",
                Shape::Memory,
            ),
            ("bash: xrealloc: cannot allocate 66719744 bytes", Shape::Memory),
            ("memory allocation of 419430400 bytes failed", Shape::Memory),
            ("OSError: [Errno 24] Too many open files: '/dev/null'", Shape::OpenFiles),
            ("/dev/null: Too many open files at -e line 1.", Shape::OpenFiles),
            (
                "  errno: -24,\n  code: 'EMFILE',\n  syscall: 'open',\n  path: '/dev/null'",
                Shape::OpenFiles,
            ),
            ("  errno: -27,\n  code: 'EFBIG',\n  syscall: 'write'\n}", Shape::FileSize),
            ("bash: fork: retry: Resource temporarily unavailable", Shape::Processes),
            (
                "    _start_new_thread(self._bootstrap, ())\nRuntimeError: can't start new thread",
                Shape::Processes,
            ),
        ]
    }

    #[test]
    fn what_programs_print_is_known() {
        for (stderr, shape) in refusals() {
            let found = of(stderr);
            assert_eq!(found.first(), Some(&shape), "{stderr}");
        }
    }

    #[test]
    fn what_looks_like_a_refusal_and_is_none() {
        for stderr in [
            "websocket_test ... FAILED",
            "test network::websocket_test ... FAILED",
            "test open: permission denied",
            "not ok 3 - returns: permission denied",
            "--- FAIL: TestSocket (0.00s): operation not permitted",
            "1 test failed: socket is closed",
            "the network is unreachable from here, they say",
            "FAILED tests/test_network.py::test_socket",
            "assertion `left == right` failed\n  left: \"ok\"\n right: \"Permission denied\"",
            "expected `Operation not permitted`, got `Ok(())`",
            "git@git.example: Permission denied (publickey).\nfatal: Could not read from remote repository.",
            "Permission denied, please try again.",
            "ERROR:  permission denied for table users",
            "remote: Permission to a/b.git denied to c.",
            "ERROR 1045 (28000): Access denied for user 'a'@'localhost' (using password: YES)",
            "curl: (22) The requested URL returned error: 403",
            "curl: (28) Operation timed out after 1000 milliseconds with 0 bytes received",
            "connect ECONNREFUSED 127.0.0.1:8080",
            "bash: connect: Connection refused",
            "dial unix /var/run/docker.sock: connect: permission denied",
            "read: Resource temporarily unavailable",
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
            "java.lang.OutOfMemoryError: Java heap space",
            "warning: unused import: `std::net::TcpStream`",
            "error: could not compile `socket2` (lib) due to 1 previous error",
            "npm error code E404",
            "",
        ] {
            assert!(of(stderr).is_empty(), "{stderr}: {:?}", of(stderr));
        }
    }

    #[test]
    fn only_the_last_lines_count() {
        let refusal = "touch: x: Read-only file system\n";
        let rest = |lines: usize| format!("{refusal}{}", "it goes on\n".repeat(lines));
        assert_eq!(of(&rest(LAST - 1)), [Shape::ReadOnly]);
        assert!(of(&rest(LAST)).is_empty());
        let long = format!("{}: Read-only file system", "ä".repeat(LONGEST));
        assert!(of(&long).is_empty(), "the end of such a line is not looked at");
    }

    #[test]
    fn a_host_that_is_no_name_is_not_named() {
        for line in [
            "curl: (6) Could not resolve host: \u{1b}[31m",
            "curl: (6) Could not resolve host: ",
            "fatal: unable to access 'https://]\"/x': Could not resolve host: \"]",
        ] {
            assert_eq!(of(line), [Shape::Network(None)], "{line:?}");
        }
    }
}
