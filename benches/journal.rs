//! `cargo bench --bench journal`: what it costs to wait for the disk.
//!
//! First the durable events per second, as a ratio to a bare group-commit loop that encodes and
//! writes lines of the same length on the same disk in the same round. Then the share of a turn's time that agents
//! wait for the disk, with the appends of a turn in their order around a model call and a tool that
//! take as long as short ones do. Ends by itself within two minutes.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

#[path = "turns/group.rs"]
mod group;
#[path = "turns/spread.rs"]
mod spread;

use std::path::Path;
use std::time::{Duration, Instant};

use callsheet::event::{Draft, Event};
use callsheet::id::{AgentId, CallKey, Name, RunId};
use callsheet::journal::file::RunDir;
use callsheet::journal::line::Position;
use callsheet::journal::projection::Projection;
use callsheet::journal::{JournalHandle, Observer};
use callsheet::message::{Json, StopReason, Usage};
use callsheet::turn::{
    Effect, ModelRequested, ModelResponded, ResultSource, ToolFinished, ToolIntended, ToolStatus,
    TurnStarted,
};
use serde_json::json;
use tokio::task::JoinSet;

use self::group::Journal;
use self::spread::Spread;

/// Callers that append at the same time, each one event after the other.
const CALLERS: [usize; 4] = [1, 8, 64, 256];
/// How long each measurement lasts.
const SPAN: Duration = Duration::from_millis(250);
/// How often everything is measured, in turn.
const ROUNDS: usize = 15;
/// The events per second to those of the bare loop that are worth reaching.
const TARGET: f64 = 0.8;
/// The length of a line, about: that of most events.
const LINE: usize = 500;

/// What they hold.
const TEXT: &str = match std::str::from_utf8(&[b'x'; LINE]) {
    Ok(text) => text,
    Err(_) => "",
};

/// Agents at work at the same time.
const AGENTS: [usize; 3] = [1, 20, 200];
/// The turns of each.
const TURNS: u32 = 6;
/// How long a model call takes, give or take a half: a short one.
const MODEL: Duration = Duration::from_secs(1);
/// How long a tool takes: a short one.
const TOOL: Duration = Duration::from_millis(100);
/// The bytes of a reply and of a tool's result.
const PAYLOAD: usize = 2_000;

fn main() {
    let began = Instant::now();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let ground = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    runtime.block_on(async {
        rates(ground.path()).await;
        shares(ground.path()).await;
    });
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
}

/// What is measured against the bare loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Bare,
    Journal,
    /// With the agents' transcripts and logs, which the same thread writes.
    Transcripts,
}

async fn rates(ground: &Path) {
    println!("durable events of {LINE} bytes a second, medians of {ROUNDS} rounds (least-most)\n");
    println!("callers {:>22} {:>22} {:>18} {:>18}", "bare", "journal", "ratio", "+ transcripts");
    for callers in CALLERS {
        let (mut bare, mut journal, mut transcripts) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(rate(Subject::Bare, callers, ground).await);
            journal.push(rate(Subject::Journal, callers, ground).await);
            transcripts.push(rate(Subject::Transcripts, callers, ground).await);
        }
        let to_bare = |own: &[f64]| Spread::of(own.iter().zip(&bare).map(|(own, bare)| own / bare));
        let (ratio, with) = (to_bare(&journal), to_bare(&transcripts));
        let reached = if ratio.median >= TARGET { "reached" } else { "not reached" };
        let of = |figures: &[f64]| Spread::of(figures.iter().copied()).to_string();
        println!(
            "{callers:7} {:>22} {:>22} {:>18} {:>18}   target {TARGET}: {reached}",
            of(&bare),
            of(&journal),
            ratio.to_string(),
            with.to_string()
        );
    }
}

/// The events per second that become durable for so many callers.
async fn rate(subject: Subject, callers: usize, ground: &Path) -> f64 {
    let place = tempfile::tempdir_in(ground).expect("a directory");
    match subject {
        Subject::Bare => {
            let (journal, writer) = Journal::start(&place.path().join("journal"));
            let journal = std::sync::Arc::new(journal);
            // The writer ends with the last of those that hold the journal.
            let append = move |caller: usize| {
                let journal = journal.clone();
                async move {
                    let line = serde_json::to_vec(&json!({ "agent": caller, "text": TEXT }));
                    journal.append(line.expect("JSON")).await;
                }
            };
            let rate = repeat(callers, append).await;
            writer.join().expect("the writer does not panic");
            rate
        }
        Subject::Journal | Subject::Transcripts => {
            let journal = journal(place.path(), subject);
            let for_all = journal.clone();
            let append = move |caller: usize| {
                let journal = for_all.clone();
                async move {
                    let drafts = vec![event_of(caller)];
                    journal.append(drafts).await.expect("a good disk");
                }
            };
            let rate = repeat(callers, append).await;
            journal.close().await;
            rate
        }
    }
}

fn journal(place: &Path, subject: Subject) -> JournalHandle {
    let dir = RunDir::at(place.join("run"));
    let observers: Vec<Box<dyn Observer>> = match subject {
        Subject::Transcripts => vec![Box::new(Projection::new(dir.clone()))],
        Subject::Bare | Subject::Journal => Vec::new(),
    };
    let owned = dir.create().expect("a run directory");
    owned.start_writer(Position::START, observers).expect("a writer")
}

/// Does it again and again for all callers; gives how often it was done in a second.
async fn repeat<F: Future<Output = ()> + Send + 'static>(
    callers: usize,
    once: impl Fn(usize) -> F + Clone + Send + 'static,
) -> f64 {
    // To make files is not measured, nor what that leaves to be written.
    futures_util::future::join_all((0..callers).map(&once)).await;
    let mut running = JoinSet::new();
    let began = Instant::now();
    for caller in 0..callers {
        let once = once.clone();
        running.spawn(async move {
            let mut done = 0u64;
            while began.elapsed() < SPAN {
                once(caller).await;
                done += 1;
            }
            done
        });
    }
    let done: u64 = running.join_all().await.into_iter().sum();
    done as f64 / began.elapsed().as_secs_f64()
}

fn draft(agent: usize, event: impl Into<Event>) -> Draft {
    let task = Name::new("bench").expect("a name");
    Draft::agent(&task, &AgentId::from_text(&format!("bench[{agent}]")), event)
}

/// An event whose line has the length.
fn event_of(caller: usize) -> Draft {
    // The envelope and the names take the rest.
    let message = Json::encode(&json!({ "role": "user", "content": &TEXT[260..] }));
    draft(caller, TurnStarted { turn: 1, message: Some(message) })
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
        let journal = journal(place.path(), Subject::Transcripts);
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
        // An agent does nothing but its turns.
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

/// Does an agent's turns; gives how long each append was waited for, in seconds.
async fn turns(journal: &JournalHandle, agent: usize) -> Vec<f64> {
    let (run, mut waits) = (RunId::generate(), Vec::new());
    for turn in 1..=TURNS {
        let [before, reply, result] = turn_of(run, agent, turn);
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

/// What a turn records before its model call, before its tool and after it.
fn turn_of(run: RunId, agent: usize, turn: u32) -> [Vec<Draft>; 3] {
    let model = Name::new("bench").expect("a name");
    let id = AgentId::from_text(&format!("bench[{agent}]"));
    let key = CallKey::derive(run, &id, turn, 0, "read_file", "{}");
    let text = "x".repeat(PAYLOAD);
    let call = format!("call-{turn}");
    let input = json!({ "path": "notes.txt" });
    let message = json!({ "role": "assistant", "content": [
        { "type": "text", "text": text },
        { "type": "tool_use", "id": call, "name": "read_file", "input": input },
    ]});
    let block = json!({ "type": "tool_result", "tool_use_id": call, "content": text });
    let requested = ModelRequested {
        turn,
        model: model.clone(),
        messages: turn as usize,
        bytes: PAYLOAD,
        head_tokens: 1_000,
        expected_tokens: 2_000,
    };
    let responded = ModelResponded {
        turn,
        model,
        message: Json::encode(&message),
        stop: StopReason::ToolUse,
        usage: Usage::default(),
        usage_source: Default::default(),
        cost_usd: None,
        context: Default::default(),
    };
    let intended = ToolIntended {
        key: key.clone(),
        turn,
        index: 0,
        id: call,
        name: "read_file".to_owned(),
        input: Json::encode(&input),
        effect: Effect::Pure,
    };
    let finished = ToolFinished {
        key,
        turn,
        index: 0,
        name: "read_file".to_owned(),
        status: ToolStatus::Ok,
        source: ResultSource::Live,
        block: Json::encode(&block),
        stored: None,
        exit_code: None,
        told_to_end: false,
        took_ms: 1,
    };
    [
        vec![draft(agent, TurnStarted { turn, message: None }), draft(agent, requested)],
        vec![draft(agent, responded), draft(agent, intended)],
        vec![draft(agent, finished)],
    ]
}
