//! Journals that lost acknowledged records, to damage or to an older copy: no effect happens twice, none is
//! lost untold, and nothing that proves an effect is overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::support::desk::{Desk, wait};

/// Commands and agents, side by side and one after the other; each effect writes a line of its own.
const WORK: &str = r#"
[limits]
fail_fast = false
[agents.a]
instructions = "x"
tools = ["bash", "write_file"]
sub_agents = ["b"]
[agents.b]
instructions = "x"
tools = ["bash"]
[tasks.first]
run = "echo first >> effects"
[tasks.one]
agent = "a"
prompt = "one"
depends_on = ["first"]
[tasks.two]
agent = "b"
prompt = "two"
depends_on = ["first"]
[tasks.last]
run = "echo last >> effects"
depends_on = ["one", "two"]
join = "all_done"
"#;

const SCRIPT: &str = r#"
[[rules]]
agent = "a"
turn = "1..2"
[[rules.calls]]
tool = "bash"
input = { command = "echo {{ agent_id }}-{{ turn }}-x >> effects" }
[[rules.calls]]
tool = "bash"
input = { command = "echo {{ agent_id }}-{{ turn }}-y >> effects" }
[[rules]]
agent = "a"
turn = 3
[[rules.calls]]
tool = "delegate"
input = { agent = "b", prompt = "help" }
[[rules.calls]]
tool = "write_file"
input = { path = "{{ agent_id }}.txt", content = "done" }
[[rules]]
agent = "b"
turn = "1..3"
[[rules.calls]]
tool = "bash"
input = { command = "echo {{ agent_id }}-{{ turn }} >> effects" }
[[rules]]
say = "done"
"#;

struct Trial {
    desk: Desk,
    random: fastrand::Rng,
    /// True if commands may have ended after the kill.
    is_graced: bool,
}

impl Trial {
    /// Runs the work, to its end or to a `kill -9` somewhere amid it.
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let is_graced = random.bool();
        let grace = if is_graced { "[limits]\n" } else { "[limits]\norphan_grace = '0s'\n" };
        let desk = Desk::offline(&WORK.replace("[limits]\n", grace), SCRIPT);
        let mut live = desk.start(&["run"]);
        if random.bool() {
            let records = random.usize(8..60);
            wait("records or the end", || {
                let path = desk.runs().first().map(|run| run.join("journal.jsonl"))?;
                let text = fs::read_to_string(path).unwrap_or_default();
                (text.lines().count() > records || live.has_ended()).then_some(())
            });
            live.signal("KILL");
        }
        live.end();
        Self { desk, random, is_graced }
    }

    fn journal(&self) -> PathBuf {
        self.desk.runs()[0].join("journal.jsonl")
    }

    /// The lines of the journal that are whole, and the offset of each.
    fn lines(&self) -> Vec<(usize, serde_json::Value)> {
        let text = fs::read_to_string(self.journal()).expect("a journal");
        let (mut at, mut lines) = (0, Vec::new());
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            lines.push((at, serde_json::from_str(line).expect("JSON")));
            at += line.len();
        }
        lines
    }

    fn effects(&self) -> BTreeMap<String, usize> {
        let text = fs::read_to_string(self.desk.path().join("effects")).unwrap_or_default();
        let mut effects = BTreeMap::new();
        text.lines().for_each(|line| *effects.entry(line.to_owned()).or_default() += 1);
        effects
    }

    /// Goes on at the place that the program names, to the end, and checks the effects.
    fn go_on(&self, what: &str) {
        let before = self.effects();
        let proof = |name: &str| {
            let entries = fs::read_dir(&self.desk.runs()[0]).expect("a folder");
            let names = entries.map(|e| e.expect("an entry").file_name().into_string());
            names.flatten().filter(|n| n.starts_with(name) || n.starts_with("lost-")).count()
        };
        let refused = self.desk.call(&["resume"]);
        let mut code = refused.code;
        if code != 74 {
            // The damage or the loss was in what was never acknowledged.
            assert!(refused.err.contains("torn end") || code == 0, "{what}: {}", refused.err);
            assert!([0, 1, 8].contains(&code), "{what}: {}", refused.err);
        } else {
            assert_eq!(self.desk.call(&["rebuild", "desk"]).code, 74, "{what}");
            let at = refused.err.split("--truncate-at ").nth(1).expect("a way out");
            let at: String = at.chars().take_while(char::is_ascii_digit).collect();
            let foretold = self.desk.call(&["resume", "--truncate-at", &at, "--explain"]);
            assert_eq!(foretold.code, 0, "{what}: {}", foretold.err);
            assert_eq!(proof("torn-cut-"), 0, "{what}");
            assert!(self.is_graced || self.effects() == before, "{what}");
            let done = self.desk.call(&["resume", "--truncate-at", &at]);
            assert!(proof("torn-cut-") > 0, "{what}: {}", done.err);
            // What is unknown fails a command's task, and everything else completes.
            assert!([0, 1, 8].contains(&done.code), "{what}: {} {}", done.code, done.err);
            code = done.code;
        }
        let after = self.effects();
        for (effect, times) in &after {
            assert_eq!(*times, 1, "{what}: `{effect}` happened {times} times\n{after:#?}");
        }
        assert!(before.keys().all(|effect| after.contains_key(effect)), "{what}");
        if code != 0 {
            // A task whose command is unknown has failed, and others were skipped for it.
            return;
        }
        // All that did not happen was told.
        let all = ["first", "last", "one-1-x", "one-1-y", "one-2-x", "one-2-y"];
        let missing = all.iter().filter(|effect| !after.contains_key(**effect)).count();
        let lines = self.lines();
        let told = lines.iter().filter(|(_, record)| {
            record["type"] == "tool.finished" && record["data"]["status"] == "unknown"
        });
        let told = told.count();
        assert!(missing <= told, "{what}: {missing} missing, {told} told: {after:#?}");
    }
}

/// A byte of a record is changed, and the journal is cut there.
fn damaged(seed: u64) {
    let mut trial = Trial::new(seed);
    let lines = trial.lines();
    // The first batch holds the creation of the run: without it nothing can go on.
    let at = trial.random.usize(2..lines.len());
    let (mut bytes, offset) = (fs::read(trial.journal()).expect("a journal"), lines[at].0);
    for _ in 0..trial.random.usize(1..4) {
        let place = trial.random.usize(0..bytes.len() - offset);
        bytes[offset + place] ^= 1 << trial.random.u8(0..7);
    }
    // The first damage is that of this record.
    bytes[offset + 30] ^= 4;
    fs::write(trial.journal(), bytes).expect("written");
    trial.go_on(&format!("seed {seed}, damaged from record {} on", at + 1));
}

/// An older copy of the journal is put back.
fn rolled_back(seed: u64) {
    let mut trial = Trial::new(seed);
    let lines = trial.lines();
    let ends: Vec<usize> = (3..lines.len()).filter(|at| lines[at - 1].1["be"] == true).collect();
    let at = ends[trial.random.usize(0..ends.len())];
    let bytes = fs::read(trial.journal()).expect("a journal");
    // Sometimes in the middle of a record, as a disk leaves it that lost what it had confirmed.
    let torn = if trial.random.u8(0..3) == 0 { trial.random.usize(1..20) } else { 0 };
    fs::write(trial.journal(), &bytes[..lines[at].0 - torn]).expect("written");
    if trial.random.bool() {
        fs::remove_dir_all(trial.desk.runs()[0].join("snapshots")).expect("removed");
    }
    trial.go_on(&format!("seed {seed}, rolled back to {at} records"));
}

fn trials(seeds: std::ops::Range<u64>, trial: fn(u64)) {
    std::thread::scope(|scope| {
        let (even, odd): (Vec<u64>, Vec<u64>) = seeds.partition(|seed| seed % 2 == 0);
        for half in [even, odd] {
            scope.spawn(move || half.into_iter().for_each(trial));
        }
    });
}

#[test]
fn what_a_damaged_journal_told_is_not_done_again() {
    trials(0..8, damaged);
}

#[test]
fn what_an_older_journal_does_not_tell_is_not_done_again() {
    trials(0..8, rolled_back);
}

/// A journal that grew past the last acknowledged record again, or another run's, is as long as it should be.
#[test]
fn another_journal_in_the_place_of_the_acknowledged_one_is_refused() {
    let desk = Desk::offline(WORK, SCRIPT);
    for _ in 0..2 {
        assert_eq!(desk.call(&["run"]).code, 0);
    }
    let number = |run: &PathBuf| {
        let journal = fs::read_to_string(run.join("journal.jsonl"));
        journal.expect("a journal").lines().count()
    };
    let mut runs = desk.runs();
    runs.sort_by_key(number);
    let id = runs[0].file_name().and_then(|name| name.to_str()).expect("an id");
    let (journal, next) = (runs[0].join("journal.jsonl"), number(&runs[1]) + 1);
    let own = fs::read(&journal).expect("a journal");
    fs::copy(runs[1].join("journal.jsonl"), &journal).expect("copied");
    let refused = desk.call(&["resume", id]);
    assert_eq!(refused.code, 74, "{}", refused.err);
    assert!(refused.err.contains("is not the one that was acknowledged"), "{}", refused.err);
    assert!(refused.err.contains(&format!("--truncate-at {next}")), "{}", refused.err);
    assert_eq!(desk.call(&["resume", id, "--explain"]).code, 74);
    assert_eq!(desk.call(&["rebuild", id]).code, 74);
    fs::write(&journal, own).expect("written");
    assert_eq!(desk.call(&["resume", id]).code, 0);
}

#[test]
#[ignore = "takes three minutes: a hundred trials of each kind"]
fn a_hundred_journals_of_each_kind() {
    trials(100..200, damaged);
    trials(200..300, rolled_back);
}
