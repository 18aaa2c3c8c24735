//! Disks without room, real ones as far as the system lets a test have one.

use std::process::Command;

use crate::support::desk::{Desk, Done, lines};

const MOUNT: &str = "mount -t tmpfs -o size=8m none small || exit 99\n";

/// Starts a run whose state is in a small file system, where a task leaves no room, and waits until
/// it says that it waits.
const RUN: &str = r#"
"$0" run --json --state-dir small/state > events 2> said &
for second in $(seq 300); do
  grep -q '"run.paused"' events && break
  sleep 0.1
done
"#;

const GO_ON: &str = r#"
"$0" ps --json --state-dir small/state > rows
rm small/fill
wait $!
code=$?
cat small/state/*/journal.jsonl > journal
ls small/state/* > left
exit $code
"#;

/// Killed while it waits, and taken up while there is no room at all: it waits again or, when not
/// even that can be recorded, ends. Then there is room.
const KILL: &str = r#"
kill -9 $!
wait $!
dd if=/dev/zero of=small/more bs=512 2> /dev/null
"$0" resume --json --state-dir small/state > events 2>> said &
for second in $(seq 300); do
  grep -q '"run.paused"' events && break
  kill -0 $! 2> /dev/null || break
  sleep 0.1
done
rm small/fill small/more
wait $!
code=$?
if [ $code = 74 ]; then
  "$0" resume --json --state-dir small/state > events 2>> said
  code=$?
fi
cat small/state/*/journal.jsonl > journal
exit $code
"#;

/// The program is killed when its only task has used up all room, also that which was kept aside, and
/// its result is kept.
const DIE: &str = r#"
CALLSHEET_CRASH_AT=parent-after-spool:1 "$0" run --state-dir small/state 2> said
rm small/fill small/more
"$0" resume --json --state-dir small/state > events 2>> said
"#;

const FILL_ALL: &str = r#"
[tasks.fill]
run = """
dd if=/dev/zero of=small/fill bs=4k 2> /dev/null
while ls small/state/*/reserve > /dev/null 2>&1; do sleep 0.01; done
dd if=/dev/zero of=small/more bs=4k 2> /dev/null
echo filled
"""
"#;

/// The output is larger than a page, so that its record does not fit in what is left of the
/// journal's last one.
const FILL: &str = r#"
[tasks.fill]
run = '''
# Until nothing more fits five times in a row: files of the run are removed in the meantime.
still=0
while [ $still -lt 5 ]; do
  before=$(stat -c %s small/fill 2> /dev/null)
  dd if=/dev/zero bs=4k 2> /dev/null >> small/fill
  if [ "$before" = "$(stat -c %s small/fill)" ]; then still=$((still + 1)); else still=0; fi
  sleep 0.02
done
echo filled
head -c 9000 /dev/zero | tr '\0' x
'''
[tasks.after]
run = "echo done"
depends_on = ["fill"]
"#;

/// Runs a script with a small file system of its own in `small`, or says why the system does not
/// give it one.
fn in_a_small_place(tasks: &str, script: &str) -> Result<(Desk, Done), String> {
    if !Command::new("unshare").args(["-r", "-m", "true"]).status().is_ok_and(|s| s.success()) {
        return Err("this system gives no mount namespace".to_owned());
    }
    let desk = Desk::commands(tasks);
    std::fs::create_dir(desk.path().join("small")).expect("a folder");
    let script = format!("{MOUNT}{script}");
    let mut unshare = Command::new("unshare");
    unshare.args(["-r", "-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_callsheet")]);
    desk.bare(&mut unshare);
    let done = Done::of(&mut unshare);
    if done.code == 99 {
        return Err(format!("this system mounts no tmpfs: {}", done.err));
    }
    Ok((desk, done))
}

#[test]
fn a_full_disk_pauses_the_run_and_room_lets_it_go_on() {
    let (desk, done) = match in_a_small_place(FILL, &format!("{RUN}{GO_ON}")) {
        Ok(done) => done,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let said = desk.read("said");
    assert_eq!(done.code, 0, "{said}{}", done.err);
    let events = lines(&desk.read("events"));
    let kinds: Vec<_> =
        events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    let at = |kind| kinds.iter().rposition(|k| *k == kind).unwrap_or_else(|| panic!("{kinds:?}"));
    let (paused, opened) = (at("run.paused"), at("run.opened"));
    assert!(paused < opened && opened < at("run.completed"), "{kinds:?}");
    assert_eq!(events[paused]["data"]["cause"], "disk_full");
    assert!(events[opened]["data"]["reason"].is_string() && events[opened]["ep"] == 1);
    let started = events.iter().position(|e| e["type"] == "task.started" && e["task"] == "after");
    assert!(started.is_some_and(|started| started > opened), "{kinds:?}");
    let result = events.iter().find(|event| event["type"] == "tool.finished").expect("a result");
    assert!(result.to_string().contains("filled"), "the result in flight is kept: {result}");
    let row = &lines(&desk.read("rows"))[0];
    assert_eq!((row["kind"].as_str(), row["state"].as_str()), (Some("run"), Some("paused")));
    assert!(row["waiting_for"].as_str().is_some_and(|w| w.starts_with("disk full")), "{row}");
    assert_eq!(desk.read("journal").lines().count(), events.len());
    assert!(!desk.read("left").contains("reserve"), "a run that has ended keeps nothing aside");
}

#[test]
fn a_run_that_was_killed_while_it_waited_is_taken_up_when_there_is_room() {
    let (desk, done) = match in_a_small_place(FILL, &format!("{RUN}{KILL}")) {
        Ok(done) => done,
        Err(reason) => return println!("skipped: {reason}"),
    };
    assert_eq!(done.code, 0, "{}{}", desk.read("said"), done.err);
    let events = lines(&desk.read("events"));
    assert_eq!(events.last().expect("events")["data"]["status"], "completed");
    let journal = desk.read("journal");
    assert_eq!(journal.matches("\"tool.started\"").count(), 2, "no command is run twice");
    let ends = lines(&journal).into_iter().filter(|event| event["type"] == "task.completed");
    assert_eq!(ends.count(), 2);
}

#[test]
fn a_result_is_kept_where_there_is_no_room() {
    let (desk, done) = match in_a_small_place(FILL_ALL, DIE) {
        Ok(done) => done,
        Err(reason) => return println!("skipped: {reason}"),
    };
    assert_eq!(done.code, 0, "{}{}", desk.read("said"), done.err);
    let events = lines(&desk.read("events"));
    let result = events.iter().find(|event| event["type"] == "tool.finished").expect("a result");
    assert_eq!(
        (&result["data"]["status"], &result["data"]["source"]),
        (&"ok".into(), &"spool".into())
    );
    assert!(result.to_string().contains("filled"), "{result}");
}

const LARGE: &str = r#"
[tasks.small]
run = "echo little"
[tasks.large]
run = "seq 5000"
depends_on = ["small"]
"#;

#[test]
fn a_journal_that_may_not_grow_ends_with_74_and_keeps_what_it_has() {
    let desk = Desk::commands(LARGE);
    // In the blocks of 512 bytes that POSIX has for it.
    let limited = r#"ulimit -f 40 && exec "$0" run --json"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_callsheet")]);
    desk.bare(&mut shell);
    let done = Done::of(&mut shell);
    assert_eq!(done.code, 74, "{}", done.err);
    assert!(done.err.contains("the disk is full"), "{}", done.err);
    let events = lines(&done.out);
    let has =
        |kind: &str, task: &str| events.iter().any(|e| e["type"] == kind && e["task"] == task);
    assert!(has("task.completed", "small") && !has("task.completed", "large"));
    let journal = std::fs::read(desk.runs()[0].join("journal.jsonl")).expect("a journal");
    assert!(journal.ends_with(b"\n") && journal.len() <= 40 * 512, "no half batch is left");
}
