//! Whole runs under a seed: the real actors, machines and files, in time that is simulated, with a provider,
//! tools and people that follow from the seed, and a process that dies again and again.
//!
//! What is simulated is the clock, the provider, the effects of tools, the answers of people, how long a disk
//! takes, and the death of the process. All else is the program. A seed that fails says how it is repeated.
//! Two things follow from the machine too: where snapshots are taken, from which only the time of a resume
//! follows, and whether a run that is left with people pauses before or after a child's result is recorded.

mod lockstep;
mod tests;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::DirEntry;
use std::io::ErrorKind;
use std::ops::Range;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use tempfile::TempDir;

use self::lockstep::{Death, Disk};
use self::world::World;
use super::{Run, RunEnd, StoppedRun, answers};
use crate::event::{Event, PauseCause, SharedRecord};
use crate::id::{AgentId, CallKey};
use crate::journal::JournalError;
use crate::journal::cut::{Cut, CutError};
use crate::journal::local::run_at;
use crate::journal::projection::Projection;
use crate::journal::source::{Cursor, RecordedRun, RunSource};
use crate::run_state::RunState;
use crate::trust::Store;
use crate::turn::{Effect, ToolStatus};

/// The most deaths of one run.
const MOST_DEATHS: u32 = 6;

/// The longest that a run may take, of simulated time: far longer than any does.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// How a process ends.
#[derive(Debug, Default)]
struct Fate {
    /// At a write of its journal.
    at_write: Option<(u64, Death)>,
    /// At a time of its life.
    after: Option<Duration>,
}

impl Fate {
    fn random(numbers: &mut Rng) -> Self {
        if numbers.bool() {
            let most = 2_u64 << numbers.u32(..6);
            let deaths = [Death::BeforeWrite, Death::AmidWrite, Death::AfterSync];
            let at_write = Some((numbers.u64(1..=most), deaths[numbers.usize(..3)]));
            return Self { at_write, after: None };
        }
        let most = 100_u64 << numbers.u32(..11);
        let after = Some(Duration::from_millis(numbers.u64(..most)));
        Self { at_write: None, after }
    }
}

/// A run that came to its end.
struct Played {
    records: Vec<SharedRecord>,
    ledger: world::Ledger,
    /// The records that any of its processes knew to be durable.
    acknowledged: Vec<SharedRecord>,
    deaths: u32,
    /// What happened in it: kinds of records, and more.
    met: BTreeSet<&'static str>,
}

/// Makes a directory, in memory if that can be. The names of all of them have as many tokens, as an estimate
/// counts them, since agents read them: summaries name the transcript.
fn root() -> TempDir {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("callsheet-{:09}{number:09}", std::process::id());
        match tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir_in(&parent) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => (),
            made => return made.expect("a directory"),
        }
    }
}

/// Plays the run of a seed, with or without deaths.
fn play(seed: u64, most_deaths: u32) -> Played {
    let (root, world) = (root(), World::new(seed));
    let mut fates = Rng::with_seed(seed ^ 0x5eed);
    let (mut deaths, mut waits, mut acknowledged) = (0_u32, 0_u32, Vec::new());
    let run = run_at(world.config(root.path()).state_dir.join(world.run().to_string()));
    loop {
        fastrand::seed(seed.wrapping_mul(1_000).wrapping_add(u64::from(deaths + waits)));
        let may_die = deaths < most_deaths;
        let fate = if may_die { Fate::random(&mut fates) } else { Fate::default() };
        let (end, known) = life(&world, &run, root.path(), &fate);
        acknowledged.extend(known);
        match end {
            None => deaths += 1,
            Some(RunEnd::Completed(_)) => break,
            Some(RunEnd::Paused(paused)) => {
                assert_eq!(paused.cause, PauseCause::Person, "{paused:?}");
                waits += 1;
                answer(&world, &*run);
            }
            Some(other) => panic!("{other:?}"),
        }
    }
    let records = records(&*run);
    let files = run.drivable().expect("it is here").agent_files();
    let left = contents(files.folder());
    Projection::rebuild(&run, &files, crate::show::log_line::log_text, |_| ()).expect("made again");
    same_files(&left, &contents(files.folder()));
    let mut met = met(&records);
    if waits > 0 {
        met.insert("a wait for a person");
    }
    if run.saved().is_some() {
        met.insert("a snapshot");
    }
    Played { records, ledger: world.ledger(), acknowledged, deaths, met }
}

/// Returns the files of a folder, by name.
fn contents(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = folder.read_dir().expect("a folder").map(|entry| entry.expect("an entry"));
    let read = |entry: DirEntry| (entry.file_name(), std::fs::read(entry.path()).expect("a file"));
    entries.map(read).collect()
}

/// Checks that transcripts and logs are those that the journal makes.
fn same_files(left: &BTreeMap<OsString, Vec<u8>>, expected: &BTreeMap<OsString, Vec<u8>>) {
    let names: BTreeSet<_> = left.keys().chain(expected.keys()).collect();
    for name in names {
        let [left, expected] =
            [left, expected].map(|files| files.get(name).map_or(&[][..], |file| file));
        let at = left.iter().zip(expected).take_while(|(one, other)| one == other).count();
        let piece = |bytes: &[u8]| {
            let end = bytes.len().min(at + 300);
            String::from_utf8_lossy(&bytes[at.saturating_sub(100)..end]).into_owned()
        };
        assert!(
            left == expected,
            "{name:?} is not that of the journal from byte {at} of {} and {} on:\n{}\ninstead of\n{}",
            left.len(),
            expected.len(),
            piece(left),
            piece(expected)
        );
    }
}

/// Answers questions of a run that waits for nothing else: at least one, and not always all.
fn answer(world: &World, run: &dyn RunSource) {
    let mut state = RunState::default();
    records(run).iter().for_each(|record| state.apply(record).expect("legal"));
    let open = state.questions().open();
    assert!(!open.is_empty(), "it waits for nobody");
    let most = fastrand::usize(1..=open.len());
    for question in &open[..most] {
        let before = answers::leave(run, &world.answer(question), &Store::of_user()).expect("left");
        assert_eq!(before, None, "the answer was not taken up");
    }
}

/// Returns what happened in a run.
fn met(records: &[SharedRecord]) -> BTreeSet<&'static str> {
    let (mut met, mut summaries) = (BTreeSet::new(), BTreeSet::new());
    for record in records {
        met.insert(record.event.kind());
        match &record.event {
            Event::CompactionRequested(_) => drop(summaries.insert(record.agent.clone())),
            Event::CompactionFinished(_) | Event::CompactionFailed(_) => {
                summaries.remove(&record.agent);
            }
            Event::RunOpened(_) if !summaries.is_empty() => {
                met.insert("a death amid a summary");
            }
            Event::ToolFinished(finished) if finished.status == ToolStatus::Unknown => {
                met.insert("an unknown effect");
            }
            _ => (),
        }
    }
    met
}

/// One life of a process. Returns how the run ended or paused, `None` if the process died, and the records that
/// were acknowledged to it.
fn life(
    world: &Arc<World>,
    run: &RecordedRun,
    root: &Path,
    fate: &Fate,
) -> (Option<RunEnd>, Vec<SharedRecord>) {
    let disk = Disk::new(fate.at_write);
    disk.put_in();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build();
    let runtime = runtime.expect("a runtime");
    let end = runtime.block_on(async {
        tokio::select! {
            biased;
            () = disk.died() => None,
            () = tokio::time::sleep(fate.after.unwrap_or(LONGEST)) => {
                assert!(fate.after.is_some(), "neither ends nor goes on\n{}", told(&records(&**run)));
                None
            }
            end = live(world, run, root) => Some(end),
        }
    });
    drop(runtime);
    let acknowledged = disk.acknowledged();
    disk.bury(end.is_none());
    (end, acknowledged)
}

/// Begins the run or resumes it, and drives it to its end.
async fn live(world: &Arc<World>, run: &RecordedRun, root: &Path) -> RunEnd {
    let started = match StoppedRun::open(run.clone(), Cut::Torn) {
        Ok(stopped) => {
            let config = stopped.config(world.sources(root));
            let config = config.unwrap_or_else(|problems| panic!("{problems:#?}"));
            Run::resume(stopped, config, world.options()).await
        }
        Err(CutError::Journal(JournalError::NeverBegan | JournalError::Io(_))) => {
            // Its directory is there, and its first record is not.
            let _ = std::fs::remove_dir_all(run.place());
            Run::start(world.config(root), world.options()).await
        }
        Err(error) => panic!("{error:?}"),
    };
    started.expect("it begins or goes on").wait().await
}

/// Returns what happened, a record in a line.
fn told(records: &[SharedRecord]) -> String {
    let line = |record: &SharedRecord| {
        let who = record.agent.as_ref().map_or("", |agent| agent.as_str());
        format!("{} {} {who} {}\n", record.seq, record.epoch, record.event.kind())
    };
    records.iter().map(line).collect()
}

fn records(run: &dyn RunSource) -> Vec<SharedRecord> {
    let mut batches = run.batches(Cursor::START).expect("a journal");
    let mut records = Vec::new();
    while let Some(batch) = batches.next_batch().expect("a sound journal") {
        records.extend(batch);
    }
    records
}

/// The results of calls, by key.
fn results(records: &[SharedRecord]) -> BTreeMap<CallKey, ToolStatus> {
    let mut results = BTreeMap::new();
    for record in records {
        if let Event::ToolFinished(finished) = &record.event {
            let before = results.insert(finished.key.clone(), finished.status);
            assert!(before.is_none(), "two results of {}", finished.key);
        }
    }
    results
}

/// Part of the result of a call that was not made again because its processes had died of it.
const NOT_AGAIN: &str = "while this call was under way";

/// The agents who read what an undisturbed run does not tell: that an effect is unknown, or that a call was not made again
/// because its processes had died of it.
fn uncertain(records: &[SharedRecord]) -> BTreeSet<&AgentId> {
    let unlike = records.iter().filter(|record| match &record.event {
        Event::ToolFinished(finished) => {
            finished.status == ToolStatus::Unknown || finished.block.as_str().contains(NOT_AGAIN)
        }
        _ => false,
    });
    unlike.filter_map(|record| record.agent.as_ref()).collect()
}

/// What each agent's model said, by agent and turn, what was edited in between, and how the tasks ended.
/// Edits count where `is_certain` is true of their agent.
fn story(
    records: &[SharedRecord],
    is_certain: impl Fn(&AgentId) -> bool,
) -> BTreeMap<String, Vec<String>> {
    let mut story: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in records {
        let is_certain = record.agent.as_ref().is_none_or(&is_certain);
        let told = match &record.event {
            Event::ModelResponded(reply) => format!("{} {:?}", reply.turn, reply.message),
            Event::TaskCompleted(completed) => {
                // The output of an approval says when it was given.
                let text = completed.output.text.split(",\"at_ms\"").next().unwrap_or_default();
                format!("{text} {:?}", completed.output.stored)
            }
            Event::TaskFailed(failed) => format!("{failed:?}"),
            Event::AgentEnded(ended) => format!("{:?}", ended.outcome),
            Event::ContextEdited(edited) if is_certain => edited.layer.clone(),
            Event::CompactionFinished(finished) if is_certain => finished.layer.clone(),
            _ => continue,
        };
        let who = match (&record.agent, &record.task) {
            (Some(agent), _) => agent.to_string(),
            (None, Some(task)) => format!("task {task}"),
            (None, None) => "run".to_owned(),
        };
        story.entry(who).or_default().push(told);
    }
    story
}

/// Checks what must hold of a run, whatever happened to its processes.
fn check(disturbed: &Played, undisturbed: &Played) {
    let context = format!("{} deaths", disturbed.deaths);
    check_records(disturbed, &context);
    check_effects(disturbed, &context);
    check_end(disturbed, undisturbed, &context);
}

/// Nothing that was acknowledged is lost, and the records follow the rules.
fn check_records(played: &Played, context: &str) {
    let by_seq: BTreeMap<u64, &SharedRecord> =
        played.records.iter().map(|record| (record.seq, record)).collect();
    for record in &played.acknowledged {
        assert_eq!(by_seq.get(&record.seq), Some(&record), "{context}: an acknowledged record");
    }
    let mut state = RunState::default();
    for record in &played.records {
        state.apply(record).unwrap_or_else(|error| panic!("{context}: {error}"));
    }
}

/// Nothing happens twice, and everything that happened is told.
fn check_effects(played: &Played, context: &str) {
    let results = results(&played.records);
    for (key, (effect, times)) in &played.ledger {
        assert!(*effect != Effect::Once || *times == 1, "{context}: {key} had {times} effects");
        assert!(results.contains_key(key), "{context}: nobody tells of the effect of {key}");
    }
    let once = played.records.iter().filter_map(|record| match &record.event {
        Event::ToolIntended(intended) if intended.name == "once" => Some(&intended.key),
        _ => None,
    });
    let mut unknown = 0;
    for key in once.collect::<BTreeSet<_>>() {
        match results.get(key) {
            Some(ToolStatus::Ok) => {
                assert!(played.ledger.contains_key(key), "{context}: {key} is told as done");
            }
            Some(ToolStatus::Unknown) => unknown += 1,
            other => panic!("{context}: {key}: {other:?}"),
        }
    }
    assert!(unknown <= played.deaths * 8, "{context}: {unknown} unknown");
}

/// Returns the agents, and their tasks, that are held for a loop in one of the runs and read of an unknown effect: an
/// unknown result is not the same result again, so that they are not held, or later, in the other.
fn other_way(runs: [&Played; 2], uncertain: &BTreeSet<&AgentId>) -> BTreeSet<String> {
    let records = runs.into_iter().flat_map(|run| &run.records);
    let held = records.filter(|record| matches!(record.event, Event::LoopHeld(_)));
    let held = held.filter_map(|record| record.agent.as_ref().zip(record.task.as_ref()));
    let unlike = held.filter(|(agent, _)| uncertain.contains(agent));
    unlike.flat_map(|(agent, task)| [agent.to_string(), format!("task {task}")]).collect()
}

/// It comes to the same end as a run that nothing happened to, by the same words.
fn check_end(disturbed: &Played, undisturbed: &Played, context: &str) {
    // The view of an agent that reads of an unknown effect has another size. Whether a summary takes too long
    // depends on the moment, and its failure counts against those of other agents.
    let uncertain = uncertain(&disturbed.records);
    let both = [disturbed, undisturbed];
    let has_failed = both.iter().any(|run| run.met.contains("compaction.failed"));
    let is_certain = |agent: &AgentId| !has_failed && !uncertain.contains(agent);
    let [one, other] = both.map(|run| story(&run.records, is_certain));
    let other_way = other_way(both, &uncertain);
    for (who, expected) in other.iter().filter(|(who, _)| !other_way.contains(*who)) {
        let told = one.get(who).map_or(&[][..], Vec::as_slice);
        for (one, other) in told.iter().zip(expected) {
            let start = |text: &str| text.chars().take(300).collect::<String>();
            assert!(one == other, "{context}: {who}: {}\ninstead of {}", start(one), start(other));
        }
        assert_eq!(told.len(), expected.len(), "{context}: {who}");
    }
    assert_eq!(one.len(), other.len(), "{context}");
}

/// Plays seeds on two threads. Returns the number of deaths, and what happened in all runs together.
fn simulate(seeds: Range<u64>) -> (u32, BTreeSet<&'static str>) {
    let next = AtomicU64::new(seeds.start);
    let sum = Mutex::new((0, BTreeSet::new()));
    let work = || {
        while let Some(seed) =
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end)
        {
            let held = catch_unwind(|| {
                let (undisturbed, disturbed) = (play(seed, 0), play(seed, MOST_DEATHS));
                check(&disturbed, &undisturbed);
                disturbed
            });
            let Ok(played) = held else {
                panic!(
                    "`CALLSHEET_SEED={seed} cargo test -p callsheet-engine --lib simulation::tests::a_seed` repeats it"
                )
            };
            let mut sum = sum.lock();
            sum.0 += played.deaths;
            sum.1.extend(played.met);
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        for thread in threads {
            thread.join().expect("every seed holds");
        }
    });
    sum.into_inner()
}
