//! `cargo bench --bench endless [-- TURNS]`: shows if a turn costs more as the conversation grows.
//!
//! One agent makes 10,000 turns with tool calls, so that its conversation grows to some hundred
//! times its model's window. The provider, a process of its own, checks every request against the
//! window. A figure is the processor time of the agent's process for each turn, over a span of
//! turns. Ends by itself within 90 seconds.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

#[expect(dead_code, reason = "the other benchmark needs more of it")]
#[path = "turns/measure.rs"]
mod measure;
#[path = "turns/provider.rs"]
mod provider;
#[expect(dead_code, reason = "the benchmark needs a part of what the tests need")]
#[path = "../tests/support/loopback.rs"]
mod support;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use self::support::endless::{Endless, Look, Subject, WINDOW, launch, verdict};

/// Turns of the agent, unless the command line names a number.
const TURNS: usize = 10_000;
/// Turns of one figure; the first span is around turn 100.
const SPAN: usize = 100;
/// Most that a turn may cost at the end, as a multiple of its cost around turn 100.
const TARGET: f64 = 2.0;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &&str| text.parse::<usize>().ok();
    match arguments.as_slice() {
        ["provider", turns] => {
            provider::serve(Endless::new(turns.parse().expect("a number of turns")));
        }
        ["agent", preset, turns, url] => run(preset, turns.parse().expect("turns"), url),
        others => compare(others.iter().find_map(number).unwrap_or(TURNS).max(3 * SPAN)),
    }
}

/// Returns the spans that are shown: around turn 100, after it, in the middle, and at the end.
fn spans(turns: usize) -> [usize; 4] {
    [SPAN / 2, (turns / 10).max(SPAN), turns / 2, turns - SPAN]
}

fn compare(turns: usize) {
    println!("{turns} turns in a window of {WINDOW} tokens\n");
    let starts = spans(turns).map(|start| format!("{}-{}", start, start + SPAN));
    let [first, second, third, last] = &starts;
    println!("CPU a turn, us {first:>12} {second:>12} {third:>12} {last:>12}    ratio");
    // At the same time, because most of the time is spent on waiting for the disk.
    std::thread::scope(|scope| {
        for subject in Subject::ALL {
            scope.spawn(move || show(subject, turns));
        }
    });
}

/// Measures one preset and prints its row.
fn show(Subject { preset, .. }: Subject, turns: usize) {
    let began = Instant::now();
    let turns = turns.to_string();
    let provider = provider::Provider::start(&["provider", &turns]);
    let figures = measure::figures(&["agent", preset, &turns, provider.url()]);
    let [first, second, third, last, early_kb, late_kb, largest, requests] = figures[..] else {
        panic!("eight figures, not {figures:?}")
    };
    let ratio = last / first;
    let reached = if ratio <= TARGET { "reached" } else { "not reached" };
    println!(
        "{preset:14} {first:12.0} {second:12.0} {third:12.0} {last:12.0} {ratio:8.2}\n\
         {:14} target {TARGET}: {reached}; the largest of {requests} requests has {largest} \
         tokens with its reply; memory {:.1} MB, at the end {:.1} MB; took {:.0} s",
        "",
        early_kb / 1e3,
        late_kb / 1e3,
        began.elapsed().as_secs_f64()
    );
}

/// The process of the agent: does the turns and prints their cost.
fn run(preset: &str, turns: usize, url: &str) {
    let subject = Subject::ALL.into_iter().find(|subject| subject.preset == preset);
    let subject = subject.expect("a preset");
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let spent: Arc<Mutex<Vec<f64>>> = Arc::default();
    let early_kb: Arc<Mutex<f64>> = Arc::default();
    let look = {
        let (spent, early_kb) = (Arc::clone(&spent), Arc::clone(&early_kb));
        Look::new(move |turn| {
            spent.lock().push(measure::own_cpu_us());
            if turn == SPAN {
                *early_kb.lock() = measure::own_memory_kb();
            }
        })
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let end = runtime.block_on(async {
        let run = launch(subject, turns, url, root.path()).tool(look).start().await;
        run.unwrap_or_else(|error| panic!("{error}")).wait().await
    });
    let [largest, requests] = verdict(end.output("look").expect("it is short").as_deref());
    let (spent, early_kb) = (spent.lock(), early_kb.lock());
    assert_eq!(spent.len(), turns);
    for start in spans(turns) {
        let end = (start + SPAN).min(turns - 1);
        println!("{}", (spent[end] - spent[start]) / (end - start) as f64);
    }
    println!("{early_kb} {} {largest} {requests}", measure::own_memory_kb());
}
