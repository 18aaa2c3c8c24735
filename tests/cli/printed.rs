//! The commands that a run prints, typed as they stand: each can be typed, and each that goes on leads on.

use crate::support::desk::{Desk, Done, wait};

/// The commands that a message tells somebody to type: in backquotes, or after a label at the end of a line.
pub(super) fn told(said: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in said.lines() {
        let quoted = line.split('`').skip(1).step_by(2).map(str::to_owned);
        found.extend(quoted.filter(|text| text.starts_with("callsheet ")));
        let typed = ["  ", "> ", "help: "].into_iter();
        let mut typed = typed.filter_map(|label| line.split_once(&format!("{label}callsheet ")));
        if let Some((_, command)) = typed.next() {
            found.push(format!("callsheet {}", command.split("  #").next().unwrap_or(command)));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A way in which a run ends: what it is called, its tasks, the arguments of `run`, and its exit code.
type End = (&'static str, &'static str, &'static [&'static str], i32);

const ENDS: [End; 7] = [
    ("completed", "[tasks.a]\nrun = 'true'\n", &["run"], 0),
    (
        "failed",
        "[tasks.a]\nrun = 'false'\n[tasks.b]\nrun = 'true'\ndepends_on = ['a']\n",
        &["run"],
        1,
    ),
    (
        "a part failed",
        "[tasks.a]\nrun = 'false'\n[tasks.b]\nrun = 'true'\n",
        &["run", "--keep-going"],
        8,
    ),
    (
        "a fan-out with a failed item",
        "[tasks.f]\nforeach = '[1, 2]'\nforeach_as = 'n'\nmin_success = 0.5\n\
         run = 'test $N = 1'\nenv = { N = '{{ n }}' }\n\
         [tasks.sum]\nrun = 'true'\ndepends_on = ['f']\n",
        &["run"],
        0,
    ),
    (
        "a question",
        "[tasks.ask]\napproval = { message = 'Well?' }\n\
         [tasks.after]\nrun = 'true'\ndepends_on = ['ask']\n",
        &["run"],
        6,
    ),
    ("out of time", "[limits]\ntimeout = '200ms'\n[tasks.a]\nrun = 'sleep 60'\n", &["run"], 5),
    ("a task out of time", "[tasks.a]\ntimeout = '200ms'\nrun = 'sleep 60'\n", &["run"], 5),
];

/// Types all commands that were printed. What only looks comes first: what goes on with the run changes
/// what the others show.
fn type_all(desk: &Desk, what: &str, printed: &Done) {
    let commands = told(&format!("{}\n{}", printed.out, printed.err));
    assert!(!commands.is_empty(), "{what}: {}{}", printed.out, printed.err);
    let goes_on = |command: &String| {
        let verbs = ["resume", "approve", "reject", "answer", "fork", "run "];
        let rest = command.strip_prefix("callsheet ").unwrap_or_default();
        verbs.iter().any(|verb| rest.starts_with(verb))
    };
    let (goes_on, looks): (Vec<_>, Vec<_>) = commands.into_iter().partition(goes_on);
    for command in looks.iter().chain(&goes_on) {
        let done = desk.shell(command);
        let told = format!("{what}: {command}: {} {}{}", done.code, done.out, done.err);
        assert!(![2, 70, 74, 101].contains(&done.code), "{told}");
        // Nothing has changed that `--accept-changes` could accept.
        if goes_on.contains(command) && !command.ends_with("--accept-changes") {
            assert!(!done.err.contains("nothing is left to do"), "{told}");
        }
    }
}

#[test]
fn each_command_that_the_end_of_a_run_prints_can_be_typed_and_leads_on() {
    for (what, tasks, verb, code) in ENDS {
        let desk = Desk::commands(tasks);
        let done = desk.call(verb);
        assert_eq!(done.code, code, "{what}: {}{}", done.out, done.err);
        type_all(&desk, what, &done);
    }
}

#[test]
fn each_command_that_a_stopped_run_prints_can_be_typed_and_leads_on() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let desk = Desk::commands(
            "[limits]\ngrace_period = '100ms'\n\
             [tasks.a]\nidempotent = true\nrun = 'test -e begun || { touch begun; sleep 60; }'\n",
        );
        let run = desk.start(&["run"]);
        wait("the command", || desk.path().join("begun").exists().then_some(()));
        run.signal(signal);
        let done = run.end();
        assert_eq!(done.code, code, "{}{}", done.out, done.err);
        type_all(&desk, signal, &done);
        assert_eq!(desk.json(&["ps", "-a", "--json"])[0]["state"], "completed", "{signal}");
    }
}
