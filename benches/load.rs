//! `cargo bench --bench load`: the cost of loading a configuration, by its size and shape.
//!
//! Loads configurations of 3,000 and of 30,000 tasks and checks their plans, as `check` and `run`
//! do: independent tasks, a chain, a task that depends on all others, and tasks that all depend on
//! one. Prints the time for each task and the ratio of the two sizes. Fails if ten times as many
//! tasks cost more than 25 times as much; work that grows with the square of their number would
//! cost 100 times as much. Ends by itself within a minute.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use callsheet::config::{self, Sources};
use callsheet::id::Name;
use callsheet::plan::Plan;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tasks of the small configurations; the large ones have ten times as many.
const TASKS: usize = 3_000;
/// Number of times that each configuration is loaded; the fastest counts.
const ROUNDS: usize = 7;
/// Most that ten times as many tasks may cost, as a multiple.
const MOST: f64 = 25.0;

/// Returns the tasks on which a task depends, given its number and the count of tasks.
type Shape = fn(usize, usize) -> Vec<usize>;

const SHAPES: [(&str, Shape); 4] = [
    ("independent", |_, _| Vec::new()),
    ("chain", |task, _| task.checked_sub(1).into_iter().collect()),
    ("fan-in", |task, count| if task + 1 == count { (0..task).collect() } else { Vec::new() }),
    ("fan-out", |task, _| if task > 0 { vec![0] } else { Vec::new() }),
];

fn main() -> ExitCode {
    println!("{:<12} {:>9} {:>14} {:>8}", "shape", "tasks", "us each", "ratio");
    let mut worst = 0.0_f64;
    for (name, shape) in SHAPES {
        let texts = [TASKS, 10 * TASKS].map(|count| (count, text(shape, count)));
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for ((_, text), best) in texts.iter().zip(&mut best) {
                *best = (*best).min(load(text));
            }
        }
        let ratio = best[1].as_secs_f64() / best[0].as_secs_f64();
        for ((count, _), best) in texts.iter().zip(best) {
            let each = best.as_secs_f64() * 1e6 / *count as f64;
            println!("{name:<12} {count:>9} {each:>14.2} {ratio:>8.1}");
        }
        worst = worst.max(ratio);
    }
    let verdict = if worst <= MOST { "ok" } else { "too much" };
    println!("ten times as many tasks cost at most {worst:.1} times as much: {verdict}");
    if worst <= MOST { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes a configuration of so many tasks of agents, whose prompts name the tasks that they depend
/// on.
fn text(shape: Shape, count: usize) -> String {
    let mut text = "version = 1\n[agents.a]\nmodel = 'own'\n".to_owned();
    for task in 0..count {
        let needs = shape(task, count);
        let names: String = needs.iter().map(|need| format!("'t{need}',")).collect();
        let outputs: String =
            needs.iter().map(|n| format!("{{{{ tasks.t{n}.output }}}} ")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "[tasks.t{task}]\nagent = 'a'\nprompt = 'Work. {outputs}'\ndepends_on = [{names}]"
        );
    }
    text
}

fn load(text: &str) -> Duration {
    let mut sources = Sources::new("agents.toml");
    sources.custom_models = Name::new("own").into_iter().collect();
    let start = Instant::now();
    let config = config::load_text(text, &sources).expect("no mistakes");
    let plan = Plan::new(config.tasks).expect("a plan");
    let took = start.elapsed();
    drop(plan);
    took
}
