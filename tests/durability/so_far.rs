//! What commands have printed so far: shown while they run, and kept when whoever ran them was killed.

use std::path::Path;

use crate::support::desk::{Desk, Done, wait};

/// Waits until `show` prints this of the running task `t`.
fn shown(desk: &Desk, flag: &str, text: &str) -> Done {
    wait(text, || {
        let done = desk.call(&["show", "/t", flag]);
        (done.code == 0 && done.out == text).then_some(done)
    })
}

#[test]
fn a_command_that_runs_is_shown_as_far_as_it_has_come() {
    let desk = Desk::commands(
        "[tasks.t]\nrun = 'echo one; echo two >&2; until test -e go; do sleep 0.05; done; echo three'\n",
    );
    let live = desk.start(&["run"]);
    let done = shown(&desk, "--output", "one\n");
    let note = "note: task `t` is still running: this is what its command has printed so far\n";
    assert_eq!(done.err, note);
    assert_eq!(shown(&desk, "--stderr", "two\n").err, note);
    desk.write("go", "");
    assert_eq!(live.end().code, 0);
    let done = desk.call(&["show", "/t", "--output"]);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (0, "one\nthree\n", ""));
}

#[test]
fn an_answer_that_is_not_there_yet_is_told_from_none() {
    let desk = Desk::offline(
        "[agents.a]\n[tasks.t]\nagent = 'a'\nprompt = 'go'\n",
        "[[rules]]\nsay = 'seen'\ndelay_ms = 600000\n",
    );
    let _live = desk.start(&["run"]);
    desk.wait_for_event("model.requested", |_| true);
    let done = desk.call(&["show", "/t", "--output"]);
    assert_eq!((done.code, done.out.as_str()), (1, ""));
    assert!(done.err.contains("task `t` has no output yet: it has not ended"), "{}", done.err);
}

/// The last lines of the command that runs, as they are on the disk.
fn last_lines(run: &Path) -> Option<String> {
    let files = std::fs::read_dir(run.join("spool")).ok()?.filter_map(Result::ok);
    let mut lines =
        files.map(|file| file.path()).filter(|path| path.to_string_lossy().ends_with(".lines"));
    std::fs::read_to_string(lines.next()?).ok()
}

#[test]
fn what_was_printed_before_callsheet_was_killed_is_kept() {
    for verb in [&["cancel", "desk"][..], &["resume"]] {
        let desk = Desk::commands(
            "[limits]\norphan_grace = '100ms'\n\
             [tasks.t]\nrun = 'echo begun; echo note >&2; until test -e go; do sleep 0.05; done'\n",
        );
        let live = desk.start(&["run"]);
        shown(&desk, "--output", "begun\n");
        let run = desk.runs().remove(0);
        wait("both lines", || last_lines(&run).filter(|lines| lines == "begun\nnote\n"));
        live.signal("KILL");
        live.end();
        let done = shown(&desk, "--output", "begun\n");
        assert!(done.err.contains("task `t` was interrupted: this is what"), "{}", done.err);
        let ended = desk.call(verb);
        let lines = "    | begun\n    | note\n";
        if verb[0] == "resume" {
            assert_eq!(ended.code, 1, "{}", ended.err);
            assert!(ended.out.contains(lines), "{}", ended.out);
        } else {
            assert_eq!(ended.code, 0, "{}", ended.err);
            let shown = desk.good(&["show", "/t"]);
            assert!(shown.contains(lines), "{shown}");
        }
        assert_eq!(desk.good(&["show", "/t", "--output"]), "begun\n");
        assert_eq!(desk.good(&["show", "/t", "--stderr"]), "note\n");
        let spool = std::fs::read_dir(run.join("spool")).expect("a folder");
        assert_eq!(spool.count(), 0, "nothing of it is left there");
    }
}
