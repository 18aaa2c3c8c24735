//! Who may answer the questions of a run: the person at another terminal, no command of the run, and
//! nobody else on the machine.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::desk::{Desk, Done, Live, wait};

/// The user without files and rights of the system (`nobody`).
const NOBODY: u32 = 65_534;

/// A question, and a command that waits to be told where the socket is and answers the question.
const TASKS: &str = "[tasks.gate.approval]\nmessage = 'Publish?'\n\
     [tasks.attack]\nrun = 'while [ ! -e where ]; do sleep 0.05; done; perl attack.pl $(cat where)'\n\
     [tasks.wait]\nrun = 'while [ ! -e stop ]; do sleep 0.05; done'\n";

/// Answers from this process, and from one that its parent has left behind.
const ATTACK: &str = r#"
use IO::Socket::UNIX;
my ($path, $id, $orphan) = @ARGV;
sub try {
    my ($what, $to) = @_;
    my $s = IO::Socket::UNIX->new(Peer => $to) or do { print "$what: unreachable: $!\n"; return };
    $SIG{ALRM} = sub { print "$what: silence\n"; exit 0 };
    alarm 15;
    print $s qq({"verb":"answer","id":"$id","allowed":true,"by":"alice\@desk/4242"}\n);
    print "$what: ", scalar(<$s>);
    print "\n";
}
$| = 1;
try("child", $path);
try("through proc", "/proc/self/root$path");
if ($orphan) {
    pipe(my $r, my $w);
    if (!fork) {
        setpgrp(0, 0);
        exit 0 if fork;
        close $r;
        select undef, undef, undef, 0.3;
        try("orphan", $path);
        exit 0;
    }
    wait;
    close $w;
    <$r>;
}
print "tried\n";
"#;

/// A folder for the sockets of one test.
fn runtime() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn start(desk: &Desk, runtime: &TempDir, arguments: &[&str]) -> Live {
    Live::starting(desk.command(arguments).env("XDG_RUNTIME_DIR", runtime.path()))
}

/// The socket of the one run whose sockets are here.
fn socket(runtime: &TempDir) -> PathBuf {
    wait("the control socket", || {
        let mut entries = std::fs::read_dir(runtime.path().join("callsheet")).ok()?;
        entries.next().map(|entry| entry.expect("an entry").path())
    })
}

fn question(desk: &Desk) -> String {
    let asked = desk.wait_for_event("approval.asked", |_| true);
    asked["data"]["id"].as_str().expect("an id").to_owned()
}

fn answers(desk: &Desk) -> Vec<Value> {
    let events = desk.json(&["tail", "--json"]).into_iter();
    events.filter(|event| event["type"] == "approval.answered").collect()
}

/// Sends a line to a socket, and returns the answer.
fn send(socket: &Path, line: &Value) -> Value {
    let mut stream = UnixStream::connect(socket).expect("connected");
    writeln!(stream, "{line}").expect("sent");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    serde_json::from_str(&answer).expect("JSON")
}

#[test]
fn a_command_cannot_answer_its_own_run_and_the_kernel_says_who_answers() {
    // Without a sandbox, a command that leaves its parent is like any process of the person.
    for (rest, more, orphan) in [
        // With the folder of temporary files, in which the socket lies here.
        ("[sandbox]\nnetwork = true\nreadable_roots = ['/tmp']\n", &["--trust"][..], "orphan"),
        ("", &["--sandbox", "danger-full-access"], ""),
    ] {
        let (desk, runtime) = (Desk::commands(&format!("{TASKS}{rest}")), runtime());
        desk.write("attack.pl", ATTACK);
        let run = start(&desk, &runtime, &[&["run"], more].concat());
        let (socket, id) = (socket(&runtime), question(&desk));
        desk.write("where", &format!("{} {id} {orphan}", socket.display()));
        let ended = desk.wait_for_event("task.completed", |event| event["task"] == "attack");
        let tried = ended["data"]["output"].to_string();
        assert!(tried.contains("tried"), "{tried}");
        assert!(!tried.contains("verdict") && !tried.contains("silence"), "{tried}");
        // It reached the socket: what kept it out is not its path.
        assert!(tried.contains("for a person") || tried.contains("namespace"), "{tried}");
        assert!(answers(&desk).is_empty(), "{tried}");

        let lie = json!({"verb": "answer", "id": id, "allowed": true, "by": "alice@desk/4242"});
        let told = send(&socket, &lie);
        assert_eq!(told["verdict"], "counted", "{told}");
        let [answer] = &answers(&desk)[..] else { panic!("one answer") };
        let by = answer["data"]["by"].as_str().expect("a name");
        assert!(by.ends_with(&format!("/{}", std::process::id())) && !by.contains("alice"), "{by}");

        desk.write("stop", "");
        assert_eq!(run.end().code, 0);
        assert!(!socket.exists());
    }
}

#[test]
fn the_verbs_reach_a_run_whose_socket_nobody_else_can_use() {
    let (desk, runtime) = (Desk::commands(TASKS), runtime());
    std::fs::set_permissions(runtime.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    desk.write("attack.pl", ATTACK);
    // A program that gives every right away.
    let mut wide = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_callsheet");
    desk.bare(wide.args(["-c", "umask 000; exec \"$0\" run", program]));
    let run = Live::starting(wide.env("XDG_RUNTIME_DIR", runtime.path()));
    let (socket, id) = (socket(&runtime), question(&desk));
    let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o777;
    wait("its rights", || (mode(&socket) == 0o600).then_some(()));
    assert_eq!(mode(socket.parent().expect("a folder")), 0o700);
    assert!(!desk.runs()[0].join("control.sock").exists());
    if rustix::process::geteuid().is_root() {
        let mut other = Command::new("perl");
        other.args(["-", &socket.display().to_string(), &id]).uid(NOBODY).gid(NOBODY);
        let mut other = other.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let other = other.as_mut().expect("started");
        let mut stdin = other.stdin.take().expect("piped");
        stdin.write_all(ATTACK.as_bytes()).expect("written");
        drop(stdin);
        let mut said = String::new();
        let mut lines = other.stdout.take().expect("piped");
        std::io::Read::read_to_string(&mut lines, &mut said).expect("read");
        other.wait().expect("ended");
        assert!(said.contains("child: unreachable: Permission denied"), "{said}");
    }

    // The name of the person is not what the environment says.
    let call = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        Done::of(command.env("XDG_RUNTIME_DIR", runtime.path()).env("USER", "mallory"))
    };
    let done = call(&["approve", &id]);
    assert_eq!(done.code, 0, "{}", done.err);
    let [answer] = &answers(&desk)[..] else { panic!("one answer") };
    assert!(!answer["data"]["by"].as_str().expect("a name").contains("mallory"), "{answer}");
    let done = call(&["cancel", "desk"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(run.end().code, 1, "it was cancelled");
}

#[test]
fn a_folder_of_somebody_else_is_not_used() {
    let (desk, runtime) = (Desk::commands(TASKS), runtime());
    // Nothing can be in the way of the folder that every user has.
    let elsewhere = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(elsewhere.path(), runtime.path().join("callsheet")).expect("a link");
    let run = start(&desk, &runtime, &["run"]);
    let id = question(&desk);
    let mut command = desk.command(&["approve", &id]);
    let done = Done::of(command.env("XDG_RUNTIME_DIR", runtime.path()));
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(std::fs::read_dir(elsewhere.path()).expect("a folder").count(), 0);
    run.signal("INT");
    assert_eq!(run.end().code, 130);
}
