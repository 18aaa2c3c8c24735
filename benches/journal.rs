//! `cargo bench --bench journal [-- CALLERS...]`: the cost of waiting for the disk.
//!
//! First it measures the durable events per second, as a ratio to a bare group-commit loop that
//! encodes and writes lines of the same length on the same disk in the same round. Then it measures
//! the share of a turn's time for which agents wait for the disk, with the appends of a turn in
//! their order around a short model call and a short tool call. With numbers of callers it measures
//! only the first, for these numbers. Ends by itself within two minutes.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

#[path = "turns/group.rs"]
mod group;
#[path = "turns/spread.rs"]
mod spread;
#[path = "durable/turn.rs"]
mod turn;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callsheet::event::Draft;
use callsheet::id::{AgentId, Name, RunId};
use callsheet::journal::line::Position;
use callsheet::journal::local::run_at;
use callsheet::journal::projection::Projection;
use callsheet::journal::{JournalHandle, Observer};
use callsheet::message::Json;
use callsheet::turn::TurnStarted;
use futures_util::future::join_all;
use serde_json::json;
use tokio::task::JoinSet;

use self::group::Journal;
use self::spread::Spread;
use self::turn::turn_of;

/// The allocator of the program, for the bare loop too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Numbers of callers that append at the same time, each one event after the other.
const CALLERS: [usize; 4] = [1, 8, 64, 256];
/// Length of each measurement: short, so that other work of the machine affects all measurements
/// alike.
const SPAN: Duration = Duration::from_millis(50);
/// Number of rounds; each round measures everything once.
const ROUNDS: usize = 75;
/// The goal: events per second, as a ratio to those of the bare loop.
const TARGET: f64 = 0.8;
/// Approximate length of a line in bytes: that of most events.
const LINE: usize = 500;

/// The text in each line.
const TEXT: &str = match std::str::from_utf8(&[b'x'; LINE]) {
    Ok(text) => text,
    Err(_) => "",
};

/// Numbers of agents at work at the same time.
const AGENTS: [usize; 3] = [1, 20, 200];
/// Turns of each agent.
const TURNS: u32 = 6;
/// Time of a model call, give or take a half: a short one.
const MODEL: Duration = Duration::from_secs(1);
/// Time of a tool call: a short one.
const TOOL: Duration = Duration::from_millis(100);
/// Bytes of a reply and of a tool's result.
const PAYLOAD: usize = 2_000;

fn main() {
    let began = Instant::now();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let ground = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let callers: Vec<usize> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    runtime.block_on(async {
        if callers.is_empty() {
            rates(&CALLERS, ground.path()).await;
            shares(ground.path()).await;
        } else {
            rates(&callers, ground.path()).await;
        }
    });
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
}

/// The journal that appends are made to.
#[derive(Clone)]
enum Subject {
    Bare(Arc<Journal>),
    Ours(JournalHandle),
}

impl Subject {
    /// Makes one event durable.
    async fn append(&self, caller: usize, (task, id): &(Name, AgentId)) {
        match self {
            Self::Bare(journal) => {
                let line = serde_json::to_vec(&json!({ "agent": caller, "text": TEXT }));
                journal.append(line.expect("JSON")).await;
            }
            Self::Ours(journal) => {
                journal.append(vec![event_of(task, id)]).await.expect("a good disk");
            }
        }
    }
}

async fn rates(counts: &[usize], ground: &Path) {
    println!("durable events of {LINE} bytes a second, medians of {ROUNDS} rounds (least-most)\n");
    println!("callers {:>22} {:>22} {:>18} {:>18}", "bare", "journal", "ratio", "+ transcripts");
    for &callers in counts {
        let place = tempfile::tempdir_in(ground).expect("a directory");
        let (bare, writer) = Journal::start(&place.path().join("bare"));
        let bare = Subject::Bare(Arc::new(bare));
        let alone = open(&place.path().join("alone"), Vec::new());
        let whole = open_whole(&place.path().join("whole"));
        let names: Arc<[_]> = (0..callers).map(names).collect();
        let subjects = [bare, Subject::Ours(alone.clone()), Subject::Ours(whole.clone())];
        for subject in &subjects {
            // Creating the agents' files is not measured: all of them exist before the second
            // appends begin.
            for _ in 0..2 {
                join_all((0..callers).map(|caller| subject.append(caller, &names[caller]))).await;
            }
        }
        let mut figures = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for (subject, figures) in subjects.iter().zip(&mut figures) {
                figures.push(rate(subject, &names).await);
            }
        }
        drop(subjects);
        writer.join().expect("the writer does not panic");
        alone.close().await;
        whole.close().await;
        show(callers, &figures);
    }
}

fn show(callers: usize, [bare, alone, whole]: &[Vec<f64>; 3]) {
    let to_bare = |own: &[f64]| Spread::of(own.iter().zip(bare).map(|(own, bare)| own / bare));
    let (ratio, with) = (to_bare(alone), to_bare(whole));
    let reached = if ratio.median >= TARGET { "reached" } else { "not reached" };
    let of = |figures: &[f64]| Spread::of(figures.iter().copied()).to_string();
    let (bare, alone) = (of(bare), of(alone));
    let (ratio, with) = (ratio.to_string(), with.to_string());
    println!(
        "{callers:7} {bare:>22} {alone:>22} {ratio:>18} {with:>18}   target {TARGET}: {reached}"
    );
}

/// Returns the events per second that become durable when so many callers append, each one event
/// after the other.
async fn rate(subject: &Subject, names: &Arc<[(Name, AgentId)]>) -> f64 {
    let mut running = JoinSet::new();
    let began = Instant::now();
    for caller in 0..names.len() {
        let (subject, names) = (subject.clone(), names.clone());
        running.spawn(async move {
            let mut done = 0u64;
            while began.elapsed() < SPAN {
                subject.append(caller, &names[caller]).await;
                done += 1;
            }
            done
        });
    }
    let done: u64 = running.join_all().await.into_iter().sum();
    done as f64 / began.elapsed().as_secs_f64()
}

fn open(place: &Path, observers: Vec<Box<dyn Observer>>) -> JournalHandle {
    let run = run_at(place);
    let owned = run.drivable().expect("it is here").create().expect("a run directory");
    owned.start_writer(Position::START, observers).expect("a writer")
}

/// Opens a journal with the agents' transcripts and logs, which the same thread writes.
fn open_whole(place: &Path) -> JournalHandle {
    let run = run_at(place);
    let files = run.drivable().expect("it is here").agent_files();
    let projection = Projection::new(run, files, callsheet::show::log_line::log_text);
    open(place, vec![Box::new(projection)])
}

fn names(agent: usize) -> (Name, AgentId) {
    (Name::new("bench").expect("a name"), AgentId::from_text(&format!("bench[{agent}]")))
}

/// Makes an event whose line has about the length `LINE`.
fn event_of(task: &Name, id: &AgentId) -> Draft {
    // The envelope and the names take the rest of the line.
    let message = Json::encode(&json!({ "role": "user", "content": &TEXT[260..] }));
    Draft::agent(task, id, TurnStarted::new(1, Some(message)))
}

async fn shares(ground: &Path) {
    println!(
        "\nthe share of a turn's time that is spent on waiting for the disk; model calls of about \
         {} ms, tools of {} ms\n",
        MODEL.as_millis(),
        TOOL.as_millis()
    );
    println!("agents     share   a wait, ms: median      99 %   turns/s");
    for agents in AGENTS {
        let place = tempfile::tempdir_in(ground).expect("a directory");
        let journal = open_whole(&place.path().join("run"));
        let began = Instant::now();
        let mut running = JoinSet::new();
        for agent in 0..agents {
            let journal = journal.clone();
            running.spawn(async move { turns(&journal, agent).await });
        }
        let mut waits: Vec<f64> = running.join_all().await.into_iter().flatten().collect();
        let wall = began.elapsed().as_secs_f64();
        journal.close().await;
        let turns = f64::from(TURNS) * agents as f64;
        let waited: f64 = waits.iter().sum();
        // An agent does nothing except its turns.
        let busy = waited + turns * (MODEL + TOOL).as_secs_f64();
        waits.sort_by(f64::total_cmp);
        let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize] * 1e3;
        println!(
            "{agents:6} {:8.2} % {:18.1} {:9.1} {:9.0}",
            100.0 * waited / busy,
            at(0.5),
            at(0.99),
            turns / wall
        );
    }
}

/// Does an agent's turns. Returns the time for which each append was waited for, in seconds.
async fn turns(journal: &JournalHandle, agent: usize) -> Vec<f64> {
    let (run, mut waits) = (RunId::from(uuid::Uuid::now_v7()), Vec::new());
    let (task, id) = names(agent);
    let text = "x".repeat(PAYLOAD);
    for turn in 1..=TURNS {
        let events = turn_of(run, &id, turn, &text, &text);
        let [before, reply, result] = events.map(|events| {
            events.into_iter().map(|event| Draft::agent(&task, &id, event)).collect()
        });
        for (drafts, then) in [
            (before, MODEL.mul_f64(0.5 + fastrand::f64())),
            (reply, TOOL),
            (result, Duration::ZERO),
        ] {
            let began = Instant::now();
            journal.append(drafts).await.expect("a good disk");
            waits.push(began.elapsed().as_secs_f64());
            tokio::time::sleep(then).await;
        }
    }
    waits
}
