//! A run whose output nobody reads any more: it goes on, and ends as it would have.

use std::process::{Command, Stdio};

use crate::support::desk::{Desk, wait};

/// A task that takes a moment, and one after it.
const TASKS: &str = "[tasks.one]\nrun = 'sleep 0.2; echo one'\n[tasks.two]\nrun = 'echo two'\ndepends_on = ['one']\n";

/// Runs `callsheet ARGUMENTS` in a shell with this redirection; gives its exit code.
fn code(desk: &Desk, redirected: &str) -> i32 {
    let mut shell = Command::new("bash");
    let program = env!("CARGO_BIN_EXE_callsheet");
    shell.arg("-c").arg(format!("{program} {redirected}"));
    desk.bare(&mut shell);
    // With everything that the program has to say about itself.
    shell.env("CALLSHEET_LOG", "trace").stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().expect("started").code().unwrap_or(-1)
}

fn state(desk: &Desk) -> String {
    let run = desk.runs().pop().expect("a run");
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).expect("a journal");
    let last = journal.lines().last().unwrap_or_default();
    let record: serde_json::Value = serde_json::from_str(last).expect("a record");
    format!("{} {}", record["type"], record["data"]["status"])
}

#[test]
fn a_run_ends_as_it_would_have() {
    for redirected in [
        "run 2>&-",
        "run >&- 2>&-",
        "run -vv 2> >(true)",
        "run 2>&1 | true; exit ${PIPESTATUS[0]}",
        "run -vv 2>&1 | head -c 20; exit ${PIPESTATUS[0]}",
        "run --json 2>&1 | head -n 1; exit ${PIPESTATUS[0]}",
        "run --json | true; exit ${PIPESTATUS[0]}",
        "run 2> /dev/full",
        "run -vv 2> /dev/full",
    ] {
        let desk = Desk::commands(TASKS);
        assert_eq!(code(&desk, redirected), 0, "{redirected}");
        assert_eq!(state(&desk), "\"run.completed\" \"completed\"", "{redirected}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_no_success() {
    for redirected in ["run > /dev/full", "run --json > /dev/full"] {
        let desk = Desk::commands(TASKS);
        assert_eq!(code(&desk, redirected), 74, "{redirected}");
        // What was printed is lost, what was done is not.
        assert_eq!(state(&desk), "\"run.completed\" \"completed\"", "{redirected}");
    }
}

#[test]
fn no_verb_breaks_on_a_stderr_that_nobody_reads() {
    let desk = Desk::commands(TASKS);
    assert_eq!(code(&desk, "run --run-id 019a0000-0000-7000-8000-000000000001 2> >(true)"), 0);
    for (verb, expected) in [
        ("resume", 0),
        ("ps -a", 0),
        ("tail", 0),
        ("show", 0),
        ("report", 0),
        ("check", 0),
        ("rebuild desk", 0),
        ("resume nothing-like-it", 1),
        ("explain no_such_code", 1),
        ("run -f none.toml", 2),
    ] {
        let redirected = format!("{verb} 2>&-");
        assert_eq!(code(&desk, &redirected), expected, "{redirected}");
        assert_eq!(code(&desk, &format!("-vv {verb} 2> /dev/full")), expected, "{verb}");
    }
}

/// The reader of the log goes away while the run is at work.
#[test]
fn a_reader_that_goes_away_amid_the_run_is_not_missed() {
    let desk = Desk::commands("[tasks.one]\nrun = 'while [ ! -e go ]; do sleep 0.01; done'\n");
    let mut command = desk.command(&["-vv", "run"]);
    command.env("CALLSHEET_LOG", "trace").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    desk.wait_for_event("tool.started", |_| true);
    drop(child.stderr.take());
    desk.write("go", "");
    let status = wait("the end of the program", || child.try_wait().expect("a child"));
    assert_eq!(
        (status.code(), state(&desk).as_str()),
        (Some(0), "\"run.completed\" \"completed\"")
    );
}
