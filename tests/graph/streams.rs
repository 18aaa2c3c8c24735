//! What a task's command prints: stdout is its output, stderr is kept beside it, and both are kept however it ends.

use crate::support::desk::{Desk, Done, wait};

/// Runs a graph to its end.
fn run(desk: &Desk) -> Done {
    desk.call(&["run", "--keep-going"])
}

#[test]
fn a_warning_on_stderr_is_no_part_of_a_value() {
    let desk = Desk::commands(
        "[tasks.list]\nrun = \"echo 'warning: deprecated' >&2; echo '[1,2]'\"\noutput = 'json'\n\
         [tasks.count]\nrun = 'ls /nowhere | wc -l'\n\
         [tasks.keeps]\nrun = 'echo kept; echo'\noutput = 'raw'\n\
         [tasks.mixed]\nrun = 'echo one; echo two >&2; echo three'\ncapture = 'both'\n\
         [tasks.reads]\ndepends_on = ['list', 'count', 'keeps', 'mixed']\n\
         run = \"printf '%s' \\\"$A|$B|$C|$D\\\"\"\n\
         env = { A = '{{ tasks.list.output[1] }}', B = '{{ tasks.count.output }}', C = '{{ tasks.keeps.output }}', D = '{{ tasks.mixed.output }}' }\n",
    );
    let done = run(&desk);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(desk.good(&["show", "/reads", "--output"]), "2|0|kept\n\n|one\ntwo\nthree");
    for (task, output, stderr) in [
        ("list", "[1,2]\n", "warning: deprecated\n"),
        ("keeps", "kept\n\n", ""),
        ("mixed", "one\ntwo\nthree\n", ""),
    ] {
        let part = format!("/{task}");
        assert_eq!(desk.good(&["show", &part, "--output"]), output, "{task}");
        assert_eq!(desk.good(&["show", &part, "--stderr"]), stderr, "{task}");
    }
    assert!(desk.good(&["show", "/count", "--stderr"]).contains("/nowhere"));
    let shown = desk.good(&["show", "/list"]);
    assert!(shown.contains("on stderr:\n| warning: deprecated\n"), "{shown}");
    assert!(!desk.good(&["show", "/keeps"]).contains("on stderr"));
    let both = desk.call(&["show", "/list", "--stderr", "--output"]);
    assert_eq!(both.code, 2);
}

#[test]
fn a_failure_shows_the_last_lines_of_both_streams_in_order() {
    let desk = Desk::commands(
        "[tasks.one]\nrun = 'for i in 1 2 3; do echo out $i; sleep 0.05; echo err $i >&2; sleep 0.05; done; exit 3'\n\
         [tasks.silent]\nrun = 'echo only out; exit 1'\n",
    );
    let done = run(&desk);
    assert_eq!(done.code, 1);
    let lines = "    | out 1\n    | err 1\n    | out 2\n    | err 2\n    | out 3\n    | err 3\n";
    assert!(done.out.contains(lines) && done.out.contains("    | only out\n"), "{}", done.out);
    assert!(desk.good(&["tail", "--task", "one"]).contains(lines));
    assert_eq!(desk.good(&["show", "/one", "--output"]), "out 1\nout 2\nout 3\n");
    assert_eq!(desk.good(&["show", "/one", "--stderr"]), "err 1\nerr 2\nerr 3\n");
}

#[test]
fn what_a_command_printed_before_its_time_was_up_is_kept() {
    let desk = Desk::commands(
        "[limits]\ngrace_period = '500ms'\n\
         [tasks.killed]\nrun = \"trap '' TERM; echo compiling; echo careful >&2; while :; do sleep 0.1; done\"\n\
         timeout = '1s'\n\
         [tasks.ends]\nrun = \"trap 'echo bye; exit 0' TERM; echo working; while :; do sleep 0.1; done\"\n\
         timeout = '1s'\n",
    );
    let done = run(&desk);
    assert_eq!(done.code, 5, "{}", done.out);
    assert!(done.out.contains("    | compiling\n    | careful\n"), "{}", done.out);
    // Some shells say on stderr that a command of theirs was ended.
    assert!(
        done.out.contains("    | working\n") && done.out.contains("    | bye\n"),
        "{}",
        done.out
    );
    assert_eq!(desk.good(&["show", "/killed", "--output"]), "compiling\n");
    assert_eq!(desk.good(&["show", "/killed", "--stderr"]), "careful\n");
    assert_eq!(desk.good(&["show", "/ends", "--output"]), "working\nbye\n");
}

#[test]
fn what_a_cancelled_command_printed_is_kept() {
    let desk =
        Desk::commands("[tasks.long]\nrun = 'echo begun; echo note >&2; touch here; sleep 60'\n");
    let live = desk.start(&["run"]);
    wait("the command", || desk.path().join("here").exists().then_some(()));
    assert_eq!(desk.call(&["cancel", "/long"]).code, 0);
    let done = live.end();
    // As of a failure.
    let lines = "    | begun\n    | note\n";
    assert!(done.out.contains(lines), "{}", done.out);
    let shown = desk.good(&["show", "/long"]);
    assert!(shown.contains(lines), "{shown}");
    assert_eq!(desk.good(&["show", "/long", "--output"]), "begun\n");
    assert_eq!(desk.good(&["show", "/long", "--stderr"]), "note\n");
}

#[test]
fn long_streams_are_stored_whole_and_secrets_stay_out_of_both() {
    let desk = Desk::commands(
        "[secrets]\nkey = { env = 'THE_KEY' }\n\
         [sandbox]\nenv = ['THE_KEY']\n\
         [tasks.loud]\nrun = 'seq 1 60000 >&2; seq 1 3; echo \"key $THE_KEY\" >&2; exit 4'\n",
    );
    let mut command = desk.command(&["run", "--trust"]);
    let done = Done::of(command.env("THE_KEY", "very-secret-value"));
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("    | 60000\n"), "{}", done.out);
    let stderr = desk.good(&["show", "/loud", "--stderr"]);
    let numbers: String = (1..=60_000).map(|number| format!("{number}\n")).collect();
    assert!(stderr.starts_with(&numbers), "{} bytes", stderr.len());
    let journal = desk.runs()[0].join("journal.jsonl");
    let records = std::fs::read_to_string(journal).expect("a journal");
    for text in [&done.out, &done.err, &stderr, &records] {
        assert!(!text.contains("very-secret-value"));
    }
}

#[test]
fn a_person_reads_that_the_sandbox_may_be_the_cause() {
    let desk = Desk::commands(
        "[tasks.net]\nrun = \"echo 'curl: (6) Could not resolve host: registry.example' >&2; exit 6\"\n\
         [tasks.file]\nrun = 'touch /etc/callsheet-test'\n\
         [tasks.plain]\nrun = 'echo 2 tests failed; exit 1'\n",
    );
    let done = run(&desk);
    assert_eq!(done.code, 1);
    let line = |task: &str| {
        let lines = done.out.lines().filter(|line| line.starts_with(task));
        lines.collect::<String>()
    };
    if !done.err.contains("sandbox of commands: workspace-write") {
        return crate::support::users::skipped("a machine without a sandbox names none");
    }
    let shown = |task: &str| desk.good(&["show", &format!("/{task}")]);
    assert!(shown("net").contains("`[sandbox] network = "), "{}", shown("net"));
    assert!(shown("file").contains("`writable_roots`"), "{}", shown("file"));
    assert!(!shown("plain").contains("sandbox"), "{}", line("plain"));
}
