//! `cargo bench --bench handlers`: how long the supervisor is busy with one thing, and how late time limits are.
//!
//! Runs in this process, beside tasks with time limits of one to five seconds: 24 MB of outputs that 1,000
//! instances name, and agents with hundreds of results in one turn. Prints the longest handler of the
//! supervisor and the latest time limit for each load. Fails if a handler takes 20 ms or a limit is 250 ms
//! late. Ends by itself within two minutes.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use callsheet::run::Launch;
use serde_json::Value;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The longest that a handler may take.
const LONGEST: Duration = Duration::from_millis(20);
/// The latest that a time limit may fire, in milliseconds.
const LATEST: u64 = 250;
/// Files of the outputs, each of so many rows of a kilobyte.
const FILES: usize = 6;
const ROWS: usize = 4_000;
/// Instances that name them.
const INSTANCES: usize = 1_000;
/// Agents at work, and the calls that each makes in one turn.
const WIDE: usize = 8;
const CALLS: usize = 250;

const HEAD: &str = "version = 1\n[limits]\nmax_concurrency = 64\nmax_instances = 2000\n\
    [providers.offline]\nkind = \"scripted\"\nscript = \"script.toml\"\n\
    [models.default]\nprovider = \"offline\"\nmodel = \"m\"\n[permissions]\ndefault = \"allow\"\n";

/// A load: its name, and what makes its files and gives its configuration.
type Load = (&'static str, fn(&Path) -> String);

fn main() -> ExitCode {
    // The commands of tasks are run by this program too.
    callsheet::serve_if_asked();
    let loads: [Load; 2] = [("24 MB named by 1,000", named), ("8 x 250 results", wide)];
    println!("{:<22} {:>8} {:>12}  {:<24} {:>10}", "load", "took", "longest", "with", "limit late");
    let mut is_good = true;
    for (name, load) in loads {
        let root = tempfile::tempdir().expect("a folder");
        let text = format!("{HEAD}{}{}", load(root.path()), limited());
        let begun = Instant::now();
        let longest = play(text, root.path());
        let took = begun.elapsed();
        let late = latest(root.path());
        let (since, with) = longest.map(|busy| (busy.since, busy.with)).unwrap_or_default();
        is_good &= since < LONGEST && late < LATEST;
        println!("{name:<22} {took:>8.1?} {since:>12.2?}  {with:<24} {late:>7} ms");
    }
    println!("targets: a handler below {LONGEST:?}, a limit less than {LATEST} ms late");
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a configuration, and returns the longest handler.
fn play(text: String, root: &Path) -> Option<callsheet::actor::pulse::Busy> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let run = Launch::text(text, root).start().await;
        let run = run.unwrap_or_else(|error| panic!("{error}"));
        let remote = run.remote();
        let end = run.wait().await;
        assert!(matches!(end, callsheet::RunEnd::Completed(_)), "{end:?}");
        remote.longest()
    })
}

/// Tasks with time limits.
fn limited() -> String {
    let mut text = String::new();
    for seconds in 1..=5 {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[tasks.limited-{seconds}]\nrun = \"sleep 60\"\ntimeout = \"{seconds}s\"\non_failure = \"continue\"\n"
        );
    }
    text
}

/// Outputs of 24 MB in all that each instance of a fan-out names.
fn named(root: &Path) -> String {
    std::fs::write(root.join("script.toml"), "[[rules]]\nsay = \"done\"\n").expect("written");
    let rows: Vec<Value> =
        (0..ROWS).map(|row| serde_json::json!({ "row": row, "text": "x".repeat(1_000) })).collect();
    let rows = serde_json::to_string(&rows).expect("JSON");
    std::fs::write(root.join("rows.json"), rows).expect("written");
    let mut text = "[agents.a]\nmodel = \"default\"\ninstructions = \"x\"\n".to_owned();
    let (mut names, mut reads) = (String::new(), String::new());
    for file in 0..FILES {
        let _ = write!(text, "[tasks.big-{file}]\nrun = \"cat rows.json\"\noutput = \"json\"\n");
        let _ = write!(names, "\"big-{file}\", ");
        let _ = write!(reads, "{{{{ tasks['big-{file}'].output[item].text }}}} ");
    }
    let _ = write!(
        text,
        "[tasks.each]\nagent = \"a\"\nforeach = \"range({INSTANCES})\"\ndepends_on = [{names}]\n\
         prompt = \"{reads}\"\n"
    );
    text
}

/// Agents that each make hundreds of calls in one turn.
fn wide(root: &Path) -> String {
    std::fs::write(root.join("page.txt"), "a line of forty characters, or nearly so\n".repeat(50))
        .expect("written");
    let mut script = "[[rules]]\nturn = 1\n".to_owned();
    for _ in 0..CALLS {
        script.push_str("[[rules.calls]]\ntool = \"read_file\"\ninput = { path = \"page.txt\" }\n");
    }
    script.push_str("[[rules]]\nsay = \"done\"\n");
    std::fs::write(root.join("script.toml"), script).expect("written");
    let mut text =
        "[agents.a]\nmodel = \"default\"\ninstructions = \"x\"\ntools = [\"read_file\"]\n"
            .to_owned();
    for task in 0..WIDE {
        let _ = write!(text, "[tasks.wide-{task}]\nagent = \"a\"\nprompt = \"read\"\n");
    }
    text
}

/// Returns by how many milliseconds the latest time limit was late.
fn latest(root: &Path) -> u64 {
    let runs = std::fs::read_dir(root.join(".transcripts")).expect("runs");
    let run = runs.map(|run| run.expect("a run").path()).next().expect("a run");
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).expect("a journal");
    let records = journal.lines().filter(|line| line.contains("limited-"));
    let records: Vec<Value> =
        records.map(|line| serde_json::from_str(line).expect("a record")).collect();
    let at = |task: &str, kind: &str| {
        let fits = |record: &&Value| record["task"] == task && record["type"] == kind;
        let record = records.iter().find(fits);
        let record = record.unwrap_or_else(|| panic!("{task} has no {kind}"));
        time_of_day(record["ts"].as_str().expect("a time"))
    };
    let day = 24 * 3_600_000;
    let late = (1..=5).map(|seconds| {
        let task = format!("limited-{seconds}");
        let took = (at(&task, "task.failed") + day - at(&task, "task.started")) % day;
        took.saturating_sub(seconds * 1_000)
    });
    late.max().unwrap_or(0)
}

/// Returns the milliseconds of a day in a time such as `2026-11-18T02:14:05.123Z`.
fn time_of_day(time: &str) -> u64 {
    let time = time.split('T').nth(1).expect("a time").trim_end_matches('Z');
    let parts: Vec<u64> =
        time.split([':', '.']).map(|part| part.parse().expect("a number")).collect();
    ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1_000 + parts[3]
}
