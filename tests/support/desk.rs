//! A temporary workspace with an agents.toml, and the program run in it.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// For what must happen: longer than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// How often to look.
const LOOK: Duration = Duration::from_millis(5);

/// A file with one scripted model; agents and tasks are added to it.
pub(crate) const OFFLINE: &str = r#"
version = 1
name = "desk"
[providers.offline]
kind = "scripted"
script = "script.toml"
[models.default]
provider = "offline"
model = "m"
[permissions]
default = "allow"
"#;

/// A workspace, and the folder of the user in which the program keeps what is trusted.
pub(crate) struct Desk(TempDir, TempDir);

impl Desk {
    pub(crate) fn empty() -> Self {
        let folder = || tempfile::tempdir().expect("a folder");
        Self(folder(), folder())
    }

    /// A workspace with a scripted model, this rest of agents.toml, and this script.
    pub(crate) fn offline(rest: &str, script: &str) -> Self {
        let desk = Self::empty();
        desk.write("agents.toml", &format!("{OFFLINE}{rest}"));
        desk.write("script.toml", script);
        desk
    }

    /// A workspace for tasks that are commands.
    pub(crate) fn commands(tasks: &str) -> Self {
        let desk = Self::empty();
        desk.write("agents.toml", &format!("version = 1\nname = \"desk\"\n{tasks}"));
        desk
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The folder in which the program keeps what is trusted.
    pub(crate) fn state(&self) -> &Path {
        self.1.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("a file")
    }

    /// The program with these arguments, and nothing of the environment that could change it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
        command.args(arguments);
        self.bare(&mut command);
        command
    }

    /// A command in this workspace, without the environment of the tests.
    pub(crate) fn bare(&self, command: &mut Command) {
        command.current_dir(self.path()).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("HOME", self.path())
            .env("XDG_STATE_HOME", self.state())
            .envs(crate::support::without_sandbox());
    }

    /// Types a command line in which `callsheet` is the program.
    pub(crate) fn shell(&self, line: &str) -> Done {
        let program = Path::new(env!("CARGO_BIN_EXE_callsheet"));
        let folder = program.parent().expect("a folder").to_owned();
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> =
            std::iter::once(folder).chain(std::env::split_paths(&rest)).collect();
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        self.bare(&mut command);
        command.env("PATH", std::env::join_paths(folders).expect("a path"));
        Done::of(&mut command)
    }

    /// Runs the program to its end.
    pub(crate) fn call(&self, arguments: &[&str]) -> Done {
        Done::of(&mut self.command(arguments))
    }

    /// Runs the program to its end, which must be exit code 0.
    pub(crate) fn good(&self, arguments: &[&str]) -> String {
        let done = self.call(arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.err);
        done.out
    }

    /// What the program prints with exit code 0, one JSON value a line.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        lines(&self.good(arguments))
    }

    /// Starts the program.
    pub(crate) fn start(&self, arguments: &[&str]) -> Live {
        Live::starting(&mut self.command(arguments))
    }

    /// The run directories, the oldest first.
    pub(crate) fn runs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path().join(".transcripts"));
        let paths = entries.into_iter().flatten().map(|e| e.expect("an entry").path());
        let is_run = |path: &PathBuf| {
            let name = path.file_name().expect("a name").to_string_lossy();
            path.is_dir() && !name.starts_with('.')
        };
        let mut runs: Vec<_> = paths.filter(is_run).collect();
        runs.sort();
        runs
    }

    /// Waits until the newest run has recorded such an event; gives the event.
    pub(crate) fn wait_for_event(&self, kind: &str, fits: impl Fn(&Value) -> bool) -> Value {
        wait(kind, || {
            let run = self.runs().pop()?;
            let journal = std::fs::read_to_string(run.join("journal.jsonl")).ok()?;
            let records = journal.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let mut records = records.filter_map(|line| serde_json::from_str::<Value>(line).ok());
            records.find(|record| record["type"] == kind && fits(record))
        })
    }
}

/// A journal of these records, each without its end, with the sums that a program would write.
pub(crate) fn sealed<'a>(records: impl Iterator<Item = &'a str>) -> String {
    let (mut journal, mut sum) = (String::new(), 0);
    for front in records {
        sum = crc32c::crc32c_append(sum, front.as_bytes());
        journal.push_str(&format!("{front},\"crc\":\"{sum:08x}\"}}\n"));
    }
    journal
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(command: &mut Command) -> Self {
        Live::starting(command).end()
    }

    /// Everything that was printed is free of escape codes.
    pub(crate) fn assert_plain(&self) {
        assert!(!self.out.contains('\x1b'), "{}", self.out);
        assert!(!self.err.contains('\x1b'), "{}", self.err);
    }
}

/// A program at work; it is killed when it is dropped.
pub(crate) struct Live {
    child: Child,
    out: Option<std::thread::JoinHandle<String>>,
    err: Option<std::thread::JoinHandle<String>>,
}

impl Live {
    /// Starts a program.
    pub(crate) fn starting(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A program that a test has just copied is busy while another thread starts a process: until that runs its
        // own program, it holds the copy open for writing.
        let started = wait("a program that nobody writes", || match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => None,
            started => Some(started),
        });
        Self::of(started.expect("started"))
    }

    pub(crate) fn of(mut child: Child) -> Self {
        fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = from.read_to_end(&mut bytes);
                String::from_utf8(bytes).expect("UTF-8")
            })
        }
        let out = child.stdout.take().map(drain);
        let err = child.stderr.take().map(drain);
        Self { child, out, err }
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().expect("sent");
        assert!(sent.success());
    }

    /// Stops it where it is; when this returns, none of its threads goes on.
    pub(crate) fn halt(&self) {
        self.signal("STOP");
        wait("it to stop", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
            let status =
                |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status"));
            let mut states = tasks.filter_map(Result::ok).filter_map(|task| status(task).ok());
            states.all(|text| text.contains("State:\tT")).then_some(())
        });
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for its end.
    pub(crate) fn end(self) -> Done {
        self.end_within(DEADLINE)
    }

    /// Waits for its end at most this long.
    pub(crate) fn end_within(mut self, most: Duration) -> Done {
        let status =
            wait_within(most, "the end of the program", || self.child.try_wait().expect("a child"));
        let text = |drained: Option<std::thread::JoinHandle<String>>| {
            drained.expect("once").join().expect("read")
        };
        let (out, err) = (text(self.out.take()), text(self.err.take()));
        Done { code: status.code().unwrap_or(-1), out, err }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One JSON value a line.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(read).collect()
}

/// Waits until it gives something.
pub(crate) fn wait<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_within(DEADLINE, what, look)
}

fn wait_within<T>(most: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + most;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(LOOK);
    }
}

/// The keys of an object, in their order.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Whether a process is there.
pub(crate) fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    // One that has ended and is not yet waited for does nothing any more.
    status.is_ok_and(|text| !text.contains("State:\tZ"))
}
