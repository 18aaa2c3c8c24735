//! What commands print while they run, in another terminal: at once, in order, bounded, and without secrets.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::support::desk::{Desk, wait};

/// The longest time for which a line may be on its way, however busy the machine is.
const LATEST: Duration = Duration::from_secs(10);

/// A `tail -f` whose lines are read as they come.
struct Tail {
    child: Child,
    lines: Arc<Mutex<Vec<(String, SystemTime)>>>,
}

impl Tail {
    fn of(desk: &Desk, more: &[&str]) -> Self {
        let arguments = [&["tail", "-f"][..], more].concat();
        let mut command = desk.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let lines = Arc::<Mutex<Vec<_>>>::default();
        let read = lines.clone();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                read.lock().expect("a lock").push((line, SystemTime::now()));
            }
        });
        Self { child, lines }
    }

    /// The lines so far that commands printed, without the name before them.
    fn printed(&self) -> Vec<(String, SystemTime)> {
        let lines = self.lines.lock().expect("a lock");
        let printed = lines.iter().filter_map(|(line, at)| {
            let (name, text) = line.split_once(" : ")?;
            (!name.contains('|')).then(|| (text.to_owned(), *at))
        });
        printed.collect()
    }

    fn wait_for(&self, text: &str) {
        wait(text, || self.printed().iter().any(|(line, _)| line == text).then_some(()));
    }

    fn end(mut self) -> String {
        wait("the end of tail", || self.child.try_wait().expect("a child"));
        let lines = self.lines.lock().expect("a lock");
        lines.iter().map(|(line, _)| format!("{line}\n")).collect()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Begins a run, follows it, and lets its commands begin: they wait for the file `go`.
fn followed(desk: &Desk) -> (crate::support::desk::Live, Tail) {
    let run = desk.start(&["run"]);
    desk.wait_for_event("tool.started", |_| true);
    let tail = Tail::of(desk, &[]);
    tail.wait_for("ready");
    desk.write("go", "");
    (run, tail)
}

/// The beginning of a command: it says that it is ready until the file `go` is there.
const READY: &str = "while ! [ -e go ]; do echo ready; sleep 0.1; done";

#[test]
fn lines_of_a_task_and_of_an_agents_command_come_at_once_and_in_order() {
    let stamps = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i $(date +%s%N); sleep 0.12; done; echo careful >&2";
    let script = format!(
        "[[rules]]\nturn = 1\ncalls = [{{ tool = 'bash', input = {{ command = \"{READY}; {stamps}\" }} }}]\n\
         [[rules]]\nsay = 'done'\n"
    );
    for agents_tasks in [
        format!("[tasks.t]\nrun = \"{READY}; {stamps}\"\n"),
        "[agents.a]\ntools = ['bash']\n[tasks.t]\nagent = 'a'\nprompt = 'go'\n".to_owned(),
    ] {
        let desk = Desk::offline(&agents_tasks, &script);
        let (run, tail) = followed(&desk);
        tail.wait_for("careful");
        let printed = tail.printed();
        let stamped = printed.iter().filter_map(|(line, seen)| {
            let (number, at) = line.split_once(' ')?;
            let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(at.parse().ok()?);
            Some((number.parse::<u32>().ok()?, seen.duration_since(at).unwrap_or_default()))
        });
        let stamped: Vec<_> = stamped.collect();
        let order: Vec<_> = stamped.iter().map(|(number, _)| *number).collect();
        assert_eq!(order, (1..=10).collect::<Vec<_>>());
        // The third of ten: a busy machine of two processors delays most of them, and of a program that passed lines on
        // when the command has ended no more than the last one or two would come in time.
        let mut late: Vec<_> = stamped.iter().map(|(_, late)| *late).collect();
        late.sort_unstable();
        assert!(late[2] < Duration::from_millis(200), "{late:?}");
        assert!(late[late.len() - 1] < LATEST, "{late:?}");
        assert_eq!(run.end().code, 0);
        let all = tail.end();
        let (line, end) = (all.find(": careful"), all.find("task completed"));
        assert!(line.expect("the line") < end.expect("the end"), "{all}");
    }
}

#[test]
fn a_flood_is_counted_delays_nobody_and_its_last_lines_are_shown() {
    let desk = Desk::commands(&format!(
        "[tasks.t]\nrun = \"{READY}; seq 1 400000; printf '%01000d' 0; echo\"\n"
    ));
    let (run, tail) = followed(&desk);
    assert_eq!(run.end().code, 0);
    let shown = tail.end();
    let lines: Vec<_> = shown.lines().filter(|line| line.contains(" : ")).collect();
    assert!(shown.contains("lines came too fast]"), "{shown}");
    assert!(lines.len() < 40_000, "{}", lines.len());
    assert!(lines.last().expect("a line").ends_with(&"0".repeat(390)), "{:?}", lines.last());
    assert!(lines.iter().any(|line| line.ends_with(" : 400000")), "{shown}");
    let output = desk.good(&["show", "/t", "--output"]);
    assert!(output.lines().count() > 400_000, "the result holds all");
}

#[test]
fn secrets_and_control_characters_are_not_passed_on() {
    let desk = Desk::commands(&format!(
        "[secrets]\ntoken = {{ env = 'NOTE_OF_TEST' }}\n\
         [sandbox]\nenv = ['NOTE_OF_TEST']\n[tasks.t]\n\
         run = \"{READY}; printf 'a\\\\033[2Jb %s c\\\\n' $NOTE_OF_TEST; printf '1 %%\\\\r99 %%\\\\n'; echo last\"\n"
    ));
    let mut command = desk.command(&["run", "--trust"]);
    command.env("NOTE_OF_TEST", "hidden-word-123456");
    let run = crate::support::desk::Live::starting(&mut command);
    desk.wait_for_event("tool.started", |_| true);
    let tail = Tail::of(&desk, &[]);
    tail.wait_for("ready");
    desk.write("go", "");
    tail.wait_for("last");
    assert_eq!(run.end().code, 0);
    let shown = tail.end();
    assert!(!shown.contains('\x1b') && !shown.contains("hidden-word"), "{shown}");
    assert!(shown.contains(": 99 %\n"), "{shown}");
}

#[test]
fn who_wants_json_or_one_agent_gets_no_lines_of_others() {
    let desk = Desk::commands(&format!(
        "[tasks.one]\nrun = \"{READY}\"\n[tasks.two]\nrun = \"while ! [ -e go ]; do echo other; sleep 0.1; done\"\n"
    ));
    let run = desk.start(&["run"]);
    desk.wait_for_event("tool.started", |record| record["task"] == "two");
    let (only, json) = (Tail::of(&desk, &["--task", "one"]), Tail::of(&desk, &["--json"]));
    only.wait_for("ready");
    desk.write("go", "");
    assert_eq!(run.end().code, 0);
    assert!(!only.end().contains(": other"));
    for line in json.end().lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    }
}

#[test]
fn a_run_through_a_pipe_shows_how_far_a_long_command_is() {
    let tasks = "[tasks.t]\nrun = 'for i in $(seq 1 30); do echo step $i; sleep 0.1; done'\n";
    for (flags, is_shown) in
        [(&["run"][..], true), (&["run", "--plain"], false), (&["run", "--json"], false)]
    {
        let begun = Instant::now();
        let done = Desk::commands(tasks).call(flags);
        assert_eq!(done.code, 0, "{}", done.err);
        let steps = done.err.lines().filter_map(|line| line.split_once(" : step "));
        let steps: Vec<u32> = steps.map(|(_, step)| step.parse().expect("a number")).collect();
        assert_eq!(!steps.is_empty(), is_shown, "{flags:?}: {}", done.err);
        assert!(steps.is_sorted(), "{steps:?}");
        assert!(steps.len() as u64 <= begun.elapsed().as_secs(), "at most one a second: {steps:?}");
    }
}
