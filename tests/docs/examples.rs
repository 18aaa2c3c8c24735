//! Runs the examples, which must print exactly this.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `cargo test` puts the examples beside the program, in a folder of their own. With `--test suite`
/// it does not build them; `cargo build --examples` makes up for that.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_callsheet")).with_file_name("examples").join(name)
}

fn prints(name: &str, expected: &str) {
    let source = format!("{}/examples/{name}.rs", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(source).expect("the example's source");
    let first = source.lines().next().unwrap_or_default();
    assert!(first.starts_with(&format!("//! `cargo run --example {name}`: ")), "{first}");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let made = Command::new(built(name)).current_dir(elsewhere.path()).output();
    let made = made.unwrap_or_else(|error| panic!("{}: {error}", built(name).display()));
    let (out, talk) =
        (String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    assert_eq!((made.status.code(), &*out, &*talk), (Some(0), expected, ""));
    let left = std::fs::read_dir(elsewhere.path()).expect("the directory").count();
    assert_eq!(left, 0, "an example works in a directory of its own");
}

#[test]
fn single_agent() {
    prints("single_agent", "Good morning, Ada.\n");
}

#[test]
fn fan_out() {
    prints("fan_out", "arrival, in one line\nstorm, in one line\nharbour, in one line\n");
}

#[test]
fn own_tool() {
    prints("own_tool", "`actor` has 5 letters.\n");
}

#[test]
fn custom_model() {
    prints("custom_model", "HELLO, AGAIN\n");
}

#[test]
fn answer_questions() {
    let expected = "note asks for write_file: true
note says: It is written.
Publish the note?
It rained. true
";
    prints("answer_questions", expected);
}

#[test]
fn tail_a_run() {
    let expected = " 1 -     run.created
 2 -     run.opened
 3 -     task.ready
 4 -     task.started
 5 verse agent.spawned
 6 verse turn.started
 7 verse model.requested
 8 verse model.responded
 9 verse turn.started
10 verse model.requested
11 verse model.responded
12 verse agent.ended
13 -     task.completed
14 -     run.completed
It rains on the roof, and the roof holds.
";
    prints("tail_a_run", expected);
}
