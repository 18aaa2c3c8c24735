//! Who is told of a run: a server on the loopback interface and a program, over a kill and a resume, and while the
//! server is down.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpSocket;

use crate::support::desk::{Desk, Done, Live};

/// A secret that must be in no notice.
const SECRET: &str = "very-secret-value-7711";

/// An agent that asks, one that wants a permission, a task that fails with a secret in its failure, and one that tries
/// to reach the server.
const WORK: &str = r#"
[limits]
fail_fast = false
[secrets]
key = { env = "THE_KEY" }
[sandbox]
env = ["THE_KEY"]
[agents.asker]
instructions = "x"
tools = ["ask_person"]
[agents.writer]
instructions = "x"
tools = ["bash"]
[tasks.one]
agent = "asker"
prompt = "go"
[tasks.two]
agent = "writer"
prompt = "go"
[tasks.bad]
run = 'echo "the key $THE_KEY is wrong" >&2; exit 3'
[tasks.net]
run = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$PORT 2>/dev/null && echo open || echo closed"
env = { PORT = "PORT_OF_SERVER" }
"#;

const SCRIPT: &str = r#"
[[rules]]
agent = "asker"
turn = 1
[[rules.calls]]
tool = "ask_person"
input = { question = "Which colour?" }
[[rules]]
agent = "writer"
turn = 1
[[rules.calls]]
tool = "bash"
input = { command = "touch done" }
[[rules]]
say = "done"
"#;

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It takes connections and never answers.
    Silent,
    /// It answers that it is out of order.
    Broken,
    /// It takes what it is told.
    Up,
}

/// What a request brought: the mode in which it came, its id, its signature and its body.
type Request = (Mode, String, String, Value);

/// A server that is told of runs.
struct Server {
    port: u16,
    mode: Arc<Mutex<Mode>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    fn start(mode: Mode) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").expect("a port"), mode)
    }

    fn on(listener: TcpListener, mode: Mode) -> Self {
        let port = listener.local_addr().expect("bound").port();
        let (mode, requests) = (Arc::new(Mutex::new(mode)), Arc::default());
        let server = Self { port, mode, requests };
        let (mode, requests) = (server.mode.clone(), server.requests.clone());
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mode = *mode.lock().expect("a mode");
                if mode != Mode::Silent {
                    serve(&mut stream, mode, &requests);
                }
                // A connection that is dropped would be an answer.
                kept.push(stream);
            }
        });
        server
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().expect("a mode") = mode;
    }

    /// The notices that it took, by kind, with their ids.
    fn taken(&self) -> BTreeMap<String, Vec<String>> {
        let mut taken: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (mode, id, _, body) in self.requests.lock().expect("requests").iter() {
            if *mode == Mode::Up {
                let kind = body["kind"].as_str().expect("a kind").to_owned();
                taken.entry(kind).or_default().push(id.clone());
            }
        }
        taken
    }

    /// Fails unless it took one notice of each of these kinds, and no other.
    fn took_once(&self, kinds: &[&str]) {
        let taken = self.taken();
        let counts: Vec<_> = taken.iter().map(|(kind, ids)| (kind.as_str(), ids.len())).collect();
        let wanted: Vec<_> = kinds.iter().map(|kind| (*kind, 1)).collect();
        assert_eq!(counts, wanted, "{taken:?}");
    }
}

fn serve(stream: &mut TcpStream, mode: Mode, requests: &Mutex<Vec<Request>>) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let text = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = header(head, "content-length").parse().expect("a length");
            if body.len() >= length {
                break text;
            }
        }
        let count = stream.read(&mut buffer).expect("a request");
        if count == 0 {
            return;
        }
        bytes.extend_from_slice(&buffer[..count]);
    };
    let (head, body) = text.split_once("\r\n\r\n").expect("a request");
    let status = if mode == Mode::Up { "204 No Content" } else { "503 Not Now" };
    let body: Value = serde_json::from_str(body).expect("JSON");
    let (id, signature) =
        (header(head, "callsheet-notice-id"), header(head, "callsheet-signature"));
    requests.lock().expect("requests").push((mode, id, signature, body));
    let _ = stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes());
}

fn header(head: &str, name: &str) -> String {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(own, _)| own.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.to_owned()).unwrap_or_default()
}

/// A workspace whose runs tell the server at this port of everything at once.
fn told(port: u16, notify: &str) -> Desk {
    let port = port.to_string();
    let desk = Desk::offline(&format!("{notify}{}", WORK.replace("PORT_OF_SERVER", &port)), SCRIPT);
    let rules = "default = 'ask'\nnon_interactive = 'pause'";
    desk.write("agents.toml", &desk.read("agents.toml").replace("default = \"allow\"", rules));
    desk
}

fn command(desk: &Desk, arguments: &[&str]) -> Command {
    let mut command = desk.command(arguments);
    command.env("THE_KEY", SECRET).env("SIGNING_KEY", "signing-key-of-the-server");
    command
}

fn call(desk: &Desk, arguments: &[&str]) -> Done {
    Done::of(&mut command(desk, arguments))
}

fn journal(desk: &Desk) -> String {
    std::fs::read_to_string(desk.runs()[0].join("journal.jsonl")).expect("a journal")
}

fn answer_all(desk: &Desk) {
    for row in desk.json(&["pending", "--json"]) {
        let id = row["id"].as_str().expect("an id");
        match row["kind"].as_str() {
            Some("question") => assert_eq!(desk.call(&["answer", id, "red"]).code, 0),
            _ => assert_eq!(desk.call(&["approve", id]).code, 0),
        }
    }
}

#[test]
fn a_server_is_told_of_everything_once_over_a_kill_and_while_it_was_down() {
    let server = Server::start(Mode::Silent);
    let url = format!("http://127.0.0.1:{}/hook/of-a-long-secret-path", server.port);
    let desk = told(
        server.port,
        &format!(
            "[notify]\nafter = '0s'\npause = '100ms'\nattempts = 1000\nwait = '20s'\n\
             [notify.webhook]\nurl = '{url}'\nsecret = {{ env = 'SIGNING_KEY' }}\nallow_private = true\n"
        ),
    );
    // It never answers, and callsheet dies while it waits for that.
    let live = Live::starting(&mut command(&desk, &["run", "--trust"]));
    for kind in ["question", "permission", "failed", "paused"] {
        desk.wait_for_event("notice.intended", |event| event["data"]["kind"] == kind);
    }
    live.signal("KILL");
    live.end();
    // It is out of order, and the next process gives up waiting; nothing is lost.
    server.set(Mode::Broken);
    let mut resume = command(&desk, &["resume", "--trust"]);
    let resumed = Done::of(resume.env("CALLSHEET_NOTIFY__WAIT", "1s"));
    assert_eq!(resumed.code, 6, "{}", resumed.err);
    assert!(resumed.err.contains("not sent: "), "{}", resumed.err);
    assert!(desk.good(&["ps"]).contains("not sent: "), "{}", desk.good(&["ps"]));
    assert!(server.taken().is_empty());
    // It is there again.
    server.set(Mode::Up);
    let resumed = call(&desk, &["resume", "--trust"]);
    assert_eq!(resumed.code, 6, "{}", resumed.err);
    assert!(!resumed.err.contains("not sent"), "{}", resumed.err);
    server.took_once(&["died", "failed", "paused", "permission", "question"]);
    assert_eq!(call(&desk, &["resume", "--trust"]).code, 6);
    server.took_once(&["died", "failed", "paused", "permission", "question"]);
    answer_all(&desk);
    let ended = call(&desk, &["resume", "--trust"]);
    assert_eq!(ended.code, 8, "{}", ended.err);
    server.took_once(&["died", "failed", "finished", "paused", "permission", "question"]);
    // Attempts before that had the same ids, and nothing holds a secret.
    let requests = server.requests.lock().expect("requests").clone();
    for (mode, id, signature, body) in requests.iter() {
        assert_eq!(body["id"], **id);
        assert!(server.taken().values().flatten().any(|taken| taken == id), "{mode:?} {id}");
        assert!(signature.starts_with("t=") && signature.contains(",v1="), "{signature}");
        let text = body.to_string();
        assert!(!text.contains(SECRET) && !text.contains("signing-key"), "{text}");
    }
    assert!(requests.iter().any(|(mode, ..)| *mode == Mode::Broken));
    let failed = requests.iter().find(|(_, _, _, body)| body["kind"] == "failed").expect("one");
    assert_eq!((&failed.3["task"], &failed.3["state"]), (&"bad".into(), &"command_failed".into()));
    for secret in [SECRET, "signing-key-of-the-server", "of-a-long-secret-path"] {
        let configured = journal(&desk)
            .lines()
            .skip(1)
            .any(|line| line.contains(secret) && !line.contains("\"accepted\""));
        assert!(!configured, "{secret}");
    }
    // The end of the journal is the end of the run, and commands have no network still.
    assert!(journal(&desk).lines().last().expect("records").contains("\"run.completed\""));
    if crate::support::without_sandbox().is_none() {
        assert_eq!(desk.good(&["show", "/net", "--output"]), "closed\n");
    }
}

/// Lets a server refuse connections from before the beginning of a run, over a kill and a resume, until this attempt
/// has failed; then it is up.
fn a_server_comes_up_after(attempt: u64, pause: &str, wait: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _context = runtime.enter();
    // It has its port, so that nobody else gets it, and does not listen.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let port = socket.local_addr().expect("bound").port();
    let desk = told(
        port,
        &format!(
            "[notify]\nafter = '0s'\npause = '{pause}'\nattempts = 1000\nwait = '{wait}'\n\
             [notify.webhook]\nurl = 'http://127.0.0.1:{port}/'\nallow_private = true\n"
        ),
    );
    let has_failed = |event: &Value, least: u64| event["data"]["attempt"].as_u64() >= Some(least);
    let live = Live::starting(&mut command(&desk, &["run", "--trust"]));
    for kind in ["question", "permission", "failed", "paused"] {
        desk.wait_for_event("notice.intended", |event| event["data"]["kind"] == kind);
    }
    desk.wait_for_event("notice.failed", |event| has_failed(event, 2));
    live.signal("KILL");
    live.end();
    let live = Live::starting(&mut command(&desk, &["resume", "--trust"]));
    let died =
        |event: &Value| event["data"]["id"].as_str().is_some_and(|id| id.starts_with("died"));
    desk.wait_for_event("notice.failed", died);
    desk.wait_for_event("notice.failed", |event| has_failed(event, attempt));
    let listener = socket.listen(64).and_then(|listener| listener.into_std()).expect("it listens");
    listener.set_nonblocking(false).expect("set");
    let server = Server::on(listener, Mode::Up);
    let resumed = live.end_within(Duration::from_secs(300));
    assert_eq!(resumed.code, 6, "{}", resumed.err);
    assert!(!resumed.err.contains("not sent"), "{}", resumed.err);
    server.took_once(&["died", "failed", "paused", "permission", "question"]);
    answer_all(&desk);
    let ended = call(&desk, &["resume", "--trust"]);
    assert_eq!(ended.code, 8, "{}", ended.err);
    server.took_once(&["died", "failed", "finished", "paused", "permission", "question"]);
}

#[test]
fn a_server_that_refused_connections_is_told_of_everything_once_when_it_is_up() {
    // After 1.5 s.
    a_server_comes_up_after(6, "50ms", "20s");
}

#[test]
#[ignore = "the server is down for a minute: two minutes"]
fn a_server_that_was_down_for_a_minute_is_told_of_everything_once() {
    // The pauses of a file that sets none: the seventh attempt fails after 63 s, and the next one follows 64 s later.
    a_server_comes_up_after(7, "1s", "180s");
}

#[test]
fn a_command_is_told_outside_of_the_sandbox_with_its_own_environment() {
    let outside = tempfile::tempdir().expect("a folder");
    let program = outside.path().join("tell");
    // It writes where no command of a run can, and holds the run up with what it does wrong.
    let script = format!(
        "#!/bin/sh\ncd {}\ncat > \"told.$CALLSHEET_NOTICE_ID.$CALLSHEET_NOTICE_ATTEMPT\"\nenv > env\n\
         case \"$CALLSHEET_NOTICE_ID\" in *-failed-*) yes | head -c 1000000 >&2; exit 1;;\n\
         *-finished-*) sleep 60;; esac\n",
        outside.path().display()
    );
    std::fs::write(&program, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&program, mode).expect("set");
    let desk = Desk::commands(&format!(
        "[notify]\non = ['failed', 'finished']\ntimeout = '1s'\nattempts = 2\npause = '10ms'\nwait = '5s'\n\
         env = ['NAMED']\ncommand = ['{}']\n[tasks.bad]\nrun = 'false'\n",
        program.display()
    ));
    let mut refused = desk.command(&["run"]);
    let refused = Done::of(refused.env("NAMED", "a-value-of-mine"));
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("runs outside of the sandbox"), "{}", refused.err);
    let mut run = desk.command(&["run", "--trust"]);
    run.env("NAMED", "a-value-of-mine").env("SOME_API_KEY", "not-for-it");
    let run = Done::of(&mut run);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.out.contains("not sent:     2 notices by command"), "{}{}", run.out, run.err);
    let files = std::fs::read_dir(outside.path()).expect("a folder").map(|file| file.expect("one"));
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with("told."));
    let read = |path| std::fs::read_to_string(path).expect("a file");
    let told: Vec<Value> =
        files.map(|file| serde_json::from_str(&read(file.path())).expect("JSON")).collect();
    let of = |kind: &str| told.iter().filter(|notice| notice["kind"] == kind).count();
    assert_eq!((of("failed"), of("finished")), (2, 2));
    let ids: std::collections::BTreeSet<_> =
        told.iter().map(|notice| &notice["id"]).map(Value::to_string).collect();
    assert_eq!(ids.len(), 2);
    let env = std::fs::read_to_string(outside.path().join("env")).expect("an environment");
    assert!(env.contains("NAMED=a-value-of-mine") && !env.contains("SOME_API_KEY"), "{env}");
}

#[test]
fn a_file_that_names_a_private_server_is_told_so_and_its_run_ends_as_ever() {
    let server = Server::start(Mode::Up);
    let desk = Desk::commands(&format!(
        "[notify.webhook]\nurl = 'http://localhost:{}/'\n[tasks.good]\nrun = 'true'\n",
        server.port
    ));
    let checked = desk.call(&["check"]);
    assert!(
        checked.err.contains("needs_trust") || checked.out.contains("needs_trust"),
        "{checked:?}"
    );
    let run = desk.call(&["run", "--trust"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("not sent:     1 notice by webhook"), "{}", run.out);
    assert!(run.out.contains("private address"), "{}", run.out);
    assert!(server.taken().is_empty());
    let report = desk.good(&["report", "--format", "json"]);
    assert!(report.contains("private address"), "{report}");
}

#[test]
fn a_fork_tells_of_its_own_states_and_its_parent_of_the_failures_before_it() {
    let server = Server::start(Mode::Up);
    let desk = Desk::commands(&format!(
        "[limits]\nfail_fast = false\n[notify]\nafter = '0s'\n\
         [notify.webhook]\nurl = 'http://127.0.0.1:{}/'\nallow_private = true\n\
         [tasks.bad]\nrun = 'false'\n[tasks.gate.approval]\nmessage = 'deploy?'\n",
        server.port
    ));
    let run = desk.call(&["run", "--trust"]);
    assert_eq!(run.code, 6, "{}", run.err);
    let kinds = |taken: &BTreeMap<String, Vec<String>>| {
        taken.iter().map(|(kind, ids)| (kind.clone(), ids.len())).collect::<Vec<_>>()
    };
    let once = |kind: &str| (kind.to_owned(), 1);
    let of_parent = server.taken();
    assert_eq!(kinds(&of_parent), [once("approval"), once("failed"), once("paused")]);
    // The fork shares all that its parent was told of, also the pause.
    let last = journal(&desk).lines().last().map(serde_json::from_str::<Value>);
    let seq = last.expect("records").expect("JSON")["seq"].clone();
    let parent = desk.runs()[0].file_name().expect("a name").to_string_lossy().into_owned();
    let fork = desk.call(&["fork", &format!("{parent}@{seq}"), "--trust"]);
    assert_eq!(fork.code, 6, "{}", fork.err);
    let all = server.taken();
    let of_fork: Vec<_> = all
        .iter()
        .map(|(kind, ids)| {
            let own = ids.iter().filter(|id| !id.starts_with(&parent));
            (kind.as_str(), own.count())
        })
        .collect();
    assert_eq!(of_fork, [("approval", 1), ("failed", 0), ("paused", 1)], "{all:?}");
}
