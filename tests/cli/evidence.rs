//! What stands behind a task that is called done: changed files, tests, hashes, warnings; in the
//! closing summary and in `show`.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::support::desk::Desk;

/// An agent that edits, tests, edits again, and has its child write a file with a hostile name.
const SCRIPT: &str = r#"
[[rules]]
agent = "a"
turn = 1
[[rules.calls]]
tool = "write_file"
input = { path = "a.txt", content = "one\ntwo\n" }
[[rules.calls]]
tool = "delegate"
input = { agent = "b", prompt = "go" }
[[rules]]
agent = "a"
turn = 2
[[rules.calls]]
tool = "bash"
input = { command = "./pytest -q" }
[[rules]]
agent = "a"
turn = 3
[[rules.calls]]
tool = "edit_file"
input = { path = "a.txt", old_string = "two", new_string = "2\n3" }
[[rules]]
agent = "b"
turn = 1
[[rules.calls]]
tool = "write_file"
input = { path = "b\u001b[31m.txt", content = "x\n" }
[[rules]]
say = "all is done"
"#;

fn desk() -> Desk {
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n\
         tools = ['bash', 'write_file', 'edit_file']\nsub_agents = ['b']\n\
         [agents.b]\nmodel = 'default'\ninstructions = 'x'\ntools = ['write_file']\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n\
         [tasks.two]\ndepends_on = ['one']\nrun = 'echo nothing to tell'\n";
    let desk = Desk::offline(rest, SCRIPT);
    desk.write("pytest", "#!/bin/sh\nexit 0\n");
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(desk.path().join("pytest"), runs).expect("set");
    desk
}

#[test]
fn a_summary_and_show_say_what_stands_behind_a_task() {
    let desk = desk();
    let summary = desk.good(&["run"]);
    let told = "    changed 2 files (+5 -1 lines): a.txt, b\\u{1b}[31m.txt; last test passed, before \
                the last edit: ./pytest -q; warning: the last test is older than the last edit\n";
    assert!(summary.contains(told), "{summary}");
    let two = summary.lines().position(|line| line.starts_with("two ")).expect("a line");
    assert_eq!(summary.lines().nth(two + 1), Some(""), "nothing to say of it: {summary}");
    // The same after the fact, and in full.
    assert!(desk.good(&["show"]).contains(told));
    let shown = desk.good(&["show", "/one"]);
    for line in [
        "  a.txt  +4 -1, new\n",
        "  b\\u{1b}[31m.txt  +1 -0, new\n",
        "ran 1 command, 1 with tests; files that commands change are not known\n",
        "warning: the last test is older than the last edit\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let evidence = &desk.json(&["show", "/one", "--json"])[0]["evidence"];
    let hash = blake3::hash(b"one\n2\n3\n").to_hex().to_string();
    assert_eq!(
        evidence["files"][0],
        json!({"path": "a.txt", "added": 4, "removed": 1, "calls": 2, "created": true,
               "hash": hash, "unknown": 0})
    );
    assert_eq!(evidence["last_test"]["passed"], true);
    assert_eq!(evidence["last_test"]["after_last_edit"], false);
    assert_eq!(evidence["warnings"][0]["code"], "stale_test");
    let output = blake3::hash(b"all is done").to_hex().to_string();
    assert_eq!(evidence["artifacts"][0]["hash"], output);
}
