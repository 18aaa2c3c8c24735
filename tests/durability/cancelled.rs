//! Runs that no process drives and that are cancelled, whole or in part, wherever they had stopped.

use std::fs;
use std::path::Path;

use crate::support::desk::Desk;

/// Fan-outs, one of them in a sub-graph, an agent that calls a tool, and what waits for them.
const GRAPH: &str = r#"
[agents.worker]
instructions = "Work."
tools = ["bash"]
[tasks.each]
foreach = "['a', 'b', 'c']"
run = "echo one"
idempotent = true
[tasks.part]
workflow = "part.toml"
[tasks.work]
agent = "worker"
prompt = "Work."
[tasks.after]
depends_on = ["each", "part", "work"]
join = "all_done"
run = "echo after"
idempotent = true
"#;

const PART: &str = r#"
version = 1
[tasks.inner]
foreach = "['x', 'y']"
run = "echo one"
idempotent = true
[tasks.sum]
depends_on = ["inner"]
run = "echo sum"
idempotent = true
"#;

const SCRIPT: &str = r#"
[[rules]]
turn = 1
calls = [{ tool = "bash", input = { command = "echo tool" } }]
[[rules]]
say = "done"
"#;

fn desk() -> Desk {
    let desk = Desk::offline(GRAPH, SCRIPT);
    desk.write("part.toml", PART);
    desk
}

/// The offsets behind each batch of a journal.
fn batch_ends(journal: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut offset = 0;
    for line in journal.split_inclusive('\n') {
        offset += line.len();
        if line.contains("\"be\":true") {
            ends.push(offset);
        }
    }
    ends
}

/// Puts a run back to where its journal had this length, as if its process had been killed there.
fn cut(run: &Path, whole: &str, length: usize) {
    fs::write(run.join("journal.jsonl"), &whole[..length]).expect("written");
    for own in ["acknowledged", "started"] {
        // Not every run has both.
        let _ = fs::remove_file(run.join(own));
    }
    for name in ["snapshots", "spool", "agents"] {
        fs::remove_dir_all(run.join(name)).expect("removed");
        fs::create_dir(run.join(name)).expect("made");
    }
}

#[test]
fn a_run_that_stopped_anywhere_can_be_cancelled_whole_and_in_part() {
    let desk = desk();
    let ran = desk.call(&["run"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let run = desk.runs().remove(0);
    let id = run.file_name().expect("an id").to_string_lossy().into_owned();
    let whole = fs::read_to_string(run.join("journal.jsonl")).expect("a journal");
    let ends = batch_ends(&whole);
    assert!(ends.len() > 20, "{}", ends.len());
    let mut cancelled = 0;
    // The last batch ends the run.
    for (number, end) in ends[..ends.len() - 1].iter().enumerate().step_by(2) {
        let part = ["", "/each", "/part", "/work", "/part/inner", "", "/each[1]"][number / 2 % 7];
        cut(&run, &whole, *end);
        let what = format!("{id}{part} at batch {number}");
        let done = desk.call(&["cancel", &format!("{id}{part}")]);
        // A part that has not begun, or has ended, is refused by name.
        assert!(done.code == 0 || (done.code == 1 && !part.is_empty()), "{what}: {}", done.err);
        if done.code == 1 {
            continue;
        }
        cancelled += 1;
        let rows = desk.json(&["ps", "--tree", "-a", "--json"]);
        if part.is_empty() {
            // Nothing is cancelled where every task had ended.
            let tasks = rows.iter().filter(|row| row["kind"] == "task");
            let is_whole = tasks.clone().all(|row| row["state"] == "completed");
            let state = if is_whole { "completed" } else { "cancelled" };
            assert_eq!(rows[0]["state"], state, "{what}: {rows:?}");
            assert!(rows.iter().all(|row| row["state"] != "running"), "{what}: {rows:?}");
            continue;
        }
        // What is left is done, once, and what follows is told.
        let resumed = desk.call(&["resume", &id]);
        assert!([0, 1, 8].contains(&resumed.code), "{what}: {} {}", resumed.code, resumed.err);
        let rows = desk.json(&["ps", "--tree", "-a", "--json"]);
        let after = rows.iter().find(|row| row["name"] == "after").expect("a row");
        assert_eq!(after["state"], "completed", "{what}: {rows:?}");
    }
    assert!(cancelled > ends.len() / 4, "{cancelled} of {}", ends.len());
}
