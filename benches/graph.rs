//! `cargo bench --bench graph`: the processor time of a task of one turn, as a ratio to a plain loop.
//!
//! The same graph of scripted agents is run by callsheet, as a program, and by the floor: tokio tasks, a
//! semaphore for the slots, and a journal that commits in groups, in which stand the same records. Every measurement is a process of its own. First 10,000 independent tasks in 256
//! slots; then both on other shapes and sizes, to show that a task costs the same in each. What is
//! compared is user time. System time is shown beside it: for some minutes after files were deleted
//! ext4 searches through them for each file that is made, callsheet makes two for each agent, and the
//! floor none. Ends by itself within five minutes; fails when a limit is missed.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

#[path = "graph/floor.rs"]
mod floor;
#[path = "turns/group.rs"]
mod group;
#[expect(dead_code, reason = "the benchmark needs a part of what another needs")]
#[path = "turns/measure.rs"]
mod measure;
#[path = "graph/ours.rs"]
mod ours;
#[path = "turns/spread.rs"]
mod spread;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use self::spread::Spread;

/// Tasks of the graph that is compared.
const TASKS: usize = 10_000;
/// Agents at work at once.
const SLOTS: usize = 256;
/// How often everything is measured, in turn, unless time runs out.
const ROUNDS: usize = 9;
/// No round begins after this.
const LAST_START: Duration = Duration::from_secs(45);
/// The most user time of callsheet, as a ratio to that of the floor.
const MOST: f64 = 6.0;
/// The most that a task of the largest graph may cost, as a ratio to a task of the smallest: work in
/// the square of the number of tasks would make it 30.
const MOST_GROWTH: f64 = 2.0;

/// The dependencies of the task with this number, in a graph of so many.
type Shape = fn(usize, usize) -> Vec<usize>;

/// The shapes by name.
const SHAPES: [(&str, Shape); 5] = [
    ("independent", |_, _| Vec::new()),
    ("chain", |task, _| task.checked_sub(1).into_iter().collect()),
    ("fan-in", |task, count| if task + 1 == count { (0..task).collect() } else { Vec::new() }),
    ("fan-out", |task, _| if task > 0 { vec![0] } else { Vec::new() }),
    ("layers", |task, _| match task / 100 {
        0 => Vec::new(),
        layer => (0..3).map(|n| (layer - 1) * 100 + (task * 7 + n * 31) % 100).collect(),
    }),
];

/// The graphs that show whether a task costs the same in each: the shape and the number of tasks.
const SIZES: [(usize, usize); 8] = [
    (0, 1_000),
    (1, 3_000),
    (2, 3_000),
    (3, 3_000),
    (4, 3_000),
    (0, 3_000),
    (0, 10_000),
    (0, 30_000),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["graph", subject, shape, tasks, ground] => {
            run(subject, shape, tasks, Path::new(ground));
            ExitCode::SUCCESS
        }
        _ => compare(),
    }
}

/// The role of a subject: does the work, and prints its user time, its processor time and the wall
/// time, in microseconds.
fn run(subject: &str, shape: &str, tasks: &str, ground: &Path) {
    let tasks: usize = tasks.parse().expect("a number of tasks");
    let (_, shape) = SHAPES.iter().find(|(name, _)| *name == shape).expect("a shape");
    let directory = ground.join(std::process::id().to_string());
    std::fs::create_dir_all(&directory).expect("a directory");
    let needs: Vec<Vec<usize>> = (0..tasks).map(|task| shape(task, tasks)).collect();
    let began = Instant::now();
    match subject {
        "floor" => floor::run(&needs, &directory.join("journal.jsonl")),
        _ => ours::run(&needs, &directory),
    }
    let wall_us = began.elapsed().as_secs_f64() * 1e6;
    let cpu_us = measure::own_cpu_us() + measure::children_cpu_us();
    println!("{} {cpu_us} {wall_us}", measure::user_us());
}

/// Figures of one measurement, in microseconds a task.
struct Figures {
    user: f64,
    cpu: f64,
    wall: f64,
}

fn figures(subject: &str, shape: usize, tasks: usize, ground: &Path) -> Figures {
    let ground = ground.to_str().expect("a path of our own");
    let arguments = ["graph", subject, SHAPES[shape].0, &tasks.to_string(), ground];
    let figures: Vec<f64> =
        measure::figures(&arguments).into_iter().map(|figure| figure / tasks as f64).collect();
    match figures[..] {
        [user, cpu, wall] => Figures { user, cpu, wall },
        ref other => panic!("three figures, not {other:?}"),
    }
}

fn compare() -> ExitCode {
    // On the disk that holds the build: a temporary directory may be in memory, where a sync costs
    // nothing.
    let ground = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let began = Instant::now();
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS && began.elapsed() < LAST_START {
        rounds.push(["floor", "callsheet"].map(|who| figures(who, 0, TASKS, ground.path())));
    }
    println!("{TASKS} independent tasks of one turn, {SLOTS} at once, {} rounds", rounds.len());
    println!("microseconds a task {:>12} {:>18} {:>18}", "user", "user + system", "wall");
    for (at, who) in ["floor", "callsheet"].into_iter().enumerate() {
        let of = |figure: fn(&Figures) -> f64| {
            Spread::of(rounds.iter().map(|pair| figure(&pair[at]))).to_string()
        };
        let [user, cpu, wall] = [of(|f| f.user), of(|f| f.cpu), of(|f| f.wall)];
        println!("{who:15} {user:>16} {cpu:>18} {wall:>18}");
    }
    let ratio = Spread::of(rounds.iter().map(|[floor, ours]| ours.user / floor.user));
    println!("user time of callsheet to that of the floor: {ratio}, at most {MOST}\n");
    let growth = shapes(ground.path());
    if ratio.median <= MOST && growth <= MOST_GROWTH {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Measures all shapes and sizes. Gives the ratio of a task in the largest graph of independent tasks
/// to one in the smallest.
fn shapes(ground: &Path) -> f64 {
    println!(
        "{:<12} {:>8} {:>14} {:>18} {:>8}",
        "user time", "tasks", "floor, us", "callsheet, us", "ratio"
    );
    let mut independent = Vec::new();
    for (shape, tasks) in SIZES {
        // The quickest of three: what else this machine does only adds.
        let [floor, ours] = ["floor", "callsheet"].map(|who| {
            let users = (0..3).map(|_| figures(who, shape, tasks, ground).user);
            users.fold(f64::INFINITY, f64::min)
        });
        if shape == 0 {
            independent.push(ours);
        }
        let name = SHAPES[shape].0;
        println!("{name:<12} {tasks:>8} {floor:>14.0} {ours:>18.0} {:>8.2}", ours / floor);
    }
    let growth = independent[independent.len() - 1] / independent[0];
    println!(
        "a task in the largest graph to one in the smallest: {growth:.2}, at most {MOST_GROWTH}"
    );
    growth
}
