//! Stored results that are not what was recorded.

use std::fs;
use std::path::PathBuf;

use crate::support::desk::{Desk, Done, Live, wait};

/// A task whose output is stored, one that waits to be killed, and one that needs the first.
const TASKS: &str = r#"
[tasks.big]
run = "echo x >> made; seq 1 10000"
[tasks.slow]
run = "test -e go || { touch slow; sleep 60; }"
depends_on = ["big"]
retry = { max_attempts = 2, retry_on = ["interrupted"], initial_interval = "1ms" }
[tasks.last]
run = "tail -n 1"
stdin = "{{ tasks.big.output }}"
depends_on = ["big", "slow"]
"#;

/// A run that was killed when the first task had ended, with the only stored result.
fn killed() -> (Desk, PathBuf) {
    let desk = Desk::commands(TASKS);
    let run: Live = desk.start(&["run"]);
    wait("the second task", || desk.path().join("slow").exists().then_some(()));
    run.signal("KILL");
    run.end();
    desk.write("go", "");
    let results = desk.runs()[0].join("results");
    let only = fs::read_dir(results).expect("a folder").next().expect("a result");
    let path = only.expect("an entry").path();
    (desk, path)
}

/// The disk failed, and that is said with the file, the task and the way out, whose arguments are
/// given.
fn assert_lost(done: &Done, reason: &str) -> Vec<String> {
    assert_eq!((done.code, done.out.as_str()), (74, ""), "{}", done.err);
    let said = done.err.split_once("stored result ").expect(&done.err).1;
    assert!(said.contains(reason) && said.contains("/results/"), "{}", done.err);
    assert!(done.err.contains("\nhelp: task `big` made it. "), "{}", done.err);
    let command = done.err.split('`').find_map(|part| part.strip_prefix("callsheet "));
    command.expect("a command").split(' ').map(str::to_owned).collect()
}

#[test]
fn a_result_that_is_damaged_or_gone_is_the_disk_s_fault() {
    let (desk, path) = killed();
    let hash = path.file_name().expect("a name").to_str().expect("a hash").to_owned();
    let content = fs::read(&path).expect("a result");
    let mut wrong = content.clone();
    wrong[20_000] ^= 1;
    desk.write("agents.toml", &desk.read("agents.toml").replace("tail -n 1", "tail -n 2"));
    let verbs = [
        &["show", "--result", &hash][..],
        &["resume"],
        &["resume", "--accept-changes"],
        &["resume", "--accept-changes", "--explain"],
    ];
    for verb in verbs {
        fs::write(&path, &wrong).expect("written");
        assert_lost(&desk.call(verb), "it is damaged: its content has the hash ");
        fs::remove_file(&path).expect("removed");
        assert_lost(&desk.call(verb), "it is missing");
    }
    let folder = path.parent().expect("a folder");
    fs::remove_dir(folder).expect("removed");
    for verb in [&["show", "--result", &hash][..], &["resume"]] {
        assert_lost(&desk.call(verb), "it is missing");
    }
    let run = desk.json(&["ps", "--json"])[0]["run"].as_str().expect("an id").to_owned();
    assert_lost(&desk.call(&["fork", &format!("{run}@5")]), "it is missing");
    assert_eq!(desk.runs().len(), 1, "nothing half-made is left");
    assert_eq!(desk.call(&["show", "--result", &"ab".repeat(32)]).code, 1, "nobody recorded it");
    // With the file back the run goes on.
    fs::create_dir(folder).expect("made");
    fs::write(&path, &content).expect("written");
    desk.good(&["resume"]);
    assert_eq!(desk.read("made"), "x\n");
}

#[test]
fn what_was_lost_is_in_nobody_s_way_who_makes_it_again() {
    let (desk, path) = killed();
    fs::remove_file(&path).expect("removed");
    desk.write("agents.toml", &desk.read("agents.toml").replace("seq 1 10000", "seq 1 20000"));
    let said = desk.good(&["resume", "--accept-changes", "--explain"]);
    assert!(said.contains("changed: run"), "{said}");
    desk.good(&["resume", "--accept-changes"]);
    let last = desk.json(&["show", "/last", "--json"]).pop().expect("a task");
    assert_eq!(last["output"]["text"], "20000");
}

#[test]
fn what_was_lost_is_made_again_in_a_fork() {
    let (desk, path) = killed();
    // Of the same length: it is not taken for the whole when that is stored again.
    let content = fs::read(&path).expect("a result");
    fs::write(&path, vec![b'x'; content.len()]).expect("written");
    let way_out = assert_lost(&desk.call(&["resume"]), "it is damaged");
    let way_out: Vec<_> = way_out.iter().map(String::as_str).collect();
    assert_eq!(way_out[0], "fork");
    desk.good(&way_out);
    assert_eq!(desk.read("made"), "x\nx\n");
    let last = desk.json(&["show", "/last", "--json"]).pop().expect("a task");
    assert_eq!(last["output"]["text"], "10000");
    let new = desk.runs().pop().expect("a run").join("results").join(path.file_name().unwrap());
    assert_eq!(fs::read(new).expect("a result"), content);
}

#[test]
fn an_output_that_is_lost_before_its_task_is_settled_stops_the_run() {
    let (desk, path) = killed();
    let journal = desk.runs()[0].join("journal.jsonl");
    let text = fs::read_to_string(&journal).expect("a journal");
    let at = text.find("\"agent.ended\"").expect("the end of the first agent");
    let end = at + text[at..].find('\n').expect("a line") + 1;
    fs::write(&journal, &text[..end]).expect("written");
    fs::remove_file(desk.runs()[0].join("acknowledged")).expect("removed");
    fs::remove_dir_all(desk.runs()[0].join("snapshots")).expect("removed");
    fs::create_dir(desk.runs()[0].join("snapshots")).expect("made");
    let content = fs::read(&path).expect("a result");
    fs::write(&path, "x").expect("written");
    assert_lost(&desk.call(&["resume"]), "it is damaged");
    fs::write(&path, content).expect("written");
    desk.good(&["resume"]);
    assert_eq!(desk.read("made"), "x\n");
}

#[test]
fn a_folder_that_held_nothing_is_made_again() {
    let desk = Desk::commands("[tasks.one]\nrun = 'test -e go || { touch slow; sleep 60; }'\n");
    let run = desk.start(&["run"]);
    wait("the task", || desk.path().join("slow").exists().then_some(()));
    run.signal("KILL");
    run.end();
    fs::remove_dir(desk.runs()[0].join("results")).expect("removed");
    let done = desk.call(&["resume"]);
    assert!(done.code == 1 && done.out.contains("interrupted"), "{}{}", done.out, done.err);
}
