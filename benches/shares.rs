//! `cargo bench --bench shares`: how long graphs take beside the shortest time that they could, and what a
//! chain of tasks costs beside as many that are independent.
//!
//! Every measurement runs the program on its own, with the scripted model, whose replies take the time that a
//! rule says. It prints the target and the result of each:
//!
//! - a fan-out over 600 items beside a chain of 20 tasks, in 8 slots, whichever stands first in the file. The
//!   lower bound is the longer of the chain and of all work divided by the slots;
//! - random graphs of 300 tasks with slots for all of them. The lower bound is the critical path;
//! - a chain of 2,000 tasks of one turn, as a ratio to 2,000 independent ones: user and system time.
//!
//! Ends by itself within three minutes; fails when a target is missed.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

#[expect(dead_code, reason = "the benchmark needs a part of what another needs")]
#[path = "turns/measure.rs"]
mod measure;

/// Items of the fan-out, the time of each, tasks of the chain, the time of each, and the slots.
const ITEMS: u64 = 600;
const ITEM_MS: u64 = 200;
const CHAIN: u64 = 20;
const LINK_MS: u64 = 600;
const SLOTS: u64 = 8;
/// The most that this may take over its lower bound.
const MOST_OVER_BOUND: f64 = 0.10;

/// Tasks of a random graph, the number of such graphs, and the range of the time of a task.
const TASKS: usize = 300;
const GRAPHS: u64 = 3;
const TASK_MS: std::ops::Range<u64> = 200..1_800;
/// The most that one may take over its critical path.
const MOST_OVER_PATH: f64 = 0.02;

/// Tasks of the chain that is compared with independent tasks, and how often.
const LINKS: usize = 2_000;
const ROUNDS: usize = 3;
/// The most processor time of the chain, as a ratio to that of independent tasks.
const MOST_OF_CHAIN: f64 = 1.5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, ground, count] = &arguments[..]
        && let Some(shape) = role.strip_prefix("cost-")
    {
        let graph = links(count.parse().expect("a number"), shape == "chain");
        run(Path::new(ground), &graph);
        println!("{}", measure::children_cpu_us());
        return ExitCode::SUCCESS;
    }
    // On the disk that holds the build: a temporary directory may be in memory, where a sync costs nothing.
    let ground = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    println!("{:<52} {:>10} {:>22} verdict", "", "target", "result");
    let is_met =
        [fan_out_and_chain(ground.path()), random_graphs(ground.path()), cost(ground.path())];
    if is_met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a line of the table, and returns whether the target is met.
fn told(what: &str, target: &str, result: &str, is_met: bool) -> bool {
    let verdict = if is_met { "met" } else { "missed" };
    println!("{what:<52} {target:>10} {result:>22} {verdict}");
    is_met
}

/// Runs a graph in a directory of its own and returns the time of its tasks, from the first that is ready to
/// the end of the run.
fn run(ground: &Path, graph: &Graph) -> Duration {
    let root = tempfile::tempdir_in(ground).expect("a directory");
    std::fs::write(root.path().join("agents.toml"), &graph.agents).expect("a file");
    std::fs::write(root.path().join("script.toml"), &graph.script).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
    command.args(["run", "--json"]).current_dir(root.path()).env_clear();
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let output = command.output().expect("the program starts");
    let took = began.elapsed();
    assert!(output.status.success(), "{}", output.status);
    let times: Vec<u64> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?["ts_ms"].as_u64())
        .collect();
    match (times.first(), times.last()) {
        (Some(first), Some(last)) => Duration::from_millis(last - first),
        _ => took,
    }
}

/// A graph, as the files of a run.
struct Graph {
    agents: String,
    script: String,
}

impl Graph {
    fn new(slots: u64) -> Self {
        let agents = format!(
            r#"
version = 1

[limits]
max_concurrency = {slots}

[providers.offline]
kind = "scripted"
script = "script.toml"
rate_limit = {{ max_concurrency = {slots} }}

[models.default]
provider = "offline"
model = "script"
context_window = 200_000

[agents.worker]
instructions = "Do your part."
"#
        );
        Self { agents, script: String::new() }
    }

    /// Adds a task whose prompt is the time that its model takes.
    fn add(&mut self, name: &str, ms: u64, after: &[String], more: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.agents,
            "[tasks.{name}]\nagent = 'worker'\nprompt = 'takes {ms} ms'\ndepends_on = {after:?}\n{more}"
        );
    }

    fn takes(&mut self, times: impl IntoIterator<Item = u64>) {
        for ms in times {
            let rule = format!("[[rules]]\nwhen = \"prompt == 'takes {ms} ms'\"");
            let _ = writeln!(self.script, "{rule}\ndelay_ms = {ms}\nsay = 'done'");
        }
    }
}

fn fan_out_and_chain(ground: &Path) -> bool {
    let bound = (CHAIN * LINK_MS).max((ITEMS * ITEM_MS + CHAIN * LINK_MS) / SLOTS);
    let mut worst = 0.0_f64;
    for begins_first in [true, false] {
        let mut graph = Graph::new(SLOTS);
        graph.takes([ITEM_MS, LINK_MS]);
        let foreach = format!("foreach = 'range({ITEMS}) | list'");
        if begins_first {
            graph.add("each", ITEM_MS, &[], &foreach);
        }
        for link in 0..CHAIN {
            let after: Vec<_> =
                link.checked_sub(1).map(|before| format!("c{before}")).into_iter().collect();
            graph.add(&format!("c{link}"), LINK_MS, &after, "");
        }
        if !begins_first {
            graph.add("each", ITEM_MS, &[], &foreach);
        }
        worst = worst.max(over(run(ground, &graph), bound));
    }
    let what = format!("{ITEMS} items beside a chain of {CHAIN}, {SLOTS} slots, over bound");
    told(&what, "10 %", &format!("{:.1} % of {bound} ms", worst * 100.0), worst <= MOST_OVER_BOUND)
}

/// Returns by how much a time is over a bound in milliseconds, as a part of the bound.
fn over(took: Duration, bound: u64) -> f64 {
    took.as_secs_f64() * 1e3 / bound as f64 - 1.0
}

fn random_graphs(ground: &Path) -> bool {
    let mut worst = (0.0_f64, 0);
    for seed in 0..GRAPHS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut graph = Graph::new(TASKS as u64);
        let (mut times, mut ends) = (Vec::new(), Vec::<u64>::new());
        for task in 0..TASKS {
            let ms = rng.u64(TASK_MS);
            let before: Vec<usize> =
                (0..rng.usize(..4).min(task)).map(|_| rng.usize(..task)).collect();
            let start = before.iter().map(|before| ends[*before]).max().unwrap_or(0);
            ends.push(start + ms);
            let after: Vec<_> = before.iter().map(|before| format!("t{before}")).collect();
            graph.add(&format!("t{task}"), ms, &after, "");
            times.push(ms);
        }
        times.sort_unstable();
        times.dedup();
        graph.takes(times);
        let path = *ends.iter().max().expect("tasks");
        let over = over(run(ground, &graph), path);
        if over > worst.0 {
            worst = (over, path);
        }
    }
    let what = format!("random graphs of {TASKS} tasks, over the critical path");
    let result = format!("{:.1} % of {} ms", worst.0 * 100.0, worst.1);
    told(&what, "2 %", &result, worst.0 <= MOST_OVER_PATH)
}

/// A chain of tasks of one turn, or as many independent ones.
fn links(count: usize, is_chain: bool) -> Graph {
    let mut graph = Graph::new(256);
    graph.script.push_str("[[rules]]\nsay = 'done'\n");
    for task in 0..count {
        let before = task.checked_sub(1).filter(|_| is_chain);
        let after: Vec<_> = before.map(|before| format!("t{before}")).into_iter().collect();
        graph.add(&format!("t{task}"), 0, &after, "");
    }
    graph
}

fn cost(ground: &Path) -> bool {
    let ground = ground.to_str().expect("a path of our own");
    let cost = |role: &str| {
        let costs = (0..ROUNDS).map(|_| measure::figures(&[role, ground, &LINKS.to_string()])[0]);
        // What else this machine does only adds.
        costs.fold(f64::INFINITY, f64::min) / LINKS as f64
    };
    let (flat, chain) = (cost("cost-flat"), cost("cost-chain"));
    let result = format!("{:.2} ({chain:.0} / {flat:.0} us)", chain / flat);
    told(
        "a task of a chain to an independent one, CPU",
        "1.5",
        &result,
        chain / flat <= MOST_OF_CHAIN,
    )
}
