//! The journals that released versions wrote: this one reads, folds, rebuilds and resumes them.

use std::fs;
use std::path::{Path, PathBuf};

use callsheet::journal::held::HeldRun;
use callsheet::journal::source::{Cursor, RunSource};
use callsheet::report::evidence;
use callsheet::run::fork_points::fork_points;

use crate::support::desk::Desk;
use crate::support::test_run::RunFolder;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/journals");
const ID: &str = "019a0000-0000-7000-8000-00000000c001";

/// The folders of the versions.
fn versions() -> Vec<PathBuf> {
    let entries = fs::read_dir(CORPUS).expect("the journals").map(|e| e.expect("an entry").path());
    let versions: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert!(!versions.is_empty());
    versions
}

/// A workspace with the run of this journal, as nothing but the journal is left of it.
fn desk(journal: &Path) -> Desk {
    let desk = Desk::empty();
    for file in ["agents.toml", "script.toml"] {
        desk.write(file, &fs::read_to_string(Path::new(CORPUS).join(file)).expect("a file"));
    }
    desk.write("go", "");
    let run = format!(".transcripts/{ID}");
    desk.write(&format!("{run}/journal.jsonl"), &fs::read_to_string(journal).expect("a journal"));
    for folder in ["agents", "results", "spool", "snapshots"] {
        fs::create_dir(desk.path().join(&run).join(folder)).expect("made");
    }
    desk
}

/// What stays the same whoever reads the journal.
fn told(desk: &Desk) -> (Vec<String>, String) {
    let events = desk.json(&["tail", "--json"]);
    let kinds = events.iter().map(|event| format!("{} {}", event["seq"], event["type"]));
    let end = events.last().expect("an event")["data"]["tasks"].to_string();
    (kinds.collect(), end)
}

#[test]
fn every_version_reads_what_every_other_wrote() {
    for version in versions() {
        for name in ["ended.jsonl", "stopped.jsonl"] {
            let path = version.join(name);
            let desk = desk(&path);
            let what = path.display();
            let lines = fs::read_to_string(&path).expect("a journal").lines().count();
            assert_eq!(told(&desk).0.len(), lines, "{what}");
            let rows = desk.json(&["ps", "-a", "--json"]);
            let state = if name == "ended.jsonl" { "partial" } else { "stopped" };
            assert_eq!(rows[0]["state"], state, "{what}");
            assert!(rows.iter().any(|row| row["name"] == "one/b-1"), "{what}: {rows:?}");
            assert!(!desk.json(&["cost", "--json"]).is_empty(), "{what}");
            desk.good(&["rebuild", ID]);
            let transcript = desk.good(&["show", "@one", "--transcript"]);
            assert!(
                transcript.contains("help") && transcript.contains("noted"),
                "{what}: {transcript}"
            );
            assert!(desk.good(&["show", "/first", "--output"]).starts_with("1\n2\n"), "{what}");
            assert!(desk.good(&["report"]).contains("skipped"), "{what}");
        }
    }
}

#[test]
fn every_version_resumes_what_every_other_left() {
    for version in versions() {
        let ended = told(&desk(&version.join("ended.jsonl"))).1;
        let left = desk(&version.join("stopped.jsonl"));
        let done = left.call(&["resume"]);
        assert_eq!(done.code, 8, "{}: {}", version.display(), done.err);
        assert_eq!(told(&left).1, ended, "{}", version.display());
        // One that has ended is left alone, with its code.
        let over = desk(&version.join("ended.jsonl"));
        let before = told(&over);
        assert_eq!(over.call(&["resume"]).code, 8);
        assert_eq!(told(&over), before);
        let again = over.call(&["resume", "--retry-failed"]);
        assert_eq!(again.code, 8, "{}", again.err);
    }
}

/// The batches of a run, put into memory.
fn in_memory(run: &dyn RunSource) -> HeldRun {
    let held = HeldRun::new(run.name());
    let mut batches = run.batches(Cursor::START).expect("a journal");
    while let Some(batch) = batches.next_batch().expect("a batch") {
        held.add(batch);
    }
    held
}

#[test]
fn what_readers_say_of_a_run_does_not_depend_on_where_it_is_kept() {
    for version in versions() {
        for name in ["ended.jsonl", "stopped.jsonl"] {
            let desk = desk(&version.join(name));
            let dir = RunFolder::at(desk.path().join(".transcripts").join(ID));
            let (disk, memory): (&dyn RunSource, &dyn RunSource) = (&*dir, &in_memory(&*dir));
            let (mut seen, mut held) = (Vec::new(), Vec::new());
            let (of_disk, read) = disk.fold(|record| seen.push(record.clone()));
            read.expect("it is whole");
            let (of_memory, read) = memory.fold(|record| held.push(record.clone()));
            read.expect("it is whole");
            assert!(seen.len() > 10 && seen == held, "{name}");
            assert_eq!(of_disk, of_memory, "{name}");
            assert_eq!(disk.state(|_| {}).0, memory.state(|_| {}).0, "{name}");
            for agent in of_disk.agents().keys() {
                let records = disk.agent_records(agent).expect("records");
                assert_eq!(records, memory.agent_records(agent).expect("records"), "{agent}");
            }
            assert_eq!(evidence::of_run(disk), evidence::of_run(memory), "{name}");
            let points = |run| format!("{:?}", fork_points(run).expect("read"));
            assert_eq!(points(disk), points(memory), "{name}");
        }
    }
}
