//! `cargo bench --bench turns`: the processor time of one agent turn, as a ratio to a plain loop.
//!
//! The floor is a plain loop without actors: it makes the same streamed model calls over the same
//! bytes and reads the same files, once bare and once with a group-commit journal of its own. Every
//! measurement runs in a process of its own, and the provider in another. A figure is the slope
//! between two numbers of agents, so the cost of starting up cancels out. Ends by itself within two
//! minutes.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

#[path = "turns/floor.rs"]
mod floor;
#[path = "turns/group.rs"]
mod group;
#[path = "turns/idle.rs"]
mod idle;
#[expect(dead_code, reason = "the benchmark needs a part of what another needs")]
#[path = "turns/measure.rs"]
mod measure;
#[path = "turns/ours.rs"]
mod ours;
#[path = "turns/provider.rs"]
mod provider;
#[path = "turns/spread.rs"]
mod spread;
#[expect(dead_code, reason = "the benchmark needs a part of what the tests need")]
#[path = "../tests/support/loopback.rs"]
mod support;
#[path = "turns/work.rs"]
mod work;

use std::time::{Duration, Instant};

use self::measure::Cost;
use self::spread::Spread;
use self::work::{Subject, TURNS};

/// The two numbers of agents between which the slope is taken.
const AGENTS: [usize; 2] = [100, 200];
/// Number of rounds, unless time runs out; each round measures everything once.
const ROUNDS: usize = 7;
/// No round begins later than this after the start.
const LAST_START: Duration = Duration::from_secs(75);
/// The two numbers of idle agents between which the memory of one agent is taken.
const IDLE: [usize; 2] = [1_000, 4_000];
/// The goals: the program's processor time as a ratio to that of the durable floor, and to that of
/// the bare floor.
const TARGETS: [(Subject, f64); 2] = [(Subject::Durable, 1.25), (Subject::Bare, 2.0)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["provider"] => work::provide(),
        ["turns", subject, agents, url, ground] => work::run(subject, agents, url, ground),
        ["idle", agents, ground] => idle::run(agents, ground),
        _ => compare(),
    }
}

fn compare() {
    let began = Instant::now();
    let provider = provider::Provider::start(&["provider"]);
    let ground = work::ground();
    let mut costs: Vec<[Cost; 2]> = Vec::new();
    println!("{TURNS} tool turns of 2 kB an agent, {} and {} agents", AGENTS[0], AGENTS[1]);
    while costs.len() < ROUNDS * Subject::ALL.len() && began.elapsed() < LAST_START {
        for subject in Subject::ALL {
            let turns = |agents| work::turns(subject, agents, provider.url(), ground.path());
            costs.push(AGENTS.map(turns));
        }
    }
    let slope = |[small, large]: &[Cost; 2]| {
        (large.cpu_us - small.cpu_us) / ((AGENTS[1] - AGENTS[0]) as f64 * TURNS as f64)
    };
    let of = |subject: Subject| {
        costs.iter().skip(subject as usize).step_by(Subject::ALL.len()).map(slope)
    };
    println!(
        "\n{:10} {:>24} {:>9} {:>9} {:>8}",
        "", "CPU a turn, us", "wall, s", "turns/s", "syncs/s"
    );
    for subject in Subject::ALL {
        let large = costs.iter().skip(subject as usize).step_by(Subject::ALL.len());
        let large: Vec<&Cost> = large.map(|[_, large]| large).collect();
        let wall = Spread::of(large.iter().map(|cost| cost.wall_us / 1e6)).median;
        let syncs = Spread::of(large.iter().map(|cost| cost.syncs)).median;
        let rate = (AGENTS[1] * TURNS) as f64 / wall;
        let cpu = Spread::of(of(subject)).to_string();
        let name = subject.name();
        println!("{name:10} {cpu:>24} {wall:9.2} {rate:9.0} {:8.0}", syncs / wall);
    }
    println!();
    for own in [Subject::Library, Subject::Program] {
        for (floor, target) in TARGETS {
            let ratio = Spread::of(of(own).zip(of(floor)).map(|(own, floor)| own / floor));
            let (own, floor) = (own.name(), floor.name());
            let reached = if ratio.median <= target { "reached" } else { "not reached" };
            println!("{own:8} / {floor:8} {ratio}   target {target}: {reached}");
        }
    }
    let rounds = costs.len() / Subject::ALL.len();
    println!("\nmedians of {rounds} rounds, in brackets the least and the most");
    let [small, large] = IDLE.map(|agents| measure::idle_kb(agents, ground.path()));
    let each = (large - small) / (IDLE[1] - IDLE[0]) as f64;
    println!("memory of an idle agent: {each:.1} kB (between {} and {})", IDLE[0], IDLE[1]);
    println!("took {:.0} s", began.elapsed().as_secs_f64());
}
