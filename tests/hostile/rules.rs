//! Rules for commands through the real binary: which program a rule is about, and what it does not
//! allow that program.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::desk::{Desk, Done, OFFLINE};

/// Commands that write `made`, though each begins like one that is allowed, and the reason why not.
const DENIED: &[(&str, &str)] = &[
    ("ls/../evil made", "no rule allows"),
    ("sort -o made a", "`sort -o` can run a command or write a file"),
    ("sort --output=made a", "no rule spells it out"),
    ("tool made", "`tool` is `.bin/tool` here, where commands can write"),
    ("A=\"x y\" touch made", "the rule `bash(touch *)` says so"),
    ("exec touch made", "the rule `bash(touch *)` says so"),
    ("case x in x) touch made;; esac", "the rule `bash(touch *)` says so"),
];

#[test]
fn a_rule_allows_its_program_and_no_other() {
    let rules = r#"
allow = ["bash(ls*)", "bash(sort *)", "bash(tool *)", "bash(.bin/named *)"]
deny = ["bash(touch *)"]
[agents.worker]
tools = ["bash"]
[tasks.job]
agent = "worker"
prompt = "Go."
"#;
    let call =
        |command: &str| format!("{{ tool = 'bash', input = {{ command = '''{command}''' }} }}");
    let calls: Vec<String> = DENIED.iter().map(|(command, _)| call(command)).collect();
    let script = format!(
        "[[rules]]\nturn = 1\ncalls = [{}, {}, {}]\n[[rules]]\nsay = 'done'\n",
        calls.join(", "),
        call("ls a && sort -r a"),
        call("named written"),
    );
    let desk = Desk::empty();
    desk.write("agents.toml", &format!("{}{rules}", OFFLINE.replace("\"allow\"", "\"ask\"")));
    desk.write("script.toml", &script);
    desk.write("a", "1\n2\n");
    desk.write("ls/x", "");
    for program in ["evil", ".bin/tool", ".bin/named"] {
        desk.write(program, "#!/bin/sh\n: > \"$1\"\n");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(desk.path().join(program), mode).expect("a mode");
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", desk.path().join(".bin").display());
    let checked = Done::of(desk.command(&["check"]).env("PATH", &path));
    assert_eq!(checked.code, 0, "{}", checked.err);
    let warned = "`bash(tool *)` allows everything that `tool` can do";
    assert_eq!(checked.err.matches("loose_rule").count(), 1, "{}", checked.err);
    assert!(checked.err.contains(warned), "{}", checked.err);
    desk.good(&["trust"]);
    let run = Done::of(desk.command(&["run"]).env("PATH", &path));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(!run.err.contains("loose_rule"), "{}", run.err);
    let results = crate::agents::own_tools::results(&desk);
    assert_eq!(results.len(), DENIED.len() + 2);
    for ((command, why), (_, _, text)) in DENIED.iter().zip(&results) {
        assert!(text.starts_with("Permission denied") && text.contains(why), "{command}: {text}");
    }
    assert!(!desk.path().join("made").exists());
    let free: Vec<_> = results[DENIED.len()..].iter().map(|result| result.1.as_str()).collect();
    assert_eq!(free, ["ok", "ok"], "{results:#?}");
    assert!(desk.path().join("written").exists());
}
