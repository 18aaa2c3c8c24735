//! Crashes at every step of the protocol, and what a resume makes of them.
//!
//! Each command notes its key in a ledger outside the run. However often a run is killed and taken
//! up again, no key may stand there twice, and one whose result was recorded must stand there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use callsheet::crash::Point;
use serde_json::Value;

use crate::support::desk::{Desk, Done, Live, lines};

/// Two agents at once, each with two children, between a command and a fan-out of three: 52 tool
/// calls.
const GRAPH: &str = r#"
[agents.lead]
model = "default"
instructions = "Lead."
tools = ["bash", "read_file", "write_file", "edit_file"]
sub_agents = ["helper"]
[agents.helper]
model = "default"
instructions = "Help."
tools = ["bash", "read_file"]
[sandbox]
env = ["LEDGER"]
[tasks.first]
run = 'echo "$CALLSHEET_IDEMPOTENCY_KEY" >> "$LEDGER"'
[tasks.left]
agent = "lead"
prompt = "Go."
depends_on = ["first"]
[tasks.right]
agent = "lead"
prompt = "Go."
depends_on = ["first"]
[tasks.last]
foreach = "['x', 'y', 'z']"
max_concurrency = 2
run = 'echo "$CALLSHEET_IDEMPOTENCY_KEY" >> "$LEDGER"; echo end'
depends_on = ["left", "right"]
"#;

const SCRIPT: &str = r#"
[[rules]]
agent = "lead"
turn = 1
[[rules.calls]]
tool = "read_file"
for_each = "['a.txt', 'b.txt', 'a.txt']"
input = { path = "{{ item }}" }
[[rules.calls]]
tool = "bash"
for_each = "range(3)"
input = { command = 'echo "$CALLSHEET_IDEMPOTENCY_KEY" >> "$LEDGER"; echo {{ item }}' }
[[rules.calls]]
tool = "write_file"
input = { path = "{{ agent_id }}.txt", content = "one of {{ agent_id }}" }
[[rules]]
agent = "lead"
turn = 2
[[rules.calls]]
tool = "delegate"
for_each = "range(2)"
input = { agent = "helper", prompt = "Help with {{ item }}." }
[[rules]]
agent = "lead"
turn = 3
[[rules.calls]]
tool = "edit_file"
input = { path = "{{ agent_id }}.txt", old_string = "one", new_string = "two" }
[[rules.calls]]
tool = "bash"
for_each = "range(2)"
input = { command = 'echo "$CALLSHEET_IDEMPOTENCY_KEY" >> "$LEDGER"' }
[[rules]]
agent = "helper"
turn = "1..2"
[[rules.calls]]
tool = "bash"
for_each = "range(3)"
input = { command = 'echo "$CALLSHEET_IDEMPOTENCY_KEY" >> "$LEDGER"' }
[[rules]]
agent = "lead"
say = "{{ agent_id }} is done"
[[rules]]
agent = "helper"
say = "helped"
"#;

/// A run, the tool calls that it makes, and the commands among them.
struct Work {
    graph: &'static str,
    script: &'static str,
    calls: usize,
    commands: usize,
}

const WORK: Work = Work { graph: GRAPH, script: SCRIPT, calls: 52, commands: 38 };

/// Agents whose views fill again and again: they wait for summaries for most of their time.
const TALK: Work = Work { graph: TALKERS, script: TALK_SCRIPT, calls: 18, commands: 18 };

const TALKERS: &str = r#"
[loops]
enabled = false
[compaction]
preset = "three-layer"
threshold = 600
[agents.talker]
model = "default"
instructions = "Talk."
tools = ["bash"]
[sandbox]
env = ["LEDGER"]
[tasks.talk]
agent = "talker"
prompt = "Go."
foreach = "['x', 'y']"
max_concurrency = 2
"#;

const TALK_SCRIPT: &str = r#"
[[rules]]
agent = "compactor"
say = "So far so good."
delay_ms = 120
[[rules]]
turn = "1..9"
say = "{% for _ in range(400) %}word {% endfor %}"
[[rules.calls]]
tool = "bash"
input = { command = 'echo "$CALLSHEET_IDEMPOTENCY_KEY" >> "$LEDGER"' }
[[rules]]
say = "{{ agent_id }} is done"
"#;

/// The points at which the process dies, in groups that belong together: what was under way at the
/// first of a group is found out about at the second.
const DEADLY: [&[Point]; 11] = [
    &[Point::BeforeWrite],
    &[Point::HalfWrite],
    &[Point::AfterWrite],
    &[Point::AfterSync],
    &[Point::AfterIntent],
    &[Point::AfterSpawn],
    &[Point::AfterStart, Point::BeforeRepair],
    &[Point::AfterGo, Point::BeforeRepair],
    &[Point::ParentAfterEffect, Point::BeforeRepair],
    &[Point::ParentAfterSpool],
    &[Point::AfterEffect, Point::AfterResult],
];

/// The points of snapshots, which are made in a thread of their own.
const OF_SNAPSHOTS: [[Point; 1]; 2] = [[Point::HalfSnapshot], [Point::AfterSnapshot]];

/// Growth of the journal between two snapshots, in bytes: a few batches.
const SNAPSHOT_GROWTH: &str = "4096";

/// Those at which only a wrapper dies.
const OF_WRAPPERS: [Point; 2] = [Point::WrapperAfterEffect, Point::WrapperAfterSpool];

/// Runs that die at one point after the other in `cargo test`: about three seconds each.
const CHAINS: usize = 4;

/// The longest that a process lives before it is killed at random: half of what a run takes.
const LONGEST: Duration = Duration::from_millis(800);

/// Kills at random moments in `cargo test`, and in the soak: about a tenth of a second each.
const KILLS: usize = 8;
const SOAK_KILLS: usize = 1_000;

/// Runs of a soak at the same time: they wait most of the time.
const AT_ONCE: usize = 4;

/// A run that is killed and taken up again.
struct Victim {
    desk: Desk,
}

impl Victim {
    fn new(work: &Work) -> Self {
        let desk = Desk::offline(work.graph, work.script);
        desk.good(&["trust"]);
        desk.write("a.txt", "a\n");
        desk.write("b.txt", "b\n");
        Self { desk }
    }

    /// The next process of the run: the first, or one that takes it up.
    fn command(&self) -> Command {
        // A process that is killed early leaves a directory without a journal; the next begins anew.
        let begun = self.desk.runs().last().is_some_and(|run| {
            std::fs::read_to_string(run.join("journal.jsonl")).is_ok_and(|text| text.contains('\n'))
        });
        let mut command = self.desk.command(&[if begun { "resume" } else { "run" }]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("LEDGER", self.desk.path().join(".ledger"));
        command.env("CALLSHEET_SNAPSHOT_GROWTH", SNAPSHOT_GROWTH);
        command
    }

    /// Runs until the point was passed so often; false when the run came to its end before.
    fn crash(&self, point: Point, number: usize) -> bool {
        let mut command = self.command();
        command.env("CALLSHEET_CRASH_AT", format!("{}:{number}", point.name()));
        let done = Done::of(&mut command);
        let crashed = done.code == -1;
        assert!(crashed || done.code <= 1, "{point:?}:{number}: {} {}", done.code, done.err);
        crashed
    }

    /// Kills the run at a random moment; false when it came to its end before.
    fn kill(&self) -> bool {
        let mut command = self.command();
        // No call is to blame.
        command.env("CALLSHEET_CRASH_AT", "by a signal");
        let mut live = Live::of(command.spawn().expect("started"));
        let moment = Instant::now() + LONGEST.mul_f64(fastrand::f64());
        while Instant::now() < moment && !live.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if live.has_ended() {
            return false;
        }
        live.signal("KILL");
        live.end();
        true
    }

    /// Returns the number of files of its snapshots whose names end so.
    fn snapshots(&self, ending: &str) -> usize {
        let run = self.desk.runs().pop();
        let entries = run.and_then(|run| std::fs::read_dir(run.join("snapshots")).ok());
        let names = entries.into_iter().flatten().map(|entry| entry.expect("one").file_name());
        names.filter(|name| name.to_string_lossy().ends_with(ending)).count()
    }

    /// Lets the run come to its end, and checks it against one that nothing happened to.
    fn finish(self, undisturbed: &Outcome, context: &str) -> Found {
        let done = Done::of(&mut self.command());
        assert!(done.code <= 1, "{context}: {} {}", done.code, done.err);
        let found = Found::of(&self.desk, context);
        found.check(context);
        found.outcome.compare(undisturbed, &found.unknown, context);
        let newest = self.desk.runs().pop().expect("a run").join("journal.jsonl");
        let journal = || std::fs::read(&newest).expect("bytes");
        let before = journal();
        let again = Done::of(&mut self.command());
        assert_eq!((again.code, journal() == before), (done.code, true), "{context}");
        found
    }
}

/// What a run came to, without what is told by the clock.
#[derive(Debug, PartialEq)]
struct Outcome {
    tasks: Value,
    usage: Value,
    files: BTreeMap<String, String>,
    conversations: BTreeMap<String, Vec<Value>>,
}

impl Outcome {
    /// Compares it with that of a run that nothing happened to, where some calls are unknown.
    fn compare(&self, other: &Self, unknown: &BTreeSet<(String, String)>, context: &str) {
        if unknown.iter().any(|(_, tool)| tool == "run") {
            // The task failed, and with it the run.
            return;
        }
        assert_eq!(self.tasks, other.tasks, "{context}");
        assert_eq!(self.files, other.files, "{context}");
        if !unknown.is_empty() {
            return;
        }
        assert_eq!(self.usage, other.usage, "{context}");
        let names = |outcome: &Self| outcome.conversations.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(other), "{context}");
        for (name, messages) in &self.conversations {
            for (message, expected) in messages.iter().zip(&other.conversations[name]) {
                assert_eq!(message, expected, "{context}: {name}");
            }
            assert_eq!(messages.len(), other.conversations[name].len(), "{context}: {name}");
        }
    }
}

/// What stands in the records of a run that ended, and in the ledger.
struct Found {
    outcome: Outcome,
    events: Vec<Value>,
    ledger: BTreeMap<String, usize>,
    /// The calls whose outcome is unknown: key and tool.
    unknown: BTreeSet<(String, String)>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The text files of a folder with this ending, by name.
fn files(folder: &Path, ending: &str) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one"));
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry));
    let wanted = named.filter(|(name, _)| name.ends_with(ending));
    wanted.map(|(name, entry)| (name, read(&entry.path()))).collect()
}

impl Found {
    fn of(desk: &Desk, context: &str) -> Self {
        let run = desk.runs().pop().expect("a run");
        let events = lines(&read(&run.join("journal.jsonl")));
        let completed = events.last().expect("an event");
        assert_eq!(completed["type"], "run.completed", "{context}");
        // A result of a child names its transcript.
        let place = run.display().to_string();
        let messages = |text: &String| -> Vec<Value> {
            lines(&text.replace(&place, "RUN"))
                .into_iter()
                .map(|mut line| line["message"].take())
                .collect()
        };
        let transcripts = files(&run.join("agents"), ".jsonl");
        let outcome = Outcome {
            tasks: completed["data"]["tasks"].clone(),
            usage: completed["data"]["usage"].clone(),
            files: files(desk.path(), ".txt"),
            conversations: transcripts
                .iter()
                .map(|(n, text)| (n.clone(), messages(text)))
                .collect(),
        };
        let mut ledger = BTreeMap::new();
        for key in read(&desk.path().join(".ledger")).lines() {
            *ledger.entry(key.to_owned()).or_default() += 1;
        }
        let finished = events.iter().filter(|event| event["type"] == "tool.finished");
        let unknown = finished.filter(|event| event["data"]["status"] == "unknown");
        let unknown = unknown.map(|e| (text(&e["data"]["key"]), text(&e["data"]["name"])));
        Self { outcome, unknown: unknown.collect(), ledger, events }
    }

    fn check(&self, context: &str) {
        let of = |kind: &'static str| self.events.iter().filter(move |e| e["type"] == kind);
        for (key, count) in &self.ledger {
            assert_eq!(*count, 1, "{context}: {key} had its effect {count} times");
        }
        let mut results = BTreeMap::new();
        for event in of("tool.finished") {
            let before = results.insert(text(&event["data"]["key"]), &event["data"]);
            assert!(before.is_none(), "{context}: two results of {event}");
        }
        for event in of("tool.intended") {
            let key = text(&event["data"]["key"]);
            let result = results.get(&key).unwrap_or_else(|| panic!("{context}: open: {event}"));
            let is_command = event["data"]["effect"] == "once";
            if is_command && result["status"] == "ok" {
                assert!(self.ledger.contains_key(&key), "{context}: no effect of {event}");
            }
            if result["status"] == "unknown" {
                let begun = of("tool.started").any(|event| event["data"]["key"] == key.as_str());
                assert!(begun, "{context}: unknown though it never began: {event}");
            }
        }
        // A reply that was recorded is never asked for again.
        let mut answered = BTreeSet::new();
        for event in &self.events {
            let turn = (text(&event["agent"]), event["data"]["turn"].as_u64());
            match event["type"].as_str() {
                Some("model.requested") => assert!(!answered.contains(&turn), "{context}: {event}"),
                Some("model.responded") => assert!(answered.insert(turn), "{context}: {event}"),
                _ => {}
            }
        }
    }

    /// True if a process died while a summary was written.
    fn lost_a_summary(&self) -> bool {
        let mut open = BTreeSet::new();
        self.events.iter().any(|event| {
            let agent = text(&event["agent"]);
            match event["type"].as_str() {
                Some("compaction.requested") => drop(open.insert(agent)),
                Some("compaction.finished" | "compaction.failed") => drop(open.remove(&agent)),
                Some("run.opened") => return !open.is_empty(),
                _ => {}
            }
            false
        })
    }

    fn sources(&self, source: &str) -> usize {
        self.events.iter().filter(|event| event["data"]["source"] == source).count()
    }
}

/// A run that nothing happens to.
fn undisturbed(work: &Work) -> Outcome {
    let victim = Victim::new(work);
    let done = Done::of(&mut victim.command());
    assert_eq!(done.code, 0, "{}", done.err);
    let found = Found::of(&victim.desk, "undisturbed");
    found.check("undisturbed");
    assert!(found.unknown.is_empty());
    assert_eq!(found.ledger.len(), work.commands);
    let calls = found.events.iter().filter(|event| event["type"] == "tool.intended");
    assert_eq!(calls.count(), work.calls);
    found.outcome
}

/// A run that dies at one point after the other; gives what is found in the end.
fn chain(deaths: &[(Point, usize)], undisturbed: &Outcome) -> Found {
    let named = |(point, number): &(Point, usize)| format!("{}:{number}", point.name());
    let context = deaths.iter().map(named).collect::<Vec<_>>().join(" ");
    let victim = Victim::new(&WORK);
    for (point, number) in deaths {
        let is_deadly = !OF_WRAPPERS.contains(point);
        assert_eq!(victim.crash(*point, *number), is_deadly, "{context}: {}", point.name());
    }
    victim.finish(undisturbed, &context)
}

/// The deaths of one chain. Each begins elsewhere, so that each point is met at another place.
fn deaths(round: usize) -> Vec<(Point, usize)> {
    let turned = (0..DEADLY.len()).map(|at| DEADLY[(at + 3 * round) % DEADLY.len()]);
    let mut deaths: Vec<_> = turned
        .enumerate()
        .flat_map(|(at, points)| {
            // The first process passes each point with the first task's command, whose unknown end
            // would end the run.
            let number = if at == 0 { 3 } else { 1 + (at + round) % 3 };
            let numbers = [number, 1].into_iter();
            points.iter().copied().zip(numbers)
        })
        .collect();
    deaths.push((OF_WRAPPERS[round % 2], 1));
    deaths
}

#[test]
fn a_run_that_dies_at_every_step_comes_to_the_same_end() {
    if !cfg!(debug_assertions) {
        return;
    }
    let undisturbed = undisturbed(&WORK);
    let chains = (0..CHAINS).map(|round| chain(&deaths(round), &undisturbed));
    let adopted: usize = chains.map(|found| found.sources("spool")).sum();
    assert!(adopted >= 2 * CHAINS, "{adopted} results were kept");
}

/// The wrapper notes that its command never began, for its own process only: a note of an earlier wrapper, or none,
/// says nothing about the one that is recorded.
#[test]
fn a_command_that_never_began_is_started_as_if_for_the_first_time() {
    if !cfg!(debug_assertions) {
        return;
    }
    const GRAPH: &str = r#"
[sandbox]
env = ["LEDGER"]
[tasks.only]
run = 'echo "$CALLSHEET_IDEMPOTENCY_KEY" >> "$LEDGER"; echo done'
"#;
    // (deaths, what is done to the note after each, times that the command ran, exit code)
    let keep: fn(&Path) = |_| {};
    let remove: fn(&Path) = |note| std::fs::remove_file(note).expect("removed");
    let of_another: fn(&Path) = |note| {
        std::fs::write(note, r#"{"pgid":77,"starttime":1}"#).expect("written");
    };
    for (deaths, change, times, code) in
        [(1, keep, 1, 0), (3, keep, 1, 0), (1, remove, 0, 1), (1, of_another, 0, 1)]
    {
        let victim = Victim::new(&Work {
            graph: GRAPH,
            script: "[[rules]]\nsay = 'x'\n",
            calls: 1,
            commands: 1,
        });
        for _ in 0..deaths {
            assert!(victim.crash(Point::AfterStart, 1));
            let spool = victim.desk.runs().pop().expect("a run").join("spool");
            let kept = || {
                let entries = std::fs::read_dir(&spool).into_iter().flatten().flatten();
                let mut paths = entries.map(|entry| entry.path());
                paths.find(|path| path.extension().is_some_and(|ending| ending == "unbegun"))
            };
            let by = Instant::now() + Duration::from_secs(120);
            let kept = loop {
                assert!(Instant::now() < by, "no note");
                match kept() {
                    Some(path) => break path,
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            };
            change(&kept);
        }
        let done = Done::of(&mut victim.command());
        assert_eq!(done.code, code, "{deaths}: {}", done.err);
        let found = Found::of(&victim.desk, "never began");
        found.check("never began");
        assert_eq!(found.ledger.len(), times, "{deaths}");
    }
}

#[test]
fn a_run_that_dies_amid_a_snapshot_comes_to_the_same_end() {
    if !cfg!(debug_assertions) {
        return;
    }
    let undisturbed = undisturbed(&WORK);
    let victim = Victim::new(&WORK);
    for [point] in OF_SNAPSHOTS {
        assert!(victim.crash(point, 1), "{point:?}");
        let is_half = point == Point::HalfSnapshot;
        assert_eq!(victim.snapshots("new"), usize::from(is_half), "{point:?}");
        assert_eq!(victim.snapshots(".json"), usize::from(!is_half), "{point:?}");
    }
    victim.finish(&undisturbed, "amid snapshots");
}

/// Runs that die at one point each, at every one, each time that it is passed: several at the same time.
struct Sweep {
    points: Vec<&'static [Point]>,
    /// The point that is next, and the how many-th time.
    next: Mutex<(usize, usize)>,
}

impl Sweep {
    fn next(&self) -> Option<(usize, usize)> {
        let mut next = self.next.lock().expect("no thread failed");
        let (point, number) = *next;
        next.1 += 1;
        (point < self.points.len()).then_some((point, number))
    }

    /// A run came to its end before it passed the point so often: the next point's turn.
    fn is_done_with(&self, point: usize) {
        let mut next = self.next.lock().expect("no thread failed");
        if next.0 == point {
            *next = (point + 1, 1);
        }
    }

    /// Takes what is next until nothing is left. Returns the number of deaths.
    fn work(&self, undisturbed: &Outcome) -> usize {
        let mut deaths = 0;
        while let Some((point, number)) = self.next() {
            let points = self.points[point];
            let victim = Victim::new(&WORK);
            let has_died = victim.crash(points[0], number);
            for later in &points[1..] {
                victim.crash(*later, 1);
            }
            victim.finish(undisturbed, &format!("{}:{number}", points[0].name()));
            deaths += usize::from(has_died);
            if !has_died {
                self.is_done_with(point);
            }
        }
        deaths
    }
}

#[test]
#[ignore = "takes more than half an hour on two cores: every point, each time that it is passed"]
fn a_run_that_dies_anywhere_comes_to_the_same_end() {
    let undisturbed = undisturbed(&WORK);
    let points = DEADLY.into_iter().chain(OF_SNAPSHOTS.each_ref().map(|points| &points[..]));
    let sweep = Sweep { points: points.collect(), next: Mutex::new((0, 1)) };
    let deaths: usize = std::thread::scope(|scope| {
        let threads = [(); AT_ONCE].map(|()| scope.spawn(|| sweep.work(&undisturbed)));
        threads.into_iter().map(|thread| thread.join().expect("it holds")).sum()
    });
    for point in OF_WRAPPERS {
        for number in 1..=WORK.commands {
            let victim = Victim::new(&WORK);
            assert!(!victim.crash(point, number));
            victim.finish(&undisturbed, &format!("{}:{number}", point.name()));
        }
    }
    println!("found: {deaths} deaths at {} points", sweep.points.len());
}

/// Kills runs at random moments, so often in all. Returns the number of runs that a kill met while a
/// summary was written, and of those that it met amid a snapshot.
fn soak(kills: usize) -> [usize; 2] {
    let works = [WORK, TALK].map(|work| (undisturbed(&work), work));
    let (killed, met) = (AtomicUsize::new(0), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    let may_kill = || killed.fetch_add(1, Ordering::Relaxed) < kills;
    let work = |first: usize| {
        for round in first.. {
            let (undisturbed, work) = &works[round % works.len()];
            let victim = Victim::new(work);
            let (mut deaths, mut is_torn) = (0, false);
            while may_kill() {
                if !victim.kill() {
                    killed.fetch_sub(1, Ordering::Relaxed);
                    break;
                }
                deaths += 1;
                is_torn |= victim.snapshots("new") > 0;
            }
            let found = victim.finish(undisturbed, &format!("after {deaths} kills"));
            for (met, is_met) in met.iter().zip([found.lost_a_summary(), is_torn]) {
                met.fetch_add(usize::from(is_met), Ordering::Relaxed);
            }
            if killed.load(Ordering::Relaxed) >= kills {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|first| scope.spawn(move || work(first))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it holds"));
    });
    met.map(AtomicUsize::into_inner)
}

#[test]
fn a_run_that_is_killed_at_random_comes_to_the_same_end() {
    soak(KILLS);
}

#[test]
#[ignore = "takes three minutes: a thousand kills, those of processes that recover included"]
fn a_soak_of_kills_comes_to_the_same_end() {
    let asked = std::env::var("CALLSHEET_KILLS").ok();
    let kills = asked.map_or(SOAK_KILLS, |kills| kills.parse().expect("a number"));
    let [summaries, snapshots] = soak(kills);
    println!(
        "found: {kills} kills, in {summaries} runs while a summary was written, in {snapshots} \
         amid a snapshot"
    );
    assert!(summaries > 0 || kills < 100, "no kill met a summary");
}
