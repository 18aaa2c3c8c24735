//! `prune` and `keep_runs`: old runs go, and what they cost stays in every sum, over crashes too.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use callsheet::crash::Point;
use serde_json::{Value, json};

use crate::support::desk::{Desk, Done, wait};

const GRAPH: &str = r#"
[models.default.cost_per_mtok]
input = 1000.0
output = 2000.0
[agents.one]
model = "default"
instructions = "x"
[tasks.ask]
agent = "one"
prompt = "go"
[tasks.gate]
depends_on = ["ask"]
when = "inputs.gate"
[tasks.gate.approval]
message = "On?"
[tasks.wait]
depends_on = ["ask"]
when = "inputs.wait"
run = "touch began; while [ ! -e end ]; do sleep 0.01; done"
[inputs.gate]
type = "boolean"
default = false
[inputs.wait]
type = "boolean"
default = false
"#;

const SCRIPT: &str = "[[rules]]\nsay = \"done\"\n";

fn desk(rest: &str) -> Desk {
    Desk::offline(&format!("{GRAPH}{rest}"), SCRIPT)
}

/// The rows of the runs, without order, and the sum by model.
fn bill(desk: &Desk) -> (Vec<Value>, Vec<Value>) {
    let mut rows = desk.json(&["cost", "--all", "--json"]);
    rows.sort_by_key(|row| row["name"].to_string());
    (rows, desk.json(&["cost", "--all", "--by", "model", "--json"]))
}

fn ids(rows: &[Value]) -> Vec<String> {
    rows.iter().map(|row| row["run"].as_str().expect("an id").to_owned()).collect()
}

fn id_of_newest(desk: &Desk) -> String {
    let newest = desk.runs().pop().expect("a run");
    newest.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn what_a_removed_run_cost_stays_in_every_sum() {
    let desk = desk("");
    desk.good(&["run"]);
    let parent = id_of_newest(&desk);
    // Of a fork only its own part counts, whether its parent is there or not.
    let events = desk.json(&["tail", "--json", &parent]);
    let seq = events.iter().find(|e| e["type"] == "task.started").expect("it began")["seq"].clone();
    desk.good(&["fork", &format!("{parent}@{seq}")]);
    let fork = id_of_newest(&desk);
    desk.good(&["run"]);
    let before = bill(&desk);
    assert_eq!(before.0.len(), 3);

    let dry = desk.json(&["prune", "--keep", "1", "--dry-run", "--json"]);
    assert_eq!(ids(&dry), [fork.clone(), parent.clone()]);
    assert!(
        dry.iter().all(|row| row["removed"] == false && row["state"] == "completed"),
        "{dry:?}"
    );
    assert_eq!((desk.runs().len(), bill(&desk)), (3, before.clone()));
    let text = desk.good(&["prune", "--keep", "2", "--dry-run"]);
    assert!(text.contains("would remove 1 run that cost $"), "{text}");

    // The parent goes, and its fork needs nothing of it.
    let gone = desk.json(&["prune", "--keep", "2", "--json"]);
    assert_eq!((ids(&gone), &gone[0]["removed"]), (vec![parent.clone()], &json!(true)));
    assert_eq!(desk.runs().len(), 2);
    desk.good(&["report", &fork]);
    desk.good(&["show", &format!("{fork}/@ask"), "--transcript"]);
    assert_eq!(bill(&desk), before);
    let text = desk.good(&["prune", "--older-than", "1h"]);
    assert_eq!(text, "removed no run\n");
    let text = desk.good(&["prune", "--keep", "0"]);
    assert!(text.contains("removed 2 runs that cost $"), "{text}");
    assert_eq!((desk.runs().len(), bill(&desk)), (0, before));

    assert_eq!(desk.json(&["cost", "--since", "1h", "--json"]).len(), 3);
    assert_eq!(desk.json(&["cost", "--since", "1ms", "--json"]).len(), 0);
    assert!(desk.good(&["cost", "--all"]).contains(" desk (removed) "));
    let lines = fs::metadata(desk.path().join(".transcripts/pruned.jsonl")).expect("a file");
    assert_eq!(lines.permissions().mode() & 0o777, 0o600);
    let shown = desk.call(&["show", &parent]);
    assert!(shown.code == 1 && shown.err.contains("was removed"), "{}", shown.err);
    assert_eq!(desk.call(&["prune"]).code, 2);
}

#[test]
fn the_newest_runs_are_those_that_began_last_whatever_their_ids() {
    let desk = desk("");
    let oldest = "ffffffff-ffff-4fff-8fff-ffffffffffff";
    desk.good(&["run", "--run-id", oldest]);
    desk.good(&["run"]);
    let newest = "00000000-0000-4000-8000-000000000000";
    desk.good(&["run", "--run-id", newest]);
    let gone = ids(&desk.json(&["prune", "--keep", "1", "--dry-run", "--json"]));
    assert_eq!((gone.len(), gone[1].as_str()), (2, oldest));
    assert!(!gone.contains(&newest.to_owned()));
}

#[test]
fn two_that_prune_at_once_remove_each_run_once() {
    let desk = desk("");
    (0..6).for_each(|_| drop(desk.good(&["run"])));
    let before = bill(&desk);
    let both = [(); 2].map(|()| desk.start(&["prune", "--keep", "1", "--json"]));
    let done = both.map(|live| live.end());
    let mut gone = Vec::new();
    for done in &done {
        assert!(done.code == 0 && !done.err.contains("error"), "{}", done.err);
        gone.extend(ids(&crate::support::desk::lines(&done.out)));
    }
    gone.sort();
    gone.dedup();
    assert_eq!((gone.len(), desk.runs().len()), (5, 1), "{gone:?}");
    assert_eq!(bill(&desk), before);
}

#[test]
fn what_has_not_ended_stays() {
    let desk = desk("");
    assert_eq!(desk.call(&["run", "--input", "gate=true"]).code, 6);
    let resting = id_of_newest(&desk);
    let live = desk.start(&["run", "--also", "--input", "wait=true"]);
    wait("the command", || desk.path().join("began").exists().then_some(()));
    let at_work = id_of_newest(&desk);
    desk.good(&["run", "--also"]);
    let (before, rows) = (bill(&desk).0.len(), desk.call(&["prune", "--keep", "0", "--json"]));
    assert_eq!((rows.code, rows.out.lines().count()), (0, 1), "{}", rows.err);
    let kept = "note: 2 runs stay, not ended or in use";
    assert!(rows.err.contains(kept), "{}", rows.err);
    let names: Vec<_> = desk.runs().iter().map(|run| run.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, [resting.as_str(), at_work.as_str()]);
    assert_eq!(bill(&desk).0.len(), before);
    desk.write("end", "");
    assert_eq!(live.end().code, 0);
    // What waited goes on, and what ended may go.
    assert_eq!(desk.json(&["prune", "--keep", "0", "--json"]).len(), 1);
    let question = desk.json(&["pending", "--json"]);
    desk.good(&["approve", question[0]["id"].as_str().expect("an id")]);
    desk.good(&["resume", &resting]);
}

#[test]
fn a_removal_that_is_cut_short_neither_loses_a_bill_nor_counts_it_twice() {
    for (point, left) in [(Point::HalfBill, 2), (Point::AfterBill, 2), (Point::AfterRename, 1)] {
        let desk = desk("");
        desk.good(&["run"]);
        desk.good(&["run"]);
        let before = bill(&desk);
        let mut command = desk.command(&["prune", "--keep", "1"]);
        command.env("CALLSHEET_CRASH_AT", format!("{}:1", point.name()));
        let crashed = Done::of(&mut command);
        assert_eq!(crashed.code, -1, "{point:?}: {}", crashed.err);
        assert_eq!((desk.runs().len(), bill(&desk)), (left, before.clone()), "{point:?}");
        desk.good(&["prune", "--keep", "1"]);
        assert_eq!((desk.runs().len(), bill(&desk)), (1, before.clone()), "{point:?}");
        // Nothing else is left.
        let mut names: Vec<_> = fs::read_dir(desk.path().join(".transcripts"))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        assert_eq!(names, [id_of_newest(&desk), "pruned.jsonl".to_owned()], "{point:?}");
        desk.good(&["prune", "--keep", "0"]);
        assert_eq!(bill(&desk), before, "{point:?}");
    }
}

#[test]
fn a_run_that_went_on_after_its_removal_was_cut_short_counts_as_it_is() {
    let desk = Desk::offline(
        &format!(
            "{GRAPH}[tasks.end]\nrun = \"test -e good\"\ndepends_on = [\"ask\"]\n\
                  [tasks.more]\nagent = \"one\"\nprompt = \"on\"\ndepends_on = [\"end\"]\n"
        ),
        SCRIPT,
    );
    assert_ne!(desk.call(&["run"]).code, 0);
    let mut command = desk.command(&["prune", "--keep", "0"]);
    command.env("CALLSHEET_CRASH_AT", "after-bill:1");
    assert_eq!(Done::of(&mut command).code, -1);
    let first = bill(&desk);
    desk.write("good", "");
    desk.good(&["resume", "--retry-failed"]);
    let second = bill(&desk);
    assert_ne!(first, second);
    desk.good(&["prune", "--keep", "0"]);
    assert_eq!((desk.runs().len(), bill(&desk)), (0, second));
}

#[test]
fn keep_runs_removes_old_runs_of_the_file_as_one_begins() {
    let desk = desk("[state]\nkeep_runs = 2\n");
    let text = desk.read("agents.toml");
    desk.write("other.toml", &text.replace("keep_runs = 2", ""));
    let log = |arguments: &[&str]| {
        let done = desk.call(arguments);
        assert_eq!(done.code, 0, "{}", done.err);
        done.err.lines().filter(|line| line.contains("old runs were removed")).count()
    };
    desk.good(&["run", "-f", "other.toml"]);
    let other = id_of_newest(&desk);
    assert_eq!([log(&["run", "-v"]), log(&["run", "-v"]), log(&["run", "-v"])], [0, 0, 1]);
    assert_eq!(log(&["run"]), 0, "it is quiet");
    let names: Vec<_> = desk.runs().iter().map(|run| run.file_name().unwrap().to_owned()).collect();
    assert_eq!((names.len(), names[0].to_str()), (3, Some(other.as_str())));
    assert_eq!(bill(&desk).0.len(), 5);
    // A run that waits for somebody stays, however many are newer.
    assert_eq!(desk.call(&["run", "--input", "gate=true"]).code, 6);
    let resting = id_of_newest(&desk);
    for _ in 0..3 {
        desk.good(&["run"]);
    }
    assert!(desk.runs().iter().any(|run| run.ends_with(&resting)), "{:?}", desk.runs());
    assert_eq!((desk.runs().len(), bill(&desk).0.len()), (4, 9));
}
