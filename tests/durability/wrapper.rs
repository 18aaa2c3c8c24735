//! Commands in a wrapper process: their results, their ends, their kept results, and that no
//! process of theirs is left, however their parent ends.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use callsheet::id::{AgentId, CallKey, RunId};
use callsheet::message::Json;
use callsheet::redaction::Secrets;
use callsheet::store::Store;
use callsheet::tool::bash::run_command;
use callsheet::tool::environment::{self, Environment};
use callsheet::tool::hook::{self, Answer};
use callsheet::tool::process::{Remains, end_remains};
use callsheet::tool::spool::{SoFar, Spool};
use callsheet::tool::workspace::Workspace;
use callsheet::tool::wrapper::{Wrapper, spooled};
use callsheet::tool::{Announce, BoxFuture, Ending, ToolContext, ToolError, ToolOutput, Toolbox};
use callsheet::turn::Process;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Deadline for an event that must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(120);

/// A text that no record may hold.
const SECRET: &str = "hunter2-hunter2";

/// A command whose grandchild notes itself in `pid` and sleeps.
const GRANDCHILD: &str = "sh -c 'echo $$ > new; mv new pid; echo ready; exec sleep 300' & wait";

/// A workspace, and the context of a call in it.
struct Bench {
    dir: tempfile::TempDir,
    store: Arc<Store>,
    heard: Arc<Heard>,
}

/// Remembers announcements, and can refuse them.
#[derive(Debug, Default)]
struct Heard {
    process: Mutex<Option<Process>>,
    refuses: bool,
}

impl Announce for Heard {
    fn announce(&self, process: Option<Process>) -> BoxFuture<'_, Result<(), ToolError>> {
        *self.process.lock() = process;
        let refusal = self.refuses.then(|| ToolError::Failed("the journal failed".to_owned()));
        Box::pin(async move { refusal.map_or(Ok(()), Err) })
    }
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let run = dir.path().join("run");
        let store = Arc::new(Store::new(run.join("spool"), run.join("results")));
        Self { dir, store, heard: Arc::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn context(&self) -> ToolContext {
        let key = CallKey::derive(
            RunId::from(uuid::Uuid::now_v7()),
            &AgentId::from_text("a"),
            1,
            0,
            "bash",
            "{}",
        );
        let mut environment = environment::passed(&[]);
        environment.insert("TOOL_TEST".to_owned(), "set".to_owned());
        let wrapper = Wrapper {
            program: env!("CARGO_BIN_EXE_callsheet").into(),
            secrets: Secrets::new([SECRET.to_owned()]),
        };
        ToolContext {
            workspace: Arc::new(Workspace::open(self.dir.path()).expect("opens")),
            store: self.store.clone(),
            key,
            env: Environment::only(environment),
            sandbox: Default::default(),
            read_only: false,
            unseen: Default::default(),
            basis: Default::default(),
            skills: [].into(),
            media: [].into(),
            timeout: SOON,
            longest: SOON,
            grace_period: SOON,
            orphan_grace: SOON,
            cancel: CancellationToken::new(),
            announce: self.heard.clone(),
            wrapper: Some(Arc::new(wrapper)),
            printing: None,
        }
    }

    async fn bash(&self, context: ToolContext, input: serde_json::Value) -> ToolOutput {
        let tools = Toolbox::built_in();
        let bash = tools.get("bash").expect("a tool");
        bash.call(Json::encode(&input), context).await.expect("an output")
    }

    fn process(&self) -> Process {
        self.heard.process.lock().expect("it was announced")
    }

    fn kept(&self, context: &ToolContext) -> Option<Result<ToolOutput, ToolError>> {
        let kept = spooled(&self.store, &context.key).expect("it can be read");
        kept.map(|(result, _took)| result)
    }

    /// Waits for the process that a command noted, and returns its number.
    async fn noted(&self) -> i32 {
        let path = self.path("pid");
        until("a process was noted", || std::fs::read_to_string(&path).ok()).await;
        std::fs::read_to_string(&path).expect("noted").trim().parse().expect("a number")
    }
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the fields of `/proc/PID/stat` after the name; the third is the process group.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_whitespace().map(str::to_owned).collect();
    (fields[0] != "Z" && fields[0] != "X").then_some(fields)
}

async fn assert_gone(pid: i32) {
    until("a process is gone", || stat(pid).is_none().then_some(())).await;
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn a_command_gives_what_it_gives_without_a_wrapper() {
    let bench = Bench::new();
    for (command, text, exit_code) in [
        ("echo a; echo b >&2; echo c", "a\nb\nc\n", Some(0)),
        ("true", "(no output)", Some(0)),
        ("printf x; exit 3", "x\nexit code 3", Some(3)),
        ("kill -9 $$", "(no output)\nexit code 137", Some(137)),
        ("echo \"$TOOL_TEST [$CARGO_MANIFEST_DIR]\"; cat", "set []\n", Some(0)),
        ("printf %s hunter2-; printf hunter2", "[redacted]", Some(0)),
    ] {
        let context = bench.context();
        let output = bench.bash(context.clone(), json!({"command": command})).await;
        assert_eq!((output.text.as_str(), output.exit_code()), (text, exit_code), "{command}");
        assert_eq!(output.is_error(), exit_code != Some(0));
        assert_eq!(bench.kept(&context).expect("kept").expect("an output"), output);
    }
    let context = bench.context();
    let output = run_command("pwd; echo $CALLSHEET_IDEMPOTENCY_KEY", &context).await;
    let root = bench.dir.path().canonicalize().expect("a folder");
    let expected = format!("{}\n{}\n", root.display(), context.key);
    assert_eq!(output.expect("an output").text, expected);
}

#[tokio::test]
async fn what_is_kept_is_private_whole_and_without_secrets() {
    let bench = Bench::new();
    let context = bench.context();
    let command = format!("echo {SECRET}; yes | head -c 100000");
    let output = bench.bash(context.clone(), json!({"command": command})).await;
    assert_eq!(output.stored.as_ref().expect("stored").bytes, 100_011);
    assert_eq!(names(bench.store.scratch_dir()), [format!("{}.json", context.key)]);
    let path = bench.store.scratch_dir().join(format!("{}.json", context.key));
    assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).expect("text");
    assert!(text.contains("[redacted]") && !text.contains(SECRET), "{text}");
    Spool::of(&bench.store).forget_result(&context.key);
    assert!(bench.kept(&context).is_none());
}

#[tokio::test]
async fn a_command_that_was_not_announced_does_not_run() {
    let mut bench = Bench::new();
    bench.heard = Arc::new(Heard { refuses: true, ..Heard::default() });
    let context = bench.context();
    let refused = run_command("touch ran", &context).await;
    assert_eq!(refused.expect_err("refused").to_string(), "the journal failed");
    assert_gone(bench.process().pgid).await;
    assert!(!bench.path("ran").exists() && bench.kept(&context).is_none());
}

#[tokio::test]
async fn the_group_that_is_announced_is_the_command_s() {
    let bench = Bench::new();
    let output = bench.bash(bench.context(), json!({"command": "cut -d' ' -f5 /proc/self/stat"}));
    assert_eq!(output.await.text, format!("{}\n", bench.process().pgid));
}

#[tokio::test]
async fn a_timeout_ends_the_group_and_keeps_the_output() {
    let bench = Bench::new();
    let context = bench.context();
    let begun = Instant::now();
    let input = json!({"command": GRANDCHILD, "timeout_s": 1});
    let output = bench.bash(context.clone(), input).await;
    assert_eq!(output.text, "Error: Timeout (1s)\nready\nexit code 143");
    assert_eq!((output.is_error(), output.exit_code()), (true, Some(143)));
    assert_gone(bench.noted().await).await;
    assert!(begun.elapsed() < SOON, "the polite signal was enough");
    assert_eq!(bench.kept(&context).expect("kept").expect("an output"), output);
}

#[tokio::test]
async fn a_deaf_command_is_killed_after_the_grace_and_does_not_go_on() {
    let bench = Bench::new();
    let mut context = bench.context();
    context.timeout = Duration::from_secs(1);
    context.grace_period = Duration::from_millis(100);
    // The shell would go on as soon as its child is gone.
    let command = "trap '' TERM; sh -c 'echo $$ > new; mv new pid; exec sleep 300'; touch on";
    let output = run_command(command, &context).await.expect("an output");
    assert_eq!((output.text.as_str(), output.ending), ("", Ending::TimedOut(None)));
    assert_gone(bench.noted().await).await;
    assert_gone(bench.process().pgid).await;
    assert!(!bench.path("on").exists());
}

#[tokio::test]
async fn the_polite_signal_lets_a_command_clean_up() {
    let bench = Bench::new();
    let context = bench.context();
    let cancel = context.cancel.clone();
    let command = "trap 'echo cleaned; exit 0' TERM; echo $$ > new; mv new pid; \
                   while :; do sleep 0.01; done 2> /dev/null";
    let call = {
        let context = context.clone();
        tokio::spawn(async move { run_command(command, &context).await })
    };
    let pid = bench.noted().await;
    cancel.cancel();
    let output = call.await.expect("no panic").expect("it ended by itself");
    assert_gone(pid).await;
    // What some shells say of the child that ended is theirs.
    assert!(output.text.contains("cleaned\n"), "{}", output.text);
    assert_eq!(output.exit_code(), Some(0));
    assert!(output.is_error() && output.was_cancelled());
    assert_eq!(bench.kept(&context).expect("kept").expect("an output"), output);
}

#[tokio::test]
async fn of_a_cancelled_command_that_was_killed_the_output_is_known() {
    let bench = Bench::new();
    let mut context = bench.context();
    context.grace_period = Duration::from_millis(100);
    let cancel = context.cancel.clone();
    // The shell itself ends at once; what it waited for does not.
    let command = "echo half; echo hunter2-hunter2; \
                   sh -c 'trap \"\" TERM; echo $$ > new; mv new pid; while :; do sleep 1; done'";
    let call = {
        let context = context.clone();
        tokio::spawn(async move { run_command(command, &context).await })
    };
    let pid = bench.noted().await;
    cancel.cancel();
    let printed = call.await.expect("no panic").expect("what it printed");
    assert_eq!(printed.ending, Ending::Cancelled(None));
    assert!(printed.text.starts_with("half\n[redacted]\n"), "{}", printed.text);
    assert_gone(pid).await;
    let kept = bench.kept(&context).expect("kept");
    assert_eq!(kept.expect("what it printed"), printed);
}

#[tokio::test]
async fn signals_to_the_whole_group_are_for_the_command() {
    let bench = Bench::new();
    for (signal, code) in [("USR1", 138), ("INT", 130), ("HUP", 129), ("TERM", 143)] {
        let input = json!({"command": format!("kill -{signal} 0; sleep 300")});
        let output = bench.bash(bench.context(), input).await;
        assert_eq!(output.exit_code(), Some(code), "{signal}");
    }
    // As when it reads from a terminal that it does not have.
    let input = json!({"command": "kill -TTIN 0; sleep 300", "timeout_s": 1});
    let output = bench.bash(bench.context(), input).await;
    assert_eq!(output.text, "Error: Timeout (1s)\n(no output)\nexit code 143");
}

#[tokio::test]
async fn what_is_left_behind_is_ended() {
    let bench = Bench::new();
    let command = "sh -c 'echo $$ > new; mv new pid; exec sleep 300' > log 2>&1 & \
                   while [ ! -e pid ]; do sleep 0.01; done; echo started";
    let output = bench.bash(bench.context(), json!({"command": command})).await;
    assert!(output.text.starts_with("started\n(background"), "{}", output.text);
    assert_gone(bench.noted().await).await;
}

#[tokio::test]
async fn a_dropped_call_ends_its_group() {
    let bench = Bench::new();
    let context = bench.context();
    let call = tokio::spawn(async move { run_command(GRANDCHILD, &context).await });
    let pid = bench.noted().await;
    call.abort();
    assert_gone(pid).await;
    assert_gone(bench.process().pgid).await;
}

#[tokio::test]
async fn a_wrapper_that_is_killed_leaves_an_unknown_outcome_and_what_was_printed() {
    let bench = Bench::new();
    let context = bench.context();
    let key = context.key.clone();
    let call = tokio::spawn(async move { run_command(GRANDCHILD, &context).await });
    let pid = bench.noted().await;
    let so_far = || Spool::of(&bench.store).so_far(&key, SoFar::Stdout).expect("no error");
    until("what it printed can be read", || {
        let mut text = String::new();
        so_far()?.read_to_string(&mut text).expect("text");
        (text == "ready\n").then_some(())
    })
    .await;
    kill(bench.process().pgid);
    let Err(ToolError::Lost(Some(printed))) = call.await.expect("no panic") else {
        panic!("it is lost, and what it printed is not");
    };
    assert_eq!((printed.text.as_str(), printed.ending), ("ready\n", Ending::Cancelled(None)));
    Spool::of(&bench.store).forget_printed(&key);
    assert!(so_far().is_none());
    assert_gone(pid).await;
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

#[tokio::test]
async fn what_an_earlier_life_left_is_ended_and_nothing_else() {
    let bench = Bench::new();
    let context = bench.context();
    let key = context.key.clone();
    // The sleeper outlives its leader, which nobody but the test has started.
    let mut leader = tokio::process::Command::new("/bin/sh");
    leader.args(["-c", "sh -c 'echo $$ > new; mv new pid; exec sleep 300' & wait"]);
    leader.env("CALLSHEET_IDEMPOTENCY_KEY", key.as_str()).current_dir(bench.dir.path());
    let mut leader = leader.process_group(0).kill_on_drop(true).spawn().expect("started");
    let pgid = i32::try_from(leader.id().expect("an id")).expect("a number");
    let pid = bench.noted().await;
    let starttime = stat(pgid).expect("at work")[19].parse().expect("a number");
    let ours = Process { pgid, starttime };
    let other = Process { pgid, starttime: starttime + 1 };
    assert_eq!(end_remains(other, &key, SOON), Remains::None, "the number is another's");
    assert!(stat(pid).is_some());
    kill(pgid);
    leader.wait().await.expect("reaped");
    let stranger = bench.context().key;
    assert_eq!(end_remains(ours, &stranger, SOON), Remains::None, "the key is another's");
    assert!(stat(pid).is_some());
    assert_eq!(end_remains(ours, &key, SOON), Remains::Ended);
    assert!(stat(pid).is_none());
    assert_eq!(end_remains(ours, &key, SOON), Remains::None);
}

#[tokio::test]
async fn a_hook_is_run_alike_and_nothing_of_it_is_kept() {
    let bench = Bench::new();
    let context = bench.context();
    let run = async |lines: &str| {
        let argv = ["sh", "-c", lines].map(str::to_owned);
        let input = Json::encode(&json!({"trigger": "auto"}));
        hook::run(&argv, &input, &context).await
    };
    let answer =
        run("echo \"$(cat) [$CARGO_MANIFEST_DIR]\"; echo noise >&2").await.expect("an answer");
    assert_eq!(answer, Answer::GoOn(Some("{\"trigger\":\"auto\"} []".to_owned())));
    let answer = run("echo no >&2; exit 2").await.expect("an answer");
    assert_eq!(answer, Answer::Block("no".to_owned()));
    let error = run("echo broken >&2; exit 1").await.expect_err("it failed");
    assert_eq!(error.to_string(), "exit code 1: broken");
    assert!(bench.kept(&context).is_none() && bench.heard.process.lock().is_none());
    let none = hook::run(&["./none".to_owned()], &Json::encode(&json!({})), &context).await;
    assert!(none.expect_err("none").to_string().starts_with("start `./none`: "));
}
