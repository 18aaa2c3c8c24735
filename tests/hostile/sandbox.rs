//! Commands in the sandbox, through the real binary: hostile ones get nothing, ordinary ones work.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::desk::{Desk, Done};
use crate::support::number_outside;

/// Says what a test leaves out here. It is not captured, so that everybody reads it.
fn skipped(what: &str) {
    tell(&format!("SKIPPED: {what}"));
}

fn tell(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns true if commands run in a sandbox here; otherwise says what is skipped.
fn has_sandbox(desk: &Desk) -> bool {
    says_sandbox(&mut desk.command(CHECK))
}

const CHECK: &[&str] = &["check", "-f", "ws/agents.toml"];

fn says_sandbox(check: &mut Command) -> bool {
    let said = Done::of(check).out;
    let line = said.lines().find(|line| line.starts_with("sandbox of commands: "));
    let has = line.is_some_and(|line| line.contains("workspace-write, no network"));
    if !has {
        skipped(&format!("there is no sandbox here: {line:?}"));
    }
    has
}

/// The user without files and rights of the system (`nobody`).
const NOBODY: u32 = 65_534;

/// A user who runs the program.
enum User {
    /// The one of the tests.
    Own,
    /// [`NOBODY`], with a copy of the program: the folder of the build may not be readable.
    Nobody(PathBuf),
}

impl User {
    /// Gives the files of the desk to the other user.
    fn nobody(desk: &Desk) -> Self {
        let program = desk.path().join("program");
        std::fs::copy(env!("CARGO_BIN_EXE_callsheet"), &program).expect("a copy");
        let mut open = vec![desk.path().to_owned(), desk.state().to_owned()];
        while let Some(path) = open.pop() {
            std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY)).expect("given");
            if path.is_dir() && !path.is_symlink() {
                let entries = std::fs::read_dir(&path).expect("a folder");
                open.extend(entries.map(|entry| entry.expect("one").path()));
            }
        }
        Self::Nobody(program)
    }

    /// The program with these arguments.
    fn command(&self, desk: &Desk, arguments: &[&str]) -> Command {
        let Self::Nobody(program) = self else { return desk.command(arguments) };
        let mut command = self.own(program);
        desk.bare(command.args(arguments));
        command
    }

    /// Another program.
    fn own(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program);
        if let Self::Nobody(_) = self {
            // The library also takes the other groups away.
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// The number of the user.
    fn number(&self) -> String {
        let output = self.own("id").arg("-u").output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Commands that must not say `GOT`, each in a shell of its own. `OUT` is a folder outside the
/// workspace with a file `canary`.
const HOSTILE: &[&str] = &[
    // Files outside: reading.
    "cat \"$OUT/canary\" && echo GOT",
    "cat < \"$OUT/canary\" && echo GOT",
    "cat ../out/canary && echo GOT",
    "cd .. && cat out/canary && echo GOT",
    "ln -s \"$OUT/canary\" link1 && cat link1 && echo GOT",
    "ln \"$OUT/canary\" link2 && echo GOT",
    "cp \"$OUT/canary\" copied && echo GOT",
    "ls \"$OUT\" && echo GOT",
    "test -n \"$(find \"$OUT\" -name canary 2>/dev/null)\" && test -r \"$OUT/canary\" && cat \"$OUT/canary\" && echo GOT",
    "cat \"$HOME/.ssh/id_ed25519\" && echo GOT",
    "cat \"$HOME/.aws/credentials\" && echo GOT",
    "cat \"$HOME/.cargo/credentials.toml\" && echo GOT",
    "cat \"$HOME/.git-credentials\" && echo GOT",
    "cat \"$HOME/.config/gh/hosts.yml\" && echo GOT",
    "cat \"$HOME/.netrc\" \"$HOME/.npmrc\" && echo GOT",
    "tar cf all.tar -C \"$HOME\" .ssh && echo GOT",
    "cat /proc/self/root\"$OUT/canary\" && echo GOT",
    "cat /proc/self/cwd/../out/canary && echo GOT",
    "cat /proc/$PPID/cwd/../out/canary && echo GOT",
    "cat /proc/$PPID/root\"$OUT/canary\" && echo GOT",
    "cat /proc/1/environ && echo GOT",
    "cat /proc/$PPID/environ && echo GOT",
    "cat /proc/$PPID/maps && echo GOT",
    "head -c1 /proc/$PPID/mem && echo GOT",
    "ls /proc/$PPID/fd && cat /proc/$PPID/fd/0 && echo GOT",
    "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ 2>/dev/null | grep -q TOKEN_OF_A_TEST && echo GOT; done; true",
    "env | grep -q TOKEN_OF_A_TEST && echo GOT",
    "export -p | grep -q TOKEN_OF_A_TEST && echo GOT",
    "test \"$(ls /proc/self/fd | wc -l)\" -gt 4 && echo GOT",
    // Files outside: writing.
    "echo x > \"$OUT/made\" && echo GOT",
    "echo x >> \"$OUT/canary\" && echo GOT",
    ": > \"$OUT/canary\" && echo GOT",
    "truncate -s 0 \"$OUT/canary\" && echo GOT",
    "rm \"$OUT/canary\" && echo GOT",
    "mv \"$OUT/canary\" here && echo GOT",
    "mkdir \"$OUT/folder\" && echo GOT",
    "ln -s /etc/passwd \"$OUT/link\" && echo GOT",
    "touch \"$HOME/made\" && echo GOT",
    "echo 'alias ls=rm' >> \"$HOME/.bashrc\" && echo GOT",
    "mkdir \"$HOME/.config/gh/autostart\" && echo GOT",
    "chmod 777 \"$OUT\"; echo x > \"$OUT/made\" && echo GOT",
    "cd \"$OUT\" && echo x > made && echo GOT",
    "dd if=/dev/zero of=\"$OUT/made\" count=1 && echo GOT",
    "mkfifo \"$OUT/pipe\" && echo GOT",
    "echo x > /etc/made && echo GOT",
    "echo x > /usr/local/bin/made && echo GOT",
    "echo x > /dev/shm/../../etc/made && echo GOT",
    "ln -s \"$OUT\" way && echo x > way/made && echo GOT",
    "mkdir d; test -e \"$OUT/canary\" && mv d \"$OUT/\" && echo GOT",
    "(sleep 0.2; echo x > \"$OUT/late\") & wait; test -e \"$OUT/late\" && echo GOT",
    "setsid sh -c 'echo x > \"$OUT/made\" && echo GOT'",
    "nohup sh -c 'echo x > \"$OUT/made\" && echo GOT'",
    "echo 0 > /proc/sys/kernel/randomize_va_space && echo GOT",
    "echo 1000 > /proc/$PPID/oom_score_adj && echo GOT",
    "mknod disk b 8 0 && echo GOT",
    "chmod 644 \"$OUT/canary\" && echo GOT",
    "chmod 777 \"$HOME/.ssh\" && echo GOT",
    "touch -d 2001-01-01 \"$OUT/canary\" && echo GOT",
    "python3 -c 'import os; os.setxattr(os.environ[\"OUT\"] + \"/canary\", \"user.x\", b\"y\")' && echo GOT",
    "mv ../ws ../ws2 && echo GOT",
    // Protected files.
    "echo x > s.toml && echo GOT",
    "chmod 777 agents.toml && echo GOT",
    "echo x >> agents.toml && echo GOT",
    "rm -f agents.toml; test -e agents.toml || echo GOT",
    "mv agents.toml other.toml && echo GOT",
    "cp agents.toml n && mv n agents.toml && echo GOT",
    "sed -i s/one/two/ agents.toml && echo GOT",
    "ln -f /etc/passwd agents.toml && echo GOT",
    "echo x > .git/hooks/pre-commit && echo GOT",
    "mv .git .git2 && echo GOT",
    "rm -rf .git/hooks; test -e .git/hooks || echo GOT",
    "mv .git/hooks .git/h && echo GOT",
    "git config core.hooksPath /tmp && echo GOT",
    "git config alias.x '!sh' && echo GOT",
    "echo '[core] fsmonitor = sh' >> .git/config && echo GOT",
    "echo x > .github/workflows/ci.yml && echo GOT",
    "mv .github g && echo GOT",
    "mkdir .github/workflows/more && echo GOT",
    "echo x > .claude/settings.json && echo GOT",
    "echo x > .transcripts/x && echo GOT",
    "for f in .transcripts/*/journal.jsonl; do echo x >> $f && echo GOT; done",
    "rm -rf .transcripts/*; ls .transcripts | grep -q . || echo GOT",
    "chmod 777 agents.toml && echo x >> agents.toml && echo GOT",
    "umount agents.toml && echo GOT",
    "mount -o remount,rw agents.toml && echo GOT",
    "mount --bind other agents.toml && echo GOT",
    "echo x > prompt.md && echo GOT",
    // Rights.
    "sudo -n true && echo GOT",
    "su root -c true && test \"$(id -u)\" != 0 && echo GOT",
    "unshare -Ur true && echo GOT",
    "unshare -m true && echo GOT",
    "unshare -n true && echo GOT",
    "nsenter -t $PPID -m true && echo GOT",
    "chroot . /bin/true && echo GOT",
    "mount -t tmpfs none . && echo GOT",
    "capsh --print 2>/dev/null | grep -q 'Current: =ep' && echo GOT",
    "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo GOT",
    "grep -q 'CapBnd:.*[1-9a-f]' /proc/self/status && echo GOT",
    "grep -q 'NoNewPrivs:.*0' /proc/self/status && echo GOT",
    "setcap cap_net_raw+ep /bin/true && echo GOT",
    "dmesg && echo GOT",
    // Other processes.
    // In a process namespace the parent has the number 1 and belongs to the command.
    "[ $PPID = 1 ] || kill -0 $PPID && [ $PPID != 1 ] && echo GOT",
    "kill -TERM $PPID && [ $PPID != 1 ] && echo GOT",
    "kill -9 $PPID && [ $PPID != 1 ] && echo GOT",
    "kill -INT -1; kill -CONT 1 && [ $PPID != 1 ] && echo GOT",
    "kill -STOP \"$VICTIM\" && echo GOT",
    "kill -9 \"$VICTIM\" && echo GOT",
    "strace -p $PPID -o x -c & sleep 0.2; kill $! 2>/dev/null && grep -q . x && echo GOT; true",
    "gdb -p $PPID -batch 2>/dev/null | grep -q Attaching && echo GOT; false",
    "ulimit -c unlimited && echo GOT",
    "prlimit --pid \"$VICTIM\" --nofile=5:5 && echo GOT",
    "taskset -p 1 \"$VICTIM\" && echo GOT",
    "renice -n 5 -p \"$VICTIM\" && echo GOT",
    "ionice -c 3 -p \"$VICTIM\" && echo GOT",
    "(: < /dev/tty) && echo GOT",
    "(: > /dev/tty) && echo GOT",
    "ls /dev/pts/* && (: < /dev/pts/0) && echo GOT",
    // Network.
    "python3 -c 'import socket; socket.socket()' && echo GOT",
    "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)' && echo GOT",
    "python3 -c 'import socket; socket.socket(socket.AF_INET6)' && echo GOT",
    "python3 -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)' && echo GOT",
    "python3 -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)' && echo GOT",
    "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)' && echo GOT",
    "python3 -c 'import socket; socket.socket(40)' && echo GOT",
    "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"/run/docker.sock\")' && echo GOT",
    "python3 -c 'import socket,os; s = socket.socket(socket.AF_UNIX); s.connect(os.environ[\"SOCK\"])' && echo GOT",
    "bash -c 'echo > /dev/tcp/127.0.0.1/'$PORT && echo GOT",
    "bash -c 'echo > /dev/udp/127.0.0.1/'$PORT && echo GOT",
    "python3 -c 'import socket,os; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b\"x\", os.environ[\"SOCK\"] + \"-datagrams\")' && echo GOT",
    "python3 -c 'import socket,os; s = socket.socket(socket.AF_UNIX, socket.SOCK_RAW); s.sendto(b\"x\", os.environ[\"SOCK\"] + \"-datagrams\")' && echo GOT",
    "python3 -c 'import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)' && echo GOT",
    "python3 -c 'import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)' && echo GOT",
    "curl -s http://127.0.0.1:$PORT && echo GOT",
    // Files that give the rights of their owner to whoever runs them.
    "touch u1 && chmod u+s u1 && echo GOT",
    "touch u2 && chmod 4755 u2 && echo GOT",
    "[ $(id -u) = 0 ] && touch u3 && chmod g+s u3 && echo GOT",
    "touch u4 && python3 -c 'import os; os.fchmod(os.open(\"u4\", 0), 0o4755)' && echo GOT",
    "python3 -c 'import os; os.open(\"u5\", os.O_CREAT | os.O_WRONLY, 0o4755)' && [ -u u5 ] && echo GOT",
    "python3 -c 'import os; f = os.open(\".\", os.O_TMPFILE | os.O_WRONLY, 0o4755); exit(not os.fstat(f).st_mode & 0o4000)' && echo GOT",
    "python3 -c 'import os, stat; os.mknod(\"u6\", stat.S_IFREG | 0o4755)' && [ -u u6 ] && echo GOT",
    "python3 -c 'import ctypes; ctypes.CDLL(None).syscall(85, b\"u7\", 0o4755)'; [ -u u7 ] && echo GOT",
    "python3 -c 'import ctypes, struct; ctypes.CDLL(None).syscall(437, -100, b\"u8\", struct.pack(\"QQQ\", 0o101, 0o4755, 0), 24)'; [ -u u8 ] && echo GOT",
    "touch u9; python3 -c 'import ctypes; ctypes.CDLL(None).syscall(452, -100, b\"u9\", 0o4755, 0)'; [ -u u9 ] && echo GOT",
    "cp /usr/bin/env u10 && chmod 6755 u10 && echo GOT",
    "install -m 4755 /usr/bin/env u11 && [ -u u11 ] && echo GOT",
    "ping -c1 -W1 127.0.0.1 && echo GOT",
    // System calls that could undo the rest: ptrace, io_uring_setup, bpf, keyctl, userfaultfd, perf.
    "python3 -c 'import ctypes; l = ctypes.CDLL(None); exit(l.syscall(101, 0, 0, 0, 0) != 0)' && echo GOT",
    "python3 -c 'import ctypes; b = ctypes.create_string_buffer(120); l = ctypes.CDLL(None); exit(l.syscall(425, 8, b) < 0)' && echo GOT",
    "python3 -c 'import ctypes; b = ctypes.create_string_buffer(120); l = ctypes.CDLL(None); exit(l.syscall(425 | 0x40000000, 8, b) < 0)' && echo GOT",
    "python3 -c 'import ctypes; l = ctypes.CDLL(None); exit(l.syscall(323, 1) < 0)' && echo GOT",
    "python3 -c 'import ctypes; l = ctypes.CDLL(None); exit(l.syscall(250, 0, -1, 0) < 0)' && echo GOT",
    "python3 -c 'import ctypes; l = ctypes.CDLL(None); exit(l.syscall(272, 0x10000000) < 0)' && echo GOT",
    "python3 -c 'import ctypes; l = ctypes.CDLL(None); p = l.syscall(56, 0x10000000 | 17, 0, 0, 0, 0); exit(p < 0)' && echo GOT",
];

/// Prints for each of the calls `io_uring_setup`, `io_uring_enter` and `io_uring_register` the number of
/// the error, 0 if there is none. The numbers of the calls are the same on all machines.
const IO_URING: [(&str, &str); 2] = [
    (
        "perl",
        "perl -e 'my $b = chr(0) x 120; for (425, 426, 427) { $! = 0; syscall($_, 8, $b, 0, 0, 0, 0); print $! + 0, \" \" }'",
    ),
    (
        "python3",
        "python3 -c 'import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nb = ctypes.create_string_buffer(120)\nfor n in 425, 426, 427:\n  ctypes.set_errno(0)\n  l.syscall(n, 8, b, 0, 0, 0, 0)\n  print(ctypes.get_errno(), end=\" \")'",
    ),
];

#[test]
fn the_sandbox_refuses_io_uring() {
    let Some((_, calls)) = IO_URING.iter().find(|(program, _)| has(program)) else {
        return skipped("io_uring is not tried: there is neither perl nor python3");
    };
    let outside = Command::new("sh").args(["-c", calls]).output().expect("it runs");
    let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
    if !outside.starts_with("0 ") {
        skipped(&format!("io_uring does not work outside the sandbox either: {outside}"));
    }
    let desk = place(&format!("[tasks.t]\nrun = {}\n", serde_json::Value::from(*calls)));
    if !has_sandbox(&desk) {
        return;
    }
    let done = desk.call(&["run", "-f", "ws/agents.toml", "--json"]);
    let events = crate::support::desk::lines(&done.out);
    let task = &events.last().expect("events")["data"]["tasks"]["t"];
    assert_eq!(task["output"], "1 1 1 ", "EPERM for each, {outside} outside: {task}");
}

/// Returns true if there is such a program here.
fn has(program: &str) -> bool {
    let tried = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// A workspace `ws` with a folder `out` and a home beside it.
fn place(tasks: &str) -> Desk {
    let desk = Desk::empty();
    desk.write("ws/agents.toml", &format!("version = 1\n[limits]\nfail_fast = false\n{tasks}"));
    for file in [
        "out/canary",
        "home/.ssh/id_ed25519",
        "home/.aws/credentials",
        "home/.cargo/credentials.toml",
        "home/.git-credentials",
        "home/.config/gh/hosts.yml",
        "home/.netrc",
        "home/.npmrc",
        "ws/.git/hooks/sample",
        "ws/.git/config.worktree",
        "ws/.git/info/attributes",
        "ws/.github/workflows/ci.yml",
        "ws/.claude/settings.json",
        "ws/prompt.md",
    ] {
        desk.write(file, "a canary\n");
    }
    let git = Command::new("git").args(["init", "-q"]).current_dir(desk.path().join("ws")).status();
    assert!(git.is_ok_and(|status| status.success()), "git is needed");
    desk
}

/// Returns the files below a folder with their texts.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() && !path.is_symlink() {
            open.extend(
                std::fs::read_dir(&path).expect("a folder").map(|e| e.expect("one").path()),
            );
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap_or_default()));
        }
    }
    found.sort();
    found
}

/// A process that must not be reached. It ends with the test.
struct Victim(std::process::Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

#[test]
fn hostile_commands_get_nothing() {
    escape(|_| User::Own);
}

#[test]
fn hostile_commands_of_another_user_get_nothing() {
    if User::Own.number().trim() != "0" {
        return skipped("only root can start the program as another user");
    }
    escape(User::nobody);
}

/// Tries the hostile commands as this user.
fn escape(user: fn(&Desk) -> User) {
    let mut tasks = String::from(
        "[tasks.own]\nrun = 'id -u > own; cat own'\n\
         [agents.a]\ninstructions_file = 'prompt.md'\nmodel = 'm'\n[models.m]\nprovider = 'p'\n\
         model = 'm'\n[providers.p]\nkind = 'scripted'\nscript = 's.toml'\n",
    );
    // The numbers of system calls are those of x86-64.
    let is_known = |command: &&&str| cfg!(target_arch = "x86_64") || !command.contains("syscall(");
    let hostile: Vec<&&str> = HOSTILE.iter().filter(is_known).collect();
    for (number, command) in hostile.iter().enumerate() {
        let command = serde_json::Value::from(**command);
        tasks.push_str(&format!("[tasks.t{number}]\nrun = {command}\ntimeout = '20s'\n"));
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let desk = place(&tasks);
    let socket = desk.path().join("out/socket");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let datagrams = desk.path().join("out/socket-datagrams");
    let _datagrams = std::os::unix::net::UnixDatagram::bind(&datagrams).expect("a socket");
    desk.write("ws/s.toml", "[[rules]]\nsay = 'x'\n");
    let user = user(&desk);
    let mut victim = Victim(user.own("sleep").arg("600").spawn().expect("it starts"));
    let env = format!(
        "[env]\nOUT = '{0}/out'\nPORT = '{port}'\nVICTIM = '{1}'\nSOCK = '{2}'\n",
        desk.path().display(),
        victim.0.id(),
        socket.display()
    );
    let text = desk.read("ws/agents.toml");
    desk.write("ws/agents.toml", &format!("{text}{env}"));
    if !says_sandbox(&mut user.command(&desk, CHECK)) {
        return;
    }
    let watched = ["out", "home", "ws/agents.toml", "ws/.git", "ws/.github", "ws/.claude"];
    let state = || watched.map(|path| files(&desk.path().join(path)));
    let before = state();
    let mut command = user.command(&desk, &["run", "-f", "ws/agents.toml", "--json"]);
    command.env("HOME", desk.path().join("home")).env("TOKEN_OF_A_TEST", "TOKEN_OF_A_TEST");
    let done = Done::of(&mut command);
    let events = crate::support::desk::lines(&done.out);
    let last = &events.last().expect("events")["data"]["tasks"];
    let got: Vec<_> = hostile
        .iter()
        .enumerate()
        .filter(|(number, _)| {
            let task = &last[&format!("t{number}")];
            let said = format!("{}{}", task["output"], task["error"]["output"]);
            assert!(task["state"] == "completed" || task["state"] == "failed", "{number}: {task}");
            said.contains("GOT")
        })
        .map(|(_, command)| command)
        .collect();
    assert!(got.is_empty(), "{got:#?}");
    assert_eq!(last["own"]["output"], user.number(), "who they were");
    assert_eq!(state(), before);
    assert!(victim.0.try_wait().expect("it can be looked at").is_none(), "it was ended");
    assert!(listener.set_nonblocking(true).is_ok() && listener.accept().is_err(), "it was reached");
    tell(&format!(
        "{} hostile commands got nothing as user {}",
        hostile.len(),
        user.number().trim()
    ));
}

/// Ordinary work, with the program that it needs and what it prints at the end.
const ORDINARY: &[(&str, &str, &str)] = &[
    ("sh", "echo x > new && mkdir -p a/b && mv new a/b && cat a/b/new && rm -r a", "x"),
    ("sh", "cat <<EOF > text\nheredoc\nEOF\ncat text", "heredoc"),
    ("mktemp", "f=$(mktemp) && echo temporary > $f && cat $f", "temporary"),
    ("sh", "echo $(seq 1 3 | sort -r | tr '\\n' ' ')", "3 2 1"),
    ("sh", "sleep 0.01 & wait; echo waited", "waited"),
    ("sh", "kill -0 $$ && echo myself", "myself"),
    (
        "sh",
        "mkdir -p $GOCACHE && echo kept > $GOCACHE/x; echo ${GOCACHE#$XDG_CACHE_HOME/}",
        "go-build",
    ),
    ("sh", "cat $GOCACHE/x", "kept"),
    ("sh", "trap 'echo caught' USR1; kill -USR1 $$; cat /proc/$$/comm", "sh"),
    ("sh", "sh -c 'kill -9 $$'; echo $?", "137"),
    ("ps", "ps -o pid= -p $$ | tr -d ' ' | grep -qx $$ && echo found", "found"),
    (
        "git",
        "git add prompt.md && git -c user.name=a -c user.email=a@b.c commit -qm first && git log --format=%s",
        "first",
    ),
    ("git", "git checkout -qb other && git branch --show-current", "other"),
    (
        "cargo",
        "mkdir -p crate/src && printf '[package]\\nname = \"small\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n' > crate/Cargo.toml && printf 'pub fn one() -> u8 { 1 }\\n#[test]\\nfn it_is() { assert_eq!(one(), 1) }\\n' > crate/src/lib.rs && cd crate && cargo test -q --offline 2>&1 | grep 'test result'",
        "1 passed",
    ),
    (
        "python3",
        "python3 -c 'import sqlite3, ssl, json, tempfile; print(tempfile.gettempdir() != \"\")'",
        "True",
    ),
    (
        "python3",
        "python3 -m venv --without-pip venv && venv/bin/python -c 'print(\"venv\")'",
        "venv",
    ),
    (
        "python3",
        "mkdir -p p && echo 'import unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertTrue(True)' > p/test_it.py && python3 -m unittest discover p 2>&1 | tail -1",
        "OK",
    ),
    (
        "python3",
        "python3 -c 'from multiprocessing import Pool; print(Pool(2).map(abs, [-1, -2]))'",
        "[1, 2]",
    ),
    (
        "node",
        "mkdir -p n && echo '{\"name\": \"n\", \"scripts\": {\"test\": \"node -e \\\"console.log(6*7)\\\"\"}}' > n/package.json && cd n && npm test --silent",
        "42",
    ),
    (
        "chmod",
        "touch m && chmod 1755 m && chmod a+x,u-s m && mkdir -m 700 d && stat -c %a m d",
        "1755\n700",
    ),
    (
        "python3",
        "python3 -c 'import socket; a, b = socket.socketpair(); a.send(b\"x\"); c, d = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); c.send(b\"yz\"); print(b.recv(9) + d.recv(9))'",
        "xyz",
    ),
    ("make", "printf 'all:\\n\\t@echo made\\n' > Makefile && make", "made"),
    (
        "gcc",
        "printf 'int main(void) { return 0; }' > c.c && gcc c.c -o c && ./c && echo compiled",
        "compiled",
    ),
];

#[test]
fn ordinary_commands_work() {
    type Case = (&'static str, &'static str, &'static str);
    let (there, absent): (Vec<&Case>, Vec<&Case>) =
        ORDINARY.iter().partition(|(program, ..)| has(program));
    for (program, ..) in absent {
        skipped(&format!("there is no `{program}` here"));
    }
    let mut tasks = String::new();
    for (number, (_, command, _)) in there.iter().enumerate() {
        let command = serde_json::Value::from(*command);
        let after =
            if number == 0 { String::new() } else { format!("depends_on = ['t{}']\n", number - 1) };
        tasks.push_str(&format!("[tasks.t{number}]\nrun = {command}\njoin = 'all_done'\n{after}"));
    }
    let desk = place(&tasks);
    desk.write("ws/go.mod", "module m\n");
    if !has_sandbox(&desk) {
        return;
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let of_home = |variable: &str, folder: &str| {
        std::env::var_os(variable).unwrap_or_else(|| home.join(folder).into())
    };
    let mut command = desk.command(&["run", "-f", "ws/agents.toml", "--json"]);
    command.env("HOME", desk.path().join("home"));
    command.env("CARGO_HOME", of_home("CARGO_HOME", ".cargo"));
    command.env("RUSTUP_HOME", of_home("RUSTUP_HOME", ".rustup"));
    command.env("PYENV_ROOT", of_home("PYENV_ROOT", ".pyenv"));
    let done = Done::of(&mut command);
    let events = crate::support::desk::lines(&done.out);
    let last = &events.last().expect("events")["data"]["tasks"];
    for (number, (_, command, printed)) in there.iter().enumerate() {
        let task = &last[&format!("t{number}")];
        let said = task["output"].as_str().unwrap_or_default();
        assert!(said.contains(printed), "{command}: {task}");
    }
}

/// Commands that leave a process behind that has left their process group, and what is in the file
/// `end` at last. `%` stands for what makes the process.
const LEAVING: [(&str, &str); 4] = [
    ("% setsid sh -c 'trap \"echo told > end; exit\" TERM; touch on; sleep 300 & wait'", "told\n"),
    ("% setsid sh -c 'trap \"\" TERM; touch on; while :; do sleep 300; done'", ""),
    ("% setsid -f sh -c 'touch on; exec sleep 300'", ""),
    ("(% nohup setsid sh -c 'touch on; exec sleep 300' &) &", ""),
];

#[test]
fn what_a_command_leaves_behind_ends_with_its_call() {
    for (command, end) in LEAVING {
        let leave = command.replace("% ", "").replace("touch on", "echo $$ > new; mv new on");
        let run = format!(
            "{leave} > /dev/null 2>&1 & while [ ! -e on ]; do sleep 0.01; done; echo begun; exit 7"
        );
        let run = serde_json::Value::from(run);
        let desk = place(&format!("[tasks.t]\nrun = {run}\n"));
        if !has_sandbox(&desk) {
            return;
        }
        let done = desk.call(&["run", "-f", "ws/agents.toml", "--json"]);
        let events = crate::support::desk::lines(&done.out);
        let task = &events.last().expect("events")["data"]["tasks"]["t"];
        let message = task["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("exit code 7"), "{command}: {task}");
        let said = task["error"]["output"].as_str().unwrap_or_default();
        assert!(said.contains("begun"), "{command}: {task}");
        let ws = desk.path().join("ws");
        let number = std::fs::read_to_string(ws.join("on")).expect("it began");
        assert_eq!(number_outside(&ws, number.trim()), None, "{command}: it lives");
        assert_eq!(std::fs::read_to_string(ws.join("end")).unwrap_or_default(), end, "{command}");
    }
}

/// A server that answers each connection with `hello`, and its port.
fn serving() -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    // It ends with the tests.
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 1024]);
            let _ = client.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n",
            );
        }
    });
    port
}

#[test]
fn single_hosts_are_reached_through_the_proxy_and_nothing_else_is() {
    if !has("bash") {
        return skipped("there is no `bash` here");
    }
    let (named, other) = (serving(), serving());
    let ask = |first: &str| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/${{HTTPS_PROXY##*:}} && printf '{first}' >&3 && \
             read -r -t 20 line <&3 && echo \"$line\" && cat <&3"
        )
    };
    let tunnel =
        |host: &str| ask(&format!("CONNECT {host} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.1\\r\\n\\r\\n"));
    let plain = |host: &str| ask(&format!("GET http://{host}/ HTTP/1.1\\r\\n\\r\\n"));
    let perl = |domain: &str, kind: &str| {
        format!("perl -MSocket -e 'print socket(my $s, {domain}, {kind}, 0) ? \"made\" : \"$!\"'")
    };
    let refused = "Operation not permitted";
    let denied = "HTTP/1.1 403 Not in `network` of the sandbox";
    let mut cases = vec![
        (
            tunnel(&format!("localhost:{named}")),
            vec!["HTTP/1.1 200 Connection established", "hello"],
        ),
        (plain(&format!("LOCALHOST:{named}")), vec!["HTTP/1.1 200 OK", "hello"]),
        (
            tunnel(&format!("localhost:{other}")),
            vec![denied, "a person can add it to `network` in `[sandbox]`"],
        ),
        (plain(&format!("localhost:{other}")), vec![denied]),
        // It is the same machine, by a name that is not in the list.
        (tunnel(&format!("127.0.0.1:{named}")), vec![denied]),
        (tunnel("169.254.169.254:80"), vec![denied]),
        (ask("x\\r\\n\\r\\n"), vec!["HTTP/1.1 400"]),
        (format!("(exec 3<>/dev/tcp/127.0.0.1/{named}) 2>&1"), vec!["Connection refused"]),
        ("(exec 3<>/dev/tcp/192.0.2.1/80) 2>&1".to_owned(), vec!["Network is unreachable"]),
        (format!("(exec 3<>/dev/udp/127.0.0.1/{named}) 2>&1"), vec![refused]),
    ];
    if has("perl") {
        cases.push((perl("AF_UNIX", "SOCK_STREAM"), vec![refused]));
        cases.push((perl("AF_INET", "SOCK_RAW"), vec![refused]));
        cases.push((perl("AF_INET6", "SOCK_DGRAM"), vec![refused]));
        cases.push((perl("16", "SOCK_RAW"), vec![refused]));
        let pair = |kind: &str| {
            format!(
                "perl -MSocket -e 'print socketpair(my $s, my $t, AF_UNIX, {kind}, 0) ? \"made\" : \"$!\"'"
            )
        };
        cases.push((pair("SOCK_RAW"), vec![refused]));
        cases.push((pair("SOCK_DGRAM"), vec![refused]));
        cases.push((pair("SOCK_STREAM"), vec!["made"]));
        cases.push((perl("AF_INET6", "SOCK_STREAM"), vec!["made"]));
    }
    if has("curl") {
        cases.push((format!("curl -s localhost:{named}"), vec!["hello"]));
        cases.push((format!("curl -s localhost:{other}"), vec!["only localhost:"]));
    }
    let mut tasks = format!("[sandbox]\nnetwork = ['localhost:{named}']\n");
    for (number, (command, _)) in cases.iter().enumerate() {
        let command = serde_json::Value::from(format!("bash -c {}", quoted(command)));
        tasks.push_str(&format!("[tasks.t{number}]\nrun = {command}\ntimeout = '30s'\n"));
    }
    tasks.push_str("[tasks.none]\nrun = 'env | grep -ci proxy; bash -c \"exec 3<>/dev/tcp/127.0.0.1/1\" 2>&1'\n");
    tasks.push_str("sandbox = { network = false }\n");
    let desk = place(&tasks);
    let check = desk.call(CHECK).out;
    if !check.contains("workspace-write, network only to localhost:") {
        return skipped(&format!("single hosts cannot be given here: {check}"));
    }
    let refused_run = desk.call(&["run", "-f", "ws/agents.toml"]);
    assert!(refused_run.err.contains("commands can reach `localhost:"), "{}", refused_run.err);
    let done = desk.call(&["run", "-f", "ws/agents.toml", "--json", "--trust", "--keep-going"]);
    let events = crate::support::desk::lines(&done.out);
    let tasks = &events.last().expect("events")["data"]["tasks"];
    let said = |task: &str| format!("{}{}", tasks[task]["output"], tasks[task]["error"]["output"]);
    for (number, (command, told)) in cases.iter().enumerate() {
        let said = said(&format!("t{number}"));
        for told in told {
            assert!(said.contains(told), "{command}: {told}: {said}");
        }
        assert!(told.contains(&"hello") || !said.contains("hello"), "{command}: {said}");
    }
    assert!(said("none").contains("0\\n") && said("none").contains(refused), "{}", said("none"));
}

#[test]
fn single_hosts_are_refused_where_there_can_be_no_empty_network() {
    let desk = place("[sandbox]\nnetwork = ['a.b:443']\n[tasks.t]\nrun = 'echo x > made'\n");
    // In a namespace of its own, which allows no others in it.
    let without = |arguments: &str| {
        let program = env!("CARGO_BIN_EXE_callsheet");
        let line =
            format!("echo 0 > /proc/sys/user/max_user_namespaces && exec {program} {arguments}");
        let mut command = Command::new("unshare");
        desk.bare(command.args(["-Ur", "sh", "-c", &line]));
        Done::of(&mut command)
    };
    let check = without("check -f ws/agents.toml");
    if check.out.is_empty() {
        return skipped(&format!("user namespaces cannot be forbidden here: {}", check.err));
    }
    assert!(
        check.out.contains("a run does not start: single hosts in `network` need"),
        "{}",
        check.out
    );
    let run = without("run -f ws/agents.toml --trust");
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(
        run.err.contains("no namespaces") && !desk.path().join("ws/made").exists(),
        "{}",
        run.err
    );
}

/// Returns a text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn a_limit_ends_what_passes_it_and_is_named() {
    let desk = place(
        "[sandbox.limits]\nmemory = '256MiB'\nfile_size = '1MiB'\ncpu_time = '1s'\nopen_files = 40\n\
         [tasks.file]\nrun = 'head -c 2000000 /dev/zero > big'\n\
         [tasks.time]\nrun = 'while :; do :; done'\n\
         [tasks.memory]\nrun = 'head -c 400M /dev/zero | tail -c 400M 2> /dev/null | wc -c; echo end'\n\
         [tasks.limits]\nrun = 'ulimit -c; ulimit -d; ulimit -f; ulimit -n; ulimit -t; cat /proc/self/oom_score_adj'\n\
         [tasks.higher]\nrun = 'ulimit -Hn 41 2> /dev/null || echo kept'\n",
    );
    if !has_sandbox(&desk) {
        return;
    }
    let done = desk.call(&["run", "-f", "ws/agents.toml", "--json"]);
    let events = crate::support::desk::lines(&done.out);
    let tasks = &events.last().expect("events")["data"]["tasks"];
    for (task, told) in [
        ("file", "exit code 153: it wrote a larger file than `file_size`"),
        ("time", "exit code 152: it used more processor time than `cpu_time`"),
    ] {
        let message = tasks[task]["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(told), "{}", tasks[task]);
    }
    assert_eq!(std::fs::metadata(desk.path().join("ws/big")).expect("a file").len(), 1 << 20);
    assert_eq!(tasks["memory"]["output"], "0\nend\n", "{}", tasks["memory"]);
    // The units of the shell are KiB and blocks of 512 bytes.
    let said = tasks["limits"]["output"].as_str().unwrap_or_default();
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(&said[..5], ["0", "262144", "2048", "40", "1"]);
    assert!(said[5].parse::<i32>().is_ok_and(|sooner| sooner >= 500), "{said:?}");
    assert_eq!(tasks["higher"]["output"], "kept\n");
}

#[test]
fn a_file_cannot_turn_the_sandbox_off_and_a_person_can() {
    let desk = place("[sandbox]\nmode = 'danger-full-access'\n[tasks.t]\nrun = 'true'\n");
    let refused = desk.call(&["run", "-f", "ws/agents.toml"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("loose_sandbox"), "{}", refused.err);
    let desk = place("[tasks.t]\nrun = 'echo x > ../out/made; ls ../out'\n");
    if !has_sandbox(&desk) {
        return;
    }
    let kept = desk.call(&["run", "-f", "ws/agents.toml"]);
    assert!(
        kept.err.contains("sandbox of commands: workspace-write, no network\n"),
        "{}",
        kept.err
    );
    assert!(!desk.path().join("out/made").exists(), "{}", kept.err);
    let open = ["run", "-f", "ws/agents.toml", "--sandbox", "danger-full-access"];
    let free = desk.call(&open);
    assert_eq!(free.code, 0, "{}", free.err);
    assert!(
        desk.path().join("out/made").exists()
            && free.err.contains("sandbox of commands: none: a person turned it off")
    );
    // A profile is a part of the file.
    let desk =
        place("[profiles.x.sandbox]\nmode = 'danger-full-access'\n[tasks.t]\nrun = 'true'\n");
    let refused = desk.call(&["check", "-f", "ws/agents.toml", "--profile", "x"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}

#[test]
fn in_the_sandbox_bash_may_run_without_a_question() {
    let script = r#"
[[rules]]
turn = 1
calls = [
    { tool = "bash", input = { command = "echo $((1 + 1)) > made && cat made" } },
    { tool = "bash", input = { command = "echo x > ../out/made" } },
    { tool = "bash", input = { command = "git push" } },
]
[[rules]]
say = "{% for result in last %}{{ result.text }};{% endfor %}"
"#;
    let head = "[agents.a]\nmodel = 'm'\ninstructions = 'x'\ntools = ['bash']\n\
                [models.m]\nprovider = 'p'\nmodel = 'm'\n\
                [providers.p]\nkind = 'scripted'\nscript = 's.toml'\n\
                [tasks.t]\nagent = 'a'\nprompt = 'go'\n[permissions]\ndeny = ['bash(git push*)']\n";
    let told = |verdict: &str, more: &[&str]| {
        let desk = place(&format!("{head}sandboxed = '{verdict}'\n"));
        desk.write("ws/s.toml", script);
        let done = desk.call(&[&["run", "-f", "ws/agents.toml", "--json"], more].concat());
        let events = crate::support::desk::lines(&done.out);
        let task = &events.last().expect("events")["data"]["tasks"]["t"];
        (has_sandbox(&desk), task.to_string(), desk.path().join("out/made").exists())
    };
    let (has, free, is_out) = told("allow", &[]);
    if !has {
        return;
    }
    assert!(free.contains("\"2\\n") && free.contains("bash(git push*)") && !is_out, "{free}");
    assert_eq!(free.matches("Permission denied:").count(), 1, "{free}");
    for (verdict, more) in [("ask", &[][..]), ("allow", &["--sandbox", "danger-full-access"])] {
        let (_, kept, is_out) = told(verdict, more);
        assert_eq!(kept.matches("Permission denied:").count(), 3, "{kept}");
        assert!(!is_out);
    }
}

#[test]
fn an_agent_and_a_task_can_be_kept_from_more() {
    let script = r#"
[[rules]]
turn = 1
calls = [
    { tool = "bash", input = { command = "cat agents.toml > /dev/null && echo read; echo x > by-bash" } },
    { tool = "write_file", input = { path = "by-tool", content = "x" } },
    { tool = "edit_file", input = { path = "prompt.md", old_string = "a", new_string = "b" } },
]
[[rules]]
say = "{% for result in last %}{{ result.text }};{% endfor %}"
"#;
    let head = "[permissions]\nallow = ['bash', 'write_file', 'edit_file', 'delegate']\n\
                [agents.a]\nmodel = 'm'\ninstructions = 'x'\ntools = ['bash', 'write_file', 'edit_file']\n\
                [agents.lead]\nmodel = 'lead'\ninstructions = 'x'\nsub_agents = ['a']\n\
                sandbox = { mode = 'read-only' }\n\
                [models.m]\nprovider = 'p'\nmodel = 'm'\n\
                [models.lead]\nprovider = 'leading'\nmodel = 'm'\n\
                [providers.p]\nkind = 'scripted'\nscript = 's.toml'\n\
                [providers.leading]\nkind = 'scripted'\nscript = 'lead.toml'\n";
    let lead = "[[rules]]\nturn = 1\n\
                calls = [{ tool = 'delegate', input = { agent = 'a', prompt = 'go' } }]\n\
                [[rules]]\nsay = '{{ last[0].text }}'\n";
    let narrow = "sandbox = { mode = 'read-only' }";
    for (tasks, may) in [
        ("[tasks.t]\nagent = 'a'\nprompt = 'go'\n".to_owned(), true),
        (format!("[tasks.t]\nagent = 'a'\nprompt = 'go'\n{narrow}\n"), false),
        (format!("[tasks.t]\nagent = 'a'\nprompt = 'go'\nforeach = '[1, 2]'\n{narrow}\n"), false),
        ("[tasks.t]\nagent = 'lead'\nprompt = 'go'\n".to_owned(), false),
        (format!("[tasks.t]\nrun = 'echo x > by-bash; echo x > by-tool'\n{narrow}\n"), false),
    ] {
        let desk = place(&format!("{head}{tasks}"));
        desk.write("ws/s.toml", script);
        desk.write("ws/lead.toml", lead);
        if !has_sandbox(&desk) {
            return;
        }
        let done = desk.call(&["run", "-f", "ws/agents.toml", "--json"]);
        let made = |file: &str| desk.path().join("ws").join(file).exists();
        assert_eq!((made("by-bash"), made("by-tool")), (may, may), "{tasks}{}", done.out);
        let prompt = std::fs::read_to_string(desk.path().join("ws/prompt.md")).expect("a file");
        assert_eq!(prompt, "a canary\n", "it is protected anyway");
        assert!(tasks.contains("run =") || done.out.contains("read\\n"), "{}", done.out);
    }
    for wide in ["network = true", "mode = 'danger-full-access'"] {
        let desk = place(&format!("[tasks.t]\nrun = 'true'\nsandbox = {{ {wide} }}\n"));
        let refused = desk.call(&["check", "-f", "ws/agents.toml"]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(format!("{}{}", refused.out, refused.err).contains("loose_sandbox"), "{wide}");
    }
}

#[test]
fn roots_and_modes_are_what_the_file_says() {
    let tasks = "[tasks.root]\nrun = 'echo x > ../out/made && cat ../home/.netrc'\n\
                 [tasks.trusted]\nrun = 'echo x > .github/workflows/ci.yml'\n\
                 [tasks.inside]\nrun = 'echo x > inside'\n[tasks.temporary]\nrun = 'f=$(mktemp) && echo x > $f'\n";
    let wide =
        "[sandbox]\nwritable_roots = ['../out', '.github']\nreadable_roots = ['../home/.netrc']\n";
    let desk = place(&format!("{wide}{tasks}"));
    if !has_sandbox(&desk) {
        return;
    }
    let done = desk.call(&["run", "-f", "ws/agents.toml", "--trust"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let desk = place(&format!("[sandbox]\nmode = 'read-only'\n{tasks}"));
    let done = desk.call(&["run", "-f", "ws/agents.toml", "--keep-going"]);
    for (task, state) in [
        ("root", "failed"),
        ("trusted", "failed"),
        ("inside", "failed"),
        ("temporary", "completed"),
    ] {
        let line = done.out.lines().find(|line| line.starts_with(task)).expect("a line");
        assert!(line.contains(state), "{}", done.out);
    }
}

#[test]
fn a_command_hears_every_signal_that_its_parent_may_hold_back() {
    let desk = Desk::commands("[tasks.t]\nrun = 'exec grep SigBlk /proc/self/status'\n");
    let run = desk.good(&["run"]);
    assert!(run.contains("SigBlk: 0000000000000000"), "{run}");
}
#[test]
fn with_the_whole_network_a_command_gets_sockets_of_the_network_and_no_others() {
    if !has("python3") {
        return skipped("there is no `python3` here");
    }
    // A family, a type and a protocol, and whether there is such a socket.
    let sockets = [
        ("AF_INET", "SOCK_STREAM", 0, true),
        ("AF_INET", "SOCK_DGRAM", 0, true),
        ("AF_UNIX", "SOCK_STREAM", 0, true),
        ("AF_UNIX", "SOCK_DGRAM", 0, true),
        ("AF_NETLINK", "SOCK_RAW", 0, true),
        // The log of audits, what devices tell, and the families of packets, of ciphers, Bluetooth, CAN,
        // TIPC, virtual machines and XDP.
        ("AF_NETLINK", "SOCK_RAW", 9, false),
        ("AF_NETLINK", "SOCK_DGRAM", 15, false),
        ("AF_INET", "SOCK_RAW", 1, false),
        ("AF_INET", "10", 768, false),
        ("17", "SOCK_RAW", 768, false),
        ("38", "SOCK_SEQPACKET", 0, false),
        ("31", "SOCK_RAW", 1, false),
        ("29", "SOCK_RAW", 1, false),
        ("30", "SOCK_DGRAM", 0, false),
        ("40", "SOCK_STREAM", 0, false),
        ("44", "SOCK_RAW", 0, false),
    ];
    let made = sockets.map(|(family, kind, protocol, _)| {
        format!("made(lambda: socket({family}, {kind}, {protocol}))\n")
    });
    let script = format!(
        "from socket import *\ndef made(make):\n  try: make(); print('made')\n  except OSError as e: print(e.errno)\n\
         {}made(lambda: getaddrinfo('localhost', 80))\nmade(lambda: socketpair(30, SOCK_STREAM))\n",
        made.concat()
    );
    let desk = place("[sandbox]\nnetwork = true\n[tasks.t]\nrun = 'python3 sockets.py'\n");
    desk.write("ws/sockets.py", &script);
    let check = desk.call(CHECK).out;
    if !check.contains("workspace-write, with network") {
        return skipped(&format!("there is no sandbox here: {check}"));
    }
    let done = desk.call(&["run", "-f", "ws/agents.toml", "--json", "--trust"]);
    let events = crate::support::desk::lines(&done.out);
    let task = &events.last().expect("events")["data"]["tasks"]["t"];
    let said = task["output"].as_str().unwrap_or_else(|| panic!("{task}"));
    let wanted = sockets.iter().map(|(.., is)| if *is { "made" } else { "1" });
    let wanted: Vec<&str> = wanted.chain(["made", "1"]).collect();
    // A python3 of a toolchain may say more.
    let is_answer = |line: &&str| *line == "made" || line.parse::<i32>().is_ok();
    assert_eq!(said.lines().filter(is_answer).collect::<Vec<_>>(), wanted, "{said}");
}
