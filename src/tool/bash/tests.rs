//! Real commands: what they print, how they end, and that nothing of them is left.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::store::PREVIEW_CHARS;
use crate::tool::Ending;
use crate::tool::files::tests::Bench;

/// Longer than anything here may take, shorter than the sleeps that must not be waited for.
const DEADLINE: Duration = Duration::from_secs(20);

/// The process that a command noted in a file, once it is there.
async fn noted(path: &Path) -> String {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let pid = std::fs::read_to_string(path).unwrap_or_default();
        if pid.ends_with('\n') {
            return pid.trim().to_owned();
        }
        assert!(Instant::now() < deadline, "no process was noted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_at_work(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

async fn assert_gone(pid: &str) {
    let deadline = Instant::now() + DEADLINE;
    while is_at_work(pid) {
        assert!(Instant::now() < deadline, "process {pid} is still at work");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A command whose grandchild notes itself in `pid` and sleeps.
const GRANDCHILD: &str = "sh -c 'echo $$ > pid; echo ready; exec sleep 300' & wait";

#[tokio::test]
async fn output_is_merged_in_order() {
    let bench = Bench::new();
    let text = bench.text("bash", json!({"command": "echo a; echo b >&2; echo c; pwd"})).await;
    let root = bench.dir.path().canonicalize().unwrap();
    assert_eq!(text, format!("a\nb\nc\n{}\n", root.display()));
}

#[tokio::test]
async fn the_exit_code_is_told() {
    let bench = Bench::new();
    let run = |command: &str| json!({"command": command});
    let output = bench.call("bash", run("true")).await.unwrap();
    assert_eq!(output.text, "(no output)");
    assert_eq!((output.is_error(), output.exit_code()), (false, Some(0)));
    let output = bench.call("bash", run("printf x; exit 3")).await.unwrap();
    assert_eq!(output.text, "x\nexit code 3");
    assert_eq!((output.is_error(), output.exit_code()), (true, Some(3)));
    let output = bench.call("bash", run("kill -9 $$")).await.unwrap();
    assert_eq!(output.exit_code(), Some(137));
    let outcome = bench.call("bash", json!({"command": "x", "timeout_s": 0})).await;
    assert!(matches!(outcome, Err(ToolError::Arguments(_))));
    let outcome = bench.call("bash", json!({"cmd": "x"})).await;
    assert!(matches!(outcome, Err(ToolError::Arguments(_))));
}

#[tokio::test]
async fn a_task_s_command_gives_its_bare_output() {
    let bench = Bench::new();
    let context = bench.context();
    let output = run_command("true", &context).await.unwrap();
    assert_eq!(output, ToolOutput { ending: Ending::Exited(0), ..ToolOutput::ok("") });
    let output = run_command("echo \"$TOOL_TEST $CALLSHEET_IDEMPOTENCY_KEY\"; cat", &context).await;
    assert_eq!(output.unwrap().text, format!("set {}\n", context.key));
}

#[tokio::test]
async fn a_huge_output_is_stored_whole_and_previewed() {
    const BYTES: u64 = 200_000_000;
    let bench = Bench::new();
    let command = format!("yes 0123456789 | head -c {BYTES}; echo the end");
    let output = bench.call("bash", json!({"command": command})).await.unwrap();
    let stored = output.stored.clone().unwrap();
    assert_eq!(stored.bytes, BYTES + 8);
    let path = bench.context().store.path_of(&stored);
    assert_eq!(path.metadata().unwrap().len(), BYTES + 8);
    let mut hash = blake3::Hasher::new();
    std::io::copy(&mut std::fs::File::open(&path).unwrap(), &mut hash).unwrap();
    assert_eq!(hash.finalize().to_hex().as_str(), stored.hash);
    assert!(output.text.chars().count() < PREVIEW_CHARS + 300);
    assert!(output.text.ends_with("the end\n") && !output.is_error());
    // The preview names a file that the tools can read.
    let input = json!({"pattern": "the end", "path": path, "output_mode": "count"});
    assert!(bench.text("grep", input).await.ends_with(":1\n"));
}

#[tokio::test]
async fn a_failure_has_a_shorter_limit() {
    let bench = Bench::new();
    let command = "yes | head -c 20000";
    let output = bench.call("bash", json!({"command": command})).await.unwrap();
    assert!(output.stored.is_none());
    let command = "yes | head -c 20000; exit 1";
    let output = bench.call("bash", json!({"command": command})).await.unwrap();
    assert_eq!(output.stored.clone().unwrap().bytes, 20_000);
    assert!(output.text.ends_with("y\nexit code 1"));
}

#[tokio::test]
async fn a_timeout_ends_the_group_and_keeps_the_output() {
    let bench = Bench::new();
    let begun = Instant::now();
    let input = json!({"command": GRANDCHILD, "timeout_s": 2});
    let output = bench.call("bash", input).await.unwrap();
    assert_eq!(output.text, "Error: Timeout (2s)\nready\nexit code 143");
    assert_eq!((output.is_error(), output.exit_code()), (true, Some(143)));
    assert_gone(&noted(&bench.path("pid")).await).await;
    // The polite signal was enough.
    assert!(begun.elapsed() < bench.context().grace_period);
}

#[tokio::test]
async fn a_deaf_process_is_killed_after_the_grace() {
    let bench = Bench::new();
    let mut context = bench.context();
    context.timeout = Duration::from_secs(2);
    context.grace_period = Duration::from_millis(200);
    let command = "trap '' TERM; sh -c 'echo $$ > pid; exec sleep 300'";
    let output = run_command(command, &context).await.unwrap();
    assert_eq!((output.text.as_str(), output.ending), ("", Ending::TimedOut(None)));
    assert_gone(&noted(&bench.path("pid")).await).await;
}

#[tokio::test]
async fn the_polite_signal_lets_a_process_clean_up() {
    let bench = Bench::new();
    let command = "trap 'echo cleaned; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let output = bench.call("bash", json!({"command": command, "timeout_s": 2})).await.unwrap();
    // Some shells say that the `sleep` was terminated, too.
    assert!(output.text.starts_with("Error: Timeout (2s)\n"), "{}", output.text);
    assert!(output.text.ends_with("cleaned\nexit code 0"), "{}", output.text);
    assert!(output.is_error() && !output.was_cancelled());
}

#[tokio::test]
async fn a_cancelled_call_ends_its_group() {
    let bench = Bench::new();
    let context = bench.context();
    let cancel = context.cancel.clone();
    let call = tokio::spawn(async move { run_command(GRANDCHILD, &context).await });
    let pid = noted(&bench.path("pid")).await;
    assert!(is_at_work(&pid));
    cancel.cancel();
    let output = call.await.unwrap().unwrap();
    assert_eq!((output.text.as_str(), output.ending), ("ready\n", Ending::Cancelled(Some(143))));
    assert!(output.is_error() && output.was_cancelled());
    assert_gone(&pid).await;
}

#[tokio::test]
async fn a_dropped_call_kills_its_group() {
    let bench = Bench::new();
    let context = bench.context();
    let call = tokio::spawn(async move { run_command(GRANDCHILD, &context).await });
    let pid = noted(&bench.path("pid")).await;
    call.abort();
    assert_gone(&pid).await;
}

#[tokio::test]
async fn what_holds_the_output_open_is_ended() {
    let bench = Bench::new();
    let begun = Instant::now();
    let command = "sh -c 'echo $$ > pid; exec sleep 300' & \
                   while [ ! -s pid ]; do sleep 0.01; done; echo started";
    let output = bench.call("bash", json!({"command": command})).await.unwrap();
    let note = "(background processes were left; those of the command's own process group have been ended)";
    assert_eq!(output.text, format!("started\n{note}"));
    assert_eq!((output.is_error(), output.exit_code()), (false, Some(0)));
    assert_gone(&noted(&bench.path("pid")).await).await;
    assert!(begun.elapsed() < DEADLINE);
}

#[tokio::test]
async fn what_runs_on_silently_is_ended() {
    let bench = Bench::new();
    let command = "sh -c 'echo $$ > pid; exec sleep 300' > log 2>&1 & \
                   while [ ! -s pid ]; do sleep 0.01; done; echo started";
    let text = bench.text("bash", json!({"command": command})).await;
    assert!(text.starts_with("started\n(background"), "{text}");
    assert_gone(&noted(&bench.path("pid")).await).await;
}

#[tokio::test]
async fn a_process_that_left_the_group_does_not_hang_the_call() {
    let bench = Bench::new();
    let begun = Instant::now();
    let command = "setsid sh -c 'echo $$ > pid; exec sleep 300' & \
                   while [ ! -s pid ]; do sleep 0.01; done; echo started";
    let text = bench.text("bash", json!({"command": command})).await;
    assert!(text.starts_with("started\n"), "{text}");
    assert!(begun.elapsed() < DEADLINE);
    let pid = noted(&bench.path("pid")).await;
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn rules_see_the_command_and_its_parts() {
    let tools = tools();
    let input = Json::encode(&json!({"command": "cd x && rm -rf y"}));
    let dir = tempfile::tempdir().unwrap();
    let workspace = crate::tool::workspace::Workspace::open(dir.path()).unwrap();
    let seen = tools[0].permission_arguments(&input, &workspace);
    assert_eq!(seen, ["cd x && rm -rf y", "cd x", "rm -rf y"]);
}

/// Changes a file once the beginning of a call is recorded.
#[derive(Debug)]
struct Meanwhile(std::path::PathBuf);

impl crate::tool::Announce for Meanwhile {
    fn announce(&self, _: Option<crate::turn::Process>) -> BoxFuture<'_, Result<(), ToolError>> {
        std::fs::write(&self.0, "touch other").unwrap();
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_script_that_was_changed_after_the_question_does_not_run() {
    let bench = Bench::new();
    bench.file("deploy.sh", "touch done");
    let input = Json::encode(&json!({"command": "sh deploy.sh"}));
    let tool = Bash { spec: spec() };
    let scripts = tool.scripts(&input, &bench.workspace);
    assert_eq!(scripts.len(), 1);
    let basis = crate::tool::basis::Basis { scripts: Some(scripts), ..Default::default() };
    let context = || ToolContext { basis: basis.clone(), ..bench.context() };
    let announce = Arc::new(Meanwhile(bench.path("deploy.sh")));
    let changed = ToolContext { announce, ..context() };
    let told = tool.call(input.clone(), changed).await.unwrap_err().to_string();
    assert!(told.starts_with("`deploy.sh` was changed after a person was asked"), "{told}");
    assert!(!bench.path("other").exists() && !bench.path("done").exists());
    bench.file("deploy.sh", "touch done");
    assert!(!tool.call(input, context()).await.unwrap().is_error());
    assert!(bench.path("done").exists());
}
