//! Files of a run directory that are no files: a run directory may come from anywhere, and a named pipe waits
//! for a writer for ever.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::desk::{Desk, wait};

/// A run of a model and two commands that was killed during the second.
fn killed() -> Desk {
    let script = "[[rules]]\nsay = 'done'\n";
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n\
                [tasks.one]\nagent = 'a'\nprompt = 'go'\n\
                [tasks.two]\nrun = 'echo two >> ledger'\ndepends_on = ['one']\n\
                [tasks.three]\nrun = 'echo three >> ledger; test -e go || sleep 60'\n\
                depends_on = ['two']\non_unknown = 'tell'\n";
    let desk = Desk::offline(rest, script);
    let run = desk.start(&["run"]);
    wait("the last command", || desk.path().join("ledger").exists().then_some(()));
    wait("its effect", || desk.read("ledger").contains("three").then_some(()));
    run.signal("KILL");
    run.end();
    desk.write("go", "");
    desk
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status().expect("cp");
    assert!(done.success());
}

fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    let done = Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(done.success());
}

fn folder(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir(path).expect("a folder");
}

#[test]
fn nobody_waits_for_what_is_no_file() {
    let desk = killed();
    let run: PathBuf = desk.runs().pop().expect("a run");
    let aside = desk.path().join("aside");
    copy(&run, &aside);
    let names = [
        "journal.jsonl",
        "acknowledged",
        "started",
        "LOCK",
        "snapshots/9.json",
        "agents/one.jsonl",
        "agents/one.log",
        "agents/three.log",
    ];
    for name in names {
        for make in [pipe, folder] {
            fs::remove_dir_all(&run).expect("removed");
            copy(&aside, &run);
            make(&run.join(name));
            for verb in [&["ps", "-a"][..], &["show"], &["tail"], &["resume", "--explain"]] {
                let done = desk.call(verb);
                assert!([0, 74].contains(&done.code), "{name}: {verb:?}: {}", done.err);
                let is_journal = name == "journal.jsonl";
                assert_eq!(done.code == 74, is_journal, "{name}: {verb:?}: {}", done.err);
                assert!(!is_journal || done.err.contains("it is not a file"), "{}", done.err);
                assert!(!is_journal || done.err.contains(&*run.to_string_lossy()), "{}", done.err);
            }
            for verb in ["resume", "rebuild"] {
                let done = desk.call(&[verb, "desk"]);
                assert!([0, 1, 74].contains(&done.code), "{name}: {verb}: {}", done.err);
            }
            assert_eq!(desk.read("ledger"), "two\nthree\n", "{name}");
        }
    }
}
