//! `cargo bench --bench resume [-- MB]`: the time and the memory that a resume takes.
//!
//! The run has a long past: a thousand agents that have ended wrote most of its journal, and one
//! agent is at work. A process of its own resumes it, once with the snapshots that were made while
//! the journal was written and once without any. Writing a gigabyte takes about a minute.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

#[path = "durable/turn.rs"]
mod turn;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use callsheet::config::Sources;
use callsheet::event::{Draft, Event, PlannedTask, RunCreated, RunOpened};
use callsheet::id::{AgentId, Name, RunId};
use callsheet::journal::JournalHandle;
use callsheet::journal::cut::Cut;
use callsheet::journal::line::Position;
use callsheet::journal::local::run_at;
use callsheet::journal::projection::Projection;
use callsheet::journal::snapshot::Snapshots;
use callsheet::journal::source::RecordedRun;
use callsheet::journal::track::Tracker;
use callsheet::message::{Json, Usage};
use callsheet::model::script::Script;
use callsheet::model::scripted::Scripted;
use callsheet::output::Output;
use callsheet::plan::{TaskCompleted, TaskReady, TaskStarted};
use callsheet::run::RunEnd;
use callsheet::run::{Options, Run, StoppedRun};
use callsheet::turn::{AgentEnded, AgentSpawned, Outcome, Program};
use serde_json::json;

use self::turn::turn_of;

/// Size of the journal in megabytes, unless the command line names one.
const MEGABYTES: u64 = 1_024;
/// Number of agents that have ended.
const AGENTS: u32 = 1_000;
/// Bytes of a tool's result.
const RESULT: usize = 16_000;

const CONFIG: &str = r#"
version = 1
name = "long"
[agents.worker]
instructions = "Work."
[tasks.past]
agent = "worker"
prompt = "Go."
[tasks.now]
agent = "worker"
prompt = "Go."
"#;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["resume", dir] = arguments.as_slice() {
        return resume(Path::new(dir));
    }
    let megabytes = arguments.iter().find_map(|text| text.parse().ok()).unwrap_or(MEGABYTES);
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let run = run_at(root.path().join("run"));
    let began = Instant::now();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(write(&run, megabytes << 20));
    let length = run.size();
    let took = began.elapsed().as_secs_f64();
    println!("a journal of {} MB, written in {took:.0} s\n", length >> 20);
    println!("                  folded after    at work after    most memory");
    for (name, keeps) in [("with snapshots", true), ("without any", false)] {
        let copy = root.path().join(if keeps { "with" } else { "without" });
        copy_all(&run.place(), &copy);
        if !keeps {
            run_at(&copy).drivable().expect("it is here").saved_folds().forget();
        }
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program).arg("resume").arg(&copy).output();
        let output = output.expect("started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        let figures: Vec<f64> = text.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        let [folded, working, memory] = figures[..] else { panic!("three figures: {text}") };
        println!("{name:16} {folded:10.0} ms {working:13.0} ms {:11.1} MB", memory / 1e3);
        std::fs::remove_dir_all(copy).expect("removed");
    }
}

/// Copies a run directory.
fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("made");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_all(&path, &name);
        } else {
            std::fs::copy(&path, &name).expect("copied");
        }
    }
}

/// The process that resumes the run and brings it to its end.
fn resume(dir: &Path) {
    let began = Instant::now();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let stopped = StoppedRun::open(run_at(dir), Cut::Torn).expect("it can be taken up");
        let folded = began.elapsed();
        let model = Name::new("default").expect("a name");
        let mut sources = Sources::new(dir.join("agents.toml"));
        sources.custom_models.push(model.clone());
        let config = stopped.config(sources).expect("a configuration");
        let script = Script::parse("[[rules]]\nsay = 'done'").expect("a script");
        let models = BTreeMap::from([(model, Arc::new(Scripted::new(script)) as _)]);
        let options = Options { models, ..Options::default() };
        let run = Run::resume(stopped, config, options).await.expect("goes on");
        let working = began.elapsed();
        let end = run.wait().await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        let status = std::fs::read_to_string("/proc/self/status").expect("readable");
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a figure");
        let most = most.trim().trim_end_matches(" kB");
        println!("{} {} {most}", folded.as_secs_f64() * 1e3, working.as_secs_f64() * 1e3);
    });
}

/// Writes a run as it would have been written while its agents worked.
async fn write(recorded: &RecordedRun, bytes: u64) {
    let (run, past, now) = (RunId::from(uuid::Uuid::now_v7()), name("past"), name("now"));
    let here = recorded.drivable().expect("it is here");
    let owned = here.create().expect("a run directory");
    let (tracker, log_text) = (Tracker::default(), callsheet::show::log_line::log_text);
    let files = Projection::new(recorded.clone(), here.agent_files(), log_text);
    let snapshots = Snapshots::new(here.saved_folds(), Position::START, tracker, files);
    let journal = owned.start_writer(Position::START, vec![Box::new(snapshots)]);
    let journal = journal.expect("a writer");
    let opened = RunOpened { pid: 1, ..RunOpened::by_this_process(1) };
    record(&journal, vec![Draft::run(created(run, recorded)), Draft::run(opened)]).await;
    begin(&journal, &past).await;
    let each = bytes / u64::from(AGENTS);
    let agents = (1..=AGENTS).map(|agent| {
        let (journal, past) = (journal.clone(), past.clone());
        let id = AgentId::main(&past, 1).child(&name("worker"), agent);
        async move { child(&journal, run, &past, id, each).await }
    });
    // So many agents write at the same time that they share batches, as in a run with that many
    // agents.
    let mut agents: Vec<_> = agents.collect();
    while !agents.is_empty() {
        let some: Vec<_> = agents.drain(..agents.len().min(50)).collect();
        futures_util::future::join_all(some).await;
    }
    let main = AgentId::main(&past, 1);
    record(&journal, vec![Draft::agent(&past, &main, ended())]).await;
    let completed = TaskCompleted { attempt: 1, output: Output::whole("done") };
    record(&journal, vec![Draft::task(&past, completed)]).await;
    begin(&journal, &now).await;
    journal.close().await;
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

async fn record(journal: &JournalHandle, drafts: Vec<Draft>) {
    journal.append(drafts).await.expect("a good disk");
}

fn created(run: RunId, recorded: &RecordedRun) -> RunCreated {
    let task =
        |task: &str| PlannedTask { agent: Some(name("worker")), ..PlannedTask::new(name(task)) };
    RunCreated {
        run,
        workflow: "long".to_owned(),
        program: "bench".to_owned(),
        file: recorded.place().join("agents.toml"),
        config: CONFIG.into(),
        files: BTreeMap::new(),
        config_hash: String::new(),
        profile: None,
        plan: None,
        proposed: Vec::new(),
        inputs: Json::encode(&json!({})),
        settings: BTreeMap::new(),
        keep_going: false,
        strict: false,
        earlier: Default::default(),
        forked: None,
        overrides: Default::default(),
        tasks: [task("past"), task("now")].into(),
    }
}

/// Records the beginning of a task and of the agent that works for it.
async fn begin(journal: &JournalHandle, task: &Name) {
    let agent = AgentId::main(task, 1);
    let started = TaskStarted {
        attempt: 1,
        agent: Some(agent.clone()),
        instances: None,
        key: None,
        item: None,
    };
    record(journal, vec![Draft::task(task, TaskReady {})]).await;
    let drafts = vec![Draft::task(task, started), Draft::agent(task, &agent, spawned(None))];
    record(journal, drafts).await;
}

fn spawned(parent: Option<AgentId>) -> AgentSpawned {
    let program = Program::Model { agent: name("worker"), prompt: "Go.".into() };
    let depth = u32::from(parent.is_some());
    AgentSpawned { depth, parent, ..AgentSpawned::main(program) }
}

fn ended() -> AgentEnded {
    let outcome = Outcome::Completed { output: Output::whole("done") };
    AgentEnded {
        outcome,
        turns: 1,
        usage: Usage::default(),
        shortfalls: Default::default(),
        run_by_others: Vec::new(),
        run_by_others_incomplete: false,
    }
}

/// Records an agent from its beginning to its end.
async fn child(journal: &JournalHandle, run: RunId, task: &Name, id: AgentId, bytes: u64) {
    let of_agent = |event: Event| Draft::agent(task, &id, event);
    let parent = AgentId::main(task, 1);
    record(journal, vec![of_agent(spawned(Some(parent)).into())]).await;
    let turns = u32::try_from(bytes / RESULT as u64).expect("few turns");
    for turn in 1..=turns.max(1) {
        for events in turn_of(run, &id, turn, "", &"some words ".repeat(RESULT / 11)) {
            record(journal, events.into_iter().map(of_agent).collect()).await;
        }
    }
    record(journal, vec![of_agent(ended().into())]).await;
}
