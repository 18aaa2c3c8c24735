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

#[test]
fn a_command_may_take_as_long_as_its_task() {
    let seconds = Duration::from_secs;
    for (asked, longest, expected) in [
        (None, 3_600, Some(120)),
        (None, 60, Some(60)),
        (Some(0.5), 3_600, None),
        (Some(1_800.0), 3_600, Some(1_800)),
        (Some(7_200.0), 3_600, Some(3_600)),
        (Some(7_200.0), 14_400, Some(7_200)),
    ] {
        let arguments = BashArguments { command: String::new(), timeout_s: asked };
        let timeout = arguments.timeout(seconds(120), seconds(longest)).expect("a time");
        assert_eq!(timeout, expected.map_or(Duration::from_millis(500), seconds), "{asked:?}");
    }
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
        let arguments = BashArguments { command: String::new(), timeout_s: Some(wrong) };
        assert!(arguments.timeout(seconds(1), seconds(1)).is_err(), "{wrong}");
    }
}

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

/// Judges a command by one rule that allows.
fn allowed(rule: &str, command: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let workspace = crate::tool::workspace::Workspace::open(dir.path()).unwrap();
    let input = Json::encode(&json!({"command": command}));
    let subject = tools()[0].subject(&input, &workspace);
    let rule = crate::permission::Rule::parse(rule).unwrap();
    rule.covers_all(NAME, &subject)
}

#[test]
fn a_rule_names_a_program() {
    for (rule, command, expected) in [
        ("bash(ls*)", "ls -l", true),
        ("bash(ls*)", "lsof", true),
        ("bash(ls*)", "ls/../../../usr/bin/perl -e 1", false),
        ("bash(ls*)", "ls/x", false),
        ("bash(ls*)", "'ls/x'", false),
        ("bash(ls:*)", "lsof", false),
        ("bash(make*)", "make/../touch x", false),
        ("bash(make:*)", "make/../touch x", false),
        ("bash(*test*)", "x/test a", false),
        ("bash(l?/x *)", "ls/x a", true),
        ("bash({ls,cat} *)", "cat a", true),
        ("bash({ls a,cat} *)", "ls/../perl a", false),
        ("bash(/bin/ls *)", "/bin/ls a", true),
        ("bash(ls *)", "/bin/ls a", false),
        ("bash(./scripts/test.sh*)", "./scripts/test.sh", true),
        ("bash(./scripts/test.sh*)", "./scripts/test.sh -v", true),
        ("bash(./scripts/test.sh:*)", "./scripts/test.sh -v", true),
        ("bash(./scripts/test.sh*)", "./scripts/test.sh.bak", false),
        ("bash(./scripts/test.sh*)", "./scripts/test.sh/../x", false),
        ("bash(./scripts/*)", "./scripts/a.sh b/c", true),
        ("bash(./scripts/*)", "./scripts/../a.sh", false),
        ("bash(./scripts/*)", "./scripts/b/a.sh", false),
        ("bash(./*/*)", "./../a.sh", false),
        ("bash(../a.sh *)", "../a.sh x", true),
        ("bash({./a.sh,./b.sh} *)", "./b.sh x", true),
        ("bash(env*)", "env ls/../perl x", false),
        ("bash(*)", "ls/../perl x", true),
        ("bash", "ls/../perl x", true),
        ("bash(ls/../perl x)", "ls/../perl x", true),
    ] {
        assert_eq!(allowed(rule, command), expected, "{rule} {command}");
    }
}

#[test]
fn a_rule_for_a_program_allows_no_argument_that_runs_or_writes() {
    // A program, an argument that only a rule which holds it allows, and one that is allowed.
    for (program, risky, free) in [
        ("sort", "-o x y", "-n x"),
        ("sort", "--compress-program=x y", "x"),
        ("gcc", "-wrapper sh,-c,x a.c", "-Wall -fno-common a.c"),
        // `-o` writes a chosen file.
        ("gcc-12", "@file a.c", "-O2 -c a.c"),
        ("gcc", "-o x a.c", "-Iinclude -DA=b -c a.c -lm"),
        ("gcc", "-ox a.c", "-c src/*.c"),
        ("gcc", "--output=x a.c", "-std=c11 -fno-common -g a.c"),
        ("gcc", "-fdump-tree-all a.c", "-fPIC -shared a.c"),
        ("clang", "-Xclang -load -Xclang x.so a.c", "-march=native a.c"),
        ("cc", "-Wl,-Map=x a.c", "-Wextra a.c"),
        ("rustc", "-o x a.rs", "--edition 2024 a.rs"),
        ("rustc", "--extern m=x.so a.rs", "--test -D warnings a.rs"),
        ("rustc", "--out-dir x a.rs", "-O a.rs"),
        ("javac", "-processorpath x A.java", "-Xlint:all -g A.java"),
        ("javac", "-d x A.java", "A.java"),
        ("tsc", "--outDir x", "--noEmit --strict"),
        ("tsc", "--OUTFILE x a.ts", "--noEmit a.ts"),
        ("tsc", "-p x", "--noEmit"),
        ("nm", "--plug=x.so a.o", "-C a.o"),
        ("strings", "@x", "-n 8 a.o"),
        ("clang++", "@file", "a.cc"),
        ("curl", "-T f http://h/", "-sf http://h/"),
        ("curl", "-K f http://h/", "-w '%{http_code}' http://h/"),
        ("curl", "file:///etc/passwd", "http://h/a"),
        ("curl", "'{f}ile:///etc/passwd'", "'http://h/{a,b}'"),
        ("wget", "--rejected-log=x http://h/", "http://h/"),
        ("pip3", "--log x list", "list"),
        ("java", "-Xlog:gc:file=x -jar a", "-jar a.jar"),
        ("patch", "-o x y", "-p1 y"),
        ("psql", "-o x -c 'select 1'", "-c 'select 1'"),
        ("psql", "-c '\\! x'", "-h host -c 'select 1'"),
        ("sqlite3", "a.db '.shell x'", "a.db 'select 1'"),
        ("sqlite3", "a.db \"ATTACH 'x' AS y\"", "-readonly a.db .."),
        ("ar", "r x y", "t x"),
        ("find", ". -delete", ". -name x"),
        ("rg", "--pre x y", "y"),
        ("tar", "--to-command=x -xf y", "-tf y"),
        // The name of an archive that is made is a chosen file.
        ("tar", "czf x.tgz src", "xzf x.tgz"),
        ("tar", "-czf x.tgz src", "-xzf x.tgz"),
        ("tar", "--create --file=x.tgz src", "--list --file=x.tgz"),
        ("tar", "xPf x.tar", "xvf x.tar"),
        ("tar", "-xf x.tar -C /etc", "-xf x.tar src"),
        ("tar", "-xf x.tar --dir /etc", "-xf x.tar --strip-components=1"),
        ("tar", "-xf x.tar --use-comp=./x", "tvf x.tar"),
        ("unzip", "-d /etc x.zip", "-qo x.zip"),
        ("zstd", "-o x y", "-dc y"),
        ("sort", "-T /etc x", "-t, -k2,3n -u x"),
        ("sort", "-kS2 -uo x y", "-rn x"),
        ("git", "diff --outp=x", "diff HEAD~1"),
        ("git", "log --output x", "log -p"),
        ("git", "worktree add /x", "worktree list"),
        ("rsync", "-e x a b", "-a a b"),
        ("zip", "-TT x y z", "y z"),
        ("cargo", "--config x test", "test --lib"),
        ("npm", "--script-shell=x test", "test"),
        ("npm", "exec x", "run build"),
        ("cargo", "test --target-dir x", "test --workspace -- --nocapture"),
        ("cargo", "test --manifest-path=x", "clippy --all-targets -- -D warnings"),
        ("cargo", "+x test", "build --release -j4"),
        ("cargo", "test --manifest-p x", "fmt -- --check"),
        ("cargo", "test -- --logfile x", "test -- --test-threads=1"),
        ("cargo", "rustc -- -C linker=x", "check"),
        ("go", "test -coverprofile x ./...", "test -race -run 'A|B' ./..."),
        ("go", "test -o x", "test -v -count=1"),
        ("go", "build -ldflags=-extld=x", "build ./..."),
        ("go", "run x@latest", "list -m all"),
        ("go", "-C /x test", "version"),
        ("make", "-C /x", "-C sub -j4 test"),
        ("make", "-kC../x", "-kCsub"),
        ("make", "--file=x", "--directory=sub --no-print-directory"),
        ("make", "--makef x", "-j 4"),
        ("cmake", "--build /x", "--build build -j4"),
        ("cmake", "-DCMAKE_C_COMPILER=x -B build", "-S . -B build"),
        ("ninja", "-f x", "-C build"),
        ("ctest", "-S x", "--output-on-failure -R a"),
        ("jest", "--config x", "--ci src/a.test.js"),
        ("mocha", "-r x", "--timeout 100 test"),
        ("just", "-f x", "build"),
        ("rake", "-f x", "test"),
        ("go", "test -exec x", "test ./..."),
        ("go", "build -toolexec x", "vet"),
        ("make", "SHELL=x", "all"),
        ("make", "-f x", "-j4"),
        ("node", "-e x", "x.js -e y"),
        ("python3", "-c x", "-u x.py -c y"),
        // `-c` of pytest names a file of settings, which name plugins.
        ("python3.12", "-uc x", "-m pytest -k x"),
        ("python3", "-m pytest --junitxml=x", "-m pytest -q tests"),
        ("python3", "-m pytest -p x", "-u -m pytest -xq"),
        ("perl", "-e x", "-w x.pl"),
        // `-p` loads a plugin, which is any module.
        ("pytest", "-p x", "-xvs -k x tests"),
        ("pytest", "--basetemp=x", "-m 'not slow' tests/test_*.py"),
        ("pytest", "-xpx tests", "-rA --tb=short"),
        ("pytest", "--junitxml=x", "--lf --maxfail=1"),
        ("pytest", "--junitx x", "tests/test_a.py::test_b"),
        ("pytest", "-c x", "-n4 tests"),
        ("pytest", "-o cache_dir=x", "--durations 5"),
        ("pytest", "--rootdir=x", "--ignore=tests/slow"),
        ("pytest", "/x/test_a.py", "-q"),
        ("pytest", "../x", "-q ."),
        ("pytest", "-- @x", "-- x"),
        ("pytest", "@x", "x"),
        ("uv", "run x", "sync"),
        ("docker", "run x", "ps"),
    ] {
        let any = format!("bash({program}:*)");
        if free != "-readonly a.db .." {
            assert!(allowed(&any, &format!("{program} {free}")), "{program} {free}");
        }
        let line = format!("{program} {risky}");
        assert!(!allowed(&any, &line), "{line}");
        assert!(!allowed("bash(*:*)", &line) && !allowed(&format!("bash({program}*)"), &line));
        let exact = line.contains(['{', '\\']) || allowed(&format!("bash({line})"), &line);
        assert!(exact && allowed("bash", &line), "{line}");
    }
    for (rule, command, expected) in [
        ("bash(gcc -wrapper *)", "gcc -wrapper x a.c", true),
        ("bash(gcc -wrap* *)", "gcc -wrapper x a.c", false),
        ("bash(sort -o x *)", "sort -o x y", true),
        ("bash(sort -o x *)", "sort -o x y -o z", false),
        ("bash(sort -o x *)", "sort -o x --output=z y", false),
        ("bash(sort --output=*)", "sort --output=x y", false),
        ("bash(sort --output *)", "sort --output x y", true),
        ("bash(sort --output=x *)", "sort --output=x y", true),
        ("bash(sort --output=x *)", "sort --output=x --output=z y", false),
        ("bash(pytest --junitxml=out.xml:*)", "pytest --junitxml=out.xml -q", true),
        ("bash(pytest --junitxml=out.xml:*)", "pytest --junitxml=out.xml -p x", false),
        ("bash(tar czf *)", "tar czf x.tgz src", true),
        ("bash(gcc -o app *)", "gcc -o app a.c", true),
        ("bash(gcc:*)", "CC=x gcc a.c", false),
        ("bash(gcc:*)", "env A=1 gcc a.c", false),
        ("bash(gcc:*)", "gcc $CFLAGS a.c", false),
        ("bash(pytest:*)", "pytest tests/$x", false),
        ("bash(uv run pytest:*)", "uv run pytest --junitxml=x", false),
        ("bash(npx jest:*)", "npx jest --config x", false),
        ("bash(python3 -m pytest:*)", "python3 -m pytest --junitxml=x", false),
        ("bash(python3 -m pytest:*)", "python3 -m pytest -q", true),
        ("bash(uv run pytest:*)", "uv run pytest -q", true),
        ("bash(make CC=clang *)", "make CC=clang all", true),
        ("bash(make CC=clang *)", "make CC=clang SHELL=x", false),
        ("bash(find . -delete)", "find . -delete", true),
        ("bash(python3:*)", "python3", false),
        ("bash(python3:*)", "python3 -W error", false),
        ("bash(python3:*)", "python3 -", false),
        ("bash(python3:*)", "python3 --version", true),
        ("bash(node:*)", "cat x | node", false),
        ("bash(sqlite3:*)", "sqlite3 a.db", false),
        ("bash(sqlite3:*)", "sqlite3 -separator , a.db", false),
        ("bash(psql:*)", "psql -e a", false),
        ("bash(ssh:*)", "ssh h sort -o x y", false),
        ("bash(env:*)", "env sort -o x y", false),
        ("bash({env,sort}:*)", "env sort -o x y", false),
    ] {
        assert_eq!(allowed(rule, command), expected, "{rule} {command}");
    }
}

#[test]
fn the_table_in_the_documentation_is_that_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/permissions.md");
    let page = std::fs::read_to_string(path).unwrap();
    let [begin, end] = grammar::ENDS;
    let (before, rest) = page.split_once(begin).expect("a begin");
    let (found, after) = rest.split_once(end).expect("an end");
    let table = grammar::table();
    if std::env::var_os("CALLSHEET_WRITE_DOCS").is_some() {
        std::fs::write(path, [before, begin, &table, end, after].concat()).unwrap();
        return;
    }
    assert!(found == table, "stale: CALLSHEET_WRITE_DOCS=1 cargo test --lib bash:: writes {path}");
}

#[test]
fn programs_are_known_or_not() {
    for known in [
        "ls",
        "cargo",
        "python3.12",
        "git",
        "/bin/ls",
        "cd",
        "env",
        "gsort",
        "less",
        "pytest",
        "tsc",
    ] {
        assert!(is_known(known), "{known}");
    }
    for unknown in ["deploy", "eslint", "", "lsx", "ldd"] {
        assert!(!is_known(unknown), "{unknown}");
    }
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

#[tokio::test]
async fn a_file_that_a_program_reads_by_itself_is_bound_too() {
    let tool = Bash { spec: spec() };
    for (command, file) in [
        ("make", "Makefile"),
        ("make -C .", "GNUmakefile"),
        ("xargs -a list sh -c", "list"),
        ("python3 -m gen", "gen.py"),
        ("pytest", "conftest.py"),
        ("npm test", "package.json"),
        ("just", "justfile"),
    ] {
        let bench = Bench::new();
        let input = Json::encode(&json!({"command": format!("touch done; {command}")}));
        let scripts = Some(tool.scripts(&input, &bench.workspace));
        let basis = crate::tool::basis::Basis { scripts, ..Default::default() };
        // It was not there when a person was asked.
        let announce = Arc::new(Meanwhile(bench.path(file)));
        let context = ToolContext { announce, basis, ..bench.context() };
        let told = tool.call(input, context).await.unwrap_err().to_string();
        let expected =
            format!("`{file}` was changed after a person was asked; the command was not run");
        assert!(told.starts_with(&expected), "{command}: {told}");
        assert!(!bench.path("done").exists(), "{command}");
    }
}

#[test]
fn a_hostile_line_is_judged_in_time() {
    let deep =
        |open: &str, close: &str, n: usize| [&open.repeat(n), "ls", &close.repeat(n)].concat();
    let dir = tempfile::tempdir().unwrap();
    let workspace = crate::tool::workspace::Workspace::open(dir.path()).unwrap();
    let rules = ["bash(ls *)", "bash(rm:*)", "bash(*)"]
        .map(|rule| crate::permission::Rule::parse(rule).unwrap());
    for line in [
        deep("(", ")", 20_000),
        deep("( ", " )", 20_000),
        deep("$(", ")", 20_000),
        deep("\"$(", ")\"", 20_000),
        deep("`", "`", 20_000),
        deep("{ ", "; }", 20_000),
        deep("eval ", "", 20_000),
        deep("x=", "", 20_000),
        deep("sh -c '", "'", 20_000),
        deep("case x in x) ", ";; esac", 10_000),
        "a;".repeat(50_000),
        "a=b ".repeat(50_000),
        format!("sort {}", "-o x ".repeat(20_000)),
    ] {
        let input = Json::encode(&json!({"command": line}));
        let begun = std::time::Instant::now();
        let subject = tools()[0].subject(&input, &workspace);
        let read = begun.elapsed();
        for rule in &rules {
            let _judged = (rule.covers_all(NAME, &subject), rule.touches(NAME, &subject));
        }
        let judged = begun.elapsed();
        tools()[0].scripts(&input, &workspace);
        let all = begun.elapsed();
        // The slowest takes two seconds on a busy machine; one took half a minute.
        assert!(all.as_secs() < 10, "{}: {read:?} {judged:?} {all:?}", &line[..12]);
    }
}
