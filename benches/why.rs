//! `cargo bench --bench why`: how long the question "why" takes over a run of 10,000 tasks.
//!
//! The floor is the fold of the run's records, which every verb has made before it asks. Three graphs: a chain, of
//! which the first task is at work; layers of 100, each task after three of the layer before; and tasks that are all
//! ready but for locks and slots. For each: the whole chain of the last task, and the first cause of all tasks, as `ps`
//! asks for them. Ends by itself within a minute; fails if all causes of a graph take longer than 50 ms.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use callsheet_machines::event::{Event, Record};
use callsheet_machines::run_state::RunState;
use callsheet_machines::why::{Subject, Why};
use callsheet_words::id::{AgentId, Name};
use serde_json::{Value, json};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tasks of a run.
const TASKS: usize = 10_000;
/// Tasks of a layer.
const WIDTH: usize = 100;
/// The longest that the causes of all tasks may take.
const MOST: Duration = Duration::from_millis(50);
/// Times that each is measured; the fastest counts.
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    println!(
        "{:<10} {:>12} {:>12} {:>12} {:>8}",
        "graph", "fold", "one chain", "all first", "of fold"
    );
    let mut is_met = true;
    for (shape, before) in [("chain", chain as Shape), ("layers", layers), ("ready", ready)] {
        let records = records(before);
        let (state, fold) = fastest(|| {
            let mut state = RunState::default();
            records.iter().for_each(|record| state.apply(record).expect("legal"));
            state
        });
        let now_ms = state.last_ms() + 1_000;
        let last = Subject::Task(name(TASKS - 1));
        let (length, one) = fastest(|| Why::of(&state, true, now_ms).chain(&last).steps.len());
        assert!(length > 0, "{shape}: the last task waits for something");
        let (found, all) = fastest(|| {
            let why = Why::of(&state, true, now_ms);
            let tasks = state.tasks().map(|(name, _)| Subject::Task(name.clone()));
            tasks.filter(|task| why.first(task).is_some()).count()
        });
        assert_eq!(found, TASKS, "{shape}: every task waits for something");
        is_met &= all.max(one) <= MOST;
        let ratio = all.as_secs_f64() / fold.as_secs_f64();
        println!("{shape:<10} {fold:>12.1?} {one:>12.1?} {all:>12.1?} {ratio:>8.2}");
    }
    println!("target: at most {MOST:?} for all");
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fastest<T>(mut work: impl FnMut() -> T) -> (T, Duration) {
    let rounds = (0..ROUNDS).map(|_| {
        let begun = Instant::now();
        let made = work();
        (made, begun.elapsed())
    });
    rounds.min_by_key(|(_, took)| *took).expect("a round")
}

/// Returns the tasks before the one with this number.
type Shape = fn(usize) -> Vec<usize>;

fn chain(task: usize) -> Vec<usize> {
    task.checked_sub(1).into_iter().collect()
}

fn layers(task: usize) -> Vec<usize> {
    let Some(first) = (task / WIDTH).checked_sub(1) else { return Vec::new() };
    [0, 7, 31].map(|step| first * WIDTH + (task + step) % WIDTH).to_vec()
}

fn ready(_: usize) -> Vec<usize> {
    Vec::new()
}

fn name(task: usize) -> Name {
    Name::new(&format!("t{task}")).expect("a name")
}

/// Returns the records of a run whose first task is at work and whose others that can are ready.
fn records(before: Shape) -> Vec<Record> {
    let tasks: Vec<Value> = (0..TASKS)
        .map(|task| {
            let depends_on: Vec<_> = before(task).into_iter().map(name).collect();
            let locks = if task % 10 == 0 { vec!["disk"] } else { Vec::new() };
            json!({"name": name(task), "depends_on": depends_on, "locks": locks})
        })
        .collect();
    let created = json!({
        "run": "00000000-0000-7000-8000-000000000000", "workflow": "w", "program": "", "config": "",
        "config_hash": "", "inputs": {}, "tasks": tasks,
    });
    let mut story = vec![
        (None, None, "run.created", created),
        (None, None, "run.opened", json!({"epoch": 1, "pid": 812})),
    ];
    for task in (0..TASKS).filter(|task| before(*task).is_empty()) {
        story.push((Some(name(task)), None, "task.ready", json!({})));
    }
    let agent = AgentId::main(&name(0), 1);
    story.push((Some(name(0)), None, "task.started", json!({"attempt": 1, "agent": agent})));
    let program = json!({"model": {"agent": "worker", "prompt": {"text": "x"}}});
    let spawned = json!({"program": program, "depth": 0, "parent": null});
    story.push((Some(name(0)), Some(agent), "agent.spawned", spawned));
    let record = |(at, (task, agent, kind, data)): (usize, (_, _, &str, Value))| {
        let event = Event::decode(kind, &data.to_string()).expect(kind).expect("a known type");
        let seq = at as u64 + 1;
        let ts_ms = i64::try_from(seq).expect("few") * 1_000;
        Record { seq, epoch: 1, ts_ms, task, agent, event }
    };
    story.into_iter().enumerate().map(record).collect()
}
